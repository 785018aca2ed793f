"""What graphs cost: by hand for each shipped stack, and properties of any graph."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billed import CLUSTER, NODE_CLASS, NODE_POOL, PROVIDER, aws, costs, deployment, group, of_gpus, scaled
from conftest import STACKS, recorded
from eks_inference_tools.cli import main
from eks_inference_tools.comparison import eks_compared
from eks_inference_tools.cost.cost_section import cost_section
from eks_inference_tools.cost.document import document
from eks_inference_tools.cost.estimate import Rate, estimate, estimated
from eks_inference_tools.cost.money import in_short, money, summary
from eks_inference_tools.cost.price_book import SCALES, PriceBook
from eks_inference_tools.notes import notes_of
from price_tables import make_inf2_dearer
from stackgraph.diff.dangers import dangers
from stackgraph.diff.graphs import compare
from stackgraph.graph.document import Graph, Resource
from variants import recorded_with
from vectors.graph import kubernetes, resource

MONTH = 730

# USD per hour: m6i.large and g4dn.xlarge, us-west-2; a NAT gateway and its address; the control plane; a GiB of gp3 for a month.
M6I_LARGE, G4DN_XLARGE, M5_XLARGE, M5_2XLARGE = 0.096, 0.526, 0.192, 0.384
P4D_24XLARGE = 21.957642  # us-east-1
INF2_8XLARGE, INF2_48XLARGE = 1.96786, 12.98127
INF2_XLARGE, G6_XLARGE, M5_LARGE = 0.7582, 0.8048, 0.096
TRN2_48XLARGE = 35.7608  # in a capacity block: it has no price on demand
CONTROL_PLANE, NAT, ADDRESS = 0.10, 0.045, 0.005
GP3 = 0.08 / MONTH
BASE = CONTROL_PLANE + NAT + ADDRESS

BY_HAND: Mapping[str, Sequence[float]] = {
    # 2 core nodes and 4 GPU nodes with 100 GiB each, and 50 GiB for Prometheus.
    "gpu-opt350m": (BASE + 2 * M6I_LARGE + 4 * G4DN_XLARGE + (6 * 100 + 50) * GP3,) * 3,
    # 3 core nodes with 150 GiB; 1 to 3 inf2.8xlarge with 500; 50 for Prometheus, 10 each for Open WebUI and the load test.
    "inf2-llama3": (
        BASE + 3 * M5_2XLARGE + INF2_8XLARGE + (3 * 150 + 500 + 70) * GP3,
        BASE + 3 * M5_2XLARGE + INF2_8XLARGE + (3 * 150 + 500 + 70) * GP3,
        BASE + 3 * M5_2XLARGE + 3 * INF2_8XLARGE + (3 * 150 + 3 * 500 + 70) * GP3,
    ),
    # 2 core nodes with 100 GiB, one inf2.48xlarge with 1,024; 50 GiB for Prometheus, 10 for the load test.
    "inf2-llama2": (BASE + 2 * M5_XLARGE + INF2_48XLARGE + (2 * 100 + 1024 + 60) * GP3,) * 3,
    "trn2-di": (BASE + 2 * M5_XLARGE + TRN2_48XLARGE + (2 * 100 + 500 + 60) * GP3,) * 3,
    "trn2-di-pair": (BASE + 2 * M5_XLARGE + 2 * TRN2_48XLARGE + (2 * 100 + 2 * 500 + 60) * GP3,) * 3,
    "trn2-nixl": (BASE + 2 * M5_XLARGE + TRN2_48XLARGE + (2 * 100 + 500 + 60) * GP3,) * 3,
    # 2 core nodes with 50 GiB, one accelerator node with 100; 10 GiB for the load test.
    "smoke-inf2": (BASE + 2 * M5_LARGE + INF2_XLARGE + (2 * 50 + 100 + 10) * GP3,) * 3,
    "smoke-gpu": (BASE + 2 * M5_LARGE + G6_XLARGE + (2 * 50 + 100 + 10) * GP3,) * 3,
    # In sa-east-1: m5.large, trn2.3xlarge in a capacity block, NAT, gp3.
    "smoke-trn2": (CONTROL_PLANE + ADDRESS + 0.093 + 2 * 0.153 + 2.235 + (2 * 50 + 100 + 10) * 0.152 / MONTH,) * 3,
    "gpu-nixl": (BASE + 2 * M5_XLARGE + 2 * P4D_24XLARGE + (2 * 100 + 2 * 500 + 60) * GP3,) * 3,
}

# What exceeds the 125 MiB/s that every gp3 volume has: USD per MiB/s and month.
THROUGHPUT = 0.04 / MONTH
FASTER: Mapping[str, Sequence[float]] = {
    "smoke-inf2": ((600 - 125) * THROUGHPUT,) * 3,
    "inf2-llama3": (
        (3 * (500 - 125) + 1 * (600 - 125)) * THROUGHPUT,
        (3 * (500 - 125) + 1 * (600 - 125)) * THROUGHPUT,
        (3 * (500 - 125) + 3 * (600 - 125)) * THROUGHPUT,
    ),
}


@pytest.mark.thorough
@pytest.mark.parametrize("stack", STACKS)
def test_a_shipped_stack_costs_what_it_costs_by_hand(stack: str) -> None:
    found = estimated(recorded(stack))
    wanted = BY_HAND[stack]
    faster = FASTER.get(stack, (0, 0, 0))
    for scale, total in enumerate(found.totals):
        assert total.usd_per_hour == pytest.approx(wanted[scale] + faster[scale], abs=1e-9), SCALES[scale]


# -- any graph -------------------------------------------------------------------------------------------------------------------


def store(name: str, gib: int) -> Resource:
    return aws(
        "fsx/lustreFileSystem:LustreFileSystem",
        name,
        {"storageCapacity": gib, "storageType": "SSD", "deploymentType": "PERSISTENT_2", "perUnitStorageThroughput": 250},
    )


def made(number: int, drawn: tuple[str, int, int]) -> Resource:
    """A resource that costs money, named by a number."""
    kind, size, more = drawn
    name = f"{kind}-{number}"
    if kind in ("m5.large", "g6e.xlarge", "inf2.48xlarge", "p5e.48xlarge"):
        return group(name, kind, size, more)
    return {
        "nat": aws("ec2/natGateway:NatGateway", name, {}),
        "address": aws("ec2/eip:Eip", name, {}),
        "endpoint": aws("ec2/vpcEndpoint:VpcEndpoint", name, {"vpcEndpointType": "Interface", "subnetIds": ["a"] * (size + 1)}),
        "store": store(name, 1200 * (size + 1)),
        "volume": aws("ebs/volume:Volume", name, {"size": 100 * size, "type": "gp3", "throughput": 125 + more}),
        "queue": aws("sqs/queue:Queue", name, {}),
        "service": kubernetes("core/v1:Service", name, {"spec": {"type": "LoadBalancer"}}),
        "unknown": aws("rds/instance:Instance", name, {}),
    }[kind]


KINDS = (
    *("m5.large", "g6e.xlarge", "inf2.48xlarge", "p5e.48xlarge", "nat", "address", "endpoint", "store", "volume", "queue"),
    *("service", "unknown"),
)
DRAWN = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 4), st.integers(0, 3)), max_size=8)


@given(DRAWN)
def test_a_total_is_the_sum_of_its_parts_and_the_least_is_no_more_than_the_most(drawn: list[tuple[str, int, int]]) -> None:
    found = costs([made(number, one) for number, one in enumerate(drawn)])
    for scale, total in enumerate(found.totals):
        parts = sum(found.total(scale, part).usd_per_hour for part in found.parts)
        assert total.usd_per_hour == pytest.approx(parts)
        assert parts == pytest.approx(sum(line.usd_per_hour(scale) for line in found.lines))
    least, initial, most = (total.usd_per_hour for total in found.totals)
    assert least <= initial <= most


@given(DRAWN)
def test_each_resource_costs_as_much_beside_others_as_alone(drawn: list[tuple[str, int, int]]) -> None:
    resources = [made(number, one) for number, one in enumerate(drawn)]
    base, together = costs([]), costs(resources)
    for scale in range(len(SCALES)):
        alone = sum(costs([one]).totals[scale].usd_per_hour - base.totals[scale].usd_per_hour for one in resources)
        assert together.totals[scale].usd_per_hour - base.totals[scale].usd_per_hour == pytest.approx(alone)
    assert together.totals[0].at_least == any(costs([one]).totals[0].at_least for one in resources)


WORKLOADS = st.lists(st.tuples(st.integers(1, 4), st.integers(1, 15), st.integers(1, 30)), min_size=1, max_size=5)


@given(WORKLOADS)
def test_more_pods_of_a_workload_never_cost_less(drawn: list[tuple[int, int, int]]) -> None:
    some = [deployment(f"d{number}", *one) for number, one in enumerate(drawn)]
    more = [deployment(f"d{number}", 2 * replicas, cpu, gib) for number, (replicas, cpu, gib) in enumerate(drawn)]
    before, after = costs([NODE_POOL, NODE_CLASS, *some]), costs([NODE_POOL, NODE_CLASS, *more])
    assert before.totals[1].usd_per_hour > 0.1
    assert after.totals[1].usd_per_hour >= before.totals[1].usd_per_hour


def test_karpenter_starts_the_cheapest_nodes_for_what_autoscalers_ask() -> None:
    found = costs([NODE_POOL, NODE_CLASS, deployment("server", 1, 3, 4), scaled("server", 1, 4)])
    nodes = {line.charge.item: line.charge.amounts for line in found.lines if line.charge.part == "nodes"}
    # 3 CPUs do not fit into 2, and a c5.xlarge is cheaper than an m5.xlarge.
    assert nodes["c5.xlarge"][:2] == (1, 1)
    cpus = {"c5.xlarge": 4, "c5.2xlarge": 8, "c5.4xlarge": 16}
    assert sum(cpus[type_] * amounts[2] for type_, amounts in nodes.items()) == 16


# -- what is not known -----------------------------------------------------------------------------------------------------------


def test_what_has_no_price_or_no_number_makes_a_total_a_lower_bound() -> None:
    assert in_short(costs([])) == "$0.10/h"
    assert in_short(costs([made(0, ("p5e.48xlarge", 1, 0))])) == "at least $0.10/h"
    unknown = costs([made(0, ("unknown", 0, 0))])
    assert in_short(unknown) == "at least $0.10/h"
    assert [uncounted.shown for uncounted in unknown.uncounted] == ["unknown-0: aws:rds/instance:Instance has no price here"]
    assert costs([made(0, ("p5e.48xlarge", 1, 0))]).missing() == ("no price for p5e.48xlarge in us-east-1",)


def test_what_is_not_counted_is_told_without_any_price() -> None:
    shown = Graph("test", "test", (resource("aws:rds/instance:Instance", "orders", {}),))
    found = estimate(shown, PriceBook())
    (line,) = summary(found)
    assert line == "costs are not known: orders: aws:rds/instance:Instance has no price here"
    assert cost_section(shown, found).rows
    assert not cost_section(Graph("test", "test", ()), estimate(Graph("test", "test", ()), PriceBook())).rows


def test_pods_on_nodes_that_the_program_does_not_make_are_told() -> None:
    graph = Graph("test", "test", (deployment("server", 2, 1, 1),))
    first, *_ = notes_of(graph, {})
    why = "the program makes no pool for 2 pods of it"
    assert first == f"costs are not known: nodes for Deployment app/server: {why}"


def test_an_outdated_price_is_named_and_in_no_total(monkeypatch: pytest.MonkeyPatch) -> None:
    make_inf2_dearer(monkeypatch)
    provider = resource("pulumi:providers:aws", "aws", {"region": "us-west-2"})
    instance = resource("aws:ec2/instance:Instance", "i", {"instanceType": "inf2.xlarge"})
    found = estimate(Graph("test", "test", (provider, instance)), PriceBook())
    assert found.totals[0].usd_per_hour == 0
    assert found.totals[0].at_least
    (missing,) = found.missing()
    assert missing.startswith(
        "no price for inf2.xlarge in us-west-2: the only one found is outdated: in us-east-1 0.7582 in 2025"
    )


def test_nothing_is_priced_without_a_region() -> None:
    found = estimate(Graph("test", "test", (resource("aws:ec2/natGateway:NatGateway", "nat", {}),)), PriceBook())
    assert found.missing() == ("no price for nat_gateway in an unknown region (aws:region)",)


# -- what views say --------------------------------------------------------------------------------------------------------------


def test_the_table_tells_the_difference() -> None:
    change = eks_compared().measures["cost"]
    assert change(of_gpus(1), of_gpus(2)) == "+$1.86/h"
    assert change(of_gpus(2), of_gpus(1)) == "−$1.86/h"
    assert change(of_gpus(1), of_gpus(1)) == "stays $1.96/h"
    assert change(None, of_gpus(2)) == "$3.83/h"


def test_a_removed_server_whose_node_stays_saves_nothing_and_the_table_says_what_idles() -> None:
    before, after = recorded("inf2-llama2"), recorded_with({"servers": {"llama2-c": None}}, "inf2-llama2")
    change = eks_compared().measures["cost"]
    assert change(before, after) == "stays at least $13.66/h; no pod uses 4 of 12 devices of inf2.48xlarge: $4.33/h"
    assert change(after, before) == "stays at least $13.66/h"


def said(before: int, after: int) -> list[str]:
    found = dangers(compare(of_gpus(before), of_gpus(after)), eks_compared())
    return [danger.what for danger in found if danger.kind == "cost"]


def test_twice_the_cost_of_a_stack_or_of_a_pool_is_a_danger() -> None:
    assert said(1, 3) == ["costs 2.9 times as much when idle: $1.96/h → $5.69/h"]
    assert said(1, 2) == ["pool gpus costs 2.0 times as much when idle: $1.86/h → $3.72/h"]
    assert said(2, 3) == said(3, 1) == []


def test_tokens_cost_what_the_deployed_stack_costs_at_their_rate() -> None:
    found = costs([])
    assert Rate("run", 1000 / 3.6).usd_per_million(found.totals[1]) == pytest.approx(0.10)
    shown = document(Graph("p", "s", (PROVIDER, CLUSTER)), found, [Rate("run", 100)])
    assert shown["perMillionOutputTokens"][0]["deployed"] == pytest.approx(0.277778)


MONEY = [(0, "$0.00"), (0.0052, "$0.0052"), (0.094, "$0.094"), (0.1, "$0.10"), (1234.5, "$1,234.50"), (-2, "−$2.00")]


@pytest.mark.parametrize(("usd", "shown"), MONEY)
def test_money(usd: float, shown: str) -> None:
    assert money(usd) == shown


@pytest.mark.thorough
def test_ones_own_prices_come_first(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "prices.yaml"
    file.write_text('us-west-2:\n  inf2.8xlarge: {on_demand: 1.0, source: "contract"}\n')
    assert main(["preview", "inf2-llama3", "--prices", str(file), "--format", "json"]) == 0
    shown = json.loads(capsys.readouterr().out)["cost"]
    assert "inf2.8xlarge: own price, contract" in shown["notes"]
    usual = estimated(recorded("inf2-llama3")).totals
    assert shown["totals"]["idle"]["perHour"] == pytest.approx(usual[0].usd_per_hour - 0.96786, abs=1e-5)
    file.write_text("us-west-2:\n  inf2.9xlarge: {on_demand: -1}\n")
    assert main(["check", "inf2-llama3", "--prices", str(file)]) == 2
    assert "inf2.9xlarge" in capsys.readouterr().err


# -- what is paid for and not used ---------------------------------------------------------------------------------------------


def server(name: str, replicas: int, gpus: int) -> Resource:
    found = deployment(name, replicas, 1, 1)
    (container,) = found.inputs["spec"]["template"]["spec"]["containers"]
    container["resources"]["requests"]["nvidia.com/gpu"] = str(gpus)
    return found


@pytest.mark.parametrize(
    ("of_the_type", "replicas", "gpus", "told"),
    [
        (2, 1, 4, "no pod uses 1 of 2 g6e.12xlarge: $10.49/h"),
        (1, 1, 2, "no pod uses 2 of 4 devices of g6e.12xlarge: $5.25/h"),
        (2, 1, 2, "no pod uses 1 of 2 g6e.12xlarge, nor 2 of 4 devices of the others: $15.74/h"),
        (2, 2, 4, ""),
        # Without a pod on any device, the pods may come from elsewhere.
        (2, 0, 4, ""),
    ],
)
def test_nodes_and_devices_that_no_pod_uses_are_told_with_their_price(
    of_the_type: int, replicas: int, gpus: int, told: str
) -> None:
    nodes = group("gpu", "g6e.12xlarge", of_the_type, 0, amiType="AL2023_x86_64_NVIDIA")
    assert [*summary(costs([nodes, server("s", replicas, gpus)]))][1:] == ([told] if told else [])


def test_a_node_that_an_autoscaler_fills_is_in_use() -> None:
    nodes = group("gpu", "g6e.12xlarge", 2, 0, amiType="AL2023_x86_64_NVIDIA")
    assert not costs([nodes, server("s", 1, 4), scaled("s", 1, 2)]).unused


def test_what_has_no_price_is_named_beside_the_cost() -> None:
    (line,) = summary(costs([made(0, ("p5e.48xlarge", 2, 0))]))
    assert line.startswith("costs at least $0.10/h and 2 x p5e.48xlarge without a price, by list prices")
