"""The pods of a pair: servers, router, Services, NetworkPolicies. Pure functions; no pulumi.

One instance: one Deployment of one pod, whose one container supervises both servers. Two containers would each count cores from
0, while the runtime's transfers count them over the host, and which chips each would get nobody knows beforehand.

Two instances: one LeaderWorkerSet of one group, prefill its leader and decode its worker. The engine shakes hands before it loads
the model, so neither side is ready before the other has started: to wait for one before the other is made is to wait for ever.
And it shakes hands once, so a group is started anew when one of its pods is.

Sources: LeaderWorkerSet v0.9.0 (API, pod controller), Kubernetes documentation; for the rest see ``servers``.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from math import ceil
from typing import Any, Literal

from eks_inference.accelerators.efa.plan import EFA_RESOURCE
from eks_inference.kubernetes.network_policy import DNS, allow_from, allow_to, network_policy, pods
from eks_inference.kubernetes.pod_security import RESTRICTED_CONTAINER, restricted_pod
from eks_inference.placement import HOSTNAME_LABEL, Placement
from eks_inference.serving import protection
from eks_inference.serving.disaggregated.artifact import STORE
from eks_inference.serving.disaggregated.servers import (
    API_PORT,
    BOOTSTRAP_PORT,
    KV_PORT,
    MEETING_PORT,
    SERVER_PORTS,
    Role,
    document,
    servers,
)
from eks_inference.serving.disaggregated.spec import DisaggregatedPairSpec
from eks_inference.serving.pods import SERVER_LABEL, device_resource

MAX_NAME_LENGTH = 40
"""Of a pair: its name is a DNS label, and the beginning of longer ones."""

POD_SECURITY: Literal["privileged"] = "privileged"
"""Level of the pair's namespace, and why it is not "restricted".

The servers pin memory for EFA. A container may lock 8 MiB; more takes the capability IPC_LOCK, which "baseline" does not allow
either, and which counts for root only: of another user it stays in the bounding set (Kubernetes sets no ambient capabilities). So
they are root with this capability and no other, without privileges to gain and under the runtime's seccomp profile.
"""

ROLE_LABEL = "eks-inference/role"
"""On every pod of a pair: prefill, decode, pair (both in one), baseline, router, or the Job's."""

SCRIPTS = "/eks-inference"
PLAN = f"{SCRIPTS}/pair.json"

_SERVER_SCRIPTS = ("artifact.py", "healthy.py", "start.py", "supervise.py")
_PROBE_SECONDS = 30
_USER = 1000
_DIGEST_LENGTH = 10
_SETTLE_SECONDS = 300  # of a pod's own: volumes, the check of the artifact
_DRAIN_SECONDS = 180  # a long generation


# -- names ----------------------------------------------------------------------------------------------------------------------


def workload_name(name: str) -> str:
    """Of the Deployment or LeaderWorkerSet. The latter makes a Service of its own of this name."""
    return f"{name}-servers"


def claim_name(name: str) -> str:
    """Of the claim of the store."""
    return f"{name}-store"


def labels(name: str, role: str) -> dict[str, str]:
    return {SERVER_LABEL: name, ROLE_LABEL: role}


def server_labels(name: str) -> dict[str, str]:
    """On every pod of servers, whichever they are: what selects them must not change when the baseline replaces the pair."""
    return {SERVER_LABEL: name, "app.kubernetes.io/component": "servers"}


def role_of_pod(spec: DisaggregatedPairSpec, role: Role) -> str:
    """The label of the pod that a server runs in."""
    return "pair" if role != "baseline" and spec.instances == 1 else role


def prefill_address(name: str, spec: DisaggregatedPairSpec) -> str:
    """The name decode finds prefill by: leader of the only group. There whether the pod is ready or not."""
    workload = workload_name(name)
    return f"{workload}-0.{workload}.{spec.namespace_of(name)}.svc.cluster.local"


def config_map(name: str, what: str, data: Mapping[str, str], namespace: str) -> dict[str, Any]:
    """``metadata`` and ``data``; the name carries a hash of the content: a pod only ever reads what it was made for."""
    return {"metadata": {"name": f"{name}-{what}-{digest(data)}", "namespace": namespace}, "data": dict(data)}


def digest(content: Any) -> str:
    """What distinguishes the name of an object with this content from the names of others."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:_DIGEST_LENGTH]


def script(name: str) -> str:
    """The text of one of our scripts."""
    return files("eks_inference.serving.disaggregated").joinpath("assets").joinpath(name).read_text("utf-8")


# -- servers --------------------------------------------------------------------------------------------------------------------


def meeting_seconds(spec: DisaggregatedPairSpec) -> int:
    """How long one pod of two waits for the other: it may have to pull the image first."""
    return spec.profile.startup.image_pull_s + _SETTLE_SECONDS


def startup_seconds(spec: DisaggregatedPairSpec) -> int:
    """From the start of the containers until both servers answer. Downloaded and compiled it is already."""
    return spec.profile.startup.load_s + (meeting_seconds(spec) if spec.instances == 2 else _SETTLE_SECONDS)


def cold_start_seconds(spec: DisaggregatedPairSpec) -> int:
    """From the wish for the pods until both servers answer."""
    startup = spec.profile.startup
    return startup.node_start_s + startup.image_pull_s + startup_seconds(spec)


def server_files(name: str, spec: DisaggregatedPairSpec) -> dict[str, Any]:
    """The ConfigMap of the servers: what they do, and with what."""
    plan = document(spec, meeting_address=prefill_address(name, spec), meeting_seconds=meeting_seconds(spec))
    data = {each: script(each) for each in _SERVER_SCRIPTS} | {"pair.json": json.dumps(plan, indent=1)}
    return config_map(name, "servers", data, spec.namespace_of(name))


def resources(spec: DisaggregatedPairSpec, placement: Placement) -> dict[str, str]:
    """Requests and limits of one pod of servers: all devices of its node, whatever part of the cores it uses.

    So no scheduler has to find neighbours, and nothing else lands on the node's chips.
    """
    return {
        "cpu": spec.cpu,
        "memory": spec.memory,
        device_resource(spec.shape): str(spec.shape.devices),
        **({EFA_RESOURCE: str(efa_interfaces(spec, placement))} if spec.serving == "pair" else {}),
    }


def efa_interfaces(spec: DisaggregatedPairSpec, placement: Placement) -> int:
    """EFA interfaces one pod asks for."""
    return placement.efa_interfaces if spec.efa_interfaces is None else spec.efa_interfaces


def workload(name: str, spec: DisaggregatedPairSpec, placement: Placement, *, image: Any, config: str) -> dict[str, Any]:
    """The servers: ``apiVersion``, ``kind``, ``metadata`` and ``spec``. ``config`` names the ConfigMap of ``server_files``.

    Pair and baseline are the same object of the same name: each replaces the other, and they never want the chips at once.
    """
    pod = {role: _server_pod(name, spec, placement, roles, image=image, config=config) for role, roles in _pods(spec).items()}
    metadata = {"name": workload_name(name), "namespace": spec.namespace_of(name), "labels": {SERVER_LABEL: name}}
    if spec.instances == 1:
        (template,) = pod.values()
        return {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": metadata,
            "spec": {
                "replicas": 1,
                # The new pod needs the chips of the old one.
                "strategy": {"type": "Recreate"},
                "progressDeadlineSeconds": cold_start_seconds(spec) + _DRAIN_SECONDS,
                "selector": {"matchLabels": server_labels(name)},
                "template": template,
            },
        }
    leader, *workers = pod.values()
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": metadata,
        "spec": {
            "replicas": 1,
            # The worker as soon as the leader is there. LeaderReady would wait for prefill, which waits for decode.
            "startupPolicy": "LeaderCreated",
            "rolloutStrategy": {
                "type": "RollingUpdate",
                "rollingUpdateConfiguration": {"maxUnavailable": 1, "maxSurge": 0},
            },
            "networkConfig": {"subdomainPolicy": "Shared"},
            "leaderWorkerTemplate": {
                "size": len(pod),
                "restartPolicy": "RecreateGroupOnPodRestart",
                "leaderTemplate": leader,
                "workerTemplate": workers[0] if workers else leader,
            },
        },
    }


def _pods(spec: DisaggregatedPairSpec) -> dict[str, tuple[Role, ...]]:
    """Which servers each pod holds, by the pod's role."""
    held: dict[str, tuple[Role, ...]] = {}
    for role in servers(spec):
        pod = role_of_pod(spec, role)
        held[pod] = (*held.get(pod, ()), role)
    return held


def _server_pod(
    name: str, spec: DisaggregatedPairSpec, placement: Placement, roles: Sequence[Role], *, image: Any, config: str
) -> dict[str, Any]:
    asked = resources(spec, placement)
    program = ("supervise.py", PLAN, *roles) if len(roles) > 1 else ("start.py", *roles, PLAN)
    probe = _probe(roles)
    container = {
        "name": "server",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python3", f"{SCRIPTS}/{program[0]}", *program[1:]],
        "env": [
            {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            *variables({"HOME": "/tmp", "PYTHONUNBUFFERED": "1"}),
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
        "livenessProbe": {**probe, "periodSeconds": _PROBE_SECONDS, "failureThreshold": 5},
        "securityContext": root_container(spec.capabilities),
        "volumeMounts": [
            # Not to be written to: an artifact that does not load must fail, and not be compiled anew in its place.
            {"name": "store", "mountPath": STORE, "readOnly": True},
            *_PRIVATE_MOUNTS,
            {"name": "scripts", "mountPath": SCRIPTS, "readOnly": True},
        ],
    }
    role = role_of_pod(spec, roles[0])
    return {
        "metadata": {"labels": {**labels(name, role), **server_labels(name)}},
        "spec": {
            **placed(placement),
            **ROOT_POD,
            "terminationGracePeriodSeconds": 60,
            "containers": [container],
            "volumes": [store_volume(name), *private_volumes(spec), {"name": "scripts", "configMap": {"name": config}}],
        },
    }


def _probe(roles: Sequence[Role]) -> dict[str, Any]:
    """A check looks at one port; where there are several servers a script looks at all of them."""
    if len(roles) == 1:
        return {"httpGet": {"path": "/health", "port": SERVER_PORTS[roles[0]]}, "timeoutSeconds": 10}
    urls = [f"http://127.0.0.1:{SERVER_PORTS[role]}/health" for role in roles]
    return {"exec": {"command": ["python3", f"{SCRIPTS}/healthy.py", *urls]}, "timeoutSeconds": 15}


def _ports(spec: DisaggregatedPairSpec, roles: Sequence[Role]) -> list[dict[str, Any]]:
    ports: dict[str, int] = {role: SERVER_PORTS[role] for role in roles}
    if "prefill" in roles:
        ports |= {"kv": KV_PORT} | ({"meeting": MEETING_PORT} if spec.instances == 2 else {})
    if spec.serving == "pair":
        ports["bootstrap"] = BOOTSTRAP_PORT
    return [{"name": port, "containerPort": number} for port, number in ports.items()]


# -- what objects share ----------------------------------------------------------------------------------------------------------

UNAWAITED: Mapping[str, str] = {"pulumi.com/skipAwait": "true"}
"""On Services that are there before their pods: Pulumi would wait for these."""

ROOT_POD: Mapping[str, Any] = {
    "automountServiceAccountToken": False,
    # A Service of the namespace would otherwise put variables such as VLLM_PORT=tcp://... into every pod.
    "enableServiceLinks": False,
    "securityContext": {"runAsUser": 0, "seccompProfile": {"type": "RuntimeDefault"}},
}

SCRIPT_POD: Mapping[str, Any] = {**ROOT_POD, "securityContext": restricted_pod(_USER)}
"""Of pods that run a script of ours in a plain Python image, as nobody in particular."""

_PRIVATE_MOUNTS: Sequence[Mapping[str, Any]] = (
    # The runtime keeps a lock file in /tmp, and fails on one that another user has left.
    {"name": "tmp", "mountPath": "/tmp"},
    {"name": "shared-memory", "mountPath": "/dev/shm"},
)


SCRIPT_CONTAINER: Mapping[str, Any] = {**RESTRICTED_CONTAINER, "readOnlyRootFilesystem": True}


def root_container(capabilities: Sequence[str] = ()) -> dict[str, Any]:
    """The security context of a container that is root with these capabilities at most."""
    allowed = {"drop": ["ALL"], **({"add": list(capabilities)} if capabilities else {})}
    return {"allowPrivilegeEscalation": False, "capabilities": allowed}


def private_volumes(spec: DisaggregatedPairSpec) -> list[dict[str, Any]]:
    return [
        {"name": "tmp", "emptyDir": {}},
        {"name": "shared-memory", "emptyDir": {"medium": "Memory", "sizeLimit": f"{spec.shared_memory_gib}Gi"}},
    ]


def private_mounts() -> list[dict[str, Any]]:
    return [dict(mount) for mount in _PRIVATE_MOUNTS]


def store_volume(name: str) -> dict[str, Any]:
    return {"name": "store", "persistentVolumeClaim": {"claimName": claim_name(name)}}


def placed(placement: Placement) -> dict[str, Any]:
    tolerations = placement.tolerations()
    return {"nodeSelector": dict(placement.node_selector), **({"tolerations": tolerations} if tolerations else {})}


def variables(values: Mapping[str, str]) -> list[dict[str, Any]]:
    return [{"name": name, "value": value} for name, value in values.items()]


# -- what clients talk to -------------------------------------------------------------------------------------------------------


def services(name: str, spec: DisaggregatedPairSpec) -> dict[str, dict[str, Any]]:
    """``metadata`` and ``spec`` of the Services: the API, and for the router one of each server."""
    front = "router" if spec.serving == "pair" else "baseline"
    found = {"api": _service(name, spec, front, API_PORT, name)}
    if spec.serving == "pair":
        for role in servers(spec):
            found[role] = _service(name, spec, role_of_pod(spec, role), SERVER_PORTS[role], f"{name}-{role}")
    return found


def _service(name: str, spec: DisaggregatedPairSpec, role: str, port: int, service: str) -> dict[str, Any]:
    return {
        "metadata": {
            "name": service,
            "namespace": spec.namespace_of(name),
            "labels": {SERVER_LABEL: name},
            "annotations": dict(UNAWAITED),
        },
        "spec": {
            "type": "ClusterIP",
            "selector": labels(name, role),
            "ports": [{"name": "http", "port": port, "targetPort": port}],
        },
    }


def router_files(name: str, spec: DisaggregatedPairSpec) -> dict[str, Any]:
    return config_map(name, "router", {"router.py": script("router.py")}, spec.namespace_of(name))


def router(name: str, spec: DisaggregatedPairSpec, placement: Placement, *, image: str, config: str) -> dict[str, Any]:
    """``metadata`` and ``spec`` of the router's Deployment. It is ready when both servers are well, so it stands for the pair."""
    urls = [f"http://{name}-{role}:{SERVER_PORTS[role]}" for role in servers(spec)]
    probe = {"httpGet": {"path": "/health", "port": API_PORT}, "periodSeconds": 10, "timeoutSeconds": 15}
    container = {
        "name": "router",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python", f"{SCRIPTS}/router.py", *urls, str(API_PORT)],
        "env": variables({"PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1"}),
        "ports": [{"name": "http", "containerPort": API_PORT}],
        "resources": {
            "requests": {"cpu": spec.router.cpu, "memory": spec.router.memory},
            "limits": {"memory": spec.router.memory},
        },
        # Only that it listens: of the servers' health it says nothing about itself.
        "livenessProbe": {"tcpSocket": {"port": API_PORT}, "periodSeconds": 30},
        "readinessProbe": probe,
        "securityContext": SCRIPT_CONTAINER,
        "volumeMounts": [{"name": "scripts", "mountPath": SCRIPTS, "readOnly": True}],
    }
    beside = {} if spec.router.pool else {"affinity": {"podAffinity": _beside(labels(name, role_of_pod(spec, "prefill")))}}
    return {
        "metadata": {"name": f"{name}-router", "namespace": spec.namespace_of(name), "labels": labels(name, "router")},
        "spec": {
            "replicas": spec.router.replicas,
            # Beside prefill there may be no room for one more.
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
            "progressDeadlineSeconds": cold_start_seconds(spec),
            "selector": {"matchLabels": labels(name, "router")},
            "template": {
                "metadata": {"labels": labels(name, "router")},
                "spec": {
                    **placed(placement),
                    **beside,
                    **SCRIPT_POD,
                    "terminationGracePeriodSeconds": _DRAIN_SECONDS,
                    "containers": [container],
                    "volumes": [{"name": "scripts", "configMap": {"name": config}}],
                },
            },
        },
    }


def _beside(wanted: Mapping[str, str]) -> dict[str, Any]:
    term = {"labelSelector": {"matchLabels": dict(wanted)}, "topologyKey": HOSTNAME_LABEL}
    return {"requiredDuringSchedulingIgnoredDuringExecution": [term]}


def network_policies(name: str, spec: DisaggregatedPairSpec) -> dict[str, dict[str, Any]]:
    """``metadata`` and ``spec`` of the NetworkPolicies of servers and router. EFA does not go through them.

    The two servers reach each other at every port: the runtime's bootstrap port is only where its connections begin.
    """
    space = spec.namespace_of(name)
    front = "router" if spec.serving == "pair" else "baseline"
    clients = protection.from_clients(spec.client_namespaces, API_PORT)
    held = _pods(spec)
    found = {"closed": protection.closed(name, space)}
    for pod, roles in held.items():
        peers = [pods(labels(name, other)) for other in held if other != pod]
        ingress = [
            *([clients] if pod == front else [allow_from(pods(labels(name, "router")), tcp=[SERVER_PORTS[r] for r in roles])]),
            *([allow_from(*peers)] if peers else []),
            *(rule for role in roles for rule in protection.from_prometheus(spec.metrics_namespaces, SERVER_PORTS[role])),
        ]
        egress = [DNS, *([allow_to(*peers)] if peers else [])]
        found[pod] = network_policy(f"{name}-{pod}", space, selector=labels(name, pod), ingress=ingress, egress=egress)
    if front == "router":
        egress = [DNS, *(allow_to(pods(labels(name, pod)), tcp=[SERVER_PORTS[r] for r in roles]) for pod, roles in held.items())]
        found["router"] = network_policy(
            f"{name}-router", space, selector=labels(name, "router"), ingress=[clients], egress=egress
        )
    return found
