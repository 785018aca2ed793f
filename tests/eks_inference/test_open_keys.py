"""What a stack file may leave open: it follows from its pools, its models and the catalog, or somebody is told what to write."""

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import ROOT
from eks_inference import InferencePlatform
from eks_inference.catalog.instances import instance_types
from eks_inference.catalog.models import models
from eks_inference.faults import SpecError, format_path
from eks_inference.pools.spec import ManagedPoolSpec
from eks_inference.serving.facts import ServingFacts
from eks_inference.serving.feasibility import at_once
from eks_inference.serving.kinds import KINDS
from eks_inference.stack import defaults, open_servers
from eks_inference.stack.reading import parse_stack
from eks_inference.stack.registry import check_spec
from eks_inference.stack.spec import AcceleratorsSpec, StackSpec
from open_stacks import minimal, recorded_stack, without_reasons, written_out
from stackgraph.recorder.bounded_yaml import compose
from stackgraph.testing import record

GPU = minimal("g6.xlarge", "Qwen/Qwen3-8B")
ACCELERATED = sorted(name for name, one in instance_types().items() if one.accelerator)
REPOSITORIES = sorted(model.repositories[0] for model in models().values())
SKETCHED = sorted(kind for kind, one in KINDS.items() if one.sketched)


def parsed(stack: dict[str, Any]) -> StackSpec:
    return parse_stack(json.dumps(stack))


def followed(spec: StackSpec) -> dict[str, Any]:
    return {format_path(resolved.path): resolved.value for resolved in spec.resolved}


def faults(stack: dict[str, Any]) -> list[str]:
    with pytest.raises(SpecError) as caught:
        parsed(stack)
    return [fault.render() for fault in caught.value.faults]


def test_a_stack_of_six_values_is_whole():
    spec = parsed(GPU)
    assert followed(spec) == {
        "pools.nodes.kind": "managed",
        "servers.m.kind": "vllm",
        "pools.core": defaults.CORE_POOL,
        "servers.m.pool": "nodes",
        "servers.m.engine": "cuda-vllm-0.30",
        "servers.m.tensor_parallel": 1,
        "servers.m.max_model_len": 4096,
        "servers.m.max_num_seqs": 256,
        "servers.m.devices": 1,
        "servers.m.disk_gib": 100,
        "accelerators.nvidia": {},
    }
    assert {one.path: one.why for one in spec.resolved}["servers", "m", "engine"].startswith("row cuda-vllm-0.30 of engines.toml")
    assert [*spec.pools] == ["core", "nodes"]


@pytest.mark.thorough
@pytest.mark.parametrize(
    "stack",
    [
        GPU,
        minimal("inf2.24xlarge", "NousResearch/Meta-Llama-3-8B-Instruct"),
        minimal("g4dn.xlarge", "facebook/opt-350m", "triton"),
    ],
    ids=["gpu", "neuron", "triton"],
)
def test_the_graph_is_that_of_the_long_form(stack):
    long = written_out(parsed(stack), stack)
    assert not parsed(long).resolved
    assert without_reasons(recorded_stack(stack)) == without_reasons(recorded_stack(long))


@pytest.mark.thorough
def test_a_program_gives_the_same_stack_as_an_object_or_a_mapping():
    from_file = parsed(GPU)
    assert StackSpec.of(GPU) == from_file
    assert StackSpec(**GPU) == from_file
    pools = {"nodes": ManagedPoolSpec(instance_types=("g6.xlarge",), size=1)}
    assert StackSpec(**{**GPU, "pools": pools}).model_dump() == from_file.model_dump()
    assert not StackSpec(**{**GPU, "accelerators": AcceleratorsSpec()}).accelerators.nvidia, "a spec says all of its section"


@pytest.mark.thorough
def test_a_platform_takes_an_open_mapping():
    """As the README has it: the constructor compares its arguments first, and must not ask for what follows."""
    graph = record(lambda: InferencePlatform(GPU), config={"aws:region": "us-west-2"})
    assert graph.one("eks-inference:index:VllmServer").name == next(iter(GPU["servers"]))


def test_what_a_stack_says_stays():
    said: dict[str, Any] = {"tensor_parallel": 2, "max_model_len": 2048, "max_num_seqs": 3, "disk_gib": 77}
    server = parsed(minimal("g6.12xlarge", "Qwen/Qwen3-8B", **said)).servers["m"]
    assert {key: getattr(server, key) for key in said} == said
    assert server.engine == "cuda-vllm-0.30"
    assert followed(parsed(minimal("g6.12xlarge", "Qwen/Qwen3-8B", devices=4)))["servers.m.tensor_parallel"] == 4
    assert followed(parsed(minimal("g6.12xlarge", "Qwen/Qwen3-8B", tensor_parallel=4)))["servers.m.pool"] == "nodes"


LONG_70B = {"tensor_parallel": 8, "max_model_len": 8192}


@pytest.mark.parametrize(
    ("said", "held"),
    [
        ({}, 2),
        ({"max_num_seqs": 16}, 3),  # fewer are sampled together
        ({"engine": "cuda-vllm-0.30"}, 2),
        ({"engine": "cuda-vllm-0.30", "max_num_seqs": 256, "devices": 8, "disk_gib": 300}, 2),
    ],
)
def test_a_server_runs_with_fewer_sequences_than_were_only_wished_whichever_keys_are_written(said, held):
    """A pod on g5.48xlarge holds fewer of the longest than the four that `plan` would like: vLLM starts, and others wait."""
    spec = parsed(minimal("g5.48xlarge", "meta-llama/Llama-3.3-70B-Instruct", **LONG_70B, **said))
    verdict = check_spec(spec, "us-west-2")
    assert not verdict.faults
    assert [at_once(subject) for subject in verdict.subjects if isinstance(subject, ServingFacts)] == [held]


def test_a_batch_that_was_only_wished_shrinks_until_it_fits():
    model = "meta-llama/Llama-2-13b-chat-hf"
    batches = {one: followed(parsed(minimal(one, model, max_model_len=4096))) for one in ("inf2.xlarge", "inf2.24xlarge")}
    assert [batch["servers.m.max_num_seqs"] for batch in batches.values()] == [1, 4]
    (said,) = faults(minimal("inf2.xlarge", model, max_model_len=4096, max_num_seqs=4))
    assert "NEU008" in said, "a batch that somebody asks for is compiled as it is"


@pytest.mark.parametrize(("given", "devices"), [({"data-parallel-size": 4, "enable-expert-parallel": True}, 4), ({}, 1)])
def test_ranks_take_devices_too(given, devices):
    found = followed(parsed(minimal("p5en.48xlarge", "Qwen/Qwen3-30B-A3B", extra_args=given)))
    assert (found["servers.m.tensor_parallel"], found["servers.m.devices"]) == (1, devices)


@pytest.mark.thorough
def test_a_stack_that_says_everything_asks_no_rule(monkeypatch):
    long = written_out(parsed(GPU), GPU)
    monkeypatch.setattr(open_servers, "spec_rules", lambda: pytest.fail("searches"))
    assert not parsed(long).resolved


@pytest.mark.thorough
@given(st.sampled_from(ACCELERATED), st.sampled_from(REPOSITORIES), st.sampled_from(SKETCHED), st.data())
def test_what_is_chosen_passes_the_rules_or_somebody_is_told_what_to_write(instance, model, kind, data):
    said = data.draw(
        st.fixed_dictionaries(
            {},
            optional={
                "max_model_len": st.sampled_from([512, 2048, 100_000]),
                "max_num_seqs": st.sampled_from([1, 8]),
                "tensor_parallel": st.sampled_from([1, 8]),
            },
        )
    )
    stack = minimal(instance, model, kind, **said)
    try:
        spec = parsed(stack)
    except SpecError as error:
        for fault in error.faults:
            assert fault.hint or fault.allowed or fault.given, fault
            assert fault.path[0] in ("servers", "pools"), fault
        return
    wrong = [fault for fault in check_spec(spec, "us-east-1").faults if fault.path[:2] == ("servers", "m")]
    open_here = {resolved.path[2] for resolved in spec.resolved if resolved.path[:2] == ("servers", "m")} - {"kind", "pool"}
    assert not (wrong and open_here), wrong
    for defaults_too in (True, False):
        assert parsed(written_out(spec, stack, defaults=defaults_too)).model_dump() == spec.model_dump()


ODD = (None, "x", "", 0, -1, 1.5, True, [], {}, {"a": 1}, ["x"], [None], {"kind": [1]}, 10**30)
WHOLE = minimal(
    "inf2.48xlarge", "NousResearch/Meta-Llama-3-8B-Instruct", "ray_serve_vllm", worker={"devices": 2}, engine="x", head={}
) | {"accelerators": {"neuron": {}}, "silenced": {"NEU008": "for once"}, "cluster": {"version": "1.35"}, "core_pool": "core"}


CLASSES = re.compile(rf"\b({'|'.join(StackSpec.model_json_schema()['$defs'])})\b")


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    for key, one in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield (*path, key)
        yield from places(one, (*path, key))


@pytest.mark.thorough
@pytest.mark.parametrize("path", [*places(WHOLE)], ids=format_path)
def test_an_odd_value_anywhere_is_a_fault_and_no_crash(path):
    for odd in ODD:
        stack = json.loads(json.dumps(WHOLE))
        at = stack
        for key in path[:-1]:
            at = at[key]
        at[path[-1]] = odd
        with suppress(SpecError):
            StackSpec.of(stack)
        try:
            parsed(stack)
        except SpecError as error:
            told = [fault.render().partition(", in Python ")[0] for fault in error.faults]
            assert not [one for one in told if CLASSES.search(one)], "a class, to somebody who writes YAML"


NEURON = minimal("inf2.48xlarge", "NousResearch/Meta-Llama-3-8B-Instruct")


def test_device_plugins_follow_from_pools():
    assert not parsed(NEURON).has_neuron_scheduler
    assert parsed(NEURON).accelerators.neuron
    part = {**NEURON, "servers": {"m": {**NEURON["servers"]["m"], "tensor_parallel": 8, "devices": 4}}}
    assert parsed(part).has_neuron_scheduler
    without = {key: value for key, value in NEURON.items() if key != "servers"}
    assert parsed(without).has_neuron_scheduler, "nobody knows what pods will take"
    both = {**NEURON, "pools": {**NEURON["pools"], "gpu": {**GPU["pools"]["nodes"]}}}
    both["servers"]["m"]["pool"] = "nodes"
    assert parsed({**both, "accelerators": {"nvidia": False}}).accelerators.nvidia is False
    assert parsed(both).accelerators.nvidia
    assert not parsed(GPU).accelerators.neuron


CPU: dict[str, Any] = {"kind": "managed", "instance_types": ["m5.large"], "size": 1}
RAY = minimal("inf2.8xlarge", "NousResearch/Meta-Llama-3-8B-Instruct", "ray_serve_vllm")


def with_pools(**pools: Any) -> dict[str, Any]:
    return {**GPU, "pools": {**GPU["pools"], **pools}}


def test_a_core_pool_follows_only_where_there_is_none():
    assert followed(parsed(with_pools(other=CPU)))["core_pool"] == "other"
    assert StackSpec(**with_pools(other=ManagedPoolSpec(instance_types=("m5.large",), size=2))).core_pool == "other"
    assert "core_pool" not in followed(parsed({**with_pools(other=CPU), "core_pool": "other"}))
    assert followed(parsed(with_pools(other={"kind": "karpenter", "instance_families": ["c5"]})))["pools.core"]
    taint = {"key": "batch", "value": "yes", "effect": "NoSchedule"}
    assert followed(parsed(with_pools(other={**CPU, "extra_taints": [taint]})))["pools.core"]
    assert not {"core_pool", "pools.core"} & followed(parsed(with_pools(core=CPU, other=CPU))).keys()
    assert faults({**GPU, "core_pool": "other"})[0].startswith("core_pool: there is no pool of this name")


def test_a_core_pool_that_builds_images_is_larger():
    spec = parsed(RAY)
    assert followed(spec)["pools.core"] == {**defaults.LARGER_CORE_POOL, "root_volume_gib": 135}
    assert not check_spec(spec, "us-west-2").faults
    image = {"kind": "in_cluster", "ephemeral_storage_gib": 200}
    assert followed(parsed({**RAY, "servers": {"m": {**RAY["servers"]["m"], "image": image}}}))["pools.core"] == {
        **defaults.LARGER_CORE_POOL,
        "root_volume_gib": 246,
    }
    pinned = {**RAY, "servers": {"m": {**RAY["servers"]["m"], "image": "example.com/vllm:0.13.0"}}}
    assert followed(parsed(pinned))["pools.core"] == defaults.LARGER_CORE_POOL, "the head runs there"
    assert "root_volume_gib" in faults({**RAY, "pools": {**RAY["pools"], "core": CPU}})[0], "a pool of the file stays as it is"


@pytest.mark.parametrize(
    ("stack", "told"),
    [
        (
            minimal("g6.xlarge", "Qwen/Qwen3-32B"),
            [
                "servers.m.engine: no choice of the open keys serves Qwen3-32B on g6.xlarge",
                "weights alone take 61.03 GiB of 19.8 GiB a GPU",
                "another pool",
            ],
        ),
        (
            minimal("g6.xlarge", "some/thing"),
            ["servers.m.engine: nothing follows from a model whose shape is unknown", "--hub", "model.config", "docs/models.md"],
        ),
        (minimal("g6.xlarge", "Qwen/Qwen3-8B", "vllm", engine="triton-26.08-vllm-0.27"), ["servers.m.engine: engine triton-26"]),
        (
            minimal("g6.xlarge", "Qwen/Qwen3-8B", engine="neuron-2.32-vllm-0.24"),
            ["servers.m.engine: does not serve Qwen3-8B on g6.xlarge", "allowed: cuda-vllm-0.30"],
        ),
        (
            minimal("trn2.48xlarge", "Qwen/Qwen3-8B", "ray_serve_vllm", engine="neuron-2.32-vllm-0.24"),
            ["servers.m.image: no choice of the open keys serves Qwen3-8B on trn2.48xlarge"],
        ),
        (minimal("g6.xlarge", "Qwen/qwen3-8b"), ["no model 'Qwen/qwen3-8b'; nearest: Qwen/Qwen3-8B"]),
        (
            minimal("g6.xlarge", "Qwen/Qwen3-8B", extra_env={"HF_TOKEN": "hf_1"}),
            ["servers.m.extra_env", "HF_TOKEN is not free to set", "use the secret huggingFaceToken"],
        ),
        (
            minimal("g6.xlarge", "Qwen/Qwen3-8B", extra_args={"api-key": "sk-1"}),
            ["servers.m.extra_args", "api-key is not free to set", "use the secret servingApiKey"],
        ),
        (
            minimal("g6.xlarge", "Qwen/Qwen3-8B", extra_args={"pipeline-parallel-size": 2, "pipeline_parallel_size": 2}),
            ["servers.m.extra_args: the flag pipeline-parallel-size is given twice"],
        ),
        *(
            (minimal(instance, model, tensor_parallel=degree), [f"servers.m.tensor_parallel: {words}", f"given: {degree}"])
            for instance, model, degree, words in (
                ("g6.xlarge", "Qwen/Qwen3-8B", 2, "g6.xlarge has 1 GPU\n"),
                ("inf2.8xlarge", "meta-llama/Llama-3.1-8B-Instruct", 1000, "inf2.8xlarge has 2 NeuronCores\n"),
            )
        ),
        (minimal("g6.xlarge", "Qwen/Qwen3-8B", engine="cuda"), ["servers.m.engine: NEU001: engine profile 'cuda'"]),
        (minimal("g6.xlage", "Qwen/Qwen3-8B"), ["pools.nodes.instance_types[0]: NEU001"]),
        (
            minimal("g6.xlarge", "Qwen/Qwen3-8B", pool="node"),
            ["servers.m.pool: there is no pool of this name", "did you mean 'nodes'?"],
        ),
        (minimal("g6.xlarge", "Qwen/Qwen3-8B", dtyp="auto"), ["servers.m.dtyp: unknown key", "did you mean 'dtype'?"]),
        ({**GPU, "budget": 100}, ["budget: unknown key", "did you mean 'budget_usd_per_month'?"]),
        (
            minimal(
                "g6.xlarge",
                "Qwen/Qwen3-8B",
                autoscaling={"schedule": [{"start": "0 7 * * *", "end": "0 8 * * *", "pods": 9}], "max": 4},
            ),
            ["schedule[0].pods is 9", "allowed: more than min 1, at most max 4"],
        ),
        (minimal("g6.xlarge", "Qwen/Qwen3-8B", max_model_len="8k"), ["servers.m.max_model_len: should be an integer"]),
        (
            {**GPU, "pools": {**GPU["pools"], "more": GPU["pools"]["nodes"]}},
            ["servers.m.pool: this key is required and missing", "allowed: more, nodes"],
        ),
        (
            minimal("inf2.xlarge", "Qwen/Qwen3-8B", "triton"),
            ["servers.m.pool: this key is required", "allowed: there is none yet"],
        ),
        (
            {**GPU, "pools": {"nodes": {"instance_families": ["g6"]}}},
            ["pools.nodes.kind: this key is required and missing", "allowed: karpenter, managed"],
        ),
        ({**GPU, "catalog": ["./nowhere.toml"]}, ["catalog"]),
        ({**GPU, "pools": {}}, ["pools: should have 1 or more entries", "e.g. gpu: {instance_types: [g6.xlarge], size: 1}"]),
        ({**GPU, "pools": {**GPU["pools"], "a": CPU, "b": CPU}}, ["core_pool: several pools could run", "allowed: a, b"]),
        ({**GPU, "servers": {"m": {"model": {}}}}, ["servers.m.model.id: this key is required", "Repository on the"]),
    ],
)
def test_one_fault_names_the_key_and_what_to_write(stack, told):
    found = faults(stack)
    assert len(found) == 1, found
    assert all(text in found[0] for text in told), found[0]


@pytest.mark.thorough
def test_a_hint_names_a_command_that_knows_the_model(tmp_path, monkeypatch):
    keys = (
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "vocab_size",
        "intermediate_size",
        "max_position_embeddings",
    )
    shape = {"model_type": "llama", **dict(zip(keys, (8192, 80, 64, 128_000, 28_672, 8192), strict=True))}
    assert "`eks-inference plan --model Qwen/Qwen3-32B`" in faults(minimal("g6.xlarge", "Qwen/Qwen3-32B"))[0]
    assert "eks-inference plan" not in faults({**GPU, "servers": {"m": {"model": {"id": "ours/llm", "shape": shape}}}})[0]
    (tmp_path / "config.json").write_text(json.dumps(shape))
    monkeypatch.chdir(tmp_path)
    model = {"id": "ours/llm", "config": "./config.json"}
    assert "`eks-inference plan --config ./config.json`" in faults({**GPU, "servers": {"m": {"model": model}}})[0]


def test_faults_of_several_servers_are_told_at_once():
    servers = {"a": {"model": {"id": "Qwen/Qwen3-32B"}}, "b": {"model": {"id": "some/thing"}}, "c": {"model": {}}}
    found = faults({**GPU, "servers": servers})
    assert [one.partition(":")[0] for one in found] == ["servers.c.model.id", "servers.a.engine", "servers.b.engine"]


def test_the_page_shows_such_a_stack_and_such_an_error():
    page = (ROOT / "docs" / "open-keys.md").read_text("utf-8")
    shown = compose(page.partition("```yaml\n")[2].partition("```")[0]).plain()["config"]["eks-inference:stack"]
    assert followed(parsed(shown))["servers.m.engine"]
    shown["servers"]["m"]["model"]["id"] = "Qwen/Qwen3-32B"
    (said,) = faults(shown)
    assert said in page
