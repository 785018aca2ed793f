"""A team's own cluster of pulumi-aws, whose key, boundary and topic are of the same program."""

import json

import pulumi
import pulumi_aws as aws

from eks_inference import (
    ExistingCluster,
    ExistingVpc,
    ManagedPool,
    NeuronPlugin,
    StackSettings,
    Subnet,
    VllmServer,
)

TRUST = json.dumps({"Version": "2012-10-17", "Statement": []})

base = pulumi.StackReference("platform/network/prod")
key = aws.kms.Key("models")
boundary = aws.iam.Policy("boundary", policy=TRUST)
settings = StackSettings(kms_key_arn=key.arn, permissions_boundary_arn=boundary.arn, tags={"team": "ml", "key": key.id})
network = ExistingVpc(
    base.require_output("vpcId"),
    [Subnet(zone, base.require_output(f"subnet-{zone}")) for zone in ("usw2-az1", "usw2-az2")],
)
role = aws.iam.Role("control-plane", assume_role_policy=TRUST)
own = aws.eks.Cluster(
    "platform",
    name="platform",
    version="1.35",
    role_arn=role.arn,
    access_config={"authentication_mode": "API"},
    vpc_config={"subnet_ids": [subnet.id for subnet in network.private_subnets], "endpoint_public_access": False},
)
agent = aws.eks.Addon("agent", cluster_name=own.name, addon_name="eks-pod-identity-agent")
cluster = ExistingCluster.from_aws(own, name="platform", version="1.35", settings=settings, ready=[agent], network=network)
inf2 = ManagedPool("inf2", {"instance_types": ["inf2.8xlarge"], "size": 1}, cluster=cluster, network=network)
NeuronPlugin("neuron", {"scheduler": False}, cluster=cluster)
server = VllmServer(
    "qwen3",
    {
        "engine": "neuron-2.31-vllm-0.16",
        "model": {"id": "Qwen/Qwen3-8B"},
        "tensor_parallel": 2,
        "max_model_len": 4096,
        "max_num_seqs": 4,
    },
    cluster=cluster,
    placement=inf2.placement(),
)
pulumi.export("endpoint", server.endpoint)
