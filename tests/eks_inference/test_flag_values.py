"""Which kernels compute fp8 weights on GPUs: what servers render, and what is said of a user's own choice.

Releases 0.29 and 0.30 of vLLM select a kernel of CUTLASS below compute capability 8.9, which fails there; Marlin's works.
"""

import json
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from eks_inference.catalog.engines import EngineProfile, engine
from eks_inference.catalog.instances import instance_type, instance_types
from eks_inference.catalog.models import model
from eks_inference.catalog.quantization import METHODS, Quantization, quantization
from eks_inference.catalog.vllm_arguments import vllm_releases
from eks_inference.place.placement import Placement
from eks_inference.rules import Judgement
from eks_inference.serving import flag_values, shape
from eks_inference.serving.facts import ServingFacts
from eks_inference.serving.rules.engine_features import flags_go_together
from eks_inference.serving.rules.gpu_arithmetic import gpu_has_a_kernel
from eks_inference.serving.triton import plan as triton_plan
from eks_inference.serving.triton.rules import serving_facts as triton_facts
from eks_inference.serving.triton.spec import TritonServerSpec
from eks_inference.serving.vllm.facts import serving_facts as vllm_facts
from eks_inference.serving.vllm.spec import VllmServerSpec
from eks_inference.stack.reading import parse_stack
from eks_inference.stack.registry import check_spec
from eks_inference_tools.fitting.trials import Trial
from open_stacks import minimal
from vectors.gpu import gpu_server
from vectors.nixl import on_gpus

CUDA = "cuda-vllm-0.30"


def has(name: str) -> tuple[int, int]:
    found = instance_type(name).compute_capability
    assert found is not None
    return found


GPUS = sorted({one.compute_capability: name for name, one in instance_types().items() if one.nvidia}.values())
OLD = [name for name in GPUS if has(name) < (8, 9)]
MODEL = "Qwen/Qwen3-8B"
ONLINE: dict[str, Any] = {"quantized_weights": "fp8"}
MODELOPT, IN_BLOCKS = Quantization("modelopt", 8), Quantization("fp8", 8, 128 * 128, 32)
DYNAMIC = quantization(
    {
        "quant_method": "compressed-tensors",
        "config_groups": {
            "g": {"weights": {"num_bits": 8, "type": "float"}, "input_activations": {"num_bits": 8, "type": "float"}}
        },
    }
)


def facts(on: str, **keys: Any) -> ServingFacts:
    spec = {
        "model": {"id": MODEL},
        "engine": CUDA,
        "pool": "p",
        "tensor_parallel": 1,
        "max_num_seqs": 16,
        "max_model_len": 4096,
    }
    return vllm_facts(VllmServerSpec.model_validate({**spec, **keys}), Placement("p", instance_type(on), {}), scheduler=False)


def backends(of: ServingFacts) -> list[str]:
    return [argument for argument in of.arguments if "linear-backend" in argument]


def verdict(of: ServingFacts) -> str:
    """What rule GPU010 says of the back end."""
    found: list[Judgement] = [
        one for one in gpu_has_a_kernel.judge(of) if "linear-backend" in f"{one.working} {one.message} {one.unjudged}"
    ]
    if not found:
        return "nothing"
    return "unjudged" if any(one.unjudged for one in found) else "refused" if not all(one.holds for one in found) else "runs"


def test_the_gpus_are_of_both_kinds():
    capabilities = {instance_type(name).compute_capability for name in OLD}
    assert capabilities == {(7, 5), (8, 0), (8, 6)}
    assert len(GPUS) > len(OLD) + 2


@pytest.mark.parametrize("on", GPUS)
@pytest.mark.parametrize(
    "given", [ONLINE, {"extra_args": {"quantization": "fp8"}}, {"extra_args": {"quantization": "fp8_per_tensor"}}]
)
def test_servers_name_the_kernel_where_the_engine_selects_one_that_fails(on: str, given: dict[str, Any]):
    found = facts(on, **given)
    assert backends(found) == (["--linear-backend=marlin"] if on in OLD else [])
    assert verdict(found) == ("runs" if on in OLD else "nothing")
    assert not any(judgement.unjudged or not judgement.holds for judgement in gpu_has_a_kernel.judge(found))


@pytest.mark.parametrize("on", GPUS)
def test_other_servers_name_none(on: str):
    others: tuple[dict[str, Any], ...] = ({}, {"quantized_kv": "fp8"}, {"extra_args": {"quantization": "fp8_per_block"}})
    for keys in others:
        assert not backends(facts(on, **keys))
    shown = triton_facts(
        TritonServerSpec.model_validate({"kind": "triton", "model": {"id": MODEL}, "pool": "p", "devices": 1, **ONLINE}),
        Placement("p", instance_type(on), {}),
    )
    assert shown.engine.vllm == "0.27.1"
    assert not backends(shown)
    assert verdict(shown) == "nothing", "Marlin comes first there"


SAID: dict[str, tuple[dict[str, Any], str]] = {
    "marlin": ({"linear-backend": "marlin"}, "runs"),
    "in underscores": ({"linear_backend": "marlin"}, "runs"),
    "in capitals": ({"linear-backend": "Marlin"}, "runs"),
    "auto": ({"linear-backend": "auto"}, "refused"),
    "cutlass": ({"linear-backend": "cutlass"}, "refused"),
    "torch": ({"linear-backend": "torch"}, "refused"),
    "triton, which has none for these layers": ({"linear-backend": "triton"}, "refused"),
    "humming": ({"linear-backend": "humming"}, "unjudged"),
    "in an object": ({"kernel-config": {"linear_backend": "marlin"}}, "runs"),
    "in an object, another": ({"kernel-config": {"linear_backend": "cutlass"}}, "refused"),
    "in a part of it": ({"kernel-config.linear-backend": "marlin"}, "runs"),
    "for the scheme": ({"kernel-config": {"linear_backend_per_quant": {"fp8_w8a8": "marlin"}}}, "runs"),
    "for the scheme, before the flag": (
        {"linear-backend": "marlin", "kernel-config": {"linear_backend_per_quant": {"fp8_w8a8": "cutlass"}}},
        "refused",
    ),
    "for another scheme": ({"kernel-config": {"linear_backend_per_quant": {"nvfp4": "marlin"}}}, "refused"),
    "something else": ({"kernel-config": {"moe_backend": "auto"}}, "runs"),
}


@pytest.mark.parametrize("name", SAID)
def test_a_users_choice_stays_and_is_judged(name: str):
    given, expected = SAID[name]
    for on in GPUS:
        found = facts(on, extra_args=given, **ONLINE)
        assert len(backends(found)) <= 1, "no flag twice"
        assert verdict(found) == (expected if on in OLD else "nothing")
        if "linear" in json.dumps(given):
            assert [argument.partition("=")[2] for argument in found.arguments if argument.startswith("--linear-backend")] == [
                value for key, value in given.items() if key in ("linear-backend", "linear_backend")
            ]


def test_every_choice_has_a_verdict():
    argument = vllm_releases()["0.30.0"].flags["linear-backend"]
    said = {str(one): verdict(facts("g5.xlarge", extra_args={"linear-backend": one}, **ONLINE)) for one in argument.choices}
    assert {one for one, word in said.items() if word != "refused"} == {"marlin", "humming"}


def test_a_refusal_leads_to_what_the_user_wrote():
    (found,) = (
        judgement
        for judgement in gpu_has_a_kernel.judge(facts("g5.xlarge", extra_args={"linear-backend": "torch"}, **ONLINE))
        if not judgement.holds
    )
    assert found.path[-2:] == ("extra_args", "linear-backend")
    assert (found.given, found.allowed) == ("torch", "marlin")
    (found,) = (
        one for one in gpu_has_a_kernel.judge(gpu_server("g5.12xlarge", arguments=("--quantization=fp8",))) if not one.holds
    )
    assert "has no kernel for fp8 on the GPUs of g5.12xlarge with linear-backend auto" in found.message


@pytest.mark.parametrize(
    ("checkpoint", "needs"),
    [(Quantization("fp8", 8), True), (MODELOPT, True), (IN_BLOCKS, False), (DYNAMIC, False), (None, False)],
)
def test_checkpoints(checkpoint: Quantization | None, needs: bool):
    published = replace(model("Qwen3-8B"), quantization=checkpoint)
    for on, more in product(GPUS, ((), ("--linear-backend=marlin",))):
        found = flag_values.backend_settings("0.30.0", instance_type(on), (), published)
        if checkpoint is not MODELOPT or has(on) >= (8, 0):
            assert found == ({"linear-backend": "marlin"} if needs and on in OLD else {})
            said = verdict(gpu_server(on, model=published, arguments=more))
            assert said == ("nothing" if not needs or on not in OLD else "runs" if more else "refused")


@pytest.mark.parametrize("quantized", ["config", "flag"])
def test_drafts(quantized: str, monkeypatch: pytest.MonkeyPatch):
    draft = model("Qwen3-0.6B")
    given: dict[str, Any] = {"speculation": {"method": "draft_model", "draft": draft.repositories[0], "tokens": 3}}
    if quantized == "flag":
        given["extra_args"] = {"speculative-config.quantization": "fp8"}
    else:
        shown = replace(draft, quantization=MODELOPT)
        monkeypatch.setattr(flag_values, "find_model", lambda name: shown if name in draft.repositories else None)
    for on in GPUS:
        if quantized == "flag" or has(on) >= (8, 0):
            found = facts(on, **given)
            assert backends(found) == (["--linear-backend=marlin"] if on in OLD else [])
            assert verdict(found) == ("runs" if on in OLD else "nothing")
            without = replace(found, arguments=tuple(argument for argument in found.arguments if argument not in backends(found)))
            assert verdict(without) == ("refused" if on in OLD else "nothing")


def test_a_draft_as_published_needs_nothing():
    speculation = {"method": "draft_model", "draft": "Qwen/Qwen3-0.6B", "tokens": 3}
    assert not any(backends(facts(on, speculation=speculation)) for on in GPUS)


def test_prefill_and_decode_servers_name_it_and_their_revision_follows():
    old, plain = on_gpus(**ONLINE), on_gpus()
    for role in old.roles:
        assert backends(role.server) == ["--linear-backend=marlin"]
        assert verdict(role.server) == "runs"
    assert old.revision != plain.revision
    chosen = on_gpus(decode={"extra_args": {"linear-backend": "torch"}}, **ONLINE)
    assert (verdict(chosen.prefill.server), verdict(chosen.decode.server)) == ("runs", "refused")
    assert backends(chosen.decode.server) == ["--linear-backend=torch"]


def test_triton_names_it_in_its_file_where_its_release_needs_it(monkeypatch: pytest.MonkeyPatch):
    def newer(name: str) -> EngineProfile:
        return replace(engine(name), vllm="0.30.0")

    monkeypatch.setattr(shape, "engine", newer)
    spec = TritonServerSpec.model_validate({"kind": "triton", "model": {"id": MODEL}, "pool": "p", "devices": 1, **ONLINE})
    for on in GPUS:
        written = triton_plan.engine_settings(spec, instance_type(on))
        assert written.get("linear_backend") == ("marlin" if on in OLD else None)


@pytest.mark.parametrize(("release", "needs"), [("0.30.0", True), ("0.33.0", False)])
def test_the_releases_that_need_it(release: str, needs: bool):
    for method in METHODS:
        found = flag_values.failing_kernel(release, (8, 6), Quantization(method, 8))
        assert bool(found) == (needs and method in ("fp8", "fbgemm_fp8", "modelopt"))


def test_a_release_that_nobody_asked_is_not_judged(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(shape, "engine", lambda name: replace(engine(name), vllm="0.29.0"))
    for on in GPUS:
        assert any(judgement.unjudged for judgement in gpu_has_a_kernel.judge(facts(on, **ONLINE)))


def test_a_model_that_nobody_knows_may_have_weights_in_blocks():
    unknown = facts("g5.xlarge", model={"id": "somebody/secret"}, extra_args={"linear-backend": "triton"}, **ONLINE)
    assert verdict(unknown) == "unjudged"
    assert verdict(facts("g5.xlarge", model={"id": "somebody/secret"}, **ONLINE)) == "runs"


def test_scales_by_channel_need_newer_gpus():
    for on in GPUS:
        found = [
            one for one in flags_go_together.judge(facts(on, extra_args={"quantization": "fp8_per_channel"})) if not one.holds
        ]
        assert ["fp8_per_channel" in judgement.message for judgement in found] == ([True] if on in OLD else [])


def test_plan_and_open_keys_give_servers_that_start():
    trial = Trial({"id": MODEL}, model("Qwen3-8B"), engine(CUDA), instance_type("g5.xlarge"), 8192, 4, quantization="fp8-weights")
    assert not [rule.id for rule, _ in trial.findings() if rule.id.startswith("GPU")]
    for on in ("g4dn.xlarge", "g5.xlarge", "g6.xlarge"):
        spec = parse_stack(json.dumps(minimal(on, MODEL, max_model_len=2048, **ONLINE)))
        assert not check_spec(spec, "us-west-2").faults
