"""What guards a server: who may reach its pods, how many devices it may hold, which pods a drain may take. Pure; no pulumi.

Sources: Kubernetes documentation ("Specifying a Disruption Budget", "Resource Quotas"), KubeRay 1.7.0 (what the operator calls:
``rayservice_controller.go``), Ray 2.52.1 documentation ("Security": whoever reaches Ray's ports may run code).
"""

from collections.abc import Mapping
from typing import Any

from eks_inference.accelerators.neuron.plan import DEVICE_RESOURCE
from eks_inference.kubernetes.network_policy import allow_from, allow_to, namespace, network_policy, pods
from eks_inference.serving.pods import SERVER_LABEL, quota_devices
from eks_inference.serving.protection import EGRESS, closed, device_quota, from_clients, from_prometheus
from eks_inference.serving.ray_serve.plan import AUTOSCALER_METRICS_PORT, HEAD_PORTS, NODE_TYPE_LABEL
from eks_inference.serving.ray_serve.spec import RayServeVllmSpec


def network_policies(name: str, spec: RayServeVllmSpec, *, operator_namespace: str) -> dict[str, dict[str, Any]]:
    """The namespace's NetworkPolicies by role. Ray's own ports take jobs from anybody, so only its own pods reach them.

    Open: the API (8000) to clients, metrics (8080) to Prometheus, dashboard and API of the head to the operator. Out: names,
    credentials, HTTPS (Hub, S3, and the API server that Ray's autoscaler needs) and the namespace itself.
    """
    server, space = {SERVER_LABEL: name}, spec.namespace_of(name)
    return {
        "closed": closed(name, space),
        "server": network_policy(
            name,
            space,
            selector=server,
            ingress=[
                allow_from(pods(server)),
                from_clients(spec.client_namespaces, HEAD_PORTS["serve"]),
                *from_prometheus(spec.metrics_namespaces, HEAD_PORTS["metrics"]),
            ],
            # The whole namespace: KubeRay's Services do not select by our label (see network/policy.py).
            egress=[*EGRESS, allow_to(pods({}))],
        ),
        "head": network_policy(
            f"{name}-head",
            space,
            selector={**server, NODE_TYPE_LABEL: "head"},
            # It hands the Serve application to the dashboard, and asks the proxy whether the head can serve.
            ingress=[
                allow_from(namespace(operator_namespace), tcp=[HEAD_PORTS["dashboard"], HEAD_PORTS["serve"]]),
                *from_prometheus(spec.metrics_namespaces, AUTOSCALER_METRICS_PORT),
            ],
            egress=None,
        ),
    }


def quota(name: str, spec: RayServeVllmSpec) -> dict[str, Any]:
    """``metadata`` and ``spec`` of the ResourceQuota: all workers' devices, twice where an upgrade runs a second Ray cluster.

    Ray may end all workers beyond the fewest at once, when they idle, and ask for them again while they still end.
    """
    clusters = 2 if spec.upgrade == "new_cluster" else 1
    worker = spec.worker
    devices = quota_devices(clusters * worker.max, ending=max(worker.max - worker.min, 1), devices=worker.device_count)
    return device_quota(spec.namespace_of(name), DEVICE_RESOURCE, devices)


def disruption_budgets(name: str, spec: RayServeVllmSpec) -> dict[str, dict[str, Any]]:
    """``metadata`` and ``spec`` of the PodDisruptionBudgets by role: the head, and the fewest workers.

    All workers end with the head, and a new worker takes an hour where nothing is cached. By ``minAvailable`` and a number:
    Kubernetes cannot work out a share of pods whose controller it does not know, and would then refuse every eviction.
    """
    if spec.evictions == "allowed":
        return {}
    space = spec.namespace_of(name)
    kept: Mapping[str, int] = {"head": 1, "worker": spec.worker.min}
    return {
        role: {
            "metadata": {"name": f"{name}-{role}", "namespace": space},
            "spec": {"minAvailable": number, "selector": {"matchLabels": {SERVER_LABEL: name, NODE_TYPE_LABEL: role}}},
        }
        for role, number in kept.items()
        if number
    }
