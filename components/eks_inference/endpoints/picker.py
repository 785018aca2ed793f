"""Plans the pickers of an endpoint: llm-d's endpoint picker, which names the pod of a model that answers. Pure; no pulumi.

A picker watches the pods of one model and what they tell of their load, remembers which beginnings of prompts each of them has
read, and weighs both. The proxy asks it for each request. Without an answer the pod with the fewest requests is taken.

Sources: llm-d-router v0.10.0 (cmd/epp, pkg/epp/server/options.go, config/charts/routerlib), run before Envoy 1.40.0 by hand
(docs/endpoints.md); Gateway API Inference Extension, endpoint picker protocol.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eks_inference.aws.naming import shortened
from eks_inference.endpoints.proxy import ENDPOINT_LABEL, ENDPOINT_NAME, PICKED_BYTES, PICKER_PORT
from eks_inference.endpoints.spec import PickerSpec
from eks_inference.kubernetes import workloads
from eks_inference.kubernetes.network_policy import DNS, Front, allow_from, allow_to, api_server, network_policy, pods
from eks_inference.kubernetes.workloads import APP_LABEL, restricted_pod
from eks_inference.place.placement import Placement
from eks_inference.serving.pod_parts import from_prometheus

METRICS_NAME = "metrics"
PROGRESS_SECONDS = 600
"""For an image pull on a small node."""

IDLE_MIB = 64
PARSED = 105
"""Memory of a picker without requests, and of a request that it parses, as a multiple of its size: for a list of objects with one
number. Measured with Go 1.26 (encoding/json), into a map and into types of its own, as llm-d-router v0.10.0 parses a request."""

_METRICS_PORT = 9090
_HEALTH_PORT = 9003
_APP = "endpoint-picker"
_USER = 65532  # in the image
_DRAIN_SECONDS = 30
"""How long one that goes still answers, and says that it is not ready. DNS tells proxies within some seconds."""
_END_SECONDS = 10
_WEIGHTS = {"queue-scorer": 2, "kv-cache-utilization-scorer": 2, "prefix-cache-scorer": 3}
"""llm-d's own: requests that wait, memory that is taken, and what a pod has in its cache."""


@dataclass(frozen=True)
class Picker:
    """One model's picker: it chooses among the pods in ``namespace`` behind the fronts of its servers."""

    endpoint: str
    server: str
    """The first of the servers that have the model."""
    space: str
    """Its own namespace: that of the endpoint."""
    namespace: str
    fronts: Sequence[Front]

    @property
    def resource(self) -> str:
        """Begins the names of its resources in Pulumi. Names contain no dot, so the pickers of two endpoints never share one."""
        return f"{self.endpoint}.{self.server}-picker"

    @property
    def name(self) -> str:
        """The name of its Deployment, its Service and its account; the role in ``namespace`` has it, too."""
        return shortened(46, f"{self.endpoint}-{self.server}-picker")  # the name of a pod has 17 characters more, and at most 63

    @property
    def host(self) -> str:
        return f"{self.name}.{self.space}.svc.cluster.local"

    @property
    def selector(self) -> str:
        """Selects the pods of all servers."""
        values: dict[str, set[str]] = {}
        for front in self.fronts:
            for key, value in front.labels.items():
                values.setdefault(key, set()).add(value)
        return ",".join(f"{key} in ({','.join(sorted(each))})" for key, each in sorted(values.items()))


def why_not(model: str, servers: Mapping[str, tuple[str, bool]]) -> Iterator[tuple[str, str]]:
    """Yields why no picker can watch the pods of a model, and what was given.

    ``servers`` are the place of each one's pods, and whether clients reach pods that tell their load.
    """
    for name, (_, tells_load) in servers.items():
        if not tells_load:
            yield f"a picker reads the load of each pod from vLLM's metrics, and {name} shows clients none", name
    if len({place for place, _ in servers.values()}) > 1:
        given = ", ".join(f"{name} in {place}" for name, (place, _) in servers.items())
        yield f"a picker watches the pods of one namespace, and {model} has several", given


def picks_at_once(memory_bytes: int, proxies: int) -> int:
    """Returns how many requests each proxy may have a picker with so much memory read at the same time."""
    return int((memory_bytes * 3 / 4 - (IDLE_MIB << 20)) / (PARSED * PICKED_BYTES * proxies))


def labels(picker: Picker) -> dict[str, str]:
    """Returns the labels of the pods, which are also their selector."""
    return {**of_endpoint(picker.endpoint), "eks-inference/picker": picker.name}


def of_endpoint(endpoint: str) -> dict[str, str]:
    """Returns the labels shared by all pickers of an endpoint."""
    return {APP_LABEL: _APP, ENDPOINT_LABEL: endpoint}


def arguments(picker: Picker) -> list[str]:
    configuration = {
        "apiVersion": "llm-d.ai/v1alpha1",
        "kind": "EndpointPickerConfig",
        "plugins": [{"type": scorer} for scorer in _WEIGHTS],
        "schedulingProfiles": [
            {"name": "default", "plugins": [{"pluginRef": scorer, "weight": weight} for scorer, weight in _WEIGHTS.items()]}
        ],
    }
    ports = sorted({front.pod_port for front in picker.fronts})
    return [
        f"--pool-namespace={picker.namespace}",
        f"--endpoint-selector={picker.selector}",
        f"--endpoint-target-ports={','.join(map(str, ports))}",
        f"--config-text={json.dumps(configuration)}",
        f"--grpc-port={PICKER_PORT}",
        f"--grpc-health-port={_HEALTH_PORT}",
        f"--metrics-port={_METRICS_PORT}",
        # Without it, the port that the proxy asks at does not tell whether it answers.
        "--health-checking=true",
        f"--drain-timeout={_DRAIN_SECONDS}s",
        # NetworkPolicies say who may connect. Prompts go to servers over the same network without TLS, too.
        "--secure-serving=false",
        "--metrics-endpoint-auth=false",
        "--enable-pprof=false",
        "--tracing=false",
    ]


def deployment(picker: Picker, spec: PickerSpec, placement: Placement, *, image: Any) -> dict[str, Any]:
    """Returns ``metadata`` and ``spec`` of the Deployment: one pod, because two would remember different prompts."""
    own = labels(picker)
    probe = {"grpc": {"port": _HEALTH_PORT, "service": "readiness"}, "periodSeconds": 2}
    container = {
        "name": "picker",
        "image": image,
        "args": arguments(picker),
        "env": [
            {"name": "NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        ],
        "ports": [{"name": "grpc", "containerPort": PICKER_PORT}, {"name": METRICS_NAME, "containerPort": _METRICS_PORT}],
        "resources": {"requests": {"cpu": spec.cpu, "memory": spec.memory}, "limits": {"memory": spec.memory}},
        "startupProbe": {**probe, "periodSeconds": 1, "failureThreshold": 60},
        "readinessProbe": probe,
        "livenessProbe": {"grpc": {"port": _HEALTH_PORT, "service": "liveness"}, "periodSeconds": 10},
        "securityContext": workloads.READ_ONLY_CONTAINER,
    }
    pod = {
        **{field: value for field, value in placement.scheduling().items() if value},
        "serviceAccountName": picker.name,
        # It asks the API server for pods.
        "automountServiceAccountToken": True,
        "enableServiceLinks": False,
        "securityContext": restricted_pod(_USER),
        "terminationGracePeriodSeconds": _DRAIN_SECONDS + _END_SECONDS,
        "containers": [container],
    }
    return workloads.rolling_deployment(picker.name, picker.space, own, pod, replicas=1, progress_seconds=PROGRESS_SECONDS)


def service(picker: Picker) -> dict[str, Any]:
    """Returns ``metadata`` and ``spec`` of a Service without an address: its name resolves to the pod that is ready."""
    return workloads.service(picker.name, picker.space, labels(picker), [("grpc", PICKER_PORT, PICKER_PORT)], headless=True)


def permission(picker: Picker) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns its Role and RoleBinding: it watches the pods of the servers' namespace, and nothing else."""
    verbs = ("get", "list", "watch")
    return workloads.permission(picker.name, picker.namespace, "pods", verbs, account=picker.name, of=picker.space)


def policy(
    picker: Picker, proxies: Mapping[str, str], metrics_namespaces: Sequence[str], api_cidrs: Sequence[str]
) -> dict[str, Any]:
    """Returns ``metadata`` and ``spec`` of the NetworkPolicy: proxies and Prometheus come in, the API server is reached.

    The policy of the endpoint's namespace lets every pod in it reach DNS and the servers.
    """
    return network_policy(
        picker.name,
        picker.space,
        selector=labels(picker),
        ingress=[allow_from(pods(proxies), tcp=[PICKER_PORT]), *from_prometheus(metrics_namespaces, _METRICS_PORT)],
        egress=[DNS, api_server(api_cidrs)],
    )


def way_to_pickers(endpoint: str) -> dict[str, Any]:
    """Returns the egress rule by which a proxy reaches the pickers of its endpoint."""
    return allow_to(pods(of_endpoint(endpoint)), tcp=[PICKER_PORT])


def metrics_endpoint() -> dict[str, Any]:
    """Returns the endpoint of a PodMonitor. The picker also has each of its series under names of former releases."""
    kept = {"action": "keep", "sourceLabels": ["__name__"], "regex": "llm_d_epp_.*"}
    return {"port": METRICS_NAME, "relabelings": [ENDPOINT_NAME], "metricRelabelings": [kept]}
