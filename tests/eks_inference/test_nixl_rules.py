"""Rules about KV caches over NIXL: their cases and borders, what a stack file with each mistake is answered with, odd flags."""

import copy
import json
from dataclasses import replace
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import settings as bounded
from hypothesis import strategies as st

from conftest import ROOT
from eks_inference.catalog.engines import engine
from eks_inference.catalog.instances import instance_types
from eks_inference.catalog.models import find_model
from eks_inference.catalog.nixl import leases, nixl_profile
from eks_inference.faults import SpecError
from eks_inference.pools.spec import KarpenterPoolSpec
from eks_inference.rules import Judgement, Rule
from eks_inference.serving.facts import ServingFacts
from eks_inference.serving.prefill_decode import operation_rules, rules
from eks_inference.serving.prefill_decode.rules import PrefillDecodeFacts
from eks_inference.serving.rules import nixl
from eks_inference.stack.reading import parse_stack
from eks_inference.stack.registry import Verdict, check_spec
from golden import assert_golden
from vectors.nixl import MODEL, WINDOWS, decode, decode_on_gpus, engine_args, gpus, on_gpus, pool, servers, transfer
from vectors.serving import trn2

GROUP = [one for module in (rules, operation_rules) for one in vars(module).values() if isinstance(one, Rule)]
SERVER = [rule for rule in vars(nixl).values() if isinstance(rule, Rule)]


def judged(group: PrefillDecodeFacts) -> dict[str, Judgement]:
    """The worst that each rule has against a group, by id."""
    said = [(rule, judgement) for rule in GROUP for judgement in rule.judge(group)]
    said += [(rule, judgement) for rule in SERVER for role in group.roles for judgement in rule.judge(role.server)]
    return {one.id: judgement for one, judgement in said if not judgement.holds}


def broken(rule: Rule[Any], subject: Any) -> list[str]:
    return [(judgement.severity or rule.severity) for judgement in rule.judge(subject) if not judgement.holds]


# -- what is right --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "group",
    [
        servers(),
        servers(prefill={"devices": 4, "tensor_parallel": 16}, decode={"devices": 4, "tensor_parallel": 16}),
        servers(model={"id": WINDOWS}, roles={"devices": 4, "tensor_parallel": 8}),
        servers(pool(size=2, devices="plugin"), roles={"devices": 16}),
        on_gpus(),
        on_gpus(gpus(instance_types=["p5.48xlarge"])),
        on_gpus(gpus(instance_types=["p5en.48xlarge"], devices="claims"), roles={"devices": 4, "tensor_parallel": 4}),
        on_gpus(prefill={"tensor_parallel": 4}),
        on_gpus(model={"id": WINDOWS}),
    ],
    ids=str,
)
def test_a_valid_group_breaks_no_rule(group: PrefillDecodeFacts) -> None:
    assert judged(group) == {}


def test_a_baseline_is_judged_by_none_of_them() -> None:
    wrong = servers(pool(devices="plugin", efa=None), serving="baseline")
    assert not [judgement for rule in GROUP for judgement in rule.judge(wrong)]
    assert not [judgement for rule in SERVER for role in wrong.roles for judgement in rule.judge(role.server)]


def test_a_server_without_nixl_is_judged_by_none_of_them() -> None:
    assert not [judgement for rule in SERVER for judgement in rule.judge(trn2())]
    other = replace(trn2(), arguments=('--kv-transfer-config={"kv_connector": "LMCacheConnectorV1"}',))
    assert not [judgement for rule in SERVER for judgement in rule.judge(other)]


def test_flags_written_by_hand_are_judged_as_those_of_a_group() -> None:
    """With vLLM's own defaults: UCX, 30 seconds, no buffer device."""
    arguments = ('--kv-transfer-config={"kv_connector": "NixlConnector", "kv_role": "kv_producer"}',)
    by_hand = replace(trn2(), arguments=arguments, image=engine("neuron-2.32-vllm-0.24").image)
    assert {rule.id for rule in SERVER if broken(rule, by_hand)} == {"DI018", "DI019", "DI021"}


# -- borders --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "said"), [(1, ["error"]), (119, ["error"]), (120, []), (300, []), (301, ["warning"]), (3600, ["warning"])]
)
def test_leases_are_judged_at_their_borders(seconds: int, said: list[str]) -> None:
    assert broken(nixl.leases_are_long_enough, decode(kv_transfer={"lease_seconds": seconds})) == said


def test_a_lease_is_found_where_it_was_set() -> None:
    [own] = nixl.leases_are_long_enough.judge(decode(kv_transfer={"lease_seconds": 30}))
    assert own.path == ("servers", "llama", "kv_transfer", "lease_seconds")
    [flag] = nixl.leases_are_long_enough.judge(transfer({"kv_connector_extra_config": {leases().key: 30}}))
    assert flag.path == ("servers", "llama", "decode", "extra_args", "kv-transfer-config")


@pytest.mark.parametrize(("release", "has"), [("0.21.0", False), ("0.22.0", True), ("0.24.0", True), ("0.5.0.post1", False)])
def test_leases_came_with_a_release(release: str, has: bool) -> None:
    server = replace(decode(), engine=replace(decode().engine, vllm=release))
    assert bool(broken(nixl.engine_has_leases, server)) != has
    assert bool(broken(nixl.leases_are_long_enough, server)) is False, "which rule DI020 has said already"


@pytest.mark.parametrize(
    ("prefill", "decodes", "holds"), [(8, 8, True), (4, 8, True), (8, 4, True), (1, 8, True), (8, 6, False), (3, 2, False)]
)
def test_degrees_divide_each_other(prefill: int, decodes: int, holds: bool) -> None:
    group = on_gpus(prefill={"tensor_parallel": prefill}, decode={"tensor_parallel": decodes})
    assert ("error" not in broken(rules.degrees_fit, group)) == holds


def test_different_degrees_beyond_the_kv_heads_are_warned_of() -> None:
    few = on_gpus(model={"id": "Qwen/Qwen3-30B-A3B"}, prefill={"tensor_parallel": 4})
    assert find_model("Qwen/Qwen3-30B-A3B").kv_heads == 4  # pyright: ignore[reportOptionalMemberAccess]
    assert broken(rules.degrees_fit, few) == ["warning"]
    assert broken(rules.degrees_fit, on_gpus(model={"id": "Qwen/Qwen3-30B-A3B"})) == []


def test_latent_attention_is_held_whole_by_every_part() -> None:
    latent = on_gpus(prefill={"tensor_parallel": 4})
    assert broken(rules.degrees_fit, with_model(latent, "DeepSeek-V2-Lite")) == []
    unknown = list(rules.degrees_fit.judge(with_model(latent, "ours/llm")))
    assert [one.unjudged.what for one in unknown if one.unjudged] == ["KV heads"]


@pytest.mark.parametrize(("layout", "degree", "said"), [("NHD", 4, ["error"]), ("NHD", 8, []), ("HND", 4, [])])
def test_only_a_layout_by_heads_is_split_over_other_degrees(layout: str, degree: int, said: list[str]) -> None:
    group = on_gpus(prefill={"tensor_parallel": degree}, extra_env={"VLLM_KV_CACHE_LAYOUT": layout})
    assert broken(rules.degrees_fit, group) == said
    assert broken(rules.handshake_passes, group) == []


def test_a_layout_of_one_kind_alone_is_refused() -> None:
    group = on_gpus(decode={"extra_env": {"VLLM_KV_CACHE_LAYOUT": "NHD"}})
    assert broken(rules.handshake_passes, group) == ["error"]


def with_model(group: PrefillDecodeFacts, name: str) -> PrefillDecodeFacts:
    roles = {role.role: replace(role, server=replace(role.server, model=find_model(name))) for role in group.roles}
    return replace(group, **roles)


def with_pool(group: PrefillDecodeFacts, pool: KarpenterPoolSpec) -> PrefillDecodeFacts:
    return replace(group, **{role.role: replace(role, pool=pool) for role in group.roles})


@pytest.mark.parametrize(
    ("zones", "nodes", "placement", "said"),
    [
        (["use2-az3"], 2, "auto", []),
        (["use2-az3"], 2, "none", ["warning"]),
        (["use2-az3"], 1, "none", []),
        (["use2-az3", "use2-az1"], 2, "auto", ["error"]),
    ],
)
def test_servers_of_one_pool_are_near_each_other(zones: list[str], nodes: int, placement: str, said: list[str]) -> None:
    group = servers(pool(zone_ids=zones, size=nodes, placement=placement), decode={"replicas": 2})
    assert broken(operation_rules.servers_are_neighbours, group) == said


def test_two_pools_have_two_placement_groups_unless_one_is_named() -> None:
    """Each pool's own group is elsewhere."""
    assert broken(operation_rules.servers_are_neighbours, on_gpus(decode_on=gpus())) == ["warning"]
    own = KarpenterPoolSpec.model_validate({"instance_families": ["p4d"]})
    *_, said = operation_rules.servers_are_neighbours.judge(with_pool(on_gpus(decode_on=gpus()), own))
    assert (said.holds, said.given) == (False, "none")
    named = gpus(placement={"name": "close"})
    assert broken(operation_rules.servers_are_neighbours, on_gpus(named, decode_on=named)) == []


@pytest.mark.parametrize("serving", ["disaggregated", "baseline"])
@pytest.mark.parametrize(("nodes", "said"), [(1, ["error"]), (2, [])])
def test_a_second_group_needs_the_devices_of_both(nodes: int, said: list[str], serving: str) -> None:
    group = servers(pool(size=nodes), rollout="second_group", serving=serving)
    assert broken(operation_rules.second_group_has_room, group) == said
    assert broken(operation_rules.second_group_has_room, servers(pool(size=nodes), serving=serving)) == []


@pytest.mark.parametrize(
    ("pods", "nodes", "said"),
    [
        # Devices of two groups: 32 of 32, but no node holds five of one pod beside five of another.
        ({"devices": 5, "tensor_parallel": 5, "replicas": 3}, 6, ["error"]),
        ({"devices": 4, "tensor_parallel": 4}, 2, []),
        # Four pods with half of the GPUs of a node, and most of its CPUs.
        ({"devices": 4, "tensor_parallel": 4, "cpu": "60"}, 2, ["error"]),
        ({"devices": 4, "tensor_parallel": 4, "memory": "600Gi"}, 2, ["error"]),
    ],
)
def test_a_second_group_has_places_on_nodes_and_not_only_devices_in_sum(
    pods: dict[str, Any], nodes: int, said: list[str]
) -> None:
    group = on_gpus(gpus(size=nodes, devices="claims"), rollout="second_group", roles=pods)
    assert broken(operation_rules.second_group_has_room, group) == said


def test_a_second_group_has_room_beside_other_servers_of_the_pool() -> None:
    """DI044 knows the group alone."""
    changes = {"pools.gpu.size": 4, f"{LLAMA}.rollout": "second_group"}
    alone = verdict("gpu-nixl", changes)
    assert not [finding for finding in alone.findings if finding.rule.id in ("CAP001", "DI044")]
    shipped = yaml.safe_load((ROOT / "stacks" / "Pulumi.gpu-nixl.yaml").read_text())["config"]["eks-inference:stack"]
    other = {**shipped["servers"]["llama3-70b"], "namespace": "other"}
    found = verdict("gpu-nixl", {**changes, "servers.other": other, "load_test": None}).findings
    said = [(one.rule.id, one.severity, one.judgement.message) for one in found if one.rule.id in ("CAP001", "DI044")]
    assert [(id_, severity) for id_, severity, _ in said] == [("CAP001", "warning")]
    assert "once servers are scaled out or rolled out" in said[0][2]


def test_ranks_of_decode_are_documented_but_not_counted() -> None:
    group = on_gpus(decode={"extra_args": {"data-parallel-size": 2}})
    assert broken(operation_rules.pods_have_one_engine, group) == []
    assert any(judgement.unjudged for judgement in operation_rules.pods_have_one_engine.judge(group))


def test_different_degrees_on_neuron_are_published_for_the_connector_of_windows_only() -> None:
    halves = {"devices": 4, "tensor_parallel": 4}
    assert (
        broken(rules.degrees_fit, servers(model={"id": WINDOWS}, prefill=halves, decode={**halves, "tensor_parallel": 8})) == []
    )
    assert "warning" in broken(rules.degrees_fit, servers(prefill={"devices": 4, "tensor_parallel": 16}))


@pytest.mark.parametrize(
    ("prefill", "decodes", "model", "holds"),
    [
        (16, 16, MODEL, True),
        (16, 64, MODEL, True),
        (64, 16, MODEL, False),
        (16, 24, MODEL, False),
        (16, 64, WINDOWS, False),
        (16, 16, WINDOWS, True),
    ],
)
def test_blocks_of_decode_hold_whole_blocks_of_prefill(prefill: int, decodes: int, model: str, holds: bool) -> None:
    sizes = {"prefill": prefill, "decode": decodes}
    settings: dict[str, Any] = {role: {"extra_args": {"block-size": size}} for role, size in sizes.items()}
    group = on_gpus(model={"id": model}, **settings)
    assert (broken(rules.blocks_fit, group) == []) == holds


def test_a_block_size_of_one_kind_alone_is_not_judged() -> None:
    [said] = rules.blocks_fit.judge(on_gpus(decode={"extra_args": {"block-size": 32}}))
    assert said.unjudged


@pytest.mark.parametrize("name", ["dtype", "kv-cache-dtype", "attention-backend", "revision"])
def test_what_the_handshake_compares_may_be_set_for_the_group_only(name: str) -> None:
    assert broken(rules.handshake_passes, on_gpus(extra_args={name: "auto"})) == []
    assert broken(rules.handshake_passes, on_gpus(decode={"extra_args": {name: "auto"}})) == ["error"]


def test_the_number_of_proposed_tokens_may_differ() -> None:
    def with_tokens(tokens: int, method: str = "ngram") -> dict[str, Any]:
        return {"extra_args": {"speculative-config": {"method": method, "num_speculative_tokens": tokens}}}

    assert broken(rules.speculation_matches, on_gpus(prefill=with_tokens(3), decode=with_tokens(5))) == []
    assert broken(rules.speculation_matches, on_gpus(prefill=with_tokens(3), decode=with_tokens(3, "eagle"))) == ["error"]


@pytest.mark.parametrize(
    ("variables", "holds"),
    [
        ({"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}, False),
        ({"PYTORCH_ALLOC_CONF": "expandable_segments: true"}, False),
        ({"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:False"}, True),
        ({"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:128"}, True),
    ],
)
def test_options_of_the_allocator_are_read_one_by_one(variables: dict[str, str], holds: bool) -> None:
    assert (broken(nixl.memory_stays, decode_on_gpus(extra_env=variables)) == []) == holds


def test_an_image_that_nobody_described_is_not_judged() -> None:
    own = "registry.example/vllm@sha256:" + "0" * 64
    first = next(iter(nixl.connector_suits.judge(decode(image=own))))
    assert first.unjudged == ("libraries", own)


@pytest.mark.parametrize(("length", "said"), [(4096, []), (8192, ["warning"])])
def test_windows_matter_to_longer_sequences_only(length: int, said: list[str]) -> None:
    gemma = replace(decode_on_gpus(), model=find_model("Gemma-2-9B"), max_model_len=length)
    assert broken(nixl.windows_are_kept, gemma) == said


def test_an_unknown_connector_of_nixl_is_not_judged() -> None:
    [said] = nixl.decode_reads.judge(transfer({"kv_connector": "NixlEagerConnector"}))
    assert said.unjudged


def test_nixl_inside_another_connector_is_not_judged() -> None:
    several = {"kv_connector": "MultiConnector", "kv_connector_extra_config": {"connectors": [{"kv_connector": "NixlConnector"}]}}
    [said] = nixl.decode_reads.judge(replace(trn2(), arguments=(f"--kv-transfer-config={json.dumps(several)}",)))
    assert said.unjudged


@pytest.mark.parametrize("key", ["kv_connector", "kv_role", "kv_load_failure_policy"])
def test_a_group_has_a_connector_over_nixl_and_its_own_settings(key: str) -> None:
    other = {"kv_connector": "LMCacheConnectorV1", "kv_role": "kv_producer", "kv_load_failure_policy": "recompute"}[key]
    group = on_gpus(decode={"extra_args": {"kv-transfer-config": {key: other}}})
    assert broken(operation_rules.settings_are_followed, group) == ["error"]
    assert broken(operation_rules.settings_are_followed, on_gpus(extra_args={"kv-transfer-config.kv_role": "kv_both"})) == []


@pytest.mark.parametrize("config", ["x", "[]", "{}", "1"])
def test_a_transfer_that_is_no_object_is_refused(config: str) -> None:
    assert broken(operation_rules.settings_are_followed, on_gpus(extra_args={"kv-transfer-config": config}))


def test_an_unknown_model_is_not_judged() -> None:
    flags = (*decode().arguments, "--decode-context-parallel-size=2")
    unknown = replace(decode(), model=None, model_id="a/b", arguments=flags)
    for rule in (nixl.connector_suits, nixl.model_is_documented, nixl.contexts_divide):
        *others, said = rule.judge(unknown)
        assert said.unjudged
        assert all(one.holds and not one.unjudged for one in others)


def test_a_multimodal_model_is_warned_of_on_gpus() -> None:
    gemma = find_model("Gemma-3-27B")
    assert broken(nixl.model_is_documented, replace(decode_on_gpus(), model=gemma)) == ["warning"]
    assert broken(nixl.model_is_documented, decode_on_gpus(model={"id": "Qwen/Qwen3-32B"})) == []


@pytest.mark.parametrize(
    ("parts", "degree", "holds"), [(2, 32, True), (4, 32, True), (8, 32, False), (3, 32, False), (4, 16, False), (2, 16, True)]
)
def test_context_parallelism_on_neuron_needs_cores_for_every_kv_head(parts: int, degree: int, holds: bool) -> None:
    """Llama 3.3 70B: 64 heads, 8 KV heads."""
    server = replace(engine_args(decode_context_parallel_size=parts), tensor_parallel=degree)
    assert (broken(nixl.contexts_divide, server) == []) == holds


# -- interfaces -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", [one.name for one in instance_types().values() if one.accelerator and one.efa_interfaces and one.devices > 1]
)
def test_the_interfaces_that_the_library_chooses_are_right_on_every_type(name: str) -> None:
    neuron = instance_types()[name].accelerator == "neuron"
    nodes = pool(instance_types=[name], size=2, devices="plugin")
    group = (servers if neuron else on_gpus)(nodes, roles={"devices": None, "tensor_parallel": 8 if not neuron else 32})
    assert broken(rules.interfaces_match_devices, group) == []
    crosses = not nixl_profile("neuron" if neuron else "nvidia").reason_against(instance_types()[name])
    assert (broken(rules.chips_and_interfaces, group) == []) == crosses


@pytest.mark.parametrize(("asked", "said"), [(4, ["error"]), (8, []), (9, ["warning"])])
def test_a_chip_has_one_interface(asked: int, said: list[str]) -> None:
    assert broken(rules.interfaces_match_devices, servers(decode={"efa_interfaces": asked})) == said


# -- odd flags ------------------------------------------------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
TRANSFERS = st.fixed_dictionaries(
    {"kv_connector": st.sampled_from(["NixlConnector", "NixlPushConnector", "NeuronNixlConnector", "x-nixl"])},
    optional={
        "kv_buffer_device": JSON,
        "kv_load_failure_policy": JSON,
        "kv_connector_extra_config": JSON
        | st.fixed_dictionaries({}, optional={"backends": JSON, leases().key: JSON, "enforce_handshake_compat": JSON}),
    },
)
TEXTS = st.sampled_from(["", "0", "1", "-1", "x", "1.5", "None", "[]", "{}", '{"method": []}', '{"neuron_config": 1}'])


@pytest.mark.thorough
@bounded(max_examples=150, deadline=None)
@given(config=TRANSFERS | JSON, texts=st.lists(TEXTS, min_size=6, max_size=6))
def test_no_flag_of_a_user_makes_a_rule_fail(config: Any, texts: list[str]) -> None:
    names = (
        "block-size",
        "speculative-config",
        "additional-config",
        "decode-context-parallel-size",
        "shutdown-timeout",
        "data-parallel-size",
    )
    flags = (f"--kv-transfer-config={json.dumps(config)}", *(f"--{name}={text}" for name, text in zip(names, texts, strict=True)))

    def odd(server: ServingFacts) -> ServingFacts:
        return replace(server, arguments=(*server.arguments, *flags))

    good = servers()
    parsed = nixl.transfer_of(odd(good.decode.server).arguments)
    roles = {role.role: replace(role, server=odd(role.server), transfer=parsed) for role in good.roles}
    for judgement in judged(replace(good, **roles)).values():
        assert judgement.message
        assert judgement.path


# -- what a stack file is answered with ------------------------------------------------------------------------------------------

LLAMA = "servers.llama3-70b"

MISTAKES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "Half nodes with the device plugin": ("trn2-nixl", "DI032", {"pools.trn2.devices": "plugin"}),
    "vLLM's own lease": ("trn2-nixl", "DI021", {f"{LLAMA}.kv_transfer": {"lease_seconds": 30}}),
    "An instance type without GPUDirect RDMA": ("gpu-nixl", "DI030", {"pools.gpu.instance_types": ["g6e.48xlarge"]}),
    "Nodes without EFA": ("gpu-nixl", "DI030", {"pools.gpu.efa": None}),
    "UCX over EFA": (
        "gpu-nixl",
        "DI018",
        {f"{LLAMA}.extra_args": {"kv-transfer-config": {"kv_connector_extra_config": {"backends": ["UCX"]}}}},
    ),
    "The push connector": (
        "gpu-nixl",
        "DI016",
        {f"{LLAMA}.extra_args": {"kv-transfer-config.kv_connector": "NixlPushConnector"}},
    ),
    "Four interfaces for eight chips": ("trn2-nixl", "DI031", {f"{LLAMA}.decode.efa_interfaces": 4}),
    "All interfaces for half of the chips": ("trn2-nixl", "DRA006", {f"{LLAMA}.decode.efa_interfaces": 16}),
    "An engine without the connector": ("gpu-nixl", "DI017", {f"{LLAMA}.engine": "cuda-vllm-0.30"}),
    "An FP8 KV cache on decode only": ("gpu-nixl", "DI035", {f"{LLAMA}.decode.extra_args": {"kv-cache-dtype": "fp8"}}),
    "A listening address as the address of the side channel": (
        "gpu-nixl",
        "DI038",
        {f"{LLAMA}.extra_env": {"VLLM_NIXL_SIDE_CHANNEL_HOST": "0.0.0.0"}},
    ),
    "Adapters": ("gpu-nixl", "DI024", {f"{LLAMA}.extra_args": {"enable-lora": True}}),
}


def verdict(stack: str, changes: dict[str, Any]) -> Verdict:
    """What the rules say of a stack of the repository, changed: ``servers.llama.devices`` is a key below others."""
    config = copy.deepcopy(yaml.safe_load((ROOT / "stacks" / f"Pulumi.{stack}.yaml").read_text())["config"])
    for path, value in changes.items():
        *above, last = path.split(".")
        place = config["eks-inference:stack"]
        for key in above:
            place = place[key]
        if value is None:
            place.pop(last)
        else:
            place[last] = value
    return check_spec(parse_stack(json.dumps(config["eks-inference:stack"])), config["aws:region"])


def test_every_mistake_in_a_stack_file_is_answered_with_place_value_and_remedy() -> None:
    parts: list[str] = []
    for title, (stack, id_, changes) in MISTAKES.items():
        try:
            found = [finding for finding in verdict(stack, changes).findings if finding.rule.id == id_]
        except SpecError as refusal:
            raise AssertionError(f"{title}: {refusal}") from refusal
        assert found, title
        for finding in found[:1]:
            fault = finding.fault
            assert fault.path, title
            assert fault.given, title
            assert fault.hint, title
            assert finding.rule.source, title
            parts.append(f"{title} ({stack})\n{finding.severity}: {fault.render()}\n    source: {finding.rule.source}\n")
    assert_golden("prefill_decode/mistakes.txt", "\n".join(parts))
