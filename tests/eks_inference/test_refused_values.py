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
"""Stack; key, and after an arrow the key that is reported if it is another; value; part of the report, or an empty text where the
value is taken."""


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

KUBELET: list[Row] = [
    (GPU, "pools.gpu.kubelet.maxPods", 5, "0 pods of g4dn.xlarge remain"),
    (GPU, "pools.gpu.kubelet.maxPods", -1, "greater than or equal to 1"),
    (GPU, "pools.gpu.kubelet.podsPerCore", 1, "0 pods of g4dn.xlarge remain"),
    (GPU, "pools.gpu.kubelet.evictionHard", {"memory.available": "99%"}, "0 MiB of memory of g4dn.xlarge remain"),
    (GPU, "pools.gpu.kubelet.evictionHard", {"memory.available": "5%"}, ""),
    (GPU, "pools.gpu.kubelet.kubeReserved", {"cpu": "4"}, "0 millicores of CPU of g4dn.xlarge remain"),
    # What the kubelet keeps, the servers of the pool lack.
    (GPU, "pools.gpu.kubelet.systemReserved -> servers.triton-server.cpu", {"cpu": "3500m"}, "no g4dn.xlarge has 3 CPU"),
    (GPU, "pools.gpu.kubelet.evictionHard -> servers.triton-server.memory", {"memory.available": "90%"}, "has 12 GiB"),
    (GPU, "pools.gpu.kubelet.authentication", {"anonymous": {"enabled": True}}, "unknown key"),
    (GPU, "pools.gpu.kubelet.authorization", {"mode": "AlwaysAllow"}, "unknown key"),
    (GPU, "pools.gpu.kubelet.evictionSoft -> pools.gpu.kubelet", {"memory.available": "1Gi"}, "the same signals"),
    (GPU, "pools.gpu.kubelet.imageGCLowThresholdPercent -> pools.gpu.kubelet", 90, "is below imageGCHighThresholdPercent"),
    (GPU, "pools.gpu.kubelet.maxParallelImagePulls -> pools.gpu.kubelet", 4, "only if serializeImagePulls is false"),
    (RAY, "pools.default.kubelet.nope", 3, "unknown key"),
    # Karpenter has no such field.
    (RAY, "pools.default.kubelet.registryPullQPS", 3, "unknown key"),
]


@pytest.mark.parametrize("row", [*NAMESPACES, *KUBELET], ids=shown)
def test_a_value_that_cannot_work_is_refused_at_its_key(row: Row):
    stack, keys, value, says = row
    key, _, reported = keys.partition(" -> ")
    said = [fault.render() for fault in faults(stack, key, value) if format_path(fault.path) == (reported or key)]
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
