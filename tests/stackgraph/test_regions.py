"""A provider that turns to another region replaces the resources that are in one."""

import re
from pathlib import Path

import pulumi_aws
import pytest

from stackgraph.diff.graphs import compare
from stackgraph.diff.regions import is_regional
from stackgraph.graph.document import Graph
from stackgraph.recorder.recording import record

PROGRAM = """
import pulumi, pulumi_aws as aws
aws.s3.Bucket("default")
aws.s3.Bucket("named", region="us-east-1")
aws.iam.Role("global", assume_role_policy="{}")
"""


def graph(folder: Path, region: str) -> Graph:
    (folder / "__main__.py").write_text(PROGRAM)
    return record(folder, project="shop", stack="prod", config={"aws:region": region} if region else {})


@pytest.mark.parametrize(("old", "new"), [("eu-west-1", "us-east-1"), ("us-east-1", "eu-west-1")])
def test_another_region_in_the_configuration_replaces_what_is_in_it(old: str, new: str, tmp_path: Path) -> None:
    diff = compare(graph(tmp_path, old), graph(tmp_path, new))
    kinds = {change.resource.name: change.kind for change in diff.changes if change.counts}
    assert kinds == {"default": "replace", "named": "same", "global": "same"}
    (change,) = diff.of_kind("replace")
    assert change.because == (f"region {old} → {new}",)


@pytest.mark.parametrize(("old", "new"), [("", "us-east-1"), ("eu-west-1", ""), ("eu-west-1", "eu-west-1")])
def test_a_region_of_the_environment_or_the_same_is_no_replacement(old: str, new: str, tmp_path: Path) -> None:
    assert not compare(graph(tmp_path, old), graph(tmp_path, new)).of_kind("replace")


def test_the_types_without_a_region_are_those_of_the_sdk() -> None:
    found = {}
    for file in Path(pulumi_aws.__file__).parent.rglob("*.py"):
        source = "" if file.name.startswith(("_", "get_")) else file.read_text(encoding="utf-8")
        if type_ := re.search(r"super\(\w+, __self__\).__init__\(\s*'(aws:[^']+)'", source):
            arguments = source.split("class ", 2)[1].split("def __init__(__self__, *,", 1)[-1].split("):", 1)[0]
            found[type_[1]] = re.search(r"\bregion: ", arguments) is not None
    wrong = [type_ for type_, regional in found.items() if is_regional(type_) is not regional]
    assert len(found) > 1500
    assert wrong == []
