"""Deletion runs against the edges of the graph, so the edges are the teardown plan."""

from graphs import children_of, kind, kubernetes, of_kind, stands_on
from stackgraph.graph.document import Graph, Resource


def goes_before(graph: Graph, upper: list[Resource], lower: list[Resource]) -> None:
    """Each of ``upper`` is deleted before each of ``lower``."""
    assert upper
    assert lower
    for first in upper:
        for then in lower:
            assert stands_on(graph, first, then), f"{first.name} could be deleted after {then.name}"


def addons(graph: Graph, *names: str) -> list[Resource]:
    found = [r for r in graph.of_type("aws:eks/addon:Addon") if r.inputs["addonName"] in names]
    assert len(found) == len(names)
    return found


def charts(graph: Graph, name: str) -> list[Resource]:
    return [r for r in of_kind(graph, "Release") if str(r.inputs["chart"]).rpartition("/")[2] == name]


def test_workloads_go_before_the_nodes_they_run_on(llama3):
    for service in of_kind(llama3, "RayService"):
        pools = [p for p in of_kind(llama3, "NodePool") if p.inputs["metadata"]["name"] == "inferentia-inf2"]
        goes_before(llama3, [service], pools + llama3.of_type("aws:eks/nodeGroup:NodeGroup"))


# Objects that have no effect outside their namespace, and that nothing waits for.
GO_WITH_NAMESPACE = {
    *("ConfigMap", "NetworkPolicy", "PodDisruptionBudget", "ResourceClaimTemplate", "ResourceQuota", "Role", "RoleBinding"),
    *("Secret", "ServiceAccount"),
}


def test_what_goes_with_its_namespace_is_not_deleted_by_itself(shipped: Graph):
    namespaces = {resource.inputs["metadata"]["name"]: resource.urn for resource in of_kind(shipped, "Namespace")}
    objects = [resource for resource in kubernetes(shipped) if "metadata" in resource.inputs]
    inside = [resource for resource in objects if resource.inputs["metadata"].get("namespace") in namespaces]
    assert {kind(resource) for resource in inside} & GO_WITH_NAMESPACE
    for resource in inside:
        namespace = namespaces[resource.inputs["metadata"]["namespace"]]
        own = kind(resource) in GO_WITH_NAMESPACE and resource.parent == shipped.by_urn[namespace].parent
        assert resource.options.get("deletedWith", "") == (namespace if own else ""), resource.urn
    apart = [resource for resource in shipped.resources if resource.options.get("deletedWith") and resource not in inside]
    assert apart == []


def test_karpenter_is_taken_down_from_the_top(llama3):
    pools, classes = of_kind(llama3, "NodePool"), of_kind(llama3, "EC2NodeClass")
    controller, crds = charts(llama3, "karpenter"), charts(llama3, "karpenter-crd")
    for pool in pools:
        own = [
            c for c in classes if c.inputs["metadata"]["name"] == pool.inputs["spec"]["template"]["spec"]["nodeClassRef"]["name"]
        ]
        goes_before(llama3, [pool], own)
    goes_before(llama3, classes, controller)
    goes_before(llama3, controller, crds)


def test_karpenter_can_still_end_its_nodes_while_its_pools_go(llama3):
    """The controller needs its permissions, its queue and the nodes' access entry until the last node is gone."""
    needed = [
        *llama3.of_type("aws:eks/podIdentityAssociation:PodIdentityAssociation"),
        *llama3.of_type("aws:eks/accessEntry:AccessEntry"),
        *llama3.of_type("aws:sqs/queuePolicy:QueuePolicy"),
        *llama3.of_type("aws:cloudwatch/eventTarget:EventTarget"),
        *[r for r in children_of(llama3, "Karpenter") if r.type in ("aws:iam/rolePolicy:RolePolicy",)],
    ]
    goes_before(llama3, of_kind(llama3, "EC2NodeClass"), [r for r in needed if "Karpenter" in r.urn])


def test_custom_resources_go_before_their_operator(llama3):
    goes_before(llama3, of_kind(llama3, "RayService"), charts(llama3, "kuberay-operator"))


def test_pods_go_before_dns_and_dns_before_the_core_nodes(llama3):
    running = [r for name in ("Deployment", "DaemonSet", "RayService", "Release") for r in of_kind(llama3, name)]
    goes_before(llama3, running, addons(llama3, "coredns"))
    goes_before(
        llama3, addons(llama3, "coredns", "aws-ebs-csi-driver", "metrics-server"), llama3.of_type("aws:eks/nodeGroup:NodeGroup")
    )


def test_nodes_go_before_what_they_need_to_be_nodes(llama3):
    goes_before(
        llama3,
        llama3.of_type("aws:eks/nodeGroup:NodeGroup"),
        [
            *addons(llama3, "vpc-cni", "kube-proxy", "eks-pod-identity-agent"),
            *[r for r in children_of(llama3, "ManagedPool") if r.type.endswith(":RolePolicyAttachment")],
        ],
    )


def test_nodes_go_before_their_ways_out_of_the_vpc(llama3):
    routes = [r for r in llama3.of_type("aws:ec2/route:Route") if "private" in r.name]
    goes_before(llama3, llama3.of_type("aws:eks/nodeGroup:NodeGroup") + of_kind(llama3, "EC2NodeClass"), routes)


def test_the_control_plane_waits_for_no_gateway(shipped):
    (control_plane,) = shipped.of_type("eks:index:Cluster")
    for gateway in shipped.of_type("aws:ec2/natGateway:NatGateway"):
        assert not stands_on(shipped, control_plane, gateway)


def test_volumes_go_before_the_driver_that_detaches_them(shipped):
    claims = [r for r in kubernetes(shipped) if kind(r) == "PersistentVolumeClaim" and "volumeName" not in r.inputs["spec"]]
    claims += [r for r in kubernetes(shipped) if "kube-prometheus-stack" in str(r.inputs.get("chart"))]
    if "trn2" not in shipped.stack:
        goes_before(shipped, claims, addons(shipped, "aws-ebs-csi-driver"))


def test_controllers_without_volumes_wait_for_no_storage_driver(llama3):
    for chart in ("karpenter", "kuberay-operator"):
        assert not stands_on(llama3, *charts(llama3, chart), *addons(llama3, "aws-ebs-csi-driver"))


def test_every_kubernetes_object_goes_before_the_control_plane(shipped):
    goes_before(shipped, kubernetes(shipped), shipped.of_type("eks:index:Cluster"))


def test_nothing_waits_for_itself(shipped):
    for resource in shipped.resources:
        assert not stands_on(shipped, resource, resource), resource.urn


def test_only_what_holds_everything_is_protected_and_only_when_asked(shipped):
    assert [r.name for r in shipped.resources if r.options.get("protect")] == []
