"""The four source documents: their configurations pass, and what is wrong in them, or wrong today, is caught."""

import copy
import json
from typing import Any

import pytest
import yaml

from conftest import ROOT
from eks_inference.faults import SpecError
from eks_inference.stack.reading import parse_stack
from eks_inference.stack.registry import Verdict, check_spec
from golden import assert_golden

SOURCES = ("inf2-llama2", "inf2-llama3", "gpu-opt350m", "trn2-di", "trn2-di-pair")


def configuration(stack: str) -> dict[str, Any]:
    """The configuration of a source's stack file."""
    return yaml.safe_load((ROOT / "stacks" / f"Pulumi.{stack}.yaml").read_text())["config"]


def verdict(stack: str, **changes: Any) -> Verdict:
    """What the rules say of a source's configuration, changed: ``servers__llama__devices=32`` sets a key below others."""
    config = copy.deepcopy(configuration(stack))
    spec = config["eks-inference:stack"]
    for path, value in changes.items():
        *above, last = path.split("__")
        place = spec
        for key in above:
            place = place[key.replace("_", "-") if key.replace("_", "-") in place else key]
        if value is None:
            place.pop(last, None)
        else:
            place[last] = value
    return check_spec(parse_stack(json.dumps(spec)), config["aws:region"])


def broken(found: Verdict) -> dict[str, str]:
    """The worst that each broken rule says."""
    return {finding.rule.id: finding.severity for finding in reversed(found.findings)}


@pytest.mark.parametrize("stack", SOURCES)
def test_a_source_configuration_passes(stack: str):
    found = verdict(stack)
    assert found.faults == ()
    assert len({rule.id for rule, _ in found.judgements}) > 20, "the rules did look at it"


def test_three_servers_of_four_devices_fill_the_node_and_a_fourth_does_not_fit():
    servers = configuration("inf2-llama2")["eks-inference:stack"]["servers"]
    assert [server["devices"] for server in servers.values()] == [4, 4, 4]
    assert broken(verdict("inf2-llama2", servers={**servers, "llama2-d": servers["llama2-a"]}))["CAP001"] == "error"


def test_half_the_batch_of_8192_tokens_fits_though_the_model_was_made_for_fewer():
    form = {"servers__llama2_a__max_model_len": 8192, "servers__llama2_a__max_num_seqs": 12}
    assert broken(verdict("inf2-llama2", **form))["SRV002"] == "error"
    longer = {"servers__llama2_a__extra_env": {"VLLM_ALLOW_LONG_MAX_MODEL_LEN": "1"}}
    found = broken(verdict("inf2-llama2", **form, **longer))
    assert "NEU008" not in found
    assert found["SRV002"] == "warning"


def test_more_replicas_than_gpus_are_warned_of():
    found = verdict("gpu-opt350m", servers__triton_server__autoscaling={"kind": "hpa", "min": 1, "max": 5})
    assert broken(found)["CAP001"] == "warning"


# What each mistake of the sources is answered with, for the documents.
MISTAKES: dict[str, tuple[str, dict[str, Any]]] = {
    "8192 tokens with the batch of 4096 on four devices": ("inf2-llama2", {"servers__llama2_a__max_model_len": 8192}),
    "Twelve devices for tensor parallel 2": (
        "inf2-llama3",
        {
            "servers__vllm_llama3_inf2__worker": {"pool": "inferentia-inf2", "instance_type": "inf2.48xlarge", "devices": 12},
            "servers__vllm_llama3_inf2__replicas": {"max": 1},
        },
    ),
    "Tensor parallel 24": (
        "inf2-llama3",
        {
            "servers__vllm_llama3_inf2__worker": {"pool": "inferentia-inf2", "instance_type": "inf2.48xlarge", "devices": 12},
            "servers__vllm_llama3_inf2__tensor_parallel": 24,
        },
    ),
    "A startup probe of two minutes": ("gpu-opt350m", {"servers__triton_server__startup_timeout_seconds": 120}),
    "Amazon Linux 2 on Kubernetes 1.35": ("inf2-llama2", {"pools__neuron__ami": "AL2_x86_64_GPU"}),
    "Disaggregated servers without EFA": ("trn2-di", {"pools__trn2__efa": None}),
    "32 devices on a node of 16": (
        "trn2-di",
        {
            "servers": {
                "llama": {
                    "kind": "vllm",
                    "model": {"id": "meta-llama/Llama-3.3-70B-Instruct"},
                    "engine": "neuron-2.32-vllm-0.24",
                    "pool": "trn2",
                    "devices": 32,
                    "tensor_parallel": 32,
                    "max_model_len": 8192,
                    "max_num_seqs": 4,
                }
            },
            "load_test": None,
        },
    ),
}


def test_the_documents_show_what_each_mistake_is_answered_with():
    parts = [
        "# What is refused\n\nMistakes in the documents that the stacks follow, or settings that have become mistakes since,"
        " and what `eks-inference check` says of each. Made by a test."
    ]
    for title, (stack, changes) in MISTAKES.items():
        try:
            said = [(finding.severity, finding.fault) for finding in verdict(stack, **changes).findings if not finding.reason]
        except SpecError as refusal:
            said = [("error", fault) for fault in refusal.faults]
        before = {(finding.rule.id, finding.judgement.message) for finding in verdict(stack).findings}
        said = [(severity, fault) for severity, fault in said if (fault.rule, fault.message) not in before]
        assert said, title
        text = "\n".join(f"{severity}: {fault.render()}" for severity, fault in said)
        parts.append(f"## {title}\n\nIn `{stack}`:\n\n```text\n{text}\n```")
    assert_golden("../../docs/refusals.md", "\n\n".join(parts))
