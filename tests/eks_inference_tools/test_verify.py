"""``eks-inference verify``: every check has a cluster that passes it and one that does not; kubectl is a stand-in on PATH."""

import copy
from functools import cache
from typing import Any

import pulumi
import pulumi_kubernetes as k8s
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import STACKS, recorded
from eks_inference.catalog.instances import instance_types
from eks_inference.place.placement import POOL_LABEL
from eks_inference_tools.reading.expected import ExpectedRelease, expected_of
from eks_inference_tools.reading.known_messages import runbook
from eks_inference_tools.verify.checks import judge
from eks_inference_tools.verify.observed import Check, Observed, ReleaseRecord, Unreadable, overall
from eks_inference_tools.verify.release_checks import _recorded
from eks_inference_tools.verify.workload_checks import _problem_of
from handles import existing_cluster
from healthy_cluster import SCHEDULER, HealthyCluster, break_scheduler, observed, vector
from stackgraph.graph.document import Graph
from stackgraph.recorder.recording import record


def checked(graph: Graph, cluster: HealthyCluster, **changes: Any) -> dict[str, Check]:
    """Every check by its subject."""
    checks = judge(expected_of(graph), observed(cluster, **changes))
    subjects = [check.subject for check in checks]
    assert len(subjects) == len(set(subjects)), "two checks of one subject"
    return {check.subject: check for check in checks}


def troubled(graph: Graph, cluster: HealthyCluster, **changes: Any) -> dict[str, Check]:
    """The checks that do not pass. Each tells what to expect and how to look further."""
    found = {subject: check for subject, check in checked(graph, cluster, **changes).items() if check.verdict != "ok"}
    for check in found.values():
        assert check.finding.found
        if check.verdict != "unknown":
            assert check.finding.expected, check
            assert check.finding.next, check
            assert runbook(f"{check.subject}: {check.finding.found}") != runbook(), f"no page of the runbook: {check}"
    return found


@pytest.fixture
def cluster(llama3: Graph) -> HealthyCluster:
    return HealthyCluster(llama3)


def only(found: dict[str, Check], subject: str) -> Check:
    assert list(found) == [subject]
    return found[subject]


# -- a healthy cluster, and one thing after the other gone -----------------------------------------------------------------------


@pytest.mark.parametrize("stack", STACKS)
def test_a_healthy_cluster_passes_every_check(stack):
    assert troubled(recorded(stack), HealthyCluster(recorded(stack))) == {}


@pytest.mark.parametrize("stack", STACKS)
def test_every_object_with_a_state_has_a_check_of_its_own(stack):
    graph = recorded(stack)
    checks = checked(graph, HealthyCluster(graph))
    stateful = (
        "DaemonSet",
        "Deployment",
        "Job",
        "Namespace",
        "NodePool",
        "EC2NodeClass",
        "LeaderWorkerSet",
        "RayService",
        "Service",
        "StorageClass",
    )
    for resource in graph.resources:
        if resource.package == "kubernetes" and resource.inputs.get("kind") in (
            *stateful,
            "PersistentVolumeClaim",
            "StatefulSet",
        ):
            metadata = resource.inputs["metadata"]
            name = f"{metadata['namespace']}/{metadata['name']}" if "namespace" in metadata else metadata["name"]
            assert f"{resource.inputs['kind']} {name}" in checks
        elif resource.type == "kubernetes:helm.sh/v3:Release":
            assert f"Helm release {resource.inputs['namespace']}/{resource.inputs['name']}" in checks
        elif resource.type == "aws:eks/nodeGroup:NodeGroup":
            assert f"nodes of pool {resource.inputs['labels'][POOL_LABEL]}" in checks


def promised(graph: Graph, cluster: HealthyCluster) -> list[tuple[str, str, str]]:
    """Everything (resource, namespace, name) that the stack promises to be there.

    Not promised are nodes that Karpenter starts as pods need them, and pods, whose owners are; what a chart is made of only the
    cluster knows.
    """
    found = []
    for resource, items in cluster.objects.items():
        for item in items:
            metadata = item["metadata"]
            if resource == "pods" and "ray.io/group" not in metadata["labels"]:
                continue
            if resource == "nodes" and "karpenter.sh/nodepool" in metadata["labels"]:
                continue
            if "meta.helm.sh/release-name" in metadata.get("annotations", {}):
                continue
            found.append((resource, metadata.get("namespace", ""), metadata["name"]))
    return found


def subjects_about(resource: str, namespace: str, name: str, cluster: HealthyCluster) -> set[str]:
    """The checks that should notice that the object is gone or unwell."""
    (item,) = [
        i for i in cluster.objects[resource] if (i["metadata"].get("namespace", ""), i["metadata"]["name"]) == (namespace, name)
    ]
    labels = item["metadata"].get("labels", {})
    if resource == "nodes":
        return {f"nodes of pool {labels[POOL_LABEL]}"}
    if resource == "pods":
        service = next(ray["metadata"]["name"] for ray in cluster.objects["rayservices.ray.io"])
        part = "head" if labels["ray.io/group"] == "headgroup" else f"workers of {labels['ray.io/group']}"
        return {f"{namespace}/{service} {part}"}
    if resource == "endpointslices.discovery.k8s.io":
        return {f"Service {namespace}/{labels['kubernetes.io/service-name']}"}
    addons = {
        "amazon-cloudwatch-observability-controller-manager": "amazon-cloudwatch-observability",
        "aws-node": "vpc-cni",
        "cloudwatch-agent": "amazon-cloudwatch-observability",
        "coredns": "coredns",
        "ebs-csi-controller": "aws-ebs-csi-driver",
        "ebs-csi-node": "aws-ebs-csi-driver",
        "eks-pod-identity-agent": "eks-pod-identity-agent",
        "kube-proxy": "kube-proxy",
        "metrics-server": "metrics-server",
    }
    if name in addons and resource in ("daemonsets.apps", "deployments.apps"):
        return {f"add-on {addons[name]}"}
    kinds = {
        "daemonsets.apps": "DaemonSet",
        "deployments.apps": "Deployment",
        "ec2nodeclasses.karpenter.k8s.aws": "EC2NodeClass",
        "jobs.batch": "Job",
        "leaderworkersets.leaderworkerset.x-k8s.io": "LeaderWorkerSet",
        "namespaces": "Namespace",
        "nodepools.karpenter.sh": "NodePool",
        "persistentvolumeclaims": "PersistentVolumeClaim",
        "rayservices.ray.io": "RayService",
        "services": "Service",
        "statefulsets.apps": "StatefulSet",
        "storageclasses.storage.k8s.io": "StorageClass",
    }
    own = f"{kinds[resource]} {namespace}/{name}" if namespace else f"{kinds[resource]} {name}"
    return {own, "default StorageClass"} if resource == "storageclasses.storage.k8s.io" else {own}


def remove(cluster: HealthyCluster, resource: str, namespace: str, name: str) -> None:
    cluster.objects[resource] = [
        item
        for item in cluster.objects[resource]
        if (item["metadata"].get("namespace", ""), item["metadata"]["name"]) != (namespace, name)
    ]


@pytest.mark.thorough
@pytest.mark.parametrize("stack", STACKS)
def test_each_object_that_is_gone_is_noticed_by_the_checks_about_it_and_no_other(stack):
    graph = recorded(stack)
    healthy = HealthyCluster(graph)
    for gone in promised(graph, healthy):
        broken = HealthyCluster(graph)
        remove(broken, *gone)
        about = subjects_about(*gone, healthy)
        if gone[0] == "pods":
            # Fewer pods than there were, but as many as there must be: only the least number is promised.
            (subject,) = about
            assert checked(graph, broken)[subject].finding.found != checked(graph, healthy)[subject].finding.found
            assert set(troubled(graph, broken)) <= about, gone
        else:
            assert set(troubled(graph, broken)) == about, gone


def ail(resource: str, item: dict[str, Any], cluster: HealthyCluster) -> None:
    """Makes an object unwell in the way of its kind."""
    status = item.setdefault("status", {})
    if resource == "nodes":
        (ready,) = [c for c in status["conditions"] if c["type"] == "Ready"]
        ready |= {"status": "Unknown", "reason": "NodeStatusUnknown", "message": "Kubelet stopped posting node status."}
    elif resource == "pods":
        item["status"] = vector("pod-status-crashing")
    elif resource == "daemonsets.apps":
        status["numberReady"] = 0
        status["desiredNumberScheduled"] += 1
    elif resource in ("deployments.apps", "leaderworkersets.leaderworkerset.x-k8s.io", "statefulsets.apps"):
        status["availableReplicas"] = status["readyReplicas"] = 0
    elif resource == "jobs.batch":
        item["status"] = vector("job-status-failed")
    elif resource == "nodepools.karpenter.sh":
        status["conditions"] = vector("nodepool-conditions-not-ready")
    elif resource == "ec2nodeclasses.karpenter.k8s.aws":
        status["conditions"] = vector("ec2nodeclass-conditions-not-ready")
    elif resource == "rayservices.ray.io":
        status["activeServiceStatus"]["applicationStatuses"] = vector("rayservice-applications-failed")
    elif resource == "endpointslices.discovery.k8s.io":
        item["endpoints"] = [{**endpoint, "conditions": {"ready": False}} for endpoint in item["endpoints"]]
    elif resource == "persistentvolumeclaims":
        status["phase"] = "Lost"
    elif resource == "namespaces":
        status["phase"] = "Terminating"
    elif resource == "storageclasses.storage.k8s.io":
        item["metadata"]["annotations"] = {}
    elif resource == "services":
        item["spec"]["ports"] = []


@pytest.mark.thorough
@pytest.mark.parametrize("stack", STACKS)
def test_each_object_that_is_unwell_is_noticed_by_the_checks_about_it_and_no_other(stack):
    graph = recorded(stack)
    healthy = HealthyCluster(graph)
    for resource, namespace, name in promised(graph, healthy):
        broken = HealthyCluster(graph)
        (item,) = [
            i
            for i in broken.objects[resource]
            if (i["metadata"].get("namespace", ""), i["metadata"]["name"]) == (namespace, name)
        ]
        ail(resource, item, broken)
        about = subjects_about(resource, namespace, name, healthy)
        if resource == "storageclasses.storage.k8s.io":
            about = {"default StorageClass"}  # the class itself is there and of the right kind
        if resource == "services" and name.endswith(("-head-svc", "-serve-svc")):
            about = set()  # KubeRay chooses the ports
        if resource == "services" and not healthy.find(resource, name)["spec"].get("ports"):
            about = set()  # headless: for names, not for ports
        assert set(troubled(graph, broken)) == about, (resource, name)


@pytest.mark.thorough
@pytest.mark.parametrize("stack", STACKS)
def test_each_helm_release_that_is_gone_or_failed_is_noticed(stack):
    graph = recorded(stack)
    for line in HealthyCluster(graph).releases:
        name = line.split()[1].removeprefix("sh.helm.release.v1.").removesuffix(".v1")
        subject = f"Helm release {line.split()[0]}/{name}"
        for changed in ([], [line.replace("deployed", "failed")], [line.replace("deployed", "pending-upgrade")]):
            broken = HealthyCluster(graph)
            broken.releases = [other for other in broken.releases if other != line] + changed
            only(troubled(graph, broken), subject)


@pytest.mark.thorough
@given(data=st.data())
def test_several_objects_that_are_gone_are_noticed_together(data):
    """Nothing masks anything else, except that a part of something that is gone is not asked for any more."""
    graph = recorded("inf2-llama3")
    healthy, broken = HealthyCluster(graph), HealthyCluster(graph)
    objects = [gone for gone in promised(graph, healthy) if gone[0] not in ("pods", "endpointslices.discovery.k8s.io")]
    gone: list[tuple[str, str, str]] = data.draw(st.lists(st.sampled_from(objects), min_size=2, max_size=6, unique=True))
    for item in gone:
        remove(broken, *item)
    about = {subject for kind, namespace, name in gone for subject in subjects_about(kind, namespace, name, healthy)}
    if any(resource == "rayservices.ray.io" for resource, _, _ in gone):
        about = {subject for subject in about if not subject.endswith(("-head-svc", "-serve-svc"))}
    assert set(troubled(graph, broken)) == about


# -- nodes and devices -----------------------------------------------------------------------------------------------------------


def neuron_node(cluster: HealthyCluster) -> dict[str, Any]:
    (node,) = [node for node in cluster.objects["nodes"] if "aws.amazon.com/neuron" in node["status"]["allocatable"]]
    return node


def core_node(cluster: HealthyCluster) -> dict[str, Any]:
    return next(node for node in cluster.objects["nodes"] if node["metadata"]["labels"][POOL_LABEL] == "core")


def condition(item: dict[str, Any], type_: str, status: str, message: str) -> None:
    conditions = [c for c in item["status"]["conditions"] if c["type"] != type_]
    item["status"]["conditions"] = [*conditions, {"type": type_, "status": status, "message": message, "reason": "Because"}]


def test_a_pool_that_lacks_a_node_is_waited_for(llama3, cluster):
    cluster.objects["nodes"].remove(core_node(cluster))
    check = only(troubled(llama3, cluster), "nodes of pool core")
    assert check.verdict == "wait"
    assert check.finding.found == "2 of 3 nodes ready, 2 have joined"
    assert check.finding.next == "kubectl get nodes -l eks-inference/pool=core -o wide"


def test_a_pool_without_any_node_is_waited_for(llama3, cluster):
    while [node for node in cluster.objects["nodes"] if node["metadata"]["labels"][POOL_LABEL] == "core"]:
        cluster.objects["nodes"].remove(core_node(cluster))
    assert only(troubled(llama3, cluster), "nodes of pool core").finding.found == "0 of 3 nodes ready, none has joined"


def test_a_node_that_is_not_ready_yet_is_waited_for_and_a_lost_one_is_a_failure(llama3, cluster):
    condition(core_node(cluster), "Ready", "False", "container runtime network not ready: cni plugin not initialized")
    check = only(troubled(llama3, cluster), "nodes of pool core")
    assert check.verdict == "wait"
    assert "cni plugin not initialized" in check.finding.found
    condition(core_node(cluster), "Ready", "Unknown", "Kubelet stopped posting node status.")
    check = only(troubled(llama3, cluster), "nodes of pool core")
    assert check.verdict == "failed"
    assert check.finding.next.startswith("kubectl describe node ip-10-1-")


@pytest.mark.parametrize(
    ("type_", "status"), [("DiskPressure", "True"), ("MemoryPressure", "True"), ("AcceleratedHardwareReady", "False")]
)
def test_a_sick_node_is_a_failure(llama3, cluster, type_, status):
    condition(neuron_node(cluster), type_, status, "it hurts")
    check = only(troubled(llama3, cluster), "nodes of pool inferentia-inf2")
    assert check.verdict == "failed"
    assert f"{type_}: it hurts" in check.finding.found


def test_a_cordoned_node_is_on_its_way_out(llama3, cluster):
    core_node(cluster)["spec"]["unschedulable"] = True
    check = only(troubled(llama3, cluster), "nodes of pool core")
    assert check.verdict == "wait"
    assert "cordoned" in check.finding.found


def test_a_node_of_a_foreign_type_is_a_failure(llama3, cluster):
    core_node(cluster)["metadata"]["labels"]["node.kubernetes.io/instance-type"] = "t3.micro"
    check = only(troubled(llama3, cluster), "nodes of pool core")
    assert check.verdict == "failed"
    assert check.finding.expected == "one of m5.2xlarge"


def test_a_pool_of_karpenter_without_nodes_is_well(llama3, cluster):
    assert checked(llama3, cluster)["nodes of pool trainium-trn1"].finding.found == "none needed now"


def test_a_node_whose_devices_are_missing_is_a_failure_once_its_plugin_is_ready(llama3, cluster):
    del neuron_node(cluster)["status"]["allocatable"]["aws.amazon.com/neuron"]
    check = only(troubled(llama3, cluster), "Neuron devices of pool inferentia-inf2")
    assert check.verdict == "failed"
    assert "offers 0 aws.amazon.com/neuron" in check.finding.found
    assert check.finding.expected == "1 aws.amazon.com/neuron and 2 aws.amazon.com/neuroncore on inf2.8xlarge"
    assert check.finding.next == "kubectl -n kube-system logs daemonset/neuron-device-plugin"


def test_devices_are_waited_for_while_the_plugin_starts(llama3, cluster):
    neuron_node(cluster)["status"]["allocatable"] = {}
    plugin = cluster.find("daemonsets.apps", "neuron-device-plugin")
    plugin["status"]["numberReady"] = 0
    (pod,) = cluster.pods_of("kube-system", **{"app.kubernetes.io/name": "neuron-device-plugin"})
    pod["status"] = vector("pod-status-starting")
    found = troubled(llama3, cluster)
    assert set(found) == {"DaemonSet kube-system/neuron-device-plugin", "Neuron devices of pool inferentia-inf2"}
    assert {check.verdict for check in found.values()} == {"wait"}


def test_a_plugin_that_leaves_out_a_node_with_devices_is_a_failure(llama3, cluster):
    """As manifests do whose affinity lacks an instance type."""
    plugin = cluster.find("daemonsets.apps", "neuron-device-plugin")
    plugin["status"] |= dict.fromkeys(("desiredNumberScheduled", "numberReady", "updatedNumberScheduled"), 0)
    check = only(troubled(llama3, cluster), "Neuron plugin on nodes")
    assert check.finding.found == "placed on 0 of 1 nodes with Neuron devices"


@pytest.mark.parametrize("type_", sorted(name for name, shape in instance_types().items() if shape.accelerator == "neuron"))
def test_devices_and_cores_of_every_neuron_type_are_those_of_the_catalog(llama3, cluster, type_):
    shape, node = instance_types()[type_], neuron_node(cluster)
    node["metadata"]["labels"]["node.kubernetes.io/instance-type"] = type_
    node["status"]["allocatable"] |= {
        "aws.amazon.com/neuron": str(shape.devices),
        "aws.amazon.com/neuroncore": str(shape.devices * shape.cores_per_device),
    }
    subject = "Neuron devices of pool inferentia-inf2"
    assert checked(llama3, cluster)[subject].verdict == "ok"
    node["status"]["allocatable"]["aws.amazon.com/neuron"] = str(shape.devices - 1)
    assert checked(llama3, cluster)[subject].verdict == "failed"


# -- Karpenter -------------------------------------------------------------------------------------------------------------------


def test_a_node_class_that_is_not_ready_says_which_part_of_it(llama3, cluster):
    item = cluster.find("ec2nodeclasses.karpenter.k8s.aws", "inferentia-inf2")
    item["status"]["conditions"] = vector("ec2nodeclass-conditions-not-ready")
    check = only(troubled(llama3, cluster), "EC2NodeClass inferentia-inf2")
    assert check.verdict == "failed"
    assert check.finding.found == "not ready: SubnetsReady: SubnetSelector did not match any Subnets"
    assert check.finding.next == "kubectl describe ec2nodeclass inferentia-inf2"


def test_a_node_pool_that_karpenter_has_not_seen_yet_is_waited_for(llama3, cluster):
    cluster.find("nodepools.karpenter.sh", "default")["status"] = {}
    assert only(troubled(llama3, cluster), "NodePool default").verdict == "wait"
    cluster.find("nodepools.karpenter.sh", "default").update(vector("nodepool"))
    cluster.find("nodepools.karpenter.sh", "default")["metadata"]["generation"] = 2
    cluster.find("nodepools.karpenter.sh", "default")["status"]["observedGeneration"] = 1
    assert only(troubled(llama3, cluster), "NodePool default").verdict == "wait"


def test_without_karpenters_definitions_its_objects_are_failures(llama3, cluster):
    unreadable = {
        resource: Unreadable(resource, "not installed")
        for resource in ("nodepools.karpenter.sh", "ec2nodeclasses.karpenter.k8s.aws")
    }
    objects = {resource: items for resource, items in cluster.objects.items() if resource not in unreadable}
    found = troubled(llama3, cluster, objects=objects, unreadable=unreadable)
    assert {check.verdict for check in found.values()} == {"failed"}
    kinds = [subject.split()[0] for subject in found]
    assert sorted(set(kinds)) == ["EC2NodeClass", "NodePool"]
    assert {check.finding.next for check in found.values()} == {f"kubectl get crd {resource}" for resource in unreadable}


# -- workloads -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pod_status", "verdict", "words", "next_"),
    [
        ("pod-status-pending", "wait", "is Pending: 0/3 nodes are available: 3 Insufficient aws.amazon.com/neuron.", "describe"),
        ("pod-status-crashing", "failed", "container main crashes: OOMKilled, exit code 137, 7 restarts", "--previous"),
        ("pod-status-init-failing", "failed", "container fetch crashes: Error, exit code 1, 3 restarts", "-c fetch --previous"),
        ("pod-status-no-image", "failed", "ImagePullBackOff: Back-off pulling image", "describe"),
        ("pod-status-starting", "wait", "container main runs, not ready yet", "logs"),
        ("pod-status-evicted", "failed", "failed: Evicted: The node was low on resource: ephemeral-storage.", "describe"),
    ],
)
def test_a_workload_without_its_pods_says_why_in_the_words_of_those_who_know(llama3, cluster, pod_status, verdict, words, next_):
    break_scheduler(cluster, pod_status)
    check = only(troubled(llama3, cluster), SCHEDULER)
    assert check.verdict == verdict
    assert check.finding.found.startswith("0 of 1 ready; pod my-scheduler-0")
    assert words in check.finding.found
    assert check.finding.expected == "1 ready"
    assert next_ in check.finding.next
    assert check.finding.next.startswith("kubectl -n kube-system ")


ENDED = {"reason": "OOMKilled", "exitCode": 137}
RUNS = {"state": {"running": {}}, "lastState": {"terminated": ENDED}, "restartCount": 2}


@pytest.mark.parametrize(
    ("status", "told"),
    [
        ({}, "wait: pod p is Running, not ready"),
        ({"state": {"waiting": {"reason": "PodInitializing"}}}, "wait: pod p is Running, not ready"),
        ({"state": {"waiting": {"reason": "ContainerCreating"}}}, "wait: pod p: container c: ContainerCreating"),
        ({"state": {"terminated": ENDED}}, "wait: pod p: container c ended: OOMKilled, exit code 137"),
        (RUNS, "wait: pod p: container c runs, not ready yet (2 restarts; last ended: OOMKilled, exit code 137)"),
    ],
)
def test_a_container_that_is_not_ready_says_why(status: dict[str, Any], told: str):
    pod = {"metadata": {"name": "p"}, "status": {"phase": "Running", "containerStatuses": [{"name": "c", **status}]}}
    assert (found := _problem_of(pod))
    assert f"{found.verdict}: {found.found}" == told


@pytest.mark.parametrize(
    ("status", "told"),
    [
        *(("deployed", "ok: deployed, revision 2"), ("pending-upgrade", "wait: revision 2 is pending-upgrade")),
        *(("failed", "failed: revision 2 is failed"), ("", "failed: not installed")),
    ],
)
def test_a_release_is_judged_by_its_newest_record(status: str, told: str):
    wanted = ExpectedRelease("ns", "r", "chart", "1.2", "")
    records = {("ns", "r"): ReleaseRecord(status, 2)} if status else {}
    found = _recorded(wanted, [], Observed("", {}, releases=records))
    assert f"{found.verdict}: {found.found}" == told


def test_a_workload_somebody_scaled_down_is_a_failure(llama3, cluster):
    item = cluster.find("deployments.apps", "my-scheduler")
    item["spec"]["replicas"] = 0
    item["status"] = {"observedGeneration": 1}
    check = only(troubled(llama3, cluster), SCHEDULER)
    assert (check.verdict, check.finding.found) == ("failed", "scaled to 0")


def test_a_rollout_that_was_given_up_or_refused_is_a_failure(llama3, cluster):
    item = cluster.find("deployments.apps", "my-scheduler")
    item["status"] = {
        "observedGeneration": 1,
        "conditions": [{"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded", "message": "timed out"}],
    }
    check = only(troubled(llama3, cluster), SCHEDULER)
    assert check.verdict == "failed"
    assert "timed out" in check.finding.found
    message = 'pods "my-scheduler-x" is forbidden: violates PodSecurity "restricted:latest"'
    item["status"]["conditions"] = [{"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": message}]
    assert message in only(troubled(llama3, cluster), SCHEDULER).finding.found


def test_a_change_that_no_controller_has_seen_is_waited_for(llama3, cluster):
    cluster.find("deployments.apps", "my-scheduler")["metadata"]["generation"] = 2
    assert only(troubled(llama3, cluster), SCHEDULER).verdict == "wait"


def test_an_old_pod_does_not_count_for_a_new_template(llama3, cluster):
    cluster.find("deployments.apps", "my-scheduler")["status"]["updatedReplicas"] = 0
    assert only(troubled(llama3, cluster), SCHEDULER).verdict == "wait"


def test_an_object_that_is_being_deleted_is_a_failure(llama3, cluster):
    for resource, name in (("deployments.apps", "my-scheduler"), ("services", "vllm"), ("nodepools.karpenter.sh", "default")):
        cluster.find(resource, name)["metadata"]["deletionTimestamp"] = "2026-11-21T10:00:00Z"
    found = troubled(llama3, cluster)
    assert set(found) == {SCHEDULER, "Service vllm/vllm", "NodePool default"}
    assert {check.finding.found for check in found.values()} == {"it is being deleted"}


def test_pods_that_an_operator_made_are_looked_at_in_the_stacks_own_namespaces(llama3, cluster):
    stray = vector("pod")
    stray["metadata"] |= {"name": "stray", "namespace": "vllm", "labels": {"made-by": "operator"}}
    cluster.objects["pods"].append(stray)
    assert checked(llama3, cluster)["namespace vllm"].finding.found == "1 ready"
    stray["status"] = vector("pod-status-pending")
    check = only(troubled(llama3, cluster), "namespace vllm")
    assert check.verdict == "wait"
    assert "Insufficient aws.amazon.com/neuron" in check.finding.found
    stray["metadata"]["namespace"] = "kube-system"
    assert troubled(llama3, cluster) == {}, "kube-system is not the stack's own"


# -- the model server ------------------------------------------------------------------------------------------------------------

RAY = "RayService vllm/vllm-llama3-inf2"
HEAD = "vllm/vllm-llama3-inf2 head"
WORKERS = "vllm/vllm-llama3-inf2 workers of inf2-group"


def ray(cluster: HealthyCluster) -> dict[str, Any]:
    (item,) = cluster.objects["rayservices.ray.io"]
    return item


def test_a_model_server_that_starts_is_waited_for_with_what_ray_says(llama3, cluster):
    ray(cluster)["status"] = vector("rayservice-status-initializing")
    check = only(troubled(llama3, cluster), RAY)
    assert check.verdict == "wait"
    assert "Initializing: RayService is initializing" in check.finding.found
    assert "application vllm DEPLOYING" in check.finding.found
    assert "application vllm RUNNING" in check.finding.expected


def test_a_model_server_that_cannot_start_is_a_failure_with_what_ray_says(llama3, cluster):
    ray(cluster)["status"]["activeServiceStatus"]["applicationStatuses"] = vector("rayservice-applications-failed")
    check = only(troubled(llama3, cluster), RAY)
    assert check.verdict == "failed"
    assert "application vllm DEPLOY_FAILED: The deployments ['VLLMDeployment'] are UNHEALTHY." in check.finding.found


@pytest.mark.parametrize(
    ("reason", "verdict"),
    [
        ("Initializing", "wait"),
        ("InitializingTimeout", "failed"),
        ("ValidationFailed", "failed"),
        ("ZeroServeEndpoints", "failed"),
        ("SuspendComplete", "failed"),
    ],
)
def test_why_kuberay_calls_a_service_not_ready_decides(llama3, cluster, reason, verdict):
    (ready, _) = ray(cluster)["status"]["conditions"]
    ready |= {"status": "False", "reason": reason, "message": "so it is"}
    check = only(troubled(llama3, cluster), RAY)
    assert (check.verdict, check.finding.found) == (verdict, f"{reason}: so it is")


@pytest.mark.parametrize(
    ("state", "verdict"),
    [("HEALTHY", "ok"), ("UPSCALING", "ok"), ("DOWNSCALING", "ok"), ("UPDATING", "wait"), ("UNHEALTHY", "failed")],
)
def test_every_deployment_of_an_application_must_serve(llama3, cluster, state, verdict):
    application = ray(cluster)["status"]["activeServiceStatus"]["applicationStatuses"]["vllm"]
    application["serveDeploymentStatuses"]["VLLMDeployment"] = {"status": state, "message": "so it is"}
    assert checked(llama3, cluster)[RAY].verdict == verdict


def test_a_deployment_or_application_that_ray_does_not_know_is_missed(llama3, cluster):
    status = ray(cluster)["status"]["activeServiceStatus"]
    status["applicationStatuses"]["vllm"]["serveDeploymentStatuses"] = {}
    assert only(troubled(llama3, cluster), RAY).finding.found == "deployment VLLMDeployment is not there"
    status["applicationStatuses"] = {"other": {"status": "RUNNING"}}
    assert only(troubled(llama3, cluster), RAY).finding.found == "application vllm is not deployed yet"


def test_an_upgrade_in_progress_is_waited_for(llama3, cluster):
    (_, upgrade) = ray(cluster)["status"]["conditions"]
    upgrade["status"] = "True"
    assert only(troubled(llama3, cluster), RAY).verdict == "wait"


def test_a_status_of_an_older_kuberay_is_understood(llama3, cluster):
    del ray(cluster)["status"]["conditions"]
    assert troubled(llama3, cluster) == {}
    del ray(cluster)["status"]["serviceStatus"]
    assert only(troubled(llama3, cluster), RAY).verdict == "wait"


def test_a_worker_that_finds_no_node_is_waited_for_with_the_schedulers_words(llama3, cluster):
    (pod,) = cluster.pods_of("vllm", **{"ray.io/node-type": "worker"})
    pod["status"] = vector("pod-status-pending")
    check = only(troubled(llama3, cluster), WORKERS)
    assert check.verdict == "wait"
    assert check.finding.found.startswith(
        "0 of 1 ready; pod vllm-llama3-inf2-abcde-inf2-group-0 is Pending: 0/3 nodes are available"
    )


@pytest.mark.parametrize(
    ("group", "change", "differs"),
    [
        ("worker", lambda container: container.update(image="registry.example/older:1"), "image"),
        ("worker", lambda container: container["resources"]["limits"].update(memory="1Gi"), "limits of memory"),
        ("head", lambda container: container.update(env=[{"name": "RAY_NEW", "value": "1"}]), "variable RAY_NEW"),
    ],
)
def test_pods_that_a_change_of_the_service_did_not_reach_are_a_failure(llama3, cluster, group, change, differs):
    config = ray(cluster)["spec"]["rayClusterConfig"] = copy.deepcopy(ray(cluster)["spec"]["rayClusterConfig"])
    spec = config["headGroupSpec"] if group == "head" else config["workerGroupSpecs"][0]
    change(spec["template"]["spec"]["containers"][0])
    check = only(troubled(llama3, cluster), HEAD if group == "head" else WORKERS)
    assert (check.verdict, check.finding.found.endswith(f"than the service's: {differs}")) == ("failed", True)
    # With a strategy KubeRay replaces the cluster, and the old one serves until then.
    ray(cluster)["spec"]["upgradeStrategy"] = {"type": "NewCluster"}
    assert troubled(llama3, cluster) == {}


def test_quantities_are_compared_by_what_they_mean(llama3, cluster):
    (pod,) = cluster.pods_of("vllm", **{"ray.io/node-type": "worker"})
    (container,) = pod["spec"]["containers"]
    container["resources"]["requests"]["cpu"] = "30000m"
    container["env"] = [*container["env"], {"name": "OF_KUBERAY", "value": "1"}]
    assert troubled(llama3, cluster) == {}


def test_a_head_that_is_gone_is_waited_for(llama3, cluster):
    (pod,) = cluster.pods_of("vllm", **{"ray.io/node-type": "head"})
    cluster.objects["pods"].remove(pod)
    check = only(troubled(llama3, cluster), HEAD)
    assert (check.verdict, check.finding.found) == ("wait", "0 of 1 ready")


# -- Services, volumes, classes --------------------------------------------------------------------------------------------------


def forget_endpoints(cluster: HealthyCluster, service: str) -> None:
    slices = cluster.objects["endpointslices.discovery.k8s.io"]
    slices[:] = [item for item in slices if item["metadata"]["labels"]["kubernetes.io/service-name"] != service]


def test_a_service_without_endpoints_says_whether_its_pods_are_missing_or_not_ready(llama3, cluster):
    forget_endpoints(cluster, "k8s-neuron-scheduler")
    subject = "Service kube-system/k8s-neuron-scheduler"
    check = only(troubled(llama3, cluster), subject)
    assert check.verdict == "failed"
    assert "although its pods are ready" in check.finding.found
    (pod,) = cluster.pods_of("kube-system", **{"app.kubernetes.io/name": "k8s-neuron-scheduler"})
    pod["status"] = vector("pod-status-starting")
    check = only(troubled(llama3, cluster), subject)
    assert (check.verdict, check.finding.found) == ("wait", "no endpoint: none of its 1 pods is ready")
    cluster.objects["pods"].remove(pod)
    check = only(troubled(llama3, cluster), subject)
    assert check.finding.found == "no endpoint: no pod has its labels"
    assert check.finding.next == "kubectl -n kube-system get pods -l app.kubernetes.io/name=k8s-neuron-scheduler"


def test_a_service_that_lost_a_port_is_a_failure(llama3, cluster):
    cluster.find("services", "vllm")["spec"]["ports"].pop(0)
    assert only(troubled(llama3, cluster), "Service vllm/vllm").finding.found == "without port 8080"


def test_the_services_that_kuberay_makes_are_waited_for(llama3, cluster):
    cluster.remove("services", "vllm-llama3-inf2-serve-svc")
    assert only(troubled(llama3, cluster), "Service vllm/vllm-llama3-inf2-serve-svc").verdict == "wait"


def test_a_second_default_storage_class_is_a_failure_with_the_command_that_mends_it(llama3, cluster):
    gp2 = copy.deepcopy(cluster.find("storageclasses.storage.k8s.io", "gp3"))
    gp2["metadata"]["name"] = "gp2"
    cluster.objects["storageclasses.storage.k8s.io"].append(gp2)
    check = only(troubled(llama3, cluster), "default StorageClass")
    assert (check.verdict, check.finding.found) == ("failed", "gp2, gp3")
    assert check.finding.next == "kubectl annotate storageclass gp2 storageclass.kubernetes.io/is-default-class-"


# -- charts, add-ons, control plane ----------------------------------------------------------------------------------------------


def test_a_release_is_as_well_as_what_it_runs(llama3, cluster):
    karpenter = cluster.find("deployments.apps", "karpenter")
    karpenter["status"]["availableReplicas"] = 0
    (pod,) = cluster.pods_of("kube-system", **{"app.kubernetes.io/name": "karpenter"})
    pod["status"] = vector("pod-status-no-image")
    check = only(troubled(llama3, cluster), "Helm release kube-system/karpenter")
    assert check.verdict == "failed"
    assert check.finding.found.startswith("Deployment karpenter 0 of 1 ready; pod karpenter-0: container main: ImagePullBackOff")


def test_a_release_of_another_chart_version_is_a_failure(llama3, cluster):
    cluster.find("deployments.apps", "karpenter")["metadata"]["labels"]["helm.sh/chart"] = "karpenter-1.0.0"
    check = only(troubled(llama3, cluster), "Helm release kube-system/karpenter")
    assert check.verdict == "failed"
    assert "chart version 1.0.0" in check.finding.found


def test_releases_whose_records_are_secret_are_judged_by_what_they_run(llama3, cluster):
    found = troubled(llama3, cluster, releases=None)
    assert {subject: check.verdict for subject, check in found.items()} == {"Helm release kube-system/karpenter-crd": "unknown"}


def test_a_control_plane_of_another_version_is_a_failure(llama3, cluster):
    check = only(troubled(llama3, cluster, server_version="v1.34.9-eks-1"), "Kubernetes API")
    assert (check.verdict, check.finding.expected) == ("failed", "Kubernetes 1.35")


@pytest.mark.parametrize("resource", ["nodes", "pods", "deployments.apps", "endpointslices.discovery.k8s.io", "services"])
def test_what_may_not_be_listed_is_unknown_and_never_ok_or_failed(llama3, cluster, resource):
    before = checked(llama3, cluster)
    objects = {kind: items for kind, items in cluster.objects.items() if kind != resource}
    after = checked(llama3, cluster, objects=objects, unreadable={resource: Unreadable(resource, "forbidden")})
    found = {subject: check for subject, check in after.items() if check.verdict != "ok"}
    assert found
    assert {check.verdict for check in found.values()} == {"unknown"}
    assert {check.finding.found for check in found.values()} <= {f"you may not list {resource}"}
    assert overall(after.values()) == "unknown"
    assert all(check.verdict == "ok" for check in before.values())


# -- kinds that the shipped stacks need not have ---------------------------------------------------------------------------------
CLAIM = "PersistentVolumeClaim apps/data"
ONCE = "Job apps/once"
FRONT = "Service apps/front"
DB = "StatefulSet apps/db"
NAMELESS = "Service apps/?"


@cache
def apps() -> Graph:
    """Jobs, a volume claim, a StatefulSet and a load balancer on a cluster that was there."""

    def build() -> None:
        opts = pulumi.ResourceOptions(provider=existing_cluster("c").provider)
        pod: Any = {"metadata": {"labels": {"app": "db"}}, "spec": {"containers": [{"name": "db", "image": "db:1"}]}}
        once: Any = {"template": {"spec": {"containers": [{"name": "main", "image": "m:1"}], "restart_policy": "Never"}}}
        claim: Any = {"access_modes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "5Gi"}}}
        replicated: Any = {"replicas": 2, "service_name": "db", "selector": {"match_labels": {"app": "db"}}, "template": pod}
        later: Any = {**once, "suspend": True}
        brief: Any = {**once, "ttl_seconds_after_finished": 600}
        front: Any = {"type": "LoadBalancer", "selector": {"app": "db"}, "ports": [{"port": 80}]}

        def named(name: str) -> Any:
            return {"name": name, "namespace": "apps"}

        k8s.core.v1.Namespace("apps", metadata={"name": "apps"}, opts=opts)
        k8s.batch.v1.Job("once", metadata=named("once"), spec=once, opts=opts)
        k8s.batch.v1.Job("later", metadata=named("later"), spec=later, opts=opts)
        k8s.batch.v1.Job("brief", metadata=named("brief"), spec=brief, opts=opts)
        k8s.core.v1.PersistentVolumeClaim("data", metadata=named("data"), spec=claim, opts=opts)
        k8s.apps.v1.StatefulSet("db", metadata=named("db"), spec=replicated, opts=opts)
        k8s.core.v1.Service("front", metadata=named("front"), spec=front, opts=opts)
        k8s.core.v1.Service("auto", metadata={"namespace": "apps"}, spec={"ports": [{"port": 80}]}, opts=opts)

    return record(build, project="p", stack="s")


def apps_cluster() -> HealthyCluster:
    cluster = HealthyCluster(apps())
    cluster.find("services", "front")["status"]["loadBalancer"] = {"ingress": [{"hostname": "lb.example"}]}
    cluster.remove("jobs.batch", "brief")
    return cluster


def test_a_cluster_that_was_there_has_the_name_that_the_stack_gives_it():
    assert (expected_of(apps()).cluster, expected_of(apps()).version) == ("c", "")


def test_an_object_whose_name_only_the_deployment_knows_is_unknown():
    assert only(troubled(apps(), apps_cluster()), NAMELESS).verdict == "unknown"


def test_jobs_that_remove_themselves_need_not_be_there():
    assert "removes itself 600 s after completion" in checked(apps(), apps_cluster())["Job apps/brief"].finding.found


def test_jobs_that_are_gone_are_missed():
    cluster = apps_cluster()
    cluster.remove("jobs.batch", "once")
    assert troubled(apps(), cluster)[ONCE].finding.found == "not there"


def test_jobs_that_the_stack_suspends_are_well():
    assert checked(apps(), apps_cluster())["Job apps/later"].finding.found == "suspended, as in the stack"


@pytest.mark.parametrize(
    ("plural", "name", "change", "subject", "verdict", "words"),
    [
        ("jobs.batch", "once", {"status": {"active": 1, "ready": 1}}, ONCE, "ok", "running"),
        ("jobs.batch", "once", {"status": {}}, ONCE, "wait", "not started"),
        ("jobs.batch", "once", {"status": {"active": 1, "failed": 1}}, ONCE, "wait", "1 failed attempt"),
        ("jobs.batch", "once", {"status": vector("job-status-failed")}, ONCE, "failed", "BackoffLimitExceeded: Job has reached"),
        ("jobs.batch", "once", {"status": {}, "spec": {"suspend": True}}, ONCE, "failed", "suspended"),
        ("persistentvolumeclaims", "data", {"status": {"phase": "Lost"}}, CLAIM, "failed", "its volume is gone"),
        ("persistentvolumeclaims", "data", {"status": {"phase": "Pending"}}, CLAIM, "wait", "Pending: no volume yet"),
        (
            "statefulsets.apps",
            "db",
            {"status": {"readyReplicas": 1, "updatedReplicas": 2}},
            "StatefulSet apps/db",
            "wait",
            "1 of 2",
        ),
        ("services", "front", {"status": {"loadBalancer": {}}}, FRONT, "wait", "no address yet"),
        ("services", "front", {"status": {}, "spec": {"selector": {}, "type": "ClusterIP"}}, FRONT, "ok", "it selects no pods"),
    ],
)
def test_jobs_claims_stateful_sets_and_load_balancers(plural, name, change, subject, verdict, words):
    cluster = apps_cluster()
    item = cluster.find(plural, name)
    item["status"] = change["status"]
    item["spec"] |= change.get("spec", {})
    check = checked(apps(), cluster)[subject]
    assert check.verdict == verdict
    assert words in check.finding.found
    others = set(troubled(apps(), cluster)) - {NAMELESS}
    assert others == (set() if verdict == "ok" else {subject})
