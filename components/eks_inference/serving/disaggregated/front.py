"""Plans what stands between clients and the servers: Services, the router, NetworkPolicies. Pure functions; no pulumi."""

from typing import Any

from eks_inference.kubernetes import workloads
from eks_inference.kubernetes.front import Front
from eks_inference.kubernetes.network_policy import DNS, allow_from, allow_to, network_policy, pods
from eks_inference.place.placement import HOSTNAME_LABEL, Placement
from eks_inference.serving import protection
from eks_inference.serving.disaggregated import parts
from eks_inference.serving.disaggregated.parts import labels
from eks_inference.serving.disaggregated.servers import API_PORT, SERVER_PORTS, pod_of, roles_by_pod, servers
from eks_inference.serving.disaggregated.spec import DisaggregatedPairSpec
from eks_inference.serving.disaggregated.workloads import DRAIN_SECONDS, cold_start_seconds
from eks_inference.serving.pods import BALANCED_SETTLE_SECONDS, SERVER_LABEL

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
    settle = BALANCED_SETTLE_SECONDS if spec.behind_load_balancer else 0
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
        # A terminating router takes no new requests, which a load balancer goes on sending for a while.
        **({"lifecycle": {"preStop": {"exec": {"command": ["sleep", str(settle)]}}}} if settle else {}),
        "securityContext": parts.SCRIPT_CONTAINER,
        "volumeMounts": parts.mounts(),
    }
    prefill = {"labelSelector": {"matchLabels": labels(name, pod_of(spec, "prefill"))}, "topologyKey": HOSTNAME_LABEL}
    beside_prefill = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [prefill]}}
    pod = {
        **parts.placed(placement),
        **({} if spec.router.pool else {"affinity": beside_prefill}),
        **parts.SCRIPT_POD,
        "terminationGracePeriodSeconds": settle + DRAIN_SECONDS,
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
    clients = protection.from_clients(spec.client_namespaces, API_PORT)
    held = roles_by_pod(spec)
    found = {"closed": protection.closed(name, space)}
    for pod, roles in held.items():
        peers = [pods(labels(name, other)) for other in held if other != pod]
        router = allow_from(pods(labels(name, "router")), tcp=[SERVER_PORTS[role] for role in roles])
        ingress = [
            clients if pod == parts.front(spec) else router,
            *([allow_from(*peers)] if peers else []),
            *(rule for role in roles for rule in protection.from_prometheus(spec.metrics_namespaces, SERVER_PORTS[role])),
        ]
        egress = [DNS, *([allow_to(*peers)] if peers else [])]
        found[pod] = network_policy(f"{name}-{pod}", space, selector=labels(name, pod), ingress=ingress, egress=egress)
    if spec.serving == "pair":
        servers_ = [allow_to(pods(labels(name, pod)), tcp=[SERVER_PORTS[role] for role in roles]) for pod, roles in held.items()]
        found["router"] = network_policy(
            f"{name}-router", space, selector=labels(name, "router"), ingress=[clients], egress=[DNS, *servers_]
        )
    return found
