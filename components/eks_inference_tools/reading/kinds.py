"""Kinds of Kubernetes objects that the tools read, and the names of their resources in kubectl."""

from collections.abc import Mapping

DAEMON_SETS = "daemonsets.apps"
DEPLOYMENTS = "deployments.apps"
ENDPOINT_SLICES = "endpointslices.discovery.k8s.io"
INGRESSES = "ingresses.networking.k8s.io"
JOBS = "jobs.batch"
LEADER_WORKER_SETS = "leaderworkersets.leaderworkerset.x-k8s.io"
NAMESPACES = "namespaces"
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
