"""Plans the pods of the servers, and what stands between clients and them: Services, the router, NetworkPolicies. Pure functions;
no pulumi.

One instance: a Deployment of one pod with one container that supervises both servers. Two containers would each number their
cores from 0, while the runtime's transfers number them over the host, and nobody could predict which chips each container gets.

Two instances: a LeaderWorkerSet of one group, with prefill as leader and decode as worker. The engines shake hands before they
load the model, so neither becomes ready before the other has started: ordering the pods by readiness would deadlock. They shake
hands only once, so a restart of one pod restarts the group.

Sources: LeaderWorkerSet v0.10.0 (API, pod controller), Kubernetes documentation; for the rest see ``servers``.
"""

import json
from collections.abc import Sequence
from math import ceil
from typing import Any, Literal

from eks_inference.kubernetes import workloads
from eks_inference.kubernetes.network_policy import DNS, Front, allow_from, allow_to, network_policy, pods
from eks_inference.place.placement import HOSTNAME_LABEL, Placement
from eks_inference.serving.disaggregated import parts
from eks_inference.serving.disaggregated.pair_processes import (
    API_PORT,
    BOOTSTRAP_PORT,
    KV_PORT,
    MEETING_PORT,
    SERVER_PORTS,
    Role,
    document,
    load,
    pod_of,
    roles_by_pod,
    servers,
)
from eks_inference.serving.disaggregated.parts import KEY_LENGTH, PLAN, SCRIPTS, labels
from eks_inference.serving.disaggregated.spec import DisaggregatedPairSpec
from eks_inference.serving.pod_parts import SERVER_LABEL, closed, from_clients, from_prometheus

MAX_NAME_LENGTH = 63 - len("-compile--") - KEY_LENGTH - parts.DIGEST_LENGTH
"""Longest name of a pair: its longest extension is the name of the compile Job (``jobs.py``), which has at most 63 characters."""

POD_SECURITY: Literal["privileged"] = "privileged"
"""Pod Security level of the pair's namespace.

"restricted" is too strict because the servers pin memory for EFA. A container may lock 8 MiB; more needs the capability IPC_LOCK.
"baseline" forbids it too, and it is effective for root only: Kubernetes sets no ambient capabilities, so other users have it only
in their bounding set. So the servers run as root with this capability alone, without privilege escalation and under the runtime's
seccomp profile.
"""

DRAIN_SECONDS = 180  # enough for a long generation

_PROBE_SECONDS = 30
_SETTLE_SECONDS = 300  # for volumes and the check of the artifact

_ALIVE_PERIOD_SECONDS = 120  # between completions that show that the pair answers
_ALIVE_SECONDS_PER_TOKEN = 0.1  # of the longest answer, which a completion may wait for; slower than any pair decodes
_ALIVE_HEALTH_SECONDS = 300  # for the health checks before the completion


def server_labels(name: str) -> dict[str, str]:
    """Returns labels of every server pod. As selectors they are immutable, so they must fit both the pair and the baseline."""
    return {SERVER_LABEL: name, "app.kubernetes.io/component": "servers"}


def prefill_address(name: str, spec: DisaggregatedPairSpec) -> str:
    """Returns the DNS name by which decode finds prefill, the leader of the only group. It resolves before the pod is ready."""
    # The LeaderWorkerSet creates a headless Service that has its own name.
    return f"{name}-servers-0.{name}-servers.{spec.namespace_of(name)}.svc.cluster.local"


def meeting_seconds(spec: DisaggregatedPairSpec) -> int:
    """Returns how long one of two pods waits for the other, which may still be pulling the image."""
    return spec.profile.startup.image_pull_s + _SETTLE_SECONDS


def startup_seconds(spec: DisaggregatedPairSpec) -> int:
    """Returns the time from the start of the containers until both servers answer. Download and compilation are done by then."""
    return load(spec).limit_s + (meeting_seconds(spec) if spec.instances == 2 else _SETTLE_SECONDS)


def cold_start_seconds(spec: DisaggregatedPairSpec) -> int:
    """Returns the time from the creation of the pods until both servers answer."""
    startup = spec.profile.startup
    return startup.node_start_s + startup.image_pull_s + startup_seconds(spec)


def server_files(name: str, spec: DisaggregatedPairSpec) -> dict[str, Any]:
    """Returns the ConfigMap of the servers: their scripts and what these start."""
    plan = document(spec, meeting_address=prefill_address(name, spec), meeting_seconds=meeting_seconds(spec))
    scripts = parts.scripts("alive.py", "artifact.py", "healthy.py", "start.py", "supervise.py")
    return parts.config_map(name, "servers", {**scripts, "pair.json": json.dumps(plan, indent=1)}, spec)


def workload(name: str, spec: DisaggregatedPairSpec, placement: Placement, *, image: Any) -> dict[str, Any]:
    """Returns ``apiVersion``, ``kind``, ``metadata`` and ``spec`` of the servers.

    Pair and baseline are the same object with the same name: each replaces the other, so they never compete for the chips.
    """
    templates = [_template(name, spec, placement, pod, roles, image) for pod, roles in roles_by_pod(spec).items()]
    metadata = {"name": f"{name}-servers", "namespace": spec.namespace_of(name), "labels": {SERVER_LABEL: name}}
    if spec.instances == 1:
        return {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": metadata,
            "spec": {
                "replicas": 1,
                # The new pod needs the chips of the old one.
                "strategy": {"type": "Recreate"},
                "progressDeadlineSeconds": cold_start_seconds(spec) + DRAIN_SECONDS,
                "selector": {"matchLabels": server_labels(name)},
                "template": templates[0],
            },
        }
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": metadata,
        "spec": {
            "replicas": 1,
            # Starts the worker as soon as the leader exists. LeaderReady would wait for prefill, which waits for decode.
            "startupPolicy": "LeaderCreated",
            "rolloutStrategy": {
                "type": "RollingUpdate",
                "rollingUpdateConfiguration": {"maxUnavailable": 1, "maxSurge": 0},
            },
            "networkConfig": {"subdomainPolicy": "Shared"},
            "leaderWorkerTemplate": {
                "size": len(templates),
                # There is one handshake, before the model is loaded (vLLM of aws-neuron/upstreaming-to-vllm, neuron_buffer.py): a
                # server that restarts alone never completes it.
                "restartPolicy": "RecreateGroupOnPodRestart",
                "leaderTemplate": templates[0],
                "workerTemplate": templates[-1],
            },
        },
    }


def _template(
    name: str, spec: DisaggregatedPairSpec, placement: Placement, pod: str, roles: Sequence[Role], image: Any
) -> dict[str, Any]:
    asked = parts.whole_node(spec) | (parts.efa_resources(placement) if spec.serving == "pair" else {})
    program = ("supervise.py", PLAN, *roles) if len(roles) > 1 else ("start.py", *roles, PLAN)
    probe = _probe(roles)
    container = {
        "name": "server",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python3", f"{SCRIPTS}/{program[0]}", *program[1:]],
        "env": [
            {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            *parts.variables({"HOME": "/tmp", "PYTHONUNBUFFERED": "1"}),
        ],
        "ports": _ports(spec, roles),
        "resources": {"requests": asked, "limits": asked},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "startupProbe": {
            **probe,
            "periodSeconds": _PROBE_SECONDS,
            "failureThreshold": ceil(startup_seconds(spec) / _PROBE_SECONDS),
        },
        "readinessProbe": {**probe, "periodSeconds": 10},
        "livenessProbe": _liveness(name, spec, roles),
        "securityContext": parts.root_container(spec.capabilities),
        # The store is read-only: if an artifact does not load, the server must fail instead of compiling another one there.
        "volumeMounts": parts.mounts("store", "tmp", "shared-memory", read_only=("store",)),
    }
    config = server_files(name, spec)["metadata"]["name"]
    return {
        "metadata": {"labels": {**parts.labels(name, pod), **server_labels(name)}},
        "spec": {
            **parts.placed(placement),
            **parts.ROOT_POD,
            "terminationGracePeriodSeconds": 60,
            "containers": [container],
            "volumes": parts.volumes(name, spec, config, "store", "tmp", "shared-memory"),
        },
    }


def _probe(roles: Sequence[Role]) -> dict[str, Any]:
    """Returns the health check. A probe checks one port, so a script checks several servers."""
    if len(roles) == 1:
        return {"httpGet": {"path": "/health", "port": SERVER_PORTS[roles[0]]}, "timeoutSeconds": 10}
    urls = [f"http://127.0.0.1:{SERVER_PORTS[role]}/health" for role in roles]
    return {"exec": {"command": ["python3", f"{SCRIPTS}/healthy.py", *urls]}, "timeoutSeconds": 15}


def _liveness(name: str, spec: DisaggregatedPairSpec, roles: Sequence[Role]) -> dict[str, Any]:
    """Returns the check that restarts the servers. The pod of prefill asks for a completion, which needs both halves.

    One failure is enough, because a completion that is given up may itself keep a slot.
    """
    if "prefill" not in roles:
        return {**_probe(roles), "periodSeconds": _PROBE_SECONDS, "failureThreshold": 5}
    seconds = _SETTLE_SECONDS + ceil(spec.max_model_len * _ALIVE_SECONDS_PER_TOKEN)
    hosts: dict[Role, str] = {"prefill": "127.0.0.1", "decode": "127.0.0.1" if "decode" in roles else f"{name}-decode"}
    urls = [f"http://{host}:{SERVER_PORTS[role]}" for role, host in hosts.items()]
    return {
        "exec": {"command": ["python3", f"{SCRIPTS}/alive.py", spec.model.id, str(seconds), *urls]},
        "periodSeconds": _ALIVE_PERIOD_SECONDS,
        "timeoutSeconds": seconds + _ALIVE_HEALTH_SECONDS,
        "failureThreshold": 1,
    }


def _ports(spec: DisaggregatedPairSpec, roles: Sequence[Role]) -> list[dict[str, Any]]:
    ports: dict[str, int] = {role: SERVER_PORTS[role] for role in roles}
    if "prefill" in roles:
        ports |= {"kv": KV_PORT} | ({"meeting": MEETING_PORT} if spec.instances == 2 else {})
    if spec.serving == "pair":
        ports["bootstrap"] = BOOTSTRAP_PORT
    return [{"name": port, "containerPort": number} for port, number in ports.items()]


_HEALTH = "/health"


def entry(name: str, spec: DisaggregatedPairSpec) -> Front:
    """Returns where requests enter: the router, or the only server."""
    return Front(labels(name, parts.front(spec)), API_PORT)


def services(name: str, spec: DisaggregatedPairSpec) -> dict[str, dict[str, Any]]:
    """Returns ``metadata`` and ``spec`` of the Services: the API, and one per server for the router."""
    found = {"api": _service(name, spec, parts.front(spec), API_PORT, name)}
    if spec.serving == "pair":
        for role in servers(spec):
            found[role] = _service(name, spec, pod_of(spec, role), SERVER_PORTS[role], f"{name}-{role}")
    return found


def _service(name: str, spec: DisaggregatedPairSpec, role: str, port: int, service: str) -> dict[str, Any]:
    ports = [("http", port, port)]
    return workloads.service(service, spec.namespace_of(name), labels(name, role), ports, labels={SERVER_LABEL: name})


def router_files(name: str, spec: DisaggregatedPairSpec) -> dict[str, Any]:
    return parts.config_map(name, "router", parts.scripts("exchange.py", "router.py", "slots.py"), spec)


def router(name: str, spec: DisaggregatedPairSpec, placement: Placement, *, image: str) -> dict[str, Any]:
    """Returns ``metadata`` and ``spec`` of the router's Deployment. It is ready when both servers are healthy."""
    own = labels(name, "router")
    urls = [f"http://{name}-{role}:{SERVER_PORTS[role]}" for role in servers(spec)]
    # Routers share no state, so each has its part of the slots.
    sequences = spec.max_num_seqs // spec.router.replicas
    container = {
        "name": "router",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python", f"{parts.SCRIPTS}/router.py", *urls, str(API_PORT), str(sequences)],
        "env": parts.variables({"PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1"}),
        "ports": [{"name": "http", "containerPort": API_PORT}],
        "resources": {
            "requests": {"cpu": spec.router.cpu, "memory": spec.router.memory},
            "limits": {"memory": spec.router.memory},
        },
        # Only whether it listens: unhealthy servers are no reason to restart the router.
        "livenessProbe": {"tcpSocket": {"port": API_PORT}, "periodSeconds": 30},
        "readinessProbe": {"httpGet": {"path": _HEALTH, "port": API_PORT}, "periodSeconds": 10, "timeoutSeconds": 15},
        "securityContext": parts.SCRIPT_CONTAINER,
        "volumeMounts": parts.mounts(),
    }
    prefill = {"labelSelector": {"matchLabels": labels(name, pod_of(spec, "prefill"))}, "topologyKey": HOSTNAME_LABEL}
    beside_prefill = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [prefill]}}
    pod = {
        **parts.placed(placement),
        **({} if spec.router.pool else {"affinity": beside_prefill}),
        **parts.SCRIPT_POD,
        "terminationGracePeriodSeconds": DRAIN_SECONDS,
        "containers": [container],
        "volumes": parts.volumes(name, spec, router_files(name, spec)["metadata"]["name"]),
    }
    return {
        "metadata": {"name": f"{name}-router", "namespace": spec.namespace_of(name), "labels": own},
        "spec": {
            "replicas": spec.router.replicas,
            # The node of prefill may have no room for an additional pod.
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
            "progressDeadlineSeconds": cold_start_seconds(spec),
            "selector": {"matchLabels": own},
            "template": {"metadata": {"labels": own}, "spec": pod},
        },
    }


def network_policies(name: str, spec: DisaggregatedPairSpec) -> dict[str, dict[str, Any]]:
    """Returns ``metadata`` and ``spec`` of the NetworkPolicies of servers and router by role. They do not apply to EFA traffic.

    The two servers reach each other on every port: the runtime's connections only start at its bootstrap port.
    """
    space = spec.namespace_of(name)
    clients = from_clients(spec.client_namespaces, API_PORT)
    held = roles_by_pod(spec)
    found = {"closed": closed(name, space)}
    for pod, roles in held.items():
        peers = [pods(labels(name, other)) for other in held if other != pod]
        router = allow_from(pods(labels(name, "router")), tcp=[SERVER_PORTS[role] for role in roles])
        ingress = [
            clients if pod == parts.front(spec) else router,
            *([allow_from(*peers)] if peers else []),
            *(rule for role in roles for rule in from_prometheus(spec.metrics_namespaces, SERVER_PORTS[role])),
        ]
        egress = [DNS, *([allow_to(*peers)] if peers else [])]
        found[pod] = network_policy(f"{name}-{pod}", space, selector=labels(name, pod), ingress=ingress, egress=egress)
    if spec.serving == "pair":
        servers_ = [allow_to(pods(labels(name, pod)), tcp=[SERVER_PORTS[role] for role in roles]) for pod, roles in held.items()]
        found["router"] = network_policy(
            f"{name}-router", space, selector=labels(name, "router"), ingress=[clients], egress=[DNS, *servers_]
        )
    return found
