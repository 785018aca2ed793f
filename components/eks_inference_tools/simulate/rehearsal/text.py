"""Renders the rehearsal of a change for a terminal, and for a comment on a pull request."""

from collections.abc import Iterator, Sequence

from rich.console import RenderableType

from eks_inference_tools.simulate.rehearsal.report import REQUESTS_A_SECOND, Away, Rehearsal, lost
from eks_inference_tools.timeline.durations import duration
from stackgraph.graph.wording import counted
from stackgraph.presentation.terminal import WIDTH, Columns, Paragraph, drawn, words

_CHART, _BESIDE = 60, 16
"""Widths of the chart, and the columns beside the chart."""
_MOST = 5
_NOT_REAL = (
    "containers do not run: a pod is ready once the typical time of its cold start has passed (timeline), and ends at once",
    "time stands while the control plane works, and leaps to the pod that is ready next",
    "which nodes of groups AWS exchanges, and in which order, follows the table of diff; evictions and places are real",
    f"requests: {REQUESTS_A_SECOND} a second to each server, lost while none of its pods is ready",
)

Rows = Iterator[tuple[str, str, str]]
"""A heading, which repeats, a text, and a style."""


def render_text(*played: Rehearsal, width: int = WIDTH, colour: bool = False) -> str:
    """One after another, and side by side where something was tried."""
    blocks = [*(_lines(rehearsal, width) for rehearsal in played), *([_beside(played)] if played[1:] else [])]
    return "\n".join(drawn(block, width=width, colour=colour) for block in blocks)


def render_markdown(rehearsal: Rehearsal) -> str:
    """A section for the comment on a pull request."""
    shown = "; ".join(text for heading, text, _ in _rows(rehearsal) if heading in ("Away", "Stuck", "Gone"))
    return "\n".join(
        (
            f"### Rehearsal of `{rehearsal.stack}`{f', with `{rehearsal.tried}`' * bool(rehearsal.tried)}: {_verdict(rehearsal)}",
            "",
            *((shown, "") if shown else ()),
            "<details><summary>What happened</summary>",
            "",
            "```text",
            render_text(rehearsal).rstrip(),
            "```",
            "",
            "</details>",
            "",
        )
    )


def _lines(rehearsal: Rehearsal, width: int) -> Iterator[RenderableType]:
    about = f": the change{f', with {rehearsal.tried}' * bool(rehearsal.tried)}, on a simulated cluster of {rehearsal.kubernetes}"
    yield Paragraph(words(rehearsal.stack, "bold").append_text(words(about)))
    yield ""
    if chart := [*_chart(rehearsal, width)]:
        yield words(f"{'Pods':<10}that answer, from the beginning to {duration(rehearsal.ends_s)} later, and then")
        yield Columns([(words(name), words(drawing)) for name, drawing in chart], indent=10)
        yield ""
    before = ""
    for heading, text, style in (*_rows(rehearsal), *(("Not real", one, "dim") for one in _NOT_REAL)):
        if before and heading != before:
            yield ""
        yield Paragraph(words(text, style), words(f"{'' if heading == before else heading:<10}", style))
        before = heading
    yield ""
    yield words(f"{_verdict(rehearsal).capitalize()}.", "green" if rehearsal.is_well else "red")


def _beside(played: Sequence[Rehearsal]) -> Iterator[RenderableType]:
    rows = [("", "requests lost", "takes", "")]
    for rehearsal in played:
        missed = sum(lost(away, rehearsal.ends_s) for away in rehearsal.away)
        rows.append((rehearsal.tried or "as it is", f"{missed:,}", duration(rehearsal.ends_s), _verdict(rehearsal)))
    yield Columns(rows, right=range(1, 3))


def _rows(rehearsal: Rehearsal) -> Rows:
    for away in rehearsal.away:
        yield "Away", _away(away, rehearsal.ends_s), "red"
    for refusal in rehearsal.refusals:
        yield "Stuck", f"{refusal.title} is refused: {refusal.message}", "red"
    for stall in rehearsal.stalls:
        behind = f" (behind it: {counted(len(stall.behind), 'object')})" if stall.behind else ""
        yield "Stuck", f"{stall.title} waits: {stall.waits_for}{behind}", "red"
        yield from (("Stuck", said, "red") for said in stall.words)
    for title in rehearsal.gone:
        yield "Gone", f"{title} was removed with something else, and is not there in the end", "red"
    for title in rehearsal.again:
        yield "Again", f"{title} runs a second time", ""
    for title, seconds in rehearsal.waits[:_MOST]:
        yield "Waits", f"pulumi up waits {duration(seconds)} for {title}", ""
    for foretold in sorted(rehearsal.foretold, key=lambda foretold: foretold.verdict):
        said = f"diff says: {foretold.what}. " if foretold.what else ""
        yield foretold.verdict.capitalize(), f"{said}Here: {foretold.saw}", "red" if foretold.verdict == "differs" else ""


def _away(one: Away, ends_s: float) -> str:
    after = f"{duration(one.began_s)} after the beginning"
    if one.seconds is None:
        return f"{one.server} stops {after} and does not come back; {lost(one, ends_s):,} requests lost until the end"
    least = f" or more (no typical time: {'; '.join(one.untimed)})" if one.untimed else ""
    return f"{one.server} stops {after}, for {duration(one.seconds)}{least}; {lost(one, ends_s):,} requests lost"


def _verdict(rehearsal: Rehearsal) -> str:
    if len(rehearsal.phases) == 1:
        return "the base does not come up by itself, so nothing was changed"
    if rehearsal.is_well:
        return "nothing stopped answering, nothing got stuck"
    stopped = len({away.server for away in rehearsal.away})
    stuck = len(rehearsal.stalls) + len(rehearsal.refusals) + len(rehearsal.gone)
    parts = (f"{counted(stopped, 'server')} stopped answering" * bool(stopped), f"{stuck} got stuck" * bool(stuck))
    return ", ".join(filter(None, parts))


def _chart(rehearsal: Rehearsal, width: int) -> Iterator[tuple[str, str]]:
    """A column is a part of the time, with the fewest pods that answer in it; the last is the end."""
    if not rehearsal.samples:
        return
    names = rehearsal.samples[0][1]
    drawn_columns = max(1, min(_CHART, width - _BESIDE - max(map(len, names), default=0)))
    length = max(rehearsal.ends_s, 1.0) / drawn_columns
    for name in names:
        columns = []
        for column in range(drawn_columns):
            start, end = column * length, (column + 1) * length
            before = [pods.get(name, 0) for when, pods in rehearsal.samples if when <= start][-1:]
            within = [pods.get(name, 0) for when, pods in rehearsal.samples if start < when < end]
            fewest = min((*before, *within), default=0)
            columns.append(str(fewest) if fewest < 10 else "+")
        yield name, f"{''.join(columns)} {rehearsal.samples[-1][1].get(name, 0)}"
