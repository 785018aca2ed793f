"""The lists of the catalog: models, engines, instances."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from cases import thorough_but
from eks_inference.catalog.engines import engine, engines
from eks_inference.catalog.instances import instance_type, instance_types
from eks_inference.catalog.models import models
from eks_inference.catalog.tables import Own, use
from eks_inference.catalog.zones import regions, zone_ids
from eks_inference.serving.choosing import engines_for
from eks_inference_tools.cli import main
from eks_inference_tools.cost.price_book import PriceBook
from eks_inference_tools.listing.instance_list import instances
from golden import assert_golden

OURS = """
[models."Our-7B"]
source = "config.json of ours/our-7b"
read = "2026-11"
repositories = ["ours/our-7b"]
architecture = "llama"
dtype = "bfloat16"
hidden = 4096
layers = 32
heads = 32
kv_heads = 8
head_dim = 128
mlp = 14336
vocabulary = 128256
max_positions = 8192
"""


@pytest.fixture(autouse=True)
def own_rows_of_nobody():
    use(Own(), of_stack=True)
    yield
    use(Own(), of_stack=True)


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["list", *arguments]) == 0
    return capsys.readouterr().out


def listed(capsys: pytest.CaptureFixture[str], command: str, *arguments: str) -> list[dict[str, Any]]:
    return json.loads(said(capsys, command, *arguments, "--format", "json"))[command]


def names(capsys: pytest.CaptureFixture[str], command: str, *arguments: str) -> list[str]:
    return [row["name"] for row in listed(capsys, command, *arguments)]


# -- what is there ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("command", "every"), [("models", models), ("engines", engines), ("instances", instance_types)])
def test_without_a_filter_every_row_is_there_with_its_source_and_date(capsys, command, every):
    rows = listed(capsys, command)
    assert [row["name"] for row in rows] == list(every())
    assert all(row["source"] and row["read"] for row in rows)
    text = said(capsys, command)
    assert text.startswith(f"{len(rows)} ")
    # In a pipe each row is one line, however long.
    shown = [line for line in text.splitlines() if line.partition(" ")[0] in every()]
    assert len(shown) == len(rows)


def test_an_instance_type_has_the_facts_of_the_catalog(capsys):
    (row,) = listed(capsys, "instances", "trn1n.32xlarge", "--region", "us-west-2")
    one = instance_type("trn1n.32xlarge")
    assert (row["devices"], row["memory_gib"], row["neuron_cores"]) == (16, 512, 32)
    assert (row["vcpus"], row["efa_interfaces"]) == (one.vcpus, one.efa_interfaces)
    assert row["zones"] == list(zone_ids("us-west-2", "trn1n"))
    assert row["usd_per_hour"] == 24.78
    assert row["price_kind"] == "on demand"
    assert row["price_source"]


def test_a_price_says_its_kind(capsys, tmp_path):
    prices = tmp_path / "prices.yaml"
    prices.write_text("us-east-1:\n  inf2.xlarge: {on_demand: 0.5, source: an invoice}\n")
    rows = {row["name"]: row for row in listed(capsys, "instances", "--prices", str(prices))}
    (block,) = listed(capsys, "instances", "trn2.48xlarge", "--region", "us-east-2")
    assert rows["inf2.xlarge"]["price_kind"] == "own"
    assert rows["inf2.xlarge"]["usd_per_hour"] == 0.5
    assert rows["inf2.8xlarge"]["price_kind"] == "on demand"
    assert block["price_kind"] == "block"
    assert "capacity block" in block["price_notes"][0]


def test_a_model_tells_its_sizes_and_who_serves_it(capsys):
    row, *_ = listed(capsys, "models", "Qwen3-32B")  # and its quantizations
    one = models()["Qwen3-32B"]
    assert (row["parameters"], row["weight_bytes"]) == (one.parameters, one.weight_bytes())
    assert row["kv_bytes_per_token"] == 64 * 8 * 2 * 128 * 2
    served = {each.name for type_ in instance_types().values() for each in engines_for(type_, one, kind="prefill_decode")}
    assert set(row["engines"]) == served | {"cuda-vllm-0.33", "neuron-2.33-vllm-0.29"}, "on request only"


def test_an_engine_tells_its_status_and_why(capsys):
    rows = {row["name"]: row for row in listed(capsys, "engines")}
    assert rows["neuron-2.18-vllm-0.3"]["status"] == "retired"
    assert rows["neuron-2.32-vllm-0.24"]["status"] == "caveat"
    assert rows["cuda-vllm-0.30"]["status"] == "usable"
    text = said(capsys, "engines", "neuron-2.18")
    assert f"retired: {engine('neuron-2.18-vllm-0.3').retired}" in text


def test_rows_of_a_team_are_listed_too(capsys, tmp_path: Path):
    ours = tmp_path / "ours.toml"
    ours.write_text(OURS)
    assert names(capsys, "models", "our-7b", "--catalog", str(ours)) == ["Our-7B"]


# -- filters ---------------------------------------------------------------------------------------------------------------------


def test_instance_filters(capsys):
    every = listed(capsys, "instances")
    for arguments, takes in {
        ("g6e",): lambda row: "g6e" in row["name"],
        ("H100",): lambda row: row["chip"] == "H100",
        ("--accelerator", "neuron"): lambda row: row["accelerator"] == "neuron",
        ("--accelerator", "none"): lambda row: row["accelerator"] is None,
        ("--family", "inf2", "g5"): lambda row: row["family"] in ("inf2", "g5"),
        ("--chip", "trainium2"): lambda row: row["chip"] == "Trainium2",
        ("--engine", "neuron-2.32-vllm-0.24"): lambda row: row["family"] in ("trn2", "trn2u"),
        ("--min-memory", "640"): lambda row: row["memory_gib"] >= 640,
        ("--efa",): lambda row: row["efa_interfaces"] > 0,
        ("--under", "1.5"): lambda row: row["usd_per_hour"] is not None and row["usd_per_hour"] <= 1.5,
        ("--efa", "--chip", "l4", "--under", "3"): lambda row: (
            row["efa_interfaces"] and row["chip"] == "L4" and row["usd_per_hour"] <= 3
        ),
    }.items():
        wanted = [row["name"] for row in every if takes(row)]
        assert wanted
        assert names(capsys, "instances", *arguments) == wanted, arguments


def test_instances_in_order(capsys):
    prices = [row["usd_per_hour"] for row in listed(capsys, "instances", "--sort", "price")]
    known = [usd for usd in prices if usd is not None]
    assert prices == sorted(known) + [None] * (len(prices) - len(known))
    memory = [row["memory_gib"] for row in listed(capsys, "instances", "--sort", "memory")]
    assert memory == sorted(memory)


@pytest.mark.parametrize("region", thorough_but(regions()[::8], regions()))
def test_a_region_leaves_out_what_the_catalog_does_not_know_there_and_says_so(region):
    listing = instances(region, PriceBook())
    there = listing.taken()
    assert {row.type.name for row in there.rows} == {
        row.type.name for row in listing.every if zone_ids(region, row.type.name) or row.usd is not None
    }
    assert there.left_out == len(listing.every) - len(there.rows)
    assert ("left out" in listing.text(there, 200)) == bool(there.left_out)
    assert instances(region, PriceBook(), named=False).taken() == (tuple(listing.every), 0)


def test_model_filters(capsys):
    every = listed(capsys, "models")
    for arguments, takes in {
        ("qwen", "30b"): lambda row: row["name"].startswith("Qwen3-") and "30B" in row["name"],
        ("--architecture", "gemma2", "opt"): lambda row: row["architecture"] in ("gemma2", "opt"),
        ("--engine", "neuron-2.32-vllm-0.24"): lambda row: engine("neuron-2.32-vllm-0.24").loads(models()[row["name"]]),
        ("--accelerator", "neuron"): lambda row: any(name.startswith("neuron") for name in row["engines"]),
        ("--open",): lambda row: set(row["repositories"]) - set(row["gated"]),
        ("--min-context", "131072"): lambda row: row["max_positions"] >= 131072,
        ("--max-parameters", "8"): lambda row: row["parameters"] <= 8e9,
    }.items():
        wanted = [row["name"] for row in every if takes(row)]
        assert wanted
        assert names(capsys, "models", *arguments) == wanted, arguments
    sizes = [row["parameters"] for row in listed(capsys, "models", "--sort", "parameters")]
    assert sizes == sorted(sizes)


def test_engine_filters(capsys):
    every = listed(capsys, "engines")
    for arguments, takes in {
        ("nixl",): lambda row: "NixlConnector" in row["kv_connectors"],
        ("--accelerator", "nvidia"): lambda row: row["accelerator"] == "nvidia",
        ("--family", "inf2"): lambda row: "inf2" in row["tensor_parallel"],
        ("--chip", "T4"): lambda row: "g4dn" in row["tensor_parallel"],
        ("--architecture", "qwen3"): lambda row: "qwen3" in row["architectures"],
        ("--instance", "trn2.48xlarge"): lambda row: "trn2" in row["tensor_parallel"],
        ("--model", "Qwen/Qwen3-32B"): lambda row: "qwen3" in row["architectures"],
        ("--status", "usable"): lambda row: not row["caveat"] and not row["retired"],
    }.items():
        wanted = [row["name"] for row in every if takes(row)]
        assert wanted
        assert names(capsys, "engines", *arguments) == wanted, arguments


def test_what_nothing_matches_is_no_error(capsys):
    assert said(capsys, "models", "no-such-thing").startswith(f"0 of {len(models())} models\n")
    assert names(capsys, "models", "no-such-thing") == []


@pytest.mark.parametrize(
    ("arguments", "nearest"),
    [
        (("instances", "--family", "g6x"), "g6"),
        (("instances", "--chip", "Tranium"), "Trainium"),
        (("instances", "--engine", "cuda-vllm-0.31"), "cuda-vllm-0.30"),
        (("models", "--architecture", "qwn3"), "qwen3"),
        (("engines", "--instance", "trn2.49xlarge"), "trn2.48xlarge"),
        (("engines", "--model", "Qwen3-33B"), "Qwen3-32B"),
        (("engines", "--architecture", "lama"), "llama"),
    ],
    ids=" ".join,
)
def test_a_value_that_no_row_has_is_refused_with_the_nearest(capsys, arguments, nearest):
    assert main(["list", *arguments]) == 2
    wrong = capsys.readouterr().err
    assert arguments[1] in wrong
    assert f"given: {arguments[2]}" in wrong
    assert nearest in re.split("nearest: |did you mean ", wrong)[-1]


# -- how it reads ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [("instances", "--family", "inf2", "--region", "us-west-2"), ("models", "Llama-3.1"), ("engines", "neuron-2.28")],
    ids=" ".join,
)
def test_texts(capsys, arguments):
    assert_golden(f"lists/{arguments[0]}.txt", said(capsys, *arguments))


def test_a_narrow_terminal_has_fewer_columns_and_whole_words():
    listing = instances("us-west-2", PriceBook())
    found = listing.taken(wanted={"family": {"inf2"}})
    for width in (70, 80, 100, 120):
        text = listing.text(found, width)
        assert max(map(len, text.splitlines())) <= width
        assert all(row.type.name in text and f"{row.usd:.2f}" in text for row in found.rows)
        assert all(any(line.startswith(f"{row.type.name}  ") for line in text.splitlines()) for row in found.rows)
    assert "no room here for: Neuron, host, disk, zones." in listing.text(found, 80)
    assert text.count("usw2-az4") == len(found.rows)
