"""What is given once for a stack reaches everything it should."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from eks_inference.specs.settings import StackSettings
from variants import recorded_with

BOUNDARY = "arn:aws:iam::111122223333:policy/boundary"
KEY = "arn:aws:kms:us-west-2:111122223333:key/11111111-2222-3333-4444-555555555555"
MIRROR = "registry.corp.example"


def values_of(key: str, value: Any) -> Iterator[Any]:
    """Every value of a key anywhere inside."""
    if isinstance(value, dict):
        for name, item in value.items():
            if name == key:
                yield item
            yield from values_of(key, item)
    elif isinstance(value, list):
        for item in value:
            yield from values_of(key, item)


def chart_repositories(value: Any) -> Iterator[str]:
    """Repositories in chart values, which write them in one text or in two."""
    if isinstance(value, dict):
        if isinstance(value.get("repository"), str):
            yield "/".join(filter(None, (value.get("registry"), value["repository"])))
        for item in value.values():
            yield from chart_repositories(item)
    elif isinstance(value, list):
        for item in value:
            yield from chart_repositories(item)


@pytest.mark.thorough
def test_every_role_has_the_permissions_boundary():
    graph = recorded_with({"permissions_boundary_arn": BOUNDARY})
    roles = graph.of_type("aws:iam/role:Role")
    assert roles
    assert {role.inputs.get("permissionsBoundary") for role in roles} == {BOUNDARY}


@pytest.mark.thorough
def test_every_volume_and_the_clusters_secrets_use_the_key():
    graph = recorded_with({"kms_key_arn": KEY})
    (template,) = graph.of_type("aws:ec2/launchTemplate:LaunchTemplate")
    (storage,) = graph.of_type("kubernetes:storage.k8s.io/v1:StorageClass")
    (cluster,) = graph.of_type("eks:index:Cluster")
    assert [d["ebs"]["kmsKeyId"] for d in template.inputs["blockDeviceMappings"]] == [KEY]
    assert storage.inputs["parameters"]["kmsKeyId"] == KEY
    assert cluster.inputs["encryptionConfigKeyArn"] == KEY
    for node_class in graph.of_type("kubernetes:karpenter.k8s.aws/v1:EC2NodeClass"):
        assert [d["ebs"]["kmsKeyID"] for d in node_class.inputs["spec"]["blockDeviceMappings"]] == [KEY]


@pytest.mark.thorough
def test_every_image_and_chart_comes_from_the_mirrors():
    registries = (
        "public.ecr.aws",
        "quay.io",
        "ghcr.io",
        "docker.io",
        "registry.k8s.io",
        "https://ray-project.github.io/kuberay-helm",
    )
    server = {"vllm-llama3-inf2": {"image": "quay.io/team/vllm-ray-neuron:1"}}
    graph = recorded_with({"mirrors": dict.fromkeys(registries, MIRROR), "servers": server})
    documents = [r.inputs for r in graph.resources if r.package == "kubernetes"]
    images = [i for i in values_of("image", documents) if isinstance(i, str)]
    repositories = list(chart_repositories(documents))
    charts = [r.inputs for r in graph.of_type("kubernetes:helm.sh/v3:Release")]
    assert len(images) >= 5
    assert len(charts) == 4
    for reference in [*images, *repositories, *(chart["chart"] for chart in charts)]:
        assert reference.removeprefix("oci://").startswith(f"{MIRROR}/"), reference
    assert not [chart for chart in charts if "repositoryOpts" in chart]


@pytest.mark.thorough
def test_protection_covers_what_holds_everything_and_nothing_else():
    """The VPC, and what holds data: built images, compiled models, results, accounts, chats and logs."""
    graph = recorded_with({"protect": True})
    assert {r.type.rpartition(":")[2] for r in graph.resources if r.options.get("protect")} == {
        "Vpc",
        "Repository",
        "Bucket",
        "LogGroup",
        "PersistentVolumeClaim",
    }
    (cluster,) = graph.of_type("eks:index:Cluster")
    assert cluster.inputs["deletionProtection"] is True


@pytest.mark.thorough
def test_a_stack_without_servers_and_karpenter_makes_neither():
    pools = {"default": None, "inferentia-inf2": None, "trainium-trn1": None}
    types = {r.type for r in recorded_with({"servers": None, "clients": None, "load_test": None, "pools": pools}).resources}
    assert "eks-inference:index:ManagedPool" in types
    assert not types & {
        f"eks-inference:index:{name}" for name in ("Karpenter", "KarpenterPool", "KubeRayOperator", "RayServeVllm")
    }


def test_the_longest_mirror_wins():
    settings = StackSettings(region="us-west-2", mirrors={"public.ecr.aws": "a.example", "public.ecr.aws/neuron": "b.example/n"})
    assert settings.image("public.ecr.aws/neuron/plugin:1") == "b.example/n/plugin:1"
    assert settings.image("public.ecr.aws/karpenter/controller:1") == "a.example/karpenter/controller:1"
    assert settings.image("public.ecr.awsome/x:1") == "public.ecr.awsome/x:1"


@pytest.mark.parametrize(
    ("region", "partition"), [("us-west-2", "aws"), ("cn-north-1", "aws-cn"), ("us-gov-west-1", "aws-us-gov")]
)
def test_arns_are_of_the_regions_partition(region, partition):
    assert StackSettings(region=region).partition == partition


def test_no_arn_names_another_partition():
    text = json.dumps([r.inputs for r in recorded_with({}).resources])
    assert "arn:aws-" not in text
