"""Kinds of Kubernetes objects that the tools read, and the names, labels and owners by which they are known. Pure."""

from collections.abc import Mapping
from typing import Any

import yaml

from stackgraph.graph.document import Resource
from stackgraph.graph.values import at, items, joined, table, text

BUDGETS = "poddisruptionbudgets.policy"
DAEMON_SETS = "daemonsets.apps"
DEPLOYMENTS = "deployments.apps"
ENDPOINT_SLICES = "endpointslices.discovery.k8s.io"
INGRESSES = "ingresses.networking.k8s.io"
JOBS = "jobs.batch"
LEADER_WORKER_SETS = "leaderworkersets.leaderworkerset.x-k8s.io"
NAMESPACES = "namespaces"
AUTOSCALERS = "horizontalpodautoscalers.autoscaling"
NODES = "nodes"
NODE_CLASSES = "ec2nodeclasses.karpenter.k8s.aws"
NODE_POOLS = "nodepools.karpenter.sh"
PODS = "pods"
REPLICA_SETS = "replicasets.apps"
RAY_SERVICES = "rayservices.ray.io"
SERVICES = "services"
STATEFUL_SETS = "statefulsets.apps"
STORAGE_CLASSES = "storageclasses.storage.k8s.io"
VOLUMES = "persistentvolumes"
VOLUME_CLAIMS = "persistentvolumeclaims"

CHECKED: Mapping[tuple[str, str], str] = {
    ("", "Namespace"): NAMESPACES,
    ("", "PersistentVolumeClaim"): VOLUME_CLAIMS,
    ("", "Service"): SERVICES,
    ("apps", "DaemonSet"): DAEMON_SETS,
    ("apps", "Deployment"): DEPLOYMENTS,
    ("apps", "StatefulSet"): STATEFUL_SETS,
    ("batch", "Job"): JOBS,
    ("karpenter.k8s.aws", "EC2NodeClass"): NODE_CLASSES,
    ("karpenter.sh", "NodePool"): NODE_POOLS,
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): LEADER_WORKER_SETS,
    ("ray.io", "RayService"): RAY_SERVICES,
    ("storage.k8s.io", "StorageClass"): STORAGE_CLASSES,
}
"""By API group and kind: the resources, as kubectl names them, of objects whose state is checked."""

WORKLOADS = (DAEMON_SETS, DEPLOYMENTS, JOBS, LEADER_WORKER_SETS, STATEFUL_SETS)

KINDS = {resource: kind for (_, kind), resource in CHECKED.items()}


def subject_of(resource: str, namespace: str, name: str) -> str:
    """The heading of an object: ``DaemonSet kube-system/neuron-device-plugin``."""
    return f"{KINDS[resource]} {namespace}/{name}" if namespace else f"{KINDS[resource]} {name}"


def group_kind(resource: Resource) -> tuple[str, str]:
    """API group and kind: ``("apps", "Deployment")`` for ``kubernetes:apps/v1:Deployment``."""
    _, _, rest = resource.type.partition(":")
    module, _, kind = rest.rpartition(":")
    return module.partition("/")[0], kind


def name_of(resource: Resource) -> str:
    """The object's name, or the logical name of the resource where the program leaves the name to Pulumi."""
    return text(at(resource.inputs, "metadata", "name")) or text(resource.name)


def namespace_of(resource: Resource) -> str:
    """The object's namespace. Empty where the program leaves it out."""
    return text(at(resource.inputs, "metadata", "namespace"))


def title(kind: str, namespace: str, name: str, part: str = "") -> str:
    """``Deployment demo/server`` or ``RayService demo/llama (head)``."""
    return joined(kind, joined(namespace, name, by="/"), f"({part})" if part else "")


def title_of(resource: Resource) -> str:
    """The title of a resource: ``Service demo/server``."""
    return title(group_kind(resource)[1], namespace_of(resource), name_of(resource))


def nodes_of(pool: Resource) -> str:
    """``nodes of gpu``: a NodePool is called as in the cluster."""
    return f"nodes of {name_of(pool)}"


EBS_DRIVERS = ("ebs.csi.aws.com", "ebs.csi.eks.amazonaws.com")
"""Provisioners that make EBS volumes: the driver of the add-on, and that of EKS Auto Mode."""

DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"


def is_default_class(manifest: Mapping[str, Any]) -> bool:
    """Whether claims without a class get volumes of this one."""
    return table(at(manifest, "metadata", "annotations")).get(DEFAULT_CLASS) in ("true", True)


# Labels that the LeaderWorkerSet controller sets on pods. Source: LeaderWorkerSet v0.10.0 (API).

LWS_DOMAIN = "leaderworkerset.sigs.k8s.io"
LWS_NAME_LABEL = f"{LWS_DOMAIN}/name"
LWS_GROUP_INDEX_LABEL = f"{LWS_DOMAIN}/group-index"
LWS_GROUP_KEY_LABEL = f"{LWS_DOMAIN}/group-key"
LWS_WORKER_INDEX_LABEL = f"{LWS_DOMAIN}/worker-index"
LWS_REVISION_LABEL = f"{LWS_DOMAIN}/template-revision-hash"

# What KubeRay generates, and what a RayService says of Serve. Sources: KubeRay 1.7.0; Ray 2.52.1, ``serve.schema``.

RAY_CLUSTER_LABEL = "ray.io/cluster"
RAY_GROUP_LABEL = "ray.io/group"
RAY_SERVE_LABEL = "ray.io/serve"
RAY_HEAD_GROUP = "headgroup"


def generated_services(name: str) -> tuple[str, ...]:
    """The Services that KubeRay creates for a RayService: for its head, and for the pods that serve."""
    return f"{name}-head-svc", f"{name}-serve-svc"


def serve_applications(ray_service: Mapping[str, Any]) -> tuple[Any, ...]:
    """The Serve applications of a RayService. Empty when its configuration is unknown or not YAML."""
    config = at(ray_service, "spec", "serveConfigV2")
    try:
        document = yaml.safe_load(config) if isinstance(config, str) else None
    except yaml.YAMLError:
        return ()
    return tuple(items(at(document, "applications")))


def serve_deployments(ray_service: Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
    """The deployments of each Serve application of a RayService, as ``serve_applications``."""
    return {
        text(at(application, "name")) or "default": tuple(items(at(application, "deployments")))
        for application in serve_applications(ray_service)
    }


def replicas(ray_service: Mapping[str, Any]) -> dict[str, int]:
    """The most replicas of each Serve deployment of a RayService, where they are known."""
    each = [one for found in serve_deployments(ray_service).values() for one in found]
    most = {text(at(one, "name")): at(one, "autoscaling_config", "max_replicas") or at(one, "num_replicas") for one in each}
    return {name: number for name, number in most.items() if isinstance(number, int)}
