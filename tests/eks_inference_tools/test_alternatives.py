"""A server whose pods run elsewhere while a place has no capacity: what pods ask for, what is judged, what views show."""

import itertools
from dataclasses import replace
from typing import Any

import pytest

from eks_inference.catalog.instances import instance_type
from eks_inference.place.placement import POOL_LABEL, Placement
from eks_inference.serving.deployment import startup
from eks_inference.serving.rules.every_server import places_take_the_same_pods
from eks_inference.serving.triton.plan import repository_files
from eks_inference.serving.triton.rules import facts_of_places
from eks_inference.serving.triton.spec import TritonServerSpec
from eks_inference.serving.vllm.component import VllmServer
from eks_inference.serving.vllm.spec import VllmServerSpec
from eks_inference_tools.alternatives import places, places_section
from eks_inference_tools.comparison import eks_compared
from eks_inference_tools.cost.cost_section import cost_section
from eks_inference_tools.cost.estimate import estimated
from eks_inference_tools.cost.needed_quotas import needs_elsewhere
from eks_inference_tools.doctor.examine import examine
from eks_inference_tools.domain import Figures
from handles import existing_cluster, placement
from stackgraph.graph.document import Graph
from stackgraph.problems import ProgramError
from stackgraph.recorder.recording import record
from stub_account import well
from variants import faults, recorded_with, verdict

SPOT = {"kind": "karpenter", "instance_types": ["g6.xlarge", "g6e.xlarge"], "capacity_types": ["spot"]}
DEMAND = {"kind": "karpenter", "instance_types": ["g6.xlarge", "g6e.2xlarge", "g6.12xlarge"]}
ELSEWHERE = [{"pool": "spot", "instance_type": "g6e.xlarge"}, {"pool": "demand", "instance_type": "g6e.2xlarge"}]

LARGE, SMALL = ({"pool": "demand", "instance_type": f"g6.{size}"} for size in ("12xlarge", "xlarge"))

SPEC = {
    "model": {"id": "Qwen/Qwen3-0.6B"},
    "engine": "cuda-vllm-0.30",
    "pool": "a",
    "tensor_parallel": 1,
    "max_num_seqs": 8,
    "max_model_len": 2048,
    "alternatives": [{"pool": "b"}],
}


def section(*others: Any, **server: Any) -> dict[str, Any]:
    """Changes of the stack on one GPU: its server on spot, with further places."""
    found = {"pool": "spot", "instance_type": "g6.xlarge", "alternatives": list(others), **server}
    neuron = {"neuron": {"kind": "managed", "instance_types": ["inf2.xlarge"], "size": 1}} if {"pool": "neuron"} in others else {}
    return {"pools": {"gpu": None, "spot": SPOT, "demand": DEMAND, **neuron}, "servers": {"qwen3": found}}


@pytest.fixture(scope="module")
def graph() -> Graph:
    return recorded_with(section(*ELSEWHERE), "smoke-gpu")


def pod(graph: Graph) -> Any:
    (found,) = (resource for resource in graph.resources if resource.name == "qwen3-deployment")
    return found.inputs["spec"]["template"]["spec"]


def test_pods_name_their_places_in_order_and_ask_for_what_the_smallest_node_has(graph: Graph) -> None:
    required = pod(graph)["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    terms = [{one["key"]: one["values"] for one in term["matchExpressions"]} for term in required["nodeSelectorTerms"]]
    assert [term[POOL_LABEL] for term in terms] == [["spot"], ["spot"], ["demand"]]
    assert [term["node.kubernetes.io/instance-type"] for term in terms] == [["g6.xlarge"], ["g6e.xlarge"], ["g6e.2xlarge"]]
    assert "nodeSelector" not in pod(graph)
    alone = [pod(recorded_with(section(pool="demand", instance_type=one), "smoke-gpu")) for one in ("g6.xlarge", "g6e.2xlarge")]
    smallest, largest = (one["containers"][0]["resources"] for one in alone)
    assert pod(graph)["containers"][0]["resources"] == smallest != largest


def test_the_longest_of_the_cold_starts_bounds_the_wait() -> None:
    spec = VllmServerSpec.model_validate(SPEC | {"model": {"id": "Qwen/Qwen3-32B"}})
    fast, slow = (replace(placement("g6e.xlarge", pool="a"), disk_mib_s=speed) for speed in (1000, 125))
    alone = [startup(spec, one) for one in (fast, slow)]
    assert alone[0].download_s < alone[1].download_s
    assert startup(spec, replace(fast, others=(slow,))) == startup(spec, replace(slow, others=(fast,))) == alone[1]


@pytest.mark.parametrize(
    ("other", "server", "why"),
    [
        (
            {"pool": "demand", "instance_type": "g6.12xlarge"},
            {"devices": None},
            "SRV022: on g6.12xlarge of pool demand: pods would differ: devices: 1 on g6.xlarge, 4 here",
        ),
        (LARGE, {}, ""),
        ({"pool": "demand"}, {}, "has several instance types"),
        ({"pool": "demands", "instance_type": "g6.xlarge"}, {}, "alternatives.0.pool"),
        ({"pool": "core"}, {}, "no accelerator"),
        ({"pool": "spot", "instance_type": "g6.xlarge"}, {}, "alternatives.0.pool: the pods run there already"),
        ({"pool": "neuron"}, {}, "alternatives.0.pool: its nodes have no nvidia devices, which the other places have"),
        (
            {"pool": "demand", "instance_type": "g6.xlarge"},
            {"model": {"id": "Qwen/Qwen3-14B"}, "instance_type": "g6e.xlarge", "disk_gib": 80},
            "GPU001: on g6.xlarge of pool demand: ",
        ),
    ],
)
def test_each_place_is_judged(other: dict[str, str], server: dict[str, Any], why: str) -> None:
    found = " ".join(faults(section(other, **server)))
    assert why in found
    assert bool(found) == bool(why)


TRITON = {"kind": "triton", "engine": None, "max_model_len": 2048, "max_num_seqs": None, "disk_gib": None}


def test_triton_servers_have_alternatives_too() -> None:
    moved: dict[str, Any] = section(*ELSEWHERE, **TRITON) | {
        "load_test": None,
        "clients": None,
        "endpoints": None,
        "observability": None,
    }
    assert not faults(moved)
    there = {"pool": "demand", "instance_type": "g6.12xlarge"}
    moved["servers"]["qwen3"] |= {"alternatives": [there], "devices": None}
    (told,) = faults(moved)
    assert "SRV022: on g6.12xlarge of pool demand: pods would differ: devices: 1 on g6.xlarge, 4 here" in told


@pytest.mark.parametrize("keys", [{}, {"tensor_parallel": 1}, {"devices": 1}, {"devices": 4, "quantized_weights": "fp8"}])
def test_where_srv022_holds_a_triton_pod_finds_the_same_repository(keys: dict[str, Any]) -> None:
    spec = TritonServerSpec.model_validate({"model": {"id": "Qwen/Qwen3-8B"}, "pool": "a", "max_model_len": 4096, **keys})
    types = ("g4dn.12xlarge", "g5.xlarge", "g5.12xlarge", "g6.xlarge", "g6e.12xlarge", "p4d.24xlarge", "p5.48xlarge")
    alike = 0
    for one, other in itertools.permutations(types, 2):
        place = replace(placement(one, pool="a"), others=(placement(other, pool="b"),))
        _, second = facts_of_places(spec, place)
        if all(judged.holds for judged in places_take_the_same_pods.judge(second.serving)):
            alike += 1
            assert repository_files(spec, instance_type(one)) == repository_files(spec, instance_type(other))
    assert alike


def test_the_quotas_of_all_places_are_asked_for(graph: Graph) -> None:
    """What only an alternative lacks is a warning."""
    found = {need.quota.title: need.amount for need in needs_elsewhere(graph) if need.quota and need.quota.families}
    assert found == {"Running On-Demand G and VT instances": 8}
    (told,) = (finding for finding in examine(graph, well(g=4).account()) if " at an alternative, " in finding.text)
    assert (told.verdict, "--desired-value 8 " in told.request) == ("warning", True)
    assert not list(needs_elsewhere(recorded_with({}, "smoke-gpu")))


def test_what_is_true_of_several_places_is_said_once() -> None:
    assert [finding.rule.id for finding in verdict(section(*ELSEWHERE)).findings].count("SRV005") == 1


def test_pods_without_room_in_a_pool_of_a_fixed_size_are_refused_unless_they_have_another_place() -> None:
    """CAP001 counts no pod twice."""
    small, reserve = ({"kind": "managed", "instance_types": ["g6.xlarge"], "size": 1, "root_volume_gib": 100} for _ in range(2))
    changed = section(pool="small", instance_type=None, replicas=2)
    changed["pools"] |= {"small": small, "reserve": reserve}
    assert any("CAP001" in fault for fault in faults(changed))
    changed["servers"]["qwen3"]["alternatives"] = [{"pool": "reserve"}]
    assert not faults(changed)
    assert [finding.rule.id for finding in verdict(changed).findings] == ["CAP001"]
    small["size"] = 2
    assert not verdict(changed).findings


@pytest.mark.parametrize(("others", "why"), [((), "are those of the placement"), (("c",), "placed elsewhere"), (("b",), "")])
def test_a_program_gives_the_other_places_to_the_placement(others: tuple[str, ...], why: str) -> None:
    place = replace(placement("g6.xlarge", pool="a"), others=tuple(placement("g6.xlarge", pool=name) for name in others))

    def build() -> None:
        VllmServer("chat", SPEC, cluster=existing_cluster(), placement=place)

    if why:
        with pytest.raises(ProgramError, match=why):
            record(build, project="p", stack="s")
    else:
        assert any(resource.name == "chat-deployment" for resource in record(build, project="p", stack="s").resources)


def test_the_first_place_counts_and_the_others_are_told_with_what_they_cost(graph: Graph) -> None:
    figures = Figures()
    found = list(places(graph, figures))
    assert [place.where for place in found] == ["g6.xlarge of spot", "g6e.xlarge of spot", "g6e.2xlarge of demand"]
    costs = [place.usd_per_hour.usd_per_hour for place in found]
    assert costs == sorted(set(costs))
    assert figures.cost(graph).totals[1].usd_per_hour == costs[0]
    quotas = [place.quotas for place in found]
    assert quotas == [("4 vCPU of All G and VT Spot Instance Requests",)] * 2 + [
        ("8 vCPU of Running On-Demand G and VT instances",)
    ]
    (listing,) = places_section(graph, figures).listings
    assert [row.details["needs"] for row in listing.rows] == quotas
    documents = [place.document() for place in found]
    assert [list(document["quotas"]) for document in documents] == [list(quota) for quota in quotas]
    assert [document["perHour"] for document in documents] == pytest.approx(costs, abs=1e-6)
    told = eks_compared().facts(graph)["places of qwen3"]
    assert told.index("g6.xlarge of spot") < told.index("g6e.2xlarge of demand")
    assert not places_section(recorded_with({}, "smoke-gpu"), figures).rows


def test_the_most_that_a_stack_costs_is_at_the_dearest_place() -> None:
    dearest = {"pool": "demand", "instance_type": "g6e.2xlarge"}
    found, there, first = (
        estimated(recorded_with(one, "smoke-gpu"))
        for one in (section(*ELSEWHERE, replicas=2), section(replicas=2, **dearest), section(replicas=2))
    )
    assert found.totals[2].usd_per_hour == pytest.approx(there.totals[2].usd_per_hour)
    assert found.totals[:2] == first.totals[:2]
    assert found.totals[2].usd_per_hour > first.totals[2].usd_per_hour
    assert "dearest places of all pods" in str(cost_section(recorded_with({}, "smoke-gpu"), found).listings)


def test_a_placement_and_the_others_each_stand_first_once() -> None:
    first, second = (Placement(name, instance_type("g6.xlarge"), {POOL_LABEL: name}) for name in ("a", "b"))
    both = replace(first, others=(second,))
    assert [(place.pool, [other.pool for other in place.others]) for place in both.places] == [("a", ["b"]), ("b", ["a"])]
    assert first.places == (first,)
