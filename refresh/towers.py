"""What models see with: PYTHON is that of an environment with vLLM's wheel for CUDA (`make engine`).

Each config.json with a tower in ``tests/data/model_configs`` is asked about, with four layers of its decoder, on one GPU and two.
"""

import json
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from datetime import date
from pathlib import Path
from typing import Any

from refresh import ROOT
from refresh.engine.asking import answers

FILE = ROOT / "components" / "eks_inference" / "catalog" / "towers.toml"
CONFIGS = ROOT / "tests" / "data" / "model_configs"
BESIDE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
_GPU = {"name": "NVIDIA H100", "capability": (9, 0), "mib": 80 << 10, "count": 2}
_SHORT = {"num_hidden_layers": 4, "num_experts": 8, "num_local_experts": 8}


def table(python: str) -> str:
    seen = {str(_known_by(config)): (name, config) for name, config in reversed([*configs()]) if "vision_config" in config}
    seen = dict(reversed(seen.values()))  # the first of those with the same
    with tempfile.TemporaryDirectory() as folder:
        cases = [_case(Path(folder), name, config, parts) for name, config in seen.items() for parts in (1, 2)]
        found = {answer["id"]: answer for answer in answers(cases, Path(python))}
    lines = [
        "# What models see with. architectures.py loads this file and documents the columns; the rest: refresh/towers.toml.",
        "# Made by: make refresh TABLE=towers",
        "",
        'source = "vllm 0.30.0 (wheel for CUDA), asked on stand-ins for GPUs"',
        f'read = "{date.today():%Y-%m}"',
    ]
    for name, config in seen.items():
        whole, half = (found[f"{name} {parts}"]["sight"] for parts in (1, 2))
        lines += ["", f'["{name}"]', *(f"{key} = {json.dumps(value)}" for key, value in _row(config, whole, half).items())]
    return "\n".join(lines) + "\n"


def _row(config: dict[str, Any], whole: dict[str, Any], half: dict[str, Any]) -> dict[str, Any]:
    vision, further = config["vision_config"], beside(config)
    divided = 2 * (whole["weights"] - half["weights"])
    return {
        **_known_by(config),
        "divided": divided,
        "whole": whole["weights"] - divided,
        "levels": 1 + len(vision.get("deepstack_visual_indexes", ())),
        "activation_bytes": further["activation_bytes"],
        "pictures": list(whole["tokens"].values()),
        "video": further.get("video", 0),
    }


def beside(config: Mapping[str, Any]) -> dict[str, Any]:
    """What cannot be asked about the models of an architecture."""
    return BESIDE[config["model_type"].removesuffix("_moe")]


def _known_by(config: dict[str, Any]) -> dict[str, Any]:
    return {
        "architecture": config["model_type"],
        "vision": [[key, config["vision_config"][key]] for key in beside(config)["vision"]],
        "hidden": config.get("text_config", config)["hidden_size"],
    }


def configs() -> Iterator[tuple[str, dict[str, Any]]]:
    for name, row in tomllib.loads((CONFIGS / "index.toml").read_text("utf-8")).items():
        yield name, row.get("config") or json.loads((CONFIGS / f"{name}.json").read_text("utf-8"))


def _case(folder: Path, name: str, config: dict[str, Any], parts: int) -> dict[str, Any]:
    place = folder / f"{name} {parts}"
    place.mkdir()
    text = config.get("text_config", config)
    short = {key: value for key, value in _SHORT.items() if key in text}
    lists = {key: value[:4] for key, value in text.items() if key == "layer_types"}
    made = {**config, "text_config": {**text, **short, **lists}} if "text_config" in config else {**config, **short, **lists}
    (place / "config.json").write_text(json.dumps(made))
    (place / "preprocessor_config.json").write_text(json.dumps(beside(config)["picture"]))
    arguments = [str(place), "--tensor-parallel-size", str(parts), "--enforce-eager", "--max-model-len", "8192"]
    return {"id": place.name, "gpu": _GPU, "args": arguments, "sight": True}
