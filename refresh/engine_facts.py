"""What a release of vLLM says of itself on GPUs: PYTHON is that of an environment with its wheel for CUDA (`make engine`).

What stands outside of the two lines in a file is written by hand, and what it has is not asked. The file of a new release has
what differs from the one before; what differs by hand is added to it.
"""

import json
import subprocess
import tomllib
from collections.abc import Collection
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

from eks_inference.catalog.engine_facts import TABLES, whole
from eks_inference.catalog.tables import version_numbers
from refresh import ROOT
from refresh.engine.one_layer import of_quantized

FILE = ROOT / "components" / "eks_inference" / "catalog" / "engine_facts"

BEGIN = "# ------------------------------------------------------------- asked of the engine: make refresh TABLE=engine_facts\n"
END = "# ------------------------------------------------------------------------------------------------------ by hand\n"
OPTIONAL = {"latent": False, "sparse": False, "also": {}, "head_sizes": []}
"""Columns that a row need not have."""
_WIDTH = 125


def file_of(python: str) -> Path:
    return FILE / f"vllm-{_said(python)['release']}.toml"


def table(python: str) -> str:
    ours, said = file_of(python), _said(python)
    releases = sorted((one.stem.removeprefix("vllm-") for one in FILE.glob("vllm-*.toml")), key=version_numbers)
    nearest = max(
        (release for release in releases if version_numbers(release) < version_numbers(said["release"])),
        key=version_numbers,
        default=releases[0],
    )
    new = f'# What differs from vLLM {nearest}, whose file has the sources of the columns.\nlike = "{nearest}"\n'
    new += f'source = "vllm {said["release"]} (wheel for CUDA), asked on stand-ins for GPUs"\nread = "{date.today():%Y-%m}"\n\n'
    before, _, rest = (ours.read_text("utf-8") if ours.exists() else new + BEGIN).partition(BEGIN)
    after, like = rest.partition(END)[2], tomllib.loads(before).get("like")
    by_hand = {
        name
        for one in FILE.glob("vllm-*.toml")
        for name in tomllib.loads(one.read_text("utf-8").partition(END)[2]).get("attention", {})
    }
    return f"{before}{BEGIN}{rendered(differing(said, whole(like)) if like else said, by_hand)}{END}{after}"


def differing(said: dict[str, Any], like: dict[str, Any]) -> dict[str, Any]:
    """What one release says otherwise than another. What it has no more is empty."""
    found: dict[str, Any] = {name: value for name, value in said.items() if isinstance(value, list) and value != like[name]}
    for table in TABLES:
        rows, before = said[table], like[table]
        if table == "attention":
            before = {name: OPTIONAL | row for name, row in before.items()}
            rows = {name: _known(row, before.get(name, OPTIONAL)) for name, row in rows.items()}
        gone = type(next(iter(rows.values())))()
        found[table] = {name: rows.get(name, gone) for name in sorted({*rows, *before}) if rows.get(name) != before.get(name)}
    return found


def _known(row: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    """A row in which what a release is not asked about (null) is as before."""
    also = {need: before["also"].get(need) if gpus is None else gpus for need, gpus in row["also"].items()}
    return row | {"also": {need: gpus for need, gpus in also.items() if gpus}}


def rendered(said: dict[str, Any], by_hand: Collection[str] = ()) -> str:
    """Returns what the engine says as TOML, except back ends that are written by hand."""
    lines = [_line(name, value) for name, value in said.items() if isinstance(value, list)]
    for part in TABLES[:-1]:
        lines += ["", f"[{part}]", *(_line(name, value) for name, value in said[part].items())]
    for name, given in sorted(said.get("attention", {}).items()):
        if name not in by_hand:
            row = OPTIONAL | given
            lines += ["", f"[attention.{name}]", *(f"{one} = true" for one in ("latent", "sparse") if row[one])]
            lines += [_line(column, row[column]) for column in ("dtypes", "head_sizes") if row.get(column)]
            lines += [_line(f"also.{need}", gpus) for need, gpus in row["also"].items() if gpus]
            lines += [_line("kv", row["kv"])] if row.get("kv") else []
    return "\n".join([*lines, "", ""])


def _line(name: str, value: Any) -> str:
    if isinstance(value, dict) and value:
        return "\n".join(_line(f'{name}."{key}"', one) for key, one in value.items())
    whole = f"{name} = {json.dumps(value)}"
    if len(whole) <= _WIDTH:
        return whole
    rows, row = [], ""
    for one in map(json.dumps, value):
        if len(row) + len(one) > _WIDTH - 8:
            rows, row = [*rows, row], ""
        row = f"{row}{' ' if row else ''}{one},"
    return "\n".join([f"{name} = [", *(f"    {one}" for one in (*rows, row)), "]"])


@cache
def _said(python: str) -> dict[str, Any]:
    asked = [python, "-m", "refresh.engine.facts", Path(python).parents[1] / "libcuda.so.1"]
    answer = subprocess.run(asked, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
    said = json.loads(answer.stdout.splitlines()[-1]) | of_quantized(Path(python))
    for part in ("kernels", "expert_kernels", "unaligned_experts"):
        said[part] = {name: _changes(rows) for name, rows in said[part].items()}
    for row in said["attention"].values():
        row["kv"] = _changes(row["kv"])
    return said


def _changes(rows: dict[str, Any]) -> dict[str, Any]:
    """Rows by compute capability, without those that say what the one before says."""
    before = [None, *rows.values()]
    return {gpu: value for (gpu, value), last in zip(rows.items(), before, strict=False) if value != last}
