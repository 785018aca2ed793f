"""File systems that nodes share: what sizes there are, where they are, and the resources they become."""

from typing import Any

import pulumi
import pulumi_kubernetes as k8s
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from catalog_rows import VERSIONS
from eks_inference.catalog import versions
from eks_inference.cluster.existing import ExistingCluster
from eks_inference.faults import SpecError
from eks_inference.network.handle import ExistingVpc, Subnet
from eks_inference.rules import findings
from eks_inference.storage import plan, rules
from eks_inference.storage.component import FileSystemDriver, SharedStore, shared_store, store_claim
from eks_inference.storage.handle import ExistingStore
from eks_inference.storage.rules import StoreFacts, model_contents, store_facts
from eks_inference.storage.spec import (
    SMALLEST_GIB,
    STEP_GIB,
    EfsStoreSpec,
    ExistingStoreSpec,
    FileSystem,
    LustreStoreSpec,
    NewStoreSpec,
    StoreSpec,
    lustre_size_gib,
)
from golden import assert_golden
from graphs import stands_on
from handles import existing_cluster, existing_vpc
from stackgraph.graph.document import Graph, Resource
from stackgraph.graph.values import plain
from stackgraph.problems import ProgramError
from stackgraph.recorder.recording import record
from stackgraph.views.manifests import manifest
from vectors.storage import LLAMA_70B_GIB, LLAMA_405B_GIB, lustre

KEY = "arn:aws:kms:us-west-2:111122223333:key/12345678-1234-1234-1234-123456789012"
ADDONS: dict[FileSystem, str] = {"efs": "aws-efs-csi-driver", "fsx_lustre": "aws-fsx-csi-driver"}


def parsed(**given_spec: Any) -> StoreSpec:
    return TypeAdapter(StoreSpec).validate_python(given_spec)


# -- sizes ----------------------------------------------------------------------------------------------------------------------


@given(st.floats(0, 1_000_000, allow_nan=False))
def test_a_chosen_size_is_one_there_is_has_the_room_and_is_the_smallest(needed: float) -> None:
    size = lustre_size_gib(needed)
    assert lustre_size_gib(size) == size
    assert size >= needed
    smaller = [gib for gib in (SMALLEST_GIB, size - STEP_GIB) if gib < size and lustre_size_gib(gib) == gib]
    assert not [gib for gib in smaller if gib >= needed]


@given(st.integers(-5000, 200_000))
def test_the_sizes_of_lustre(gib: int) -> None:
    assert (lustre_size_gib(gib) == gib) == (gib in (SMALLEST_GIB, *range(STEP_GIB, 200_001, STEP_GIB)))


@pytest.mark.parametrize(("gib", "next_one"), [(1199, 1200), (1201, 2400), (3600, 4800), (0, 1200)])
def test_another_size_is_refused_by_rule_and_with_the_next_one(gib: int, next_one: int) -> None:
    with pytest.raises(SpecError) as refused:
        LustreStoreSpec(kind="fsx_lustre", size_gib=gib)
    (fault,) = refused.value.faults
    assert fault.rule == rules.LUSTRE_SIZES.id
    assert fault.message.endswith(f"choose {next_one}")


# -- specs ----------------------------------------------------------------------------------------------------------------------


def test_a_store_is_efs_unless_it_says_otherwise() -> None:
    assert parsed() == EfsStoreSpec()
    assert parsed(kind="fsx_lustre", size_gib=2400) == LustreStoreSpec(kind="fsx_lustre", size_gib=2400)


def test_scratch_storage_has_no_choice_of_throughput() -> None:
    with pytest.raises(ValidationError, match=r"scratch always has 200 MB/s per TiB: omit it"):
        parsed(kind="fsx_lustre", deployment="scratch", throughput_mb_per_tib=250)


LUSTRE_FACTS = {"dns_name": "fs-01234567.fsx.us-west-2.amazonaws.com", "mount_name": "abcdef", "size_gib": 1200}


@pytest.mark.parametrize(
    ("given_spec", "fault"),
    [
        ({"file_system": "fsx_lustre"}, "needs dns_name, mount_name, size_gib"),
        ({"file_system": "fsx_lustre", "access_point_id": "fsap-01234567", **LUSTRE_FACTS}, "access_point_id is for EFS"),
        ({"file_system": "efs", "mount_name": "abcdef"}, "mount_name: only for FSx for Lustre"),
    ],
)
def test_a_file_system_that_is_there_is_described_as_its_driver_asks(given_spec: dict[str, Any], fault: str) -> None:
    with pytest.raises(ValidationError, match=fault):
        parsed(kind="existing", file_system_id="fs-01234567", **given_spec)


def test_handles_of_file_systems_that_are_there() -> None:
    efs = ExistingStore.described(
        ExistingStoreSpec(kind="existing", file_system="efs", file_system_id="fs-01234567", access_point_id="fsap-01234567")
    )
    assert (efs.driver, efs.volume_handle, efs.volume_attributes) == ("efs.csi.aws.com", "fs-01234567::fsap-01234567", {})
    spec = parsed(kind="existing", file_system="fsx_lustre", file_system_id="fs-01234567", zone_id="usw2-az4", **LUSTRE_FACTS)
    assert isinstance(spec, ExistingStoreSpec)
    fsx = ExistingStore.described(spec)
    assert (fsx.driver, fsx.volume_handle, fsx.size_gib, fsx.zone_id) == ("fsx.csi.aws.com", "fs-01234567", 1200, "usw2-az4")
    assert fsx.volume_attributes == {"dnsname": LUSTRE_FACTS["dns_name"], "mountname": "abcdef"}
    assert fsx.mount_options == ("flock",)
    with pytest.raises(SpecError, match=r"spec: .* wrong type; given: dict; .*pass ExistingStoreSpec\(…\) with these fields"):
        ExistingStore.described(spec.inputs())  # pyright: ignore[reportArgumentType]


# -- where it is ----------------------------------------------------------------------------------------------------------------

subnet_lists = st.lists(st.tuples(st.sampled_from("abcd"), st.integers()))


@given(subnet_lists)
def test_every_zone_gets_its_first_subnet_and_one_only(subnets: list[tuple[str, int]]) -> None:
    chosen = plan.one_subnet_a_zone(subnets)
    assert set(chosen) == {zone for zone, _ in subnets}
    assert all(subnet == next(one for zone, one in subnets if zone == chosen_zone) for chosen_zone, subnet in chosen.items())


@pytest.mark.parametrize(
    ("spec", "zone"),
    [
        (EfsStoreSpec(), None),
        (LustreStoreSpec(kind="fsx_lustre"), "usw2-az4"),
        (LustreStoreSpec(kind="fsx_lustre", zone_id="usw2-az1"), "usw2-az1"),
        (ExistingStoreSpec(kind="existing", file_system="efs", file_system_id="fs-01234567"), None),
        (ExistingStoreSpec(kind="existing", file_system="efs", file_system_id="fs-01234567", zone_id="usw2-az1"), "usw2-az1"),
    ],
)
def test_the_zone_is_the_specs_or_else_the_pools(spec: StoreSpec, zone: str | None) -> None:
    assert plan.store_zone(spec, ["usw2-az4", "usw2-az2"]) == zone


def test_lustre_without_pool_and_zone_is_nowhere() -> None:
    assert plan.store_zone(LustreStoreSpec(kind="fsx_lustre"), []) is None


# -- rules ----------------------------------------------------------------------------------------------------------------------


def broken(facts: StoreFacts) -> list[str]:
    every = (rules.nodes_are_near, rules.has_room, rules.subnets_where_it_is)
    return [finding.rule.id for finding in findings(every, facts, {})]


def test_a_70b_model_compiled_once_fits_the_smallest_file_system() -> None:
    (judgement,) = rules.has_room.judge(lustre())
    assert judgement.holds
    assert judgement.working == ("131.4 (model) + 131.4 (weights for tensor parallel 64) = 262.8 GiB of 1200 GiB (22%)",)


def test_a_disk_of_a_model_that_the_catalog_does_not_know_is_told_as_not_judged() -> None:
    facts = store_facts(LustreStoreSpec(kind="fsx_lustre", size_gib=1200), network_zone_ids=(), pools={}, path=("store",))
    (found,) = rules.has_room.judge(facts)
    assert found.unjudged
    assert found.path == ("store", "size_gib")
    unlimited = store_facts(EfsStoreSpec(kind="efs"), network_zone_ids=(), pools={})
    assert not list(rules.has_room.judge(unlimited))


def test_a_zone_without_a_subnet_is_told_as_it_was_given() -> None:
    (judgement,) = rules.subnets_where_it_is.judge(
        store_facts(LustreStoreSpec(kind="fsx_lustre", zone_id="use2-az3"), network_zone_ids=("use2-az1",), pools={})
    )
    assert (judgement.holds, judgement.given, judgement.allowed) == (False, "use2-az3", "use2-az1")


def test_what_has_no_size_has_room_and_what_is_everywhere_is_near() -> None:
    everywhere = store_facts(
        EfsStoreSpec(),
        network_zone_ids=("use2-az1", "use2-az3"),
        pools={"di": ("use2-az1", "use2-az3")},
        contents=model_contents(10_000, (1, 2, 4)),
    )
    assert broken(everywhere) == []
    assert not list(rules.has_room.judge(everywhere))
    assert not list(rules.nodes_are_near.judge(everywhere))


def test_the_size_that_is_asked_for_instead_is_one_there_is() -> None:
    (judgement,) = rules.has_room.judge(lustre(weights_gib=LLAMA_405B_GIB))
    assert judgement.allowed == "at least 2400"


def test_a_pool_of_several_zones_is_not_near_and_only_warned_of() -> None:
    facts = lustre(zones=("use2-az3", "use2-az1"))
    (finding,) = findings([rules.nodes_are_near], facts, {})
    assert facts.zone_id == "use2-az3"
    assert not finding.stops


def test_efs_needs_a_private_subnet_somewhere() -> None:
    assert broken(store_facts(EfsStoreSpec(), network_zone_ids=(), pools={})) == ["STO004"]


def test_the_network_of_an_existing_file_system_is_the_teams_affair() -> None:
    there = ExistingStoreSpec(kind="existing", file_system="efs", file_system_id="fs-01234567", zone_id="use2-az6")
    assert broken(store_facts(there, network_zone_ids=("use2-az1",), pools={})) == []


# -- resources ------------------------------------------------------------------------------------------------------------------


def the_store(spec: StoreSpec | None = None, **settings: Any) -> Graph:
    """A driver, a store, and its claim in namespace ``di``."""

    def build() -> None:
        cluster = existing_cluster(**settings)
        chosen = spec or EfsStoreSpec()
        driver = FileSystemDriver("driver", chosen.file_system, cluster=cluster)
        store = shared_store("store", chosen, cluster=cluster, network=existing_vpc(), driver=driver, zone_id="usw2-az2")
        claimed("models", store, cluster)

    return record(build)


def claimed(name: str, store: Any, cluster: ExistingCluster) -> None:
    parent = pulumi.ComponentResource("test:index:Server", "server")
    inside = pulumi.ResourceOptions(parent=parent, provider=cluster.provider)
    namespace = k8s.core.v1.Namespace("namespace", metadata={"name": "di"}, opts=inside)
    opts = pulumi.ResourceOptions.merge(inside, pulumi.ResourceOptions(depends_on=[namespace]))
    store_claim(name, store, namespace="di", cluster=cluster, parent=parent, opts=opts)


def lustre_spec(**spec: Any) -> LustreStoreSpec:
    return LustreStoreSpec.model_validate({"kind": "fsx_lustre", **spec})


def of_aws(graph: Graph) -> dict[str, Any]:
    """Inputs of what the store makes in AWS."""
    return {
        resource.name: plain(resource.inputs)
        for resource in graph.resources
        if resource.type.startswith(("aws:efs", "aws:fsx", "aws:ec2", "aws:vpc", "aws:eks"))
    }


@pytest.mark.parametrize("kind", ["efs", "fsx-lustre"])
def test_the_whole_of_it(kind: str) -> None:
    graph = the_store(EfsStoreSpec() if kind == "efs" else lustre_spec(), tags={"team": "inference"})
    kubernetes = {resource.name: manifest(resource) for resource in (graph.named("models-volume"), graph.named("models-claim"))}
    assert_golden(f"storage/{kind}.yaml", yaml.safe_dump({**of_aws(graph), **kubernetes}, sort_keys=False, width=130))


def test_efs_is_in_every_zone_and_lustre_in_the_one() -> None:
    targets = the_store().of_type("aws:efs/mountTarget:MountTarget")
    assert [target.inputs["subnetId"] for target in targets] == [f"subnet-private-usw2-az{n}" for n in (1, 2, 3)]
    (system,) = the_store(lustre_spec(zone_id="usw2-az3")).of_type("aws:fsx/lustreFileSystem:LustreFileSystem")
    assert system.inputs["subnetIds"] == "subnet-private-usw2-az3"


def test_a_zone_with_two_subnets_gets_one_mount_target() -> None:
    def build() -> None:
        cluster = existing_cluster()
        subnets = [Subnet("usw2-az1", "subnet-1"), Subnet("usw2-az1", "subnet-2")]
        driver = FileSystemDriver("driver", "efs", cluster=cluster)
        SharedStore("store", EfsStoreSpec(), cluster=cluster, network=ExistingVpc("vpc-1", subnets), driver=driver)

    (target,) = record(build).of_type("aws:efs/mountTarget:MountTarget")
    assert target.inputs["subnetId"] == "subnet-1"


def test_the_stacks_key_encrypts_all_but_scratch_storage() -> None:
    (efs,) = the_store(kms_key_arn=KEY).of_type("aws:efs/fileSystem:FileSystem")
    assert (efs.inputs["encrypted"], efs.inputs["kmsKeyId"]) == (True, KEY)
    assert "kmsKeyId" not in the_store().named("store-file-system").inputs
    assert the_store(lustre_spec(), kms_key_arn=KEY).named("store-file-system").inputs["kmsKeyId"] == KEY
    scratch = the_store(lustre_spec(deployment="scratch"), kms_key_arn=KEY).named("store-file-system").inputs
    assert scratch["deploymentType"] == "SCRATCH_2"
    assert not scratch.keys() & {"kmsKeyId", "perUnitStorageThroughput", "automaticBackupRetentionDays"}


def test_throughput_is_a_choice_of_persistent_storage() -> None:
    assert the_store(lustre_spec()).named("store-file-system").inputs["perUnitStorageThroughput"] == 250
    assert (
        the_store(lustre_spec(throughput_mb_per_tib=1000)).named("store-file-system").inputs["perUnitStorageThroughput"] == 1000
    )


@pytest.mark.parametrize("spec", [EfsStoreSpec(), lustre_spec()], ids=["efs", "lustre"])
def test_a_stack_that_protects_its_data_keeps_the_file_system_and_it_alone(spec: StoreSpec) -> None:
    kept = [resource.name for resource in the_store(spec, protect=True).resources if resource.options.get("protect")]
    assert kept == ["store-file-system"]
    assert not [resource for resource in the_store(spec).resources if resource.options.get("protect")]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("file_system", ["efs", "fsx_lustre"])
def test_the_driver_is_pinned_for_each_version_and_has_no_permissions(file_system: FileSystem, version: str) -> None:
    def build() -> None:
        FileSystemDriver("driver", file_system, cluster=existing_cluster(version=version))

    graph = record(build)
    (addon,) = graph.of_type("aws:eks/addon:Addon")
    assert addon.inputs["addonName"] == ADDONS[file_system]
    assert addon.inputs["addonVersion"] == versions.addon(ADDONS[file_system], version)
    assert "podIdentityAssociations" not in addon.inputs
    assert not [resource for resource in graph.resources if resource.type.startswith("aws:iam")]


@pytest.mark.parametrize("spec", [EfsStoreSpec(), lustre_spec()], ids=["efs", "lustre"])
def test_it_is_taken_down_from_the_claim_to_the_file_system(spec: StoreSpec) -> None:
    graph = the_store(spec)
    claim, volume, system = (graph.named(name) for name in ("models-claim", "models-volume", "store-file-system"))
    (driver,) = graph.of_type("aws:eks/addon:Addon")
    below: list[Resource] = [driver, system, graph.named("store-security-group")]
    for kind in ("aws:efs/mountTarget:MountTarget", "aws:efs/accessPoint:AccessPoint", "aws:vpc/securityGroupIngressRule"):
        below += [resource for resource in graph.resources if resource.type.startswith(kind)]
    assert len(below) > 4
    assert stands_on(graph, claim, volume)
    assert stands_on(graph, claim, graph.named("namespace"))
    for resource in below:
        assert stands_on(graph, volume, resource), f"{resource.name} could go while the volume is there"
    assert stands_on(graph, system if spec.kind == "fsx_lustre" else below[3], graph.named("store-security-group"))


def test_a_file_system_that_is_there_is_only_mounted() -> None:
    there = ExistingStoreSpec(kind="existing", file_system="efs", file_system_id="fs-01234567")
    graph = the_store(there)
    assert {resource.type for resource in graph.resources if resource.type.startswith("aws:")} == {"aws:eks/addon:Addon"}
    volume = graph.named("models-volume")
    assert volume.inputs["spec"]["csi"] == {"driver": "efs.csi.aws.com", "volumeHandle": "fs-01234567"}
    (driver,) = graph.of_type("aws:eks/addon:Addon")
    assert stands_on(graph, volume, driver)


@pytest.mark.parametrize(
    ("spec", "driver", "zone_id", "fault"),
    [
        (EfsStoreSpec(), "fsx_lustre", None, "for another kind of file system; given: fsx_lustre; allowed: efs"),
        (lustre_spec(), "fsx_lustre", None, "in one zone, and none is specified"),
        (lustre_spec(zone_id="usw2-az4"), "fsx_lustre", "usw2-az1", "no private subnet for the file system"),
    ],
)
def test_what_cannot_be_made_is_refused(spec: StoreSpec, driver: FileSystem, zone_id: str | None, fault: str) -> None:
    def build() -> None:
        # Silenced rules do not make subnets.
        cluster = existing_cluster(silenced={"STO004": "we know better"})
        with pytest.raises(SpecError, match=fault):
            shared_store(
                "store",
                spec,
                cluster=cluster,
                network=existing_vpc(),
                driver=FileSystemDriver("driver", driver, cluster=cluster),
                zone_id=zone_id,
            )

    record(build)


def test_a_file_system_that_is_retained_is_of_a_kind_that_lets_its_network_go() -> None:
    def store(spec: NewStoreSpec) -> None:
        cluster = existing_cluster(retain=True)
        driver = FileSystemDriver("driver", spec.file_system, cluster=cluster)
        shared_store("store", spec, cluster=cluster, network=existing_vpc(), driver=driver)

    record(lambda: store(EfsStoreSpec()))
    with pytest.raises(ProgramError, match="kind: a retained Lustre file system would keep its network from being deleted"):
        record(lambda: store(lustre_spec(zone_id="usw2-az1")))


def test_the_zone_is_told_to_who_stands_on_it() -> None:
    def build() -> None:
        cluster, network = existing_cluster(), existing_vpc()
        drivers = {kind: FileSystemDriver(f"{kind}-driver", kind, cluster=cluster) for kind in plan.DRIVERS}
        efs = shared_store("efs", EfsStoreSpec(), cluster=cluster, network=network, driver=drivers["efs"], zone_id="usw2-az2")
        fsx = shared_store(
            "fsx", lustre_spec(), cluster=cluster, network=network, driver=drivers["fsx_lustre"], zone_id="usw2-az2"
        )
        assert (efs.zone_id, fsx.zone_id) == (None, "usw2-az2")
        assert (efs.size_gib, fsx.size_gib) == (plan.EFS_SIZE_GIB, 1200)

    record(build)


def test_a_model_of_known_size_takes_it_twice_for_one_degree() -> None:
    assert sum(content.gib for content in model_contents(LLAMA_70B_GIB, (64,))) == pytest.approx(2 * LLAMA_70B_GIB)
