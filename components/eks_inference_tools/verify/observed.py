"""The state of a cluster at one moment, and the results of checks."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Literal

from rich.console import RenderableType

from eks_inference_tools.reading.expected import Expected
from eks_inference_tools.reading.known_messages import runbook
from eks_inference_tools.reading.live_objects import Object, identity_of, labels_of
from stackgraph.graph.values import at, table, text
from stackgraph.presentation.output import json_text
from stackgraph.presentation.terminal import WIDTH, Paragraph, copied, drawn, words

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


@dataclass(frozen=True)
class Unreadable:
    """Why a resource could not be listed: the API server does not have it, or forbids it. ``said`` is the server's message."""

    resource: str
    reason: Literal["not installed", "forbidden"]
    said: str = ""

    @property
    def message(self) -> str:
        return f"you may not list {self.resource}" if self.reason == "forbidden" else f"the cluster has no {self.resource}"

    @property
    def next(self) -> str:
        """A command that shows more."""
        if self.reason == "forbidden":
            return f"kubectl auth can-i list {self.resource} --all-namespaces"
        return f"kubectl get crd {self.resource}"


@dataclass(frozen=True)
class ReleaseRecord:
    """Helm's record of the latest revision of a release."""

    status: str
    revision: int


@dataclass(frozen=True)
class Observed:
    """Objects by kubectl's resource name. ``releases`` are by namespace and name; None if they could not be read."""

    server_version: str
    objects: Mapping[str, Sequence[Object]]
    unreadable: Mapping[str, Unreadable] = field(default_factory=dict)
    releases: Mapping[tuple[str, str], ReleaseRecord] | None = field(default_factory=dict)

    def all(self, resource: str) -> Sequence[Object]:
        return self.objects.get(resource, ())

    def gap(self, resource: str) -> Finding | None:
        """Returns the finding for a resource that could not be listed; None if it could."""
        blocked = self.unreadable.get(resource)
        return unknown(blocked.message, blocked.next) if blocked else None

    def find(self, resource: str, namespace: str, name: str) -> Object | None:
        """Returns one object; ``namespace`` is empty for cluster-scoped objects."""
        return next((item for item in self.all(resource) if identity_of(item) == (namespace, name)), None)

    def selected(self, resource: str, namespace: str, selector: Mapping[str, Any]) -> list[Object]:
        """Returns objects of a namespace that match a selector (``matchLabels``); none for an empty selector."""
        wanted = table(selector).items()
        return [
            item
            for item in self.all(resource)
            if wanted and at(item, "metadata", "namespace") == namespace and wanted <= labels_of(item).items()
        ]


SCHEMA = 1

VERDICTS: tuple[Verdict, ...] = ("ok", "wait", "unknown", "failed")
_CHECK = {**dict.fromkeys(("area", "subject", "found", "expected", "next", "runbook"), str), "verdict": Verdict}
SHAPE = {
    **dict.fromkeys(("stack", "cluster", "context"), str),
    "verdict": Verdict,
    "counts": dict.fromkeys(VERDICTS, int),
    "checks": [_CHECK],
    "unchecked": {"*": int},
}


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
                "runbook": _page(check),
            }
            for check in checks
        ],
        "unchecked": expected.unchecked,
    }
    return json_text(document)


_STYLES = {"ok": "green", "wait": "yellow", "unknown": "magenta", "failed": "red"}
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
    for label, said in (("next", finding.next), ("runbook", _page(check))):
        if said:
            yield copied(f"{_MARGIN}{label:<8}  {text(said)}")


def _page(check: Check) -> str:
    """The page of the runbook about what is not well."""
    return "" if check.verdict == "ok" else runbook(f"{check.subject}: {check.finding.found}")[0]
