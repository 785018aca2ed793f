"""Counts checks, and renders them as JSON and as text."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from rich.console import RenderableType

from eks_inference_tools.reading.expected import Expected
from eks_inference_tools.verify.observed import Check, Verdict, overall
from stackgraph.graph.values import text
from stackgraph.presentation.output import json_text
from stackgraph.presentation.terminal import WIDTH, Paragraph, drawn, words

SCHEMA = 1

VERDICTS: tuple[Verdict, ...] = ("ok", "wait", "unknown", "failed")


def counted(checks: Iterable[Check]) -> str:
    """``12 ok, 1 wait``"""
    counts = Counter(check.verdict for check in checks)
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS if counts[verdict])


def render_json(expected: Expected, checks: Sequence[Check], *, context: str = "") -> str:
    """Returns the JSON document with all checks."""
    document = {
        "schema": SCHEMA,
        "stack": expected.stack,
        "cluster": expected.cluster,
        "context": context,
        "verdict": overall(checks),
        "counts": {verdict: sum(check.verdict == verdict for check in checks) for verdict in VERDICTS},
        "checks": [
            {
                "area": check.area,
                "subject": check.subject,
                "verdict": check.verdict,
                "found": check.finding.found,
                "expected": check.finding.expected,
                "next": check.finding.next,
            }
            for check in checks
        ],
        "unchecked": expected.unchecked,
    }
    return json_text(document)


_STYLES = {"ok": "green", "wait": "yellow", "unknown": "magenta", "failed": "red"}
_MIN_WIDTH = 60
_MIN_FOUND_WIDTH = 24
_MAX_SUBJECT_WIDTH = 48
_VERDICT_WIDTH = max(map(len, VERDICTS))
_MARGIN = " " * (_VERDICT_WIDTH + 4)


def render_text(
    expected: Expected, checks: Sequence[Check], *, context: str = "", colour: bool = False, width: int = WIDTH
) -> str:
    """Returns one line per ok check; other checks also show the expected state and a command that shows more.

    ``context`` is the kubeconfig's. Commands are never cut or wrapped, so that users can copy them.
    """
    width = max(width, _MIN_WIDTH)
    column = min(max((len(check.subject) for check in checks), default=0), _MAX_SUBJECT_WIDTH, width // 2)
    where = [f"cluster {expected.cluster}" if expected.cluster else "", f"context {text(context)}" if context else ""]
    head = words(text(expected.stack), "bold").append("  ").append(", ".join(filter(None, where)), "dim")
    lines: list[RenderableType] = [head, counted(checks)]
    for area, members in groupby(checks, key=lambda check: check.area):
        lines += ["", words(area, "bold underline"), *(line for check in members for line in _lines(check, column, width))]
    if expected.unchecked:
        kinds = ", ".join(f"{count} × {kind}" for kind, count in expected.unchecked.items())
        lines += ["", Paragraph(words(kinds, "dim"), words("no check for: ", "dim"))]
    return drawn(lines, width=width, colour=colour)


def _lines(check: Check, column: int, width: int) -> Iterator[RenderableType]:
    finding, subject = check.finding, text(check.subject)
    head = words("  ").append(f"{check.verdict:{_VERDICT_WIDTH}}", _STYLES[check.verdict]).append(f"  {subject:<{column}}  ")
    if check.verdict == "ok" and width - head.cell_len >= _MIN_FOUND_WIDTH:
        yield Paragraph(words(text(finding.found)), head)
        return
    yield head
    for label, said in (("found", finding.found), ("expected", finding.expected)):
        if said:
            yield Paragraph(words(text(said)), f"{_MARGIN}{label:<8}  ")
    if finding.next:
        yield words(f"{_MARGIN}{'next':<8}  {text(finding.next)}")
