"""Works out the status that KubeRay 1.7 reports for a RayService from the pods of its clusters. Pure.

Sources: KubeRay 1.7.0 (``RayServiceStatuses``, RayService controller), Ray 2.52.1 (``serve.schema``).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from eks_inference.serving.ray_serve.plan import NODE_TYPE_LABEL
from eks_inference_tools.reading.kuberay import GROUP_LABEL, HEAD_GROUP
from eks_inference_tools.reading.live_objects import condition_of, is_ready, labels_of, name_of
from eks_inference_tools.simulate.control_plane.api import Object
from eks_inference_tools.simulate.stand_ins.controllers import condition, conditions
from eks_inference_tools.simulate.stand_ins.ray_cluster import RayCluster, worker_counts
from eks_inference_tools.simulate.stand_ins.ray_serve import Deployment, applications_in, placement, room_of
from stackgraph.graph.values import at, text


def applications_of(cluster: RayCluster, pods: Sequence[Object]) -> dict[str, Object]:
    """Returns the application statuses that Ray Serve reports with these pods; empty until the head is ready.

    An application runs if all its initial replicas have a place on ready pods.
    """
    ready = [labels_of(pod) for pod in pods if is_ready(pod)]
    if not any(labels.get(NODE_TYPE_LABEL) == "head" for labels in ready):
        return {}
    groups = {text(group.get("groupName")): group for group in cluster.groups}
    groups[HEAD_GROUP] = cluster.head
    applications = applications_in(cluster.service)
    rooms = [room_of(groups[group]) for labels in ready if (group := labels.get(GROUP_LABEL)) in groups]
    counts, _ = placement([one for deployments in applications.values() for one in deployments], rooms)
    return {
        name: {
            "status": "RUNNING" if all(counts[one] == one.replicas for one in deployments) else "DEPLOYING",
            "serveDeploymentStatuses": {one.name: _deployment_status(one, counts[one]) for one in deployments},
        }
        for name, deployments in applications.items()
    }


def _deployment_status(deployment: Deployment, count: int) -> Object:
    if count == deployment.replicas:
        return {"status": "HEALTHY"}
    return {"status": "UPDATING", "message": f"{count} of {deployment.replicas} replicas have a place on ready workers"}


@dataclass(frozen=True)
class Observation:
    """A cluster of a RayService, its pods, and the application statuses that Ray Serve reports there."""

    cluster: RayCluster
    pods: Sequence[Object]
    applications: Mapping[str, Object]

    @property
    def serves(self) -> bool:
        return bool(self.applications) and all(one["status"] == "RUNNING" for one in self.applications.values())


def status_of(ray_service: Object, active: Observation | None, pending: Observation | None, endpoints: int) -> Object:
    """Returns the status of a RayService. ``endpoints`` is the number of ready pods behind its serve Service."""
    merged = conditions(ray_service, _conditions(ray_service, active, pending, endpoints))
    status: Object = {"observedGeneration": ray_service["metadata"].get("generation", 1), "conditions": merged}
    # KubeRay asks only the pending cluster for its applications during an upgrade.
    if active:
        status["activeServiceStatus"] = _cluster_status(active, asked=pending is None)
    if pending:
        status["pendingServiceStatus"] = _cluster_status(pending, asked=True)
    if endpoints:
        status["numServeEndpoints"] = endpoints
    if any(one["type"] == "Ready" and one["status"] == "True" for one in merged):
        status["serviceStatus"] = "Running"
    return status


def _conditions(ray_service: Object, active: Observation | None, pending: Observation | None, endpoints: int) -> Iterator[Object]:
    ready, upgrade = condition_of(ray_service, "Ready"), condition_of(ray_service, "UpgradeInProgress")
    if endpoints:
        yield condition("Ready", True, "NonZeroServeEndpoints", "Number of serve endpoints is greater than 0")
    elif ready is None:
        yield condition("Ready", False, "Initializing", "RayService is initializing")
    elif ready["status"] == "True":
        yield condition("Ready", False, "ZeroServeEndpoints", "Number of serve endpoints dropped to 0")
    if active and pending:
        yield condition("UpgradeInProgress", True, "BothActivePendingClustersExist", "Both active and pending Ray clusters exist")
    elif active:
        message = "Active Ray cluster exists and no pending Ray cluster"
        yield condition("UpgradeInProgress", False, "NoPendingCluster", message)
    elif upgrade is None:
        yield condition("UpgradeInProgress", False, "Initializing", "RayService is initializing")


def _cluster_status(seen: Observation, *, asked: bool) -> Object:
    workers, heads = ([pod for pod in seen.pods if labels_of(pod).get(NODE_TYPE_LABEL) == kind] for kind in ("worker", "head"))
    ready, wanted = sum(is_ready(pod) for pod in workers), sum(worker_counts(seen.cluster).values())
    status = {
        "desiredWorkerReplicas": wanted,
        "readyWorkerReplicas": ready,
        "availableWorkerReplicas": sum(at(pod, "status", "phase") == "Running" for pod in workers),
        **({"state": "ready"} if ready >= wanted and any(is_ready(pod) for pod in heads) else {}),
    }
    if heads:
        status["head"] = {"podName": name_of(heads[0]), "serviceName": f"{seen.cluster.name}-head-svc"}
        if address := at(heads[0], "status", "podIP"):
            status["head"]["podIP"] = address
    found: Object = {"rayClusterName": seen.cluster.name, "rayClusterStatus": status}
    return {**found, "applicationStatuses": dict(seen.applications)} if asked and seen.applications else found
