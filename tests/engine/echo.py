"""A resource provider that answers every request with what it was asked: no cloud, no schema, no state.

Run as ``echo.py PACKAGE VERSION`` by the engine, which reads the port from its first line. A resource has its inputs as outputs
and an id that a preview does not know, as with the real plugins; an object for a policy comes back as JSON text, as with AWS.
Once created, it has the other outputs too, as the recorder makes them up. Functions give what ``answers.yaml`` says. A remote
component gets the children that ``remote.py`` names. Every creation and deletion takes the time that ``pace.py`` says.
"""

import json
import os
import signal
import sys
from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import empty_pb2
from pulumi.runtime import rpc
from pulumi.runtime.proto import plugin_pb2, provider_pb2, provider_pb2_grpc, resource_pb2, resource_pb2_grpc

from engine import made_up
from engine.pace import Failed, Pace, pace_of_environment
from engine.remote import COMPONENTS
from stackgraph.graph.document import PROVIDER_PREFIX
from stackgraph.recorder import wire
from stackgraph.recorder.answers import read_answers

ANSWERS = Path(__file__).with_name("answers.yaml")
OPTIONS = (("grpc.max_receive_message_length", 400 << 20), ("grpc.max_send_message_length", 400 << 20))


class Echo(provider_pb2_grpc.ResourceProviderServicer):
    def __init__(self, version: str, pace: Pace) -> None:
        self._version, self._pace = version, pace

    def Handshake(self, request: Any, context: Any) -> provider_pb2.ProviderHandshakeResponse:
        return provider_pb2.ProviderHandshakeResponse(accept_secrets=True, accept_resources=True, accept_outputs=True)

    def GetPluginInfo(self, request: Any, context: Any) -> plugin_pb2.PluginInfo:
        return plugin_pb2.PluginInfo(version=self._version)

    def Attach(self, request: Any, context: Any) -> empty_pb2.Empty:
        return empty_pb2.Empty()

    def Cancel(self, request: Any, context: Any) -> empty_pb2.Empty:
        return empty_pb2.Empty()

    def CheckConfig(self, request: provider_pb2.CheckRequest, context: Any) -> provider_pb2.CheckResponse:
        return provider_pb2.CheckResponse(inputs=request.news)

    def DiffConfig(self, request: Any, context: Any) -> provider_pb2.DiffResponse:
        return provider_pb2.DiffResponse(changes=provider_pb2.DiffResponse.DIFF_NONE)

    def Configure(self, request: Any, context: Any) -> provider_pb2.ConfigureResponse:
        return provider_pb2.ConfigureResponse(acceptSecrets=True, supportsPreview=True, acceptResources=True, acceptOutputs=True)

    def Check(self, request: provider_pb2.CheckRequest, context: Any) -> provider_pb2.CheckResponse:
        return provider_pb2.CheckResponse(inputs=request.news)

    def Diff(self, request: Any, context: Any) -> provider_pb2.DiffResponse:
        """Nothing ever changes: every stack is new, and an import finds what the program says."""
        return provider_pb2.DiffResponse(changes=provider_pb2.DiffResponse.DIFF_NONE)

    def Create(self, request: provider_pb2.CreateRequest, context: Any) -> provider_pb2.CreateResponse:
        properties = {key: _provided(key, value) for key, value in wire.decode(request.properties).items()}
        if request.preview:
            return provider_pb2.CreateResponse(properties=wire.encode(properties))
        with _told(context), self._pace.step("create", request.urn):
            properties = made_up.outputs(request.name, request.type, properties)
        return provider_pb2.CreateResponse(id=f"{request.name}-id", properties=wire.encode(properties))

    def Invoke(self, request: provider_pb2.InvokeRequest, context: Any) -> provider_pb2.InvokeResponse:
        args, response = wire.decode(request.args), provider_pb2.InvokeResponse()
        answer = read_answers(ANSWERS).of_function(request.tok, args, "", None)
        getattr(response, "return").CopyFrom(wire.encode(answer or {}))
        return response

    def Read(self, request: provider_pb2.ReadRequest, context: Any) -> provider_pb2.ReadResponse:
        return provider_pb2.ReadResponse(id=request.id, properties=request.properties, inputs=request.inputs)

    def Update(self, request: provider_pb2.UpdateRequest, context: Any) -> provider_pb2.UpdateResponse:
        return provider_pb2.UpdateResponse(properties=request.news)

    def Delete(self, request: provider_pb2.DeleteRequest, context: Any) -> empty_pb2.Empty:
        with _told(context), self._pace.step("delete", request.urn):
            return empty_pb2.Empty()

    def Construct(self, request: provider_pb2.ConstructRequest, context: Any) -> provider_pb2.ConstructResponse:
        inside = COMPONENTS[request.type]
        with grpc.insecure_channel(request.monitorEndpoint, options=OPTIONS) as channel:
            monitor = resource_pb2_grpc.ResourceMonitorStub(channel)
            component = monitor.RegisterResource(
                resource_pb2.RegisterResourceRequest(
                    type=request.type,
                    name=request.name,
                    parent=request.parent,
                    object=request.inputs,
                    dependencies=request.dependencies,
                    propertyDependencies={
                        key: resource_pb2.RegisterResourceRequest.PropertyDependencies(urns=found.urns)
                        for key, found in request.inputDependencies.items()
                    },
                    providers=request.providers,
                    aliases=request.aliases,
                    protect=request.protect if request.HasField("protect") else None,
                    retainOnDelete=request.retainOnDelete if request.HasField("retainOnDelete") else None,
                    acceptSecrets=True,
                    acceptResources=True,
                    supportsPartialValues=True,
                )
            )
            child = self._child(monitor, inside.type, f"{request.name}-{inside.output}", component.urn)
            provider = PROVIDER_PREFIX + inside.package
            self._child(monitor, provider, f"{request.name}-{inside.suffix}", component.urn, child.urn)
            there = {rpc._special_sig_key: rpc._special_resource_sig, "urn": child.urn, "id": child.id or rpc.UNKNOWN}
            state = {inside.output: there}
            if not request.dryRun:
                state |= made_up.outputs(request.name, request.type, state, {inside.type: there}.get)
            outputs = wire.encode(state)
            monitor.RegisterResourceOutputs(resource_pb2.RegisterResourceOutputsRequest(urn=component.urn, outputs=outputs))
        return provider_pb2.ConstructResponse(urn=component.urn, state=outputs)

    def _child(self, monitor: Any, type_: str, name: str, parent: str, *needs: str) -> Any:
        return monitor.RegisterResource(
            resource_pb2.RegisterResourceRequest(
                type=type_,
                name=name,
                parent=parent,
                custom=True,
                dependencies=needs,
                acceptSecrets=True,
                acceptResources=True,
                supportsPartialValues=True,
            )
        )


@contextmanager
def _told(context: Any) -> Iterator[None]:
    """Tells the engine why a step fails."""
    try:
        yield
    except Failed as error:
        context.abort(grpc.StatusCode.UNKNOWN, str(error))


def _provided(key: str, value: Any) -> Any:
    if key not in ("policy", "assumeRolePolicy") or not isinstance(value, dict) or wire.SIGNATURE in value:
        return value
    return wire.UNKNOWN if wire.has_unknown(value) else json.dumps(value, separators=(",", ":"), sort_keys=True)


def main() -> None:
    package, version, *_ = sys.argv[1:]
    # More than the engine has steps under way, which sleep.
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=128, thread_name_prefix=package), options=OPTIONS)
    provider_pb2_grpc.add_ResourceProviderServicer_to_server(Echo(version, pace_of_environment()), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(port, flush=True)
    # The engine interrupts its plugins, and calls what they print then their fault. When it is ended itself, nobody ends them.
    signal.signal(signal.SIGINT, lambda *_: server.stop(grace=None))
    engine = os.getppid()
    while os.getppid() == engine and server.wait_for_termination(timeout=1):
        pass


if __name__ == "__main__":
    main()
