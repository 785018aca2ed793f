"""Stands in for the KubeRay operator, which cannot be built here: it does with a RayService what KubeRay 1.7 does with it.

As there: the pods and Services of its Ray cluster (``ray_cluster``), the finalizer, the status, and what a change does: a second
cluster beside the first, which takes over when it serves, or nothing. An API server that refuses a pod is told of in an event.

Otherwise than there: no object RayCluster is made: a ControllerRevision of its name keeps its configuration, and the RayService
owns the pods itself. The old cluster goes at once, not a minute after the new one took over. The autoscaler's Role is not made.
A worker without a replica is ready here, while its probe fails there.

Sources: KubeRay 1.7.0 (RayService and RayCluster controllers), Ray 2.52.1 (``serve.schema``).
"""

from collections.abc import Sequence

from eks_inference.serving.ray_serve.plan import NODE_TYPE_LABEL
from eks_inference_tools.reading.kinds import ENDPOINT_SLICES, PODS, RAY_SERVICES, SERVICES
from eks_inference_tools.reading.kuberay import CLUSTER_LABEL, SERVE_LABEL, generated_services
from eks_inference_tools.reading.live_objects import identity_of, is_controlled_by, is_leaving, labels_of, name_of
from eks_inference_tools.simulate.control_plane.api import Api, ApiRefusal, Object
from eks_inference_tools.simulate.stand_ins.controllers import owner_reference, set_status, tell
from eks_inference_tools.simulate.stand_ins.loop import Seen
from eks_inference_tools.simulate.stand_ins.ray_cluster import (
    MADE_BY,
    RayCluster,
    cluster_pods,
    clusters_after,
    generated_services_of,
    head_account,
    head_service_of,
    own_account,
)
from eks_inference_tools.simulate.stand_ins.ray_status import Observation, applications_of, status_of
from stackgraph.graph.values import at, items, table, text

FINALIZER = "ray.io/rayservice-finalizer"

_REVISIONS = "controllerrevisions.apps"
_ACCOUNTS = "serviceaccounts"


class KubeRay:
    """Makes pods, Services and status of every RayService."""

    title = "the stand-in of KubeRay"
    reads = (RAY_SERVICES, PODS, SERVICES, ENDPOINT_SLICES, _REVISIONS, _ACCOUNTS)

    def reconcile(self, seen: Seen, api: Api) -> None:
        for service in seen[RAY_SERVICES]:
            try:
                _Reconciler(service, seen, api).run()
            except ApiRefusal as refusal:
                if refusal.status in (404, 409):
                    raise
                tell(api, service, "FailedToCreate", refusal.message)


class _Reconciler:
    """One step for one RayService."""

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
                self._set_finalizers([one for one in finalizers if one != FINALIZER])
            return
        if FINALIZER not in finalizers:
            self._set_finalizers([*finalizers, FINALIZER])
        active, pending = clusters_after(self._service, self._noted("activeServiceStatus"), self._noted("pendingServiceStatus"))
        self._remove_all_but([cluster.name for cluster in (active, pending) if cluster])
        now_active, now_pending = (self._made(cluster) if cluster else None for cluster in (active, pending))
        serving = next((one for one in (now_pending, now_active) if one and one.serves), None)
        if serving and (serving is now_pending or now_pending is None):
            self._point_services_at(serving.cluster)
            now_active, now_pending = serving, None
        set_status(self._api, self._service, status_of(self._service, now_active, now_pending, self._endpoints()))

    def _noted(self, key: str) -> RayCluster | None:
        return self._clusters.get(text(at(self._service, "status", key, "rayClusterName")))

    def _set_finalizers(self, finalizers: Sequence[str]) -> None:
        self._api.patch(self._service, {"metadata": {"finalizers": list(finalizers)}})

    def _made(self, cluster: RayCluster) -> Observation:
        """Makes what is missing of a cluster."""
        self._note(cluster)
        if cluster.scales and head_account(cluster) == own_account(cluster):
            self._create_missing(self._accounts, self._account(cluster))
        self._create_missing(self._services, head_service_of(cluster))
        pods = [pod for pod in self._pods if labels_of(pod).get(CLUSTER_LABEL) == cluster.name]
        there = {name_of(pod) for pod in pods}
        for pod in pods:
            # Pods that ended do not start again: KubeRay makes others in their place.
            if at(pod, "status", "phase") in ("Failed", "Succeeded") and not is_leaving(pod):
                self._api.delete(PODS, name_of(pod), self._namespace)
        for pod in cluster_pods(cluster):
            if name_of(pod) not in there and not self._create_pod(pod):
                break
        applications = applications_of(cluster, pods)
        if applications:
            self._let_head_serve(pods)
        return Observation(cluster, pods, applications)

    def _note(self, cluster: RayCluster) -> None:
        """Keeps the configuration of a cluster. A ControllerRevision cannot be changed, so another takes its place."""
        noted = self._clusters.get(cluster.name)
        if noted is not None and noted.config == cluster.config:
            return
        if noted is not None:
            self._api.delete(_REVISIONS, cluster.name, self._namespace)
        revision = {
            "apiVersion": "apps/v1",
            "kind": "ControllerRevision",
            "metadata": self._metadata(cluster, cluster.name),
            "revision": self._service["metadata"].get("generation", 1),
            "data": dict(cluster.config),
        }
        self._api.create(revision)

    def _account(self, cluster: RayCluster) -> Object:
        return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": self._metadata(cluster, own_account(cluster))}

    def _metadata(self, cluster: RayCluster, name: str) -> Object:
        return {
            "name": name,
            "namespace": self._namespace,
            "labels": {CLUSTER_LABEL: cluster.name, **MADE_BY},
            "ownerReferences": [owner_reference(self._service)],
        }

    def _create_missing(self, there: Sequence[Object], item: Object) -> None:
        if not any(name_of(one) == name_of(item) for one in there):
            self._api.create(item)

    def _create_pod(self, pod: Object) -> bool:
        """Whether the API server took it. Where it does not, KubeRay tells and tries again."""
        try:
            self._api.create(pod)
        except ApiRefusal as refusal:
            if refusal.status in (404, 409):
                raise
            what = "Head" if labels_of(pod)[NODE_TYPE_LABEL] == "head" else "Worker"
            tell(self._api, self._service, f"FailedToCreate{what}Pod", refusal.message)
            return False
        return True

    def _let_head_serve(self, pods: Sequence[Object]) -> None:
        """Serve runs a proxy on the head, too, which takes requests unless the RayService says otherwise."""
        wanted = "false" if at(self._service, "spec", "excludeHeadPodFromServeSvc") is True else "true"
        for pod in pods:
            labels = labels_of(pod)
            if labels.get(NODE_TYPE_LABEL) == "head" and labels.get(SERVE_LABEL) != wanted and not is_leaving(pod):
                self._api.patch(pod, {"metadata": {"labels": {SERVE_LABEL: wanted}}})

    def _point_services_at(self, cluster: RayCluster) -> None:
        """Only a switch to another cluster changes a Service that is there."""
        for service in generated_services_of(cluster):
            there = next((one for one in self._services if name_of(one) == name_of(service)), None)
            if there is None:
                self._api.create(service)
            elif at(there, "spec", "selector", CLUSTER_LABEL) != cluster.name:
                self._api.patch(there, {"spec": {"selector": service["spec"]["selector"], "ports": service["spec"]["ports"]}})

    def _endpoints(self) -> int:
        _, serve = generated_services(self._name)
        mine = [one for one in self._slices if labels_of(one).get("kubernetes.io/service-name") == serve]
        ready = (end for one in mine for end in items(at(one, "endpoints")) if at(end, "conditions", "ready") is True)
        return len({uid for end in ready if (uid := at(end, "targetRef", "uid"))})

    def _remove_all_but(self, kept: Sequence[str]) -> None:
        """Deletes clusters with all that is theirs; what the RayService itself has the garbage collector deletes after it."""
        for pod in self._pods:
            if labels_of(pod).get(CLUSTER_LABEL) not in kept and not is_leaving(pod):
                self._api.delete(PODS, name_of(pod), self._namespace)
        for name, cluster in self._clusters.items():
            if name not in kept:
                self._api.delete(SERVICES, f"{name}-head-svc", self._namespace)
                self._api.delete(_ACCOUNTS, own_account(cluster), self._namespace)
                self._api.delete(_REVISIONS, name, self._namespace)
