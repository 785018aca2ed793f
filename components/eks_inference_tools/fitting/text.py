"""A search as a table for people, and what is said of a stack file that was just written from it."""

import re
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Unpack

from rich.console import RenderableType

from eks_inference.catalog.speeds import own
from eks_inference.observability.spec import MILLISECONDS_ABOVE
from eks_inference_tools.check.report import StackReport
from eks_inference_tools.cost.estimate import estimated
from eks_inference_tools.cost.needed_quotas import needs
from eks_inference_tools.cost.price_book import OwnPrices
from eks_inference_tools.fitting.pace import CALM, PERCENTS, USUAL_INPUT, USUAL_OUTPUT, USUAL_USERS, Traffic, nearest
from eks_inference_tools.fitting.search import Found, Refusal, Row, Wish
from eks_inference_tools.fitting.stack_file import Order
from eks_inference_tools.notes import notes_of
from stackgraph.graph.values import grouped
from stackgraph.graph.wording import counted
from stackgraph.presentation.output import Drawing
from stackgraph.presentation.terminal import Columns, Paragraph, drawn, words

_HEADINGS = (
    ("", "USD/h", "pods", "USD/M", "tokens/s", "", "", "", "sequences", "", ""),
    ("instance", "a node", "a node", "tokens", "a pod", "engine", "TP", "quantized", "a pod", "warnings", "kind"),
)
_SIZED_HEADINGS = (
    ("", "USD/h", "repli-", "USD/M", "ms to first", "ms between", "busy", "", "", "", "", ""),
    ("instance", "in all", "cas", "tokens", "p50, p95", "p50, p95", "%", "engine", "TP", "quantized", "warnings", "kind"),
)
_RIGHT, _SIZED_RIGHT = (1, 2, 3, 4, 6, 8), (1, 2, 3, 4, 5, 6, 8)
_LEAST = 16
_SCARCE = {
    "": ", whose price is not known (--prices)",
    "block": ", and this is the price of those",
    "on demand": ", whose price is another (--prices)",
    "own": "",
}
"""Kind of a price (``Offer.price_kind``) → what it says of an instance type that is not sold on demand."""
_QUANTIZED = {
    "published": "the weights as published",
    "fp8-kv": "the KV cache in fp8",
    "fp8-weights": "the weights in fp8",
    "fp8": "weights and KV cache in fp8",
}
"""Names of quantizations in words. What they do to answers nobody judged here."""
_LEAST_SECONDS = 5e-5
"""What is told of a time."""
_LARGE = 8
"""Devices of a node beyond which there is hardly a larger one."""


def render_text(
    found: Found, every: bool = False, saving: Row | None = None, explain: bool = False, **drawing: Unpack[Drawing]
) -> str:
    """Returns the table: of each instance type the first row, or ``every`` row; and what costs less if the engine quantizes.

    ``explain``: also where the time of the first row goes.
    """
    wish = found.wish
    shown = found.rows if every else found.first_of_types
    head = f"{wish.model.name} in {wish.region}: fits {counted(len(found.first_of_types), 'instance type')}"
    left_out = "" if every or len(shown) == len(found.rows) else f" in {len(found.rows)} ways; of each type the first (--all)"
    parts: list[RenderableType] = [
        f"{head}{left_out}",
        "",
        _told(f"sequences of {wish.context} tokens (--context), {wish.concurrency} at once in a pod (--concurrency)"),
        *map(_told, _ordered(found)),
        "",
    ]
    if shown:
        # Of equal rows plain vLLM is the first, so the kind tells nothing there.
        headings, right, cells = (_SIZED_HEADINGS, _SIZED_RIGHT, _sized_cells) if wish.traffic else (_HEADINGS, _RIGHT, _cells)
        columns = len(headings[0]) - (not every)
        table = [row[:columns] for row in (*headings, *map(cells, shown))]
        parts += [Columns(table, right=right, least=_LEAST, headings=2), ""]
        parts += [*map(_told, (*_known_of(shown[0]), *(_explained(shown[0]) if explain else ()))), ""]
    if saving:
        parts += [_told(in_less_memory(saving, found.rows[0] if found.rows else None), ""), ""]
    parts += [*_cheaper(found), *_legend(found, shown)]
    return drawn(parts, **drawing)


def in_less_memory(saving: Row, than: Row | None) -> str:
    """Says what tokens cost where the engine quantizes, and how much less that is than elsewhere."""
    trial, usd = saving.trial, saving.usd_per_million
    other = than.usd_per_million if than else None
    less = f", ${other - usd:.2f} less" if other is not None and usd is not None else ""
    costs = f" at ${usd:.2f} a million tokens{less}" if usd is not None else ""
    if saving.sized:
        costs += f", {counted(saving.sized.replicas, 'replica')} for ${saving.sized.usd_per_hour:.2f} an hour in all"
    elif saving.usd_per_hour is not None:
        costs += f", ${saving.usd_per_hour:.2f} an hour"
    worse = "; answers degrade, as the checkpoint has no scales for it" if saving.degrades else ""
    return f"with {_QUANTIZED[trial.quantization]}: {trial.instance.name}{costs} (--quantization {trial.quantization}){worse}"


def _told(text: str, first: str = "  ") -> Paragraph:
    return Paragraph(words(text), first)


def _ordered(found: Found) -> Iterator[str]:
    """What the order is."""
    known = not found.rows or any(not isinstance(row.pace, str) for row in found.rows)
    if traffic := found.wish.traffic:
        wanted = [f"{what} within {most * 1e3:g} ms" for what, most in _objectives(traffic) if most is not None]
        wanted += [f"at most {CALM:.0%} busy, as there is no --ttft"] if traffic.first_token_s is None else []
        lost = f"{traffic.spare} lost" if traffic.spare else "none lost"
        asked = f"{traffic.rate:g} requests/s of {traffic.input} + {traffic.output} tokens"
        yield f"{asked}, {' and '.join(wanted)}, {lost} (--spare)"
        for option, most, key in zip(
            ("--ttft", "--itl"), (traffic.first_token_s, traffic.token_s), ("first_token", "token"), strict=True
        ):
            if most and most > MILLISECONDS_ABOVE[f"{key}_seconds"]:
                yield f"no published server is so slow: {option} is in seconds, and {most:g} ms would be {most / 1000:g}"
    if not known:
        yield "ordered by the price of one node, because no speed is known here: a cheaper type may need more nodes"
        yield "rows with warnings, and engines with a caveat or an end come last"
        return
    if found.wish.traffic:
        yield "ordered by dollars a million answer tokens at this traffic, on whole nodes; replicas with ~ are an estimate"
    else:
        yield (
            f"ordered by dollars a million answer tokens, for a pod on a whole node under {USUAL_USERS} requests at once of "
            f"{USUAL_INPUT} + {USUAL_OUTPUT} tokens, or as many as it holds (--rate: your traffic)"
        )
    yield "rows of unknown speed follow; rows with warnings, and engines with a caveat or an end, come last"


def _objectives(traffic: Traffic) -> tuple[tuple[str, float | None], ...]:
    first, between = f"p{traffic.percent} of the first token", f"p{traffic.percent} between tokens"
    return (first, traffic.first_token_s), (between, traffic.token_s)


def _known_of(row: Row) -> Iterator[str]:
    """How sure the speed of a row is, and the measurements nearest to it."""
    known = row.trial.speed
    if known is None or isinstance(row.pace, str):
        yield f"{row.trial.instance.name}: speed not known: {row.pace}"
        return
    low, high = row.pace.times.range
    mine, of = row.pace.times.off != 1.0, f"{known.rows} measurements of {known.name}; docs/speed.md"
    few = "by your own measurements, " if mine else "few measurements: " if known.few else ""
    yield (
        f"{row.trial.instance.name}: {few}nine of ten measured times are {low:.2f} to {high:.2f} of what is predicted "
        f"({'--measured' if mine else of})"
    )
    if own() and not mine:
        yield "none of your measurements (--measured) is of this model, accelerator and split"
    if row.sized:
        times = (
            (what, of[95] * 1e3)
            for what, of in (("to the first token", row.sized.answered.first_token), ("between", row.sized.answered.token))
        )
        yield "p95 " + ", ".join(f"{time:.0f} ms {what} ({time * low:.0f} to {time * high:.0f})" for what, time in times)
    for one in nearest(row.trial.memory, 2):
        yield (
            f"measured: {one.model} {one.precision} on {one.tensor} x {one.device}, {one.users} at once, {one.prompt:g} + "
            f"{one.answer:g} tokens: {one.itl_ms:g} ms a token ({one.engine}; {one.source})"
        )


def _explained(row: Row) -> Iterator[str]:
    """Where the time of a pod goes, and the setting to try."""
    found = row.explained
    if isinstance(found, str):
        yield f"not explained: {found}"
        return
    for what, of in (("p95 to the first token", found.first_token), ("a token, on average", found.token)):
        parts = ", ".join(f"{name} {seconds * 1e3:.3g}" for name, seconds in of.items() if seconds >= _LEAST_SECONDS)
        yield f"{what}: {sum(of.values()) * 1e3:.3g} ms, of them {parts}"
    yield f"{found.wall} takes most; try {found.tries}"


def _sized_cells(row: Row) -> tuple[str, ...]:
    trial, found, node = row.trial, row.sized, row.usd_per_hour
    cells = ("-" if node is None else f">={node:.2f}", *["-"] * 5)
    if found:
        times = (found.answered.first_token, found.answered.token)
        told = (", ".join(f"{took[one] * 1e3:.0f}" for one in PERCENTS) for took in times)
        replicas = f"{'' if found.simulated else '~'}{found.replicas}"
        cells = (_usd(found.usd_per_hour), replicas, _usd(found.usd_per_million), *told, f"{found.answered.busy * 100:.0f}")
    return (trial.instance.name, *cells, trial.engine.name, *_how(row), _warned(row), trial.kind.name)


def _how(row: Row) -> tuple[str, str]:
    """Split and quantization."""
    return str(row.trial.tensor_parallel), "-" if row.trial.quantization == "published" else row.trial.quantization


def _warned(row: Row) -> str:
    return ", ".join((*row.warnings, *(f"{rule}?" for rule in row.unjudged))) or "-"


def price_of_tokens(row: Row) -> str:
    """What a million tokens cost, in words."""
    if row.usd_per_million is None:
        return "its speed is not known" if isinstance(row.pace, str) else "its price is not known"
    return f"${row.usd_per_million:.2f} a million tokens"


def _cells(row: Row) -> tuple[str, ...]:
    trial = row.trial
    return (
        trial.instance.name,
        _usd(row.usd_per_hour),
        str(trial.pods),
        _usd(row.usd_per_million),
        "-" if isinstance(row.pace, str) else f"{row.pace.usual:.0f}",
        trial.engine.name,
        *_how(row),
        str(trial.sequences),
        _warned(row),
        trial.kind.name,
    )


def _usd(amount: float | None) -> str:
    return "-" if amount is None else f"{amount:.2f}"


def _cheaper(found: Found) -> Iterator[RenderableType]:
    refused = found.cheaper
    if not refused:
        return
    does = "does not do" if found.wish.traffic else "fits in none of the ways tried"
    yield f"{'cheaper a node, but it ' if found.prices else 'it '}{does}:"
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
    fitting = [row.trial for row in found.first_of_types]
    wide = [
        one.devices == one.instance.devices >= _LARGE for one in fitting or (one.trial for one in found.refusals if one.trial)
    ]
    return bool(wide) and (all(wide) if fitting else any(wide))


def _legend(found: Found, shown: tuple[Row, ...]) -> Iterator[RenderableType]:
    used = {row.trial.engine.name: row.trial.engine for row in shown}
    notes: Mapping[str, str] = {
        name: "; ".join(filter(None, (one.ends and f"support ends: {one.ends}", one.caveat and f"caveat: {one.caveat}")))
        for name, one in used.items()
        if one.ends or one.caveat
    }
    scarce = {row.trial.instance.name: row.offer.price_kind for row in shown if row.trial.instance.needs_reservation}
    if shown:
        column = "" if found.wish.traffic else "sequences: the most of that length at once without a warning. "
        yield _told(f"{column}`check --rules` lists the rules that warn.", "")
    for rule, why in {rule: why for row in shown for rule, why in row.unjudged.items()}.items():
        yield _told(f"{rule}?: not judged: {why}", "")
    for name, note in notes.items():
        yield _told(f"{name}: {note}", "")
    pieces = {row.trial.instance.name: row.trial.step_tokens for row in shown if row.trial.step_tokens}
    if pieces:
        yield _told(f"max-num-batched-tokens, for --itl: {', '.join(f'{name} {tokens}' for name, tokens in pieces.items())}", "")
    if _takes_a_large_node(found):
        yield _told("not tried: several nodes or pipeline stages for one copy of the model", "")
    for name, kind in scarce.items():
        yield _told(f"{name}: capacity only by reservation or in capacity blocks{_SCARCE[kind]}", "")
    if found.rows:
        first = found.rows[0].trial.instance.name
        yield _told(f"next: eks-inference new NAME with these options; one type: --model and --instance {first}", "")


_QUOTAS = 3
"""The scarcest that are named."""


_INSTEAD = 4
"""Other instance types that are named."""


def summary(report: StackReport, found: Found, order: Order, prices: OwnPrices, saving: Row | None) -> Iterator[str]:
    """What was chosen and why, what it costs, what it needs, what to do next."""
    row, wish, name = order.row, found.wish, report.program.stack
    trial = row.trial
    split = counted(trial.tensor_parallel, "NeuronCore" if trial.instance.neuron else "GPU")
    yield f"wrote {report.program.document.shown}: {wish.model.name} on {trial.instance.name} in {wish.region}"
    yield f"  chosen   {_why_first(found, row)}"
    yield f"  server   {trial.engine.name} over {split}, {trial.quantization}"
    written = f"; compiled for {trial.concurrency} (--concurrency)" if trial.instance.neuron else ""
    yield f"  tokens   {price_of_tokens(row)}{_of_load(row, wish)}"
    for known in _known_of(row):
        yield f"           {known}"
    yield f"  holds    {trial.sequences} sequences of {wish.context} tokens at once{written}"
    yield f"  node     {row.offer.words}"
    if instead := found.instead_of(row)[:_INSTEAD]:
        yield f"  instead  without capacity: the same pods on {', '.join(instead)} (alternatives: docs/runbook/no-capacity.md)"
    if saving:
        yield f"  for less {in_less_memory(saving, row)}"
    if report.graph is not None:
        for note in notes_of(report.graph, prices):
            yield f"  {note}"
        for need in needs(report.graph, estimated(report.graph, prices))[:_QUOTAS]:
            what, amount, new = need.cells
            yield f"  quota    {amount} of {what}" + (f"; a new account has {new}" if new else "")
    yield f"  check    {report.state}"
    for finding in report.verdict.findings:
        if not finding.stops and not finding.reason:
            yield f"  warning  {finding.summary}"
    for not_judged in report.not_judged:
        yield f"  open     {not_judged.summary}"
    for secret in order.secrets:
        yield f"  secret   the repository is gated, and `check` refuses the stack until: pulumi config set --secret {secret}"
    yield f"next: eks-inference preview {name}; with an AWS account: eks-inference doctor {name}, then docs/deploy.md"


def _of_load(row: Row, wish: Wish) -> str:
    """Of which load the price is."""
    found = row.sized
    if found is None and wish.traffic:
        return ", and with it how many replicas the traffic takes"
    if isinstance(row.pace, str):
        return ""
    if found is None:
        return f", at {USUAL_USERS} requests at once of {USUAL_INPUT} + {USUAL_OUTPUT} tokens; --rate says yours"
    first, between = found.answered.first_token[95] * 1e3, found.answered.token[95] * 1e3
    pods = f"{counted(found.replicas, 'replica')} on {counted(found.nodes, 'node')}"
    costs = f" at this traffic: {pods}, ${found.usd_per_hour:.2f} an hour"
    return f"{costs}; p95 {first:.0f} ms to the first token, {between:.0f} between tokens"


def _why_first(found: Found, row: Row) -> str:
    types = len(found.first_of_types)
    if types == 1:
        return "as asked for" if found.wish.types else "the only instance type where it fits"
    if row.usd_per_hour is None:
        return f"one of {types} instance types where it fits, none of which has a price"
    if row.usd_per_million is None:
        return f"one of {types} instance types where it fits; what a token costs there is not known"
    passed = [one for one in found.first_of_types if one.usd_per_million and one.usd_per_million < row.usd_per_million]
    reasons = grouped((_against(row), row.trial.instance.name) for row in passed)
    cheaper = "; ".join(f"{', '.join(names)} {why}" for why, names in reasons.items())
    most = f"the cheapest a token of {types} instance types where it fits" + (f", passed over: {cheaper}" if cheaper else "")
    unknown = [row.trial.instance.name for row in found.first_of_types if isinstance(row.pace, str)]
    return most + (f"; speed not known: {', '.join(unknown)}" if unknown else "")


def _against(row: Row) -> str:
    """Why a cheaper place is not chosen unless somebody names it."""
    if row.trial.engine.ends or row.trial.engine.caveat:
        return f"({row.trial.engine.name}: {row.trial.engine.ends or row.trial.engine.caveat})"
    return f"({', '.join(row.warnings)})" if row.warnings else "(by choice)"
