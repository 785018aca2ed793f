"""A capacity block that the same program buys, on a cluster that is known by its name."""

import pulumi_aws as aws

from eks_inference import ExistingCluster, ExistingVpc, ManagedPool, StackSettings, Subnet

network = ExistingVpc("vpc-0a1b2c3d4e5f60718", [Subnet("usw2-az4", "subnet-0a1b2c3d4e5f60718")])
cluster = ExistingCluster.from_aws("platform", version="1.35", settings=StackSettings(), network=network)
block = aws.ec2.CapacityBlockReservation(
    "block", capacity_block_offering_id="cbo-0a1b2c3d4e5f60718", instance_platform="Linux/UNIX"
)
ManagedPool(
    "trn2",
    {
        "instance_types": ["trn2.48xlarge"],
        "size": 1,
        "capacity_type": "capacity_block",
        "capacity_reservation_id": block.id,
        "zone_ids": ["usw2-az4"],
    },
    cluster=cluster,
    network=network,
)
