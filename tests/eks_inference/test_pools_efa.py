"""Pools with Elastic Fabric Adapter, placement groups, reservations and logical cores."""

import email
import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eks_inference.catalog.instances import InstanceType, instance_type, instance_types
from eks_inference.faults import SpecError
from eks_inference.network.handle import ExistingVpc, Subnet
from eks_inference.place.placement import Placement
from eks_inference.pools import plan
from eks_inference.pools.existing import ExistingPool
from eks_inference.pools.managed import ManagedPool
from eks_inference.pools.node_plan import Interface, efa_count, interfaces
from eks_inference.pools.node_spec import EfaLayout, EfaSpec, ExistingPlacementGroup
from eks_inference.pools.spec import KarpenterPoolSpec, ManagedPoolSpec
from golden import assert_golden
from handles import existing_cluster, existing_vpc
from stackgraph.graph.document import Graph, Resource
from stackgraph.recorder.recording import record

LAYOUTS: tuple[EfaLayout, ...] = get_args(EfaLayout)
EFA_TYPES = [one for one in instance_types().values() if one.efa_interfaces]
PLAIN_TYPES = [one for one in instance_types().values() if not one.efa_interfaces]
RESERVATION = "cr-0123456789abcdef0"
RESERVATION_GROUP = "arn:aws:resource-groups:us-west-2:123456789012:group/trn"


def managed(*types: str, **given: Any) -> ManagedPoolSpec:
    return ManagedPoolSpec.model_validate({"instance_types": types or ("trn1.32xlarge",), "size": 2, **given})


def efa(*types: str, **given: Any) -> ManagedPoolSpec:
    return managed(*types, **{"efa": {}, **given})


def refusal_of(**given: Any) -> str:
    with pytest.raises(SpecError) as caught:
        managed(**given)
    assert len(caught.value.faults) == 1
    return str(caught.value)


# -- interface layouts -----------------------------------------------------------------------------------------------------------


@st.composite
def requests(draw: st.DrawFn) -> tuple[InstanceType, EfaSpec]:
    """An EFA instance type, a layout, and a number of interfaces that the type offers."""
    instance = draw(st.sampled_from(EFA_TYPES))
    wanted = draw(st.none() | st.integers(1, instance.efa_interfaces))
    return instance, EfaSpec(layout=draw(st.sampled_from(LAYOUTS)), interfaces=wanted)


@given(requests())
def test_every_layout_keeps_the_rules_of_ec2(request_: tuple[InstanceType, EfaSpec]):
    instance, spec = request_
    layout = interfaces(instance, spec)
    slots = [(interface.network_card, interface.device) for interface in layout]
    assert slots[0] == (0, 0), "the primary interface comes first"
    assert layout[0].kind != "efa-only", "the primary interface has an address"
    assert len(set(slots)) == len(slots), "one interface a slot"
    assert {interface.network_card for interface in layout} <= set(range(instance.network_cards))
    assert {interface.device for interface in layout} <= {0, 1}, "every EFA instance type has two slots a card"


def efa_cards(instance: InstanceType, interfaces: int) -> range:
    """The network cards that carry EFAs: one each, from the first that takes one."""
    return range(instance.first_efa_card, instance.first_efa_card + interfaces)


@given(requests())
def test_every_layout_has_the_efa_interfaces_asked_for_and_one_a_card(request_: tuple[InstanceType, EfaSpec]):
    instance, spec = request_
    cards = [interface.network_card for interface in interfaces(instance, spec) if interface.kind != "interface"]
    wanted = spec.interfaces or instance.efa_interfaces
    assert cards == list(efa_cards(instance, wanted))
    assert efa_count(instance, spec) == wanted


def with_address(layout: tuple[Interface, ...]) -> list[int]:
    """Cards of the interfaces that take an address of the VPC."""
    return [interface.network_card for interface in layout if interface.kind != "efa-only"]


@pytest.mark.parametrize("instance", EFA_TYPES, ids=lambda one: one.name)
def test_layouts_differ_in_the_addresses_they_take(instance: InstanceType):
    taken = {layout: with_address(interfaces(instance, EfaSpec(layout=layout))) for layout in LAYOUTS}
    assert taken["hybrid"] == taken["ip_optimized"] == [0]
    assert taken["all_efa"] == sorted({0, *efa_cards(instance, instance.efa_interfaces)})
    assert set(taken["hybrid"]) <= set(taken["bandwidth"]) <= set(taken["all_efa"])


@pytest.mark.parametrize("name", ["trn1.32xlarge", "trn2.48xlarge", "p5.48xlarge", "g6e.24xlarge", "g6.8xlarge"])
def test_layouts(name: str):
    """Each layout of the type, for review: card, device, kind."""
    lines = []
    for layout in LAYOUTS:
        lines.append(f"{layout}:")
        lines += [
            f"  {one.network_card:2} {one.device} {one.kind}" for one in interfaces(instance_type(name), EfaSpec(layout=layout))
        ]
    assert_golden(f"pools/efa-{name}.txt", "\n".join(lines))


@pytest.mark.parametrize("instance", PLAIN_TYPES, ids=lambda one: one.name)
def test_a_type_without_efa_has_no_layout(instance: InstanceType):
    with pytest.raises(SpecError, match=rf"efa: {instance.name} has no EFA"):
        interfaces(instance, EfaSpec())


def test_more_interfaces_than_offered_are_refused_with_the_number():
    with pytest.raises(SpecError, match=r"efa.interfaces: trn1.32xlarge has fewer .* given: 9; allowed: 1 to 8"):
        interfaces(instance_type("trn1.32xlarge"), EfaSpec(interfaces=9))


# -- what a user may write -------------------------------------------------------------------------------------------------------


def test_efa_is_off_unless_asked_for_and_hybrid_unless_chosen():
    assert managed().efa is None
    assert efa().efa == EfaSpec(layout="hybrid", interfaces=None)


def test_a_placement_group_is_chosen_by_a_word_or_by_its_name():
    assert managed().placement == "auto"
    assert managed(placement="none").placement == "none"
    assert managed(placement={"name": "ours"}).placement == ExistingPlacementGroup(name="ours")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("cluster", "allowed: auto, none"),
        (3, "allowed: auto, none"),
        ({}, "this key is required and missing"),
        ({"nam": "x", "name": "y"}, "unknown key"),
    ],
)
def test_any_other_placement_is_one_fault(given: object, says: str):
    assert says in refusal_of(placement=given)


def test_only_a_choice_shows_among_the_inputs_of_the_component():
    assert "placement" not in managed().model_dump(mode="json")
    assert managed(placement="none").model_dump(mode="json")["placement"] == "none"
    assert managed(placement={"name": "ours"}).model_dump(mode="json")["placement"] == {"name": "ours"}


def test_types_of_one_efa_pool_have_the_same_interfaces():
    assert "trn1.32xlarge: 8 on 8 cards, trn1n.32xlarge: 16 on 16 cards" in refusal_of(
        instance_types=["trn1.32xlarge", "trn1n.32xlarge"], efa={}
    )
    assert efa("g6.8xlarge", "g6.12xlarge").efa
    assert managed("trn1.32xlarge", "trn1n.32xlarge").efa is None


def test_a_reservation_is_named_once_and_not_for_spot():
    group = {"capacity_reservation_group_arn": RESERVATION_GROUP}
    assert "either" in refusal_of(capacity_reservation_id=RESERVATION, **group)
    assert "cannot use a capacity_reservation_group_arn" in refusal_of(capacity_type="spot", **group)
    assert "cannot use a capacity_reservation_id" in refusal_of(capacity_type="spot", capacity_reservation_id=RESERVATION)
    assert "capacity_reservation_group_arn" in refusal_of(capacity_reservation_group_arn="arn:aws:ec2:us-west-2:1:x")
    assert managed(**group).reserved
    assert managed(capacity_reservation_id=RESERVATION).reserved
    assert not managed().reserved


@pytest.mark.parametrize("name", ["inf2.48xlarge", "trn1.32xlarge", "g6.8xlarge", "m5.large"])
def test_only_chips_with_the_setting_take_logical_cores(name: str):
    assert f"{name} has no setting for logical cores" in refusal_of(instance_types=[name], logical_cores=1)
    assert managed("trn2.48xlarge", logical_cores=1).logical_cores == 1


def test_what_the_rules_judge_is_not_refused_by_the_spec():
    assert efa("inf2.48xlarge").efa
    assert efa(zone_ids=["usw2-az1", "usw2-az2"]).zone_ids
    assert efa(placement={"name": "ours"}, capacity_reservation_id=RESERVATION).reserved


# -- zones -----------------------------------------------------------------------------------------------------------------------

ZONES = ("usw2-az1", "usw2-az2", "usw2-az3", "usw2-az4")


def test_an_efa_pool_has_the_first_zone_that_offers_its_family():
    assert plan.pool_zones(efa("p5en.48xlarge"), ZONES, "us-west-2") == ("usw2-az2",)
    assert plan.pool_zones(efa("trn1.32xlarge"), ("usw2-az2", "usw2-az4"), "us-west-2") == ("usw2-az4",)


def test_a_zone_given_overrules_the_catalog():
    assert plan.pool_zones(efa("p5en.48xlarge", zone_ids=["usw2-az1"]), ZONES, "us-west-2") == ("usw2-az1",)


@given(
    st.sampled_from(EFA_TYPES),
    st.lists(st.sampled_from(ZONES), unique=True, max_size=3),
    st.sampled_from(["us-west-2", "us-east-2", "xx-none-1"]),
)
def test_an_efa_pool_always_has_one_zone_of_those_allowed(instance: InstanceType, wanted: list[str], region: str):
    (zone,) = plan.pool_zones(efa(instance.name, zone_ids=wanted), ZONES, region)
    assert zone in (wanted or ZONES)


# -- resources -------------------------------------------------------------------------------------------------------------------


def graph_of(spec: ManagedPoolSpec, *, network: ExistingVpc | None = None, **settings: Any) -> Graph:
    def build() -> None:
        ManagedPool("di", spec, cluster=existing_cluster("llama", **settings), network=network or existing_vpc())

    return record(build, project="p", stack="s", config={"aws:region": "us-west-2"})


def the(graph: Graph, kind: str) -> Resource:
    (found,) = graph.of_type(kind)
    return found


def template_of(graph: Graph) -> dict[str, Any]:
    return dict(the(graph, "aws:ec2/launchTemplate:LaunchTemplate").inputs)


def subnets_of(graph: Graph) -> list[str]:
    return the(graph, "aws:eks/nodeGroup:NodeGroup").inputs["subnetIds"]


def test_an_efa_pool():
    """Everything that is not as in a plain pool, for review."""
    graph = graph_of(efa(), tags={"team": "ml"})
    kinds = {
        "aws:ec2/launchTemplate:LaunchTemplate",
        "aws:ec2/securityGroup:SecurityGroup",
        "aws:ec2/placementGroup:PlacementGroup",
    }
    shown: dict[str, Any] = {kind: dict(the(graph, kind).inputs) for kind in kinds}
    shown["subnetIds"] = subnets_of(graph)
    del shown["aws:ec2/launchTemplate:LaunchTemplate"]["userData"]
    assert_golden("pools/managed-efa-trn1.json", json.dumps(shown, indent=2, sort_keys=True))


def test_a_plain_pool_has_none_of_it():
    graph = graph_of(managed())
    assert not graph.of_type("aws:ec2/securityGroup:SecurityGroup")
    assert not graph.of_type("aws:ec2/placementGroup:PlacementGroup")
    assert (
        not {"networkInterfaces", "placement", "vpcSecurityGroupIds", "capacityReservationSpecification"}
        & template_of(graph).keys()
    )
    assert subnets_of(graph) == ["subnet-private-usw2-az1"], "one of the first two zones offers the type"


def test_the_template_has_the_layout_that_was_planned():
    spec = efa("p5.48xlarge", efa={"layout": "bandwidth", "interfaces": 6})
    made = template_of(graph_of(spec))["networkInterfaces"]
    assert [Interface(one["networkCardIndex"], one["deviceIndex"], one["interfaceType"]) for one in made] == list(
        interfaces(spec.instances()[0], EfaSpec(layout="bandwidth", interfaces=6))
    )


BLOCK = {"capacity_type": "capacity_block", "capacity_reservation_id": RESERVATION, "zone_ids": ["usw2-az1"]}


@pytest.mark.parametrize(
    "given",
    [
        {"placement": "none"},
        {"capacity_reservation_id": RESERVATION},
        {"capacity_reservation_group_arn": RESERVATION_GROUP},
        BLOCK,
        {"efa": None},
    ],
    ids=["none", "reservation", "group of reservations", "capacity block", "no EFA"],
)
def test_no_placement_group_is_made(given: dict[str, Any]):
    graph = graph_of(efa(**given))
    assert not graph.of_type("aws:ec2/placementGroup:PlacementGroup")
    assert "placement" not in template_of(graph)


@pytest.mark.parametrize("given", [{}, {"capacity_reservation_id": RESERVATION}, {"efa": None}])
def test_an_existing_placement_group_is_used(given: dict[str, Any]):
    graph = graph_of(efa(**{"placement": {"name": "ours"}, **given}))
    assert not graph.of_type("aws:ec2/placementGroup:PlacementGroup")
    assert template_of(graph)["placement"] == {"groupName": "ours"}


def test_nodes_come_out_of_a_group_of_reservations():
    template = template_of(graph_of(managed(capacity_reservation_group_arn=RESERVATION_GROUP)))
    assert template["capacityReservationSpecification"] == {
        "capacityReservationTarget": {"capacityReservationResourceGroupArn": RESERVATION_GROUP}
    }


def test_an_efa_pool_has_one_subnet():
    twice = ExistingVpc("vpc-1", [Subnet("usw2-az1", "subnet-a"), Subnet("usw2-az1", "subnet-b"), Subnet("usw2-az4", "subnet-c")])
    assert subnets_of(graph_of(efa(), network=twice)) == ["subnet-a"]
    assert subnets_of(graph_of(efa(zone_ids=["usw2-az4"]), network=twice)) == ["subnet-c"]
    assert subnets_of(graph_of(managed(), network=twice)) == ["subnet-a", "subnet-b", "subnet-c"]


def test_a_pool_that_cannot_have_efa_is_not_built():
    with pytest.raises(Exception, match=r"efa: inf2.48xlarge has no EFA"):
        graph_of(efa("inf2.48xlarge"))


# -- logical cores ---------------------------------------------------------------------------------------------------------------


def parts(user_data: str | None) -> dict[str, str]:
    """Parts of the MIME document by media type."""
    read = email.message_from_string(user_data or "").walk()
    return {part.get_content_type(): str(part.get_payload()) for part in read if not part.is_multipart()}


def test_user_data_with_logical_cores():
    text = plan.user_data(managed("trn2.48xlarge", logical_cores=1), pool="di")
    assert_golden("pools/user-data-trn2-logical-cores.txt", text or "")
    assert list(parts(text)) == ["text/x-shellscript", "application/node.eks.aws"]


@pytest.mark.parametrize("logical_cores", [1, 2])
def test_the_script_writes_the_file_the_runtime_reads(tmp_path: Path, logical_cores: int):
    text = plan.user_data(managed("trn2.48xlarge", logical_cores=logical_cores), pool="di")
    script = parts(text)["text/x-shellscript"].replace("/opt/aws", str(tmp_path))
    for _ in range(2):
        subprocess.run(["bash", "-c", script], check=True)
    assert (tmp_path / "neuron/logical_nc_config").read_text() == f"NEURON_LOGICAL_NC_CONFIG={logical_cores}"


@given(st.sampled_from(list(instance_types())), st.booleans())
def test_no_script_runs_unless_asked_for(name: str, own_image: bool):
    facts = plan.ClusterFacts("llama", "https://cluster.example", "Q0E=", "172.20.0.0/16") if own_image else None
    assert "text/x-shellscript" not in parts(plan.user_data(managed(name), pool="di", cluster=facts) or "Content-Type: x/y\n\n")


# -- placements ------------------------------------------------------------------------------------------------------------------


def placement_of(spec: ManagedPoolSpec | KarpenterPoolSpec, wanted: str | None = None, version: str = "1.35") -> Placement:
    return plan.placement_of("di", spec, wanted, version)


def test_a_placement_says_how_many_efa_interfaces_a_node_has():
    assert placement_of(efa("trn2.48xlarge")).efa_interfaces == 16
    assert placement_of(efa("trn2.48xlarge", efa={"interfaces": 4, "layout": "bandwidth"})).efa_interfaces == 4
    assert placement_of(managed("trn2.48xlarge")).efa_interfaces == 0


@pytest.mark.parametrize("spec", [efa("inf2.48xlarge"), efa(efa={"interfaces": 9})], ids=["no EFA", "too many"])
def test_a_placement_has_no_efa_where_there_can_be_none(spec: ManagedPoolSpec):
    assert placement_of(spec).efa_interfaces == 0


def test_a_placement_knows_the_driver_of_the_image():
    assert placement_of(managed()).driver == "2.29.0"
    older = {"kind": "release", "release_version": "1.35.1-20260304"}
    assert placement_of(managed(ami=older)).driver == "2.26.5"
    assert placement_of(KarpenterPoolSpec(kind="karpenter", instance_types=("inf2.8xlarge",))).driver == "2.29.0"


@pytest.mark.parametrize(
    ("spec", "version"),
    [
        (managed("m5.large"), "1.35"),
        (managed(ami={"kind": "image_id", "id": "ami-0123456789abcdef0"}), "1.35"),
        (managed(ami={"kind": "release", "release_version": "1.35.1-20200101"}), "1.35"),
        (managed(), "1.20"),
    ],
    ids=["CPU", "own image", "unknown release", "unknown Kubernetes"],
)
def test_a_driver_nobody_knows_is_none(spec: ManagedPoolSpec, version: str):
    assert placement_of(spec, version=version).driver is None


def test_a_placement_says_how_nodes_are_bought():
    def bought(spec: ManagedPoolSpec | KarpenterPoolSpec) -> tuple[bool, bool]:
        found = placement_of(spec)
        return found.spot, found.reserved

    assert bought(managed()) == (False, False)
    assert bought(managed(capacity_type="spot")) == (True, False)
    assert bought(managed(**BLOCK)) == bought(managed(capacity_reservation_group_arn=RESERVATION_GROUP)) == (False, True)
    karpenter = KarpenterPoolSpec(kind="karpenter", instance_types=("inf2.8xlarge",), capacity_types=("spot", "on_demand"))
    assert bought(karpenter) == (True, False)
    assert bought(karpenter.model_copy(update={"capacity_types": ("on_demand",)})) == (False, False)


def test_a_placement_counts_the_cores_that_the_nodes_have():
    chip = instance_type("trn2.48xlarge")
    by_default, joined, parted = (placement_of(managed("trn2.48xlarge", logical_cores=cores)) for cores in (None, 2, 1))
    assert by_default.instance_type == joined.instance_type == chip
    assert (by_default.logical_cores, joined.logical_cores, parted.logical_cores) == (None, 2, 1)
    assert parted.instance_type == replace(chip, cores_per_device=2 * chip.cores_per_device)
    assert parted.instance_type.memory_per_core_gib == chip.memory_per_core_gib / 2


def test_a_placement_is_the_same_before_and_after_the_pool_is_built():
    """What rules judge is what workloads get."""
    specs = [
        efa(),
        efa("trn2.48xlarge", logical_cores=1, **BLOCK),
        managed("m5.large", "m5.xlarge", autoscaled={"min": 0, "max": 5}),
        managed("g6.8xlarge", capacity_type="spot", taints=[]),
    ]
    built: list[Placement] = []

    def build() -> None:
        cluster, network = existing_cluster("llama"), existing_vpc()
        for index, spec in enumerate(specs):
            pool = ManagedPool(f"pool-{index}", spec, cluster=cluster, network=network, pool="di")
            found = pool.placement(spec.instance_types[0])
            assert found.ready == (pool.node_group,)
            built.append(replace(found, ready=()))

    record(build)
    zones = [plan.pool_zones(spec, ZONES[:3], "us-west-2") for spec in specs]
    planned = [
        plan.placement_of("di", spec, spec.instance_types[0], "1.35", where) for spec, where in zip(specs, zones, strict=True)
    ]
    assert built == planned
    assert planned[0].zone_ids == ("usw2-az1",)
    assert plan.placement_of("di", efa(zone_ids=["usw2-az4"]), None, "1.35").zone_ids == ("usw2-az4",)


def test_an_existing_pool_says_itself_what_its_nodes_have():
    pool = ExistingPool("trn", {"role": "di"}, ["trn2.48xlarge"], efa_interfaces=16, driver="2.26.5")
    assert (pool.placement().efa_interfaces, pool.placement().driver) == (16, "2.26.5")
    assert ExistingPool("trn", {"role": "di"}, ["trn2.48xlarge"]).placement().efa_interfaces == 0
