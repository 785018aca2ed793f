"""Rules about model servers, beyond one passing and one failing vector each: their cases, borders and severities."""

import json
from dataclasses import replace
from typing import Any, get_args

import pytest

from eks_inference.catalog.engines import EngineProfile, engine, engines
from eks_inference.catalog.models import find_model, model
from eks_inference.catalog.tables import table
from eks_inference.catalog.vllm_arguments import Takes, VllmRelease, vllm_releases, whole_rows
from eks_inference.loadtest import rules as load_test_rules
from eks_inference.loadtest.rules import LoadTestFacts
from eks_inference.loadtest.spec import LoadTestSpec
from eks_inference.rules import Judgement, Unjudged, left_open
from eks_inference.serving.facts import ServingFacts
from eks_inference.serving.flag_values import size
from eks_inference.serving.rules import every_server as rules
from eks_inference.serving.rules import gpu as gpu_rules
from eks_inference.serving.rules import neuron as neuron_rules
from eks_inference.serving.rules.engine_flags import (
    PROTECTED_VARIABLES,
    flags_are_known,
    flags_have_their_values,
    stack_s_own_are_left_alone,
)
from eks_inference.serving.rules.every_server import length_suits_the_model, server_rules
from eks_inference.serving.rules.gpu_arithmetic import gpu_has_the_dtype
from vectors.gpu import gpu_server, t4_server
from vectors.neuron import llama3, requests
from vectors.serving import gpu, on, server, trn2


def judged(rule: Any, subject: Any) -> list[Judgement]:
    return list(rule.judge(subject))


def broken(rule: Any, subject: Any) -> list[tuple[str, str]]:
    """Severity and message of everything a rule has against a subject."""
    return [(one.severity or rule.severity, one.message) for one in judged(rule, subject) if not one.holds]


# -- devices and cores ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("facts", "legal"),
    [
        (server(placement=on("inf2.48xlarge"), devices=5), True),
        (trn2(devices=2), False),
        (trn2(devices=8), True),
        (server(placement=on("trn1.32xlarge"), devices=7), False),
        (server(placement=on("inf2.8xlarge"), devices=2), False),
    ],
)
def test_sets_of_neighbours_differ_by_instance_type(facts: ServingFacts, legal: bool) -> None:
    assert bool(broken(neuron_rules.devices_can_be_given, facts)) != legal


def test_a_degree_too_large_for_the_pod_names_the_devices_that_would_do() -> None:
    (judgement,) = judged(neuron_rules.cores_suffice, server(devices=1))
    assert judgement.allowed == "at most 2, or 4 Neuron devices"
    (judgement,) = judged(neuron_rules.cores_suffice, llama3(tensor_parallel=8))
    assert judgement.allowed == "at most 2, or a larger instance type"


@pytest.mark.parametrize(
    ("facts", "idle", "fix"),
    [
        # The source system's optional change: 12 devices for one copy over 2 cores.
        (llama3(placement=on("inf2.48xlarge"), devices=12), 22, "ask for 1 Neuron device"),
        (llama3(placement=on("inf2.48xlarge"), devices=12, copies=12), 0, ""),
        (llama3(placement=on("inf2.48xlarge"), devices=12, copies=3), 18, "ask for 3 Neuron devices"),
        # Two devices would do, but a pod gets one, four, eight or sixteen.
        (trn2(tensor_parallel=8), 8, "split the model over more cores"),
        (trn2(devices=8, tensor_parallel=8), 24, "ask for 4 Neuron devices"),
    ],
)
def test_idle_cores_are_counted_over_all_copies(facts: ServingFacts, idle: int, fix: str) -> None:
    found = [judgement for judgement in judged(neuron_rules.no_core_is_idle, facts) if not judgement.holds]
    assert [judgement.message for judgement in found] == [
        f"{idle} of the {judgement.message.split()[3]} NeuronCores of a pod are idle" for judgement in found
    ]
    assert [judgement.fix for judgement in found] == ([fix] if idle else [])


def test_what_other_rules_refuse_is_not_counted_as_idle() -> None:
    assert not judged(neuron_rules.no_core_is_idle, trn2(devices=32))
    assert not judged(neuron_rules.no_core_is_idle, server(devices=1))


@pytest.mark.parametrize(("devices", "needed"), [(1, False), (4, True), (11, True), (12, False)])
def test_only_parts_of_a_node_need_the_scheduler(devices: int, needed: bool) -> None:
    facts = server(devices=devices, scheduler=False)
    assert bool(broken(neuron_rules.parts_of_nodes_have_a_scheduler, facts)) == needed


# -- memory ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("sequences", "severity"), [(24, None), (28, None), (29, "warning"), (32, "warning"), (33, "error")])
def test_memory_is_tight_above_nine_tenths_and_too_little_above_all(sequences: int, severity: str | None) -> None:
    found = broken(neuron_rules.memory_suffices, server(max_num_seqs=sequences))
    assert [one for one, _ in found] == ([severity] if severity else [])


@pytest.mark.parametrize(
    ("facts", "allowed"),
    [
        (server(max_model_len=8192), "max_num_seqs up to 14 at this length"),
        (server(devices=2, tensor_parallel=4), "max_num_seqs up to 10 at this length"),
        (server(devices=1, tensor_parallel=1), "nothing: the weights leave no room on a core"),
        (llama3(max_num_seqs=1, max_model_len=200_000), "max_model_len up to 8192 with one sequence"),
        (trn2(tensor_parallel=8, max_model_len=131072), "max_model_len up to 78982"),
    ],
)
def test_what_would_fit_is_said(facts: ServingFacts, allowed: str) -> None:
    (judgement,) = judged(neuron_rules.memory_suffices, facts)
    assert judgement.allowed == allowed


def test_where_the_margin_decides_no_lack_of_room_is_said() -> None:
    """A model that sees is known within 2 GiB."""
    facts = gpu(model=find_model("Qwen2.5-VL-7B"), placement=on("g5.2xlarge"), max_num_seqs=4)
    (judgement,) = judged(gpu_rules.memory_suffices, facts)
    assert (judgement.severity, judgement.allowed) == ("warning", "no length is sure to fit")


def test_the_pool_of_pages_is_a_limit_of_its_own() -> None:
    model = find_model("Llama-2-13B")
    ((severity, message),) = broken(neuron_rules.memory_suffices, trn2(model=model, tensor_parallel=8, max_model_len=131072))
    assert severity == "error"
    assert message == "Llama-2-13B needs 12.50 GiB of KV pool a core, but only 6.48 are available"


def test_host_memory_is_counted_for_every_copy() -> None:
    facts = server(copies=3, memory_mib=60 * 1024)
    ((severity, message),) = broken(neuron_rules.weights_fit_the_host, facts)
    assert severity == "warning"
    assert "may take 73 GiB of host memory, and the pod has 60" in message


# -- flags ----------------------------------------------------------------------------------------------------------------------


def with_flags(*arguments: str, **changes: Any) -> ServingFacts:
    return server(arguments=arguments, **changes)


def buckets(**config: Any) -> ServingFacts:
    text = json.dumps({"neuron_config": config})
    arguments = ("--max-num-batched-tokens=8192", "--block-size=128", f"--additional-config={text}")
    return trn2(arguments=arguments, max_model_len=16384)


@pytest.mark.parametrize(
    ("facts", "complaint"),
    [
        (with_flags("--num-gpu-blocks-override=24"), None),
        (with_flags("--enable-prefix-caching", "--num-gpu-blocks-override=23"), None),
        (with_flags("--num-gpu-blocks-override=24", "--num-gpu-blocks-override=32"), "32 blocks for 24 sequences"),
        (with_flags("--block-size=32"), "a block holds a whole sequence"),
        (with_flags("--block-size=4096", "--num-gpu-blocks-override=24"), None),
        # With prefix caching: 4096 / 32 = 128 blocks a sequence.
        (with_flags("--enable-prefix-caching", "--block-size=32", "--num-gpu-blocks-override=3072"), None),
        (with_flags("--enable-prefix-caching", "--block-size=32", "--num-gpu-blocks-override=3071"), "3071 blocks for 24"),
        (
            with_flags("--enable-prefix-caching", "--no-enable-prefix-caching", "--block-size=32"),
            "a block holds a whole sequence",
        ),
        (with_flags(engine=engine("neuron-2.18-vllm-0.3")), "a block holds a whole sequence"),
        (with_flags("--block-size=4096", engine=engine("neuron-2.18-vllm-0.3")), None),
        (trn2(), None),
        (buckets(num_seqs_buckets=[1, 2, 4, 8], num_batched_tokens_buckets=[8192], kv_segment_size_buckets=[8192]), None),
        (buckets(num_seqs_buckets=[1, 2, 4]), "num_seqs_buckets do not rise to max_num_seqs"),
        (buckets(num_batched_tokens_buckets=[4096]), "num_batched_tokens_buckets do not rise to --max-num-batched-tokens"),
        (buckets(num_batched_tokens_buckets=[3000, 8192], kv_segment_size_buckets=[3000, 8192]), "segmented attention"),
        (buckets(num_batched_tokens_buckets=[4096, 8192], kv_segment_size_buckets=[8192]), "segmented attention"),
        (buckets(num_seqs_buckets=8), "num_seqs_buckets do not rise"),
    ],
)
def test_flags_of_blocks_and_buckets(facts: ServingFacts, complaint: str | None) -> None:
    found = broken(neuron_rules.flags_agree, facts)
    assert [severity for severity, _ in found] == (["error"] if complaint else [])
    assert all(complaint and complaint in message for _, message in found)


@pytest.mark.parametrize(
    ("config", "severity"),
    [
        ({"context_encoding_buckets": [64, 4096], "token_generation_buckets": [4096]}, None),
        ({"context_encoding_buckets": [64, 2048]}, "warning"),
        ({"context_encoding_buckets": [64, 8192]}, "error"),
        ({"context_encoding_buckets": [4096, 64, 4096]}, "error"),
        ({"token_generation_buckets": [64, 2048]}, "error"),
        ({"token_generation_buckets": "4096"}, "error"),
    ],
)
def test_graphs_are_compiled_up_to_the_longest_sequence(config: dict[str, Any], severity: str | None) -> None:
    facts = with_flags(f"--additional-config={json.dumps({'override_neuron_config': config})}")
    assert [one for one, _ in broken(neuron_rules.flags_agree, facts)] == ([severity] if severity else [])


@pytest.mark.parametrize(("lengths", "holds"), [([128, 4096], True), ([100], False), ([8192], False), ([4096, 128], False)])
def test_lengths_of_a_paged_cache_are_multiples_below_the_longest(lengths: list[int], holds: bool) -> None:
    assert broken(neuron_rules.flags_agree, buckets(decode_context_length_buckets=lengths)) is not holds


def test_every_engine_profiles_own_flags_agree() -> None:
    for name in ("neuron-2.18-vllm-0.3", "neuron-2.26-vllm-0.9", "neuron-2.28-vllm-0.13", "neuron-2.31-vllm-0.16"):
        facts = server(engine=engine(name))
        assert not broken(neuron_rules.flags_agree, facts)
        assert not broken(rules.flags_follow_the_spec, facts)


@pytest.mark.parametrize(
    ("arguments", "ports", "holds"),
    [
        ((), (8000, 8000), True),
        (("--port=8080",), (8080, 8080), True),
        (("--port", "8080"), (8000, 8000), False),
        ((), (8080, 8000), False),
    ],
)
def test_ports(arguments: tuple[str, ...], ports: tuple[int, int], holds: bool) -> None:
    facts = server(arguments=arguments, container_port=ports[0], service_port=ports[1])
    assert bool(broken(neuron_rules.ports_agree, facts)) != holds


# -- releases -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("profile", "driver", "severity"),
    [
        ("neuron-2.33-vllm-0.29", "2.29.0", "warning"),
        ("neuron-2.32-vllm-0.24", "2.30.2", None),
        ("neuron-2.32-vllm-0.24", "2.27.4", None),
        ("neuron-2.32-vllm-0.24", "2.26.10", "error"),
        ("neuron-2.32-vllm-0.24", "2.25.4", "error"),
        ("neuron-2.26-vllm-0.9", "2.24.7", None),
        ("neuron-2.26-vllm-0.9", "2.23.9", "warning"),
    ],
)
def test_drivers_below_the_documented_floor_stop_and_older_ones_warn(profile: str, driver: str, severity: str | None) -> None:
    facts = trn2(engine=engine(profile), placement=on("trn2.48xlarge", driver=driver))
    assert [one for one, _ in broken(neuron_rules.driver_suits_the_image, facts)] == ([severity] if severity else [])


@pytest.mark.parametrize(
    ("image", "said"),
    [
        ("registry.example/mine:1", []),
        ("registry.example/vllm-ray-neuron@sha256:" + "0" * 64, []),
        ("mirror.example/neuron/pytorch-inference-vllm-neuronx:0.13.9-neuronx-py312-sdk2.28.1-ubuntu24.04", []),
        ("mirror.example/neuron/pytorch-inference-vllm-neuronx:0.16.0-neuronx-py312-sdk2.31.1-ubuntu24.04", ["0.16", "2.31"]),
        ("mirror.example/neuron/pytorch-inference-vllm-neuronx:0.24.0.1.1.0-neuronx-py313-sdk2.28.0-ubuntu24.04", ["0.24"]),
    ],
)
def test_what_an_image_tag_says_is_compared(image: str, said: list[str]) -> None:
    found = broken(rules.image_is_the_profiles, server(image=image))
    assert len(found) == len(said)
    assert all(text in message for text, (_, message) in zip(said, found, strict=True))


@pytest.mark.parametrize(
    ("image", "profile", "holds"),
    [
        ("docker.io/vllm/vllm-openai:v0.30.4", "cuda-vllm-0.30", True),
        ("docker.io/vllm/vllm-openai:v0.9.1", "cuda-vllm-0.30", False),
        ("nvcr.io/nvidia/tritonserver:24.07-vllm-python-py3", "triton-26.08-vllm-0.27", False),
    ],
)
def test_tags_of_gpu_images(image: str, profile: str, holds: bool) -> None:
    assert bool(broken(rules.image_is_the_profiles, gpu(engine=engine(profile), image=image))) != holds


@pytest.mark.parametrize(("name", "degree", "holds"), [("Phi-4", 2, True), ("Phi-4", 4, False), ("Qwen3-235B-A22B", 4, True)])
def test_kv_heads_divide_among_gpus_or_gpus_among_them(name: str, degree: int, holds: bool) -> None:
    found = broken(gpu_rules.heads_divide, gpu_server("g6e.12xlarge", name, tensor_parallel=degree))
    assert bool(found) != holds
    assert holds or found == [("error", "10 KV heads of Phi-4 do not divide evenly among 4 GPUs, nor these among them")]


# -- startup, spot, pods --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "severity"), [(3000, None), (2999, "warning"), (1200, "warning"), (1199, "error"), (120, "error")]
)
def test_a_start_with_everything_compiled_is_the_least(seconds: int, severity: str | None) -> None:
    found = broken(rules.startup_is_waited_for, server(startup_timeout_s=seconds))
    assert [one for one, _ in found] == ([severity] if severity else [])


@pytest.mark.parametrize(
    ("cpu", "memory_gib", "severities"),
    [
        (60_000, 200, []),
        (90_000, 200, ["warning"]),
        (60_000, 300, ["warning"]),
        (200_000, 900, ["error", "error"]),
        (0, 0, []),
    ],
)
def test_pods_share_a_node(cpu: int, memory_gib: int, severities: list[str]) -> None:
    found = broken(neuron_rules.pod_fits, server(cpu_millis=cpu, memory_mib=memory_gib * 1024))
    assert [severity for severity, _ in found] == severities
    if severities == ["warning"]:
        assert found[0][1] == "2 of 3 pods fit a node: the devices of the others stay idle"


# -- load tests -----------------------------------------------------------------------------------------------------------------


def test_every_number_of_users_is_judged_by_itself() -> None:
    spec = LoadTestSpec(users=(22, 73, 96))
    facts = LoadTestFacts(spec, "llama", server(), ("load_test",))
    assert [judgement.path for judgement in judged(load_test_rules.users_fit_the_batches, facts) if not judgement.holds] == [
        ("load_test", "users", 1),
        ("load_test", "users", 2),
    ]


@pytest.mark.parametrize(
    ("mean", "stddev", "severity"),
    [(3851, 0, None), (3851, 1, "warning"), (3852, 0, "error"), (3831, 10, None), (3832, 10, "warning")],
)
def test_most_requests_are_refused_when_their_mean_is_too_long(mean: int, stddev: int, severity: str | None) -> None:
    """Of 4096 tokens, answers take 245."""
    found = broken(load_test_rules.requests_fit_the_sequence, requests(mean, stddev))
    assert [one for one, _ in found] == ([severity] if severity else [])
    assert all(("most" in message) == (severity == "error") for _, message in found)


@pytest.mark.parametrize(
    ("sampling", "facts", "holds"),
    [
        ({"top_k": 256}, server(), True),
        ({"top_k": 257}, server(), False),
        ({"top_k": 1000}, gpu(), True),
        ({"temperature": 2}, server(), True),
        ({"top_k": "many"}, server(), True),
    ],
)
def test_top_k_is_bounded_on_neuron_only(sampling: dict, facts: ServingFacts, holds: bool) -> None:
    found = broken(load_test_rules.candidates_fit_the_sampler, LoadTestFacts(LoadTestSpec(sampling=sampling), "s", facts))
    assert bool(found) != holds


# -- what reading refuses -------------------------------------------------------------------------------------------------------


SERVING = [engine_profile for engine_profile in engines().values() if engine_profile.standalone and not engine_profile.retired]


@pytest.mark.parametrize("profile", SERVING, ids=lambda one: one.name)
def test_the_flags_of_engine_profiles_are_flags_of_their_release(profile: EngineProfile) -> None:
    own = [argument.partition("=")[0].removeprefix("--") for argument in profile.arguments if argument.startswith("--")]
    release = vllm_releases()[profile.vllm]
    assert {name.removeprefix("no-") for name in own} <= set(release.flags)
    assert {"max-model-len", "max-num-seqs", "tensor-parallel-size", "host", "quantization"} <= set(release.flags)


def test_an_unknown_flag_names_the_nearest_and_the_engines_that_have_it() -> None:
    (unknown,) = (one for one in judged(flags_are_known, server(extra_args={"quantisation": "fp8"})) if not one.holds)
    assert (unknown.given, unknown.allowed) == ("quantisation", "quantization")
    newer = next(iter(set(vllm_releases()["0.24.0"].flags) - set(vllm_releases()["0.13.0"].flags)))
    on_trn2 = server(extra_args={newer: 1}, placement=on("trn2.48xlarge"))
    (unknown,) = (judgement for judgement in judged(flags_are_known, on_trn2) if not judgement.holds)
    assert "neuron-2.32-vllm-0.24" in unknown.fix
    assert "cuda" not in unknown.fix, "an engine of another accelerator is no way out"


@pytest.mark.parametrize(
    ("name", "allowed"), [("device-memory-utilization", "gpu-memory-utilization"), ("disable-lora", "enable-lora: false")]
)
def test_another_name_of_a_flag_is_told_the_one_that_rules_read(name: str, allowed: str) -> None:
    (refused,) = judged(flags_are_known, gpu_server(engine=engine("cuda-vllm-0.33"), extra_args={name: True}))
    assert (refused.holds, refused.given, refused.allowed) == (False, name, allowed)
    (unknown,) = judged(flags_are_known, gpu_server(extra_args={name: True}))
    assert "has no flag" in unknown.message


def test_a_flag_like_no_other_gets_no_nearest() -> None:
    (unknown,) = (judgement for judgement in judged(flags_are_known, server(extra_args={"colour": "red"})) if not judgement.holds)
    assert unknown.allowed == "a flag of vLLM 0.13.0"


@pytest.mark.parametrize("name", ["no-max-model-len", "no-no-enforce-eager", "no-disable-log-stats"])
def test_only_a_switch_has_a_negation(name: str) -> None:
    assert [judgement.holds for judgement in judged(flags_are_known, gpu_server(extra_args={name: True}))] == [False]
    assert [judgement.holds for judgement in judged(flags_are_known, gpu_server(extra_args={"no-enforce-eager": True}))] == [True]


@pytest.mark.parametrize(
    ("kind", "factor", "length", "allowed"),
    [
        ("linear", 2, 262144, []),
        ("linear", 2, 262145, ["at most 262144"]),
        ("linear", -2, 131073, ["at most 131072"]),
        ("yarn", 2, 131072, []),
        ("yarn", 2, 131073, ["at most 131072"]),
    ],
)
def test_a_scaling_lengthens_what_the_model_takes(kind: str, factor: int, length: int, allowed: list[str]) -> None:
    scaling = json.dumps({"rope_parameters": {"rope_type": kind, "factor": factor}})
    facts = gpu_server(max_model_len=length, arguments=(f"--hf-overrides={scaling}",))
    assert [one.allowed for one in judged(length_suits_the_model, facts) if not one.holds] == allowed


VALUES = {
    # What the parser of vLLM 0.30 took and refused of these flags, rendered as the library does.
    "enforce-eager": ([True, False], ["true", 1, None]),
    "no-enforce-eager": ([True], [False, 1]),
    "disable-log-stats": ([True], [False, "x"]),
    "seed": ([0, -1, "7"], [False, None, 0.5, "7k", [7], {}]),
    "gpu-memory-utilization": ([0.5, 1, "0.9"], [0, 5, -1, "nan", "x", True]),
    "max-num-batched-tokens": ([8192, "8k", "8K", "2.5k"], ["2.5K", "auto", 0, "8 k"]),
    "max-model-len": (["auto", -1, "8k"], ["none", -2]),
    "kv-cache-dtype": (["fp8"], ["fp9", "FP8", True]),
    "moe-backend": (["Deep-Gemm"], ["deepgemm"]),
    "max-lora-rank": ([64, "64"], [65]),
    "served-model-name": (["a", ["a", "b"]], [[], ["-a"], {"a": 1}, True]),
    "kv-transfer-config": ([{"kv_role": "kv_both"}, '{"kv_role": "kv_both"}'], ["x", [1], True, None, 1]),
    "allowed-origins": ([["*"], '["*"]'], ["*", {}]),
    "lora-modules": (["a=b", [{"name": "a", "path": "b"}], ["a=b", "c=d"]], ["a", [], True]),
    "hf-overrides": (["module.function", {"rope_theta": 1}], [True, [1]]),
}


def test_small_letters_are_powers_of_a_thousand_and_capitals_of_1024() -> None:
    small = {"12": 12, "-1": -1, " 8k ": 8000, "2.5k": 2500, "3m": 3e6, "1g": 1e9, "1.5t": 1.5e12}
    capital = {"8K": 8192, "3M": 3 << 20, "1G": 1 << 30, "1T": 1 << 40, "2.5K": None, "8 k": None, "k": None}
    for text, number in {**small, **capital}.items():
        assert size(text) == number, text


@pytest.mark.parametrize("name", VALUES)
def test_a_flag_takes_the_values_that_its_parser_takes(name: str) -> None:
    taken, refused = VALUES[name]
    for value in (*taken, *refused):
        (verdict,) = judged(flags_have_their_values, gpu_server(extra_args={name: value}))
        assert verdict.holds is (value in taken and not any(value is one for one in refused)), value
        assert verdict.allowed or (verdict.holds and verdict.unjudged)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("chat-template", "/not-in-the-image.jinja"),
        ("hf-overrides", {"num_hidden_layers": 100}),
        ("compilation-config", {"cudagraph_mode": "NOPE"}),
        ("logits-processors", ["a.b:C"]),
        ("lora-modules", "a=nobody/none"),
    ],
)
def test_what_only_the_engine_resolves_is_left_open(name: str, value: Any) -> None:
    (verdict,) = judged(flags_have_their_values, gpu_server(extra_args={name: value}))
    assert verdict.unjudged == Unjudged("value", f"--{name}")


@pytest.mark.parametrize("name", ["served-model-name", "dtype", "quantization", "allowed-origins", "root-path"])
def test_what_needs_no_look_up_is_judged(name: str) -> None:
    value = {"dtype": "half", "quantization": "fp8", "allowed-origins": ["*"]}.get(name, "a")
    (verdict,) = judged(flags_have_their_values, gpu_server(extra_args={name: value}))
    assert verdict.holds
    assert not verdict.unjudged


@pytest.mark.parametrize(
    ("settings", "is_judged"),
    [
        ({"context_encoding_buckets": [64, 4096]}, True),
        ({"context_encoding_buckets": [64, 4096], "fused_qkv": True}, False),
        ({}, False),
    ],
)
def test_of_the_compilers_settings_only_buckets_are_judged(settings: Any, is_judged: bool) -> None:
    facts = server(max_model_len=4096, extra_args={"additional-config": {"override_neuron_config": settings}})
    (verdict,) = judged(flags_have_their_values, facts)
    assert (verdict.holds, verdict.unjudged is None) == (True, is_judged)


def test_a_wrong_choice_names_the_nearest_and_is_left_open_where_a_plugin_may_add_it() -> None:
    (wrong,) = judged(flags_have_their_values, gpu_server(extra_args={"dtype": "Half"}))
    assert (wrong.given, wrong.fix) == ('"Half"', "did you mean half?")
    (of_plugin,) = judged(flags_have_their_values, server(extra_args={"dtype": "fp7"}))
    assert of_plugin.unjudged
    (of_kind,) = judged(flags_have_their_values, server(extra_args={"dtype": None}))
    assert not of_kind.holds


@pytest.mark.parametrize("release", vllm_releases().values(), ids=lambda one: one.name)
def test_every_argument_of_a_release_is_declared_once_and_its_choices_and_bounds_are_of_arguments(release: VllmRelease) -> None:
    row = whole_rows(table("vllm_arguments.toml")["releases"])[release.name]
    (kinds,) = (row[name] for name in ("keys", "flags") if name in row)
    names = [name for of_kind in kinds.values() for name in of_kind]
    assert len(names) == len(set(names))
    assert {*row["choices"], *row["bounds"], *row.get("nullable", ())} <= set(names)
    assert set(kinds) <= set(get_args(Takes))


@pytest.mark.parametrize("name", PROTECTED_VARIABLES)
def test_a_variable_that_is_not_free_is_refused_with_its_reason(name: str) -> None:
    subject = server(extra_env={name: "0", "VLLM_LOGGING_LEVEL": "DEBUG"})
    (refused,) = (judgement for judgement in judged(stack_s_own_are_left_alone, subject) if not judgement.holds)
    assert refused.path[-2:] == ("extra_env", name)
    assert PROTECTED_VARIABLES[name] in refused.message


MODEL = "meta-llama/Llama-3.1-8B-Instruct"


@pytest.mark.parametrize(
    ("names", "holds"), [("other", False), (["other"], False), ([], False), (MODEL, True), (["other", MODEL], True)], ids=str
)
def test_a_server_answers_to_the_name_that_clients_ask_for(names: str | list[str], holds: bool) -> None:
    subject = server(model_id=MODEL, extra_args={"served-model-name": names})
    assert all(judgement.holds for judgement in judged(stack_s_own_are_left_alone, subject)) == holds


def test_of_an_unknown_model_everything_that_needs_its_shape_is_told_as_not_judged() -> None:
    unknown = server(model_id="mistralai/Mistral-8B-v0.3", model=None)
    (left,) = left_open(judgement for rule in server_rules() for judgement in judged(rule, unknown))
    assert {"memory", "architecture", "heads", "length"} <= set(left.what)
    assert "nearest: mistralai/Mistral-7B" in left.why
    assert "model.config" in left.fix
    assert "not judged: " in left.summary


def test_a_quantization_of_unknown_size_is_told_as_not_judged() -> None:
    subject = gpu_server(arguments=("--quantization=awq",))
    (left,) = left_open(judgement for rule in server_rules() for judgement in judged(rule, subject))
    assert left.what == ("memory",)
    assert left.of.endswith("in awq")


@pytest.mark.parametrize(
    ("changes", "of"),
    [
        ({"image": "registry.example/team/vllm:ours"}, "registry.example/team/vllm:ours"),
        ({"image": "docker.io/vllm/vllm-openai:nightly-1b2d"}, "docker.io/vllm/vllm-openai:nightly-1b2d"),
        ({"extra_args": {"speculative-config": {"method": "ngram"}}}, "with --speculative-config"),
        ({"extra_args": {"hf-overrides": {"num_hidden_layers": 100}}}, "with --hf-overrides"),
    ],
)
def test_what_a_setting_takes_out_of_the_calculation_is_told_as_not_judged(changes: dict[str, Any], of: str) -> None:
    assert not left_open(judgement for rule in server_rules() for judgement in judged(rule, server()))
    left = left_open(judgement for rule in server_rules() for judgement in judged(rule, server(**changes)))
    assert [not_judged for not_judged in left if not_judged.of.endswith(of)]


def test_a_part_of_a_model_that_no_formula_counts_is_told_as_not_judged() -> None:
    gemma = replace(model("Gemma-3-27B"), tower=None, uncounted=("vision tower",))
    sees = gpu_server(model=gemma)
    (left,) = left_open(judgement for rule in server_rules() for judgement in judged(rule, sees))
    assert (left.what, left.of) == (("memory",), "vision tower of Gemma-3-27B")
    reads = gpu_server(model=gemma, arguments=("--language-model-only",))
    assert not left_open(judgement for rule in server_rules() for judgement in judged(rule, reads))


def test_stages_take_gpus_of_the_pod() -> None:
    rule = next(server_rule for server_rule in server_rules() if server_rule.id == "GPU002")
    for stages, holds in ((2, True), (4, False)):
        flags = {"pipeline-parallel-size": stages}
        subject = gpu_server(tensor_parallel=2, devices=4, arguments=(f"--pipeline-parallel-size={stages}",), extra_args=flags)
        assert [judgement.holds for judgement in judged(rule, subject)] == [True, True, holds, True]
    model = find_model("Llama-3.1-8B")
    assert model is not None
    for stages, holds in ((7, True), (8, False), (70, False)):  # vLLM 0.27, 0.30 and 0.33 end in their division of the KV cache
        flags = {"pipeline-parallel-size": stages}
        subject = gpu_server(
            model=replace(model, layers=7), devices=8, arguments=(f"--pipeline-parallel-size={stages}",), extra_args=flags
        )
        assert judged(rule, subject)[-1].holds == holds


@pytest.mark.parametrize(
    ("made", "vllm", "unjudged"), [(gpu_server, "0.8.5", False), (t4_server, "0.8.5", True), (t4_server, "0.9.0", False)]
)
def test_the_type_of_an_unknown_model_matters_only_to_gpus_without_bfloat16(made: Any, vllm: str, unjudged: bool) -> None:
    """And only to releases that do not fall back to another."""
    server = made(model=None)
    (found,) = gpu_has_the_dtype.judge(replace(server, engine=replace(server.engine, vllm=vllm)))
    assert bool(found.unjudged) == unjudged
    assert unjudged or found.holds
