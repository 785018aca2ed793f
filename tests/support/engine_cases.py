"""Servers that are drawn, what our rules say of each, and what vLLM's own start-up code says (``refresh/engine/judge.py``)."""

import copy
import json
import os
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from eks_inference.catalog.architectures import architectures
from eks_inference.catalog.engines import engine
from eks_inference.catalog.instances import InstanceType, instance_type
from eks_inference.catalog.models import POOLING, find_model, models
from eks_inference.catalog.vllm_arguments import vllm_releases
from eks_inference.faults import SpecError
from eks_inference.rules import Judgement, Rule
from eks_inference.serving.facts import ServingFacts
from eks_inference.serving.kind import Kind
from eks_inference.serving.memory import MemoryUse, server_memory
from eks_inference.serving.prefill_decode.plan import as_server
from eks_inference.serving.prefill_decode.spec import ROLES, PrefillDecodeSpec
from eks_inference.serving.triton.kind import KIND as TRITON
from eks_inference.serving.vllm.kind import KIND as VLLM
from eks_inference.serving.vllm.spec import VllmServerSpec
from eks_inference.stack.spec import StackSpec
from eks_inference_tools.cost.price_book import PriceBook
from eks_inference_tools.fitting.search import Wish, search
from eks_inference_tools.fitting.trials import ACCELERATED, Trial, rules_of, site_on
from known_pairs import Pair
from model_configs import CLASSES, config_of
from refresh.engine.checkpoints import CHECKPOINTS
from refresh.towers import beside

ROOT = Path(__file__).parents[2]
CONFIGS = ROOT / "tests" / "data" / "model_configs"

RELEASE = os.environ.get("RELEASE") or "cuda-vllm-0.30"
"""The profile of the release that is asked. Without a choice: of the one that `make engine` installs."""
TYPES = (
    *("g4dn.xlarge", "g4dn.12xlarge", "g5.xlarge", "g5.12xlarge", "g5.48xlarge", "g6.xlarge", "g6.12xlarge", "g6.48xlarge"),
    *("g6e.xlarge", "g6e.12xlarge", "g6e.48xlarge", "p4d.24xlarge", "p4de.24xlarge", "p5.48xlarge", "p5en.48xlarge"),
    *("p6-b200.48xlarge", "g7e.2xlarge", "g7e.48xlarge"),
)
"""Machines with one, four and eight GPUs of each compute capability that EC2 has."""
FAMILIES = tuple(dict.fromkeys(one.partition(".")[0] for one in TYPES))


@dataclass(frozen=True)
class Asked:
    """A server on a machine, with the config.json of its model."""

    id: str
    config: Mapping[str, Any]
    on: str
    keys: Mapping[str, Any]
    engine: str = RELEASE
    given: VllmServerSpec | None = None
    """In place of ``keys``: a server that is made already."""

    @cached_property
    def machine(self) -> InstanceType:
        return instance_type(self.on)

    @cached_property
    def spec(self) -> Any:
        if self.given:
            return self.given
        model = {"id": f"acme/{self.id}", "shape": dict(self.config), "gated": False}
        disk = {"disk_gib": 1900} if self.kind is VLLM else {"cache": {"kind": "ephemeral", "size_gib": 1900}}
        ours = {"model": model, "engine": self.engine, "pool": ACCELERATED, **disk}
        return self.kind.spec.model_validate({"max_num_seqs": 8, **ours, **self.keys})

    @property
    def kind(self) -> Kind:
        return {kind.spec.engine_servers[0]: kind for kind in (VLLM, TRITON)}[engine(self.engine).server]

    @property
    def devices(self) -> int:
        return self.spec.devices or self.machine.devices

    @cached_property
    def _subjects(self) -> tuple[object, ...]:
        return tuple(self.kind.facts("server", self.spec, site_on(self.machine)))

    @cached_property
    def ours(self) -> "Ours":
        try:
            subjects = self._subjects
        except (ValidationError, SpecError) as error:
            return Ours("refused", {"spec": str(error)})
        refused, unjudged = {}, {}
        for rule, place in rules_of(tuple(type(subject) for subject in subjects)):
            for judgement in rule.judge(subjects[place]):
                if judgement.unjudged:
                    unjudged[rule.id] = judgement.message
                elif not judgement.holds and _severity(rule, judgement) == "error":
                    refused[rule.id] = judgement.message
        memory = next((server_memory(subject) for subject in subjects if isinstance(subject, ServingFacts)), None)
        if refused:
            return Ours("refused", refused, memory)
        return Ours("not judged" if unjudged or memory is None else "can run", unjudged, memory)

    def case(self, folder: Path) -> dict[str, Any]:
        """What the engine is asked; its folder of the model is written."""
        place = folder / self.id
        given = next(subject.arguments[1:] for subject in self._subjects if isinstance(subject, ServingFacts))
        place.mkdir(parents=True, exist_ok=True)
        (place / "config.json").write_text(json.dumps(self.config))
        if "vision_config" in self.config:
            (place / "preprocessor_config.json").write_text(json.dumps(beside(self.config)["picture"]))
        return {
            "id": self.id,
            "gpu": {
                "name": f"NVIDIA {self.machine.chip}",  # by which vLLM knows A100
                "capability": list(self.machine.compute_capability or ()),
                "mib": int(self.machine.memory_per_core_gib * 1024),
                "count": self.devices,
            },
            # The only key of Triton's that is no flag of `vllm serve`.
            "args": [str(place), *(one for one in given if one != "--no-disable-log-stats")],
            "env": dict(self.spec.extra_env),
        }


def _severity(rule: Rule[Any], one: Judgement) -> str:
    return one.severity or rule.severity


@dataclass(frozen=True)
class Ours:
    """The verdict, and the reasons by the id of the rule."""

    says: str
    why: Mapping[str, str] = field(default_factory=dict)
    memory: MemoryUse | None = None


@cache
def configs() -> dict[str, dict[str, Any]]:
    """The config.json of every model: as published, or made of its shape."""
    found = {name: config_of(model) for name, model in models().items()}
    found |= {file.stem: json.loads(file.read_text("utf-8")) for file in sorted(CONFIGS.glob("*.json"))}
    for one in found.values():  # without its class, the engine builds a model that has no output layer
        one.setdefault("architectures", [CLASSES[one["model_type"]]])
    return found


def advised() -> Iterator[Asked]:
    """What `plan` advises first for every model of the catalog, on each family of GPUs."""
    for name, model in models().items():
        for family in FAMILIES:
            wish = Wish({"id": model.repositories[0]}, model, "us-west-2", min(model.max_positions, 8192), families=(family,))
            for row in search(wish, PriceBook()).first_of_types[:1]:
                yield _tried(f"{name}-{family}", configs()[name], row.trial)


def known(pair: Pair) -> Asked:
    """One that somebody ran, published as running, or failed to run."""
    assert pair.asked
    assert pair.known
    config = configs()[pair.known.name] if pair.shape is None else {**pair.shape, **config_of(pair.known)}
    return _tried(re.sub(r"[^\w.]+", "-", pair.key), config, pair.asked)


def _tried(id_: str, config: Mapping[str, Any], trial: Trial) -> Asked:
    server = {key: value for key, value in (trial.server or {}).items() if key not in PLACED}
    # A decoder that makes embeddings has the config.json of one that chats.
    task = {"task": trial.model.task} if trial.model.task in POOLING else {}
    return Asked(id_, config, trial.instance.name, {**server, **task}, trial.engine.name)


def shipped() -> Iterator[Asked]:
    """The servers of vLLM on GPUs in the stacks of this repository, where their release is the one that is asked."""
    for stack in (ROOT / "tests" / "stacks.txt").read_text("utf-8").split():
        config = yaml.safe_load((ROOT / "stacks" / f"Pulumi.{stack}.yaml").read_text("utf-8"))["config"]
        spec = StackSpec.model_validate(config["eks-inference:stack"])
        for name, server in spec.servers.items():
            for one, made in _plain(spec, name, server):
                if made.profile.nvidia and made.profile.vllm == engine(RELEASE).vllm:
                    model = find_model(made.model.id)
                    assert model, made.model.id
                    yield Asked(f"{stack}-{one}", configs()[model.name], _type_of(spec, made), {}, given=made)


def _plain(spec: StackSpec, name: str, server: object) -> Iterator[tuple[str, VllmServerSpec]]:
    """A server as a plain one of vLLM, or one for each role."""
    if isinstance(server, VllmServerSpec):
        yield name, server
    elif isinstance(server, PrefillDecodeSpec):
        for role in ROLES:
            shape = instance_type(_type_of(spec, server.role(role)))
            yield f"{name}-{role}", as_server(name, server, role, shape)


def _type_of(spec: StackSpec, placed: Any) -> str:
    return placed.instance_type or spec.pools[placed.pool].instance_types[0]


PLACED = ("kind", "model", "engine", "pool", "disk_gib")


def drawn(seed: int, count: int) -> Iterator[Asked]:
    """Draws servers of published models and of smaller ones like them, quantized or not, split and set up in all ways."""
    draw = random.Random(seed)
    published = configs()
    for number in range(count):
        on, name = draw.choice(TYPES), draw.choice(sorted(published))
        config = _varied(draw, published[name])
        yield Asked(f"{seed}-{number}-{name}", config, on, _keys(draw, config, instance_type(on).devices))


_OF_EACH_LAYER = ("layer_types", "hybrid_override_pattern", "hybrid_layer_pattern", "moe_layer_freq")


def _varied(draw: random.Random, published: Mapping[str, Any]) -> dict[str, Any]:
    config = copy.deepcopy(dict(published))
    config.pop("auto_map", None)
    text = config.get("text_config", config)
    # Repositories say it; files that were copied for tests may not, and defaults depend on the release of transformers.
    config.setdefault("tie_word_embeddings", architectures()[text["model_type"]].tied)
    if draw.random() < 0.7 and "encoder_layers" not in text:
        # A model that fits small machines, and a case that takes a second.
        listed = [key for key in _OF_EACH_LAYER if isinstance(text.get(key), list | str)]
        # The last layer of Gemma 4 attends to everything, whatever its file says.
        layers = 6 if text["model_type"] == "gemma4_text" else draw.choice((6, 8))
        text["num_hidden_layers"] = layers
        text.update({key: text[key][:layers] for key in listed})
        if "max_window_layers" in text:
            text["max_window_layers"] = layers
        if "first_k_dense_replace" in text:
            text["first_k_dense_replace"] = 1
    if draw.random() < 0.3 and "intermediate_size" in text:
        text["intermediate_size"] = draw.choice((4864, 5632, 8960, 9728, 11008, 13824, 14336, 29568))
    if draw.random() < 0.5 and "quantization_config" not in config and text is config:
        how = CHECKPOINTS[draw.choice(sorted(CHECKPOINTS))]
        config["quantization_config"] = copy.deepcopy(dict(how))
        if draw.random() < 0.5:
            config["torch_dtype"] = draw.choice(("float16", "bfloat16"))
    return config


def _keys(draw: random.Random, config: Mapping[str, Any], devices: int) -> dict[str, Any]:
    """One or two things that are not usual: with more, nearly all are refused, each for several reasons."""
    text = config.get("text_config", config)
    degree = draw.choice([one for one in (1, 2, 4, 8) if one <= devices])
    length = min(draw.choice((1024, 2048, 4096)), text.get("max_target_positions", 4096))
    keys: dict[str, Any] = {"tensor_parallel": degree, "max_model_len": length}
    extra: dict[str, Any] = {}
    ranks = degree
    for what in draw.sample(
        ("dtype", "weights", "kv", "split", "experts", "adapters", "length", "flag", "flag"), draw.choice((1, 1, 2))
    ):
        match what:
            case "dtype":
                keys["dtype"] = draw.choice(("bfloat16", "float16"))
            case "weights":
                keys["quantized_weights"] = "fp8"
            case "kv":
                keys["quantized_kv"] = "fp8"
            case "split":
                way = draw.choice(SPLITS)
                extra[way] = draw.choice((2, 4, 8))
                if way != "decode-context-parallel-size":
                    ranks *= extra[way] if draw.random() < 0.9 else 1
            case "experts":
                extra["enable-expert-parallel"] = True
            case "adapters":
                extra |= {"enable-lora": True, "max-loras": draw.choice((1, 2, 8)), "max-lora-rank": draw.choice((8, 64, 256))}
            case "length":
                keys["max_model_len"] = text.get("max_position_embeddings", 2048) * draw.choice((1, 1, 2))
            case "flag":
                flag = draw.choice(sorted(name for name in FLAGS if _has(name)))
                extra[flag] = draw.choice(FLAGS[flag])
    keys["devices"] = min(ranks, devices)
    return {**keys, **({"extra_args": extra} if extra else {})}


def _has(flag: str) -> bool:
    """Whether the release that is asked is told the flag: Triton gives those of vLLM's engine."""
    keys = vllm_releases()[engine(RELEASE).vllm].keys
    return not keys or flag.replace("-", "_") in keys


SPLITS = ("pipeline-parallel-size", "data-parallel-size", "decode-context-parallel-size", "prefill-context-parallel-size")

FLAGS: Mapping[str, Sequence[Any]] = {
    "block-size": (8, 16, 24, 32, 64, 128),
    "max-num-batched-tokens": (256, 1024, 8192),
    "enable-chunked-prefill": (False,),
    "enable-prefix-caching": (False,),
    "gpu-memory-utilization": (0.6, 0.95),
    "attention-backend": ("FLASHINFER", "FLASH_ATTN", "TRITON_ATTN", "FLASHMLA", "FLEX_ATTENTION"),
    "kv-cache-dtype": ("fp8_e5m2", "fp8_e4m3", "nvfp4", "int8"),
    "speculative-config": (
        {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 4},
        {"method": "mtp", "num_speculative_tokens": 1},
    ),
    "disable-sliding-window": (True,),
    "cpu-offload-gb": (4,),
    "enforce-eager": (True,),
    "async-scheduling": (True, False),
    "tool-call-parser": ("hermes", "nonsense"),
    "linear-backend": ("marlin", "cutlass", "humming"),
    "moe-backend": ("triton", "marlin", "cutlass"),
    "hf-overrides": ({"max_position_embeddings": 65536},),
    "load-format": ("runai_streamer", "fastsafetensors", "dummy"),
}
"""Flags that change whether an engine starts, with values that some servers take."""
