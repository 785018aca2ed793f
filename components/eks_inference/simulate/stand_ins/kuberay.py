"""Stands in for the KubeRay operator, which cannot be built here: it makes of a RayService what KubeRay 1.7 makes of it.

As KubeRay does it: the pods of head and worker groups with their labels; what it adds to them that a scheduler or an admission
controller sees (a worker's init container, the autoscaler beside the head and its ServiceAccount, restart policies); Services,
finalizer and status; and what a change of the RayService does: a second cluster beside the first, or nothing.

Left out, as nothing here would see it: commands, probes, Ray's own variables, emptyDirs, the Role of the autoscaler. An object
RayCluster is not made: a ControllerRevision of its name keeps its configuration, and the RayService owns the pods itself.

Otherwise than there: names repeat from run to run; the old cluster goes at once, not a minute after the switch (spec:
``rayClusterDeletionDelaySeconds``); Ray's autoscaler neither adds nor removes workers; and Serve is taken to place its replicas
wherever ready workers have room, so a worker without a replica is ready here, while its probe fails there.

Sources: KubeRay 1.7.0 (RayService and RayCluster controllers, pod and service builders), Ray 2.52.1 (``serve.schema``).
"""

import copy
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from math import ceil
from typing import Any

import yaml

from eks_inference.preview.values import at, items, table, text
from eks_inference.quantity import amount
from eks_inference.serving.ray_serve.plan import HEAD_PORTS, NODE_TYPE_LABEL
from eks_inference.simulate.api import Api, ApiRefusal, Object
from eks_inference.simulate.stand_ins.controllers import (
    condition,
    conditions,
    is_owned_by,
    owner_reference,
    set_status,
    suffix,
    tell,
)
from eks_inference.simulate.stand_ins.loop import Seen
from eks_inference.verify.expected import ENDPOINT_SLICES, PODS, RAY_SERVICES, SERVICES
from eks_inference.verify.observed import condition_of, identity_of, is_leaving, labels_of, name_of
from eks_inference.verify.ray import generated_services
from eks_inference.verify.workloads import is_ready

CLUSTER_LABEL = "ray.io/cluster"
GROUP_LABEL = "ray.io/group"
SERVE_LABEL = "ray.io/serve"
FINALIZER = "ray.io/rayservice-finalizer"
HEAD_GROUP = "headgroup"

_IDENTIFIER_LABEL = "ray.io/identifier"
_APPLICATION_LABEL = "app.kubernetes.io/name"
_SERVICE_NAME_LABEL = "ray.io/originated-from-cr-name"
_SERVICE_KIND_LABEL = "ray.io/originated-from-crd"
_MADE_BY = {_APPLICATION_LABEL: "kuberay", "app.kubernetes.io/created-by": "kuberay-operator"}
# What a template may not take from KubeRay.
_FIXED_LABELS = (CLUSTER_LABEL, NODE_TYPE_LABEL, GROUP_LABEL)

_INIT_REQUESTS = {"cpu": "200m", "memory": "256Mi"}
_AUTOSCALER_REQUESTS = {"cpu": "500m", "memory": "512Mi"}
_NAME_LENGTH = 50  # of what stands before the end of a pod's name

_REVISIONS = "controllerrevisions.apps"
_ACCOUNTS = "serviceaccounts"


@dataclass(frozen=True)
class RayCluster:
    """A Ray cluster of a RayService: ``config`` is the RayService's ``rayClusterConfig`` as it was when the cluster was made."""

    service: Object
    name: str
    config: Mapping[str, Any]

    @property
    def namespace(self) -> str:
        return self.service["metadata"]["namespace"]

    @property
    def scales(self) -> bool:
        return self.config.get("enableInTreeAutoscaling") is True

    @property
    def never_restarts(self) -> bool:
        """Of its pods. The second version of Ray's autoscaler replaces them instead."""
        return self.scales and at(self.config, "autoscalerOptions", "version") == "v2"

    @property
    def groups(self) -> list[Mapping[str, Any]]:
        return [table(group) for group in items(at(self.config, "workerGroupSpecs"))]


def wanted_cluster(ray_service: Object) -> RayCluster:
    """The cluster that a RayService asks for, under the name it has if it is made now."""
    name, generation = ray_service["metadata"]["name"], ray_service["metadata"].get("generation", 1)
    return RayCluster(ray_service, f"{name}-{suffix(name, generation)}", table(at(ray_service, "spec", "rayClusterConfig")))


def pods_of(ray_service: Object) -> list[Object]:
    """The pods that KubeRay makes of a RayService: the head, and each group's workers at their initial number."""
    return _pods(wanted_cluster(ray_service))


def services_of(ray_service: Object) -> list[Object]:
    """The Services that KubeRay makes of a RayService whose Serve applications run: its head, and the pods that serve."""
    return _generated_services(wanted_cluster(ray_service))


# -- pods ------------------------------------------------------------------------------------------------------------------------


def _pods(cluster: RayCluster) -> list[Object]:
    return [_head(cluster), *(_worker(cluster, group, n) for group in cluster.groups for n in range(_worker_count(group)))]


def _worker_count(group: Mapping[str, Any]) -> int:
    """Pods of a group: its replicas within their bounds, each of as many hosts as it says."""
    if group.get("suspend") is True:
        return 0
    replicas, least, most = (group.get(key) for key in ("replicas", "minReplicas", "maxReplicas"))
    count = max(replicas or 0, least or 0)
    return (count if most is None else min(count, max(most, least or 0))) * max(group.get("numOfHosts", 1), 1)


def _head(cluster: RayCluster) -> Object:
    pod = _pod(cluster, table(cluster.config.get("headGroupSpec")), "head", HEAD_GROUP, cluster.name, 0)
    if cluster.scales:
        pod["spec"]["serviceAccountName"] = _head_account(cluster)
        pod["spec"]["containers"].append(_autoscaler(cluster, pod["spec"]["containers"][0]))
    return pod


def _worker(cluster: RayCluster, group: Mapping[str, Any], ordinal: int) -> Object:
    name = text(group.get("groupName"))
    pod = _pod(cluster, group, "worker", name, f"{cluster.name}-{name}", ordinal)
    ray = pod["spec"]["containers"][0]
    # Waits for the head; with whatever the Ray container may have that admission looks at.
    kept = ("image", "imagePullPolicy", "securityContext", "env", "volumeMounts")
    wait = {
        "name": "wait-gcs-ready",
        **{key: copy.deepcopy(ray[key]) for key in kept if key in ray},
        **_guaranteed(_INIT_REQUESTS),
    }
    pod["spec"]["initContainers"] = [*(pod["spec"].get("initContainers") or ()), wait]
    return pod


def _pod(cluster: RayCluster, group: Mapping[str, Any], node_type: str, group_name: str, prefix: str, ordinal: int) -> Object:
    template = copy.deepcopy(dict(table(group.get("template"))))
    given = {**table(at(template, "metadata", "labels")), **table(group.get("labels"))}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{prefix[:_NAME_LENGTH]}-{node_type}-{suffix(cluster.name, group_name, ordinal)}".lower(),
            "namespace": cluster.namespace,
            "labels": {
                "ray.io/is-ray-node": "yes",
                _IDENTIFIER_LABEL: _identifier(cluster.name, node_type),
                **_MADE_BY,
                **given,
                CLUSTER_LABEL: cluster.name,
                NODE_TYPE_LABEL: node_type,
                GROUP_LABEL: group_name,
                # Of the head KubeRay says so when it answers.
                SERVE_LABEL: str(node_type == "worker").lower(),
            },
            "annotations": dict(table(at(template, "metadata", "annotations"))),
            "ownerReferences": [owner_reference(cluster.service)],
        },
        "spec": {**template["spec"], **({"restartPolicy": "Never"} if cluster.never_restarts else {})},
    }


def _identifier(name: str, node_type: str) -> str:
    return f"{name}-{node_type}"[-63:]  # the length of a label


def _autoscaler(cluster: RayCluster, ray: Mapping[str, Any]) -> Object:
    options = table(cluster.config.get("autoscalerOptions"))
    given = {
        key: options[key] for key in ("env", "envFrom", "volumeMounts", "securityContext", "imagePullPolicy") if key in options
    }
    return {
        "name": "autoscaler",
        "image": options.get("image") or ray["image"],
        **_guaranteed(_AUTOSCALER_REQUESTS),
        **({"resources": options["resources"]} if options.get("resources") else {}),
        **copy.deepcopy(given),
    }


def _guaranteed(resources: Mapping[str, str]) -> Object:
    return {"resources": {"requests": dict(resources), "limits": dict(resources)}}


def _own_account(cluster: RayCluster) -> str:
    return cluster.name[-_NAME_LENGTH:]


def _head_account(cluster: RayCluster) -> str:
    return text(at(cluster.config, "headGroupSpec", "template", "spec", "serviceAccountName")) or _own_account(cluster)


# -- services --------------------------------------------------------------------------------------------------------------------


def _cluster_service(cluster: RayCluster) -> Object:
    """By which workers find their head; one of each cluster."""
    application = at(cluster.config, "headGroupSpec", "template", "metadata", "labels", _APPLICATION_LABEL)
    selector = {**_head_selector(cluster), **({_APPLICATION_LABEL: application} if application else {})}
    return _service(cluster, f"{cluster.name}-head-svc", selector, selector, _head_service_spec(cluster))


def _generated_services(cluster: RayCluster) -> list[Object]:
    service = name_of(cluster.service)
    head, serve = generated_services(service)
    origin = {_SERVICE_NAME_LABEL: service, _SERVICE_KIND_LABEL: "RayService"}
    ports = [port for port in _head_ports(cluster) if port["name"] == "serve" or port["name"].startswith("serve-")]
    return [
        _service(
            cluster,
            head,
            {**origin, NODE_TYPE_LABEL: "head", _IDENTIFIER_LABEL: _identifier(service, "head")},
            _head_selector(cluster),
            _head_service_spec(cluster),
        ),
        _service(
            cluster,
            serve,
            {**origin, SERVE_LABEL: f"{service}-serve"},
            {CLUSTER_LABEL: cluster.name, SERVE_LABEL: "true"},
            {"ports": ports, **_service_type(cluster)},
        ),
    ]


def _service(cluster: RayCluster, name: str, labels: Mapping[str, str], selector: Mapping[str, str], spec: Object) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": name,
            "namespace": cluster.namespace,
            "labels": dict(labels),
            "ownerReferences": [owner_reference(cluster.service)],
        },
        "spec": {"selector": dict(selector), **spec},
    }


def _head_selector(cluster: RayCluster) -> dict[str, str]:
    return {
        CLUSTER_LABEL: cluster.name,
        NODE_TYPE_LABEL: "head",
        _IDENTIFIER_LABEL: _identifier(cluster.name, "head"),
        **_MADE_BY,
    }


def _service_type(cluster: RayCluster) -> dict[str, str]:
    type_ = text(at(cluster.config, "headGroupSpec", "serviceType"))
    return {"type": type_} if type_ else {}


def _head_service_spec(cluster: RayCluster) -> Object:
    headless = _service_type(cluster).get("type", "ClusterIP") == "ClusterIP"
    return {
        "ports": [{**port, "appProtocol": "tcp"} for port in _head_ports(cluster)],
        **_service_type(cluster),
        **({"clusterIP": "None", "publishNotReadyAddresses": True} if headless else {}),
    }


def _head_ports(cluster: RayCluster) -> list[Object]:
    container = items(at(cluster.config, "headGroupSpec", "template", "spec", "containers"))[0]
    given = {
        text(at(port, "name")) or f"{at(port, 'containerPort')}-port": at(port, "containerPort")
        for port in items(at(container, "ports"))
    }
    ports = given or dict(HEAD_PORTS)
    ports.setdefault("metrics", HEAD_PORTS["metrics"])
    return [{"name": name, "port": number} for name, number in sorted(ports.items())]


# -- Ray Serve -------------------------------------------------------------------------------------------------------------------


def applications_of(cluster: RayCluster, pods: Sequence[Object]) -> dict[str, Object]:
    """What Ray Serve says of the applications of a cluster with these pods; nothing before the head is ready.

    An application runs when all replicas it begins with have a place on ready pods. Not known: what Ray would do with placement
    groups and with memory that an actor sets aside.
    """
    ready = [pod for pod in pods if is_ready(pod)]
    if not any(labels_of(pod).get(NODE_TYPE_LABEL) == "head" for pod in ready):
        return {}
    groups = {HEAD_GROUP: table(cluster.config.get("headGroupSpec")), **{text(g.get("groupName")): g for g in cluster.groups}}
    rooms = [_room(groups[group]) for pod in ready if (group := labels_of(pod).get(GROUP_LABEL)) in groups]
    found: dict[str, Object] = {}
    for application in items(at(_serve_config(cluster.service), "applications")):
        deployments = {text(at(one, "name")): _deployment(one, rooms) for one in items(at(application, "deployments"))}
        runs = all(one["status"] == "HEALTHY" for one in deployments.values())
        found[text(at(application, "name")) or "default"] = {
            "status": "RUNNING" if runs else "DEPLOYING",
            "serveDeploymentStatuses": deployments,
        }
    return found


def _serve_config(ray_service: Object) -> Any:
    config = at(ray_service, "spec", "serveConfigV2")
    try:
        return yaml.safe_load(config) if isinstance(config, str) else None
    except yaml.YAMLError:
        return None


def _deployment(deployment: Any, rooms: list[dict[str, Decimal]]) -> Object:
    """Puts replicas into the first room that holds them, and says whether all have one."""
    wanted = at(deployment, "num_replicas")
    if (scaling := at(deployment, "autoscaling_config")) is not None:
        wanted = next((n for key in ("initial_replicas", "min_replicas") if (n := at(scaling, key)) is not None), 1)
    wanted = wanted if isinstance(wanted, int) else 1
    options = table(at(deployment, "ray_actor_options"))
    need = {"CPU": options.get("num_cpus", 1), "GPU": options.get("num_gpus", 0), **table(options.get("resources"))}
    needed = {resource: Decimal(str(quantity)) for resource, quantity in need.items() if quantity}
    placed = 0
    for _ in range(wanted):
        room = next((one for one in rooms if all(one.get(name, 0) >= number for name, number in needed.items())), None)
        if room is None:
            break
        for resource, number in needed.items():
            room[resource] -= number
        placed += 1
    if placed == wanted:
        return {"status": "HEALTHY"}
    return {"status": "UPDATING", "message": f"{placed} of {wanted} replicas have a place on ready workers"}


def _room(group: Mapping[str, Any]) -> dict[str, Decimal]:
    """What Ray takes a pod to have: as its start parameters say, otherwise as the limits of its container."""
    parameters = table(group.get("rayStartParams"))
    resources = table(at(items(at(group, "template", "spec", "containers"))[0], "resources"))
    limits = {**table(resources.get("requests")), **table(resources.get("limits"))}
    return {
        "CPU": Decimal(parameters.get("num-cpus", ceil(amount(str(limits.get("cpu", "0")))))),
        "GPU": Decimal(parameters.get("num-gpus", str(limits.get("nvidia.com/gpu", "0")))),
        "neuron_cores": Decimal(str(limits.get("aws.amazon.com/neuroncore", "0"))),
        # Quoted for a shell.
        **{
            name: Decimal(str(number))
            for name, number in json.loads(text(parameters.get("resources")).strip("'\"` ") or "{}").items()
        },
    }


# -- status ----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Observation:
    """A cluster of a RayService with its pods, and what Ray Serve says there. KubeRay asks one cluster only during an upgrade."""

    cluster: RayCluster
    pods: Sequence[Object]
    applications: Mapping[str, Object]

    @property
    def serves(self) -> bool:
        return bool(self.applications) and all(one["status"] == "RUNNING" for one in self.applications.values())


def status_of(ray_service: Object, active: Observation | None, pending: Observation | None, endpoints: int) -> Object:
    """The status of a RayService. ``endpoints`` are the pods behind its serve Service that are ready."""
    before = table(ray_service.get("status"))
    generation = ray_service["metadata"].get("generation", 1)
    status: Object = {
        "observedGeneration": generation,
        "conditions": conditions(
            items(before.get("conditions")), _conditions(ray_service, active, pending, endpoints), generation
        ),
    }
    if active:
        status["activeServiceStatus"] = _cluster_status(active, asked=pending is None)
    if pending:
        status["pendingServiceStatus"] = _cluster_status(pending, asked=True)
    if endpoints:
        status["numServeEndpoints"] = endpoints
    if any(one["type"] == "Ready" and one["status"] == "True" for one in status["conditions"]):
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
    groups = seen.cluster.groups
    workers = [pod for pod in seen.pods if labels_of(pod).get(NODE_TYPE_LABEL) == "worker"]
    heads = [pod for pod in seen.pods if labels_of(pod).get(NODE_TYPE_LABEL) == "head"]
    ready = sum(is_ready(pod) for pod in workers)
    wanted = sum(_worker_count(group) for group in groups)
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


# -- upgrades --------------------------------------------------------------------------------------------------------------------


def clusters_after(
    ray_service: Object, active: RayCluster | None, pending: RayCluster | None
) -> tuple[RayCluster | None, RayCluster | None]:
    """The active and the pending cluster that a RayService should have, from those it has.

    A changed configuration makes a new pending cluster, unless it differs from the newest one only in what KubeRay does not look
    at (numbers of workers, tolerations), or by groups appended to it, which are added in place; or unless the upgrade strategy is
    None. So a change of the numbers of workers alone reaches no cluster.
    """
    wanted = wanted_cluster(ray_service)
    newest = pending or active
    if newest is None:
        return None, wanted
    if _decisive(newest.config) == _decisive(wanted.config):
        return active, pending
    if _decisive(newest.config) == _decisive(wanted.config, groups=len(newest.groups)):
        grown = RayCluster(ray_service, newest.name, wanted.config)
        return (active, grown) if pending else (grown, None)
    if at(ray_service, "spec", "upgradeStrategy", "type") not in (None, "NewCluster"):
        return active, pending
    return active, wanted


def _decisive(config: Mapping[str, Any], groups: int | None = None) -> str:
    """What of a configuration makes another cluster of it, as text; of its first ``groups`` groups only, where given."""
    found = copy.deepcopy(dict(config))
    found.pop("upgradeStrategy", None)
    found.pop("suspend", None)
    specs = [dict(table(group)) for group in items(found.get("workerGroupSpecs"))][:groups]
    for group in specs:
        for key in ("replicas", "minReplicas", "maxReplicas"):
            group.pop(key, None)
        strategy = table(group.get("scaleStrategy"))
        group["scaleStrategy"] = {key: value for key, value in strategy.items() if key != "workersToDelete"}
    found["workerGroupSpecs"] = specs
    for group in (found.get("headGroupSpec"), *specs):
        pod = at(group, "template", "spec")
        if isinstance(pod, dict):
            pod.pop("tolerations", None)
            pod.pop("schedulingGates", None)
    return json.dumps(found, sort_keys=True)


# -- the controller --------------------------------------------------------------------------------------------------------------


class KubeRay:
    """Makes pods, Services and status of every RayService."""

    title = "the stand-in of KubeRay"
    reads = (RAY_SERVICES, PODS, SERVICES, ENDPOINT_SLICES, _REVISIONS, _ACCOUNTS)

    def reconcile(self, seen: Seen, api: Api) -> None:
        for service in seen[RAY_SERVICES]:
            _Reconciler(service, seen, api).run()


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
        self._pods = [pod for pod in own[PODS] if is_owned_by(pod, service)]
        self._clusters = {
            name_of(revision): RayCluster(service, name_of(revision), table(revision.get("data")))
            for revision in own[_REVISIONS]
            if is_owned_by(revision, service)
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
        if cluster.scales and _head_account(cluster) == _own_account(cluster):
            self._create_missing(self._accounts, self._account(cluster))
        self._create_missing(self._services, _cluster_service(cluster))
        pods = [pod for pod in self._pods if labels_of(pod).get(CLUSTER_LABEL) == cluster.name]
        there = {name_of(pod) for pod in pods}
        for pod in pods:
            # Pods that ended do not start again: KubeRay makes others in their place.
            if at(pod, "status", "phase") in ("Failed", "Succeeded") and not is_leaving(pod):
                self._api.delete(PODS, name_of(pod), self._namespace)
        for pod in _pods(cluster):
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
        return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": self._metadata(cluster, _own_account(cluster))}

    def _metadata(self, cluster: RayCluster, name: str) -> Object:
        return {
            "name": name,
            "namespace": self._namespace,
            "labels": {CLUSTER_LABEL: cluster.name, **_MADE_BY},
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
        for service in _generated_services(cluster):
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
                self._api.delete(_ACCOUNTS, _own_account(cluster), self._namespace)
                self._api.delete(_REVISIONS, name, self._namespace)
