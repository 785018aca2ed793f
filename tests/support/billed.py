"""Small programs that cost money, for tests of cost."""

from collections.abc import Mapping, Sequence
from typing import Any

from eks_inference_tools.cost.estimate import Estimate, estimate
from eks_inference_tools.cost.price_book import PriceBook
from stackgraph.graph.document import Graph, Resource
from vectors.graph import PREFIX, kubernetes, pods, resource

REGION = {"region": "us-east-1"}
PROVIDER = resource("pulumi:providers:aws", "aws", REGION)
CLUSTER = resource("eks:index:Cluster", "cluster", {"version": "1.35", "skipDefaultNodeGroup": True, **REGION}, remote=True)


def aws(type_: str, name: str, inputs: Mapping[str, Any]) -> Resource:
    return resource(f"aws:{type_}", name, {**inputs, **REGION})


def group(name: str, type_: str, size: int, most: int, **more: Any) -> Resource:
    scaling = {"minSize": size, "desiredSize": size, "maxSize": size + most}
    inputs = {"instanceTypes": [type_], "scalingConfig": scaling, "amiType": "AL2023_x86_64_STANDARD", "version": "1.35"}
    return aws("eks/nodeGroup:NodeGroup", name, {**inputs, **more})


def costs(resources: Sequence[Resource]) -> Estimate:
    shown = tuple(sorted((PROVIDER, CLUSTER, *resources), key=lambda one: one.urn))
    return estimate(Graph("test", "test", shown), PriceBook())


POOL_SPEC = {
    "template": {
        "spec": {
            "nodeClassRef": {"name": "default"},
            "requirements": [{"key": "karpenter.k8s.aws/instance-family", "operator": "In", "values": ["m5", "c5"]}],
        }
    }
}
NODE_POOL = resource(
    "kubernetes:karpenter.sh/v1:NodePool",
    "default",
    {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "default"}, "spec": POOL_SPEC},
)
NODE_CLASS = resource(
    "kubernetes:karpenter.k8s.aws/v1:EC2NodeClass",
    "default",
    {
        "apiVersion": "karpenter.k8s.aws/v1",
        "kind": "EC2NodeClass",
        "metadata": {"name": "default"},
        "spec": {"amiSelectorTerms": [{"alias": "al2023@v20260714"}], "subnetSelectorTerms": [{"id": "a"}]},
    },
)


def deployment(name: str, replicas: int, cpu: int, gib: int) -> Resource:
    container = {"name": "c", "image": "i:1", "resources": {"requests": {"cpu": str(cpu), "memory": f"{gib}Gi"}}}
    found = pods(spec={"replicas": replicas}, containers=[container])
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}}
    inputs = {"metadata": {"name": name, "namespace": "app"}, "spec": {"replicas": replicas, "template": template}}
    return Resource(urn=f"{PREFIX}{found.type}::{name}", type=found.type, name=name, inputs=inputs)


def scaled(name: str, least: int, most: int) -> Resource:
    target = {"kind": "Deployment", "name": name}
    return kubernetes(
        "autoscaling/v2:HorizontalPodAutoscaler",
        f"{name}-scaler",
        {"spec": {"scaleTargetRef": target, "minReplicas": least, "maxReplicas": most}},
    )


def of_gpus(number: int) -> Graph:
    return Graph("p", "s", (PROVIDER, CLUSTER, group("gpus", "g6e.xlarge", number, 0)))
