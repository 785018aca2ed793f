"""Prices and quotas of the catalog: every row has its region, its date and its source, and no price comes from another region."""

import re
import tomllib
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import ROOT
from eks_inference.catalog import prices, tables
from eks_inference.catalog.instances import instance_types
from eks_inference.catalog.prices import (
    BLOCK,
    ROUNDED,
    Price,
    block_price,
    instance_price,
    instance_tables,
    outdated,
    service_price,
    services,
)
from eks_inference.catalog.quotas import quota, quota_of
from eks_inference.catalog.zones import regions
from price_tables import make_inf2_dearer

DAY = r"20\d\d-(0[1-9]|1[0-2])(-(0[1-9]|[12]\d|3[01]))?"
BLOCKS_ONLY = {
    "p5e.48xlarge": 10,
    "trn2.3xlarge": 2,
    "trn2.48xlarge": 1,
    "trn2u.48xlarge": 0,
}
"""Types that AWS sells in capacity blocks only, and in how many regions a block has a price."""
UNPRICED = {"fsx_lustre_500", "fsx_lustre_1000"}
"""Services for which no source with a region and a date was found."""
TYPES, REGIONS = sorted(instance_types()), st.sampled_from(regions())


def every_price() -> list[Price]:
    found = [instance_price(type_, region) or outdated(type_, region) for type_ in TYPES for region in regions()]
    found += [block_price(type_, region) for type_ in TYPES for region in regions()]
    found += [service_price(name, region) for name in services() for region in regions()]
    return [price for price in found if price is not None]


# -- rows -----------------------------------------------------------------------------------------------------------------------


def test_every_price_has_a_region_a_date_a_source_and_a_sane_amount():
    assert len(every_price()) > 1500
    for price in every_price():
        assert price.region in regions(), price
        assert re.fullmatch(DAY, price.as_of), price
        assert len(price.source) > 20, price
        assert 0 < price.usd < 300, price


@pytest.mark.parametrize("type_", TYPES)
def test_a_type_has_a_price_in_us_east_1_or_is_sold_in_blocks_only(type_: str):
    if type_ in BLOCKS_ONLY:
        assert not any(instance_price(type_, region) for region in regions())
    else:
        price = instance_price(type_, "us-east-1")
        assert price is not None
        assert price.as_of >= "2026"


def test_a_block_has_a_price_for_types_only_that_have_none_on_demand():
    blocks = {type_: [one for region in regions() if (one := block_price(type_, region))] for type_ in TYPES}
    assert {type_: len(found) for type_, found in blocks.items() if found or type_ in BLOCKS_ONLY} == BLOCKS_ONLY
    only = {type_ for one in tables.table("prices.toml")["blocks_only"].values() for type_ in one["types"]}
    assert only == BLOCKS_ONLY.keys()
    (neuron,) = blocks["trn2.48xlarge"]
    assert (neuron.region, neuron.usd, neuron.notes) == ("us-east-2", 35.7608, (BLOCK,))


def test_a_larger_size_of_a_family_costs_no_less():
    """AWS prices the sizes of a family by what they have: a slip in a table would show here."""
    for small, large in permutations(instance_types().values(), 2):
        if small.family == large.family and small.devices <= large.devices and small.vcpus < large.vcpus:
            for region in regions():
                less, more = instance_price(small.name, region), instance_price(large.name, region)
                assert less is None or more is None or less.usd <= more.usd, (less, more)


def test_a_service_has_one_row_a_region_and_no_list_names_another_region():
    seen: set[tuple[str, str]] = set()
    for one in tables.table("prices.toml")["lists"].values():
        for region, row in one["usd"].items():
            assert region in (*regions(), prices.EVERY_REGION)
            assert row.keys() <= services().keys()
            assert not seen & {(name, region) for name in row}
            seen |= {(name, region) for name in row}


def test_a_list_says_where_and_when_it_was_read():
    """A repository with its commit and file, or a site with its page: whoever doubts a row can look."""
    file = tables.table("prices.toml")
    for one in (*file["lists"].values(), *file["blocks_only"].values(), file["gpu_instances"], file["capacity_blocks"]):
        assert re.match(r"[\w.-]+/[\w.-]+ [0-9a-f]{7,40}, \S|[a-z.]+\.com, \S", one["source"]), one["source"]
        assert re.fullmatch(DAY, one["read"])


def test_a_service_has_a_price_somewhere_or_a_reason():
    assert {name for name in services() if not any(service_price(name, region) for region in regions())} == UNPRICED


def test_a_service_is_counted_somewhere():
    cost = ROOT / "components" / "eks_inference_tools" / "cost"
    counting = {*cost.glob("*.py"), *cost.glob("*.toml")} - {cost / "needed_quotas.py"}
    text = "".join(one.read_text() for one in sorted(counting))
    sizes = [name for name in services() if name.startswith("fsx_lustre_")]
    assert {name for name in services() if f'"{name}"' not in text} == set(sizes)
    assert '"fsx_lustre"' in text
    assert all(size.removeprefix("fsx_lustre_") in text for size in sizes)


def test_the_own_row_of_a_region_comes_before_the_one_for_all():
    own, general = service_price("eks_standard", "us-east-1"), service_price("eks_standard", "eu-north-1")
    assert own
    assert general
    assert (own.as_of, general.as_of) == ("2026-09-29", "2026-10-06")


# -- no price of another region -------------------------------------------------------------------------------------------------


def test_a_region_without_a_row_has_no_price():
    assert service_price("gp3_throughput", "us-east-2") is None
    assert service_price("kms_key", "eu-north-1") is None
    assert block_price("trn2.48xlarge", "us-west-2") is None
    assert service_price("nat_gateway", "mars-north-1") is None
    assert instance_price("inf2.xlarge", "af-south-1") is None
    assert instance_price("x9.huge", "us-east-1") is None


@pytest.mark.parametrize("name", ["nat_gatway", "EKS_standard"])
def test_an_unknown_service_is_told_with_the_nearest_names(name: str):
    with pytest.raises(KeyError, match=r"nearest: (nat_gateway|eks_standard)"):
        service_price(name, "us-east-1")


def test_a_type_whose_tables_differ_is_outdated_elsewhere_and_says_both_figures(monkeypatch: pytest.MonkeyPatch):
    make_inf2_dearer(monkeypatch)
    past = outdated("inf2.xlarge", "us-west-2")
    assert past
    assert past.notes == ("outdated: in us-east-1 0.7582 in 2025-05-28, 0.8 in 2026-07-06",)
    assert instance_price("inf2.xlarge", "us-west-2") is None
    here = instance_price("inf2.xlarge", "us-east-1")
    assert here
    assert here.usd == 0.8
    assert outdated("inf2.xlarge", "us-east-1") is None


def test_no_other_type_is_outdated_now():
    """A type whose price AWS changed has newer rows in ``gpu_instances``, for all regions that the older table has."""
    assert {price.name for price in every_price() if any("outdated" in note for note in price.notes)} == {"trn2.48xlarge"}


def test_a_type_that_is_no_longer_sold_on_demand_is_outdated():
    past = outdated("trn2.48xlarge", "us-east-2")
    assert past
    assert past.notes == ("outdated: 85.964 in 2025-05-28, none on demand in 2026-10-03",)
    assert instance_price("trn2.48xlarge", "us-east-2") is None


@pytest.mark.parametrize(
    ("type_", "region", "usd", "as_of", "notes"),
    [
        ("p5.48xlarge", "us-east-1", 55.04, "2026-07-06", ()),
        ("p5.48xlarge", "us-west-2", 55.04, "2026-09-14", (ROUNDED,)),
        ("g7.2xlarge", "us-east-2", 2.52, "2026-09-14", ("single source", ROUNDED)),
        ("g7e.2xlarge", "us-east-1", 3.36312, "2026-07-06", ("single source",)),
        ("inf2.xlarge", "us-west-2", 0.7582, "2025-05-28", ()),
    ],
)
def test_the_newest_exact_price_counts(type_: str, region: str, usd: float, as_of: str, notes: tuple[str, ...]):
    price = instance_price(type_, region)
    assert price
    assert (price.usd, price.as_of, price.notes) == (usd, as_of, notes)


@given(st.sampled_from(TYPES), REGIONS)
def test_a_price_is_in_one_of_the_tables_for_that_very_region(type_: str, region: str):
    rows = {instance_table["source"]: instance_table["usd"].get(region, {}).get(type_) for instance_table in instance_tables()}
    gpu = tables.table("prices.toml")["gpu_instances"]
    rows[gpu["source"]] = gpu["usd"].get(type_, {}).get(region)
    price, past = instance_price(type_, region), outdated(type_, region)
    assert price is None or past is None
    for one in filter(None, (price, past)):
        assert rows[one.source] == one.usd
    assert (price or past) is not None or not any(rows.values())


# -- quotas ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("type_", TYPES)
def test_every_family_counts_towards_a_quota_of_vcpus(type_: str):
    found = quota_of(type_, "on_demand")
    assert found is not None
    assert (found.service, found.unit) == ("ec2", "vCPU")
    spot = quota_of(type_, "spot")
    assert (spot is None) == type_.startswith("p6"), "no source has the quota of P6 spot instances"
    assert spot is None or spot.code != found.code
    assert quota_of(type_, "reserved") is None


def test_quotas_have_codes_of_their_own():
    codes = [
        row["code"]
        for section in tomllib.loads((tables.FOLDER / "quotas.toml").read_text()).values()
        for row in section.values()
        if isinstance(row, dict)
    ]
    assert len(codes) == len(set(codes))
    assert all(re.fullmatch(r"L-[0-9A-F]{8}", code) for code in codes)


def test_a_quota_is_found_by_name():
    assert (quota("elastic_ips").default, quota("elastic_ips").code) == (5, "L-0263D0A3")
    with pytest.raises(KeyError, match="nearest: elastic_ips"):
        quota("elastic_ip")
