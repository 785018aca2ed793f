"""What holds for every shipped stack."""

import json

import pytest

from cases import thorough_but
from conftest import ROOT, STACKS, recorded
from eks_inference.stack.schema import stack_file_schema
from golden import assert_golden
from graphs import kubernetes
from stackgraph.recorder.symbols import resource_class


@pytest.mark.parametrize("stack", thorough_but(STACKS[::4], STACKS))
def test_strict_changes_only_what_is_unknown(stack):
    """Names such as <net-vpc.id> decorate the graph; they add no resource and no edge to it."""
    symbolic, strict = recorded(stack), recorded(stack, strict=True)
    assert [r.urn for r in symbolic.resources] == [r.urn for r in strict.resources]
    for ours, engines in zip(symbolic.resources, strict.resources, strict=True):
        assert ours.dependencies == engines.dependencies
        assert ours.property_dependencies == engines.property_dependencies
        assert ours.options == engines.options


def test_every_kubernetes_object_sits_on_the_clusters_own_provider(shipped):
    providers = {resource.provider for resource in kubernetes(shipped)}
    assert len(providers) == 1
    assert not shipped.by_urn[providers.pop()].is_default_provider


def test_tags_of_the_stack_reach_every_aws_resource_that_has_tags(shipped):
    """Also the instances, volumes and interfaces that launch templates and Karpenter make."""
    wanted = {"project": "eks-inference"}
    for resource in shipped.resources:
        cls = resource_class(resource.type)
        if resource.package != "aws" or not resource.custom or cls is None or not hasattr(cls, "tags"):
            continue
        assert wanted.items() <= resource.inputs.get("tags", {}).items(), resource.urn
    for template in shipped.of_type("aws:ec2/launchTemplate:LaunchTemplate"):
        tagged = {spec["resourceType"]: spec["tags"] for spec in template.inputs["tagSpecifications"]}
        assert set(tagged) >= {"instance", "volume", "network-interface"}
        assert all(wanted.items() <= tags.items() for tags in tagged.values())
    for node_class in shipped.of_type("kubernetes:karpenter.k8s.aws/v1:EC2NodeClass"):
        assert wanted.items() <= node_class.inputs["spec"]["tags"].items()


def test_nothing_is_unpinned(shipped):
    text = json.dumps(shipped.document())
    assert ":latest" not in text
    for release in shipped.of_type("kubernetes:helm.sh/v3:Release"):
        assert release.inputs["version"][0].isdigit(), release.urn


def test_stack_files_hold_no_secret_and_no_salt():
    for stack in STACKS:
        text = (ROOT / "stacks" / f"Pulumi.{stack}.yaml").read_text()
        assert "secure:" not in text
        assert "encryptionsalt" not in text
        assert text.startswith("# yaml-language-server: $schema=schema.json\n")


def test_the_schema_editors_use_is_the_current_one():
    assert_golden("../../stacks/schema.json", json.dumps(stack_file_schema(), indent=2, ensure_ascii=False))
