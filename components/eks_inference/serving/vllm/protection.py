"""What guards a vLLM server: who may reach its pods, how many devices it may hold, which pods a drain may take. Pure; no pulumi.

Source: Kubernetes documentation, "Specifying a Disruption Budget for your Application".
"""

from typing import Any

from eks_inference.catalog.instances import InstanceType
from eks_inference.kubernetes.network_policy import network_policy
from eks_inference.serving import protection
from eks_inference.serving.pods import device_resource
from eks_inference.serving.vllm import plan
from eks_inference.serving.vllm.spec import VllmServerSpec


def network_policies(name: str, spec: VllmServerSpec) -> dict[str, dict[str, Any]]:
    """The namespace's NetworkPolicies by role. Open: the port of API and metrics, to clients and to Prometheus."""
    space, port = plan.namespace(name, spec), plan.port(spec)
    return {
        "closed": protection.closed(name, space),
        "server": network_policy(
            name,
            space,
            selector=plan.labels(name),
            ingress=[
                protection.from_clients(spec.client_namespaces, port),
                *protection.from_prometheus(spec.metrics_namespaces, port),
            ],
            egress=protection.EGRESS,
        ),
    }


def quota(name: str, spec: VllmServerSpec, shape: InstanceType) -> dict[str, Any]:
    """``metadata`` and ``spec`` of the ResourceQuota: the devices of all pods.

    Those of a roll-out among them, where the quota counts pods until they have ended: their successors wait for devices then, and
    must be let in to do so. A controller that is refused tries again ever more seldom.
    """
    devices = (spec.most + max(spec.surge, 1)) * plan.device_count(spec, shape)
    return protection.device_quota(plan.namespace(name, spec), device_resource(shape), devices)


def disruption_budget(name: str, spec: VllmServerSpec) -> dict[str, Any]:
    """``metadata`` and ``spec`` of the PodDisruptionBudget."""
    kept = {"minAvailable": spec.fewest} if spec.evictions == "refused" and spec.fewest else {"maxUnavailable": 1}
    return {
        "metadata": {"name": name, "namespace": plan.namespace(name, spec)},
        "spec": {**kept, "selector": {"matchLabels": plan.labels(name)}},
    }
