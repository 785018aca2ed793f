"""Results of checks."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

Verdict = Literal["ok", "wait", "failed", "unknown"]
"""``wait``: not ready yet, but nothing prevents it. ``unknown``: could not be inspected."""

_SEVERITY: Mapping[Verdict, int] = {"ok": 0, "unknown": 1, "wait": 2, "failed": 3}


@dataclass(frozen=True)
class Finding:
    """``found`` is the actual state; unless ok, ``expected`` is the desired state and ``next`` a command that shows more."""

    verdict: Verdict
    found: str
    expected: str = ""
    next: str = ""


@dataclass(frozen=True)
class Check:
    """A finding on one subject, under one heading of the report."""

    area: str
    subject: str
    finding: Finding

    @property
    def verdict(self) -> Verdict:
        return self.finding.verdict


def ok(found: str) -> Finding:
    return Finding("ok", found)


def wait(found: str, expected: str, next: str = "") -> Finding:
    return Finding("wait", found, expected, next)


def failed(found: str, expected: str, next: str = "") -> Finding:
    return Finding("failed", found, expected, next)


def unknown(found: str, next: str = "") -> Finding:
    return Finding("unknown", found, next=next)


def worst(findings: Iterable[Finding]) -> Finding:
    """Combines findings: the highest severity decides, and the texts are those of all findings with it."""
    found = list(findings)
    verdict: Verdict = max((item.verdict for item in found), key=lambda verdict: _SEVERITY[verdict])
    alike = [item for item in found if item.verdict == verdict]
    return Finding(
        verdict,
        "; ".join(dict.fromkeys(item.found for item in alike)),
        "; ".join(dict.fromkeys(item.expected for item in alike if item.expected)),
        next(iter(item.next for item in alike if item.next), ""),
    )


def overall(checks: Iterable[Check]) -> Verdict:
    """The verdict on a whole stack: that of its most severe check."""
    verdicts: list[Verdict] = ["ok", *(check.verdict for check in checks)]
    return max(verdicts, key=lambda verdict: _SEVERITY[verdict])
