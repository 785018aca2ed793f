"""One run of a load test, independent of the tool that measured it; and ``published.toml``: results of the source documents, as
runs.

Names contain the unit. Tools use one name for different inter-token times: ``Basis`` says what a figure measures, and the report
compares only figures with the same basis.

Sources: genai-perf 0.0.16, AIPerf 0.13.0, vLLM 0.33.0
(benchmarks/serve.py), GuideLLM 0.7.3 and 0.8.1 (request_stats.py), each read and run.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

from eks_inference.catalog.models import find_model

PERCENTILES = ("p25", "p50", "p75", "p90", "p95", "p99")
STATISTICS = ("mean", *PERCENTILES, "min", "max", "stddev")

Spread = Mapping[str, float]
"""Statistics of one metric over the requests of a run. Those the tool does not report are absent."""

Basis = Literal["gap", "request", "request_with_ttft"]
"""What an inter-token time measures.

``gap``: every gap between two stream events. ``request``: one value per request, (end to end - TTFT) / (tokens - 1).
``request_with_ttft``: one value per request, end to end / tokens, which includes the wait for the first token.
"""

BASES: Mapping[Basis, str] = {
    "gap": "every gap between two stream events",
    "request": "one value per request, excluding the time to first token",
    "request_with_ttft": "one value per request, including the time to first token",
}


class Metric(NamedTuple):
    """A metric's long name, and its short one for tables."""

    title: str
    short: str


METRICS: Mapping[str, Metric] = {
    "ttft_ms": Metric("Time to first token, ms", "TTFT ms"),
    "second_token_ms": Metric("From the first token to the second, ms", "1st-2nd token ms"),
    "itl_ms": Metric("Inter-token latency, ms", "ITL ms"),
    "tpot_ms": Metric("Time per output token, ms", "TPOT ms"),
    "e2e_ms": Metric("End to end, ms", "End to end ms"),
    "request_tokens_per_s": Metric("Output tokens per second of a request", "Tokens/s, request"),
    "input_tokens": Metric("Input tokens", "Input tokens"),
    "output_tokens": Metric("Output tokens", "Output tokens"),
}
"""Every metric of a record. A request's token rate covers its whole time, from sending it to its last token.

With disaggregated prefill and decode, the KV cache moves between the first token and the second.
"""

BETWEEN_TOKENS = ("itl_ms", "tpot_ms")


@dataclass(frozen=True, kw_only=True)
class Run:
    """One measurement. Values that the tool does not report are None or empty.

    The tool was to make ``asked`` requests and ``launched`` some, of which some ``completed`` and some ``failed``. ``chips`` is
    the total number of Neuron devices or GPUs of the servers under test.
    """

    tool: str
    tool_version: str = ""
    model: str = ""
    users: int | None = None
    """Concurrent requests; None if requests arrived at a rate."""
    asked: int | None = None
    launched: int | None = None
    completed: int | None = None
    failed: int | None = None
    duration_s: float | None = None
    completed_per_min: float | None = None
    launched_per_min: float | None = None
    output_tokens_per_s: float | None = None
    """Total over all requests and the whole run."""
    metrics: Mapping[str, Spread] = field(default_factory=dict)
    basis: Mapping[str, Basis] = field(default_factory=dict)
    """The basis of ``itl_ms`` and ``tpot_ms``, if known."""
    instance_type: str = ""
    chips: int | None = None
    remarks: tuple[str, ...] = ()
    file: str = ""
    label: str = ""
    server: str = ""
    """Name of the server in its stack, where the file tells it."""

    @property
    def asking(self) -> int | None:
        """Concurrent requests that there were: with fewer requests than users, all of them."""
        told = (one for one in (self.users, self.completed) if one is not None)
        return min(told) if self.users else None

    @property
    def output_tokens_per_s_per_chip(self) -> float | None:
        return self._per_chip(self.output_tokens_per_s)

    @property
    def completed_per_min_per_chip(self) -> float | None:
        return self._per_chip(self.completed_per_min)

    def _per_chip(self, rate: float | None) -> float | None:
        return None if rate is None or not self.chips else rate / self.chips

    @property
    def itl_includes_ttft(self) -> bool | None:
        """Whether ``itl_ms`` includes the time to first token; None if unknown or without such a metric."""
        return self.basis["itl_ms"] == "request_with_ttft" if "itl_ms" in self.basis else None

    @property
    def token_ms(self) -> float | None:
        """The mean time between tokens, without the first; the median of one tool that tells no more."""
        first, whole, answer = (self.value(name, "mean") for name in ("ttft_ms", "e2e_ms", "output_tokens"))
        if first is not None and whole is not None and answer and answer > 1:
            return (whole - first) / (answer - 1)
        gaps = (self.metrics.get(name, {}) for name in BETWEEN_TOKENS if self.basis.get(name) != "request_with_ttft")
        return next((gap.get("mean", gap.get("p50")) for gap in gaps if gap), None)

    @property
    def lengths(self) -> tuple[int, int] | None:
        """Tokens of a prompt and of an answer, on average; None: unknown, or too few to tell a time between tokens."""
        prompt, answer = (self.value(name, "mean") for name in ("input_tokens", "output_tokens"))
        return (round(prompt), round(answer)) if prompt and answer and prompt >= 1 and answer >= 2 else None

    def value(self, metric: str, statistic: str) -> float | None:
        return self.metrics.get(metric, {}).get(statistic)

    def document(self) -> dict[str, Any]:
        """The JSON document. Every key is present, with null for unknown values."""
        return {
            "label": self.label,
            "file": self.file,
            "tool": self.tool,
            "tool_version": self.tool_version or None,
            "model": self.model or None,
            "instance_type": self.instance_type or None,
            "chips": self.chips,
            "users": self.users,
            "requests": {
                "asked": self.asked,
                "launched": self.launched,
                "completed": self.completed,
                "failed": self.failed,
            },
            "duration_s": self.duration_s,
            "completed_per_min": self.completed_per_min,
            "completed_per_min_per_chip": self.completed_per_min_per_chip,
            "launched_per_min": self.launched_per_min,
            "output_tokens_per_s": self.output_tokens_per_s,
            "output_tokens_per_s_per_chip": self.output_tokens_per_s_per_chip,
            "itl_includes_ttft": self.itl_includes_ttft,
            "metrics": {
                name: {statistic: self.value(name, statistic) for statistic in STATISTICS}
                | ({"basis": self.basis.get(name)} if name in BETWEEN_TOKENS else {})
                for name in METRICS
            },
            "remarks": list(self.remarks),
        }


_NUMBER = float | None
_STATISTICS = dict.fromkeys(STATISTICS, _NUMBER)
RUN = {
    **dict.fromkeys(("label", "file", "tool"), str),
    **dict.fromkeys(("tool_version", "model", "instance_type"), str | None),
    **dict.fromkeys(("chips", "users"), int | None),
    "requests": dict.fromkeys(("asked", "launched", "completed", "failed"), int | None),
    **dict.fromkeys(("duration_s", "launched_per_min"), _NUMBER),
    **dict.fromkeys(
        (f"{rate}{per}" for rate in ("completed_per_min", "output_tokens_per_s") for per in ("", "_per_chip")), _NUMBER
    ),
    "itl_includes_ttft": bool | None,
    "metrics": {name: _STATISTICS | ({"basis": Basis | None} if name in BETWEEN_TOKENS else {}) for name in METRICS},
    "remarks": [str],
}
"""The shape of a run's document."""

_FILE = Path(__file__).parent / "published.toml"
_COLUMNS = ("users", "asked", "completed", "failed", "chips", "launched_per_min", "completed_per_min", "output_tokens_per_s")


@dataclass(frozen=True)
class Published:
    """The figures of one document. ``measured`` dates the test; ``read`` is when the document was read."""

    id: str
    """Name of the stack that reproduces the document."""
    source: str
    measured: str
    read: str
    models: tuple[str, ...]
    """Names of the model on the Hub and on the server."""
    remarks: tuple[str, ...]
    runs: tuple[Run, ...]

    def document(self) -> dict[str, Any]:
        """The JSON document, including its runs."""
        return {
            "id": self.id,
            "source": self.source,
            "measured": self.measured,
            "read": self.read,
            "remarks": list(self.remarks),
            "runs": [run.document() for run in self.runs],
        }

    def is_of(self, model: str) -> bool:
        """Whether the document covers this model, under any name in the catalog."""
        shape = find_model(model)
        return model in self.models or (shape is not None and any(name in shape.repositories for name in self.models))


@cache
def published() -> Mapping[str, Published]:
    """All published figures by id."""
    tables: dict[str, Any] = tomllib.loads(_FILE.read_text("utf-8"))
    return {id_: _published(id_, table) for id_, table in tables.items()}


def _published(id_: str, table: dict[str, Any]) -> Published:
    about = {key: table[key] for key in ("source", "measured", "read")}
    runs = tuple(_run(id_, table, row) for row in table["runs"])
    return Published(id_, **about, models=tuple(table["models"]), remarks=tuple(table["remarks"]), runs=runs)


def _run(id_: str, table: dict[str, Any], row: dict[str, Any]) -> Run:
    about = {key: row[key] for key in _COLUMNS if key in row}
    if "completed_per_s" in row:
        about["completed_per_min"] = 60 * row["completed_per_s"]
    metrics = {}
    for name in METRICS:
        in_seconds = f"{name.removesuffix('_ms')}_s"
        if name in row:
            metrics[name] = row[name]
        elif name.endswith("_ms") and in_seconds in row:
            metrics[name] = {statistic: 1000 * value for statistic, value in row[in_seconds].items()}
    completed, per_min = about.get("completed"), about.get("completed_per_min")
    return Run(
        tool=table["tool"],
        model=table["models"][0],
        instance_type=table["instance_type"],
        label=id_ if len(table["runs"]) == 1 else f"{id_}, {row['users']} users",
        duration_s=60 * completed / per_min if completed and per_min else None,
        metrics=metrics,
        basis={"itl_ms": row["itl_basis"]},
        **about,
    )
