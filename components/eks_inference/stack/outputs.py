"""What a stack exports: names, endpoints, and the commands a person needs next."""

from collections.abc import Iterator, Mapping
from typing import Any

import pulumi

from eks_inference.clients.component import OpenWebUI
from eks_inference.clients.triton_client import TritonClient
from eks_inference.cluster.component import EksCluster
from eks_inference.loadtest.component import LoadTest
from eks_inference.serving.handle import Server


def stack_outputs(
    cluster: EksCluster,
    servers: Mapping[str, Server],
    *,
    web_ui: OpenWebUI | None,
    triton_client: TritonClient | None,
    load_test: LoadTest | None,
    has_chat: bool,
    with_key: bool,
) -> Mapping[str, Any]:
    """The outputs of a stack. ``next`` is in the order in which a person runs it; ``has_chat``: a server
    has an OpenAI API; ``with_key``: servers want an API key."""
    return {
        "clusterName": cluster.name,
        "kubeconfigCommand": cluster.kubeconfig_command,
        "endpoints": {name: server.endpoint for name, server in servers.items()},
        "next": [
            cluster.kubeconfig_command,
            f"eks-inference verify {pulumi.get_stack()}",
            *_access(servers, has_chat, with_key=with_key),
            *([web_ui.port_forward_command] if web_ui else []),
            *([triton_client.log_command, triton_client.again_command] if triton_client else []),
            *([load_test.log_command] if load_test and load_test.log_command else []),
        ],
    }


def _access(servers: Mapping[str, Server], asked_by_chat: bool, *, with_key: bool) -> Iterator[str]:
    """The commands that take a person from a deployed stack to an answer of the model."""
    for server in servers.values():
        yield f"kubectl -n {server.namespace} get pods --watch"
        for service, ports in server.forwards.items():
            yield f"kubectl -n {server.namespace} port-forward svc/{service} {' '.join(map(str, ports))}"
    if asked_by_chat:
        yield f"{'OPENAI_API_KEY=KEY ' if with_key else ''}eks-inference chat"
