"""The timeline of a stack: the planner by hand and by property, the phases of pods, the rows of times, and what readers see."""

import json
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import date
from functools import cache, partial
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import ROOT, STACKS, recorded
from eks_inference.catalog import times
from eks_inference.catalog.engines import STREAMER, EngineProfile, engines
from eks_inference.catalog.instances import instance_types
from eks_inference.catalog.models import find_model, models
from eks_inference.catalog.times import INSTANT, PASSES, Pass, Typical, phase_time, resource_time
from eks_inference.serving.cold_start import ColdStart, Weights
from eks_inference_tools.cli import main
from eks_inference_tools.timeline.document import chart, document
from eks_inference_tools.timeline.durations import duration, summary
from eks_inference_tools.timeline.pod_phases import PodStart, phases, pull_time
from eks_inference_tools.timeline.schedule import Step, schedule
from eks_inference_tools.timeline.starts import Starts
from eks_inference_tools.timeline.text import render_text
from eks_inference_tools.timeline.timeline import Timeline, timeline, what_ifs
from eks_inference_tools.timeline.update_steps import create_time, creation, deletion, what
from golden import assert_golden
from handles import placement
from odd_graphs import graph_of, odd_graphs, urn
from stackgraph.graph.document import Graph, Resource, is_read
from stackgraph.graph.structure import needs
from variants import recorded_with

TIMES = tomllib.loads((ROOT / "components/eks_inference/catalog/times.toml").read_text())


def taking(p50: float, low: float | None = None, high: float | None = None) -> Typical:
    return Typical(p50, p50 if low is None else low, p50 if high is None else high, 1, "here", "2026-11")


def step(id_: str, seconds: float, *after: str) -> Step:
    return Step(id_, id_, id_, taking(seconds), after)


@cache
def of_stack(stack: str) -> Timeline:
    return timeline(recorded(stack))


# -- the planner by hand ---------------------------------------------------------------------------------------------------------

DIAMOND = (step("a", 10), step("b", 5, "a"), step("c", 20, "a"), step("d", 1, "b", "c", "nobody"))


def test_a_step_starts_when_all_before_it_have_ended() -> None:
    found = schedule(DIAMOND)
    assert {id_: (span.start, span.end) for id_, span in found.spans.items()} == {
        "a": (0, 10),
        "b": (10, 15),
        "c": (10, 30),
        "d": (30, 31),
    }
    assert found.total == 31
    assert [one.id for one in found.path("d")] == ["a", "c", "d"]


def test_a_step_without_a_time_takes_none_and_steps_in_a_circle_end() -> None:
    untimed = replace(DIAMOND[2], time=None)
    assert schedule([DIAMOND[0], untimed, DIAMOND[3]]).total == 11
    assert schedule([step("a", 1, "b"), step("b", 2, "a")]).total == 3


def test_what_the_engine_does_not_wait_for_is_no_part_of_the_update() -> None:
    pods = replace(step("d#start", 100, "d"), urn="d", in_update=False)
    found = schedule([*DIAMOND, pods])
    assert (found.in_update, found.total) == (31, 131)
    assert (found.of("d").start, found.of("d").end) == (30, 31)
    awaited = schedule([*DIAMOND, replace(pods, in_update=True)])
    assert (awaited.of("d").start, awaited.of("d").end) == (30, 131)


# -- the planner by property -----------------------------------------------------------------------------------------------------


@st.composite
def plans(draw: st.DrawFn) -> tuple[Step, ...]:
    made: list[Step] = []
    for number in range(draw(st.integers(1, 9))):
        low, p50, high = sorted(draw(st.tuples(*[st.integers(0, 50)] * 3)))
        after = draw(st.sets(st.sampled_from([one.id for one in made]))) if made else ()
        time = draw(st.sampled_from([None, taking(p50, low, high)]))
        made.append(Step(f"s{number}", f"s{number}", "", time, tuple(sorted(after)), draw(st.booleans())))
    return tuple(draw(st.permutations(made)))


def longest(steps: Sequence[Step], which: Pass) -> float:
    by_id = {one.id: one for one in steps}

    def end(id_: str) -> float:
        time = by_id[id_].time
        return max((end(other) for other in by_id[id_].after), default=0) + (time.at(which) if time else 0)

    return max(map(end, by_id))


@given(plans())
def test_the_total_is_the_longest_path(steps: tuple[Step, ...]) -> None:
    totals = [schedule(steps, which).total for which in PASSES]
    assert totals == [longest(steps, which) for which in PASSES]
    assert totals == sorted(totals)


@given(plans())
def test_a_path_begins_at_nothing_and_has_no_gaps(steps: tuple[Step, ...]) -> None:
    found = schedule(steps)
    for id_, span in found.spans.items():
        path = found.path(id_)
        assert found.spans[path[0].id].start == 0
        assert sum(found.spans[one.id].seconds for one in path) == span.end


@given(plans(), st.integers(0, 30), st.data())
def test_one_more_step_never_shortens(steps: tuple[Step, ...], seconds: int, data: st.DataObject) -> None:
    after = data.draw(st.sets(st.sampled_from([one.id for one in steps])))
    more = step("more", seconds, *after)
    before = data.draw(st.sampled_from(steps))
    behind = replace(before, after=(*before.after, "more"))
    assert schedule([*steps, more]).total >= schedule(steps).total
    if before.id not in after and not any(before.id in reached(steps, one) for one in after):
        longer = [behind if one is before else one for one in steps]
        assert schedule([*longer, more]).total >= schedule(steps).total


def reached(steps: Sequence[Step], id_: str) -> set[str]:
    by_id = {one.id: one for one in steps}
    return {id_}.union(*(reached(steps, other) for other in by_id[id_].after))


# -- steps of a graph ------------------------------------------------------------------------------------------------------------


def test_creation_keeps_every_edge_and_waits_for_awaited_pods(shipped: Graph) -> None:
    starts = Starts(shipped).by_urn
    found = schedule(creation(shipped, starts))
    for resource in shipped.resources:
        for other in needs(resource) & shipped.by_urn.keys():
            assert found.of(other).end <= found.spans[resource.urn].start, (resource.name, other)


def test_a_destroy_ends_what_stands_on_a_resource_before_it(shipped: Graph) -> None:
    found = schedule(deletion(shipped))
    made = {resource.urn: resource for resource in shipped.resources if not is_read(resource)}
    for urn_, resource in made.items():
        for other in needs(resource) & made.keys():
            assert found.spans[urn_].end <= found.spans[other].start, (urn_, other)


def test_a_destroy_goes_in_waves() -> None:
    """b goes first; then all that stand on nothing at once: a, which b stood on, and c and d, which nothing held back."""
    network, nodes = "aws:ec2/natGateway:NatGateway", "aws:eks/nodeGroup:NodeGroup"
    graph = graph_of(
        Resource(urn("a"), network, "a"),
        Resource(urn("b"), network, "b", dependencies=(urn("a"),)),
        Resource(urn("c"), nodes, "c"),
        Resource(urn("d"), network, "d", options={"retainOnDelete": True}),
    )
    seconds = {one: time.p50 for one in (network, nodes) if (time := resource_time("delete", one, ""))}
    found = schedule(deletion(graph))
    assert [found.spans[urn(name)].start for name in "bacd"] == [0, *[seconds[network]] * 3]
    assert found.total == seconds[network] + seconds[nodes]
    assert found.spans[urn("d")].seconds == 0


@pytest.mark.thorough
@settings(max_examples=40, deadline=None)
@given(odd_graphs())
def test_no_graph_breaks_the_timeline(graph: Graph) -> None:
    found = timeline(graph)
    assert render_text(found)
    chart(timeline(graph))
    assert found.update.low <= found.update.p50 <= found.update.high


# -- pods ------------------------------------------------------------------------------------------------------------------------

LLAMA = find_model("NousResearch/Meta-Llama-3-8B-Instruct")
ON_INF2 = PodStart("server", "neuron", "inf2", "inf2.8xlarge", image_gb=19, disk_mib_s=600, model=LLAMA, model_name="llama")


def names(start: PodStart) -> list[str]:
    return [phase.name for phase in phases(start)]


def row(phase: str, **wanted: Any) -> Mapping[str, Any]:
    (found,) = [one for one in TIMES["phase"] if one["phase"] == phase and all(one.get(k) == v for k, v in wanted.items())]
    return found


def test_a_pull_takes_seconds_for_each_gigabyte_but_never_less_than_the_disk() -> None:
    plain = pull_time(ON_INF2)
    assert plain
    assert plain.p50 == pytest.approx(19 * row("pull")["p50"])
    fast = pull_time(replace(ON_INF2, fast_image_pull=True))
    assert fast
    assert fast.p50 == pytest.approx(19 * row("pull")["p50"] * row("fast pull")["p50"])
    slow = pull_time(replace(ON_INF2, fast_image_pull=True, disk_mib_s=125))
    assert slow
    assert slow.p50 == pytest.approx(19e9 / (125 * 2**20))
    assert pull_time(replace(ON_INF2, image_gb=None)) is None


def test_a_server_with_a_row_of_its_own_takes_that() -> None:
    assert names(ON_INF2) == ["node", "pull", "start"]
    assert phases(ON_INF2)[-1].time == phase_time("download and start", "neuron", 8.03, "inf2.8xlarge")
    elsewhere = replace(ON_INF2, instance_type="trn1.32xlarge")
    assert names(elsewhere) == ["node", "pull", "download", "compile", "start"]
    download = phases(elsewhere)[2].time
    assert download
    assert LLAMA
    assert download.p50 == pytest.approx(LLAMA.weight_bytes() / 1e9 * row("download")["p50"])
    assert [phase.time for phase in phases(elsewhere)[3:]] == [None, None]


def test_what_is_there_takes_no_phase() -> None:
    assert names(replace(ON_INF2, new_node="", pulled=True, weights_stored=True, compiled=True)) == ["start"]
    job = replace(ON_INF2, role="compile")
    assert names(job) == ["node", "pull", "compile"]
    assert names(replace(job, compiled=True)) == []


def test_the_start_on_a_gpu_is_known_for_the_models_that_were_seen() -> None:
    gpu = replace(ON_INF2, accelerator="nvidia", instance_type="g6e.2xlarge")
    assert [phase.time and phase.time.samples for phase in phases(gpu)] == [1, 4, 2, 2]
    assert phases(replace(gpu, model=find_model("facebook/opt-350m")))[-1].time is None
    assert phases(replace(gpu, compiled=True))[-1].time == phase_time("start, compiled", "nvidia", 8)


def test_the_servers_of_the_shipped_stacks_are_found() -> None:
    start = next(iter(of_stack("inf2-llama3").starts.values()))
    assert start == replace(
        ON_INF2,
        new_node="inferentia-inf2",
        image=start.image,
        model_name="Meta-Llama-3-8B-Instruct",
        compiled=False,
        pool=start.pool,
    )
    assert recorded("inf2-llama3").by_urn[start.pool].name == "inf2-llama3-inferentia-inf2-pool"
    jobs = {start.role: start for start in of_stack("trn2-di").starts.values()}
    assert jobs.keys() == {"download", "compile", "server"}
    assert jobs["server"].weights_stored
    assert jobs["server"].compiled
    # The three share the one node, and the image on it.
    assert [jobs[role].pulled for role in ("download", "compile", "server")] == [False, True, True]


def test_two_clusters_of_one_program_keep_their_times_and_pools() -> None:
    one, other = recorded("gpu-opt350m"), recorded("inf2-llama3")
    both = timeline(replace(one, resources=(*one.resources, *other.resources)))
    alone = [of_stack("gpu-opt350m"), of_stack("inf2-llama3")]
    assert {end.name: end.p50 for end in both.answers} == {end.name: end.p50 for each in alone for end in each.answers}
    assert dict(both.starts) == {**alone[0].starts, **alone[1].starts}
    assert both.update.p50 == max(each.update.p50 for each in alone)


def test_only_the_time_of_the_hub_is_known() -> None:
    elsewhere = replace(ON_INF2, from_hub=False)
    assert [(phase.name, phase.time) for phase in phases(elsewhere)[2:]] == [
        ("download", None),
        ("compile", None),
        ("start", None),
    ]


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ({"id": "NousResearch/Llama-2-13b-chat-hf"}, (True, False)),
        ({"kind": "s3", "uri": "s3://models/llama/v1", "id": "llama"}, (False, False)),
        ({"kind": "volume", "claim": "models", "id": "llama"}, (False, True)),
    ],
)
def test_weights_come_from_where_the_stack_file_says(model: dict[str, str], expected: tuple[bool, bool]) -> None:
    def changed(one: Resource) -> Resource:
        kind = {"kind": "hugging_face", **model}
        return replace(one, inputs={**one.inputs, "model": kind}) if one.name == "llama2-a" and not one.custom else one

    graph = recorded("inf2-llama2")
    found = timeline(replace(graph, resources=tuple(changed(resource) for resource in graph.resources)))
    (start,) = [start for urn_, start in found.starts.items() if found.servers.get(urn_) == "llama2-a"]
    assert (start.from_hub, start.weights_stored) == expected


def deployment(namespace: str = "default", replicas: int = 1, **annotations: str) -> Mapping[str, Any]:
    image = next(engine.image for engine in engines().values() if engine.nvidia and engine.standalone)
    containers = [
        {
            "name": "vllm",
            "image": f"{image.rpartition(':')[0]}:nightly",
            "args": ["--model", "NousResearch/Meta-Llama-3-8B-Instruct"],
            "resources": {"limits": {"nvidia.com/gpu": "1"}},
        }
    ]
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "mine", "namespace": namespace, "annotations": annotations},
        "spec": {"replicas": replicas, "template": {"spec": {"containers": containers}}},
    }


def deployed(name: str = "mine", **given: Any) -> Resource:
    return Resource(urn(name), "kubernetes:apps/v1:Deployment", "mine", inputs=deployment(**given))


def node_group(nodes: int) -> Resource:
    sizes = {"minSize": 0, "desiredSize": nodes, "maxSize": 3}
    inputs = {"clusterName": "any", "instanceTypes": ["g6e.xlarge"], "scalingConfig": sizes}
    return Resource(urn("gpus"), "aws:eks/nodeGroup:NodeGroup", "gpus", inputs=inputs)


def test_a_program_of_others_is_read_from_its_pods() -> None:
    found = timeline(graph_of(deployed(), node_group(1)))
    (answer,) = found.answers
    assert (answer.name, answer.untimed) == ("mine", ())
    # The engine waits for a Deployment, unless an annotation says otherwise.
    assert found.update.p50 == answer.p50 > 0
    unawaited = timeline(graph_of(deployed(**{"pulumi.com/skipAwait": "true"}), node_group(1)))
    assert unawaited.update.p50 < unawaited.answers[0].p50 == answer.p50


@pytest.mark.parametrize("others", [(), (node_group(0),)])
def test_a_node_that_the_program_does_not_start_has_no_time(others: tuple[Resource, ...]) -> None:
    (answer,) = timeline(graph_of(deployed(), *others)).answers
    assert [step.title for step in answer.untimed] == ["mine: a node comes from elsewhere: no pool here has one for it"]


def test_nobody_waits_for_pods_that_the_program_does_not_start() -> None:
    found = timeline(graph_of(deployed(replicas=0), node_group(1)))
    assert found.answers == ()
    assert found.starts == {}


def test_servers_of_one_name_are_told_apart_in_every_view() -> None:
    found = timeline(graph_of(deployed(), deployed("other$mine", namespace="other"), node_group(2)))
    names = {"mine (Deployment default/mine)", "mine (Deployment other/mine)"}
    assert set(document(found)["answers"]) == {end.name for end in found.answers} == names
    assert {what_if.server for what_if in what_ifs(found)} <= names


def test_servers_of_one_name_in_two_clusters_are_told_apart() -> None:
    providers = [Resource(urn(name), "pulumi:providers:kubernetes", name, inputs={"context": name}) for name in ("east", "west")]
    servers = [replace(deployed(f"{provider.name}$mine"), provider=provider.urn) for provider in providers]
    answers = timeline(graph_of(*providers, *servers)).answers
    assert {end.name for end in answers} == {"mine (Deployment default/mine in east)", "mine (Deployment default/mine in west)"}


def test_a_summary_of_many_servers_is_short() -> None:
    servers = [deployed(f"ns{number}$mine", namespace=f"ns{number}") for number in range(50)]
    (line,) = summary(timeline(graph_of(*servers, node_group(50))))
    assert " and 40 more answer first after " in line
    drawn = chart(timeline(graph_of(*servers, node_group(50))))
    assert drawn
    assert [words for words, _ in drawn.ends][1].endswith(" and 40 more answer first")
    assert len(drawn.facts) < 10


@pytest.mark.parametrize(
    ("type_", "inputs"),
    [
        ("core/v1:Pod", {}),
        ("core/v1:Service", {"spec": {"type": "LoadBalancer"}}),
        ("networking.k8s.io/v1:Ingress", {}),
        ("helm.sh/v3:Release", {"chart": "karpenter", "skipAwait": True}),
    ],
)
def test_what_pulumi_awaits_does_not_take_the_time_of_what_it_does_not(type_: str, inputs: Mapping[str, Any]) -> None:
    version, _, kind = type_.partition(":")
    given = {"apiVersion": version.removeprefix("core/"), "kind": kind, "metadata": {"name": "any"}, **inputs}
    resource = Resource(urn("any"), f"kubernetes:{type_}", "any", inputs=given)
    assert create_time(resource) is None
    if kind != "Release":
        skipped = {**given, "metadata": {"annotations": {"pulumi.com/skipAwait": "true"}}}
        assert create_time(replace(resource, inputs=skipped)) is resource_time("create", "kubernetes", "")


def test_a_chart_of_a_remote_component_has_no_time() -> None:
    assert create_time(Resource(urn("any"), "kubernetes:helm.sh/v4:Chart", "any", custom=False, remote=True)) is None


# -- rows ------------------------------------------------------------------------------------------------------------------------

ROWS = [(action, one) for action in ("create", "delete", "phase") for one in TIMES[action]]


def named(given: Any) -> str:
    return "-".join(
        str(given.get(key, "")) for key in ("type", "what", "phase", "accelerator", "billions", "instance_type")
    ).strip("-")


@pytest.mark.parametrize("one", [one for _, one in ROWS], ids=named)
def test_a_row_has_a_source_a_date_and_a_range(one: Mapping[str, Any]) -> None:
    assert 0 <= one["low"] <= one["p50"] <= one["high"]
    assert one["samples"] >= 1
    assert len(one["source"]) > 4
    date.fromisoformat(f"{one['read']}-01")


def test_rows_cite_logs_that_are_named_and_every_log_is_cited() -> None:
    cited = {letter for _, one in ROWS for letter in re.findall(r"\b[Ll]og ([A-Z])\b", one["source"])}
    assert cited == set(TIMES["logs"])
    assert not [one["source"] for _, one in ROWS if re.search(r"[Ll]ogs [A-Z]\b", one["source"])]
    vpc = resource_time("create", "aws:ec2/vpc:Vpc", "")
    assert vpc
    assert TIMES["logs"]["A"]["source"] in vpc.source


def test_no_two_rows_are_for_the_same() -> None:
    keys = [(action, named(one)) for action, one in ROWS]
    assert len(set(keys)) == len(keys)


OTHERS: Mapping[str, Mapping[str, Any]] = {
    "aws:acm/certificate:Certificate": {},
    "aws:acm/certificateValidation:CertificateValidation": {},
    "aws:eks/cluster:Cluster": {},
    "aws:kms/key:Key": {},
    "aws:route53/record:Record": {},
    "kubernetes:helm.sh/v3:Release keda": {"chart": "keda"},
    "kubernetes:helm.sh/v3:Release aws-load-balancer-controller": {"chart": "oci://registry/aws-load-balancer-controller"},
}
"""Resources with a time that no shipped stack creates."""


def test_every_time_of_a_resource_is_used() -> None:
    others = [Resource(urn(key), key.partition(" ")[0], "x", inputs=inputs) for key, inputs in OTHERS.items()]
    resources = [*others, *(resource for stack in STACKS for resource in recorded(stack).resources)]
    used = {("create", create_time(resource)) for resource in resources if resource.custom or resource.remote}
    used |= {("delete", resource_time("delete", resource.type, what(resource))) for resource in resources}
    for action, one in ROWS:
        if action != "phase":
            assert (action, times._typical(one)) in used, (action, named(one))


@pytest.mark.parametrize("one", TIMES["phase"], ids=named)
def test_a_phase_finds_its_row(one: Mapping[str, Any]) -> None:
    accelerator = None if one.get("accelerator") == "none" else one.get("accelerator")
    billions = sum(one["billions"]) / 2 if "billions" in one else None
    assert phase_time(one["phase"], accelerator, billions, one.get("instance_type", "")) == times._typical(one)


def test_a_model_or_an_accelerator_that_nobody_timed_has_no_time() -> None:
    assert phase_time("node", "neuron") is None
    assert phase_time("compile", "neuron", 13) is None
    assert phase_time("compile", "neuron", None) is None
    assert resource_time("create", "aws:eks/addon:Addon", "unheard-of") is None
    assert create_time(Resource(urn("c"), "aws:eks/cluster:Cluster", "c", custom=False)) is INSTANT


# -- what would save time, and what a change costs -------------------------------------------------------------------------------


def test_a_faster_loader_is_offered_with_what_it_saves_and_not_to_who_has_it() -> None:
    plain = PodStart("server", "nvidia", "gpu", "p5.48xlarge", model=find_model("Llama-3.1-405B"), fast_load="fastsafetensors")
    fast = replace(plain, load_format="fastsafetensors")
    of_gpus, factor = row("load", accelerator="nvidia"), row("fast load")
    (load,) = (phase.time for phase in phases(fast) if phase.name == "load")
    assert load
    assert load.p50 == pytest.approx(of_gpus["p50"] * factor["p50"] * plain.model.weight_bytes() / 1e9)  # type: ignore[union-attr]
    assert phases(replace(plain, load_format="safetensors")) == phases(plain)
    small = replace(plain, model=find_model("Llama-3.1-8B"))
    assert {phase.name for phase in phases(small)} == {"node", "pull", "download", "start"}
    (start,) = (phase for phase in phases(replace(small, load_format="fastsafetensors")) if phase.name == "start")
    assert start.time is None, "what is known of such models has a plain load in it"


def test_what_the_engine_streams_from_s3_has_no_download() -> None:
    graph = recorded_with(
        {"servers": {"qwen3": {"model": {"kind": "s3", "uri": "s3://models/qwen3", "id": "Qwen/Qwen3-8B", "streamed": True}}}},
        "smoke-gpu",
    )
    (start,) = (pod_start for pod_start in Starts(graph).by_urn.values() if pod_start.role == "server")
    (last,) = (phase for phase in phases(start) if phase.name not in ("node", "pull"))
    assert last.time
    assert (last.time.p50, last.time.samples) == (row("start, streamed")["p50"], 1)
    assert "streams" in last.title


def test_a_large_model_that_the_engine_streams_takes_as_long_as_its_bytes() -> None:
    (start,) = (pod_start for pod_start in Starts(of_large("70B streamed")).by_urn.values() if pod_start.role == "server")
    load, rest = (phase for phase in phases(start) if phase.name not in ("node", "pull"))
    assert load.time
    assert load.time.p50 == pytest.approx(row("stream")["p50"] * 141.1, rel=0.01)
    assert rest.time is None


# -- what readers see ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stack", STACKS)
def test_the_timeline_of_a_stack(stack: str) -> None:
    assert_golden(f"stacks/{stack}/timeline.txt", render_text(of_stack(stack)))


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0, "0 s"), (59.4, "59 s"), (59.6, "1 min"), (61, "1 min 1 s"), (3599.7, "1 h"), (3600, "1 h"), (3725, "1 h 2 min")],
)
def test_a_duration_in_words(seconds: float, shown: str) -> None:
    assert duration(seconds) == shown


@pytest.mark.usefixtures("recorded_once")
def test_preview_shows_the_timeline_as_text_and_json(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert main(["preview", "inf2-llama3", "--timeline"]) == 0
    assert capsys.readouterr().out == render_text(of_stack("inf2-llama3"))
    assert main(["preview", "inf2-llama3", "--timeline", "--format", "json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["stack"] == "inf2-llama3"
    answer = shown["timeline"]["answers"]["vllm-llama3-inf2"]
    steps = {one["id"]: one for one in shown["timeline"]["steps"]}
    assert answer["atLeast"] is True
    assert steps[answer["path"][-1]]["endSeconds"] == answer["seconds"]["p50"]
    assert set(answer["untimed"]) <= steps.keys()
    assert all(steps[id_]["typical"] is None for id_ in answer["untimed"])
    typical = [one["typical"] for one in steps.values() if one["typical"]]
    assert all({"source", "samples", "date"} <= one.keys() for one in typical if one["high"])
    assert {"low": 0, "p50": 0, "high": 0} in typical, "what takes no time has no source"


def test_other_formats_have_no_timeline(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["preview", "inf2-llama3", "--timeline", "--format", "mermaid"]) == 2
    assert "allowed: --format tree, --format json" in capsys.readouterr().err


def test_the_chart_marks_what_decides() -> None:
    found = chart(timeline(recorded("inf2-llama3")))
    assert found
    deciding = sorted((bar for bar in found.bars if bar.decides), key=lambda bar: bar.start)
    assert deciding[-1].end == dict(found.ends)["vllm-llama3-inf2 answers first"]
    assert [bar.title for bar in deciding if bar.end is None] == [
        "EC2NodeClass inferentia-inf2",
        "Karpenter starts a node of inferentia-inf2",
    ]
    assert chart(timeline(graph_of(Resource(urn("a"), "kubernetes:core/v1:ConfigMap", "a")))) is None


# -- waiting ---------------------------------------------------------------------------------------------------------------------

GPU_SERVER = {"tensor_parallel": 8, "devices": 8, "max_model_len": 8192, "max_num_seqs": 4, "disk_gib": 1400}
LARGE = {
    "70B": ("g6e.48xlarge", {"model": {"id": "unsloth/Llama-3.3-70B-Instruct"}}),
    "405B": ("p5en.48xlarge", {"model": {"id": "meta-llama/Llama-3.1-405B-Instruct", "gated": False}}),
    "671B": ("p6-b200.48xlarge", {"model": {"id": "deepseek-ai/DeepSeek-R1"}}),
    "70B from S3": (
        "g6e.48xlarge",
        {"model": {"kind": "s3", "uri": "s3://models/llama", "id": "unsloth/Llama-3.3-70B-Instruct", "size_gib": 150}},
    ),
    "70B streamed": (
        "g6e.48xlarge",
        {"model": {"kind": "s3", "uri": "s3://models/llama", "id": "unsloth/Llama-3.3-70B-Instruct", "streamed": True}},
    ),
}
"""Large models on nodes whose local disks have no known speed."""


def of_large(name: str) -> Graph:
    type_, server = LARGE[name]
    pool = {"instance_types": [type_], "root_volume_gib": 2000}
    return recorded_with({"pools": {"gpu": pool}, "servers": {"qwen3": GPU_SERVER | server}}, "smoke-gpu")


@pytest.mark.parametrize("build", [*(partial(recorded, one) for one in STACKS), *(partial(of_large, one) for one in LARGE)])
def test_nobody_gives_up_on_a_start_that_is_as_slow_as_the_slowest_seen(build: Callable[[], Graph]) -> None:
    graph = build()
    for urn_, start in Starts(graph).by_urn.items():
        deployment = graph.by_urn[urn_]
        if start.role != "server" or deployment.type != "kubernetes:apps/v1:Deployment":
            continue
        spec = deployment.inputs["spec"]
        [container] = [one for one in spec["template"]["spec"]["containers"] if "startupProbe" in one]
        probe, names = container["startupProbe"], {one["name"]: one.get("value") for one in container["env"]}
        slowest = {phase.name: phase.time.high for phase in phases(replace(start, from_hub=True)) if phase.time}
        before = {"node", "pull"} | ({"download"} if "initContainers" in spec["template"]["spec"] else set())
        patience = probe["failureThreshold"] * probe["periodSeconds"]
        assert sum(seconds for name, seconds in slowest.items() if name not in before) <= patience
        assert sum(slowest.values()) <= spec["progressDeadlineSeconds"] < int(deployment.options["customTimeouts"]["create"][:-1])
        assert patience >= int(names.get("VLLM_ENGINE_READY_TIMEOUT_S") or 0)


@pytest.mark.thorough
@pytest.mark.parametrize("engine", [engine for engine in engines().values() if not engine.retired], ids=lambda one: one.name)
def test_no_limit_is_below_the_slowest_start_of_any_model_on_any_machine(engine: EngineProfile) -> None:
    machines = [instance_type for instance_type in instance_types().values() if engine.serves(instance_type)]
    known = [model for model in models().values() if model.architecture in engine.architectures]
    for machine, model, streamed in product(machines, known, (False, True)[: 1 + engine.streams_s3]):
        cold = ColdStart(engine, model, placement(machine.name), machine.devices, Weights(streamed=streamed)).startup
        start = PodStart("server", engine.accelerator, machine.family, machine.name, image_gb=engine.image_gb, model=model)
        start = replace(start, from_hub=not streamed, load_format=STREAMER if streamed else "")
        slowest = {phase.name: phase.time.high for phase in phases(start) if phase.time}
        before = sum(slowest.pop(name, 0) for name in ("node", "pull"))
        assert sum(slowest.values()) <= cold.engine_s, (machine.name, model.name)
        assert before <= cold.node_start_s + cold.image_pull_s, (machine.name, model.name)


@pytest.mark.parametrize("name", LARGE)
def test_a_large_model_is_waited_for_by_its_bytes(name: str) -> None:
    [(urn_, start)] = [(one, start) for one, start in Starts(of_large(name)).by_urn.items() if start.role == "server"]
    assert start.weights_gb
    [container] = of_large(name).by_urn[urn_].inputs["spec"]["template"]["spec"]["containers"]
    download, load = phase_time("download"), phase_time("load", "nvidia")
    assert download
    assert load
    probe = container["startupProbe"]
    assert probe["failureThreshold"] * probe["periodSeconds"] >= start.weights_gb * (download.high + load.high) > 1200


def test_a_model_of_config_json_takes_as_long_as_one_of_the_catalog() -> None:
    model, shape = "Qwen/Qwen3-0.6B", {"model_type": "qwen3", "hidden_size": 1024, "num_hidden_layers": 28}
    shape |= {"num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 3072}
    shape |= {"vocab_size": 151936, "tie_word_embeddings": True, "max_position_embeddings": 40960}
    own = recorded_with({"servers": {"qwen3": {"model": {"id": "ours/own", "shape": shape}}}}, "smoke-gpu")
    known = recorded("smoke-gpu")
    assert find_model(model)
    assert seconds_of(own) == seconds_of(known)


def seconds_of(graph: Graph) -> list[tuple[str, Typical | None]]:
    [start] = [pod_start for pod_start in Starts(graph).by_urn.values() if pod_start.role == "server"]
    return [(phase.name, phase.time) for phase in phases(start)]
