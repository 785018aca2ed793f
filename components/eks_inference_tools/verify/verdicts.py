"""What a check says."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

Verdict = Literal["ok", "wait", "failed", "unknown"]
"""``wait``: not there yet, and nothing says that it will not come. ``unknown``: could not be looked at."""

_GRAVITY: Mapping[Verdict, int] = {"ok": 0, "unknown": 1, "wait": 2, "failed": 3}


@dataclass(frozen=True)
class Finding:
    """``found`` says what is there; unless all is well, ``expected`` what should be and ``next`` a command that tells more."""

    verdict: Verdict
    found: str
    expected: str = ""
    next: str = ""


@dataclass(frozen=True)
class Check:
    """A finding about one subject, under one heading of the report."""

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
    """All findings as one: the gravest decides, and the words are of all that are as grave."""
    found = list(findings)
    verdict: Verdict = max((item.verdict for item in found), key=lambda verdict: _GRAVITY[verdict])
    alike = [item for item in found if item.verdict == verdict]
    return Finding(
        verdict,
        "; ".join(dict.fromkeys(item.found for item in alike)),
        "; ".join(dict.fromkeys(item.expected for item in alike if item.expected)),
        next(iter(item.next for item in alike if item.next), ""),
    )


def overall(checks: Iterable[Check]) -> Verdict:
    """The verdict on a whole stack: its gravest check."""
    verdicts: list[Verdict] = ["ok", *(check.verdict for check in checks)]
    return max(verdicts, key=lambda verdict: _GRAVITY[verdict])
