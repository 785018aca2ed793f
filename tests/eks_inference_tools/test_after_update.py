"""What follows an update: the table knows every property that a stack renders, and ``diff`` says what edits of stacks do next."""

import copy
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from conftest import STACKS, recorded
from covering_graphs import covering_graphs
from eks_inference_tools.comparison import eks_compared
from eks_inference_tools.reading.after_update import rows
from stackgraph.diff import replacements
from stackgraph.diff.comparing import Path
from stackgraph.diff.contents import by_subject
from stackgraph.diff.dangers import dangers
from stackgraph.diff.graphs import compare
from stackgraph.graph.document import Graph
from variants import merge, recorded_with


def properties(graph: Graph) -> Iterator[tuple[str, Path]]:
    """Each property of each type, those of a ``spec`` one by one."""
    for one in graph.resources:
        for key, value in one.inputs.items() if one.custom or one.remote else ():
            below = value if key == "spec" and isinstance(value, dict) and one.package == "kubernetes" else {}
            yield from ((one.type, (key, *deeper)) for deeper in ([(name,) for name in below] or [()]))


def unknown(graphs: list[Graph]) -> set[str]:
    found = {pair for graph in graphs for pair in properties(graph)}
    return {f"{type_} {'.'.join(map(str, path))}" for type_, path in found if not is_known(type_, path)}


def is_known(type_: str, path: Path) -> bool:
    """Whether a row names it, the API takes it for its identity, or the provider's schema tells that an update is in place."""
    replaced = any(replacements.covers(one, path) for row in replacements.rows(type_) for one in row.replace)
    in_place = not type_.startswith("kubernetes:") and replacements.is_known(type_)
    return path[0] in ("apiVersion", "kind") or replaced or in_place or any(row.named(type_, path) is not None for row in rows())


def test_every_property_of_the_shipped_stacks_has_a_row():
    assert not unknown([recorded(stack) for stack in STACKS[:3]])


@pytest.mark.thorough
def test_every_property_that_a_stack_can_have_has_a_row():
    assert not unknown([*map(recorded, STACKS), *covering_graphs().values()])


def test_every_row_says_where_it_is_from():
    assert all(row.source and (row.says or row.then not in ("refused", "ignored")) for row in rows())


RAY, NEURON = "vllm-llama3-inf2", "inferentia-inf2"
STATIC = {
    "instance_families": None,
    "instance_types": ["m5.xlarge"],
    "replicas": 2,
    "node_limit": 3,
    "weight": None,
    "capacity_types": ["on_demand"],
}
OPEN_WEBUI = {"clients": {"open_webui": {"volume_gib": 20}}}
EDITS: Sequence[tuple[str, Mapping[str, Any], Mapping[str, Any], Sequence[str]]] = [
    # A server with one pod and no room: the pod ends first.
    ("smoke-gpu", {}, {"servers": {"qwen3": {"max_num_seqs": 128}}}, ["qwen3 answers nothing .* its only pod ends before"]),
    ("smoke-gpu", {}, {"servers": {"qwen3": {"surge": 1}}}, []),
    ("smoke-gpu", {"servers": {"qwen3": {"surge": 1}}}, {"servers": {"qwen3": {"max_num_seqs": 128}}}, []),
    ("smoke-gpu", {}, {"pools": {"gpu": {"max_unavailable": 1, "node_repair": True}}}, []),
    ("smoke-gpu", {}, {"cluster": {"endpoint": {"public_access_cidrs": ["203.0.113.0/24"]}}}, []),
    ("smoke-gpu", {}, {"servers": {"qwen3": {"extra_env": {"VLLM_LOGGING_LEVEL": "DEBUG"}}}}, ["qwen3 answers nothing"]),
    ("smoke-gpu", {}, {"clients": {"smoke_test": {"run": "again"}}}, ["Job .* runs again"]),
    (
        "inf2-llama2",
        {},
        {"servers": {"llama2-a": {"extra_env": {"NEURON_RT_LOG_LEVEL": "ERROR"}}}},
        ["llama2-a answers.*and loaded$"],
    ),
    (
        "trn2-di",
        {},
        {"servers": {"llama3-70b": {"max_num_seqs": 2}}},
        [
            ".* answers nothing .* ends before",
            "Job .*answers.* runs again",
            "Job .*compile.* runs again",
            "ConfigMap .* are replaced",
        ],
    ),
    # Nodes of a managed pool: those of accelerators end first, those of the core pool last.
    (
        "smoke-gpu",
        {},
        {"tags": {"team": "ml"}},
        [
            "qwen3 answers nothing .* with its node of smoke-gpu-gpu-nodes before its successor has got a node, pulled",
            "nodes of smoke-gpu-core-nodes are replaced, 1 at a time, each after .*launch template",
            "nodes of smoke-gpu-gpu-nodes are replaced, 1 at a time, each before .*launch template",
        ],
    ),
    ("smoke-gpu", {}, {"pools": {"gpu": {"extra_labels": {"team": "ml"}}}}, []),
    # Nodes of Karpenter: what its hash holds, and what a node still satisfies.
    *(
        (
            "inf2-llama3",
            {},
            {"pools": {NEURON: edit}},
            [f"{RAY} answers nothing", f"nodes of {NEURON} drift.*10% at a time.*{why}"],
        )
        for edit, why in (
            ({"root_volume_gib": 600}, "volumeSize"),
            ({"extra_labels": {"a": "b"}}, "labels"),
            ({"expire_after": "240h"}, "expireAfter"),
        )
    ),
    ("inf2-llama3", {}, {"pools": {NEURON: {"consolidate_after": "600s", "weight": 90}}}, []),
    ("inf2-llama3", {}, {"pools": {"default": {"instance_families": ["c5", "m5", "r5", "m6i"]}}}, []),
    ("inf2-llama3", {}, {"pools": {"default": {"instance_families": ["c5", "m5"]}}}, ["nodes of default drift.*requirements"]),
    # Ray: in place, beside, or not at all.
    ("inf2-llama3", {}, {"servers": {RAY: {"max_num_seqs": 16}}}, [f"{RAY} answers nothing .* its only replica ends"]),
    ("inf2-llama3", {}, {"servers": {RAY: {"worker": {"memory": "100G"}}}}, ["RayService vllm/.*: upgrade none: pods keep"]),
    (
        "inf2-llama3",
        {"servers": {RAY: {"upgrade": "new_cluster"}}},
        {"servers": {RAY: {"max_num_seqs": 16, "worker": {"memory": "100G"}}}},
        [],
    ),
    (
        "inf2-llama3",
        {},
        {"servers": {RAY: {"worker": {"max": 4}}}},
        ["Job loadtest/.* runs again", "ConfigMap loadtest/", "RayService vllm/.* does not get another .*[*].maxReplicas"],
    ),
    # An autoscaler that allows fewer pods, and a server that gets none.
    (
        "gpu-opt350m",
        {},
        {"servers": {"triton-server": {"autoscaling": {"kind": "hpa", "min": 1, "max": 2, "target": 10}}}},
        ["HorizontalPodAutoscaler .*: pods above 2 end at once"],
    ),
    # A pool of fixed size that Karpenter keeps has to have room for a successor.
    *(
        (
            "inf2-llama3",
            {"pools": {"default": STATIC}, "karpenter": {"static_capacity": True}},
            {"pools": {"default": {"root_volume_gib": 300, "node_limit": limit}}},
            [f"nodes of default drift.*{said}"],
        )
        for limit, said in ((2, "stay as they are: limits.nodes 2"), (3, "10% at a time"))
    ),
    # Claims.
    (
        "gpu-opt350m",
        {},
        {"observability": {"prometheus": {"volume_gib": 100}}},
        ["Release .*: the claim that exists stays at 50Gi: patch it to 100Gi first"],
    ),
    (
        "smoke-gpu",
        OPEN_WEBUI,
        {"clients": {"open_webui": {"volume_gib": 10}}},
        ["PersistentVolumeClaim .* smaller claim .20Gi → 10Gi"],
    ),
    ("smoke-gpu", OPEN_WEBUI, {"clients": {"open_webui": {"volume_gib": 40}}}, []),
    # A server that goes.
    ("inf2-llama2", {}, {"servers": {"llama2-c": None}}, ["llama2-c is removed", "s3.Bucket", "Namespace", "PodMonitor"]),
    # The control plane.
    (
        "smoke-inf2",
        {},
        {"cluster": {"version": "1.36"}},
        [".* answers nothing .* with its node", "cluster .* 1.36 for good", "nodes of smoke-inf2-.*", "nodes of smoke-inf2-.*"],
    ),
    # The Ray head is on the core pool.
    *(
        (
            "inf2-llama3",
            {"servers": {RAY: has}},
            {"pools": {"core": edit}},
            [f"{RAY} .* with the Ray head", said, *more],
        )
        for has, edit, said, more in (
            ({}, {"root_volume_gib": 200}, "nodes of inf2-llama3-core-nodes are replaced, 1", []),
            ({"replicas": {"min": 2}}, {"root_volume_gib": 200}, "nodes of inf2-llama3-core-nodes are replaced, 1", []),
            (
                {},
                {"instance_types": ["m5.4xlarge"]},
                "nodes of inf2-llama3-core-nodes are replaced",
                ["pool core"],
            ),
        )
    ),
    (
        "inf2-llama3",
        {},
        {"cluster": {"version": "1.36"}},
        [
            f"{RAY} answers nothing .* with its node of {NEURON}",
            "cluster .* 1.36 for good",
            "nodes of inf2-llama3-core-nodes",
            *(f"nodes of {name} drift.*AMI of the cluster's new version" for name in ("default", NEURON, "trainium-trn1")),
        ],
    ),
]
"""Stack, what it has before, an edit, and what a reviewer has to see of it, worst first: written before ``diff`` was asked."""
_FIRST = (9, 11, 25)
"""Tags on a managed pool, a disk on one of Karpenter's, a claim that shrinks."""


@pytest.mark.parametrize(
    ("stack", "has", "edit", "said"),
    [pytest.param(*row, marks=() if place in _FIRST else pytest.mark.thorough) for place, row in enumerate(EDITS)],
)
def test_diff_says_what_an_edit_does_next(stack: str, has: Mapping[str, Any], edit: Mapping[str, Any], said: Sequence[str]):
    after = copy.deepcopy(dict(has))
    merge(after, dict(edit))
    diff = compare(recorded_with(dict(has), stack), recorded_with(after, stack))
    found = by_subject((one.subject, one.what) for one in dangers(diff, eks_compared()))
    assert diff.changed
    assert len(found) == len(said), found
    assert all(re.match(pattern, line) for pattern, line in zip(said, found, strict=True)), found
