"""Servers of models that see: what towers and pictures take, which media come in, and from where."""

import json
from pathlib import Path
from typing import Any

import pytest

from eks_inference.catalog.architectures import towers
from eks_inference.catalog.config_json import model_of_config
from eks_inference.catalog.engines import engine
from eks_inference.catalog.instances import instance_type
from eks_inference.catalog.models import model
from eks_inference.faults import SpecError
from eks_inference.serving.features import NOWHERE, most, sees
from eks_inference.serving.flags import only_lengths
from eks_inference.serving.memory import GIB, MemoryUse
from eks_inference.serving.memory_settings import memory_settings
from eks_inference.serving.rules.any_accelerator import memory
from eks_inference.serving.traffic import TrafficSpec
from eks_inference.serving.triton.rules import triton_facts
from eks_inference.serving.triton.spec import TritonServerSpec
from eks_inference.serving.vllm.spec import VllmServerSpec
from eks_inference.speed.rules import TrafficFacts
from eks_inference.speed.takes import Takes
from eks_inference.stack.facts import stack_facts
from eks_inference.stack.reading import parse_stack
from handles import placement
from refresh.towers import configs

ROOT = Path(__file__).parents[2]

VLLM = engine("cuda-vllm-0.30")
LIMITS = '--limit-mm-per-prompt={"image": %d, "video": %d}'


def server(id_: str = "Qwen/Qwen3-VL-8B-Instruct", **keys: Any) -> VllmServerSpec:
    ours = {"model": {"id": id_}, "engine": VLLM.name, "pool": "gpu", "tensor_parallel": 1}
    return VllmServerSpec.model_validate({**ours, "max_num_seqs": 8, "max_model_len": 32768, **keys})


def use(id_: str, tensor_parallel: int = 1, *arguments: str) -> MemoryUse:
    settings = memory_settings(VLLM, arguments, {})
    assert settings
    return MemoryUse(model(id_), instance_type("g6e.12xlarge"), VLLM, tensor_parallel, 1, 32768, settings)


def terms(found: MemoryUse) -> dict[str, float]:
    assert found.reserved
    return {term.what: term.size / GIB for term in found.reserved.terms}


@pytest.mark.parametrize(("id_", "reaches"), [("Qwen/Qwen3-8B", True), ("Qwen/Qwen3-VL-8B-Instruct", False)])
def test_lengths_of_a_model_that_sees_stand_in_its_text_config(id_: str, reaches: bool) -> None:
    length = {"max_position_embeddings": 4096}
    assert only_lengths(model(id_), [f"--hf-overrides={json.dumps(length)}"]) is reaches
    assert only_lengths(model(id_), [f"--hf-overrides={json.dumps({'text_config': length})}"])


def test_pictures_through_triton_are_not_judged():
    ours = {"engine": "triton-26.08-vllm-0.27", "pool": "gpu", "max_model_len": 8192}
    for id_, more, told in (
        ("Qwen/Qwen2.5-VL-7B-Instruct", {}, True),
        ("Qwen/Qwen2.5-VL-7B-Instruct", {"extra_args": {"language-model-only": True}}, False),
        ("Qwen/Qwen3-8B", {}, False),
    ):
        spec = TritonServerSpec.model_validate({"model": {"id": id_}, **ours, **more})
        found = list(memory(triton_facts(spec, placement("g6e.xlarge")).serving))
        assert any(judgement.unjudged and judgement.unjudged.what == "pictures" for judgement in found) == told


def test_every_tower_is_that_of_a_model_and_is_found_again_in_its_config_json():
    there = dict(configs())
    for name, tower in towers().items():
        assert model_of_config(name, there[name]).tower == tower
        assert model(name).tower == tower or name not in there


def test_a_tower_is_split_as_the_engine_splits_it():
    """vLLM 0.30.0, over one and two GPUs on the meta device."""
    tower = towers()["Qwen3-VL-8B"]
    for parts in (1, 2, 4):
        found = use("Qwen3-VL-8B", parts)
        text = use("Qwen3-8B", parts)
        tables = (4 * 262144 - 40960) * 128 * 2  # rotary positions
        assert found.weights - text.weights - tables == pytest.approx(2 * (tower.divided / parts + tower.whole), abs=2)


def test_an_unknown_tower_is_not_counted_and_said_so():
    config = dict(dict(configs())["Qwen3-VL-8B"])
    config["vision_config"] = {**config["vision_config"], "depth": 48}
    found = model_of_config("theirs", config)
    assert (found.tower, found.uncounted, found.sees) == (None, ("vision tower",), True)


def test_the_engine_makes_room_for_the_largest_of_what_a_prompt_may_have():
    """A video of Qwen2.5-VL has as many tokens as fit the model's length, a picture 16384."""
    both, pictures = (use("Qwen2.5-VL-7B", 1, LIMITS % (2, videos)) for videos in (1, 0))
    assert terms(both)["pictures"] == pytest.approx(32768 * 3584 * 2 / GIB)
    assert terms(pictures)["pictures"] == pytest.approx(16384 * 3584 * 2 / GIB)
    assert terms(both)["tower at work"] > 1.9 * terms(pictures)["tower at work"] > 3
    for flag in ("--skip-mm-profiling", '--mm-processor-kwargs={"max_pixels": 1003520}'):
        assert terms(use("Qwen2.5-VL-7B", 1, flag)).get("tower at work", 0) < 1


def test_layers_that_get_pictures_too_have_embeddings_of_their_own():
    found = use("Qwen3-VL-8B", 1, "--max-num-batched-tokens=2048")
    assert terms(found)["pictures"] == pytest.approx((16384 * 4 + 2048 * 3) * 4096 * 2 / GIB)


@pytest.mark.parametrize(
    ("arguments", "media"),
    [((), True), ((LIMITS % (1, 0),), True), ((LIMITS % (0, 0),), False), (("--language-model-only",), False)],
)
def test_no_media_no_tower(arguments: tuple[str, ...], media: bool):
    assert sees(arguments, model("Qwen3-VL-8B")) == media
    assert bool(most(arguments, "image")) == media
    assert most(('--limit-mm-per-prompt={"image": {"count": 3, "width": 512}}',), "image") == 3


def test_a_server_fetches_from_nowhere_unless_domains_are_named():
    def flags(**keys: Any) -> str:
        return " ".join(server(**keys).engine_flags)

    assert f"--allowed-media-domains {NOWHERE}" in flags()
    assert flags(allowed_media_domains=["a.example.com", "b.example.com"]).endswith("a.example.com b.example.com")
    assert NOWHERE not in flags(extra_args={"allowed-media-domains": ["c.example.com"]})
    assert "allowed-media-domains" not in flags(id_="Qwen/Qwen3-8B")
    assert LIMITS % (2, 0) in flags(limit_mm_per_prompt={"image": 2, "video": 0})


@pytest.mark.parametrize("keys", [{"limit_mm_per_prompt": {"image": 1}}, {"allowed_media_domains": ["a.example.com"]}])
def test_a_model_of_texts_has_no_keys_of_media(keys: dict[str, Any]):
    with pytest.raises(SpecError, match=f"{next(iter(keys))}: Qwen/Qwen3-8B takes texts alone"):
        server("Qwen/Qwen3-8B", **keys)


@pytest.mark.parametrize("domain", ["169.254.169.254", "https://a.example.com", "localhost", "A.example.com", "a.example.com/x"])
def test_a_domain_is_the_name_of_a_host(domain: str):
    with pytest.raises(SpecError, match="allowed_media_domains"):
        server(allowed_media_domains=[domain])


def test_pictures_of_requests_are_tokens_of_prompts():
    asked = TrafficSpec(rate=1, input_tokens=100, output_tokens=50, pictures=1.5, picture_size="1920x1080")
    tower = model("Qwen3-VL-8B").tower
    assert tower
    assert asked.with_tokens_of_pictures(tower.tokens(asked.picture_size)).input_tokens == 100 + 3 * 2040 // 2
    assert tower.tokens("largest") == 16384


@pytest.mark.parametrize(("id_", "asked"), [("Qwen/Qwen3-VL-8B-Instruct", 100 + 2 * 1024), ("Qwen/Qwen3-8B", None)])
def test_a_server_takes_the_prompts_with_their_pictures(id_: str, asked: int | None):
    traffic = {"rate": 1, "input_tokens": 100, "output_tokens": 50, "pictures": 2}
    chat = {"model": {"id": id_}, "engine": VLLM.name, "max_num_seqs": 8, "max_model_len": 8192, "traffic": traffic}
    given = {
        "name": "seeing",
        "network": {"zone_ids": ["usw2-az1", "usw2-az2"]},
        "pools": {"gpu": {"kind": "karpenter", "instance_types": ["g6e.xlarge"]}},
        "servers": {"chat": chat},
    }
    (facts,) = (one for one in stack_facts(parse_stack(json.dumps(given), ROOT), "us-west-2") if isinstance(one, TrafficFacts))
    found = facts.found
    if asked is None:
        assert found == "how many tokens Qwen3-8B makes of a picture is unknown, or it takes none"
    else:
        assert isinstance(found, Takes)
        assert found.traffic.input_tokens == asked
