"""What the account's answers mean for a stack."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from stackgraph.graph.wording import counted as words

Verdict = Literal["ok", "warning", "error", "unknown"]
"""``error``: the stack cannot be deployed, or cannot serve, as things are. ``warning``: it may. ``unknown``: nobody answered."""

VERDICTS: tuple[Verdict, ...] = ("error", "warning", "unknown", "ok")
"""From the most to the least severe."""


@dataclass(frozen=True)
class Finding:
    """One verdict, as ``examine`` returns it."""

    topic: str
    """The heading that it belongs to: ``quotas``, ``images``."""
    verdict: Verdict
    text: str
    """What was asked, and what the answer was, in one line."""
    remedy: str = ""
    """What to do."""
    request: str = ""
    """A command line for that, ready to run."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What was read, as plain data, for whoever compares it with the catalog."""


Findings = tuple[Finding, ...]


def ok(text: str, remedy: str = "", request: str = "", **facts: Any) -> Finding:
    return Finding("", "ok", text, remedy, request, facts)


def warning(text: str, remedy: str, request: str = "", **facts: Any) -> Finding:
    return Finding("", "warning", text, remedy, request, facts)


def error(text: str, remedy: str, request: str = "", **facts: Any) -> Finding:
    return Finding("", "error", text, remedy, request, facts)


def unknown(text: str, remedy: str = "", request: str = "", **facts: Any) -> Finding:
    return Finding("", "unknown", text, remedy, request, facts)


def overall(findings: Sequence[Finding]) -> Verdict:
    """The most severe verdict; ``ok`` without findings."""
    found = {finding.verdict for finding in findings}
    for verdict in VERDICTS:
        if verdict in found:
            return verdict
    return "ok"


def counted(findings: Sequence[Finding]) -> str:
    """``1 error, 2 not known, 40 ok``."""
    numbers = Counter(finding.verdict for finding in findings)
    names = {"unknown": "not known", "ok": "ok"}
    return ", ".join(
        f"{numbers[one]} {names[one]}" if one in names else words(numbers[one], one) for one in VERDICTS if numbers[one]
    )
