"""Bad days, without a cluster: requests that go to pods, what is lost with what, and what a reader sees."""

import json
import random
import re
import shutil
import subprocess
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from cases import thorough_but
from conftest import ROOT, recorded
from eks_inference.catalog.prices import instance_price
from eks_inference.speed.batching import Limits
from eks_inference_tools.cli import main
from eks_inference_tools.commands import rehearse_day
from eks_inference_tools.cost.price_book import PriceBook
from eks_inference_tools.placing.started_nodes import managed_nodes, manifest
from eks_inference_tools.program import StackProgram
from eks_inference_tools.reading.live_objects import Object, name_of
from eks_inference_tools.simulate.control_plane import tool_build
from eks_inference_tools.simulate.day import loss as loss_module
from eks_inference_tools.simulate.day.day import Course, Day, Moment, _listed, _waiting, starts
from eks_inference_tools.simulate.day.dollars import Bill, Dollars
from eks_inference_tools.simulate.day.loss import KINDS, OF_NODES, Loss, World, absent, chosen
from eks_inference_tools.simulate.day.plot import render_plot
from eks_inference_tools.simulate.day.requests import Load, Requests, bad_until
from eks_inference_tools.simulate.day.striking import Striking
from eks_inference_tools.simulate.day.subjects import Subject
from eks_inference_tools.simulate.day.text import document, render_text
from eks_inference_tools.simulate.stand_ins.karpenter import Lacks
from json_schemas import unlike
from linear_steps import Linear
from readme import block
from rehearsals import days, subject
from stackgraph.graph.document import Graph
from variants import recorded_with

LOAD = Load(((0.0, 4.0),), input_tokens=100, output_tokens=20, late_seconds=5.0)
"""One engine takes about fifty of these a second."""


def often(rate: float) -> Load:
    return replace(LOAD, rates=((0.0, rate),))


def flow(load: Load = LOAD, **options: object) -> Requests:
    return Requests(Linear(), Limits(max_num_seqs=8, kv_tokens=100_000), load, **options)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("seed", range(6))
def test_every_request_is_served_late_or_lost_once_whatever_pods_do(seed: int) -> None:
    """Pods come, go, and stay listed when they are gone, at random."""
    chance, names = random.Random(seed), ["a", "b", "c"]
    asked = flow(often(30.0), seed=seed, routing=chance.choice(["random", "fewest"]), copies=chance.choice([1, 2]))
    for second in range(1, 120):
        asked.advance(second, chance.sample(names, chance.randrange(4)), set(chance.sample(names, chance.randrange(4))))
        assert asked.came == len(asked.fates) + asked.unanswered
    asked.finish()
    counts = asked.counts()
    assert (asked.came, asked.unanswered) == (sum(counts.values()), 0)
    assert counts["served"] > 0
    assert counts["lost"] > 0


def test_nothing_is_lost_while_nothing_goes() -> None:
    asked = flow()
    for second in range(1, 61):
        asked.advance(second, ["a"], {"a"})
    asked.finish()
    assert asked.came > 150
    assert asked.counts() == {"served": asked.came}


def test_requests_are_lost_as_long_as_the_service_lists_a_pod_that_is_gone() -> None:
    asked = flow()
    for second in range(1, 101):
        alive = {"a", "b"} if second <= 30 else {"b"}
        asked.advance(second, ["a", "b"] if second <= 80 else ["b"], alive)
    asked.finish()
    lost = [at for at, fate in asked.fates if fate == "lost"]
    assert min(lost) >= 29, "what ran on the pod, and what came after"
    assert 79 < max(lost) <= 80
    assert len(lost) == pytest.approx(4 * 50 / 2, rel=0.3), "by chance, half go to it"
    assert bad_until(asked.fates, 30) == max(lost)


def test_the_proxy_of_an_endpoint_asks_another_pod_where_one_is_cut_off() -> None:
    """As the real Envoy does (``test_endpoint_proxy.py``): each of its attempts at the pod costs the time of a connection."""
    asked = flow(routing="fewest")
    for second in range(1, 101):
        alive = {"a", "b"} if second <= 30 else {"b"}
        asked.advance(second, ["a", "b"] if second <= 80 else ["b"], alive)
    asked.finish()
    lost, late = ([at for at, fate in asked.fates if fate == kind] for kind in ("lost", "late"))
    assert all(29 < at <= 30 for at in lost), "what ran on the pod"
    # It rests for 10 s from 35 s on, for 20 s from 50 s on, and for 30 s from 75 s on.
    assert Counter(next(start for start in (30, 45, 70) if start < at < start + 6) for at in late) == {30: 4, 45: 5, 70: 6}


def test_the_proxy_gives_up_where_no_pod_takes_a_connection() -> None:
    asked = flow(routing="fewest")
    for second in range(1, 101):
        asked.advance(second, ["a"], set())
    # Six more attempts, each after the 5 s of a connection.
    assert max(at for at, _ in asked.fates) == pytest.approx(100 - 6 * 5, abs=2)
    asked.finish()
    assert asked.counts() == {"lost": asked.came}


def test_too_much_for_one_pod_is_late_and_not_lost() -> None:
    asked = flow(often(300.0))
    for second in range(1, 31):
        asked.advance(second, ["a"], {"a"})
    asked.finish()
    assert asked.counts().keys() == {"served", "late"}


def gpu() -> Graph:
    return recorded("gpu-opt350m")


def nodes() -> list[Object]:
    return [manifest(node) for node in managed_nodes(gpu())]


def on(node: str) -> Object:
    return {"metadata": {"name": f"pod-on-{node}", "namespace": "default"}, "spec": {"nodeName": node}}


def world(graph: Graph, *pods: Object) -> World:
    return World(graph, (), [manifest(node) for node in managed_nodes(graph)], pods)


def test_the_zone_with_the_most_pods_is_lost_and_its_nodes_come_again_in_others() -> None:
    (loss,) = chosen(["zone"], world(gpu(), on("gpu-2"), on("gpu-1"), on("gpu-3")))
    assert (loss.what, loss.nodes) == ("zone us-west-2a", {"core-1", "gpu-1", "gpu-3"})
    new = {node.name: node.zone.name for _, node in loss.due}
    assert len(new) == 3
    assert not new.keys() & {name_of(node) for node in nodes()}
    assert "us-west-2a" not in new.values()


def test_a_lost_node_comes_again_in_its_zone() -> None:
    (loss,) = chosen(["node"], world(gpu(), on("gpu-2")))
    assert loss.nodes == {"gpu-2"}
    (due,) = loss.due
    assert due[0] > 30
    assert due[1].zone.name == "us-west-2b"


def test_a_node_that_is_lost_twice_comes_once_and_not_where_nothing_is_sold() -> None:
    pods = [on("gpu-1"), on("gpu-1"), on("gpu-3")]
    node, zone = chosen(["node", "zone"], world(gpu(), *pods))
    assert [one.zone.name for _, one in node.due] == ["us-west-2b"], "its zone is lost, too"
    assert sorted(one.name for loss in (node, zone) for _, one in loss.due) == ["core-3", "gpu-5", "gpu-6"]
    assert chosen(["pool", "node"], world(gpu(), *pods))[1].due == []


def test_a_group_without_another_zone_starts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    one_zone = tuple(replace(node, kind=replace(node.kind, zones=(node.zone,))) for node in managed_nodes(gpu()))
    monkeypatch.setattr(loss_module, "managed_nodes", lambda graph: one_zone)
    (loss,) = chosen(["zone"], world(gpu(), on("gpu-1")))
    assert (loss.due, loss.without) == ([], ("core", "gpu"))


class Plane:
    """In the place of a simulated cluster: notes what is done to it."""

    def __init__(self, graph: Graph, nodes: list[Object]) -> None:
        self.graph, self.nodes, self.done, self.sizes = graph, nodes, list[str](), dict[str, int]()
        self.plane = self.api = self.processes = self.karpenter = self

    def get(self, resource: str, name: str, namespace: str) -> Object:
        return {"spec": {"replicas": self.sizes.get(name, 1)}}

    def patch(self, item: Object, body: Object) -> None:
        if "replicas" in body.get("spec", {}):
            self.sizes[name_of(item)] = body["spec"]["replicas"]
        for part, values in body.items():
            for node in self.nodes:
                if part == "metadata" and name_of(node) == name_of(item):
                    node["metadata"]["labels"].update(values["labels"])
                elif name_of(node) == name_of(item):
                    node["spec"].update(values)

    def delete(self, resource: str, name: str, namespace: str = "") -> None:
        self.nodes[:] = [node for node in self.nodes if name_of(node) != name]

    def create(self, item: Object) -> None:
        self.nodes.append(item)

    def list(self, resource: str) -> list[Object]:
        return []

    def knows(self, resource: str) -> bool:
        return False

    def follow(self, graph: Graph, lacks: Lacks) -> None:
        self.lacks = lacks

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *given: self.done.append(name)


SPOT = {"pools": {"gpu": {"capacity_type": "spot"}}}
PICKED = {"endpoints": {"chat": {"servers": ["qwen3"], "spread": "endpoint_picker", "keys": False}}}
HAS = {"spot": ("gpu-opt350m", SPOT), "scheduler-extension": ("inf2-llama2", {}), "picker": ("smoke-gpu", PICKED)}


def graph_with(kind: str) -> Graph:
    """A stack that has what is lost. That of a capacity block is made up: a block has its dates."""
    if kind == "capacity-block":
        groups = {
            resource.urn: {**resource.inputs, "capacityType": "CAPACITY_BLOCK"}
            for resource in gpu().resources
            if resource.type.endswith(":NodeGroup") and "gpu-nodes" in resource.urn
        }
        return replace(gpu(), resources=tuple(replace(one, inputs=groups.get(one.urn, one.inputs)) for one in gpu().resources))
    stack, edit = HAS.get(kind, ("gpu-opt350m", {}))
    return recorded_with(edit, stack)


OFTEN = often(30.0)


@pytest.mark.parametrize("kind", thorough_but({"node", "hub", "picker"}, KINDS))
def test_every_request_of_every_loss_has_one_end(kind: str) -> None:
    """A pod on each node of the server's pool; the world does what ``Striking`` says for ten minutes, a second at a time."""
    graph = graph_with(kind)
    if kind != "hub":
        assert list(absent([kind], world(graph))) == []
    cluster = Plane(graph, list(world(graph).nodes))
    places = [name_of(node) for node in cluster.nodes if "core" not in name_of(node)]
    losses = chosen([kind], world(graph, *map(on, places)))
    striking = Striking(cluster, losses, 300.0)  # pyright: ignore[reportArgumentType]
    asked, lost_at = flow(OFTEN), 30
    for second in range(1, 600):
        since = second - lost_at
        if striking.struck:
            striking.follow(since, cluster.nodes)
        elif since >= 0:
            striking.strike()
        standing = {name_of(node) for node in cluster.nodes} - striking.gone(since)
        asked.picked = not striking.is_lost("picker", since)
        asked.advance(second, [*places], standing & {*places})
        assert asked.came == len(asked.fates) + asked.unanswered
    asked.finish()
    counts = asked.counts()
    assert asked.came == sum(counts.values()) > 15_000
    assert (counts["lost"] > 0) == (kind in OF_NODES)
    assert striking.is_over(569)
    assert {loss.kind for loss in losses} == {kind}
    assert cluster.done == (["pause", "stop", "restart_api_server", "resume"] if kind == "api-server" else [])
    assert set(cluster.sizes.values()) <= {1}, "they are back"
    assert bool(cluster.sizes) == (kind in ("scheduler-extension", "picker"))


def test_spot_nodes_go_two_minutes_after_the_notice_and_no_other_comes() -> None:
    graph = graph_with("spot")
    cluster = Plane(graph, list(world(graph).nodes))
    striking = Striking(cluster, chosen(["spot"], world(graph)), 300.0)  # pyright: ignore[reportArgumentType]
    striking.strike()
    assert not striking.gone(119)
    striking.follow(1, cluster.nodes)
    assert {name_of(node) for node in cluster.nodes if node["spec"].get("unschedulable")} == striking.gone(120)
    assert striking.gone(120) == {"gpu-1", "gpu-2", "gpu-3", "gpu-4"}
    striking.follow(121, cluster.nodes)
    striking.follow(122, cluster.nodes)
    assert {name_of(node) for node in cluster.nodes} == {"core-1", "core-2"}
    assert cluster.lacks("any", {"karpenter.sh/capacity-type": "spot"})
    assert not cluster.lacks("any", {"karpenter.sh/capacity-type": "on-demand"})


def refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *options: str) -> str:
    """What ``rehearse day`` says that refuses them before anything is started."""

    def started(*given: object, **more: object) -> None:
        raise AssertionError("nothing may be started")

    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(tool_build, "provided", started)
    assert main(["rehearse", "day", "gpu-opt350m", *options]) == 2
    return capsys.readouterr().err


def test_what_a_stack_does_not_have_it_cannot_lose(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(StackProgram, "record", lambda program: recorded(program.stack))
    said = refused(monkeypatch, capsys, "--lose", "node", "--lose", "spot", "--lose", "picker")
    assert "stack gpu-opt350m has no spot nodes" in said
    assert "stack gpu-opt350m has no picker" in said
    more = {"kind": "karpenter", "instance_types": ["g6.xlarge"], "capacity_types": ["spot"]}
    assert not [*absent(["spot"], world(recorded_with({"pools": {"more": more}}, "smoke-gpu")))]


@pytest.mark.parametrize(
    ("options", "key", "allowed"),
    [
        (["--at", "20"], "--at", "20"),
        (["--lose", "hub", "--back", "19.5"], "--at and --back", "20"),
        (["--rate", "4,30:2"], "--rate", "30"),
    ],
)
def test_a_day_ends_after_what_happens_in_it(
    options: list[str], key: str, allowed: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = refused(monkeypatch, capsys, *options)
    assert f"--most: the day is over before the time of {key}\n    given: 20\n    allowed: more than {allowed}\n" in said


@pytest.mark.parametrize(
    ("edit", "why"),
    [
        ("servers.triton-server.nothing=2", "servers.triton-server.nothing: unknown key"),
        ("servers.nobody.replicas=2", "--try changes no key"),
        ("servers.triton-server.cpu=[", "--try changes no key"),
    ],
)
def test_what_is_tried_is_refused_before_a_day_is_played(
    edit: str, why: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert why in refused(monkeypatch, capsys, "--lose", "node", "--try", edit)


def test_options_are_the_losses_that_there_are() -> None:
    assert rehearse_day._LOSSES == KINDS


def test_pods_that_end_by_themselves_answer_what_they_have() -> None:
    lost = []
    for graces in ({}, {"a": 5.0}, {"a": 600.0}):
        asked = flow(often(100.0))
        for second in range(1, 31):
            asked.advance(second, ["a"], {"a"})
        asked.advance(30, [], set(), graces)
        lost.append(asked.counts()["lost"])
    assert lost[0] > lost[1] > lost[2] == 0


def test_services_send_to_what_is_not_said_to_be_unready() -> None:
    slices: list[Object] = [
        {
            "endpoints": [
                {"targetRef": {"name": "a"}, "conditions": {"ready": True}},
                {"targetRef": {"name": "b"}, "conditions": {}},
            ]
        },
        {"endpoints": [{"targetRef": {"name": "c"}, "conditions": {"ready": False}}]},
    ]
    assert _listed(slices) == {"a", "b"}


def test_pods_wait_that_have_no_node_and_are_not_ending() -> None:
    def pod(name: str, scheduled: str, **metadata: str) -> Object:
        conditions = [{"type": "PodScheduled", "status": scheduled, "message": "0/4 nodes"}]
        return {"metadata": {"namespace": "n", "name": name, **metadata}, "status": {"conditions": conditions}}

    pods = [pod("a", "False"), pod("b", "True"), pod("c", "False", deletionTimestamp="2026-01-01T00:00:00Z")]
    assert [*_waiting(pods)] == [("n/a", "0/4 nodes")]


def no_losses(*losses: Loss) -> Striking:
    return Striking(None, losses, 300.0)  # pyright: ignore[reportArgumentType]


def test_a_pod_starts_sooner_where_its_image_is() -> None:
    found = subject()
    assert found.load.rates == ((0.0, 12.0),)
    assert found.prefetched
    assert 0 < found.seconds < 60 < found.pull_seconds
    (node,) = managed_nodes(gpu())[-1:]
    new = no_losses(Loss("node", "node x", due=[(1000.0, replace(node, name="gpu-9"))]))
    stands = World(gpu(), [found], nodes(), [server_pod(found, "gpu-1")])
    expression = starts(stands, new, 0.0)
    assert '"gpu-4": 0' in expression
    assert f'"gpu-9": {round(1000 + found.pull_seconds)}' in expression, "its DaemonSet brings the image"
    assert '{"gpu-1": 0}' in starts(replace(stands, subjects=[replace(found, prefetched=False)]), new, 0.0)


needs_jq = pytest.mark.skipif(not shutil.which("jq"), reason="jq is not on PATH")


@needs_jq
@pytest.mark.parametrize(
    ("kind", "node", "at", "ready"),
    [
        ("none", "gpu-2", 150, 150 + 10),
        ("none", "gpu-9", 150, 150 + 100 + 10),
        ("image-registry", "gpu-2", 150, 150 + 10),
        ("image-registry", "gpu-9", 50, 50 + 100 + 10),
        ("image-registry", "gpu-9", 150, 400 + 100 + 10),
        ("image-registry", "gpu-9", 401, 401 + 100 + 10),
        ("hub", "gpu-2", 150, 400 + 10),
        ("hub", "gpu-2", 50, 50 + 10),
        ("hub", "gpu-9", 350, 350 + 100 + 10),
    ],
)
def test_what_is_away_holds_up_the_pods_that_need_it(kind: str, node: str, at: int, ready: int) -> None:
    """Lost at 100, back at 400. The expression is run by jq."""
    found = replace(subject(), seconds=10, pull_seconds=100, from_hub=True)
    expression = starts(World(gpu(), [found], nodes(), ()), no_losses(Loss(kind, kind)), 100.0)
    assert ran(expression, server_pod(found, node), at) == ready


@needs_jq
def test_other_pods_wait_for_the_registry_on_new_nodes_only() -> None:
    expression = starts(World(gpu(), [subject()], nodes(), ()), no_losses(Loss("image-registry", "")), 100.0)
    other = {"metadata": {"name": "x", "namespace": "kube-system"}, "spec": {"nodeName": "gpu-9"}}
    assert ran(expression, other, 150) == 400
    assert ran(expression, other, 450) == 0
    assert ran(expression, {**other, "spec": {"nodeName": "gpu-1"}}, 150) == 0


def ran(expression: str, pod: Object, at: int) -> int:
    """When the pod is ready that has a node at this time, in seconds; 0 for at once."""
    when = datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    status = {"conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": when}]}
    given = json.dumps({**pod, "status": status})
    shown = json.loads(subprocess.run(["jq", expression], input=given, capture_output=True, text=True, check=True).stdout)
    return 0 if shown == "0s" else round(datetime.fromisoformat(shown).timestamp())


def server_pod(of: Subject, node: str) -> Object:
    return {
        "metadata": {"name": "pod", "namespace": of.template.namespace, "labels": dict(of.template.labels)},
        "spec": {"nodeName": node},
    }


def test_a_day_costs_what_its_nodes_cost_as_long_as_they_are_there() -> None:
    nodes = list(world(graph_with("spot")).nodes)
    nodes[0]["metadata"]["labels"]["node.kubernetes.io/instance-type"] = "x99.metal"
    bill = Bill(PriceBook())
    bill.add(nodes, 1800)
    bill.add(nodes[:2], 1800)
    found = bill.dollars()
    core, gpu = (instance_price(one, "us-west-2") for one in ("m6i.large", "g4dn.xlarge"))
    assert core
    assert gpu
    assert found.usd == pytest.approx(core.usd + 4 * gpu.usd / 2)
    assert found.node_hours == 4
    assert found.unpriced == ("x99.metal in us-west-2",)
    assert found.notes == ("g4dn.xlarge: counted as on demand; spot costs less: give prices.g4dn.xlarge.spot",)


def test_what_a_reader_sees() -> None:
    shown = render_text(both := days())
    day, better = both.values()
    assert "zone us-west-2a (2 nodes) and the model hub are lost after 30 s; the model hub is back 5 min" in shown
    assert "5000 came = 900 served + 100 late + 4000 lost" in shown
    assert "requests were lost or late for 6 min 20 s" in shown
    assert "0:30          12             1       0  the loss" in shown
    assert "nodes: $1.50 for 2.00 node hours, $10.80 an hour; without a price: x in y" in shown
    assert "node group gpu starts no other node: it has no other zone" in shown
    assert "ns/pod waits: 0/4 nodes are available" in shown
    assert not day.recovers
    assert better.recovers
    written = document({"": day, "x": better})
    assert not unlike("rehearse day", json.loads(json.dumps(written)))
    assert [one["tried"] for one in written["days"]] == [None, "x"]
    assert written["days"][1]["servers"][0]["requests"] == {"came": 5000, "served": 4990, "late": 0, "lost": 10}


def test_the_picture_has_the_curves_and_the_loss() -> None:
    load = Load(((0.0, 4.0), (60.0, 20.0)), 100, 20, 5.0)
    moments = [
        Moment(float(at), "s", 1 if at < 90 else 3, 1 if at < 120 else 2, None if at < 30 else at / 4) for at in range(200)
    ]
    course = Course(replace(subject(), load=load), 1, 1, 0, 0, 0.0, True, tuple(moments))
    day = Day("gpu-opt350m", (Loss("hub", "the hub"),), 100.0, 300.0, 200.0, (course,), (), Dollars(1, 1))
    root = ET.fromstring(render_plot(day, course))
    paths = {element.get("class"): element.attrib["d"] for element in root.iter() if element.tag.endswith("path")}
    assert paths.keys() == {"line rate", "line metric", "line answering", "line wanted"}
    assert any(element.get("class") == "loss" for element in root.iter())
    description = next(element.text for element in root.iter() if element.tag.endswith("desc"))
    assert description == "4 requests/s, 1 pod; at 60 s 20 requests/s; at 90 s 3 pods."
    width, height = (float(root.attrib[key]) for key in ("width", "height"))
    for path in paths.values():
        for point in path.replace("M", " ").replace("L", " ").split():
            x, y = map(float, point.split(","))
            assert 0 <= x <= width
            assert 0 <= y <= height


def test_the_page_shows_days_in_which_every_request_has_its_end() -> None:
    """A run of the command takes a quarter of an hour, by hand: docs/rehearse.md."""
    shown = block("text", "Rehearsing a bad day", ROOT / "docs" / "rehearse.md").text
    days = [[*map(int, found)] for found in re.findall(r"(\d+) came = (\d+) served \+ (\d+) late \+ (\d+) lost", shown)]
    assert len(days) == 2
    for came, *ends in days:
        assert came == sum(ends)
    for (_, _, late, lost), row in zip(days, shown.splitlines()[-2:], strict=True):
        assert re.search(rf" triton-server +{lost} +{late} ", row)
