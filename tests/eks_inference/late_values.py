"""A program that gives an Output of its own resources to every field of a spec that takes one."""

import pulumi_aws as aws

from eks_inference import (
    ClusterAddons,
    EksCluster,
    Gateway,
    Karpenter,
    KarpenterPool,
    LoadBalancerController,
    ManagedPool,
    ModelEndpoint,
    PrometheusStack,
    StackSettings,
    VllmServer,
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
certificate = aws.acm.Certificate("certificate", domain_name="models.example.com", validation_method="DNS")
zone = aws.route53.Zone("zone", name="example.com")
# In place of a WebAcl: a type checker reads the 5 MB of wafv2 for ten seconds.
firewall = aws.ssm.Parameter(
    "firewall", type="String", value="arn:aws:wafv2:us-west-2:123456789012:regional/webacl/chat/a1b2c3d4"
)

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
serving = {"model": {"id": "facebook/opt-350m"}, "engine": "cuda-vllm-0.30", "pool": "gpu", "tensor_parallel": 1}
gpus = pool("gpu", instance_types=["g5.xlarge"]).placement()
server = VllmServer("opt", {**serving, "max_num_seqs": 32, "max_model_len": 2048}, cluster=cluster, placement=gpus)
endpoint = ModelEndpoint("chat", {"keys": False}, cluster=cluster, placement=core, servers={"opt": server})
balancers = LoadBalancerController("balancers", {}, cluster=cluster, network=network, placement=core)
names = {"host": "models.example.com", "certificate_arn": certificate.arn, "hosted_zone_id": zone.zone_id}
front = {**names, "web_acl_arn": firewall.value}
Gateway("models", front, cluster=cluster, network=network, controller=balancers, targets={"chat": endpoint})
