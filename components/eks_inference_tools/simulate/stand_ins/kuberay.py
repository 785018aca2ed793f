"""Stands in for the KubeRay operator, which cannot be built here: treats a RayService as KubeRay 1.7 does.

Modelled: the pods and Services of its Ray cluster (``ray_cluster``), the finalizer, the status, and changes, which start a second
cluster that replaces the first once it serves, or have no effect. A pod that the API server refuses is reported by an event.

Differences: there is no RayCluster object. A ControllerRevision of its name keeps the configuration, and the RayService owns the
pods. The old cluster is deleted at once, not a minute after the new one took over. The autoscaler's Role is not created. A worker
without a replica is ready, while KubeRay's probe would fail.

Sources: KubeRay 1.7.0 (RayService and RayCluster controllers, ``RayServiceStatuses``), Ray 2.52.1 (``serve.schema``).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from eks_inference.serving.ray_serve.plan import NODE_TYPE_LABEL
from eks_inference_tools.reading.live_objects import (
    condition_of,
    has_ended,
    identity_of,
    is_controlled_by,
    is_leaving,
    is_ready,
    labels_of,
    name_of,
)
from eks_inference_tools.reading.object_kinds import (
    ENDPOINT_SLICES,
    PODS,
    RAY_CLUSTER_LABEL,
    RAY_GROUP_LABEL,
    RAY_HEAD_GROUP,
    RAY_SERVE_LABEL,
    RAY_SERVICES,
    SERVICES,
    generated_services,
)
from eks_inference_tools.simulate.control_plane.kubernetes_api import Api, Object
from eks_inference_tools.simulate.stand_ins.loop import (
    Seen,
    condition,
    conditions,
    controller_revision,
    owned,
    set_status,
    telling,
)
from eks_inference_tools.simulate.stand_ins.ray_cluster import (
    MADE_BY,
    Deployment,
    RayCluster,
    applications_in,
    cluster_pods,
    clusters_after,
    generated_services_of,
    head_account,
    head_service_of,
    own_account,
    placement,
    room_of,
    worker_counts,
)
from stackgraph.graph.values import at, items, table, text

FINALIZER = "ray.io/rayservice-finalizer"

_REVISIONS = "controllerrevisions.apps"
_ACCOUNTS = "serviceaccounts"


def applications_of(cluster: RayCluster, pods: Sequence[Object]) -> dict[str, Object]:
    """Returns the application statuses that Ray Serve reports with these pods; empty until the head is ready.

    An application runs if all its initial replicas have a place on ready pods.
    """
    ready = [labels_of(pod) for pod in pods if is_ready(pod)]
    if not any(labels.get(NODE_TYPE_LABEL) == "head" for labels in ready):
        return {}
    groups = {text(group.get("groupName")): group for group in cluster.groups}
    groups[RAY_HEAD_GROUP] = cluster.head
    applications = applications_in(cluster.service)
    rooms = [room_of(groups[group]) for labels in ready if (group := labels.get(RAY_GROUP_LABEL)) in groups]
    counts, _ = placement([deployment for deployments in applications.values() for deployment in deployments], rooms)
    return {
        name: {
            "status": "RUNNING" if all(counts[deployment] == deployment.replicas for deployment in deployments) else "DEPLOYING",
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
        return bool(self.applications) and all(application["status"] == "RUNNING" for application in self.applications.values())


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


class KubeRay:
    """Creates the pods and Services of every RayService and writes its status."""

    title = "the stand-in of KubeRay"
    reads = (RAY_SERVICES, PODS, SERVICES, ENDPOINT_SLICES, _REVISIONS, _ACCOUNTS)

    def reconcile(self, seen: Seen, api: Api) -> None:
        for service in seen[RAY_SERVICES]:
            with telling(api, service, "FailedToCreate"):
                _Reconciler(service, seen, api).run()


class _Reconciler:
    """One reconciliation of one RayService."""

    def __init__(self, service: Object, seen: Seen, api: Api) -> None:
        self._service, self._api = service, api
        self._namespace, self._name = identity_of(service)
        own = {
            resource: [item for item in seen[resource] if identity_of(item)[0] == self._namespace]
            for resource in (PODS, SERVICES, ENDPOINT_SLICES, _REVISIONS, _ACCOUNTS)
        }
        self._services, self._slices, self._accounts = own[SERVICES], own[ENDPOINT_SLICES], own[_ACCOUNTS]
        self._pods = [pod for pod in own[PODS] if is_controlled_by(pod, service)]
        self._clusters = {
            name_of(revision): RayCluster(service, name_of(revision), table(revision.get("data")))
            for revision in own[_REVISIONS]
            if is_controlled_by(revision, service)
        }

    def run(self) -> None:
        finalizers = items(at(self._service, "metadata", "finalizers"))
        if is_leaving(self._service):
            self._remove_all_but(())
            if not self._clusters and FINALIZER in finalizers:
                left = [finalizer for finalizer in finalizers if finalizer != FINALIZER]
                self._api.patch(self._service, {"metadata": {"finalizers": left}})
            return
        if FINALIZER not in finalizers:
            self._api.patch(self._service, {"metadata": {"finalizers": [*finalizers, FINALIZER]}})
        noted = (
            self._clusters.get(text(at(self._service, "status", key, "rayClusterName")))
            for key in ("activeServiceStatus", "pendingServiceStatus")
        )
        active, pending = clusters_after(self._service, *noted)
        self._remove_all_but([cluster.name for cluster in (active, pending) if cluster])
        now_active, now_pending = (self._made(cluster) if cluster else None for cluster in (active, pending))
        serving = next((observation for observation in (now_pending, now_active) if observation and observation.serves), None)
        if serving and (serving is now_pending or now_pending is None):
            self._point_services_at(serving.cluster)
            now_active, now_pending = serving, None
        set_status(self._api, self._service, status_of(self._service, now_active, now_pending, self._endpoints()))

    def _made(self, cluster: RayCluster) -> Observation:
        """Creates what is missing of a cluster and observes it."""
        self._note(cluster)
        account, labels = own_account(cluster), {RAY_CLUSTER_LABEL: cluster.name, **MADE_BY}
        if cluster.scales and head_account(cluster) == account:
            self._create_missing(self._accounts, owned(self._service, "v1", "ServiceAccount", account, labels))
        self._create_missing(self._services, head_service_of(cluster))
        pods = [pod for pod in self._pods if labels_of(pod).get(RAY_CLUSTER_LABEL) == cluster.name]
        there = {name_of(pod) for pod in pods}
        for pod in pods:
            # KubeRay replaces pods that ended.
            if has_ended(pod) and not is_leaving(pod):
                self._api.delete(PODS, name_of(pod), self._namespace)
        for pod in cluster_pods(cluster):
            if name_of(pod) not in there and not self._create_pod(pod):
                break
        applications = applications_of(cluster, pods)
        if applications:
            self._let_head_serve(pods)
        return Observation(cluster, pods, applications)

    def _note(self, cluster: RayCluster) -> None:
        """Saves the configuration of a cluster. ControllerRevisions are immutable, so a changed one is replaced."""
        noted = self._clusters.get(cluster.name)
        if noted and noted.config == cluster.config:
            return
        if noted:
            self._api.delete(_REVISIONS, cluster.name, self._namespace)
        labels = {RAY_CLUSTER_LABEL: cluster.name, **MADE_BY}
        number = self._service["metadata"].get("generation", 1)
        self._api.create(controller_revision(self._service, cluster.name, labels, number, cluster.config))

    def _create_missing(self, there: Sequence[Object], item: Object) -> None:
        if not any(name_of(one) == name_of(item) for one in there):
            self._api.create(item)

    def _create_pod(self, pod: Object) -> bool:
        """Creates a pod and returns whether the API server accepted it. KubeRay reports a refusal and tries again later."""
        what = "Head" if labels_of(pod)[NODE_TYPE_LABEL] == "head" else "Worker"
        with telling(self._api, self._service, f"FailedToCreate{what}Pod"):
            self._api.create(pod)
            return True
        return False

    def _let_head_serve(self, pods: Sequence[Object]) -> None:
        """Labels the head for the serve Service: it has a proxy, too, and gets requests unless the RayService excludes it."""
        wanted = "false" if at(self._service, "spec", "excludeHeadPodFromServeSvc") is True else "true"
        for pod in pods:
            labels = labels_of(pod)
            if labels.get(NODE_TYPE_LABEL) == "head" and labels.get(RAY_SERVE_LABEL) != wanted and not is_leaving(pod):
                self._api.patch(pod, {"metadata": {"labels": {RAY_SERVE_LABEL: wanted}}})

    def _point_services_at(self, cluster: RayCluster) -> None:
        """Creates the Services, and changes existing ones only when another cluster takes over."""
        for service in generated_services_of(cluster):
            there = next((one for one in self._services if name_of(one) == name_of(service)), None)
            if there is None:
                self._api.create(service)
            elif at(there, "spec", "selector", RAY_CLUSTER_LABEL) != cluster.name:
                self._api.patch(there, {"spec": {"selector": service["spec"]["selector"], "ports": service["spec"]["ports"]}})

    def _endpoints(self) -> int:
        _, serve = generated_services(self._name)
        mine = [one for one in self._slices if labels_of(one).get("kubernetes.io/service-name") == serve]
        ready = (end for one in mine for end in items(at(one, "endpoints")) if at(end, "conditions", "ready") is True)
        return len({uid for end in ready if (uid := at(end, "targetRef", "uid"))})

    def _remove_all_but(self, kept: Sequence[str]) -> None:
        """Deletes clusters and what belongs to them. The garbage collector deletes what belongs to the RayService itself."""
        for pod in self._pods:
            if labels_of(pod).get(RAY_CLUSTER_LABEL) not in kept and not is_leaving(pod):
                self._api.delete(PODS, name_of(pod), self._namespace)
        for name, cluster in self._clusters.items():
            if name not in kept:
                self._api.delete(SERVICES, f"{name}-head-svc", self._namespace)
                self._api.delete(_ACCOUNTS, own_account(cluster), self._namespace)
                self._api.delete(_REVISIONS, name, self._namespace)
