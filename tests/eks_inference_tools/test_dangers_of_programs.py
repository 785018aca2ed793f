"""What a comparison warns of in programs without models: who stops answering, what is refused, what has no way back."""

import re
from typing import Any

import pytest

from eks_inference_tools.comparison import eks_compared
from stackgraph.diff.dangers import dangers
from stackgraph.diff.graphs import compare
from stackgraph.graph.document import Graph, Resource

NODE_GROUP = "aws:eks/nodeGroup:NodeGroup"


def resource(name: str, type_: str, inputs: Any, refers: Any = None) -> Resource:
    urn = f"urn:pulumi:s::p::{type_}::{name}"
    return Resource(urn, type_, name, inputs=inputs, property_dependencies=refers or {}, custom=True)


def graph(*resources: Resource) -> Graph:
    return Graph("p", "s", tuple(sorted(resources, key=lambda one: one.urn)))


def placed(kind: str, name: str, spec: Any = None, **more: Any) -> Resource:
    """An object of namespace ``team``."""
    inputs = {"metadata": {"name": name, "namespace": "team"}, **({} if spec is None else {"spec": spec}), **more}
    return resource(name, f"kubernetes:{kind}", inputs)


def web(image: str = "web:1", *, pods: int = 1, strategy: Any = None, volumes: Any = (), **container: Any) -> Resource:
    requests = {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"memory": "1Gi"}}
    inside = {"name": "web", "image": image, "resources": requests, **container}
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [inside], "volumes": [*volumes]}}
    return placed("apps/v1:Deployment", "web", {"replicas": pods, "strategy": strategy or {}, "template": template})


def quota(**hard: str) -> Resource:
    return placed("core/v1:ResourceQuota", "q", {"hard": {key.replace("_", "."): value for key, value in hard.items()}})


def scoped(scope: str) -> Resource:
    return placed("core/v1:ResourceQuota", scope.lower(), {"hard": {"pods": "0"}, "scopes": [scope]})


def limits(**item: Any) -> Resource:
    return placed("core/v1:LimitRange", "l", {"limits": [{"type": "Container", **item}]})


def service(selector: str = "web", type_: str = "ClusterIP", scheme: str = "internal", *ports: int) -> Resource:
    spec = {"type": type_, "selector": {"app": selector}, "ports": [{"port": port} for port in ports or (80,)]}
    one = placed("core/v1:Service", "web", spec)
    one.inputs["metadata"]["annotations"] = {"service.beta.kubernetes.io/aws-load-balancer-scheme": scheme}
    return one


def ingress(*hosts: str) -> Resource:
    return placed("networking.k8s.io/v1:Ingress", "i", {"rules": [{"host": host} for host in hosts]})


def policy(**spec: Any) -> Resource:
    return placed("networking.k8s.io/v1:NetworkPolicy", "p", {"podSelector": {}, **spec})


def claim(size: str = "10Gi", mode: str = "ReadWriteOnce", class_: str = "slow") -> Resource:
    spec = {"accessModes": [mode], "storageClassName": class_, "resources": {"requests": {"storage": size}}}
    return placed("core/v1:PersistentVolumeClaim", "d", spec)


def claiming(pods: int) -> Resource:
    disk = {"metadata": {"name": "d"}, "spec": {}}
    return placed("apps/v1:StatefulSet", "db", {"replicas": pods, "volumeClaimTemplates": [disk]})


def storage(name: str, *, grows: bool) -> Resource:
    return resource(
        name, "kubernetes:storage.k8s.io/v1:StorageClass", {"metadata": {"name": name}, "allowVolumeExpansion": grows}
    )


def cluster(**inputs: Any) -> Resource:
    given = {"name": "c", "version": "1.31", "vpcConfig": {"endpointPublicAccess": False}, **inputs}
    return resource("c", "aws:eks/cluster:Cluster", given)


def node_pool(replicas: int | None = None) -> Resource:
    return resource("n", "kubernetes:karpenter.sh/v1:NodePool", {"metadata": {"name": "n"}, "spec": {"replicas": replicas}})


def addon(name: str = "vpc-cni", **more: Any) -> Resource:
    return resource(name, "aws:eks/addon:Addon", {"addonName": name, "clusterName": "c", **more})


TEAM = resource("team", "kubernetes:core/v1:Namespace", {"metadata": {"name": "team"}})
DISK = {"name": "d", "persistentVolumeClaim": {"claimName": "d"}}
OLD_API = placed("policy/v1beta1:PodDisruptionBudget", "b", {})
ENV: Any = {"envFrom": [{"configMapRef": {"name": "s"}}, {"secretRef": {"name": "s"}}]}
RELOADED = web(**ENV)
RELOADED.inputs["metadata"]["annotations"] = {"reloader.stakater.com/auto": "true"}
RECREATE, NONE_FIRST = {"type": "Recreate"}, {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": "100%"}}


def values(kind: str, value: str) -> Resource:
    return placed(f"core/v1:{kind}", "s", data={"a": value})


def unnamed(value: str) -> Resource:
    return resource("s", "kubernetes:core/v1:ConfigMap", {"metadata": {"namespace": "team"}, "data": {"a": value}})


PROGRAMS: dict[str, tuple[list[Resource], list[Resource], str]] = {
    # What the API server lets in no more.
    "a quota that is added": ([web(pods=2)], [web(pods=2), quota(requests_cpu="600m")], "pods-refused .0.6 requests.cpu"),
    "a quota that is lowered": ([web(), quota(pods="5")], [web(), quota(pods="0")], "pods-refused .*nothing replaces them"),
    "a quota that is raised": ([web(), quota(pods="1")], [web(), quota(pods="5")], ""),
    "a quota that was too small before": ([web(), quota(pods="0")], [web(), quota(pods="0", services="1")], ""),
    "no room for a successor": ([web(), quota(pods="1")], [web("web:2"), quota(pods="1")], "server-waits .*update.: .*fails"),
    "a quota of what pods do not name": ([web()], [web(), quota(limits_cpu="9")], "pods-refused .*names no limits.cpu"),
    "a quota of other pods": ([web()], [web(), scoped("BestEffort"), scoped("Terminating")], ""),
    "a quota of these pods": ([web()], [web(), scoped("NotTerminating")], "pods-refused .0 pods for pods that need 1"),
    "a quota of other classes": ([web()], [web(), scoped("PriorityClass")], ""),
    "a claim above a quota": ([], [claim("20Gi"), quota(requests_storage="10Gi")], "refused .*10Gi requests.storage .*20Gi"),
    "a claim of another class": ([], [claim("20Gi"), quota(**{"fast.storageclass.storage.k8s.io/requests.storage": "1Gi"})], ""),
    "claims of two pods": ([], [claiming(2), quota(persistentvolumeclaims="1")], "refused .*1 persistentvolumeclaims .*of 2"),
    "one claim too many": ([], [claim(), claiming(1), quota(persistentvolumeclaims="1")], "refused .*claim of StatefulSet"),
    "claims of pods within it": ([], [claiming(2), quota(persistentvolumeclaims="2")], ""),
    "claims of no pods": ([], [claiming(0), quota(persistentvolumeclaims="0")], ""),
    "a claim that was there": ([claim("20Gi")], [claim("20Gi"), quota(requests_storage="10Gi")], ""),
    "a limit range that names it": ([web()], [web(), quota(limits_cpu="9"), limits(default={"cpu": 1})], ""),
    "a limit range below": ([web()], [web(), limits(max={"memory": "512Mi"})], "pods-refused .*at most 512Mi .* has 1Gi"),
    "a limit range above": ([web()], [web(), limits(max={"memory": "2Gi"}, min={"cpu": "100m"})], ""),
    "a default below": ([web()], [web(), limits(default={"cpu": "200m"})], "pods-refused .*a limit of 200m cpu, .* has 0.5"),
    "a removed API": ([cluster(version="1.24"), OLD_API], [cluster(version="1.25"), OLD_API], "api-gone .*its next change fails"),
    "an API that is served": ([cluster(version="1.23"), OLD_API], [cluster(version="1.24"), OLD_API], ""),
    "an object of a removed API": ([cluster()], [cluster(), OLD_API], "refused .*`pulumi up` fails there"),
    "a claim that stays": ([storage("slow", grows=False), claim()], [storage("slow", grows=False), claim("20Gi")], "refused"),
    "a claim that grows": ([storage("slow", grows=True), claim()], [storage("slow", grows=True), claim("20Gi")], ""),
    "a pool of fixed size": ([node_pool()], [node_pool(2)], "refused .*: it has to be replaced"),
    "a pool that follows its pods": ([node_pool(2)], [node_pool()], "refused .*: it has to be replaced"),
    "another fixed size": ([node_pool(2)], [node_pool(3)], ""),
    # Who stops answering, without a model.
    "recreated": ([service(), web(strategy=RECREATE)], [service(), web("a:2", strategy=RECREATE)], "server-stopped .*until its"),
    "all at once": (
        [service(), web("a:1", pods=2, strategy=NONE_FIRST)],
        [service(), web("a:2", pods=2, strategy=NONE_FIRST)],
        "server-stopped .*its pods end",
    ),
    "one after the other": ([service(), web("a:1")], [service(), web("a:2")], ""),
    "nobody's server": ([web("a:1", strategy=RECREATE)], [web("a:2", strategy=RECREATE)], ""),
    "pods that go": ([TEAM, service(), web()], [TEAM, service()], "service-empty"),
    "no pods left": ([TEAM, service(), web()], [TEAM, service(), web(pods=0)], "service-empty"),
    "another selector": ([TEAM, service(), web()], [TEAM, service("other"), web()], "service-empty"),
    "a port": ([service("web", "ClusterIP", "", 80, 81)], [service("web", "ClusterIP", "", 80)], "address-gone .*at port 81"),
    "a port more": ([service()], [service("web", "ClusterIP", "internal", 80, 81)], ""),
    "a load balancer": ([service("web", "LoadBalancer")], [service()], "address-gone .*from outside"),
    "its scheme": ([service("web", "LoadBalancer", "internet-facing")], [service("web", "LoadBalancer")], "address-gone .*anew"),
    "a host": ([ingress("a", "b")], [ingress("a")], "address-gone .*for b$"),
    "a host among all": ([ingress("a.b.c")], [ingress("*.b.c")], ""),
    "a host more": ([ingress("a")], [ingress("a", "b")], ""),
    "the first policy": ([TEAM], [TEAM, policy()], "shut .*let in nobody"),
    "a policy that lets everybody in": ([TEAM], [TEAM, policy(ingress=[{"ports": [{"port": 80}]}])], ""),
    "a policy about egress": ([TEAM], [TEAM, policy(policyTypes=["Egress"])], ""),
    "a policy of a new namespace": ([], [TEAM, policy()], ""),
    # What waits, stays, or has no way back.
    "a disk of one node": ([claim(), web("a:1", volumes=[DISK])], [claim(), web("a:2", volumes=[DISK])], "claim-held"),
    "a disk of many": (
        [claim(mode="ReadWriteMany"), web("a:1", volumes=[DISK])],
        [claim(mode="ReadWriteMany"), web("a:2", volumes=[DISK])],
        "",
    ),
    "values that Reloader watches": ([values("Secret", "a"), RELOADED], [values("Secret", "b"), RELOADED], ""),
    "values": ([values("Secret", "a"), web(**ENV)], [values("Secret", "b"), web(**ENV)], "without-effect .*keep the old values"),
    "values of new pods": ([values("Secret", "a"), web("a:1", **ENV)], [values("Secret", "b"), web("a:2", **ENV)], ""),
    "a Secret in use": ([values("Secret", "a"), web(**ENV)], [web(**ENV)], "deleted .*none of them starts again"),
    "an add-on": ([addon()], [], "addon-deleted .*no network"),
    "an add-on whose software stays": ([addon(preserve=True)], [], ""),
    "access": (
        [cluster(accessConfig={"authenticationMode": "API_AND_CONFIG_MAP"})],
        [cluster(accessConfig={"authenticationMode": "API"})],
        "no-way-back .*to API for good",
    ),
    "encryption": ([cluster()], [cluster(encryptionConfig={"provider": {"keyArn": "a"}})], "no-way-back .*of KMS for good"),
    "a network": (
        [resource("v", "aws:ec2/vpc:Vpc", {"cidrBlock": "10.0.0.0/16"})],
        [resource("v", "aws:ec2/vpc:Vpc", {"cidrBlock": "10.1.0.0/16"})],
        "network-replaced",
    ),
}  # fmt: skip
_GENERIC = ("replaced", "deleted", "capacity-down", "opened", "no-way-back")


@pytest.mark.parametrize(("before", "after", "expected"), PROGRAMS.values(), ids=[*PROGRAMS])
def test_programs_without_models(before: list[Resource], after: list[Resource], expected: str):
    """Each was written down from what controllers do, before anything was asked."""
    found = [f"{danger.kind} {danger.what}" for danger in dangers(compare(graph(*before), graph(*after)), eks_compared())]
    said = [line for line in found if not line.startswith(_GENERIC) or re.match(expected or "$", line)]
    assert len(said) == bool(expected), found
    assert all(re.match(expected.replace(" ", " .*", 1), line) for line in said), found


def test_what_pulumi_names_is_replaced_without_a_gap():
    assert not dangers(compare(graph(unnamed("a")), graph(unnamed("b"))), eks_compared())
    assert dangers(compare(graph(values("ConfigMap", "a")), graph(values("ConfigMap", "b"))), eks_compared())


def test_a_network_goes_before_what_stands_in_it():
    """A cluster that is made from its subnets alone is named too."""

    def within(cidr: str, *, made: bool) -> Graph:
        network = resource("net", "aws:ec2/vpc:Vpc", {"cidrBlock": cidr})
        inputs, refers = {"vpcId": "<net.id>", "availabilityZoneId": "az1"}, {"vpcId": (network.urn,)}
        subnet = resource("a", "aws:ec2/subnet:Subnet", inputs, refers)
        around = {"vpcConfig": {"subnetIds": ["<a.id>"], "endpointPublicAccess": False}, "version": "1.31"}
        nodes = resource("n", NODE_GROUP, {"subnetIds": ["<a.id>"]}, {"subnetIds": (subnet.urn,)})
        control = resource("c", "aws:eks/cluster:Cluster", around, {"vpcConfig": (subnet.urn,)})
        return graph(network, subnet, nodes, *([control] if made else []))

    for made, first in ((False, "network net is replaced"), (True, "cluster c: EKS moves no cluster to another VPC")):
        found = dangers(compare(within("10.0.0.0/16", made=made), within("10.1.0.0/16", made=made)), eks_compared())
        assert found[0].what.startswith(first)
        assert not [danger for danger in found if danger.kind == "may-be-replaced"]
