"""A user's own prices: from a stack file, from a file of prices, and before those of the catalog."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eks_inference.catalog.prices import BLOCK, instance_price, service_price, services
from eks_inference.faults import SpecError
from eks_inference.stack.own_rows import CAPACITIES, MOST_USD, OwnPrice, price_faults
from eks_inference_tools.cost.price_book import OWN, Capacity, PriceBook, prices_of, read_price_file
from eks_inference_tools.reading.clusters import PLATFORM
from stackgraph.problems import ProblemsFound
from variants import recorded_with
from vectors.graph import graph, resource

USD = st.floats(min_value=0.0001, max_value=MOST_USD)


def book(**own: Any) -> PriceBook:
    return PriceBook(({"us-west-2": {name.replace("_2x", ".2x"): OwnPrice(source="test", **row) for name, row in own.items()}},))


# -- the book -------------------------------------------------------------------------------------------------------------------


def test_without_own_prices_the_book_is_the_catalog():
    assert PriceBook().instance("inf2.xlarge", "us-west-2") == instance_price("inf2.xlarge", "us-west-2")
    assert PriceBook().service("nat_gateway", "us-west-2") == service_price("nat_gateway", "us-west-2")
    assert PriceBook().instance("trn2u.48xlarge", "us-west-2") is None


def test_an_own_price_counts_in_its_region_only():
    own = book(m5_2xlarge={"on_demand": 0.2}, nat_gateway={"usd": 0.01})
    price, nat = own.instance("m5.2xlarge", "us-west-2"), own.service("nat_gateway", "us-west-2")
    assert price
    assert nat
    assert (price.usd, price.unit, price.source, price.notes) == (0.2, "hour", "test", (OWN,))
    assert (nat.usd, nat.unit) == (0.01, "hour")
    assert own.instance("m5.2xlarge", "us-east-1") == instance_price("m5.2xlarge", "us-east-1")


@pytest.mark.parametrize("capacity", ["spot", "reserved"])
def test_other_capacity_without_a_price_counts_as_on_demand_and_says_so(capacity: Capacity):
    price = PriceBook().instance("inf2.xlarge", "us-west-2", capacity)
    assert price
    assert price.usd == 0.7582
    assert "counted as on demand" in price.notes[-1]
    assert f"prices.inf2.xlarge.{capacity}" in price.notes[-1]
    negotiated = book(m5_2xlarge={"on_demand": 0.2}).instance("m5.2xlarge", "us-west-2", capacity)
    assert negotiated
    assert negotiated.usd == 0.2
    assert negotiated.notes[0] == OWN
    assert "counted as on demand" in negotiated.notes[1]
    assert PriceBook().instance("trn2u.48xlarge", "us-west-2", capacity) is None


@pytest.mark.parametrize("capacity", ["on_demand", "reserved"])
def test_a_type_that_is_sold_in_blocks_only_costs_what_a_block_does(capacity: Capacity):
    price = PriceBook().instance("trn2.48xlarge", "us-east-2", capacity)
    assert price
    assert (price.usd, price.notes) == (35.7608, (BLOCK,))
    own = PriceBook(({"us-east-2": {"trn2.48xlarge": OwnPrice(on_demand=30, source="test")}},)).instance(
        "trn2.48xlarge", "us-east-2", capacity
    )
    assert own
    assert own.usd == 30


def test_a_block_says_nothing_of_spot():
    assert PriceBook().instance("trn2.48xlarge", "us-east-2", "spot") is None


def test_an_own_price_of_one_capacity_says_nothing_of_another():
    own = PriceBook(({"us-west-2": {"trn2u.48xlarge": OwnPrice(reserved=36, source="capacity block")}},))
    reserved = own.instance("trn2u.48xlarge", "us-west-2", "reserved")
    assert reserved
    assert reserved.usd == 36
    assert own.instance("trn2u.48xlarge", "us-west-2") is None
    assert own.instance("trn2u.48xlarge", "us-west-2", "spot") is None


def test_an_unknown_service_is_told_although_a_layer_has_prices():
    with pytest.raises(KeyError, match="nearest: nat_gateway"):
        book(nat_gateway={"usd": 1}).service("nat_gatway", "us-west-2")


@given(st.lists(st.fixed_dictionaries({}, optional=dict.fromkeys(CAPACITIES, USD)), max_size=3), st.sampled_from(CAPACITIES))
def test_the_first_layer_with_the_price_decides(layers: list[dict[str, float]], capacity: Capacity):
    own = PriceBook(tuple({"us-west-2": {"m5.large": OwnPrice(source="test", **layer)}} for layer in layers))
    expected = next((layer[capacity] for layer in layers if capacity in layer), None)
    if expected is None:
        expected = next((layer["on_demand"] for layer in layers if "on_demand" in layer), 0.096)
    price = own.instance("m5.large", "us-west-2", capacity)
    assert price
    assert price.usd == expected


# -- a stack file ---------------------------------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_a_recorded_stack_carries_its_prices():
    given_prices = {
        "inf2.8xlarge": {"on_demand": 1.2, "spot": 0.7, "source": "Savings Plan, 3 years"},
        "nat_gateway": {"usd": 0.04, "source": "private price list"},
    }
    found = prices_of(recorded_with({"prices": given_prices}))
    (region,) = found
    assert {name: own.inputs() for name, own in found[region].items()} == given_prices
    spot = PriceBook((found,)).instance("inf2.8xlarge", region, "spot")
    assert spot
    assert spot.usd == 0.7


@pytest.mark.thorough
def test_a_stack_without_prices_records_none():
    assert prices_of(recorded_with({})) == {}


@pytest.mark.parametrize("given_prices", ["[secret]", "<unknown>", [1], {"m5.large": 3}, {"m5.large": {"on_demand": -1}}, None])
def test_odd_prices_of_another_program_are_left_out(given_prices: Any):
    platform = resource(PLATFORM, "stack", {"region": "us-west-2", "prices": given_prices})
    assert prices_of(graph(platform).graph) == {}


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        ({"inf2.8xlrge": {"on_demand": 1}}, "prices.inf2.8xlrge: nothing with a price has this name"),
        ({"nat_gatway": {"usd": 1}}, "nearest: nat_gateway"),
        ({"m9z.large": {"on_demand": 1}}, "nothing with a price has this name"),
        (
            {"inf2.xlarge": {"usd": 1}},
            "prices.inf2.xlarge.usd: inf2.xlarge has no such price; given: usd; allowed: on_demand, spot",
        ),
        ({"nat_gateway": {"spot": 1}}, "prices.nat_gateway.spot: nat_gateway has no such price; given: spot; allowed: usd"),
        ({"inf2.xlarge": {}}, "the price is missing"),
    ],
)
def test_a_price_that_fits_no_name_is_refused(own: dict[str, Any], expected: str):
    prices = {name: OwnPrice(source="test", **row) for name, row in own.items()}
    said = "\n".join(map(str, price_faults(prices, ("prices",), catalog_only=True)))
    assert expected in said


@pytest.mark.parametrize("usd", [0, -1, 1000.01, float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("key", [*CAPACITIES, "usd"])
def test_no_price_is_free_negative_endless_or_absurd(key: str, usd: float):
    with pytest.raises(SpecError, match=key):
        OwnPrice(source="test", **{key: usd})


def test_a_price_needs_a_source():
    with pytest.raises(SpecError, match="source: this key is required"):
        OwnPrice.model_validate({"usd": 1})


# -- a file of prices -----------------------------------------------------------------------------------------------------------


def written(folder: Path, text: str) -> Path:
    file = folder / "prices.yaml"
    file.write_text(text)
    return file


def test_a_file_has_prices_by_region(tmp_path: Path):
    text = """
us-east-2:
  trn2.48xlarge: {reserved: 35.76, source: "capacity block of 14 days"}
  m8i.large: {on_demand: 0.1, source: a type that the catalog lacks}
eu-west-1:
  nat_gateway: {usd: 1, source: private price list}
"""
    own = PriceBook((read_price_file(written(tmp_path, text)),))
    block, newer, nat = (
        own.instance("trn2.48xlarge", "us-east-2", "reserved"),
        own.instance("m8i.large", "us-east-2"),
        own.service("nat_gateway", "eu-west-1"),
    )
    assert block
    assert newer
    assert nat
    assert (block.usd, newer.usd, nat.usd) == (35.76, 0.1, 1)


def test_everything_wrong_in_a_file_is_told_at_once_by_line(tmp_path: Path):
    text = """us-west-2:
  inf2.9xlarge: {on_demand: 1, source: a size that EC2 does not sell}
  m5.large: {on_demand: "1", source: a number in quotes}
  m5.xlarge: {on_demand: 0, sourc: abc}
  m5.2xlarge: 3
  c9i.large: {usd: 1, source: a type has no usd}
  natgateway: {usd: 1, source: misspelt}
us-wst-2: {}
us-east-1: 3
us-iso-east-1: {}
"""
    path = written(tmp_path, text)
    file = str(path)
    with pytest.raises(ProblemsFound) as raised:
        read_price_file(path)
    assert [(problem.file, problem.line, problem.key, problem.message) for problem in raised.value.problems] == [
        (file, 2, "us-west-2.inf2.9xlarge", "nothing with a price has this name"),
        (file, 3, "us-west-2.m5.large.on_demand", "should be a number"),
        (file, 4, "us-west-2.m5.xlarge.on_demand", "should be greater than 0.0"),
        (file, 4, "us-west-2.m5.xlarge.source", "this key is required and missing"),
        (file, 4, "us-west-2.m5.xlarge.sourc", "unknown key"),
        (file, 5, "us-west-2.m5.2xlarge", "a price is a mapping"),
        (file, 6, "us-west-2.c9i.large.usd", "c9i.large has no such price"),
        (file, 7, "us-west-2.natgateway", "nothing with a price has this name"),
        (file, 8, "us-wst-2", "no AWS region has this name"),
        (file, 9, "us-east-1", "a region has prices by name"),
        (file, 10, "us-iso-east-1", "this library does not know the partition of this region"),
    ]
    assert all(problem.given or problem.allowed or problem.hint for problem in raised.value.problems)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- 1", "prices must be a mapping"),
        ("", "prices must be a mapping"),
        ("a: [", "not valid YAML"),
        ("x: .nan", "no such number"),
    ],
)
def test_a_file_that_is_no_mapping_is_told(tmp_path: Path, text: str, message: str):
    with pytest.raises(ProblemsFound, match=message):
        read_price_file(written(tmp_path, text))


def test_a_missing_file_is_told(tmp_path: Path):
    with pytest.raises(ProblemsFound, match="cannot be read"):
        read_price_file(tmp_path / "none.yaml")


@given(st.dictionaries(st.sampled_from(sorted(services())), USD, max_size=5))
def test_a_file_of_services_is_read_as_it_is(tmp_path_factory: pytest.TempPathFactory, own: dict[str, float]):
    rows = "".join(f"  {name}: {{usd: {usd!r}, source: test}}\n" for name, usd in own.items())
    text = f"us-west-2:\n{rows}" if own else "us-west-2: {}\n"
    found = read_price_file(written(tmp_path_factory.mktemp("prices"), text))
    assert {name: one.usd for name, one in found["us-west-2"].items()} == own
