"""Counts checks and renders them as JSON."""

from collections import Counter
from collections.abc import Iterable, Sequence

from eks_inference_tools.presentation.output import json_text
from eks_inference_tools.reading.expected import Expected
from eks_inference_tools.verify.verdicts import Check, Verdict, overall

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
