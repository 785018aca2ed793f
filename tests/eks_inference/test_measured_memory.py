"""The arithmetic of device memory against published measurements; the table of docs/memory.md is made here."""

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from eks_inference.catalog.engine_facts import reserve_of
from eks_inference.catalog.engines import engine
from eks_inference.catalog.instances import instance_type
from eks_inference.catalog.models import model
from eks_inference.serving.memory import GIB, MemoryUse
from eks_inference.serving.memory_settings import MemorySettings
from golden import assert_golden

_ROOT = Path(__file__).resolve().parents[2]
_PAGE = _ROOT / "docs/memory.md"
ROWS = tomllib.loads((_ROOT / "tests/data/device_memory.toml").read_text())["measurement"]
WEIGHTS_MARGIN = 0.01
"""How far weights may be off, as a share: norms, scales and buffers are counted differently."""


@dataclass(frozen=True)
class Figure:
    """One measured figure and ours, in GiB or tokens."""

    row: dict[str, Any]
    name: str
    measured: float
    ours: float
    margin: float

    @property
    def deviation(self) -> float:
        return self.ours - self.measured

    @property
    def excuse(self) -> str:
        """Why it may be off."""
        return self.row.get("off", {}).get(self.name, "")


def use_of(row: dict[str, Any]) -> MemoryUse:
    """The same model with the same settings."""
    instance = instance_type(row["instance"])
    instance = replace(instance, cuda_memory_gib=row["total_gib"]) if "total_gib" in row else instance
    settings = MemorySettings(
        quantized_bytes=row.get("quantized_bytes"),
        utilization=row.get("utilization", 0.9),
        max_num_seqs=row.get("max_num_seqs", 256),
        step_tokens=row.get("step_tokens", 8192),
        whole_windows="LMCache" in row.get("note", ""),
    )
    profile = replace(engine(row.get("engine", "cuda-vllm-0.30")), vllm=row["vllm"])
    degree, sequences, length = row.get("tensor_parallel", 1), row.get("sequences", 1), row["max_model_len"]
    return MemoryUse(model(row["model"]), instance, profile, degree, sequences, length, settings)


def figures() -> Iterator[Figure]:
    for row in ROWS:
        use = use_of(row)
        assert use.reserved is not None
        beside = use.reserved.size / GIB
        free = (use.capacity - use.weights - use.reserved.size) / GIB
        tenth = 0.1 * use.capacity / GIB
        margin = tenth if use.reserved.reserve.margin_gib is None else use.reserved.reserve.margin_gib
        per_token = use.kv_sequence / use.parts / GIB / use.max_model_len
        ours = {
            "weights_gib": (use.weights / GIB, WEIGHTS_MARGIN * use.weights / GIB),
            "beside_gib": (beside, margin),
            "kv_gib": (free, margin + WEIGHTS_MARGIN * use.weights / GIB),
            "tokens": (free / per_token, (margin + WEIGHTS_MARGIN * use.weights / GIB) / per_token),
            "used_gib": (use.limits[0].used / GIB, tenth),
        }
        yield from (Figure(row, name, measured, *ours[name]) for name, measured in row["measured"].items())


def _title(figure: Figure) -> str:
    row = figure.row
    return f"{row['model']}-{row['vllm']}-tp{row.get('tensor_parallel', 1)}-{figure.name}"


@pytest.mark.parametrize("figure", [*figures()], ids=_title)
def test_what_is_computed_is_what_was_measured(figure: Figure) -> None:
    """A row that says why it is off must be off: else the reason is out of date."""
    assert (abs(figure.deviation) <= figure.margin) != bool(figure.excuse)


def test_no_server_that_ran_is_refused() -> None:
    """Each measured server that started fits, whatever the arithmetic says of its figures."""
    ran = [row for row in ROWS if row["measured"].get("kv_gib", 1) > 0 and "full" not in row.get("note", "")]
    assert len(ran) >= 12
    for row in ran:
        assert use_of(row).of(1, 2048).fits, row["model"]


def test_without_graphs_there_is_more_room_and_with_more_sequences_less() -> None:
    use = use_of(next(row for row in ROWS if row["vllm"] == "0.21.0"))
    assert use.reserved is not None
    assert replace(use, settings=replace(use.settings, eager=True)).pool - use.pool == pytest.approx(0.5 * GIB, abs=2)
    more = replace(use, settings=replace(use.settings, max_num_seqs=512))
    assert use.pool - more.pool == pytest.approx(3 * 256 * 151936 * 4, abs=2)


def test_each_release_has_the_row_that_begins_before_it() -> None:
    names = {
        release: getattr(reserve_of("CUDA", release), "name", None) for release in ("0.5.0.post1", "0.16", "0.17.1", "0.30.0")
    }
    assert names == {
        "0.5.0.post1": "sorting-sampler",
        "0.16": "sorting-sampler",
        "0.17.1": "triton-sampler",
        "0.30.0": "counted-graphs",
    }
    assert all(getattr(reserve_of(name, "0.16.0"), "generations", ()) for name in "ABCD")
    assert reserve_of("E", "0.30.0") is None


# -- the table ------------------------------------------------------------------------------------------------------------------


_NAMES = {
    "weights_gib": "weights",
    "beside_gib": "beside",
    "kv_gib": "KV cache",
    "tokens": "tokens",
    "used_gib": "weights + KV cache + beside",
}


def table() -> str:
    """The rows as Markdown."""
    lines = ["| model | where | vLLM | figure | measured | ours | deviation | source |", "|---|---|---|---|---:|---:|---:|---|"]
    for figure in figures():
        row = figure.row
        note = f" ({row['note']})" if "note" in row else ""
        where = f"{row.get('where', instance_type(row['instance']).chip)}, TP {row.get('tensor_parallel', 1)}"
        unit, form = ("", ",.0f") if figure.name == "tokens" else (" GiB", ".2f")
        share = f", {figure.deviation / figure.measured * 100:+.1f} %" if figure.measured > 0 else ""
        off = f"; off: {figure.excuse}" if figure.excuse else ""
        lines.append(
            f"| {row['model']}{note} | {where} | {row['vllm']} | {_NAMES[figure.name]} | {figure.measured:{form}}{unit} | "
            f"{figure.ours:{form}}{unit} | {figure.deviation:+{form}}{unit}{share}{off} | {row['source']} |"
        )
    return "\n".join(lines)


def test_the_page_has_the_table() -> None:
    begin, end = "<!-- measurements -->\n", "\n<!-- /measurements -->"
    before, _, rest = _PAGE.read_text().partition(begin)
    after = rest.partition(end)[2]
    assert_golden("../../docs/memory.md", f"{before}{begin}{table()}{end}{after}")
