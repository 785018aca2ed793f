"""Calls functions of the program as the engine does, over gRPC on loopback: transforms and hooks."""

import threading
from typing import Any

from pulumi.runtime.proto import callback_pb2


class Callbacks:
    """The connections to the program's callback servers."""

    def __init__(self) -> None:
        self._stubs: dict[str, Any] = {}
        self._channels: list[Any] = []
        self._lock = threading.Lock()

    def call(self, callback: callback_pb2.Callback, request: Any) -> bytes:
        """What a function of the program returns for a message."""
        import grpc
        from pulumi.runtime.proto import callback_pb2_grpc

        with self._lock:
            stub = self._stubs.get(callback.target)
            if stub is None:
                channel = grpc.insecure_channel(callback.target)
                self._channels.append(channel)
                stub = self._stubs[callback.target] = callback_pb2_grpc.CallbacksStub(channel)
        asked = callback_pb2.CallbackInvokeRequest(token=callback.token, request=request.SerializeToString())
        return stub.Invoke(asked).response

    def close(self) -> None:
        for channel in self._channels:
            channel.close()
