"""docs/speed.md: what the model of a step predicts against what was measured. Generated from the catalog."""

from collections import defaultdict
from collections.abc import Iterator
from math import log10
from statistics import median

from eks_inference.catalog.speeds import Errors, Speed, measured, sources, speeds
from eks_inference.speed.accuracy import Case, case

WORST = 3
_SIDE, _LOWEST, _HIGHEST = 480, 2.0, 500.0
"""Side of the plot, and the times at its ends in milliseconds."""

HEAD = """\
# Speed: predicted against measured

`plan` and `new` predict the time of an engine's step: reading its weights or computing its products, whichever takes longer, then
the KV cache, the exchange between devices, and a fixed part (`speed/step.py`). Bytes are those of [memory.md](memory.md). Eleven
constants say which share of a device's peaks is reached. A generator fits them to published
measurements (`catalog/measured.csv`): `make refresh TABLE=speeds`, after rows were added. It drops rows whose first token took
more than eight prefills, which had queued, and rows with more prompts than the device can compute: a cache had them, or the users
were fewer.

Nothing was measured by this project, and nothing of it on AWS. Times are means or medians, as each source has them.

## Errors

Of rows that the constants were not fitted to: a source is left out in turn, or where only one has rows, a model, or all rows of
the accelerator. Each figure is the median and the 90th percentile of the distance between predicted and measured, with the number
of rows. `range`: nine of ten measured times lie between these multiples of what is predicted. Accelerators with fewer than 30
rows have few measurements: their range is no narrower than elsewhere.
"""

RESISTING = """\
## What resists

- **H200, dense**: NVIDIA's file of Llama-3.1-8B in FP8 with vLLM, over 2 to 8 GPUs with up to 128 users, is two to three times as
  fast as predicted, and as another engine in the same file. At 2 GPUs its prompts alone would take 70 % of the peak: they are
  probably in the prefix cache. Nothing in the file says so, so the rows count. The second table has the other sources.
- **B200, dense**: nearly all rows are of one model and one source. When it is left out, constants come from other accelerators.
- **Mixtures of experts on B200**: TensorRT-LLM serves GPT-OSS and DeepSeek-R1 faster than vLLM and SGLang do, and int4
  checkpoints (Kimi-K2) are slower than their bytes. One accelerator has one share for the experts of all.
- **Bursts**: a thousand requests at once against a server of gpustack's lab took about twice what a steady state takes.
- **Models below a billion weights**: the host, not the accelerator, sets the time of a step (T4, Qwen2.5-0.5B everywhere).
- **Trainium2**: four dense rows of one source, and mixtures of experts with batches of 4 to 16.
"""

QUEUES = """\
## Queues

`speed/queue.py` plays the steps of each replica as vLLM's scheduler takes them, and where an endpoint leads requests.
`make envoy` compares it with the real Envoy before three replicas that take 20 requests a second together and have a clock of
their own: 400 requests at each rate, of prompts of 100 tokens and answers of 50; the endpoint lets 60 to them at once. The model
leaves to chance what Envoy does, so it is played 30 times. Time to the first token in seconds, of one run:

| `spread` | requests/s | p50 | model | p95 | model |
|---|---|---|---|---|---|
| least_requests | 10 | 0.041 | 0.041–0.043 | 0.054 | 0.051–0.054 |
| least_requests | 17 | 0.045 | 0.044–0.046 | 0.196 | 0.172–0.219 |
| least_requests | 30 | 1.480 | 1.452–1.514 | 1.908 | 1.860–1.934 |
| prefixes | 10 | 0.042 | 0.041–0.043 | 0.057 | 0.053–0.060 |
| prefixes | 17 | 0.048 | 0.047–0.052 | 0.495 | 0.380–0.598 |
| prefixes | 30 | 1.104 | 0.879–1.412 | 2.346 | 2.025–2.560 |
| sessions | 10 | 0.041 | 0.041–0.043 | 0.056 | 0.053–0.060 |
| sessions | 17 | 0.049 | 0.047–0.052 | 0.411 | 0.380–0.598 |
| sessions | 30 | 0.994 | 0.879–1.412 | 2.536 | 2.025–2.560 |

At 30 requests a second 227, 226 and 227 of the 400 were answered by the time the last one came, 58, 58 and 58 were under way, and
115, 116 and 115 refused; the model: 227, 59 and 114. Times between tokens were the same to 1 %.
"""


def document() -> str:
    return (
        "\n".join(
            [
                HEAD,
                *_errors(),
                "",
                *_apart(),
                "",
                "## Predicted and measured",
                "",
                "![Times between tokens](speed.svg)",
                "",
                "The worst rows of each accelerator, with the constants as shipped:",
                "",
                *_worst(),
                "",
                QUEUES,
                RESISTING,
                *_sources(),
            ]
        )
        + "\n"
    )


def cases() -> list[Case]:
    return [case(one) for one in measured() if one.itl_ms and one.load in ("", "batch")]


def ratio(one: Case) -> float:
    """Predicted by measured, between tokens, with the constants as shipped."""
    return one.token(speeds()[one.row.device].constants) * 1e3 / (one.row.itl_ms or 1)


def counted(one: Case) -> bool:
    return one.possible and not one.queues(speeds()[one.row.device].constants)


def _errors() -> Iterator[str]:
    yield (
        "| accelerator | rows | left out | between tokens, dense | range | with experts | range | first token, alone | "
        "largest throughput |"
    )
    yield "|---|---|---|---|---|---|---|---|---|"
    for one in speeds().values():
        few = ", few" if one.few else ""
        cells = (
            f"{one.rows} of {one.sources}{few}",
            one.held_out,
            _said(one.dense),
            _range(one, experts=False),
            _said(one.experts),
        )
        yield f"| {one.name} | {' | '.join((*cells, _range(one, experts=True), _said(one.first_token), _said(one.most)))} |"


def _range(one: Speed, *, experts: bool) -> str:
    low, high = one.range(experts=experts)
    return f"{low:.2f}–{high:.2f}"


def _said(one: Errors | None) -> str:
    return f"{one.median:.0%}, {one.p90:.0%} ({one.rows})" if one else "–"


def _apart() -> Iterator[str]:
    yield "| accelerator | left out | between tokens |"
    yield "|---|---|---|"
    for speed in speeds().values():
        for name, found in speed.without.items():
            yield f"| {speed.name} | {name} | {_said(found)} |"


def _worst() -> Iterator[str]:
    yield "| | measured | predicted | |"
    yield "|---|---|---|---|"
    of: dict[str, list[Case]] = defaultdict(list)
    for one in cases():
        if counted(one):
            of[one.row.device].append(one)
    for device, found in of.items():
        near = median(abs(log10(ratio(one))) for one in found)
        for one in sorted(found, key=lambda one: -abs(log10(ratio(one))))[:WORST]:
            row = one.row
            users = f"batch {row.users}" if row.load else f"{row.users} at once"
            if abs(log10(ratio(one))) > near:
                times = f"{row.itl_ms:g} ms | {(row.itl_ms or 0) * ratio(one):.3g} ms"
                yield (
                    f"| {device} | {times} | {row.model} {row.precision}, {row.engine}, "
                    f"over {row.tensor * row.ranks}, {users}, {row.prompt:g} + {row.answer:g} tokens ({row.source}) |"
                )


def _sources() -> Iterator[str]:
    yield "## Sources"
    yield ""
    for source in sources().values():
        yield f"- {source.name}: {source.source} ({source.read})"


def plot() -> str:
    """An SVG: a point for each row, measured to the right, predicted upwards, both in logarithms."""
    colours = {"nvidia": "#3b7a57", "neuron": "#c05020"}
    points: dict[str, list[str]] = defaultdict(list)
    for one in cases():
        if counted(one) and one.use.instance.accelerator:
            x, y = _at(one.row.itl_ms or 1), _SIDE - _at((one.row.itl_ms or 1) * ratio(one))
            points[one.use.instance.accelerator].append(f"M{x} {y}h0")
    ticks = "".join(
        f'<text x="{_at(ms)}" y="{_SIDE + 14}">{ms} ms</text><text x="2" y="{_SIDE - _at(ms)}">{ms}</text>'
        for ms in (5, 20, 100, 400)
    )
    half = round(_SIDE * log10(2) / log10(_HIGHEST / _LOWEST))
    lines = f"M0 {_SIDE}L{_SIDE} 0M{half} {_SIDE}L{_SIDE} {half}M0 {_SIDE - half}L{_SIDE - half} 0"
    marks = "".join(
        f'<path d="{"".join(sorted(set(found)))}" stroke="{colours[kind]}" stroke-width="4" stroke-linecap="round"/>'
        for kind, found in sorted(points.items())
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_SIDE} {_SIDE + 20}" font-family="sans-serif" font-size="11">'
        f"<title>Time between tokens: measured to the right, predicted upwards; outer lines: a factor of two. Green: GPUs, "
        f'orange: Neuron</title><path d="{lines}" stroke="#888" fill="none"/>{marks}{ticks}</svg>\n'
    )


def _at(ms: float) -> int:
    return round(_SIDE * min(max(log10(ms / _LOWEST) / log10(_HIGHEST / _LOWEST), 0), 1))
