"""What cannot work is refused at the key that has it, before anything is recorded: one row for each thing that was accepted once.

Every command reads a stack file this way and ends with exit code 2 when there is a fault (``test_bad_input.py``).
"""

import copy
import json
from functools import cache
from typing import Any

import pytest
import yaml

from conftest import ROOT
from eks_inference.faults import SpecError, format_path
from eks_inference.stack.check import check_spec
from eks_inference.stack.reading import parse_stack
from variants import merge

GPU, RAY, PAIR = "gpu-opt350m", "inf2-llama3", "trn2-di-pair"
RAY_SERVER = "servers.vllm-llama3-inf2"

Row = tuple[str, str, Any, str]
"""Stack; key; value; part of the report, or an empty text where the value is taken."""


def shown(row: Row) -> str:
    return f"{row[1]}={json.dumps(row[2])[:60]}"


NAMESPACES: list[Row] = [
    *((RAY, f"{RAY_SERVER}.namespace", name, "belongs to Kubernetes") for name in ("kube-system", "default", "kube-x")),
    (RAY, f"{RAY_SERVER}.namespace", "amazon-cloudwatch", "this namespace is taken"),
    (RAY, "observability.fluent_bit.namespace", "monitoring-nodes", "this namespace is taken"),
    (RAY, "observability.prometheus.namespace", "kube-system", "belongs to Kubernetes"),
    (RAY, "kuberay.namespace", "default", "belongs to Kubernetes"),
    (GPU, "observability.fluent_bit.namespace", "kube-public", "belongs to Kubernetes"),
    (GPU, "servers.triton-server.namespace", "amazon-cloudwatch", ""),
]


@pytest.mark.parametrize("row", [*NAMESPACES], ids=shown)
def test_a_value_that_cannot_work_is_refused_at_its_key(row: Row):
    stack, key, value, says = row
    said = [fault.render() for fault in faults(stack, key, value) if format_path(fault.path) == key]
    assert any(says in text for text in said) if says else not said, said


def faults(stack: str, key: str, value: Any) -> Any:
    """Returns what is wrong with a shipped stack in which a key has another value."""
    region, spec = shipped(stack)
    spec = copy.deepcopy(spec)
    change = value
    for part in reversed(key.split(".")):
        change = {part: change}
    merge(spec, change)
    try:
        return check_spec(parse_stack(json.dumps(spec)), region).faults
    except SpecError as error:
        return error.faults


@cache
def shipped(stack: str) -> tuple[str, dict[str, Any]]:
    config = yaml.safe_load((ROOT / f"stacks/Pulumi.{stack}.yaml").read_text())["config"]
    return config["aws:region"], config["eks-inference:stack"]
