"""The schema for editors: values of the catalog with their descriptions, and nothing that a stack file may not say."""

import json
from collections.abc import Iterator
from typing import Any, get_args

import pytest

from eks_inference.catalog import described
from eks_inference.catalog.own import rows_of
from eks_inference.catalog.tables import Own, use
from eks_inference.cluster.spec import Version
from eks_inference.specs.base import LISTED
from eks_inference.specs.validation import schema_of
from eks_inference.stack.schema import ALSO, CLOSED, VALUES, stack_file_schema
from eks_inference.stack.spec import StackSpec

OURS = b"""
[models.Ours]
source = "config.json of ours/llm"
read = "2026-11"
repositories = ["ours/llm"]
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


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    use(Own(), of_stack=True)
    return stack_file_schema()


def places(of: Any, at: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(of, dict):
        yield at, of
        for key, each in of.items():
            yield from places(each, f"{at}/{key}")
    elif isinstance(of, list):
        for number, each in enumerate(of):
            yield from places(each, f"{at}/{number}")


def offered(schema: dict[str, Any], kind: str) -> dict[str, str]:
    of = schema["$defs"][kind]
    return {one["const"]: one["description"] for one in (of if kind in CLOSED else of["anyOf"][0])["oneOf"]}


@pytest.mark.parametrize("kind", VALUES)
def test_each_value_has_a_description_of_one_line(schema, kind):
    values = offered(schema, kind)
    assert values == VALUES[kind]()
    assert all(told and "\n" not in told for told in values.values())


@pytest.mark.parametrize("kind", [kind for kind in VALUES if kind not in CLOSED])
def test_other_values_stay_allowed(schema, kind):
    last = schema["$defs"][kind]["anyOf"][1]
    assert last == ({"$ref": f"#/$defs/{ALSO[kind]}"} if kind in ALSO else {"type": "string"})


def test_the_closed_kind_is_what_a_spec_takes(schema):
    assert tuple(offered(schema, "KubernetesVersion")) == get_args(Version)
    assert "enum" not in schema["$defs"]["ClusterSpec"]["properties"]["version"]


def test_every_mark_of_a_spec_is_a_reference_and_every_kind_is_used(schema):
    marked = {place[LISTED] for _, place in places(schema_of(StackSpec)) if LISTED in place}  # pyright: ignore[reportArgumentType]
    assert marked == VALUES.keys() - {"Region"}
    used = {place["$ref"].rpartition("/")[2] for _, place in places(schema) if "$ref" in place}
    assert used == schema["$defs"].keys()
    assert LISTED not in json.dumps(schema)


def test_where_values_are_offered(schema):
    found = {at for at, place in places(schema) if place.get("$ref") == "#/$defs/InstanceType"}
    assert "/$defs/ManagedPoolSpec/properties/instance_types/items" in found
    assert "/$defs/VllmServerSpec/properties/instance_type/anyOf/0" in found
    assert "/$defs/RayWorkerSpec/properties/instance_type" in found
    assert schema["properties"]["config"]["properties"]["aws:region"]["$ref"] == "#/$defs/Region"


def test_the_kinds_of_images_are_described(schema):
    for name in ("ReleaseAmi", "ImageIdAmi", "SsmParameterAmi"):
        kind = schema["$defs"][name]["properties"]["kind"]
        assert kind["description"]
        assert kind["description"] in " ".join(schema["$defs"][name]["description"].split())


def test_descriptions_tell_what_tells_one_from_the_next():
    assert described.instance_lines()["inf2.48xlarge"] == (
        "12 x Inferentia2 of 32 GiB, 24 NeuronCores; 192 vCPU, 768 GiB; no EFA"
    )
    assert described.instance_lines()["m5.large"] == "no accelerator, x86_64; 2 vCPU, 8 GiB; no EFA"
    assert "reservation" in described.instance_lines()["trn2.48xlarge"]
    assert described.engine_lines()["neuron-2.18-vllm-0.3"].startswith("retired: ")
    assert "caveat: " in described.engine_lines()["neuron-2.32-vllm-0.24"]
    gated = {name for name, told in described.repository_lines().items() if "gated" in told}
    assert "meta-llama/Meta-Llama-3-8B" in gated
    assert "NousResearch/Meta-Llama-3-8B" not in gated
    assert described.region_lines()["af-south-1"] == "3 zones; g4dn"
    assert "inf2" in described.zone_lines()["usw2-az1"]


def test_rows_of_a_team_are_offered_too():
    use(rows_of({"ours.toml": OURS}), of_stack=True)
    try:
        assert "ours/llm" in offered(stack_file_schema(), "Repository")
    finally:
        use(Own(), of_stack=True)
    assert "ours/llm" not in offered(stack_file_schema(), "Repository")
