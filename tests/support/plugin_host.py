"""The plugin for other languages in a process of its own, and the recorder as the monitor that it registers with."""

import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf import struct_pb2
from google.protobuf.json_format import MessageToDict
from pulumi.runtime import rpc
from pulumi.runtime.proto import (
    engine_pb2_grpc,
    provider_pb2,
    provider_pb2_grpc,
    resource_pb2,
    resource_pb2_grpc,
)

from stackgraph.graph.document import STACK_TYPE, Graph
from stackgraph.recorder.monitor import Recorder

TYPE = "eks-inference:index:InferenceStack"
_LARGE = (("grpc.max_receive_message_length", 400 << 20), ("grpc.max_send_message_length", 400 << 20))


@dataclass(frozen=True)
class Plugin:
    """The served component."""

    stub: Any
    engine: str
    monitors: ExitStack
    """As with an engine, monitors are there until the plugin ends: calls that a refused stack has left may fail only then."""

    def schema(self) -> str:
        return self.stub.GetSchema(provider_pb2.GetSchemaRequest()).schema

    def construct(
        self, name: str, inputs: Mapping[str, Any], *, project: str, stack: str, config: Mapping[str, str]
    ) -> tuple[Graph, Mapping[str, Any]]:
        """The graph that the component registers, and its outputs. Raises ``grpc.RpcError`` where it refuses its inputs."""
        recorder = Recorder(project, stack, dict(config), secret_keys=[], strict=True, locate=str)
        root = recorder.RegisterResource(resource_pb2.RegisterResourceRequest(type=STACK_TYPE, name=f"{project}-{stack}"))
        address = self.monitors.enter_context(served(recorder))
        done = self.stub.Construct(
            provider_pb2.ConstructRequest(
                project=project,
                stack=stack,
                config=dict(config),
                dryRun=True,
                monitorEndpoint=address,
                type=TYPE,
                name=name,
                parent=root.urn,
                inputs=_struct(inputs),
            )
        )
        return recorder.graph(), MessageToDict(done.state)


@contextmanager
def plugin() -> Iterator[Plugin]:
    """Starts the plugin as Pulumi does, with the address of an engine, and ends it."""
    recorder = Recorder("project", "stack", {}, secret_keys=[], strict=True, locate=str)
    with ExitStack() as monitors:
        engine = monitors.enter_context(served(recorder))
        command = [sys.executable, "-m", "pulumi.run.plugin", "eks-inference", engine]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout
                port = int(process.stdout.readline())
                with grpc.insecure_channel(f"127.0.0.1:{port}", options=_LARGE) as channel:
                    yield Plugin(provider_pb2_grpc.ResourceProviderStub(channel), engine, monitors)
            finally:
                process.terminate()


@contextmanager
def served(recorder: Recorder) -> Iterator[str]:
    """Serves a recorder on loopback, as the engine serves its monitor; yields the address."""
    server = grpc.server(ThreadPoolExecutor(8), options=_LARGE)
    for base, add in (
        (resource_pb2_grpc.ResourceMonitorServicer, resource_pb2_grpc.add_ResourceMonitorServicer_to_server),
        (engine_pb2_grpc.EngineServicer, engine_pb2_grpc.add_EngineServicer_to_server),
    ):
        methods = {name: _answering(getattr(recorder, name)) for name in vars(base) if hasattr(recorder, name) and name[0] != "_"}
        servicer: Any = type(base.__name__, (base,), methods)()
        add(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None)


def _answering(method: Any) -> Any:
    return lambda self, request, context: method(request)


def _struct(inputs: Mapping[str, Any]) -> struct_pb2.Struct:
    made = struct_pb2.Struct()
    made.update(dict(inputs))
    return made


def secret(value: str) -> Mapping[str, Any]:
    """A secret as the engine sends it."""
    return {rpc._special_sig_key: rpc._special_secret_sig, "value": value}


UNKNOWN = rpc.UNKNOWN
