"""The catalog: facts as data files, and the loaders that turn them into types."""

import dataclasses
import gzip
import json
import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from eks_inference.catalog import versions, zones
from eks_inference.catalog.instances import InstanceType, instance_type, instance_types

ALL_TYPES = sorted(instance_types().values(), key=lambda one: one.name)
MINORS = versions.kubernetes_versions()


def names(types: list[InstanceType]) -> list[str]:
    return [one.name for one in types]


# -------------------------------------------------------------------------------------------------- instance types


def test_the_types_of_the_source_systems_are_there_with_their_devices():
    devices = {
        name: (instance_type(name).devices, instance_type(name).devices * instance_type(name).cores_per_device)
        for name in ("inf2.8xlarge", "inf2.48xlarge", "trn1.32xlarge", "trn2.48xlarge")
    }
    assert devices == {
        "inf2.8xlarge": (1, 2),
        "inf2.48xlarge": (12, 24),
        "trn1.32xlarge": (16, 32),
        "trn2.48xlarge": (16, 64),
    }
    assert instance_type("g4dn.xlarge").devices == 1


def test_a_misspelt_type_is_answered_with_the_nearest_ones():
    with pytest.raises(KeyError, match=r"inf2\.48xlarge"):
        instance_type("inf2.48xlage")


def test_the_table_cannot_be_changed_through_a_type():
    with pytest.raises(dataclasses.FrozenInstanceError):
        instance_type("m5.large").vcpus = 1  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize("one", ALL_TYPES, ids=names(ALL_TYPES))
def test_a_row_does_not_contradict_itself(one: InstanceType):
    assert one.name == f"{one.family}.{one.name.partition('.')[2]}"
    assert one.vcpus > 0
    assert one.memory_mib % 1024 == 0
    assert (one.accelerator is None) == (one.devices == 0) == (one.device_memory_gib == 0)
    assert (one.accelerator == "neuron") == bool(one.legal_device_counts) == bool(one.cores_per_device)
    if one.legal_device_counts:
        assert list(one.legal_device_counts) == sorted(set(one.legal_device_counts))
        assert one.legal_device_counts[0] == 1, "a single device is always a legal set"
        assert one.legal_device_counts[-1] == one.devices, "and so is the whole node"
    # The pod limit is interfaces x (addresses - 1) + 2 with at least two addresses an interface.
    assert one.max_pods > 2
    assert one.efa_interfaces == 0 or one.efa_interfaces >= one.network_cards


def moto_resource(name: str):
    """A data file of the moto distribution, read without importing moto."""
    found = find_spec("moto")
    path = Path(*(found.submodule_search_locations or ()), "ec2", "resources", name) if found else None
    if path is None or not path.exists():
        pytest.skip("moto is not installed, or keeps this file elsewhere")
    return json.loads(gzip.decompress(path.read_bytes()))


def test_every_row_agrees_with_ec2_as_moto_keeps_it():
    answers = moto_resource("instance_types.json.gz")
    differing = {
        one.name: difference for one in ALL_TYPES if (difference := dict(_ec2(answers[one.name]).items() - _as_ec2(one).items()))
    }
    # instances.toml says why: the EC2 API contradicts the Neuron documentation on Trn2 memory, and knows no Trn2u devices.
    assert differing == {
        "trn2.3xlarge": {"memory_gib": 512},
        "trn2.48xlarge": {"memory_gib": 512},
        "trn2u.48xlarge": {"memory_gib": 0, "devices": 0},
    }


@pytest.mark.parametrize("region", zones.regions())
def test_every_type_is_offered_where_the_catalog_says_so(region: str):
    offered = moto_resource(f"instance_type_offerings/availability-zone-id/{region}.json.gz")
    pairs = {(one["InstanceType"], one["Location"]) for one in offered}
    sold = {name for name, _ in pairs}
    claimed = {(one.name, zone_id) for one in ALL_TYPES if one.name in sold for zone_id in zones.zone_ids(region, one.family)}
    assert claimed - pairs == set()


def _as_ec2(one: InstanceType) -> dict[str, int]:
    return {
        "vcpus": one.vcpus,
        "memory_mib": one.memory_mib,
        "max_pods": one.max_pods,
        "devices": one.devices,
        "memory_gib": one.device_memory_gib,
        "efa": one.efa_interfaces,
        "cards": one.network_cards,
        "nvme_gb": one.nvme_gb,
    }


def _ec2(answer: dict) -> dict[str, int]:
    network = answer["NetworkInfo"]
    default_card = next(
        card for card in network["NetworkCards"] if card["NetworkCardIndex"] == network["DefaultNetworkCardIndex"]
    )
    accelerators = answer.get("NeuronInfo", {}).get("NeuronDevices", []) + answer.get("GpuInfo", {}).get("Gpus", [])
    accelerator = accelerators[0] if accelerators else {"Count": 0, "MemoryInfo": {"SizeInMiB": 0}}
    return {
        "vcpus": answer["VCpuInfo"]["DefaultVCpus"],
        "memory_mib": answer["MemoryInfo"]["SizeInMiB"],
        "max_pods": default_card["MaximumNetworkInterfaces"] * (network["Ipv4AddressesPerInterface"] - 1) + 2,
        "devices": accelerator["Count"],
        "memory_gib": accelerator["MemoryInfo"]["SizeInMiB"] // 1024,
        "efa": network.get("EfaInfo", {}).get("MaximumEfaInterfaces", 0),
        "cards": network["MaximumNetworkCards"],
        "nvme_gb": answer.get("InstanceStorageInfo", {}).get("TotalSizeInGB", 0),
    }


# -------------------------------------------------------------------------------------------------- versions


def tables() -> dict:
    return dict(versions._versions())


def test_the_supported_minor_versions_are_those_of_the_design():
    assert MINORS == ("1.33", "1.34", "1.35", "1.36")


@pytest.mark.parametrize("table", ["images", "addons", "ami_releases"])
def test_what_depends_on_the_minor_version_covers_all_of_them(table: str):
    gaps = {name: row for name, row in tables()[table].items() if isinstance(row, dict) and tuple(row) != MINORS}
    assert gaps == {}


@pytest.mark.parametrize("table", ["charts", "images", "addons", "ami_releases", "neuron_drivers"])
def test_the_tables_are_sorted(table: str):
    rows = tables()[table]
    plain = [name for name, row in rows.items() if not isinstance(row, dict)]
    nested = [name for name, row in rows.items() if isinstance(row, dict)]
    assert plain == sorted(plain)
    assert nested == sorted(nested)


@pytest.mark.parametrize("name", sorted(tables()["charts"]))
def test_a_chart_is_pinned_exactly(name: str):
    chart = versions.chart(name)
    assert chart.reference.startswith(("oci://", "https://"))
    assert re.fullmatch(r"v?\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?", chart.version)


def test_karpenter_and_its_crds_are_of_one_version():
    assert versions.chart("karpenter").version == versions.chart("karpenter-crd").version


def test_a_chart_from_an_oci_registry_is_located_by_its_reference():
    karpenter = versions.chart("karpenter")
    assert karpenter.location(karpenter.reference) == ("oci://public.ecr.aws/karpenter/karpenter", None)
    assert karpenter.location("oci://mirror.example/karpenter/karpenter") == ("oci://mirror.example/karpenter/karpenter", None)


def test_a_chart_from_a_repository_is_located_by_name_there_and_below_its_mirror():
    kuberay = versions.chart("kuberay-operator")
    assert kuberay.location(kuberay.reference) == ("kuberay-operator", "https://ray-project.github.io/kuberay-helm/")
    assert kuberay.location("oci://mirror.example/kuberay/") == ("oci://mirror.example/kuberay/kuberay-operator", None)


@pytest.mark.parametrize("minor", MINORS)
def test_what_must_match_the_cluster_matches_its_minor_version(minor: str):
    assert versions.image("kube-scheduler", minor).partition(":")[2].startswith(f"v{minor}.")
    assert versions.addon("kube-proxy", minor).startswith(f"v{minor}.")
    assert all(re.fullmatch(r"v\d+\.\d+\.\d+-eksbuild\.\d+", versions.addon(name, minor)) for name in tables()["addons"])
    for ami_type in tables()["ami_releases"]:
        assert re.fullmatch(rf"{re.escape(minor)}\.\d+-\d{{8}}", versions.ami_release(ami_type, minor))


@pytest.mark.parametrize("minor", MINORS)
def test_the_driver_inside_every_pinned_neuron_ami_is_known(minor: str):
    assert versions.neuron_driver(versions.ami_release("AL2023_x86_64_NEURON", minor)) == "2.29.0"


def test_images_are_pinned_by_tag_or_digest_never_latest():
    for name, row in tables()["images"].items():
        for reference in row.values() if isinstance(row, dict) else [row]:
            tag = reference.rpartition("/")[2].partition(":")[2]
            assert tag, f"{name}: {reference} has no tag"
            assert "latest" not in tag


def test_what_is_not_pinned_is_answered_with_what_is():
    with pytest.raises(KeyError, match="vpc-cni"):
        versions.addon("vpc-cnl", "1.35")
    with pytest.raises(KeyError, match=r"Kubernetes 1\.32; there are: 1\.33"):
        versions.addon("vpc-cni", "1.32")
    with pytest.raises(KeyError, match="kube-scheduler has no pin for Kubernetes None"):
        versions.image("kube-scheduler")


# -------------------------------------------------------------------------------------------------- zones


def test_the_zones_the_source_system_prefers_come_first():
    assert zones.zone_ids("us-west-2", "inf2")[:2] == ("usw2-az4", "usw2-az1")
    assert zones.zone_ids("us-east-1", "trn1") == ("use1-az6", "use1-az5")
    assert zones.zone_ids("us-east-2", "trn2")[0] == "use2-az3"


def test_a_cpu_family_is_in_all_zones_and_an_absent_accelerator_in_none():
    assert zones.zone_ids("us-west-2", "m5") == zones.region_zone_ids("us-west-2")
    assert zones.zone_ids("eu-west-1", "trn2") == ()


def test_no_table_holds_a_zone_that_control_planes_refuse():
    assert zones.refused_by_control_plane() == {"use1-az3", "usw1-az2", "cac1-az3"}
    for region in zones.regions():
        assert not zones.refused_by_control_plane() & set(zones.region_zone_ids(region))


@pytest.mark.parametrize("region", zones.regions())
def test_a_region_has_two_zones_and_its_families_are_in_them(region: str):
    everywhere = zones.region_zone_ids(region)
    assert len(everywhere) >= 2
    assert len({zone_id.partition("-")[0] for zone_id in everywhere}) == 1
    for family in {one.family for one in ALL_TYPES}:
        where = zones.zone_ids(region, family)
        assert set(where) <= set(everywhere)
        assert len(where) == len(set(where))


def test_every_key_of_a_region_is_a_family_of_the_catalog():
    families = {one.family for one in ALL_TYPES}
    for region, table in zones._tables().items():
        assert set(table) - {"zones"} <= families, region


def test_an_unknown_region_or_family_is_answered_with_the_known_ones():
    with pytest.raises(KeyError, match="us-west-2"):
        zones.zone_ids("mars-north-1", "inf2")
    with pytest.raises(KeyError, match="inf2"):
        zones.zone_ids("us-west-2", "inf9")
