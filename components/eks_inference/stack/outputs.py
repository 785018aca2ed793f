"""The outputs of a stack: names, endpoints, and the commands to run next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pulumi

from eks_inference.clients.component import OpenWebUI, TritonClient
from eks_inference.cluster.component import EksCluster
from eks_inference.endpoints.component import ModelEndpoint
from eks_inference.gateway.component import Gateway, GatewayRoutes
from eks_inference.loadtest.component import LoadTest
from eks_inference.serving.handle import Server


def stack_outputs(
    cluster: EksCluster,
    servers: Mapping[str, Server],
    *,
    web_ui: OpenWebUI | None,
    triton_client: TritonClient | None,
    load_test: LoadTest | None,
    endpoints: Mapping[str, ModelEndpoint],
    gateway: Gateway | GatewayRoutes | None,
    has_chat: bool,
    with_key: bool,
) -> Mapping[str, Any]:
    """Returns the outputs of a stack. ``next`` lists commands in the order to run them.

    ``has_chat`` says whether a server has an OpenAI API, ``with_key`` whether servers require an API key.
    """
    access: list[str] = []
    for server in servers.values():
        access.append(f"kubectl -n {server.namespace} get pods --watch")
        for service, ports in server.forwards.items():
            access.append(f"kubectl -n {server.namespace} port-forward svc/{service} {' '.join(map(str, ports))}")
    if has_chat:
        access.append(f"{'OPENAI_API_KEY=KEY ' if with_key else ''}eks-inference chat")
    return {
        "clusterName": cluster.name,
        "kubeconfigCommand": cluster.kubeconfig_command,
        "endpoints": {name: one.endpoint for name, one in (*servers.items(), *endpoints.items())},
        **({"addresses": dict(gateway.addresses)} if gateway else {}),
        "next": [
            cluster.kubeconfig_command,
            f"eks-inference verify {pulumi.get_stack()}",
            *access,
            *([web_ui.port_forward_command] if web_ui else []),
            *([triton_client.log_command, triton_client.again_command] if triton_client else []),
            *([load_test.log_command] if load_test and load_test.log_command else []),
        ],
    }
