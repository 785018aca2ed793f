"""A resource provider that answers every request with what it was asked: no cloud, no schema, no state.

Run as ``echo.py PACKAGE VERSION`` by the engine, which reads the port from its first line. A resource has its inputs as outputs
and an id that a preview does not know, as with the real plugins; an object for a policy comes back as JSON text, as with AWS.
Functions give what ``answers.yaml`` says. A remote component gets two children, one an output of it.
"""

import json
import os
import sys
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import empty_pb2, struct_pb2
from pulumi.runtime import rpc
from pulumi.runtime.proto import plugin_pb2, provider_pb2, provider_pb2_grpc, resource_pb2, resource_pb2_grpc

from stackgraph.recorder import wire
from stackgraph.recorder.answers import read_answers

ANSWERS = Path(__file__).with_name("answers.yaml")
OPTIONS = (("grpc.max_receive_message_length", 400 << 20), ("grpc.max_send_message_length", 400 << 20))

# By type of a remote component: the child that is an output of it, its type and the name of the output.
COMPONENTS = {"eks:index:Cluster": ("aws:eks/cluster:Cluster", "eksCluster")}


class Echo(provider_pb2_grpc.ResourceProviderServicer):
    def __init__(self, version: str) -> None:
        self._version = version

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
        properties = wire.encode({key: _provided(key, value) for key, value in wire.decode(request.properties).items()})
        return provider_pb2.CreateResponse(id="" if request.preview else f"{request.name}-id", properties=properties)

    def Invoke(self, request: provider_pb2.InvokeRequest, context: Any) -> provider_pb2.InvokeResponse:
        args, response = wire.decode(request.args), provider_pb2.InvokeResponse()
        answer = read_answers(ANSWERS).of_function(request.tok, args, "", None)
        getattr(response, "return").CopyFrom(wire.encode(answer or {}))
        return response

    def Read(self, request: provider_pb2.ReadRequest, context: Any) -> provider_pb2.ReadResponse:
        return provider_pb2.ReadResponse(id=request.id, properties=request.properties, inputs=request.inputs)

    def Update(self, request: provider_pb2.UpdateRequest, context: Any) -> provider_pb2.UpdateResponse:
        return provider_pb2.UpdateResponse(properties=request.news)

    def Delete(self, request: Any, context: Any) -> empty_pb2.Empty:
        return empty_pb2.Empty()

    def Construct(self, request: provider_pb2.ConstructRequest, context: Any) -> provider_pb2.ConstructResponse:
        child_type, output = COMPONENTS[request.type]
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
            role = self._child(monitor, "aws:iam/role:Role", f"{request.name}-role", component.urn, {})
            child = self._child(
                monitor, child_type, f"{request.name}-{output}", component.urn, {"roleArn": rpc.UNKNOWN}, role.urn
            )
            state = {output: {rpc._special_sig_key: rpc._special_resource_sig, "urn": child.urn, "id": child.id or rpc.UNKNOWN}}
            outputs = struct_pb2.Struct()
            outputs.update(state)
            monitor.RegisterResourceOutputs(resource_pb2.RegisterResourceOutputsRequest(urn=component.urn, outputs=outputs))
        return provider_pb2.ConstructResponse(urn=component.urn, state=outputs)

    def _child(self, monitor: Any, type_: str, name: str, parent: str, inputs: dict[str, Any], *needs: str) -> Any:
        struct = struct_pb2.Struct()
        struct.update(inputs)
        return monitor.RegisterResource(
            resource_pb2.RegisterResourceRequest(
                type=type_,
                name=name,
                parent=parent,
                custom=True,
                object=struct,
                dependencies=needs,
                acceptSecrets=True,
                acceptResources=True,
                supportsPartialValues=True,
            )
        )


def _provided(key: str, value: Any) -> Any:
    if key not in ("policy", "assumeRolePolicy") or not isinstance(value, dict) or wire.SIGNATURE in value:
        return value
    return wire.UNKNOWN if wire.has_unknown(value) else json.dumps(value, separators=(",", ":"), sort_keys=True)


def main() -> None:
    package, version, *_ = sys.argv[1:]
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=16, thread_name_prefix=package), options=OPTIONS)
    provider_pb2_grpc.add_ResourceProviderServicer_to_server(Echo(version), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(port, flush=True)
    # The engine ends its plugins; when it is ended itself, nobody does.
    engine = os.getppid()
    while os.getppid() == engine:
        server.wait_for_termination(timeout=1)


if __name__ == "__main__":
    main()
