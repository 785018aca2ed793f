"""A server under a new name: with ``renamed_from`` the engine replaces what it had, in order, and keeps what holds data."""

import json
import re
from typing import Any

import pytest

from conftest import PROJECT, STACKS
from eks_inference.faults import SpecError
from eks_inference.stack.reading import parse_stack
from stackgraph.diff.graphs import StackDiff, compare
from variants import recorded_with

HOLDS_DATA = ("aws:efs/fileSystem:FileSystem", "aws:fsx/lustreFileSystem:LustreFileSystem", "aws:s3/bucket:Bucket")
HOLDS_DEVICES = re.compile(r"((?<!-router)-deployment|-rayservice|-servers)$")


def renamed(stack: str, *, told: bool, **keys: Any) -> StackDiff:
    """What changes when every server of a stack is called ``<name>-x``. Clients that name a server follow.

    ``keys`` are set before and after.
    """
    spec = json.loads(PROJECT.config(PROJECT.stack_file(stack)).values["eks-inference:stack"])
    for server in spec["servers"].values():
        server.update(keys)
    old = dict.fromkeys(spec["servers"])
    names = {name: {"renamed_from": name} if told else {} for name in old}
    new = {f"{name}-x": {**spec["servers"][name], **names[name]} for name in old}
    section: dict[str, Any] = {"servers": {**old, **new}}
    if measured := spec.get("load_test", {}).get("servers"):
        section["load_test"] = {"servers": [f"{name}-x" for name in measured]}
    return compare(recorded_with({"servers": spec["servers"]}, stack), recorded_with(section, stack))


@pytest.mark.thorough
@pytest.mark.parametrize(("stack", "keys"), [*((stack, {}) for stack in STACKS), ("inf2-llama2", {"store": {}})])
def test_a_renamed_server_keeps_its_resources(stack: str, keys: dict[str, Any]) -> None:
    diff = renamed(stack, told=True, **keys)
    clients = ("smoke-test", "image-build")
    lost = [change.resource.name for change in diff.changes if change.kind == "delete" and change.counts]
    assert [name for name in lost if not any(part in name for part in clients)] == []
    assert not [one.resource.name for one in diff.changes if one.resource.type in HOLDS_DATA and one.kind == "replace"]
    workloads = [one.resource for one in diff.changes if one.kind == "replace" and HOLDS_DEVICES.search(one.resource.name)]
    assert workloads
    assert all(workload.options["deleteBeforeReplace"] for workload in workloads)


@pytest.mark.thorough
def test_without_the_old_name_the_engine_sees_two_servers() -> None:
    kinds = {one.kind for one in renamed("gpu-opt350m", told=False).changes if one.resource.type == "aws:s3/bucket:Bucket"}
    assert kinds == {"create", "delete"}


def test_a_server_that_is_still_there_was_not_renamed() -> None:
    spec = json.loads(PROJECT.config(PROJECT.stack_file("gpu-opt350m")).values["eks-inference:stack"])
    spec["servers"]["triton-server"]["renamed_from"] = "triton-server"
    with pytest.raises(SpecError, match=r"servers\.triton-server\.renamed_from: this server is still in the stack"):
        parse_stack(json.dumps(spec))


def test_only_one_server_can_have_had_a_name() -> None:
    spec = json.loads(PROJECT.config(PROJECT.stack_file("inf2-llama2")).values["eks-inference:stack"])
    for server in spec["servers"].values():
        server["renamed_from"] = "llama2"
    with pytest.raises(SpecError, match=r"servers\.llama2-b\.renamed_from: only one server can have had this name"):
        parse_stack(json.dumps(spec))
