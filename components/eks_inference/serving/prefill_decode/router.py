"""Plans the routers of a group, which clients call. Pure functions; no pulumi.

A router finds the servers of its own revision by labels, and answers only when it has one of each role. It asks clients for no
key; a NetworkPolicy says who reaches it. Whoever does may also remove servers (``/remove_worker``).

Sources: vllm-router 0.1.17 (wheel, ``--help``; vllm-project/router, src/main.rs, src/service_discovery.rs); what it does with
servers that refuse, die or are slow is tested (tests/test_vllm_router.py, tests/test_vllm_router_operation.py).
"""

from collections.abc import Mapping, Sequence
from typing import Any

from eks_inference.kubernetes import workloads
from eks_inference.kubernetes.network_policy import DNS, Front, allow_to, api_server, network_policy, pods
from eks_inference.kubernetes.workloads import restricted_pod
from eks_inference.place.placement import Placement
from eks_inference.serving.pod_parts import (
    DRAIN_SECONDS,
    REVISION_LABEL,
    ROLE_LABEL,
    SERVER_LABEL,
    SETTLE_SECONDS,
    from_clients,
    spread_over_zones,
)
from eks_inference.serving.prefill_decode.plan import Group, port, server_labels
from eks_inference.serving.prefill_decode.spec import ROLES

API_PORT = 8000
"""Port that clients call."""
METRICS_PORT = 29000
METRICS_NAME = "metrics"

KEY_VARIABLE = "OPENAI_API_KEY"
"""Variable whose value the router sends to servers as their key."""

_READY = "/readiness"
_PROBE_SECONDS = 5
_DISCOVERY_SECONDS = 60
"""How long a router waits for a pod that its API server tells of; with discovery, longer would only delay the others."""
_USER = 1000
PROGRESS_SECONDS = 1200
"""How long a rollout of the routers may make no progress: an image pull on a new node, and the end of the old one's streams."""


def labels(name: str) -> dict[str, str]:
    """Returns the labels of the routers of every revision, which the Service selects."""
    return {SERVER_LABEL: name, ROLE_LABEL: "router"}


def arguments(group: Group) -> list[str]:
    """Returns the arguments of a router. A selector is several words behind its flag."""
    spec, own = group.spec, group.spec.router
    if spec.serving == "disaggregated":
        policies = {"prefill": own.prefill_policy, "decode": own.decode_policy}
        servers = [
            *("--vllm-pd-disaggregation", "--kv-connector", "nixl"),
            *(word for role in ROLES for word in (f"--{role}-selector", *_selector(group, group.roles[role].labels))),
            *(word for role, policy in policies.items() if policy for word in (f"--{role}-policy", policy)),
        ]
    else:
        servers = ["--selector", *_selector(group, server_labels(group.name))]
    return [
        *servers,
        "--service-discovery",
        *("--service-discovery-namespace", spec.namespace_of(group.name)),
        *("--service-discovery-port", str(port(spec))),
        *("--host", "0.0.0.0", "--port", str(API_PORT)),
        *("--policy", own.policy),
        # Three failures end a server: by default that takes three minutes.
        *("--health-check-interval-secs", str(_PROBE_SECONDS)),
        *("--worker-startup-timeout-secs", str(_DISCOVERY_SECONDS)),
        *("--request-timeout-secs", str(own.request_timeout_seconds)),
        *("--prometheus-host", "0.0.0.0", "--prometheus-port", str(METRICS_PORT)),
    ]


def _selector(group: Group, wanted: Mapping[str, str]) -> list[str]:
    """Servers of another revision may run another vLLM, whose KV caches nobody could read."""
    return [f"{key}={value}" for key, value in {**wanted, REVISION_LABEL: group.revision}.items()]


def deployment(group: Group, placement: Placement, *, image: Any, secret_env: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
    """Returns ``metadata`` and ``spec`` of the Deployment, whose pods are ready when they have a server of each role.

    With a new revision, the new routers come one by one when the new servers answer, and the old ones end their streams first.
    """
    spec, own = group.spec, labels(group.name)
    asked = spec.router
    container = {
        "name": "router",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["vllm-router"],
        "args": arguments(group),
        **({"env": [dict(one) for one in secret_env]} if secret_env else {}),
        "ports": [{"name": "http", "containerPort": API_PORT}, {"name": METRICS_NAME, "containerPort": METRICS_PORT}],
        "resources": {"requests": {"cpu": asked.cpu, "memory": asked.memory}, "limits": {"memory": asked.memory}},
        # Not /health, which fails as soon as one server does.
        "readinessProbe": {"httpGet": {"path": _READY, "port": "http"}, "periodSeconds": _PROBE_SECONDS},
        "livenessProbe": {"httpGet": {"path": "/liveness", "port": "http"}, "periodSeconds": 30},
        # Nodes learn one after the other that a pod ends; then the router ends its streams.
        "lifecycle": {"preStop": {"exec": {"command": ["sleep", str(SETTLE_SECONDS)]}}},
        "securityContext": workloads.READ_ONLY_CONTAINER,
    }
    pod = {
        **placement.scheduling(),
        "serviceAccountName": account_name(group.name),
        # It asks the API server for pods.
        "automountServiceAccountToken": True,
        "enableServiceLinks": False,
        "securityContext": restricted_pod(_USER),
        "topologySpreadConstraints": spread_over_zones(own),
        "terminationGracePeriodSeconds": SETTLE_SECONDS + DRAIN_SECONDS,
        "containers": [container],
    }
    return workloads.rolling_deployment(
        deployment_name(group.name),
        spec.namespace_of(group.name),
        own,
        pod,
        replicas=asked.replicas,
        progress_seconds=PROGRESS_SECONDS,
        template={"labels": {**own, REVISION_LABEL: group.revision}},
    )


def entry(group: Group) -> Front:
    """Returns where requests enter."""
    return Front(labels(group.name), API_PORT)


def service(group: Group) -> dict[str, Any]:
    """Returns ``metadata`` and ``spec`` of the Service that clients call."""
    name, space = group.name, group.spec.namespace_of(group.name)
    return workloads.service(name, space, labels(name), [("http", API_PORT, "http")], labels={SERVER_LABEL: name})


def account_name(name: str) -> str:
    return f"{name}-router"


def deployment_name(name: str) -> str:
    return f"{name}-router"


def permission(group: Group) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns their Role and RoleBinding: routers watch the pods of their namespace, and nothing else."""
    name, space = account_name(group.name), group.spec.namespace_of(group.name)
    return workloads.permission(name, space, "pods", ("list", "watch"), account=name, of=space)


def disruption_budget(group: Group) -> dict[str, Any]:
    """Returns ``metadata`` and ``spec`` of the disruption budget: a drain takes one router at a time."""
    return {
        "metadata": {"name": deployment_name(group.name), "namespace": group.spec.namespace_of(group.name)},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": labels(group.name)}},
    }


def network_policy_of(group: Group, api_cidrs: Sequence[str]) -> dict[str, Any]:
    """Returns ``metadata`` and ``spec`` of the NetworkPolicy: clients come in, servers and the API server are reached."""
    servers = [pods(role_servers.labels) for role_servers in group]
    return network_policy(
        deployment_name(group.name),
        group.spec.namespace_of(group.name),
        selector=labels(group.name),
        ingress=[from_clients(group.spec.client_namespaces, API_PORT)],
        egress=[DNS, api_server(api_cidrs), allow_to(*servers, tcp=[port(group.spec)])],
    )
