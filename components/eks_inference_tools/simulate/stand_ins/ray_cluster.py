"""A Ray cluster as KubeRay 1.7 makes it of a RayService: its pods, its Services, and when a change makes another cluster. Pure.

Of what KubeRay adds to the templates there is what a scheduler or an admission controller sees: labels, the init container of a
worker, the autoscaler beside the head and its ServiceAccount, restart policies. Left out, as nothing here would see it: commands,
probes, Ray's own variables, emptyDirs. Names repeat from run to run.

Sources: KubeRay 1.7.0 (pod and service builders, RayService and RayCluster controllers).
"""

import copy
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from eks_inference.serving.ray_serve.plan import HEAD_PORTS, NODE_TYPE_LABEL
from eks_inference_tools.reading.kuberay import CLUSTER_LABEL, GROUP_LABEL, HEAD_GROUP, SERVE_LABEL, generated_services
from eks_inference_tools.reading.live_objects import name_of
from eks_inference_tools.simulate.control_plane.api import Object
from eks_inference_tools.simulate.stand_ins.controllers import owner_reference, suffix
from eks_inference_tools.simulate.stand_ins.ray_serve import Growth, applications_in, grown, room_of
from stackgraph.graph.values import at, items, table, text

_IDENTIFIER_LABEL = "ray.io/identifier"
_APPLICATION_LABEL = "app.kubernetes.io/name"
_SERVICE_NAME_LABEL = "ray.io/originated-from-cr-name"
_SERVICE_KIND_LABEL = "ray.io/originated-from-crd"
MADE_BY = {_APPLICATION_LABEL: "kuberay", "app.kubernetes.io/created-by": "kuberay-operator"}

_INIT_REQUESTS = {"cpu": "200m", "memory": "256Mi"}
_AUTOSCALER_REQUESTS = {"cpu": "500m", "memory": "512Mi"}
_NAME_LENGTH = 50  # of what stands before the end of a pod's name


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
    """The pods that KubeRay makes of a RayService, head first."""
    return cluster_pods(wanted_cluster(ray_service))


def services_of(ray_service: Object) -> list[Object]:
    """The Services that KubeRay makes of a RayService whose Serve applications run: its head, and the pods that serve."""
    return generated_services_of(wanted_cluster(ray_service))


# -- pods ------------------------------------------------------------------------------------------------------------------------


def cluster_pods(cluster: RayCluster) -> list[Object]:
    """The head and the workers of a cluster."""
    counts = worker_counts(cluster)
    workers = [_worker(cluster, group, n) for group in cluster.groups for n in range(counts[_name(group)])]
    return [_head(cluster), *workers]


def worker_counts(cluster: RayCluster) -> dict[str, int]:
    """Pods of each worker group: its replicas within their bounds, and as many more as Ray's autoscaler adds, where it is on, so
    that the first Serve replicas have a place. It is taken to have done so from the start, and to remove none.
    """
    replicas = {_name(group): _replicas(group) for group in cluster.groups}
    if cluster.scales:
        rooms = [room_of(table(cluster.config.get("headGroupSpec")))]
        rooms += [room_of(group) for group in cluster.groups for _ in range(replicas[_name(group)] * _hosts(group))]
        growths = [
            Growth(_name(group), room_of(group), group.get("maxReplicas", 1 << 31) - replicas[_name(group)], _hosts(group))
            for group in cluster.groups
            if group.get("suspend") is not True
        ]
        applications = applications_in(cluster.service).values()
        added = grown([one for deployments in applications for one in deployments], rooms, growths)
        replicas = {name: count + added.get(name, 0) for name, count in replicas.items()}
    return {_name(group): replicas[_name(group)] * _hosts(group) for group in cluster.groups}


def _replicas(group: Mapping[str, Any]) -> int:
    if group.get("suspend") is True:
        return 0
    least, most = group.get("minReplicas", 0), group.get("maxReplicas", 1 << 31)
    return max(least, min(group.get("replicas", 0), most))


def _hosts(group: Mapping[str, Any]) -> int:
    return max(group.get("numOfHosts", 1), 1)


def _name(group: Mapping[str, Any]) -> str:
    return text(group.get("groupName"))


def _head(cluster: RayCluster) -> Object:
    pod = _pod(cluster, table(cluster.config.get("headGroupSpec")), "head", HEAD_GROUP, cluster.name, 0)
    if cluster.scales:
        pod["spec"]["serviceAccountName"] = head_account(cluster)
        pod["spec"]["containers"].append(_autoscaler(cluster, pod["spec"]["containers"][0]))
    return pod


def _worker(cluster: RayCluster, group: Mapping[str, Any], ordinal: int) -> Object:
    name = _name(group)
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
                **MADE_BY,
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
    return f"{name}-{node_type}"


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


def own_account(cluster: RayCluster) -> str:
    """The ServiceAccount that KubeRay makes for the autoscaler."""
    name = cluster.name[-_NAME_LENGTH:]
    return name if name[0].isalpha() else f"r{name[1:]}"


def head_account(cluster: RayCluster) -> str:
    """The ServiceAccount of a head with autoscaler: the template's, or KubeRay's."""
    return text(at(cluster.config, "headGroupSpec", "template", "spec", "serviceAccountName")) or own_account(cluster)


# -- services --------------------------------------------------------------------------------------------------------------------


def head_service_of(cluster: RayCluster) -> Object:
    """By which workers find their head; one of each cluster."""
    application = at(cluster.config, "headGroupSpec", "template", "metadata", "labels", _APPLICATION_LABEL)
    selector = {**_head_selector(cluster), **({_APPLICATION_LABEL: application} if application else {})}
    return _service(cluster, f"{cluster.name}-head-svc", selector, selector, _head_service_spec(cluster))


def generated_services_of(cluster: RayCluster) -> list[Object]:
    """The Services of the RayService, when they lead to this cluster."""
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
        **MADE_BY,
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


# -- changes ---------------------------------------------------------------------------------------------------------------------


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
        extended = RayCluster(ray_service, newest.name, wanted.config)
        return (active, extended) if pending else (extended, None)
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
