"""What ``plan`` advises passes the rules, and one step more does not."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from eks_inference.accelerators.neuron.plan import cores_of, is_legal
from eks_inference.catalog.engines import EngineProfile, engine, engines
from eks_inference.catalog.instances import InstanceType, instance_type, instance_types
from eks_inference.catalog.models import Model, model, models
from eks_inference.place.nodes import share
from eks_inference.place.placement import Placement
from eks_inference.rules import Finding, findings
from eks_inference.serving.choosing import USUAL_SEQUENCES, engines_for, largest
from eks_inference.serving.facts import ServingFacts
from eks_inference.serving.feasibility import Fit, Split, feasibility, usual_lengths
from eks_inference.serving.flag_values import backend_settings
from eks_inference.serving.pod_parts import engine_environment
from eks_inference.serving.rules.every_server import server_rules
from vectors.neuron import llama3
from vectors.serving import gpu, on, server

ACCELERATED = sorted(name for name, one in instance_types().items() if one.accelerator)
MEMORY = {"NEU008", "GPU001"}
# No question of the table: an image; a flag (--dtype=half for weights in bfloat16 under old releases on old GPUs).
FLAGS = {"GPU004", "SRV023"}


@st.composite
def questions(draw: st.DrawFn) -> tuple[Model, InstanceType, EngineProfile]:
    instance = instance_type(draw(st.sampled_from(ACCELERATED)))
    wanted = model(draw(st.sampled_from(sorted(models()))))
    choices = engines_for(instance, wanted)
    assume(choices)
    return wanted, instance, draw(st.sampled_from(choices))


def served(
    wanted: Model, instance: InstanceType, profile: EngineProfile, split: Split, sequences: int, length: int
) -> ServingFacts:
    """A server as somebody would write it who follows the table."""
    mine = share(instance, split.devices)
    return patient(
        engine=profile,
        model=wanted,
        model_id=wanted.repositories[0],
        placement=Placement("p", instance, {}),
        does=wanted.task,
        has_task=True,
        devices=split.devices,
        tensor_parallel=split.tensor_parallel,
        max_num_seqs=USUAL_SEQUENCES if profile.generation.paged else sequences,
        max_model_len=length,
        pods_min=1,
        pods_max=split.pods,
        cpu_millis=mine.cpu_millis,
        memory_mib=mine.memory_mib,
        scheduler=split.scheduler,
        arguments=tuple(f"--{name}={value}" for name, value in backend_settings(profile.vllm, instance, (), wanted).items()),
    )


def patient(**facts: Any) -> ServingFacts:
    """A server that is waited for as long as its model needs, with the flag that whole prompts need, and its variables."""
    found = server(**facts)
    whole = found.engine.generation.takes_prompts_whole(found.max_model_len)
    arguments = (*found.arguments, *(["--no-enable-prefix-caching"] if whole else []))
    seconds = found.startup.engine_s
    environment = engine_environment(found.engine, found.instance, found.model, seconds)
    return replace(found, startup_timeout_s=seconds, arguments=arguments, environment=environment)


def found(facts: ServingFacts) -> list[Finding]:
    return list(findings(server_rules(), facts, {}))


def ids(facts: ServingFacts, *, errors: bool = False) -> set[str]:
    return {finding.rule.id for finding in found(facts) if finding.severity == "error" or not errors}


@given(questions(), st.data())
def test_what_is_advised_passes_every_rule_and_one_sequence_more_does_not(question: tuple, data: st.DataObject) -> None:
    wanted, instance, profile = question
    possible = [split for split in feasibility(wanted, instance, profile).splits if not split.refusal]
    assume(possible)
    split: Split = data.draw(st.sampled_from(possible))
    fit: Fit = data.draw(st.sampled_from(split.fits))
    advised, most, length = fit.advised.sequences, fit.most.sequences, fit.max_model_len

    def said(sequences: int, *, errors: bool = False) -> set[str]:
        return ids(served(wanted, instance, profile, split, sequences, length), errors=errors) - FLAGS

    if advised:
        assert said(advised) <= _told(split)
    if most:
        assert not said(most, errors=True)
    if profile.generation.paged:
        # Sequences share the pages: a batch is never too large, a single sequence may be too long.
        assert bool(advised) == (not said(1) & MEMORY)
        assert bool(most) == (not said(1, errors=True))
        if wanted.writes:  # others keep nothing of a sequence
            assert not fit.advised.of(advised + 1, length).surely_fits
            assert not fit.most.of(most + 1, length).fits
    else:
        assert said(advised + 1) & (MEMORY if advised else {*MEMORY, "NEU032"})
        assert said(most + 1, errors=True) & MEMORY


def _told(split: Split) -> set[str]:
    """Ids of the warnings about what the table shows of a split, whatever the batch."""
    said = {"NEU004": split.idle_cores, "NEU007": split.kv_repeats > 1, "GPU006": split.idle_devices}
    cautious = {
        "NEU005": "no document lists",
        "NEU006": "pads",
        "NEU025": "host memory",
        "GPU010": "kernel",
        "SRV017": " report: ",
    }
    said |= {id_: any(words in caution for caution in split.cautions) for id_, words in cautious.items()}
    return {id_ for id_, shown in said.items() if shown}


@given(questions())
def test_what_is_refused_breaks_a_rule(question: tuple) -> None:
    wanted, instance, profile = question
    lengths = usual_lengths(wanted)
    for split in feasibility(wanted, instance, profile).splits:
        if split.refusal:
            whole = Split(split.tensor_parallel, devices=instance.devices, pods=1)
            assert ids(served(wanted, instance, profile, whole, 1, lengths[0]), errors=True), split


@given(questions())
def test_devices_are_a_number_that_can_be_given_and_the_smallest_that_does(question: tuple) -> None:
    wanted, instance, profile = question
    for split in feasibility(wanted, instance, profile).splits:
        if split.refusal:
            continue
        assert split.pods * split.devices + split.idle_devices == instance.devices
        assert split.pods >= 1
        if instance.accelerator == "neuron":
            assert is_legal(split.devices, instance)
            assert cores_of(split.devices, instance) == split.tensor_parallel + split.idle_cores
            fewer = [one for one in instance.legal_device_counts if one < split.devices]
            assert all(cores_of(one, instance) < split.tensor_parallel for one in fewer)
        else:
            assert split.devices == split.tensor_parallel
            assert not split.scheduler


@given(questions())
def test_longer_sequences_are_never_more(question: tuple) -> None:
    for split in feasibility(*question).splits:
        counts = [fit.most.sequences for fit in split.fits]
        assert counts == sorted(counts, reverse=True)
        assert all(fit.advised.sequences <= fit.most.sequences for fit in split.fits)


@given(st.integers(0, 10_000))
def test_largest_finds_the_boundary(boundary: int) -> None:
    assert largest(lambda count: count <= boundary) == boundary


# -- what the sources would have been told --------------------------------------------------------------------------------------


def split_of(name: str, instance: str, degree: int) -> Split:
    wanted, shape = model(name), instance_type(instance)
    answer = feasibility(wanted, shape, engines_for(shape, wanted)[0])
    return next(split for split in answer.splits if split.tensor_parallel == degree)


@pytest.mark.parametrize(
    ("name", "instance", "degree", "reason"),
    [
        ("Llama-2-13B", "inf2.8xlarge", 8, "inf2.8xlarge has 2 NeuronCores"),
        ("Llama-2-13B", "inf2.48xlarge", 1, "weights alone take 24.24 GiB of 16 GiB a core"),
        ("OPT-350M", "g4dn.xlarge", 4, "g4dn.xlarge has 1 GPU"),
        ("Phi-4", "g6.12xlarge", 4, "10 KV heads mod 4 = 2"),
    ],
)
def test_a_refusal_says_why(name: str, instance: str, degree: int, reason: str) -> None:
    assert split_of(name, instance, degree).refusal == reason


def test_heads_that_the_engine_pads_and_splits_that_no_document_lists_are_told() -> None:
    assert split_of("Llama-2-13B", "inf2.48xlarge", 24).cautions == (
        "the engine pads 40 attention heads to 48, against its documents",
    )
    assert "no document lists 16 cores on inf2" in split_of("Llama-3.3-70B", "inf2.48xlarge", 16).cautions[0]


def test_a_host_too_small_for_the_weights_is_told() -> None:
    assert "24.2 GiB of host memory" in split_of("Llama-2-13B", "inf2.xlarge", 2).cautions[0]
    assert not split_of("Llama-2-13B", "inf2.8xlarge", 2).cautions


def test_what_somebody_reports_is_told() -> None:
    assert any("in INT8 only" in caution for caution in split_of("Llama-3-8B", "inf2.xlarge", 2).cautions)
    assert not split_of("Llama-3-8B", "inf2.8xlarge", 2).cautions


@pytest.mark.thorough
def test_no_engine_is_offered_that_a_rule_refuses() -> None:
    about_engines = [rule for rule in server_rules() if rule.id in {"NEU012", "NEU013", "GPU005", "GPU008", "SRV003", "SRV020"}]
    assert len(about_engines) == 6
    for instance in map(instance_type, ACCELERATED):
        for wanted in models().values():
            offered = engines_for(instance, wanted, kind="prefill_decode")
            for profile in engines().values():
                placed = Placement("p", instance, {})
                of_model = {"model": wanted, "does": wanted.task, "has_task": profile.standalone}
                facts = server(engine=profile, placement=placed, image="", **of_model)
                refused = [finding for finding in findings(about_engines, facts, {}) if finding.severity == "error"]
                named_only = profile.on_request or wanted.architecture in profile.listed
                assert (profile in offered) == (not refused and not named_only)


def test_an_engine_for_one_kind_of_server_is_offered_to_no_other() -> None:
    p4d, llama = instance_type("p4d.24xlarge"), model("Llama-3.1-8B")
    assert "cuda-efa-vllm-0.30" not in {engine_profile.name for engine_profile in engines_for(p4d, llama)}
    assert "cuda-efa-vllm-0.30" not in {engine_profile.name for engine_profile in engines_for(p4d, llama, kind="vllm")}
    assert "cuda-efa-vllm-0.30" in {engine_profile.name for engine_profile in engines_for(p4d, llama, kind="prefill_decode")}


def test_an_engine_on_request_is_offered_to_who_names_it() -> None:
    l4, llama = instance_type("g6.xlarge"), model("Llama-3.1-8B")
    assert "cuda-vllm-0.33" not in {engine_profile.name for engine_profile in engines_for(l4, llama)}
    assert "cuda-vllm-0.33" in {engine_profile.name for engine_profile in engines_for(l4, llama, named="cuda-vllm-0.33")}
    assert all(engine_profile.caveat for engine_profile in engines().values() if engine_profile.on_request), "it says why"


def test_lengths_are_powers_of_two_and_the_longest() -> None:
    assert usual_lengths(model("OPT-350M")) == [2048]
    assert usual_lengths(model("Llama-2-13B")) == [2048, 4096]
    assert usual_lengths(model("Qwen3-32B")) == [2048, 4096, 8192, 16384, 32768, 40960]


# -- the configurations of the source systems -----------------------------------------------------------------------------------


def static_pair(degree: int, copies: int) -> ServingFacts:
    """Llama-3.3-70B, prefill and decode of four sequences: both on one instance, or one on each of two."""
    return patient(
        engine=engine("neuron-2.26-vllm-0.9"),
        model=model("Llama-3.3-70B"),
        model_id="meta-llama/Llama-3.3-70B-Instruct",
        placement=on("trn2.48xlarge", driver="2.24.7"),
        devices=16,
        tensor_parallel=degree,
        copies=copies,
        max_num_seqs=4,
        max_model_len=8192,
        pods_min=1,
        pods_max=1,
        cpu_millis=180_000,
        memory_mib=1_800_000,
    )


@pytest.mark.parametrize(
    "facts", [server(), llama3(), gpu(), static_pair(32, 2), static_pair(64, 1)], ids=lambda one: one.model_id
)
def test_the_source_systems_own_configurations_pass(facts: ServingFacts) -> None:
    assert ids(facts, errors=True) == set()
    assert ids(facts) <= {"NEU007"}


@given(st.integers(0, 5000), st.integers(-10, 6000))
def test_a_guess_changes_nothing_but_the_number_of_questions(threshold: int, guess: int) -> None:
    asked: list[int] = []

    def holds(count: int) -> bool:
        asked.append(count)
        return count <= threshold

    assert largest(holds, guess) == largest(lambda count: count <= threshold) == threshold
    assert len(asked) == 2 or guess != threshold or not threshold
