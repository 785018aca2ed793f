"""Prices and quotas of the catalog: every row has its region, its date and its source, and no price comes from another region."""

import re
import tomllib
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eks_inference.catalog import prices, tables
from eks_inference.catalog.instances import instance_types
from eks_inference.catalog.prices import Price, instance_price, instance_tables, outdated, service_price, services
from eks_inference.catalog.quotas import quota, quota_of
from eks_inference.catalog.zones import regions

DAY = r"20\d\d-(0[1-9]|1[0-2])(-(0[1-9]|[12]\d|3[01]))?"
NO_PRICE_ANYWHERE = {
    "p5e.48xlarge": "the older table has it without an on-demand price",
    **dict.fromkeys(("trn2.3xlarge", "trn2u.48xlarge"), "in neither table"),
    **dict.fromkeys((f"g7.{size}xlarge" for size in (2, 4, 8, 12, 24, 48)), "in neither table"),
}
ELSEWHERE_ONLY = {"trn2.48xlarge": "us-east-2"}
TYPES, REGIONS = sorted(instance_types()), st.sampled_from(regions())


def every_price() -> list[Price]:
    found = [instance_price(type_, region) or outdated(type_, region) for type_ in TYPES for region in regions()]
    found += [service_price(name, region) for name in services() for region in regions()]
    return [one for one in found if one is not None]


# -- rows -----------------------------------------------------------------------------------------------------------------------


def test_every_price_has_a_region_a_date_a_source_and_a_sane_amount():
    assert len(every_price()) > 1500
    for one in every_price():
        assert one.region in regions(), one
        assert re.fullmatch(DAY, one.as_of), one
        assert len(one.source) > 20, one
        assert 0 < one.usd < 200, one


@pytest.mark.parametrize("type_", TYPES)
def test_a_type_has_a_price_in_us_east_1_or_a_reason(type_: str):
    somewhere = [region for region in regions() if instance_price(type_, region) or outdated(type_, region)]
    if type_ in NO_PRICE_ANYWHERE:
        assert somewhere == []
    elif type_ in ELSEWHERE_ONLY:
        assert somewhere == [ELSEWHERE_ONLY[type_]]
    else:
        price = instance_price(type_, "us-east-1")
        assert price is not None
        assert price.as_of >= "2026"


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


@pytest.mark.parametrize(
    ("name", "region", "usd"),
    [
        ("eks_standard", "sa-east-1", 0.10),
        ("eks_extended", "us-west-2", 0.60),
        ("nat_gateway", "eu-central-1", 0.052),
        ("gp3_storage", "us-east-2", 0.08),
        ("gp3_throughput", "us-west-2", 0.04),
        ("log_ingestion", "us-east-2", 0.50),
        ("s3_storage", "us-west-1", 0.026),
        ("kms_key", "us-east-1", 1.00),
    ],
)
def test_a_service_costs_what_its_source_says(name: str, region: str, usd: float):
    price = service_price(name, region)
    assert price is not None
    assert (price.usd, price.unit) == (usd, services()[name].unit)


def test_the_own_row_of_a_region_comes_before_the_one_for_all():
    own, general = service_price("kms_key", "us-east-1"), service_price("kms_key", "eu-north-1")
    assert own
    assert general
    assert (own.as_of, general.as_of) == ("2024-07-01", "2019-03-08")


# -- no price of another region -------------------------------------------------------------------------------------------------


def test_a_region_without_a_row_has_no_price():
    assert service_price("gp3_throughput", "eu-north-1") is None
    assert service_price("nat_gateway", "mars-north-1") is None
    assert instance_price("inf2.xlarge", "af-south-1") is None
    assert instance_price("x9.huge", "us-east-1") is None


@pytest.mark.parametrize("name", ["nat_gatway", "EKS_standard"])
def test_an_unknown_service_is_told_with_the_nearest_names(name: str):
    with pytest.raises(KeyError, match=r"nearest: (nat_gateway|eks_standard)"):
        service_price(name, "us-east-1")


def test_types_whose_tables_differ_are_outdated_elsewhere_and_say_both_figures():
    assert {one.name for one in every_price() if any("outdated" in note for note in one.notes)} == {
        "p4d.24xlarge",
        "p4de.24xlarge",
        "p5.48xlarge",
        "p5en.48xlarge",
    }
    past = outdated("p5.48xlarge", "us-west-2")
    assert past
    assert past.usd == 98.32
    assert past.notes == ("outdated: in us-east-1 98.32 in 2025-05-28, 55.04 in 2026-07-06",)
    assert instance_price("p5.48xlarge", "us-west-2") is None
    here = instance_price("p5.48xlarge", "us-east-1")
    assert here
    assert here.usd == 55.04
    assert outdated("p5.48xlarge", "us-east-1") is None


def test_a_type_that_only_one_table_has_says_so():
    for type_, region in (("trn2.48xlarge", "us-east-2"), ("g7e.2xlarge", "us-east-1")):
        price = instance_price(type_, region)
        assert price
        assert price.notes == ("single source",)


@given(st.sampled_from(TYPES), REGIONS)
def test_a_price_is_in_one_of_the_tables_for_that_very_region(type_: str, region: str):
    rows = {one["source"]: one["usd"].get(region, {}).get(type_) for one in instance_tables()}
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
