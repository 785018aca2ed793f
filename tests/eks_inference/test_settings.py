"""What is given once for a stack reaches everything it should."""

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from conftest import PROJECT, recorded
from eks_inference.specs.settings import StackSettings
from graphs import kind
from stackgraph.graph.document import Graph
from variants import recorded_with

BOUNDARY = "arn:aws:iam::111122223333:policy/boundary"
KEY = "key/11111111-2222-3333-4444-555555555555"
MIRROR = "registry.corp.example"
RELEASE = "kubernetes:helm.sh/v3:Release"


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


STACKS = ("inf2-llama3", "inf2-llama2", "gpu-opt350m", "trn2-di-pair")
"""Stacks that together have most components."""


@cache
def settled(stack: str) -> Graph:
    """The stack with every setting that reaches all of it."""
    images = (*values_of("image", objects(recorded(stack))), *chart_repositories(objects(recorded(stack))))
    hosts = {image.partition("/")[0] for image in images if isinstance(image, str)}
    registries = {host for host in hosts if "." in host and "<" not in host}
    charts = {release.inputs.get("repositoryOpts", {}).get("repo") for release in recorded(stack).of_type(RELEASE)} - {None}
    region = PROJECT.config(PROJECT.stack_file(stack)).values["aws:region"]
    settings = {
        "permissions_boundary_arn": BOUNDARY,
        "kms_key_arn": f"arn:aws:kms:{region}:111122223333:{KEY}",
        "protect": True,
        "tags": {"team": "x"},
    }
    return recorded_with({**settings, "mirrors": dict.fromkeys((*registries, "ghcr.io", *charts), MIRROR)}, stack)


def objects(graph: Graph) -> list[Any]:
    return [resource.inputs for resource in graph.resources if resource.package == "kubernetes"]


@pytest.mark.thorough
@pytest.mark.parametrize("stack", STACKS)
def test_every_role_has_the_permissions_boundary(stack: str):
    roles = settled(stack).of_type("aws:iam/role:Role")
    assert roles
    assert {role.inputs.get("permissionsBoundary") for role in roles} == {BOUNDARY}


ENCRYPTED = {
    *("BucketServerSideEncryptionConfiguration", "Cluster", "EC2NodeClass", "FileSystem", "LaunchTemplate", "Repository"),
    "StorageClass",
}


@pytest.mark.thorough
def test_whatever_is_encrypted_is_so_with_the_key():
    resources = [resource for stack in STACKS for resource in settled(stack).resources if resource.custom or resource.remote]
    with_key = [resource for resource in resources if KEY in json.dumps(resource.inputs)]
    assert {kind(resource) for resource in with_key} - {"RolePolicy"} == ENCRYPTED
    assert [resource.name for resource in resources if kind(resource) in ENCRYPTED and resource not in with_key] == []
    kinds = [kind(resource) for resource in resources]
    assert kinds.count("BucketServerSideEncryptionConfiguration") == kinds.count("Bucket")


@pytest.mark.thorough
@pytest.mark.parametrize("stack", STACKS)
def test_every_image_and_chart_comes_from_the_mirrors(stack: str):
    documents, charts = objects(settled(stack)), [r.inputs for r in settled(stack).of_type(RELEASE)]
    images = [i for i in values_of("image", documents) if isinstance(i, str)]
    assert len(images) >= 5
    for reference in [*images, *chart_repositories(documents), *(chart["chart"] for chart in charts)]:
        # Of an image that is built in the cluster, the address is that of its repository.
        assert reference.removeprefix("oci://").startswith((f"{MIRROR}/", "<")), reference
    assert not [chart for chart in charts if "repositoryOpts" in chart]


HOLDING = {"Bucket", "FileSystem", "LogGroup", "PersistentVolumeClaim", "Repository", "Vpc"}
"""The VPC, which holds everything, and what holds data: built images, compiled models, results, accounts, chats and logs."""


@pytest.mark.thorough
def test_protection_covers_what_holds_everything_and_nothing_else():
    resources = [resource for stack in STACKS for resource in settled(stack).resources]
    assert {kind(resource) for resource in resources if resource.options.get("protect")} == HOLDING
    bare = [one.name for one in resources if one.custom and kind(one) in HOLDING and not one.options.get("protect")]
    assert bare == ["llama3-70b-store-claim"], "the data is in its file system"
    clusters = [resource for resource in resources if resource.type == "eks:index:Cluster"]
    assert all(cluster.inputs["deletionProtection"] is True for cluster in clusters)


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
