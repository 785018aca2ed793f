"""Derives from a stack's graph what the API of a cluster would return once the stack is deployed and healthy.

It follows documented formats (Kubernetes 1.35 API, Karpenter 1.14, KubeRay 1.7, Helm 3) and was not recorded from a live cluster.
It is independent of the code that is tested with it.
"""

import copy
import json
from collections.abc import Iterator
from typing import Any

import yaml

from conftest import ROOT
from eks_inference.catalog.instances import instance_type
from eks_inference_tools.verify.observed import Observed, ReleaseRecord
from stackgraph.graph.document import Graph

DATA = ROOT / "tests" / "data" / "verify"
# The workloads of charts and add-ons in the shipped stacks, with their upstream names.
CHART_WORKLOADS = {
    "karpenter": [("Deployment", "karpenter")],
    "karpenter-crd": [],
    "kuberay-operator": [("Deployment", "kuberay-operator")],
    "kube-prometheus-stack": [
        ("Deployment", "prometheus-operator"),
        ("Deployment", "grafana"),
        ("DaemonSet", "prometheus-node-exporter"),
    ],
}
ADDON_WORKLOADS = {
    "amazon-cloudwatch-observability": [
        ("amazon-cloudwatch", "Deployment", "amazon-cloudwatch-observability-controller-manager"),
        ("amazon-cloudwatch", "DaemonSet", "cloudwatch-agent"),
    ],
    "aws-ebs-csi-driver": [("kube-system", "Deployment", "ebs-csi-controller"), ("kube-system", "DaemonSet", "ebs-csi-node")],
    "coredns": [("kube-system", "Deployment", "coredns")],
    "eks-pod-identity-agent": [("kube-system", "DaemonSet", "eks-pod-identity-agent")],
    "kube-proxy": [("kube-system", "DaemonSet", "kube-proxy")],
    "metrics-server": [("kube-system", "Deployment", "metrics-server")],
    "vpc-cni": [("kube-system", "DaemonSet", "aws-node")],
}
PLURALS = {
    "DaemonSet": "daemonsets.apps",
    "Deployment": "deployments.apps",
    "EC2NodeClass": "ec2nodeclasses.karpenter.k8s.aws",
    "Job": "jobs.batch",
    "LeaderWorkerSet": "leaderworkersets.leaderworkerset.x-k8s.io",
    "Namespace": "namespaces",
    "NodePool": "nodepools.karpenter.sh",
    "PersistentVolumeClaim": "persistentvolumeclaims",
    "RayService": "rayservices.ray.io",
    "Service": "services",
    "StatefulSet": "statefulsets.apps",
    "StorageClass": "storageclasses.storage.k8s.io",
}


def vector(name: str) -> Any:
    """Reads a hand-written API object, or part of one, from ``data/verify``."""
    return json.loads((DATA / f"{name}.json").read_text())


class HealthyCluster:
    """Objects by resource, as kubectl names resources. Tests change one thing in it."""

    def __init__(self, graph: Graph) -> None:
        self.name = next((r.inputs["name"] for r in graph.resources if r.type == "eks:index:Cluster"), "")
        minor = next((r.inputs["version"] for r in graph.resources if r.type == "eks:index:Cluster"), "1.35")
        self.version = f"v{minor}.6-eks-3025e55"
        self.objects: dict[str, list[dict[str, Any]]] = {"nodes": []}
        self.releases: list[str] = []
        self._addresses = (f"10.1.{n // 250}.{n % 250 + 1}" for n in range(10_000))
        self._nodes(graph)
        for resource in graph.resources:
            inputs = resource.inputs
            if resource.type == "kubernetes:helm.sh/v3:Release":
                self._release(inputs)
            elif resource.type == "aws:eks/addon:Addon":
                for namespace, kind, name in ADDON_WORKLOADS.get(inputs["addonName"], ()):
                    self._workload(kind, namespace, name, {"metadata": {"name": name, "namespace": namespace}})
            elif resource.package == "kubernetes" and inputs.get("kind") in PLURALS:
                item = copy.deepcopy(dict(inputs))
                item["metadata"].setdefault("name", f"{resource.name}-1a2b3c4d")  # as Pulumi does
                self._object(item)
        for service in self.objects.get("services", []):
            self._endpoints(service)

    def state(self) -> dict[str, Any]:
        """Returns the state that the fake kubectl reads."""
        return {"server_version": self.version, "config": self.config(), "objects": self.objects, "releases": self.releases}

    def config(self) -> dict[str, Any]:
        """Returns the kubeconfig of ``aws eks update-kubeconfig --alias`` as ``kubectl config view -o json`` prints it."""
        text = (DATA / "kubeconfig.json").read_text()
        return json.loads(text.replace("CLUSTER", self.name))

    def find(self, plural: str, name: str) -> dict[str, Any]:
        (found,) = [item for item in self.objects[plural] if item["metadata"]["name"] == name]
        return found

    def remove(self, plural: str, name: str) -> None:
        self.objects[plural].remove(self.find(plural, name))

    def pods_of(self, namespace: str, **labels: str) -> list[dict[str, Any]]:
        wanted = labels.items()
        found = [p for p in self.objects["pods"] if p["metadata"]["namespace"] == namespace]
        return [pod for pod in found if wanted <= pod["metadata"]["labels"].items()]

    # -- nodes -------------------------------------------------------------------------------------------------------------------

    def _nodes(self, graph: Graph) -> None:
        """Adds the nodes of every managed group, and one for every instance type that pods select in a Karpenter pool."""
        for group in graph.of_type("aws:eks/nodeGroup:NodeGroup"):
            for _ in range(group.inputs["scalingConfig"]["desiredSize"]):
                self._node(group.inputs["instanceTypes"][0], group.inputs["labels"])
        selected = [table for r in graph.resources for table in _selectors(r.inputs) if "eks-inference/pool" in table]
        for pool in graph.of_type("kubernetes:karpenter.sh/v1:NodePool"):
            labels = pool.inputs["spec"]["template"]["metadata"]["labels"]
            types = {
                selector.get("node.kubernetes.io/instance-type")
                for selector in selected
                if selector["eks-inference/pool"] == labels["eks-inference/pool"]
            }
            for type_ in types:
                self._node(type_ or "m5.xlarge", {**labels, "karpenter.sh/nodepool": pool.inputs["metadata"]["name"]})

    def _node(self, type_: str, labels: dict[str, str]) -> None:
        shape = instance_type(type_)
        node = vector("node")
        name = f"ip-{next(self._addresses).replace('.', '-')}.us-west-2.compute.internal"
        node["metadata"]["name"] = name
        node["metadata"]["labels"] |= {**labels, "kubernetes.io/hostname": name, "node.kubernetes.io/instance-type": type_}
        if shape.accelerator == "neuron":
            offered = {
                "aws.amazon.com/neuron": str(shape.devices),
                "aws.amazon.com/neuroncore": str(shape.devices * shape.cores_per_device),
            }
            node["status"]["allocatable"] |= offered
            node["status"]["capacity"] |= offered
        self._add("nodes", node)

    def _nodes_of(self, kind_of_pod: dict[str, Any]) -> list[dict[str, Any]]:
        """Returns the nodes of a DaemonSet with this pod, by node selector and affinity."""
        affinity = kind_of_pod.get("affinity", {}).get("nodeAffinity", {})
        terms = affinity.get("requiredDuringSchedulingIgnoredDuringExecution", {}).get("nodeSelectorTerms", [{}])
        wanted = [e for e in terms[0].get("matchExpressions", []) if e["operator"] == "In"]
        selector = kind_of_pod.get("nodeSelector", {}).items()
        return [
            node
            for node in self.objects["nodes"]
            if selector <= node["metadata"]["labels"].items()
            and all(node["metadata"]["labels"].get(e["key"]) in e["values"] for e in wanted)
        ]

    # -- objects -----------------------------------------------------------------------------------------------------------------

    def _object(self, item: dict[str, Any]) -> None:
        kind, name = item["kind"], item["metadata"]["name"]
        namespace = item["metadata"].get("namespace", "default")
        if kind in ("DaemonSet", "Deployment", "Job", "StatefulSet"):
            self._workload(kind, namespace, name, item)
        elif kind == "RayService":
            self._ray_service(item)
        elif kind == "LeaderWorkerSet":
            self._leader_worker_set(item)
        else:
            if kind in ("NodePool", "EC2NodeClass"):
                item["metadata"]["generation"] = 1
                item["status"] = vector(kind.lower())["status"]
                if kind == "NodePool":
                    labels = [node["metadata"]["labels"] for node in self.objects["nodes"]]
                    item["status"]["nodes"] = sum(table.get("karpenter.sh/nodepool") == name for table in labels)
            elif kind == "PersistentVolumeClaim":
                size = item["spec"]["resources"]["requests"]["storage"]
                item["status"] = {"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": size}}
            elif kind == "Namespace":
                item["status"] = {"phase": "Active"}
            elif kind == "Service":
                item["status"] = {"loadBalancer": {}}
            self._add(PLURALS[kind], item)

    def _workload(self, kind: str, namespace: str, name: str, item: dict[str, Any]) -> None:
        spec = item.setdefault("spec", {})
        template = spec.setdefault("template", {"spec": {"containers": [{"name": "main", "image": "main"}]}})
        labels = {"app.kubernetes.io/name": name}
        if kind == "Job":
            labels = {"batch.kubernetes.io/job-name": name, "batch.kubernetes.io/controller-uid": f"uid-{name}"}
            spec["selector"] = {"matchLabels": {"batch.kubernetes.io/controller-uid": f"uid-{name}"}}
        elif "selector" not in spec:
            spec["selector"] = {"matchLabels": labels}
        labels = {**labels, **spec["selector"]["matchLabels"], **template.get("metadata", {}).get("labels", {})}
        count = len(self._nodes_of(template["spec"])) if kind == "DaemonSet" else spec.get("replicas", 1)
        if kind in ("Deployment", "StatefulSet"):
            spec.setdefault("replicas", 1)
        item["metadata"]["generation"] = 1
        item["status"] = _counts(vector(kind.lower())["status"], count)
        if kind == "Job" and spec.get("suspend"):
            item["status"] = {"conditions": [{"type": "Suspended", "status": "True", "reason": "JobSuspended"}]}
            count = 0
        self._add(PLURALS[kind], item)
        for number in range(count):
            self._pod(namespace, f"{name}-{number}", labels, template, done=kind == "Job")

    def _pod(self, namespace: str, name: str, labels: dict[str, str], template: dict[str, Any], *, done: bool = False) -> None:
        pod = vector("pod-complete" if done else "pod")
        pod["metadata"] |= {"name": name, "namespace": namespace, "labels": labels}
        kept = ("name", "image", "env", "resources")
        containers = [{key: c[key] for key in kept if key in c} for c in template["spec"]["containers"]]
        pod["spec"] = copy.deepcopy({"containers": containers, "volumes": template["spec"].get("volumes", [])})
        (status,) = pod["status"]["containerStatuses"]
        pod["status"]["containerStatuses"] = [{**status, "name": c["name"]} for c in pod["spec"]["containers"]]
        pod["status"]["podIP"] = next(self._addresses)
        self._add("pods", pod)

    def _leader_worker_set(self, item: dict[str, Any]) -> None:
        """Adds the set and its pods: each group has a leader, ``<name>-<group>``, and workers, ``<name>-<group>-<number>``."""
        name, namespace, spec = item["metadata"]["name"], item["metadata"]["namespace"], item["spec"]
        item["metadata"]["generation"] = 1
        item["status"] = dict.fromkeys(("replicas", "readyReplicas", "updatedReplicas"), spec["replicas"])
        self._add("leaderworkersets.leaderworkerset.x-k8s.io", item)
        group = spec["leaderWorkerTemplate"]
        for number in range(spec["replicas"]):
            for worker in range(group["size"]):
                template = group["workerTemplate"] if worker else group.get("leaderTemplate", group["workerTemplate"])
                labels = {"leaderworkerset.sigs.k8s.io/name": name, **template.get("metadata", {}).get("labels", {})}
                self._pod(namespace, f"{name}-{number}{f'-{worker}' if worker else ''}", labels, template)

    def _ray_service(self, item: dict[str, Any]) -> None:
        name, namespace = item["metadata"]["name"], item["metadata"]["namespace"]
        status = vector("rayservice")["status"]
        cluster = f"{name}-abcde"
        active = status["activeServiceStatus"]
        active["rayClusterName"] = cluster
        healthy = next(iter(active["applicationStatuses"].values()))
        one = next(iter(healthy["serveDeploymentStatuses"].values()))
        active["applicationStatuses"] = {
            app["name"]: {"status": "RUNNING", "serveDeploymentStatuses": {d["name"]: one for d in app["deployments"]}}
            for app in yaml.safe_load(item["spec"]["serveConfigV2"])["applications"]
        }
        item["metadata"]["generation"] = 1
        item["status"] = status
        self._add("rayservices.ray.io", item)
        config = item["spec"]["rayClusterConfig"]
        groups = [("headgroup", "head", 1, config["headGroupSpec"])]
        groups += [(g["groupName"], "worker", g["replicas"], g) for g in config["workerGroupSpecs"]]
        for group, node_type, count, spec in groups:
            labels = {"ray.io/cluster": cluster, "ray.io/group": group, "ray.io/node-type": node_type, "ray.io/serve": "true"}
            labels |= spec["template"].get("metadata", {}).get("labels", {})
            for number in range(count):
                self._pod(namespace, f"{cluster}-{group}-{number}", labels, spec["template"])
        for suffix, selector in (
            ("head-svc", {"ray.io/cluster": cluster, "ray.io/node-type": "head"}),
            ("serve-svc", {"ray.io/cluster": cluster, "ray.io/serve": "true"}),
        ):
            service = {"kind": "Service", "metadata": {"name": f"{name}-{suffix}", "namespace": namespace}}
            self._object({**service, "spec": {"type": "ClusterIP", "selector": selector, "ports": [{"port": 8000}]}})

    def _release(self, inputs: Any) -> None:
        name, namespace, version = inputs["name"], inputs["namespace"], inputs["version"]
        chart = inputs["chart"].rpartition("/")[2]
        self.releases.append(f"{namespace}   sh.helm.release.v1.{name}.v1   helm.sh/release.v1   1     3h25m   deployed")
        for kind, workload in CHART_WORKLOADS.get(chart, [("Deployment", name)]):
            metadata = {
                "name": workload,
                "namespace": namespace,
                "labels": {"app.kubernetes.io/managed-by": "Helm", "helm.sh/chart": f"{chart}-{version}"},
                "annotations": {"meta.helm.sh/release-name": name, "meta.helm.sh/release-namespace": namespace},
            }
            self._workload(kind, namespace, workload, {"metadata": metadata})

    def _endpoints(self, service: dict[str, Any]) -> None:
        namespace, name = service["metadata"]["namespace"], service["metadata"]["name"]
        selected = self.pods_of(namespace, **service["spec"].get("selector", {"": ""}))
        pods = [pod for pod in selected if pod["status"]["phase"] == "Running"]
        if selected and not pods:
            return  # Kubernetes removes completed pods from the slices
        slice_ = vector("endpointslice")
        slice_["metadata"] |= {"name": f"{name}-x7k2p", "namespace": namespace, "labels": {"kubernetes.io/service-name": name}}
        (endpoint,) = slice_["endpoints"]
        slice_["endpoints"] = [
            {**endpoint, "addresses": [pod["status"]["podIP"]], "targetRef": {"kind": "Pod", "name": pod["metadata"]["name"]}}
            for pod in pods
        ]
        self._add("endpointslices.discovery.k8s.io", slice_)

    def _add(self, plural: str, item: dict[str, Any]) -> None:
        self.objects.setdefault(plural, []).append(item)


def _counts(status: dict[str, Any], count: int) -> dict[str, Any]:
    """Returns the status with the placeholder ``1`` replaced by the count."""
    return {key: count if value == 1 and key != "observedGeneration" else value for key, value in status.items()}


def _selectors(value: Any) -> Iterator[dict[str, str]]:
    if isinstance(value, dict):
        for key, item in value.items():
            if key == "nodeSelector" and isinstance(item, dict):
                yield item
            yield from _selectors(item)
    elif isinstance(value, list):
        for item in value:
            yield from _selectors(item)


def observed(cluster: HealthyCluster, **changes: Any) -> Observed:
    """Returns the cluster as the reader would read it."""
    releases = {}
    for line in cluster.releases:
        namespace, secret, *_, status = line.split()
        name, _, revision = secret.removeprefix("sh.helm.release.v1.").rpartition(".v")
        releases[(namespace, name)] = ReleaseRecord(status, int(revision))
    return Observed(**{"server_version": cluster.version, "objects": cluster.objects, "releases": releases, **changes})


SCHEDULER = "Deployment kube-system/my-scheduler"


def break_scheduler(cluster: HealthyCluster, pod_status: str) -> None:
    status = cluster.find("deployments.apps", "my-scheduler")["status"]
    status["availableReplicas"] = status["readyReplicas"] = 0
    (pod,) = cluster.pods_of("kube-system", **{"app.kubernetes.io/name": "my-scheduler"})
    pod["status"] = vector(pod_status)
