"""Imitates the two servers of a prefill and decode pair, with what the engine does about slots, on loopback.

Each server has ``room`` for as many sequences. What prefill has computed keeps its slot until decode has fetched it, and decode,
once a request has a slot, waits without end for what it is to fetch: both also when the client has gone.
Source: aws-neuron/upstreaming-to-vllm, branch neuron-2.24-vllm-v0.7.2, scheduler.py (``transferring``, ``abort_seq_group``).
"""

import json
import socket
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from loopback import Handler, Request, Served, Server

_POLL_S = 0.05


@dataclass(kw_only=True, eq=False)
class PairEngine(Served):
    """``refusals`` are the statuses that decode still answers, one a request, before it looks at anything."""

    room: int = 4
    longest: int = 64
    seconds: float = 0.0
    """That decode takes for an answer, beside the transfer."""
    refusals: list[int] = field(default_factory=list)
    most: int = 0
    """Sequences that were in decode at once."""

    def __post_init__(self) -> None:
        self.changed = threading.Condition()
        self.prefilling: set[str] = set()
        """Sequences with a slot of prefill."""
        self.computed: set[str] = set()
        """Those of them that wait to be fetched."""
        self.decoding: set[str] = set()
        """Sequences with a slot of decode."""
        self.ended = False
        self.servers = [Server(self, _Prefill), Server(self, _Decode)]

    @property
    def urls(self) -> tuple[str, str]:
        prefill, decode = (f"http://{server.address}" for server in self.servers)
        return prefill, decode

    @property
    def kept(self) -> set[str]:
        """Sequences that have a slot."""
        with self.changed:
            return self.prefilling | self.decoding

    def stop(self) -> None:
        with self.changed:
            self.ended = True
            self.changed.notify_all()
        super().stop()


class _Half(Handler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        self._answer(200, {})

    def do_POST(self) -> None:
        request = self.received()
        if status := self._refusal(request.body):
            self._answer(status, {"error": {"message": "refused"}})
            return
        for number in range(self._sequences(request.body)):
            if not self._run(f"{request.headers['x-request-id']}-{number}"):
                self.close_connection = True
                return
        self._say(request)

    def _refusal(self, body: dict[str, Any]) -> int:
        owner = self.owner
        asked = body.get("max_tokens", 16)
        given = body.get("prompt") or body.get("messages", [{}])[0].get("content")
        longest = max((len(one.split()) for one in (given if isinstance(given, list) else [given])), default=0)
        wrong = (
            longest + asked > owner.longest,
            "stream_options" in body and not body.get("stream"),
            body.get("min_tokens", 0) > asked,
        )
        return 400 if any(wrong) else 0

    def _sequences(self, body: dict[str, Any]) -> int:
        prompt = body.get("prompt")
        return (len(prompt) if isinstance(prompt, list) else 1) * body.get("n", 1)

    def _run(self, name: str) -> bool:
        """Whether the sequence ran to its end."""
        raise NotImplementedError

    def _until(self, condition: Any, *, abortable: bool) -> bool:
        """Waits, with the lock; False when the servers end, or the client has gone and that may end it."""
        while not condition():
            if self.owner.ended or (abortable and self._gone()):
                return False
            self.owner.changed.wait(_POLL_S)
        return True

    def _gone(self) -> bool:
        try:
            return self.connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True

    def _say(self, request: Request) -> None:
        words = [f" word{number}" for number in range(request.body.get("max_tokens", 16))]
        if not request.body.get("stream"):
            self._answer(200, {"choices": [{"index": 0, "text": "".join(words), "finish_reason": "length"}]})
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        for word in words:
            self.wfile.write(b"data: " + json.dumps({"choices": [{"index": 0, "text": word}]}).encode() + b"\n\n")
        self.wfile.write(b"data: [DONE]\n\n")
        self.close_connection = True

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        self.send(status, json.dumps(body).encode(), {"content-type": "application/json"})


class _Prefill(_Half):
    def _run(self, name: str) -> bool:
        owner = self.owner
        with owner.changed:
            if not self._until(lambda: len(owner.prefilling) < owner.room, abortable=True):
                return False
            owner.prefilling.add(name)
            owner.computed.add(name)
            owner.changed.notify_all()
        return True


class _Decode(_Half):
    def _refusal(self, body: dict[str, Any]) -> int:
        with self.owner.changed:
            return self.owner.refusals.pop() if self.owner.refusals else super()._refusal(body)

    def _run(self, name: str) -> bool:
        owner = self.owner
        with owner.changed:
            if not self._until(lambda: len(owner.decoding) < owner.room, abortable=True):
                return False
            owner.decoding.add(name)
            owner.most = max(owner.most, len(owner.decoding))
            if not self._until(lambda: name in owner.computed, abortable=False):
                return False
            owner.computed.discard(name)
            owner.prefilling.discard(name)
            owner.changed.notify_all()
        if owner.seconds:
            time.sleep(owner.seconds)
        with owner.changed:
            owner.decoding.discard(name)
            owner.changed.notify_all()
        return True
