"""Vectors of the rules about whole stacks."""

from dataclasses import replace
from typing import Any

from eks_inference.pools.plan import placement_of
from eks_inference.stack.facts import StackFacts
from eks_inference.stack.spec import StackSpec
from vectors import Vector
from vectors.serving import server

CORE = {"kind": "managed", "instance_types": ["m5.xlarge"], "size": 2}
NODE = {"kind": "managed", "instance_types": ["inf2.48xlarge"], "size": 1, "root_volume_gib": 1024}


def stack(pool: dict[str, Any] = NODE, *, pods_max: int = 3, **facts: Any) -> StackFacts:
    """Returns three pods of four devices on one inf2.48xlarge, with changes."""
    spec = StackSpec.model_validate({"name": "s", "pools": {"core": CORE, "inf2": pool}})
    placement = placement_of("inf2", spec.pools["inf2"], "inf2.48xlarge", spec.cluster.version)
    wish = {"devices": 4, "pods_min": 3, "cpu_millis": 60_000, "memory_mib": 200_000, **facts}
    one = replace(server(), path=("servers", "llama"), placement=placement, pods_max=pods_max, **wish)
    return StackFacts(spec, "us-west-2", {"llama": one})


def spec(**sections: Any) -> StackFacts:
    """Returns a stack of a core pool and a pool with a GPU, with more sections."""
    gpu = {"kind": "managed", "instance_types": ["g4dn.xlarge"], "size": 1}
    made = StackSpec.model_validate({"name": "s", "pools": {"core": CORE, "gpu": gpu}, **sections})
    return StackFacts(made, "us-west-2", {})


def asked(replicas: int) -> StackFacts:
    """Returns a server that a load test asks."""
    model = {"kind": "vllm", "model": {"id": "facebook/opt-350m"}, "engine": "cuda-vllm-0.30", "pool": "gpu"}
    sizes = {"tensor_parallel": 1, "max_num_seqs": 32, "max_model_len": 2048, "replicas": replicas}
    return spec(servers={"opt": {**model, **sizes}}, load_test={})


def watched(prometheus: dict[str, Any] | None, **server: Any) -> StackFacts:
    """Returns a stack with one server, and with or without Prometheus."""
    model = {"kind": "vllm", "model": {"id": "facebook/opt-350m"}, "engine": "cuda-vllm-0.30", "pool": "gpu"}
    sizes = {"tensor_parallel": 1, "max_num_seqs": 32, "max_model_len": 2048}
    return spec(servers={"opt": {**model, **sizes, **server}}, observability={"prometheus": prometheus})


def endpoint(**access: Any) -> StackFacts:
    return spec(cluster={"endpoint": {"public": True, "private": False, **access}})


def key_in(region: str) -> StackFacts:
    return spec(kms_key_arn=f"arn:aws:kms:{region}:123456789012:key/12345678-1234-1234-1234-123456789012")


def with_pools(managed: int) -> StackFacts:
    """Returns a stack with as many managed pools, and one of Karpenter."""
    pools = {f"p{number}": CORE for number in range(managed)}
    karpenter = {"kind": "karpenter", "instance_types": ["m5.xlarge"]}
    return spec(core_pool="p0", pools={**pools, "k": karpenter})


def fixed_pool(**karpenter: Any) -> StackFacts:
    """Returns a stack with a pool of two nodes that Karpenter keeps."""
    pool = {"kind": "karpenter", "instance_types": ["g6e.xlarge"], "replicas": 2}
    return spec(pools={"core": CORE, "k": pool}, karpenter=karpenter)


def on_one_numa_node() -> dict[str, Any]:
    return {**NODE, "kubelet": {"topologyManagerPolicy": "single-numa-node"}}


def head_on(policy: str, expires: str = "Never") -> StackFacts:
    """Returns a server under Ray whose head is on nodes of Karpenter."""
    pool = {"kind": "karpenter", "instance_types": ["m5.2xlarge"], "consolidation_policy": policy, "expire_after": expires}
    neuron = {"kind": "managed", "instance_types": ["inf2.8xlarge"], "size": 1}
    server = {
        "kind": "ray_serve_vllm",
        "model": {"id": "NousResearch/Meta-Llama-3-8B-Instruct"},
        "engine": "neuron-2.28-vllm-0.13",
        "image": {"kind": "in_cluster"},
        "tensor_parallel": 2,
        "max_model_len": 4096,
        "max_num_seqs": 4,
        "head": {"pool": "k", "instance_type": "m5.2xlarge"},
        "worker": {"pool": "neuron", "instance_type": "inf2.8xlarge"},
    }
    return spec(pools={"core": CORE, "k": pool, "neuron": neuron}, servers={"ray": server})


def crowded(most: int) -> StackFacts:
    return spec(
        cluster={"addon_configuration": {"vpc-cni": {"env": {"ENABLE_PREFIX_DELEGATION": "false"}}}},
        pools={"core": {**CORE, "kubelet": {"maxPods": most}}},
    )


def isolated(*endpoints: str, **sections: Any) -> StackFacts:
    """Returns a stack without internet, with Karpenter and a server of a model in S3."""
    reached = ["ec2", "ecr", "eks-auth", "s3", *endpoints]
    model = {"kind": "s3", "uri": "s3://models/opt", "id": "opt"}
    server = {"kind": "vllm", "model": model, "engine": "cuda-vllm-0.30", "pool": "gpu", **sections}
    sizes = {"tensor_parallel": 1, "max_num_seqs": 32, "max_model_len": 2048}
    pools = {"core": CORE, "gpu": {"kind": "karpenter", "instance_types": ["g4dn.xlarge"]}}
    network = {"nat": "none", "public_subnets": False, "endpoints": reached}
    return spec(network=network, pools=pools, servers={"opt": {**server, **sizes}})


OBJECTIVE = {"objectives": {"time_to_first_token_seconds": 2}}


def monitored(**pool: Any) -> StackFacts:
    """Returns a stack with the Neuron monitor and a pool of Inf2."""
    pools = {"core": CORE, "inf2": {**NODE, **pool}}
    sections = {"accelerators": {"neuron": {}}, "observability": {"prometheus": {}, "neuron_monitor": {}}}
    return StackFacts(StackSpec.model_validate({"name": "s", "pools": pools, **sections}), "us-west-2", {})


VECTORS = {
    "DRA007": Vector(monitored, lambda: monitored(devices="claims"), "the monitor does not see the devices of inf2"),
    "OBS010": Vector(
        lambda: watched({"receiver": {"kind": "slack"}}),
        lambda: watched({"alertmanager": True}),
        "alerts show in Prometheus and Grafana only and reach no receiver",
    ),
    "OBS012": Vector(lambda: watched({}, **OBJECTIVE), lambda: watched(None, **OBJECTIVE), "nothing in this stack collects"),
    "OBS013": Vector(
        lambda: watched({}, **OBJECTIVE),
        lambda: watched({}, objectives={"time_to_first_token_seconds": 1000}),
        "no published server is so slow",
    ),
    "NET004": Vector(
        lambda: isolated("eks", "sqs", "ssm"), lambda: isolated("eks", "ssm"), "Karpenter would wait in vain for an answer of sqs"
    ),
    "NET005": Vector(
        isolated,
        lambda: isolated(model={"id": "facebook/opt-350m"}),
        "facebook/opt-350m is on the Hub, which nothing in the network reaches",
    ),
    "POO006": Vector(lambda: crowded(58), lambda: crowded(59), "m5.xlarge has addresses for 58 pods"),
    "POO012": Vector(spec, lambda: key_in("us-west-2"), "without a statement for Auto Scaling no node of core starts"),
    "POO008": Vector(
        lambda: replace(spec(observability={"prometheus": {}}), zone_ids=("usw2-az1", "usw2-az2")),
        lambda: replace(spec(observability={"prometheus": {}}), zone_ids=("usw2-az1", "usw2-az2", "usw2-az3")),
        "the volume of Prometheus has no node",
    ),
    "VAL001": Vector(
        lambda: spec(karpenter={"values": {"logLevel": "debug"}}),
        lambda: spec(karpenter={"values": {"logLevl": "debug"}}),
        "the chart karpenter has no value 'logLevl' here",
    ),
    "ARN001": Vector(lambda: key_in("us-west-2"), lambda: key_in("us-east-1"), "the ARN is of region us-east-1"),
    "CLI001": Vector(lambda: asked(1), lambda: asked(0), "load_test would wait for 'opt'"),
    "NET003": Vector(
        lambda: endpoint(public_access_cidrs=["0.0.0.0/0"]),
        lambda: endpoint(public_access_cidrs=["203.0.113.7/32"]),
        "no node joins",
    ),
    "NET007": Vector(
        lambda: endpoint(public_access_cidrs=["203.0.113.7/32"]),
        lambda: spec(cluster={"endpoint": {"public": False}}),
        "only the VPC reaches the API",
    ),
    "NET008": Vector(stack, lambda: stack(pods_max=40), "40 pods fetch 26 GB each through NAT"),
    "CAP001": Vector(stack, lambda: stack(pods_min=4, pods_max=4), "there is no room for 1 pod of 'llama'"),
    "CAP002": Vector(stack, lambda: stack({**NODE, "root_volume_gib": 100}), "on each node"),
    "CAP003": Vector(lambda: with_pools(30), lambda: with_pools(31), "EKS refuses the rest of the managed pools"),
    "KAR005": Vector(
        lambda: fixed_pool(static_capacity=True),
        lambda: fixed_pool(static_capacity=False),
        "no node of pool 'k' would ever start",
    ),
    "KAR007": Vector(
        lambda: head_on("WhenEmpty"), lambda: head_on("WhenEmpty", "720h"), "Karpenter replaces its node after 720h"
    ),
    "KAR009": Vector(
        lambda: stack({"kind": "karpenter", "instance_types": ["inf2.48xlarge"]}),
        lambda: stack({"kind": "karpenter", "instance_types": ["inf2.48xlarge"], "termination_grace_period": "1s"}),
        "are cut off 1s after its node begins to end",
    ),
    "POO014": Vector(
        lambda: stack(on_one_numa_node(), devices=4), lambda: stack(on_one_numa_node(), devices=12), "is ever admitted"
    ),
    "KAR003": Vector(
        lambda: stack({"kind": "karpenter", "instance_types": ["inf2.48xlarge"]}, devices=12),
        lambda: stack({"kind": "karpenter", "instance_types": ["inf2.48xlarge"]}),
        "which devices are adjacent",
    ),
}
