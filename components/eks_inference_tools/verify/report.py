"""Checks as a person reads them, and as a program does."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from eks_inference_tools.reading.expected import Expected
from eks_inference_tools.verify.verdicts import Check, Verdict, overall
from stackgraph.graph.values import text

SCHEMA = 1

_VERDICTS: tuple[Verdict, ...] = ("ok", "wait", "unknown", "failed")
_COLOURS = {"ok": "32", "wait": "33", "unknown": "35", "failed": "31"}
_BOLD, _DIM, _HEADING = "1", "2", "1;4"

_LEAST_WIDTH = 60
_LEAST_FOUND = 24
_WIDEST_SUBJECT = 48
_VERDICT_WIDTH = max(map(len, _VERDICTS))
_MARGIN = f"{'':{_VERDICT_WIDTH + 4}}"


def counted(checks: Iterable[Check]) -> str:
    """``12 ok, 1 wait``"""
    counts = Counter(check.verdict for check in checks)
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in _VERDICTS if counts[verdict])


def render_table(
    expected: Expected, checks: Sequence[Check], *, context: str = "", colour: bool = False, width: int = 100
) -> str:
    """What is well in one line each; whatever is not also with what was expected and a command that tells more.

    ``context`` is the kubeconfig's. Commands are never cut or wrapped: they are there to be copied.
    """
    width = max(width, _LEAST_WIDTH)
    column = min(max((len(check.subject) for check in checks), default=0), _WIDEST_SUBJECT, width // 2)

    def paint(words: str, style: str) -> str:
        return f"\x1b[{style}m{words}\x1b[0m" if colour and words else words

    where = [f"cluster {expected.cluster}" if expected.cluster else "", f"context {text(context)}" if context else ""]
    lines = [f"{paint(text(expected.stack), _BOLD)}  {paint(', '.join(filter(None, where)), _DIM)}".rstrip(), counted(checks)]
    for area, members in groupby(checks, key=lambda check: check.area):
        lines += ["", paint(area, _HEADING)]
        for check in members:
            first, *rest = _lines(check, column, width)
            lines += [f"  {paint(f'{check.verdict:{_VERDICT_WIDTH}}', _COLOURS[check.verdict])}  {first}".rstrip(), *rest]
    if expected.unchecked:
        kinds = ", ".join(f"{count} × {kind}" for kind, count in expected.unchecked.items())
        lines += ["", *(paint(line, _DIM) for line in _wrapped("no check for: ", kinds, width))]
    return "\n".join(lines) + "\n"


def _lines(check: Check, column: int, width: int) -> Iterator[str]:
    """The lines of one check; the first one without its verdict."""
    finding, subject = check.finding, text(check.subject)
    beside = f"{_MARGIN}{subject:<{column}}  "
    if check.verdict == "ok" and width - len(beside) >= _LEAST_FOUND:
        first, *rest = _wrapped(beside, finding.found, width)
        yield first[len(_MARGIN) :]
        yield from rest
        return
    yield subject
    for label, words in (("found", finding.found), ("expected", finding.expected)):
        if words:
            yield from _wrapped(f"{_MARGIN}{label:<8}  ", words, width)
    if finding.next:
        yield f"{_MARGIN}{'next':<8}  {text(finding.next)}"


def _wrapped(first: str, words: str, width: int) -> Iterator[str]:
    """The words in as many lines as they take, below each other; a word wider than the rest of a line stays whole."""
    line, empty = first, True
    for word in text(words).split():
        if not empty and len(line) + len(word) > width:
            yield line.rstrip()
            line = " " * len(first)
        line += f"{word} "
        empty = False
    yield line.rstrip()


def render_json(expected: Expected, checks: Sequence[Check], *, context: str = "") -> str:
    """The same as one JSON document."""
    document = {
        "schema": SCHEMA,
        "stack": expected.stack,
        "cluster": expected.cluster,
        "context": context,
        "verdict": overall(checks),
        "counts": {verdict: sum(check.verdict == verdict for check in checks) for verdict in _VERDICTS},
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
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"
