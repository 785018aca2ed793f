"""Plans the guards of a server: NetworkPolicies, the quota of devices, and disruption budgets. Pure functions; no pulumi.

Sources: Kubernetes documentation ("Specifying a Disruption Budget", "Resource Quotas"), KubeRay 1.7.0 (the operator's requests:
``rayservice_controller.go``), Ray 2.52.1 documentation ("Security": anyone who reaches Ray's ports can run code).
"""

from collections.abc import Sequence
from typing import Any

from eks_inference.accelerators.neuron.plan import DEVICE_RESOURCE
from eks_inference.kubernetes.network_policy import allow_from, allow_to, api_server, namespace, network_policy, pods
from eks_inference.serving.pod_parts import (
    SERVER_LABEL,
    closed,
    device_quota,
    egress,
    from_clients,
    from_prometheus,
    quota_devices,
)
from eks_inference.serving.ray_serve.plan import AUTOSCALER_METRICS_PORT, HEAD_PORTS, NODE_TYPE_LABEL
from eks_inference.serving.ray_serve.spec import RayServeVllmSpec


def network_policies(
    name: str, spec: RayServeVllmSpec, *, operator_namespace: str, api_cidrs: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """Returns the namespace's NetworkPolicies by role.

    Ingress: clients reach the API (8000), Prometheus the metrics (8080), the operator the head's dashboard and API. Only the
    server's own pods reach Ray's ports, which accept jobs from anyone. Egress: DNS, credentials, HTTPS (Hub, S3, and the API
    server for Ray's autoscaler) and the namespace itself.
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
            # The whole namespace: KubeRay's Services do not select by our label (see kubernetes/network_policy.py).
            egress=[*egress(spec), *([api_server(api_cidrs)] if spec.egress is not None else []), allow_to(pods({}))],
        ),
        "head": network_policy(
            f"{name}-head",
            space,
            selector={**server, NODE_TYPE_LABEL: "head"},
            # The operator submits the Serve application to the dashboard, and checks the health of the head's proxy.
            ingress=[
                allow_from(namespace(operator_namespace), tcp=[HEAD_PORTS["dashboard"], HEAD_PORTS["serve"]]),
                *from_prometheus(spec.metrics_namespaces, AUTOSCALER_METRICS_PORT),
            ],
            egress=None,
        ),
    }


def quota(name: str, spec: RayServeVllmSpec) -> dict[str, Any]:
    """Returns ``metadata`` and ``spec`` of the ResourceQuota: the devices of all workers, twice if upgrades run a second cluster.

    When idle, Ray may stop all workers above the minimum at once, and request them again while they are still terminating.
    """
    worker = spec.worker
    clusters = 2 if spec.upgrade == "new_cluster" else 1
    devices = quota_devices(clusters * worker.max, ending=max(worker.max - worker.min, 1), devices=worker.device_count)
    return device_quota(spec.namespace_of(name), {f"requests.{DEVICE_RESOURCE}": devices})


def disruption_budgets(name: str, spec: RayServeVllmSpec) -> dict[str, dict[str, Any]]:
    """Returns ``metadata`` and ``spec`` of the PodDisruptionBudgets by role: drains take one of the minimum of workers at a time.

    A lone worker and the head have none: a budget that keeps every pod holds up the end of its node for ever. ``minAvailable`` is
    a number: Kubernetes cannot compute a percentage of pods whose controller it does not know, and would refuse every eviction.
    """
    if spec.worker.min < 2:
        return {}
    labels = {SERVER_LABEL: name, NODE_TYPE_LABEL: "worker"}
    return {
        "worker": {
            "metadata": {"name": f"{name}-worker", "namespace": spec.namespace_of(name)},
            "spec": {"minAvailable": spec.worker.min - 1, "selector": {"matchLabels": labels}},
        }
    }
