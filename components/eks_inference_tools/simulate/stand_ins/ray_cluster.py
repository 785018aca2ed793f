"""Builds the Ray cluster that KubeRay 1.7 makes of a RayService (pods, Services), and decides when a change replaces it;
places the initial replicas of a Serve configuration in it, and works out how many workers its autoscaler adds. Pure.

Of KubeRay's additions to the pod templates, this has what a scheduler or an admission controller sees: labels, the workers' init
container, the autoscaler beside the head and its ServiceAccount, restart policies. Commands, probes, Ray's own variables and
emptyDirs are left out, as nothing here would notice them. Names are the same in every run.

Places follow Ray's own arithmetic: a pod has the CPUs, GPUs and custom resources of its start parameters, or else of its limits;
a replica takes what its actor requests. Placement groups, memory of actors and growth under load are not modelled.

Sources: KubeRay 1.7.0 (pod and service builders, RayService and RayCluster controllers, start parameters derived from limits),
Ray 2.52.1 (``serve.schema``, autoscaler).
"""

import copy
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from math import ceil
from typing import Any

from eks_inference.place.nodes import amount
from eks_inference.serving.ray_serve.plan import HEAD_PORTS, NODE_TYPE_LABEL
from eks_inference_tools.placing.provisioning import Amounts, add, covers
from eks_inference_tools.reading.live_objects import name_of
from eks_inference_tools.reading.object_kinds import (
    RAY_CLUSTER_LABEL,
    RAY_GROUP_LABEL,
    RAY_HEAD_GROUP,
    RAY_SERVE_LABEL,
    generated_services,
    serve_deployments,
)
from eks_inference_tools.simulate.control_plane.kubernetes_api import Object
from eks_inference_tools.simulate.stand_ins.loop import owned, suffix
from stackgraph.graph.values import at, items, table, text

_IDENTIFIER_LABEL = "ray.io/identifier"
_APPLICATION_LABEL = "app.kubernetes.io/name"
_SERVICE_NAME_LABEL = "ray.io/originated-from-cr-name"
_SERVICE_KIND_LABEL = "ray.io/originated-from-crd"
MADE_BY = {_APPLICATION_LABEL: "kuberay", "app.kubernetes.io/created-by": "kuberay-operator"}

_INIT_REQUESTS = {"cpu": "200m", "memory": "256Mi"}
_AUTOSCALER_REQUESTS = {"cpu": "500m", "memory": "512Mi"}
_UNBOUNDED = 1 << 31  # replicas of a group without maxReplicas
_NAME_LENGTH = 50  # of a pod's name without its suffix


@dataclass(frozen=True, eq=False)
class Deployment:
    """The initial replicas of a deployment, and what each of them takes."""

    name: str
    replicas: int
    needs: Amounts


@dataclass(frozen=True)
class Growth:
    """A worker group that may grow by ``spare`` replicas, each of ``hosts`` pods that have ``room``."""

    name: str
    room: Amounts
    spare: int
    hosts: int


def applications_in(ray_service: Mapping[str, Any]) -> dict[str, tuple[Deployment, ...]]:
    """Returns the deployments of a RayService by Serve application."""
    return {name: tuple(map(_deployment, deployments)) for name, deployments in serve_deployments(ray_service).items()}


def _deployment(config: Any) -> Deployment:
    replicas = at(config, "num_replicas")
    if (scaling := at(config, "autoscaling_config")) is not None:
        replicas = next((n for key in ("initial_replicas", "min_replicas") if (n := at(scaling, key)) is not None), 1)
    options = table(at(config, "ray_actor_options"))
    needs = {"CPU": options.get("num_cpus", 1), "GPU": options.get("num_gpus", 0), **table(options.get("resources"))}
    return Deployment(
        text(at(config, "name")),
        replicas if isinstance(replicas, int) else 1,  # auto
        {resource: Decimal(str(number)) for resource, number in needs.items() if number},
    )


def room_of(group: Mapping[str, Any]) -> dict[str, Decimal]:
    """Returns the resources that Ray assigns to a pod of a head or worker group."""
    parameters = table(group.get("rayStartParams"))
    resources = table(at(items(at(group, "template", "spec", "containers"))[0], "resources"))
    limits = {**table(resources.get("requests")), **table(resources.get("limits"))}
    custom = json.loads(text(parameters.get("resources")).strip("'\"` ") or "{}")  # quoted for a shell
    return {
        "CPU": Decimal(str(parameters.get("num-cpus", ceil(amount(str(limits.get("cpu", "0"))))))),
        "GPU": Decimal(str(parameters.get("num-gpus", limits.get("nvidia.com/gpu", "0")))),
        "neuron_cores": Decimal(str(limits.get("aws.amazon.com/neuroncore", "0"))),
        **{name: Decimal(str(number)) for name, number in custom.items()},
    }


def placement(
    deployments: Iterable[Deployment], rooms: Iterable[Amounts], groups: Sequence[Growth] = ()
) -> tuple[dict[Deployment, int], dict[str, int]]:
    """Places every replica into the first room that holds it, and lets Ray's autoscaler grow ``groups`` if none does.

    Returns how many replicas of each deployment have a place, and how many replicas each group gains.
    """
    free = [dict(room) for room in rooms]
    counts: dict[Deployment, int] = {}
    added = {group.name: 0 for group in groups}
    for deployment in deployments:
        counts[deployment] = 0
        for _ in range(deployment.replicas):
            room = next((one for one in free if covers(one, deployment.needs)), None)
            if room is None:
                group = next((one for one in groups if added[one.name] < one.spare and covers(one.room, deployment.needs)), None)
                if group is None:
                    break
                added[group.name] += 1
                free += [room := dict(group.room), *(dict(group.room) for _ in range(group.hosts - 1))]
            add(room, deployment.needs, -1)
            counts[deployment] += 1
    return counts, added


@dataclass(frozen=True)
class RayCluster:
    """A Ray cluster of a RayService. ``config`` is the ``rayClusterConfig`` from which the cluster was created."""

    service: Object
    name: str
    config: Mapping[str, Any]

    @property
    def scales(self) -> bool:
        return self.config.get("enableInTreeAutoscaling") is True

    @property
    def head(self) -> Mapping[str, Any]:
        return table(self.config.get("headGroupSpec"))

    @property
    def groups(self) -> list[Mapping[str, Any]]:
        return [table(group) for group in items(at(self.config, "workerGroupSpecs"))]


def wanted_cluster(ray_service: Object) -> RayCluster:
    """Returns the cluster that a RayService asks for, with the name it would get now."""
    name, generation = ray_service["metadata"]["name"], ray_service["metadata"].get("generation", 1)
    return RayCluster(ray_service, f"{name}-{suffix(name, generation)}", table(at(ray_service, "spec", "rayClusterConfig")))


# -- pods ------------------------------------------------------------------------------------------------------------------------


def cluster_pods(cluster: RayCluster) -> list[Object]:
    """Returns the pods of a cluster, head first."""
    counts = worker_counts(cluster)
    workers = [_worker(cluster, group, n) for group in cluster.groups for n in range(counts[_name(group)])]
    return [_head(cluster), *workers]


def worker_counts(cluster: RayCluster) -> dict[str, int]:
    """Returns the number of pods of each worker group.

    Ray's autoscaler, if enabled, adds replicas until all initial Serve replicas have a place. It is assumed to have done so from
    the start, and never to remove any.
    """
    replicas = {_name(group): _replicas(group) for group in cluster.groups}
    if cluster.scales:
        rooms = [room_of(cluster.head)]
        growths = []
        for group in cluster.groups:
            name, room, hosts = _name(group), room_of(group), _hosts(group)
            rooms += [room] * (replicas[name] * hosts)
            if group.get("suspend") is not True:
                growths.append(Growth(name, room, group.get("maxReplicas", _UNBOUNDED) - replicas[name], hosts))
        applications = applications_in(cluster.service).values()
        for name, added in placement([one for deployments in applications for one in deployments], rooms, growths)[1].items():
            replicas[name] += added
    return {_name(group): replicas[_name(group)] * _hosts(group) for group in cluster.groups}


def _replicas(group: Mapping[str, Any]) -> int:
    if group.get("suspend") is True:
        return 0
    least, most = group.get("minReplicas", 0), group.get("maxReplicas", _UNBOUNDED)
    return max(least, min(group.get("replicas", 0), most))


def _hosts(group: Mapping[str, Any]) -> int:
    return max(group.get("numOfHosts", 1), 1)


def _name(group: Mapping[str, Any]) -> str:
    return text(group.get("groupName"))


def _head(cluster: RayCluster) -> Object:
    pod = _pod(cluster, cluster.head, "head", RAY_HEAD_GROUP, 0)
    if cluster.scales:
        pod["spec"]["serviceAccountName"] = head_account(cluster)
        pod["spec"]["containers"].append(_autoscaler(cluster, pod["spec"]["containers"][0]))
    return pod


def _worker(cluster: RayCluster, group: Mapping[str, Any], ordinal: int) -> Object:
    pod = _pod(cluster, group, "worker", _name(group), ordinal)
    ray = pod["spec"]["containers"][0]
    # Waits for the head. It copies the fields of the Ray container that admission controllers check.
    kept = ("image", "imagePullPolicy", "securityContext", "env", "volumeMounts")
    copied = {key: copy.deepcopy(ray[key]) for key in kept if key in ray}
    wait = {"name": "wait-gcs-ready", **copied, "resources": _guaranteed(_INIT_REQUESTS)}
    pod["spec"]["initContainers"] = [*(pod["spec"].get("initContainers") or ()), wait]
    return pod


def _pod(cluster: RayCluster, group: Mapping[str, Any], node_type: str, group_name: str, ordinal: int) -> Object:
    template = copy.deepcopy(dict(table(group.get("template"))))
    prefix = cluster.name if node_type == "head" else f"{cluster.name}-{group_name}"
    labels = {
        "ray.io/is-ray-node": "yes",
        _IDENTIFIER_LABEL: f"{cluster.name}-{node_type}",
        **MADE_BY,
        **table(at(template, "metadata", "labels")),
        **table(group.get("labels")),
        RAY_CLUSTER_LABEL: cluster.name,
        NODE_TYPE_LABEL: node_type,
        RAY_GROUP_LABEL: group_name,
        # KubeRay sets the head's label once the head answers.
        RAY_SERVE_LABEL: str(node_type == "worker").lower(),
    }
    name = f"{prefix[:_NAME_LENGTH]}-{node_type}-{suffix(cluster.name, group_name, ordinal)}".lower()
    pod = owned(cluster.service, "v1", "Pod", name, labels, spec=template["spec"])
    pod["metadata"]["annotations"] = dict(table(at(template, "metadata", "annotations")))
    # The second version of Ray's autoscaler replaces pods instead of restarting them.
    if cluster.scales and at(cluster.config, "autoscalerOptions", "version") == "v2":
        pod["spec"]["restartPolicy"] = "Never"
    return pod


def _autoscaler(cluster: RayCluster, ray: Mapping[str, Any]) -> Object:
    options = table(cluster.config.get("autoscalerOptions"))
    kept = ("env", "envFrom", "volumeMounts", "securityContext", "imagePullPolicy")
    return {
        "name": "autoscaler",
        "image": options.get("image") or ray["image"],
        "resources": options.get("resources") or _guaranteed(_AUTOSCALER_REQUESTS),
        **{key: copy.deepcopy(options[key]) for key in kept if key in options},
    }


def _guaranteed(resources: Mapping[str, str]) -> Object:
    return {"requests": dict(resources), "limits": dict(resources)}


def own_account(cluster: RayCluster) -> str:
    """Returns the name of the ServiceAccount that KubeRay creates for the autoscaler."""
    name = cluster.name[-_NAME_LENGTH:]
    return name if name[0].isalpha() else f"r{name[1:]}"


def head_account(cluster: RayCluster) -> str:
    """Returns the ServiceAccount of a head with an autoscaler: the template's, or KubeRay's."""
    return text(at(cluster.head, "template", "spec", "serviceAccountName")) or own_account(cluster)


# -- services --------------------------------------------------------------------------------------------------------------------


def head_service_of(cluster: RayCluster) -> Object:
    """Returns the Service by which the workers of this cluster find their head."""
    application = at(cluster.head, "template", "metadata", "labels", _APPLICATION_LABEL)
    selector = {**_head_selector(cluster), **({_APPLICATION_LABEL: application} if application else {})}
    spec = _head_service_spec(cluster, selector)
    return owned(cluster.service, "v1", "Service", f"{cluster.name}-head-svc", selector, spec=spec)


def generated_services_of(cluster: RayCluster) -> list[Object]:
    """Returns the Services of the RayService while they lead to this cluster: its head, and the pods that serve."""
    service = name_of(cluster.service)
    head, serve = generated_services(service)
    origin = {_SERVICE_NAME_LABEL: service, _SERVICE_KIND_LABEL: "RayService"}
    head_labels = {**origin, NODE_TYPE_LABEL: "head", _IDENTIFIER_LABEL: f"{service}-head"}
    serve_spec = {
        "selector": {RAY_CLUSTER_LABEL: cluster.name, RAY_SERVE_LABEL: "true"},
        "ports": [port for port in _head_ports(cluster) if port["name"] == "serve" or port["name"].startswith("serve-")],
        **_service_type(cluster),
    }
    head_spec = _head_service_spec(cluster, _head_selector(cluster))
    return [
        owned(cluster.service, "v1", "Service", head, head_labels, spec=head_spec),
        owned(cluster.service, "v1", "Service", serve, {**origin, RAY_SERVE_LABEL: f"{service}-serve"}, spec=serve_spec),
    ]


def _head_selector(cluster: RayCluster) -> dict[str, str]:
    return {RAY_CLUSTER_LABEL: cluster.name, NODE_TYPE_LABEL: "head", _IDENTIFIER_LABEL: f"{cluster.name}-head", **MADE_BY}


def _service_type(cluster: RayCluster) -> dict[str, str]:
    type_ = text(at(cluster.head, "serviceType"))
    return {"type": type_} if type_ else {}


def _head_service_spec(cluster: RayCluster, selector: Mapping[str, str]) -> Object:
    headless = _service_type(cluster).get("type", "ClusterIP") == "ClusterIP"
    return {
        "selector": selector,
        "ports": [{**port, "appProtocol": "tcp"} for port in _head_ports(cluster)],
        **_service_type(cluster),
        **({"clusterIP": "None", "publishNotReadyAddresses": True} if headless else {}),
    }


def _head_ports(cluster: RayCluster) -> list[Object]:
    container = items(at(cluster.head, "template", "spec", "containers"))[0]
    given = {
        text(at(port, "name")) or f"{at(port, 'containerPort')}-port": at(port, "containerPort")
        for port in items(at(container, "ports"))
    }
    ports = given or dict(HEAD_PORTS)
    ports.setdefault("metrics", HEAD_PORTS["metrics"])
    return [{"name": name, "port": number} for name, number in sorted(ports.items())]


# -- changes ---------------------------------------------------------------------------------------------------------------------


def clusters_after(
    ray_service: Object, active: RayCluster | None, pending: RayCluster | None
) -> tuple[RayCluster | None, RayCluster | None]:
    """Returns the active and the pending cluster that a RayService should have, given those it has.

    A changed configuration makes a new pending cluster, with three exceptions: KubeRay ignores some fields (numbers of workers,
    tolerations), adds appended worker groups in place, and makes no new cluster if the upgrade strategy is None. So a change of
    only the numbers of workers has no effect.
    """
    wanted = wanted_cluster(ray_service)
    newest = pending or active
    if newest is None:
        return None, wanted
    if _decisive(newest.config) == _decisive(wanted.config):
        return active, pending
    if _decisive(newest.config) == _decisive(wanted.config, groups=len(newest.groups)):
        extended = RayCluster(ray_service, newest.name, wanted.config)
        return (active, extended) if pending else (extended, None)
    if at(ray_service, "spec", "upgradeStrategy", "type") not in (None, "NewCluster"):
        return active, pending
    return active, wanted


def _decisive(config: Mapping[str, Any], groups: int | None = None) -> str:
    """Returns the part of a configuration whose change makes a new cluster, as JSON; optionally of its first groups only."""
    found = _without(copy.deepcopy(config), "upgradeStrategy", "suspend")
    specs = [_without(group, "replicas", "minReplicas", "maxReplicas") for group in items(found.get("workerGroupSpecs"))][:groups]
    for group in specs:
        group["scaleStrategy"] = _without(group.get("scaleStrategy"), "workersToDelete")
    found["workerGroupSpecs"] = specs
    for group in (found.get("headGroupSpec"), *specs):
        pod = at(group, "template", "spec")
        if isinstance(pod, dict):
            pod.pop("tolerations", None)
            pod.pop("schedulingGates", None)
    return json.dumps(found, sort_keys=True)


def _without(value: Any, *keys: str) -> Object:
    return {key: item for key, item in table(value).items() if key not in keys}
