"""What a stack exports: names, endpoints, and the commands a person needs next."""

from collections.abc import Iterator, Mapping
from typing import Any

import pulumi

from eks_inference.clients.component import OpenWebUI
from eks_inference.clients.triton_client import TritonClient
from eks_inference.cluster.component import EksCluster
from eks_inference.loadtest.component import LoadTest
from eks_inference.server_assembly import Server
from eks_inference.serving.ray_serve.component import RayServeVllm
from eks_inference.serving.ray_serve.plan import HEAD_PORTS
from eks_inference.serving.triton.component import TritonServer
from eks_inference.serving.triton.plan import PORTS as TRITON_PORTS


def stack_outputs(
    cluster: EksCluster,
    servers: Mapping[str, Server],
    *,
    web_ui: OpenWebUI | None,
    triton_client: TritonClient | None,
    load_test: LoadTest | None,
    with_key: bool,
) -> Mapping[str, Any]:
    """The outputs of a stack. ``next`` is in the order in which a person runs it; ``with_key``: servers want an API key."""
    return {
        "clusterName": cluster.name,
        "kubeconfigCommand": cluster.kubeconfig_command,
        # Triton speaks a protocol of its own, over HTTP and gRPC: what a person tries first is HTTP.
        "endpoints": {
            name: server.http_endpoint if isinstance(server, TritonServer) else server.endpoint
            for name, server in servers.items()
        },
        "next": [
            cluster.kubeconfig_command,
            f"eks-inference verify {pulumi.get_stack()}",
            *_access(servers, with_key=with_key),
            *([web_ui.port_forward_command] if web_ui else []),
            *([triton_client.log_command, triton_client.again_command] if triton_client else []),
            *([load_test.log_command] if load_test and load_test.log_command else []),
        ],
    }


def _access(servers: Mapping[str, Server], *, with_key: bool) -> Iterator[str]:
    """The commands that take a person from a deployed stack to an answer of the model."""
    for server in servers.values():
        forward = f"kubectl -n {server.namespace} port-forward svc"
        yield f"kubectl -n {server.namespace} get pods --watch"
        if isinstance(server, RayServeVllm):
            yield f"{forward}/{server.serve_service_name} {HEAD_PORTS['serve']}"
            yield f"{forward}/{server.head_service_name} {HEAD_PORTS['dashboard']}"
        elif isinstance(server, TritonServer):
            yield f"{forward}/{server.service_name} {TRITON_PORTS['http']} {TRITON_PORTS['grpc']}"
        else:
            yield f"{forward}/{server.service_name} {server.port}"
    if any(not isinstance(server, TritonServer) for server in servers.values()):
        yield f"{'OPENAI_API_KEY=KEY ' if with_key else ''}eks-inference chat"
