"""Cost where a program is unusual: several regions and clusters, what has no price, numbers that nobody knows."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from billed import CLUSTER, NODE_CLASS, NODE_POOL, POOL_SPEC, PROVIDER, aws, costs, deployment, group, of_gpus, scaled
from eks_inference.catalog.instances import instance_type
from eks_inference.stack.own_rows import OwnPrice
from eks_inference_tools.comparison import eks_compared
from eks_inference_tools.cost.charges import node_charges
from eks_inference_tools.cost.cost_section import _per_token, cost_section
from eks_inference_tools.cost.document import document
from eks_inference_tools.cost.estimate import Estimate, Rate, estimate, rates
from eks_inference_tools.cost.money import offer
from eks_inference_tools.cost.needed_quotas import ample_needs, needs
from eks_inference_tools.cost.price_book import Amounts, PriceBook, Uncounted
from eks_inference_tools.loadtest_report.record import Run
from stackgraph.diff.dangers import dangers
from stackgraph.diff.graphs import compare
from stackgraph.graph.document import Graph, Resource
from vectors.graph import kubernetes, resource


def of(*resources: Resource) -> Graph:
    return Graph("test", "test", tuple(sorted(resources, key=lambda one: one.urn)))


def priced(graph: Graph) -> Estimate:
    return estimate(graph, PriceBook())


def doubts(found: Estimate) -> list[str]:
    return [uncounted.shown for uncounted in found.uncounted]


def amounts(found: Estimate, item: str) -> list[Amounts]:
    return [line.charge.amounts for line in found.lines if line.charge.item == item]


# -- regions and clusters --------------------------------------------------------------------------------------------------------

EAST = resource("pulumi:providers:aws", "east", {"region": "us-east-1"})
WEST = resource("pulumi:providers:aws", "west", {"region": "eu-west-1"})


def cluster(name: str, provider: Resource) -> tuple[Resource, Resource]:
    """Returns a cluster, and the provider that reaches it."""
    made = resource("aws:eks/cluster:Cluster", name, {"name": name, "version": "1.35"}, provider=provider.urn)
    settings = {"kubeconfig": f"<{name}.kubeconfig>"}
    return made, resource(
        "pulumi:providers:kubernetes", f"to-{name}", settings, property_dependencies={"kubeconfig": (made.urn,)}
    )


INGRESS = kubernetes("networking.k8s.io/v1:Ingress", "ingress", {"spec": {"ingressClassName": "alb"}})


@pytest.mark.parametrize("others", [(EAST,), (EAST, *cluster("a", EAST))])
def test_what_is_in_a_cluster_has_the_prices_of_its_region(others: tuple[Resource, ...]) -> None:
    made, reached = cluster("b", WEST)
    inside = [replace(one, provider=reached.urn) for one in (NODE_POOL, NODE_CLASS, deployment("server", 1, 3, 4), INGRESS)]
    address = resource("aws:ec2/eip:Eip", "address", {}, provider=WEST.urn)
    graph = of(*others, WEST, made, reached, address, *inside)
    found = priced(graph)
    elsewhere = [line.charge for line in found.lines if line.charge.region != "eu-west-1"]
    assert {charge.part for charge in elsewhere} <= {"control plane"}
    assert len(elsewhere) == len(others) // 2
    assert {need.region for need in needs(graph, found)} == {"eu-west-1"}


def test_nobody_guesses_which_of_two_regions_it_is() -> None:
    (line,) = priced(of(EAST, WEST, resource("aws:ec2/natGateway:NatGateway", "nat", {}))).lines
    assert line.charge.region == ""
    assert line.price is None


def test_a_node_group_of_an_unknown_cluster_counts_once() -> None:
    found = priced(of(EAST, WEST, *cluster("a", EAST), *cluster("b", WEST), group("nodes", "m5.large", 2, 0)))
    assert amounts(found, "m5.large") == [(2, 2, 2)]
    assert amounts(found, "gp3_storage") == [(40, 40, 40)]


def test_a_view_tells_prices_and_quotas_of_two_regions_apart() -> None:
    volume = {"size": 100, "type": "gp3"}
    two = [resource("aws:ebs/volume:Volume", one.name, volume, provider=one.urn) for one in (EAST, WEST)]
    graph = of(EAST, WEST, *two)
    section = cost_section(graph, priced(graph))
    prices, quotas = section.listings[0], next(listing for listing in section.listings if listing.header[0] == "QUOTA")
    storage = next(row for row in prices.rows if row.cells[0] == "storage")
    assert storage.details[""] == ["100 gp3 storage at $0.08 per GiB-month", "100 gp3 storage at $0.088 per GiB-month"]
    assert [row.cells[0].rpartition(", ")[2] for row in quotas.rows] == ["us-east-1", "eu-west-1"]


# -- pods ------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("replicas", "least", "most"), [(1, 3, 6), (9, 1, 2)])
def test_an_autoscaler_corrects_the_number_of_pods_at_once(replicas: int, least: int, most: int) -> None:
    found = costs([NODE_POOL, NODE_CLASS, deployment("server", replicas, 3, 4), scaled("server", least, most)])
    idle, deployed, highest = (total.usd_per_hour for total in found.totals)
    assert 0.2 < idle <= deployed <= highest


def test_the_most_has_the_nodes_of_karpenter_and_those_of_groups() -> None:
    found = costs([NODE_POOL, NODE_CLASS, group("nodes", "m5.xlarge", 1, 2), deployment("server", 2, 3, 4)])
    assert amounts(found, "m5.xlarge") == [(1, 1, 3)]
    assert amounts(found, "c5.xlarge") == [(1, 1, 1)]


def test_pods_that_no_pool_takes_are_counted() -> None:
    found = [costs([NODE_POOL, NODE_CLASS, deployment("server", number, 999, 1)]) for number in (2, 7)]
    assert [doubts(one) for one in found] == [
        ["nodes for Deployment app/server: no pool with a type of the catalog takes 2 pods of it"],
        ["nodes for Deployment app/server: no pool with a type of the catalog takes 7 pods of it"],
    ]


@pytest.mark.parametrize(("number", "pools"), [(5_000, []), (5_001, ["default", "nodes"])])
def test_more_nodes_than_count_are_told(number: int, pools: list[str]) -> None:
    static = replace(node_pool("m5.large", replicas=number), name="static")
    found = node_charges(of(group("nodes", "m5.large", 1, number - 1), static, NODE_CLASS), ())
    told = [one.what for one in found if isinstance(one, Uncounted) and one.why == "only 5,000 of them count"]
    assert sorted(told) == [f"nodes of {pool}" for pool in pools]


@pytest.mark.thorough
def test_a_typing_error_in_a_number_costs_no_minutes() -> None:
    pods = costs([NODE_POOL, NODE_CLASS, deployment("server", 1, 3, 4), scaled("server", 1, 2**31 - 1)])
    nodes = costs(
        [group("nodes", "m5.large", 1, 10**9), replace(node_pool("m5.large", replicas=10**9), name="static"), NODE_CLASS]
    )
    assert doubts(pods) == [
        "nodes for Deployment app/server: its number of pods is unknown, or all together are more than 10,000"
    ]
    assert sorted(doubts(nodes)) == [f"nodes of {pool}: only 5,000 of them count" for pool in ("default", "nodes")]
    for found in (pods, nodes):
        assert found.totals[2].at_least
        assert 100 < found.totals[2].usd_per_hour < 2000


# -- nodes -----------------------------------------------------------------------------------------------------------------------


def node_pool(type_: str, **spec: Any) -> Resource:
    requirement = {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": [type_]}
    template = {"spec": {**POOL_SPEC["template"]["spec"], "requirements": [requirement]}}
    return replace(NODE_POOL, inputs={**NODE_POOL.inputs, "spec": {"template": template, **spec}})


def node_class(**spec: Any) -> Resource:
    return replace(NODE_CLASS, inputs={**NODE_CLASS.inputs, "spec": {**NODE_CLASS.inputs["spec"], **spec}})


def test_an_instance_store_is_no_volume() -> None:
    found = costs([node_pool("p4d.24xlarge"), node_class(instanceStorePolicy="RAID0"), deployment("server", 1, 3, 4)])
    assert amounts(found, "gp3_storage") == [(20, 20, 20)]


UNKNOWN_NUMBER = "nodes of nodes: their number is unknown, or their type is not in the catalog"
WINDOWS = "Windows costs more than Linux, whose price is counted"
TEMPLATE = aws("ec2/launchTemplate:LaunchTemplate", "own", {"placement": {"tenancy": "dedicated"}})
DOUBTFUL: Mapping[str, tuple[list[Resource], str]] = {
    "no most": (
        [group("nodes", "m5.large", 0, 0, scalingConfig={"minSize": 1, "desiredSize": 1, "maxSize": "<a.b>"})],
        UNKNOWN_NUMBER,
    ),
    "no size": (
        [group("nodes", "m5.large", 0, 0, scalingConfig={"minSize": 0, "desiredSize": "<a.b>", "maxSize": 3})],
        UNKNOWN_NUMBER,
    ),
    "another type": (
        [group("nodes", "m5.large", 1, 0, instanceTypes=["m9x.large", "m5.large"])],
        "nodes of nodes: m9x.large is not in the catalog; they count as m5.large, their next type",
    ),
    "windows": ([group("nodes", "m5.large", 1, 0, amiType="WINDOWS_CORE_2022_x86_64")], f"nodes of nodes: {WINDOWS}"),
    "windows of Karpenter": (
        [node_pool("m5.large", replicas=1), node_class(amiSelectorTerms=[{"alias": "windows2022@latest"}])],
        f"nodes of default: {WINDOWS}",
    ),
    "tenancy": (
        [
            TEMPLATE,
            replace(
                group("nodes", "m5.large", 1, 0, launchTemplate={"id": "<own.id>"}),
                property_dependencies={"launchTemplate": (TEMPLATE.urn,)},
            ),
        ],
        "nodes of nodes: dedicated hardware has another price; that of shared hardware is counted",
    ),
    "a template elsewhere": (
        [group("nodes", "m5.large", 1, 0, launchTemplate={"id": "lt-1"})],
        "disks of nodes: their size is unknown",
    ),
    "replicas": ([node_pool("m4.large", replicas=3), NODE_CLASS], "nodes of default: their type is not in the catalog"),
}


@pytest.mark.parametrize("case", DOUBTFUL)
def test_nodes_in_doubt_make_a_total_a_lower_bound(case: str) -> None:
    resources, said = DOUBTFUL[case]
    found = costs(resources)
    assert said in doubts(found)
    assert all(total.at_least for total in found.totals)


# -- services --------------------------------------------------------------------------------------------------------------------

WITHOUT_PRICE = {
    "ec2/vpcEndpoint:VpcEndpoint": [
        (
            {"vpcEndpointType": "GatewayLoadBalancer", "subnetIds": ["a"]},
            "endpoints of type GatewayLoadBalancer have no price here",
        ),
        ({"vpcEndpointType": "Interface", "subnetIds": "<net.ids>"}, "the number of its zones is unknown"),
    ],
    "lb/loadBalancer:LoadBalancer": [({"loadBalancerType": "gateway"}, "load balancers of type gateway have no price here")],
    "efs/fileSystem:FileSystem": [({"throughputMode": "provisioned"}, "its provisioned throughput has no price here")],
    "fsx/lustreFileSystem:LustreFileSystem": [
        (inputs, "its size, its throughput or its kind of storage has no price here")
        for inputs in (
            {"storageCapacity": 1200, "perUnitStorageThroughput": 126},
            {"storageCapacity": 1200, "perUnitStorageThroughput": 125, "storageType": "HDD"},
            {"perUnitStorageThroughput": 125},
        )
    ],
}


@pytest.mark.parametrize(("type_", "inputs", "said"), [(type_, *one) for type_, all_ in WITHOUT_PRICE.items() for one in all_])
def test_a_service_without_a_price_makes_a_total_a_lower_bound(type_: str, inputs: Mapping[str, Any], said: str) -> None:
    found = costs([aws(type_, "one", inputs)])
    assert doubts(found) == [f"one: {said}"]
    assert found.totals == costs([aws("rds/instance:Instance", "one", {})]).totals


def test_quotas_of_what_is_ample_count_sizes_balancers_and_the_largest_group() -> None:
    shapes = ({"perUnitStorageThroughput": 125}, {"perUnitStorageThroughput": 250}, {"deploymentType": "SCRATCH_2"})
    disks = [
        aws("fsx/lustreFileSystem:LustreFileSystem", f"d{n}", {"storageCapacity": 1200, **one}) for n, one in enumerate(shapes)
    ]
    balancer = aws("lb/loadBalancer:LoadBalancer", "b", {"loadBalancerType": "network"})
    graph = of(PROVIDER, CLUSTER, *disks, balancer, group("a", "m5.large", 1, 2), group("b", "m5.large", 1, 4))
    assert {need.quota.name: need.amount for need in ample_needs(graph, priced(graph)) if need.quota} == {
        "fsx_lustre_storage": 2400,
        "fsx_lustre_scratch_storage": 1200,
        "network_load_balancers": 1,
        "clusters": 1,
        "nodes_per_node_group": 5,
        "node_groups_per_cluster": 2,
    }


@pytest.mark.parametrize(("groups", "balancers"), [(("a", "a"), 1), (("a", "b"), 2), (("", ""), 2)])
def test_ingresses_of_one_group_share_a_load_balancer(groups: tuple[str, str], balancers: int) -> None:
    made = [
        kubernetes(
            "networking.k8s.io/v1:Ingress",
            f"i{number}",
            {"spec": {"ingressClassName": "alb"}},
            annotations={"alb.ingress.kubernetes.io/group.name": group} if group else {},
        )
        for number, group in enumerate(groups)
    ]
    assert len(amounts(costs(made), "application_load_balancer")) == balancers


def test_a_load_balancer_costs_the_same_at_every_scale() -> None:
    service = kubernetes("core/v1:Service", "service", {"spec": {"type": "LoadBalancer"}})
    found = costs([service, replace(INGRESS, inputs={"spec": {"ingressClassName": "alb"}})])
    for item in ("network_load_balancer", "application_load_balancer"):
        assert amounts(found, item) == [(1, 1, 1)]


def test_what_the_program_only_reads_costs_nothing() -> None:
    service = kubernetes("core/v1:Service", "service", {"spec": {"type": "LoadBalancer"}})
    claim = kubernetes("core/v1:PersistentVolumeClaim", "claim", {"spec": {}})
    read = [replace(one, options={"read": {"id": "a/b"}}) for one in (service, INGRESS, claim)]
    found, without = costs(read), costs([])
    assert (found.lines, found.uncounted) == (without.lines, without.uncounted)


def test_the_source_of_an_own_price_has_no_day() -> None:
    own = {"us-east-1": {"inf2.xlarge": OwnPrice(on_demand=0.5, source="contract")}}
    inf2 = instance_type("inf2.xlarge")
    assert offer(inf2, "us-east-1", PriceBook((own,))).source == "contract"
    assert (offer(inf2, "us-east-1", PriceBook()).source or "").endswith(", 2026-07-06")
    assert offer(inf2, "af-south-1", PriceBook()).source is None


@pytest.mark.parametrize("per_second", [None, 0.0, 1e-320])
def test_no_rate_costs_endlessly_much(per_second: float | None) -> None:
    assert list(rates([Run(tool="test", output_tokens_per_s=per_second)])) == []
    (rate,) = rates([Run(tool="test", users=4, output_tokens_per_s=1000 / 3.6)])
    (row,) = _per_token(costs([]), [rate])
    assert row.cells == ("test, 4 users", "$0.10", "277.8 tokens/s")


def test_what_tokens_cost_says_at_least_in_json_too() -> None:
    graph = of(PROVIDER, CLUSTER, aws("rds/instance:Instance", "database", {}))
    (shown,) = document(graph, priced(graph), [Rate("run", 100)])["perMillionOutputTokens"]
    assert shown["atLeast"]


# -- quotas and differences ------------------------------------------------------------------------------------------------------


def test_needs_without_a_quota_add_up() -> None:
    graph = of(PROVIDER, CLUSTER, *(group(name, "p5.48xlarge", 2, 0, capacityType="CAPACITY_BLOCK") for name in "ab"))
    (need,) = (need for need in needs(graph, priced(graph)) if need.quota is None)
    assert need.cells == ("p5.48xlarge, reserved: no quota known here", "4", "")
    assert {"region": "us-east-1", "amount": 4, "unknown": need.why} in document(graph, priced(graph), [])["quotas"]


UNPRICED = group("more", "p5e.48xlarge", 1, 0)
NEITHER = aws("rds/instance:Instance", "database", {})
ADDED, REMOVED = "+$1.86/h", "−$1.86/h"


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ((1, []), (1, [UNPRICED]), "a change without a price"),
        ((1, [UNPRICED]), (1, []), "a change without a price"),
        ((1, [NEITHER]), (1, [NEITHER, UNPRICED]), "a change without a price"),
        ((1, [NEITHER]), (2, [NEITHER]), ADDED),
        ((2, [NEITHER]), (1, [NEITHER]), REMOVED),
        ((2, []), (1, [NEITHER]), f"{REMOVED}, and a change without a price"),
    ],
)
def test_a_difference_claims_nothing_of_what_has_no_price(before: Any, after: Any, said: str) -> None:
    graphs = (of(*of_gpus(number).resources, *more) for number, more in (before, after))
    assert eks_compared().measures["cost"](*graphs) == said


def test_equal_differences_are_told_once() -> None:
    before, after = (of(PROVIDER, CLUSTER, group("gpus", "g6e.xlarge", number, more)) for number, more in ((1, 0), (2, 2)))
    assert eks_compared().measures["cost"](before, after) == "+$1.86/h idle and deployed, +$5.59/h at most"


def test_a_removed_stack_saves_what_it_cost() -> None:
    assert eks_compared().measures["cost"](of_gpus(2), None) == "−$3.83/h"


def warned(before: Graph, after: Graph) -> list[str]:
    return [danger.what for danger in dangers(compare(before, after), eks_compared()) if danger.kind == "cost"]


def test_a_second_key_is_no_danger() -> None:
    keys = [aws("kms/key:Key", name, {}) for name in "ab"]
    assert warned(of(PROVIDER, keys[0]), of(PROVIDER, *keys)) == []


def test_a_factor_holds_for_what_has_a_price() -> None:
    some, more = (of(*of_gpus(number).resources, NEITHER) for number in (1, 3))
    assert warned(some, more) == ["what has a price costs 2.9 times as much when idle: $1.96/h → $5.69/h"]
