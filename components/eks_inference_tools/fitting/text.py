"""A search as a table for people: where the model fits, and why it does not where a node costs less."""

import re
from collections.abc import Iterator, Mapping
from itertools import groupby

from rich.console import RenderableType

from eks_inference_tools.fitting.search import Found, Refusal, Row
from stackgraph.graph.wording import counted
from stackgraph.presentation.terminal import Columns, Paragraph, drawn, words

_WIDTH, _WIDTH_OF_EVERY = 120, 140
_HEADINGS = (
    ("", "USD/h", "pods", "USD/h", "", "", "", "sequences", "USD/h per", "", ""),
    ("instance", "a node", "a node", "a pod", "engine", "TP", "quantized", "a pod", "M tokens", "warnings", "kind"),
)
_RIGHT = (1, 2, 3, 5, 7, 8)
_LEAST = 16
_SCARCE = {
    "": ", whose price nobody told (--prices)",
    "block": ", of which this is the price",
    "on demand": ", whose price is another (--prices)",
    "own": "",
}
"""Kind of a price (``Offer.price_kind``) → what it says of an instance type that is not sold on demand."""
_LARGE = 8
"""Devices of a node beyond which there is hardly a larger one."""


def render_text(found: Found, every: bool = False) -> str:
    """Returns the table: of each instance type the best row, or ``every`` row."""
    wish = found.wish
    shown = found.rows if every else found.best_of_types
    head = f"{wish.model.name} in {wish.region}: fits {counted(len(found.best_of_types), 'instance type')}"
    left_out = "" if every or len(shown) == len(found.rows) else f" in {len(found.rows)} ways; of each type the best (--all)"
    parts: list[RenderableType] = [
        f"{head}{left_out}",
        "",
        _told(f"sequences of {wish.context} tokens (--context), {wish.concurrency} at once in a pod (--concurrency)"),
        _told("ordered by the price of a node for an hour, then by that of a million tokens in the KV cache"),
        "",
    ]
    if shown:
        # Of equal rows plain vLLM is the best, so the kind tells nothing there.
        columns = len(_HEADINGS[0]) - (not every)
        table = [row[:columns] for row in (*_HEADINGS, *map(_cells, shown))]
        parts += [Columns(table, right=_RIGHT, least=_LEAST), ""]
    parts += [*_cheaper(found), *_legend(found, shown)]
    return drawn(parts, width=_WIDTH_OF_EVERY if every else _WIDTH)


def _told(text: str, first: str = "  ") -> Paragraph:
    return Paragraph(words(text), first)


def _cells(row: Row) -> tuple[str, ...]:
    trial, per_pod, token = row.trial, row.offer.per_pod(row.trial.pods), row.usd_per_million_tokens
    return (
        trial.instance.name,
        _usd(row.usd_per_hour),
        str(trial.pods),
        _usd(per_pod),
        trial.engine.name,
        str(trial.tensor_parallel),
        "-" if trial.quantization == "published" else trial.quantization,
        str(trial.sequences),
        _usd(token),
        ", ".join((*row.warnings, *(f"{rule}?" for rule in row.unjudged))) or "-",
        trial.kind.name,
    )


def _usd(amount: float | None) -> str:
    return "-" if amount is None else f"{amount:.2f}"


def _cheaper(found: Found) -> Iterator[RenderableType]:
    refused = found.cheaper
    if not refused:
        return
    priced = any(row.usd_per_hour is not None for row in found.rows)
    yield f"{'cheaper, but it fits' if priced else 'it fits'} in no way that was tried:"
    for _, group in groupby(sorted(refused, key=_group), key=_group):
        ones = list(group)
        yield _told(_why(ones[-1]))
        yield _told(
            ", ".join(f"{one.instance.name} {_usd(one.offer.price.usd if one.offer.price else None)}" for one in ones), "    "
        )
    yield ""


def _group(one: Refusal) -> str:
    """What groups refusals: the rule, or the beginning of the reason, before its numbers."""
    return one.rule or re.split(r"\d", one.reason)[0]


def _why(one: Refusal) -> str:
    """Why the dearest of a group was refused, in the way that came nearest."""
    rule = f"{one.rule}: " if one.rule else ""
    if one.trial is None:
        return one.reason
    split = f"{one.trial.engine.name}, TP {one.trial.tensor_parallel}, {one.trial.quantization}"
    return f"{rule}{one.reason} ({one.instance.name}, {split})"


def _takes_a_large_node(found: Found) -> bool:
    """Whether a model fits only on whole large nodes, or not even there."""
    fitting = [row.trial for row in found.best_of_types]
    wide = [
        one.devices == one.instance.devices >= _LARGE for one in fitting or (one.trial for one in found.refusals if one.trial)
    ]
    return bool(wide) and (all(wide) if fitting else any(wide))


def _legend(found: Found, shown: tuple[Row, ...]) -> Iterator[RenderableType]:
    notes: Mapping[str, str] = {
        row.trial.engine.name: f"caveat: {row.trial.engine.caveat}" for row in shown if row.trial.engine.caveat
    }
    scarce = {row.trial.instance.name: row.offer.price_kind for row in shown if row.trial.instance.needs_reservation}
    if shown:
        yield _told("sequences: of that length at once, unwarned. `check --rules` tells what a rule that warns is about.", "")
    for rule, why in {rule: why for row in shown for rule, why in row.unjudged.items()}.items():
        yield _told(f"{rule}?: not judged: {why}", "")
    for name, note in notes.items():
        yield _told(f"{name}: {note}", "")
    if _takes_a_large_node(found):
        yield _told("not tried: several nodes or pipeline stages for one copy of the model", "")
    for name, kind in scarce.items():
        yield _told(f"{name}: capacity only by reservation or in capacity blocks{_SCARCE[kind]}", "")
    if found.rows:
        first = found.rows[0].trial
        yield _told(f"more of one type: --instance {first.instance.name}; a stack file: eks-inference new NAME --model …", "")
