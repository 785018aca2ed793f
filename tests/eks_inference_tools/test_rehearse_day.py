"""Bad days, without a cluster: requests that go to pods, what is lost with what, and what a reader sees."""

import json
import random
import re
from dataclasses import replace

import pytest

from conftest import ROOT, recorded
from eks_inference.speed.batching import Limits
from eks_inference_tools.placing.nodes import managed_nodes, manifest
from eks_inference_tools.reading.live_objects import Object, name_of
from eks_inference_tools.simulate.day.day import Course, Day, Moment, _listed, _starts
from eks_inference_tools.simulate.day.loss import Loss, chosen
from eks_inference_tools.simulate.day.requests import Load, Requests, bad_until
from eks_inference_tools.simulate.day.subjects import Subject, subjects
from eks_inference_tools.simulate.day.text import document, render_text
from json_schemas import unlike
from linear_steps import Linear
from readme import block

LOAD = Load(rate=4.0, input_tokens=100, output_tokens=20, late_seconds=5.0)
"""One engine takes about fifty of these a second."""


def flow(load: Load = LOAD, **options: object) -> Requests:
    return Requests(Linear(), Limits(max_num_seqs=8, kv_tokens=100_000), load, **options)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("seed", range(6))
def test_every_request_is_served_late_or_lost_once_whatever_pods_do(seed: int) -> None:
    """Pods come, go, and stay listed when they are gone, at random."""
    chance, names = random.Random(seed), ["a", "b", "c"]
    asked = flow(replace(LOAD, rate=30.0), seed=seed, routing=chance.choice(["random", "fewest"]), copies=chance.choice([1, 2]))
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
    assert len(lost) == pytest.approx(LOAD.rate * 50 / 2, rel=0.3), "by chance, half go to it"
    assert bad_until(asked.fates, 30) == max(lost)


def test_too_much_for_one_pod_is_late_and_not_lost() -> None:
    asked = flow(replace(LOAD, rate=300.0))
    for second in range(1, 31):
        asked.advance(second, ["a"], {"a"})
    asked.finish()
    assert asked.counts().keys() == {"served", "late"}


NODES: list[Object] = [manifest(node) for node in managed_nodes(recorded("gpu-opt350m"))]


def on(node: str) -> Object:
    return {"metadata": {"name": f"pod-on-{node}", "namespace": "default"}, "spec": {"nodeName": node}}


def test_the_zone_with_the_most_pods_is_lost_and_its_nodes_come_again_in_others() -> None:
    loss = chosen("zone", NODES, [on("gpu-2"), on("gpu-1"), on("gpu-3")], managed_nodes(recorded("gpu-opt350m")))
    assert (loss.what, loss.nodes) == ("us-west-2a", {"core-1", "gpu-1", "gpu-3"})
    new = {node.name: node.zone.name for _, node in loss.due}
    assert len(new) == 3
    assert not new.keys() & {name_of(node) for node in NODES}
    assert "us-west-2a" not in new.values()


def test_a_lost_node_comes_again_in_its_zone() -> None:
    loss = chosen("node", NODES, [on("gpu-2")], managed_nodes(recorded("gpu-opt350m")))
    assert loss.nodes == {"gpu-2"}
    (due,) = loss.due
    assert due[0] > 30
    assert due[1].zone.name == "us-west-2b"


def test_a_group_without_another_zone_starts_nothing() -> None:
    one_zone = tuple(
        replace(node, kind=replace(node.kind, zones=(node.zone,))) for node in managed_nodes(recorded("gpu-opt350m"))
    )
    loss = chosen("zone", NODES, [on("gpu-1")], one_zone)
    assert (loss.due, loss.without) == ([], ("core", "gpu"))


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


def subject() -> Subject:
    from conftest import PROJECT
    from eks_inference.serving.facts import ServingFacts
    from eks_inference.stack.facts import stack_facts
    from eks_inference.stack.reading import parse_stack

    values = PROJECT.config(PROJECT.stack_file("gpu-opt350m")).values
    facts = stack_facts(parse_stack(values["eks-inference:stack"], PROJECT.root), values["aws:region"])
    servers = {str(one.path[1]): one for one in facts if isinstance(one, ServingFacts)}
    (found,) = subjects(recorded("gpu-opt350m"), servers, {}, 12.0)
    assert isinstance(found, Subject)
    return found


def test_a_pod_starts_sooner_where_its_image_is() -> None:
    found = subject()
    assert found.load.rate == 12.0
    assert found.prefetched
    assert 0 < found.seconds < 60 < found.pull_seconds
    expression = _starts([found], [], NODES, {"gpu-9": 1000.0})
    assert '"gpu-4": 0' in expression
    assert f'"gpu-9": {round(1000 + found.pull_seconds)}' in expression, "its DaemonSet brings the image"
    assert '{"gpu-1": 0}' in _starts([replace(found, prefetched=False)], [server_pod(found, "gpu-1")], NODES, {"gpu-9": 1000.0})


def server_pod(of: Subject, node: str) -> Object:
    return {
        "metadata": {"name": "pod", "namespace": of.template.namespace, "labels": dict(of.template.labels)},
        "spec": {"nodeName": node},
    }


def test_what_a_reader_sees() -> None:
    loss = Loss("zone", "us-west-2a", frozenset(["gpu-1", "gpu-4"]), [], ("gpu",))
    moments = (
        Moment(0, "s", 1, 1),
        Moment(29, "s", 1, 1),
        Moment(30.2, "s", 1, 0),
        Moment(350, "s", 2, 0),
        Moment(410, "s", 1, 1),
    )
    course = Course(subject(), 5000, 900, 100, 4000, 380.0, True, moments)
    day = Day("gpu-opt350m", loss, 30.0, 500.0, (course,), (("ns/pod", "0/4 nodes are available"),))
    better = replace(day, courses=(replace(course, lost=10, late=0, served=4990, bad_seconds=50.0),), waiting=())
    shown = render_text({"": day, "servers.s.replicas=2": better})
    assert "5000 came = 900 served + 100 late + 4000 lost" in shown
    assert "requests were lost or late for 6 min 20 s" in shown
    assert "0:30     1       0  the loss" in shown
    assert "node group gpu starts no other node: it has no other zone" in shown
    assert "ns/pod waits: 0/4 nodes are available" in shown
    assert not day.recovers
    assert better.recovers
    written = document({"": day, "x": better})
    assert not unlike("rehearse day", json.loads(json.dumps(written)))
    assert [one["tried"] for one in written["days"]] == [None, "x"]
    assert written["days"][1]["servers"][0]["requests"] == {"came": 5000, "served": 4990, "late": 0, "lost": 10}


def test_the_page_shows_days_in_which_every_request_has_its_end() -> None:
    """A run of the command takes a quarter of an hour, by hand: docs/rehearse.md."""
    shown = block("text", "Rehearsing a bad day", ROOT / "docs" / "rehearse.md").text
    days = [[*map(int, found)] for found in re.findall(r"(\d+) came = (\d+) served \+ (\d+) late \+ (\d+) lost", shown)]
    assert len(days) == 2
    for came, *ends in days:
        assert came == sum(ends)
    for (_, _, late, lost), row in zip(days, shown.splitlines()[-2:], strict=True):
        assert re.search(rf" triton-server +{lost} +{late} ", row)
