"""The network: its address grid, its choice of zones, and the resources it becomes."""

import json
from collections.abc import Callable
from ipaddress import IPv4Network
from itertools import combinations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from eks_inference.catalog import zones
from eks_inference.catalog.instances import instance_types
from eks_inference.faults import SpecError
from eks_inference.network.component import Vpc
from eks_inference.network.handle import Network
from eks_inference.network.plan import ZonePlan, check_zones, choose_zones, has_room_for_load_balancers, plan_subnets, vpc_range
from eks_inference.network.rules import NetworkFacts, services_outside_the_vpc
from eks_inference.network.spec import FlowLogsSpec, NetworkSpec
from eks_inference.rules import left_open
from eks_inference.specs.settings import StackSettings
from eks_inference.stack.isolated_rules import services_have_endpoints
from graphs import stands_on
from stackgraph.graph.document import Graph
from stackgraph.problems import ProgramError
from stackgraph.recorder.recording import record
from variants import recorded_with
from vectors.stack import spec as stack_facts

# ------------------------------------------------------------------------------------------------- the address grid

vpc_ranges = st.builds(
    lambda prefix, base: str(IPv4Network((base, prefix), strict=False)),
    st.integers(16, 21),
    st.integers(int.from_bytes((10, 0, 0, 0)), int.from_bytes((10, 255, 255, 255))),
)
zone_lists = st.lists(st.sampled_from([f"use1-az{number}" for number in range(1, 8)]), min_size=1, unique=True)


def blocks(plans: tuple[ZonePlan, ...]) -> list[IPv4Network]:
    return [block for plan in plans for block in (plan.private, plan.public) if block is not None]


@given(vpc_ranges, zone_lists, st.booleans())
def test_subnets_neither_overlap_nor_leave_the_range(cidr: str, zone_ids: list[str], public: bool):
    plans = plan_subnets(cidr, zone_ids, public=public)
    assert [plan.zone_id for plan in plans] == zone_ids
    assert len(blocks(plans)) == len(zone_ids) * (2 if public else 1)
    assert all(block.subnet_of(IPv4Network(cidr)) for block in blocks(plans))
    assert not any(one.overlaps(other) for one, other in combinations(blocks(plans), 2))


@given(vpc_ranges, zone_lists)
@example("10.0.0.0/18", ["use1-az1", "use1-az7"])
@example("10.0.0.0/19", ["use1-az1"])
def test_subnets_of_load_balancers_are_beside_all_others(cidr: str, zone_ids: list[str]):
    plans = plan_subnets(cidr, zone_ids, load_balancers=has_room_for_load_balancers(cidr))
    own = [plan.load_balancer for plan in plans if plan.load_balancer]
    assert len(own) == (len(zone_ids) if IPv4Network(cidr).prefixlen <= 18 else 0)
    assert all(block.prefixlen <= 27 and block.subnet_of(IPv4Network(cidr)) for block in own)
    assert not any(one.overlaps(other) for one, other in combinations([*own, *blocks(plans)], 2))
    assert [plan.private for plan in plans] == [plan.private for plan in plan_subnets(cidr, zone_ids)]


@given(vpc_ranges, zone_lists, st.randoms(use_true_random=False), st.booleans())
def test_another_zone_another_order_and_dropping_public_subnets_move_none(cidr: str, zone_ids: list[str], random, public: bool):
    every = {plan.zone_id: plan for plan in plan_subnets(cidr, [f"use1-az{number}" for number in range(1, 8)])}
    shuffled = random.sample(zone_ids, len(zone_ids))
    for plan in plan_subnets(cidr, shuffled, public=public):
        assert plan.private == every[plan.zone_id].private
        assert plan.public == (every[plan.zone_id].public if public else None)


@given(vpc_ranges, zone_lists)
def test_private_subnets_are_large_and_public_ones_large_enough_for_load_balancers(cidr: str, zone_ids: list[str]):
    for plan in plan_subnets(cidr, zone_ids):
        assert plan.private.prefixlen <= 24
        assert plan.public is not None
        assert plan.public.prefixlen <= 27
        assert plan.private.num_addresses == 8 * plan.public.num_addresses


def test_the_default_range_gives_each_zone_8187_pod_addresses():
    (plan,) = plan_subnets("10.1.0.0/16", ["usw2-az4"])
    assert plan == ZonePlan("usw2-az4", IPv4Network("10.1.128.0/19"), IPv4Network("10.1.16.0/22"))


def test_the_smallest_range_still_gives_what_the_source_system_had():
    (plan,) = plan_subnets("10.1.0.0/21", ["usw2-az1"])
    assert (plan.private.prefixlen, plan.public and plan.public.prefixlen) == (24, 27)


@pytest.mark.parametrize(
    ("cidr", "complaint"),
    [
        ("10.0.0.0/22", r"private /25 \(123 addresses\) and a public /28 \(11 addresses\); needed are /24 and /27"),
        ("10.0.0.0/32", r"private /35 \(0 addresses\)"),
        ("10.0.0.0/15", "at most a /16"),
        ("10.0.1.0/16", "has host bits set"),
        ("ten", "not an IPv4 range"),
    ],
)
def test_a_range_that_cannot_hold_the_grid_is_refused_with_the_arithmetic(cidr: str, complaint: str):
    with pytest.raises(ValueError, match=complaint):
        vpc_range(cidr)
    with pytest.raises(SpecError, match=complaint):
        NetworkSpec(cidr=cidr)


@pytest.mark.parametrize(
    ("zone_ids", "complaint"),
    [
        (["use1-az8"], "room for az1 to az7"),
        (["use1-az0"], "room for az1 to az7"),
        (["us-east-1a"], "not a zone id"),
        (["use1-az1", "use1-az1"], "given twice"),
    ],
)
def test_a_zone_without_a_place_in_the_grid_is_refused(zone_ids: list[str], complaint: str):
    with pytest.raises(ValueError, match=complaint):
        plan_subnets("10.0.0.0/16", zone_ids)


# ------------------------------------------------------------------------------------------------- the choice of zones

regions_and_families = st.sampled_from(zones.regions()).flatmap(
    lambda region: st.tuples(
        st.just(region),
        st.lists(
            st.sampled_from(sorted({one.family for one in instance_types().values() if zones.zone_ids(region, one.family)})),
            unique=True,
            max_size=5,
        ),
    )
)


def serve(region: str, families: list[str], zone_ids: tuple[str, ...]) -> bool:
    """Every family can be started in one of the zones."""
    return all(set(zone_ids) & set(zones.zone_ids(region, family)) for family in families)


@given(regions_and_families, st.none() | st.integers(2, 6))
def test_chosen_zones_are_accepted_by_eks_and_offer_every_family(choice: tuple[str, list[str]], count: int | None):
    region, families = choice
    available = zones.region_zone_ids(region)
    try:
        chosen = choose_zones(region, families, count)
    except SpecError:
        wanted = count or min(3, len(available))
        assert wanted > len(available) or not any(serve(region, families, some) for some in combinations(available, wanted))
        return
    assert len(chosen) == (count or min(3, len(available)))
    assert len(set(chosen)) == len(chosen)
    assert set(chosen) <= set(available)
    assert serve(region, families, chosen)
    assert check_zones(region, chosen) == chosen


def test_zones_with_the_scarcest_accelerator_come_first():
    assert choose_zones("us-west-2", ["c5", "m5", "r5", "inf2", "trn1"], 2) == ("usw2-az4", "usw2-az1")
    assert choose_zones("us-east-2", ["m5", "trn2"], 2)[0] == "use2-az3"
    # g4dn is not offered in usw2-az4
    assert choose_zones("us-west-2", ["g4dn", "m6i"]) == ("usw2-az1", "usw2-az2", "usw2-az3")


def test_families_of_different_zones_are_both_served():
    # Trn1 is in aps1-az2 alone, Inf2 in the two others
    assert choose_zones("ap-south-1", ["inf2", "trn1"], 2) == ("aps1-az2", "aps1-az1")


def test_a_region_of_two_zones_gets_two():
    assert choose_zones("us-west-1") == ("usw1-az1", "usw1-az3")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("eu-west-1", ["trn2"]), "trn2 is not offered in eu-west-1.*us-east-2"),
        (("us-west-1", [], 3), "us-west-1 has 2 zones"),
        (("ap-south-1", ["inf2", "trn1", "p5"], 1), "with so few zones, no choice.*trn1: aps1-az2"),
        (("us-gov-west-1", []), "no zones for this region.*set zone_ids yourself"),
    ],
)
def test_what_no_zone_can_serve_is_refused_with_what_can(arguments: tuple, complaint: str):
    with pytest.raises(SpecError, match=complaint):
        choose_zones(*arguments)


def test_all_wrong_zones_are_named_at_once():
    with pytest.raises(SpecError) as raised:
        check_zones("us-east-1", ["use1-az3", "usw2-az1"])
    assert [fault.path for fault in raised.value.faults] == [("zone_ids", 0), ("zone_ids", 1)]


def test_a_zone_newer_than_the_catalog_passes():
    assert check_zones("us-west-2", ["usw2-az1", "usw2-az6"]) == ("usw2-az1", "usw2-az6")
    assert check_zones("us-gov-west-1", ["usgw1-az1", "usgw1-az2"]) == ("usgw1-az1", "usgw1-az2")


def test_a_single_zone_is_refused():
    with pytest.raises(SpecError, match="at least 2 zones"):
        check_zones("us-west-2", ["usw2-az4"])


# ------------------------------------------------------------------------------------------------- the spec


@pytest.mark.parametrize(
    ("keys", "complaint"),
    [
        ({"zone_ids": ["usw2-az1", "usw2-az2"], "zones": 2}, "not both"),
        ({"zone_ids": ["us-west-2a", "us-west-2b"]}, "is not the id of an availability zone"),
        ({"zone_ids": ["usw2-az1", "usw2-az1"]}, "more than once: usw2-az1"),
        ({"public_subnets": False}, "set public_subnets, or nat to 'none'"),
        ({"endpoints": ["ecr"]}, "needs 's3'"),
        ({"nat": "none"}, "add the endpoints ec2, ecr, eks-auth"),
        ({"load_balancer_subnets": True, "cidr": "10.0.0.0/19"}, "10.0.0.0/19 has no room for them: they need a range of /18"),
        ({"nats": 1}, "unknown key"),
    ],
)
def test_a_contradiction_is_refused_with_the_way_out(keys: dict, complaint: str):
    with pytest.raises(SpecError, match=complaint):
        NetworkSpec.model_validate(keys)


def test_the_smallest_network_with_subnets_of_load_balancers_is_taken():
    assert NetworkSpec(load_balancer_subnets=True, cidr="10.0.0.0/18")


def test_services_are_outside_of_a_vpc_that_is_there_where_its_range_is_said():
    existing = {"existing": existing_with("subnet-1a1b2c3d", "subnet-2a1b2c3d"), "zone_ids": ["usw2-az1", "usw2-az2"]}
    for said, fix in (({}, "give network.cidr"), ({"cidr": "172.20.0.0/16"}, "")):
        (one,) = services_outside_the_vpc.judge(
            NetworkFacts(NetworkSpec.model_validate(existing | said), "172.20.0.0/16", (), {})
        )
        assert (one.unjudged is not None, one.holds, one.fix) == (bool(fix), bool(fix), fix)


# ------------------------------------------------------------------------------------------------- the resources

SETTINGS = StackSettings(region="us-west-2", tags={"team": "serving"})
CLOSED = NetworkSpec(nat="none", public_subnets=False, endpoints=("ec2", "ecr", "eks-auth", "s3", "logs"))


def network(
    spec: NetworkSpec, *, settings: StackSettings = SETTINGS, observe: Callable[[Network], None] = lambda _: None
) -> Graph:
    def program() -> None:
        observe(Vpc("net", spec, settings=settings, cluster_name="demo", families=("inf2", "m5")))

    return record(program, project="p", stack="s", config={"aws:region": settings.region})


def ready_of(spec: NetworkSpec) -> set[str]:
    names: set[str] = set()
    network(spec, observe=lambda vpc: names.update(resource._name for resource in vpc.ready))
    return names


def test_a_gateway_per_zone_keeps_traffic_in_its_zone_and_the_first_one_in_place():
    single, per_zone = network(NetworkSpec(zones=3)), network(NetworkSpec(zones=3, nat="per_zone"))
    for zone_id in ("usw2-az4", "usw2-az1", "usw2-az2"):
        assert per_zone.named(f"net-private-{zone_id}-internet").inputs["natGatewayId"] == f"<net-nat-{zone_id}.id>"
    before, after = ({resource.urn for resource in graph.resources} for graph in (single, per_zone))
    assert before < after, "going from one gateway to one per zone only adds resources"


def test_without_nat_the_endpoints_are_what_nodes_wait_for():
    assert ready_of(CLOSED) >= {"net-endpoint-s3", "net-endpoint-ec2", "net-endpoint-ecr-api", "net-endpoint-eks-auth"}


def test_a_closed_network_has_no_way_to_the_internet():
    graph = network(CLOSED)
    types = {resource.type for resource in graph.resources}
    assert not types & {
        "aws:ec2/internetGateway:InternetGateway",
        "aws:ec2/natGateway:NatGateway",
        "aws:ec2/eip:Eip",
        "aws:ec2/route:Route",
    }


def test_public_subnets_without_nat_still_reach_the_internet():
    spec = NetworkSpec(nat="none", zones=2, endpoints=("ec2", "ecr", "eks-auth", "s3"))
    assert not network(spec).of_type("aws:ec2/natGateway:NatGateway")
    assert {"net-public-internet", "net-public-usw2-az4-association"} <= ready_of(spec)


def test_ecr_stands_for_its_two_interface_endpoints_open_to_the_vpc_only():
    graph = network(NetworkSpec(zones=2, endpoints=("s3", "ecr")))
    for name in ("ecr.api", "ecr.dkr"):
        endpoint = graph.named(f"net-endpoint-{name.replace('.', '-')}")
        assert endpoint.inputs["serviceName"] == f"com.amazonaws.us-west-2.{name}"
        assert endpoint.inputs["privateDnsEnabled"] is True
        assert endpoint.inputs["subnetIds"] == ["<net-private-usw2-az4.id>", "<net-private-usw2-az1.id>"]
        assert endpoint.inputs["securityGroupIds"] == ["<net-endpoints-security-group.id>"]
    (rule,) = graph.named("net-endpoints-security-group").inputs["ingress"]
    assert (rule["fromPort"], rule["toPort"], rule["protocol"], rule["cidrBlocks"]) == (443, 443, "tcp", ["10.1.0.0/16"])


def test_the_vpc_resolves_names_and_only_it_is_protected():
    graph = network(NetworkSpec(), settings=SETTINGS.model_copy(update={"protect": True}))
    vpc = graph.named("net-vpc").inputs
    assert vpc["enableDnsSupport"] is True
    assert vpc["enableDnsHostnames"] is True
    assert [resource.name for resource in graph.resources if resource.options.get("protect")] == ["net-vpc"]
    assert not any(resource.options.get("protect") for resource in network(NetworkSpec()).resources)


def test_a_wrong_zone_stops_the_program_before_anything_is_registered():
    registered: list[Network] = []
    with pytest.raises(Exception, match="usw1-az1") as raised:
        network(NetworkSpec(zone_ids=("usw2-az1", "usw1-az1")), observe=registered.append)
    assert "the zone is not in us-west-2" in str(raised.value)
    assert registered == []


def test_flow_logs_are_written_only_to_their_group_and_only_if_asked_for() -> None:
    assert not network(NetworkSpec()).of_type("aws:ec2/flowLog:FlowLog")
    graph = network(NetworkSpec(flow_logs=FlowLogsSpec(traffic="ALL", retention_days=365)))
    (log,) = graph.of_type("aws:ec2/flowLog:FlowLog")
    (group,) = graph.of_type("aws:cloudwatch/logGroup:LogGroup")
    (policy,) = graph.of_type("aws:iam/rolePolicy:RolePolicy")
    assert (log.inputs["trafficType"], log.inputs["vpcId"]) == ("ALL", "<net-vpc.id>")
    assert log.inputs["logDestination"] == f"<{group.name}.arn>"
    assert group.inputs["retentionInDays"] == 365
    (statement,) = json.loads(policy.inputs["policy"])["Statement"]
    assert statement["Resource"] == f"<{group.name}.arn>:*"
    assert stands_on(graph, log, policy)


def test_a_stack_file_may_name_a_vpc_that_is_there():
    subnets = {"usw2-az1": "subnet-0a1b2c3d4e5f60718", "usw2-az2": "subnet-0f1e2d3c4b5a69788"}
    existing = {"id": "vpc-0a1b2c3d4e5f60718", "private_subnets": subnets}
    given = {"existing": existing, **dict.fromkeys(("zone_ids", "zones", "endpoints"))}
    graph = recorded_with({"network": given}, "smoke-gpu")
    assert {one.type for one in graph.resources if one.type.startswith("aws:ec2/")} == {"aws:ec2/launchTemplate:LaunchTemplate"}
    (cluster,) = graph.of_type("eks:index:Cluster")
    assert (cluster.inputs["vpcId"], cluster.inputs["privateSubnetIds"]) == (existing["id"], [*subnets.values()])
    assert {tuple(one.inputs["subnetIds"]) for one in graph.of_type("aws:eks/nodeGroup:NodeGroup")} == {tuple(subnets.values())}
    assert not cluster.inputs.get("publicSubnetIds")


def test_the_endpoints_of_a_vpc_that_is_there_are_for_its_owner_to_see_to():
    network = {"nat": "none", "existing": existing_with("subnet-0a1b2c3d", "subnet-0f1e2d3c")}
    (found,) = left_open(services_have_endpoints.judge(stack_facts(network=network)))
    assert found.why == "the VPC is there, and a stack file does not know its endpoints"
    assert (found.path, found.fix) == (("network", "existing"), "see that it has those of docs/isolated-network.md")
    assert not list(services_have_endpoints.judge(stack_facts(network={**network, "nat": "single"})))


@pytest.mark.parametrize(
    "given",
    [
        {"zone_ids": ["usw2-az3", "usw2-az4"]},
        {"zones": 2},
        {"public_subnets": True},
        {"endpoints": ["s3", "ecr"]},
        {"load_balancer_subnets": True},
        {"flow_logs": {}},
    ],
    ids=lambda given: next(iter(given)),
)
def test_an_existing_vpc_has_nothing_of_a_new_one(given: dict[str, object]):
    subnets = {"usw2-az1": "subnet-0a1b2c3d4e5f60718", "usw2-az2": "subnet-0f1e2d3c4b5a69788"}
    existing = {"existing": {"id": "vpc-0a1b2c3d4e5f60718", "private_subnets": subnets}}
    follows = {"zone_ids": [*subnets], "public_subnets": False}
    assert NetworkSpec.model_validate(existing | follows).existing
    (key,) = given
    with pytest.raises(SpecError, match=f"{key}.*: of a new VPC only"):
        NetworkSpec.model_validate(existing | follows | given)


def existing_with(*subnets: object) -> dict[str, object]:
    private = {"usw2-az1": "subnet-0a1b2c3d4e5f60718", "usw2-az2": "subnet-0f1e2d3c4b5a69788"}
    public = dict(zip(("usw2-az1", "usw2-az2"), subnets, strict=True))
    return {"id": "vpc-0a1b2c3d4e5f60718", "private_subnets": private, "public_subnets": public}


def test_a_gateway_is_in_the_subnets_of_a_vpc_that_is_there():
    ranges = ("10.0.0.0/22", "10.0.4.0/22")
    first, second = ({"id": f"subnet-0a1b2c3d4e5f6072{number}", "cidr": cidr} for number, cidr in enumerate(ranges))
    certificate = "arn:aws:acm:us-west-2:123456789012:certificate/12345678-1234-1234-1234-123456789012"
    gateway = {"host": "llm.example.com", "public": True, "certificate_arn": certificate}
    keys = {"eks-inference:endpointKeys": '{"team-a": "hush-key-of-team-a"}'}
    network = {"existing": existing_with(first, second), **dict.fromkeys(("zone_ids", "zones", "endpoints"))}
    graph = recorded_with({"network": network, "gateway": gateway}, "smoke-gpu", keys)
    (ingress,) = graph.of_type("kubernetes:networking.k8s.io/v1:Ingress")
    placed = ingress.inputs["metadata"]["annotations"]["alb.ingress.kubernetes.io/subnets"]
    assert placed == f"{first['id']},{second['id']}"
    policies = json.dumps([resource.inputs for resource in graph.of_type("kubernetes:networking.k8s.io/v1:NetworkPolicy")])
    assert all(cidr in policies for cidr in ranges)


@pytest.mark.parametrize(
    ("subnets", "why"),
    [
        (("subnet-0a1b2c3d4e5f60718", "subnet-0a1b2c3d4e5f60720"), "given more than once: subnet-0a1b2c3d4e5f60718"),
        (("subnet-0a1b2c3d4e5f60720", {"id": "subnet-0a1b2c3d4e5f60720", "cidr": "10.0.0.0/22"}), "given more than once"),
        (("subnet-0a1b2c3d4e5f60720", {"id": "subnet-0a1b2c3d4e5f60721", "cidr": "10.0.0.1/22"}), "has host bits set"),
        (("subnet-0a1b2c3d4e5f60720", {"id": "subnet-0a1b2c3d4e5f60721"}), "cidr: this key is required"),
    ],
)
def test_an_existing_subnet_is_named_once_and_has_one_range(subnets: tuple[object, ...], why: str):
    with pytest.raises(SpecError, match=why):
        NetworkSpec.model_validate({"existing": existing_with(*subnets), "zone_ids": ["usw2-az1", "usw2-az2"]})


def test_a_vpc_that_is_there_is_not_made_again():
    spec = NetworkSpec.model_validate(
        {"existing": existing_with("subnet-1a1b2c3d", "subnet-2a1b2c3d"), "zone_ids": ["usw2-az1", "usw2-az2"]}
    )
    with pytest.raises(ProgramError, match="existing: this component makes a new VPC"):
        network(spec)
