"""A program that gives an Output of its own resources to every field of a spec that takes one."""

import pulumi_aws as aws

from eks_inference import (
    ClusterAddons,
    EksCluster,
    Karpenter,
    KarpenterPool,
    ManagedPool,
    PrometheusStack,
    StackSettings,
    Vpc,
)

key = aws.kms.Key("key")
boundary = aws.iam.Policy("boundary", policy="{}")
topic = aws.sns.Topic("topic")
ci = aws.iam.Role("ci", assume_role_policy="{}")
viewer = aws.iam.Role("viewer", assume_role_policy="{}")
weights = aws.s3.Bucket("weights")
pair = aws.ec2.KeyPair("pair", public_key="ssh-ed25519 AAAA")
reservation = aws.ec2.CapacityReservation(
    "reservation", instance_type="inf2.8xlarge", instance_platform="Linux/UNIX", availability_zone="us-west-2a", instance_count=1
)
group = aws.resourcegroups.Group("group")
image = aws.ec2.AmiCopy("image", source_ami_id="ami-0123456789abcdef0", source_ami_region="us-east-1")
together = aws.ec2.PlacementGroup("placement", strategy="cluster")

settings = StackSettings(kms_key_arn=key.arn, permissions_boundary_arn=boundary.arn, tags={"owner": ci.name})
network = Vpc("net", {"zones": 2, "flow_logs": {}}, settings=settings)
control_plane = EksCluster("chat", {"admins": [ci.arn], "viewers": [viewer.arn]}, network=network, settings=settings)


def pool(name: str, **spec: object) -> ManagedPool:
    return ManagedPool(name, {"instance_types": ["inf2.8xlarge"], "size": 1, **spec}, cluster=control_plane, network=network)


core = pool("core", instance_types=["m5.large"], size=2, ssh_key_name=pair.key_name, s3_read_buckets=[weights.bucket]).placement()
pool("reserved", capacity_reservation_id=reservation.id)
pool("grouped", capacity_reservation_group_arn=group.arn)
pool("imaged", ami={"kind": "image_id", "id": image.id}, placement={"name": together.name})
cluster = ClusterAddons("addons", {}, cluster=control_plane, core=core)
receiver = {"kind": "sns", "topic_arn": topic.arn, "kms_key_arn": key.arn}
PrometheusStack("prometheus", {"receiver": receiver}, cluster=cluster, placement=core)
karpenter = Karpenter("karpenter", {"s3_read_buckets": [weights.bucket]}, cluster=cluster, placement=core, network=network)
nodes = {"instance_types": ["inf2.xlarge"], "cpu_limit": 10}
KarpenterPool("nodes", nodes, cluster=cluster, network=network, karpenter=karpenter)
