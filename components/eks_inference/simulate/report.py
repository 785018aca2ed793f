"""A simulation as a person reads it, and as a program does."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import groupby
from textwrap import wrap
from typing import Any

from eks_inference.preflight.pod_facts import number
from eks_inference.preview.values import joined, unique
from eks_inference.simulate.admit import Admission
from eks_inference.simulate.device_sets import spans
from eks_inference.simulate.landing import Amounts, LandedNode, LandedPod, Landing, PendingPod
from eks_inference.simulate.walk import Outcome
from eks_inference.verify.report import counted
from eks_inference.verify.verdicts import Check

SCHEMA = 1

_WIDTH = 120
_MARGIN = 10
_BOLD, _DIM, _RED, _GREEN = "1", "2", "31", "32"
_GIB = Decimal(2**30)

Painter = Callable[[str, str], str]


@dataclass(frozen=True)
class Phase:
    """One rollout of a simulation: ``create``, ``update`` or ``delete``.

    ``settled`` is what came after Pulumi was done: pods and endpoints it does not wait for. None where nothing is left to come.
    """

    name: str
    outcome: Outcome
    settled: Outcome | None = None

    @property
    def parts(self) -> tuple[Outcome, ...]:
        return (self.outcome,) if self.settled is None else (self.outcome, self.settled)

    @property
    def is_complete(self) -> bool:
        return all(part.is_complete for part in self.parts)


@dataclass(frozen=True)
class Report:
    """What a simulation found.

    ``kubernetes`` is the version that was spoken, in words; ``stands_in`` says what was not real, ``differs`` how the nodes may
    differ from real ones, ``complaints`` what the stack's own schedulers complained of. ``seconds`` are those of its parts.
    """

    stack: str
    kubernetes: str
    admission: Admission
    phases: tuple[Phase, ...]
    landing: Landing
    checks: tuple[Check, ...]
    schedulers: tuple[str, ...]
    complaints: tuple[str, ...]
    stands_in: tuple[str, ...]
    differs: tuple[str, ...]
    seconds: Mapping[str, float]

    @property
    def is_well(self) -> bool:
        """Whether all was admitted, every pod landed, every rollout went through and ``verify`` is content."""
        return not any(self.faults().values())

    def faults(self) -> Mapping[str, int]:
        """What is wrong, counted in words."""
        return {
            "refused by the API server": len(self.admission.refusals),
            "Pending": len(self.landing.pending),
            "forbidden to the stack's own schedulers": len(self.complaints),
            "unfinished rollout": sum(not phase.is_complete for phase in self.phases),
            "not as `verify` expects": sum(check.verdict != "ok" for check in self.checks),
        }


# -- text ------------------------------------------------------------------------------------------------------------------------


def render_text(report: Report, *, colour: bool = False) -> str:
    def paint(words: str, style: str) -> str:
        return f"\x1b[{style}m{words}\x1b[0m" if colour and words else words

    lines = [f"{paint(report.stack, _BOLD)} on a simulated cluster of {report.kubernetes}; nothing ran, on AWS or elsewhere", ""]
    lines += _admitted(report.admission)
    lines += ["", *_placed(report, paint)]
    for pending in report.landing.pending:
        lines += [paint(line, _RED) if number == 0 else line for number, line in enumerate(_pending(pending))]
    lines += ["", *_phases(report.phases, pending=bool(report.landing.pending))]
    lines += _block("Verify", [counted(report.checks)])
    for check in report.checks:
        if check.verdict != "ok":
            lines += _more(f"{check.verdict}  {check.subject}: {check.finding.found}; expected: {check.finding.expected}")
    for complaint in report.complaints:
        lines += _block("Denied", [complaint])
    lines += ["", *(paint(line, _DIM) for line in _not_real(report))]
    return "\n".join([*lines, "", _verdict(report, paint)]) + "\n"


def _verdict(report: Report, paint: Painter) -> str:
    if report.is_well:
        return paint("Everything was admitted, landed and rolled out.", _GREEN)
    return paint(", ".join(f"{count} {what}" for what, count in report.faults().items() if count), _RED)


def _admitted(admission: Admission) -> Iterator[str]:
    taken = admission.objects - len({refusal.urn for refusal in admission.refusals})
    yield from _block(
        "Admitted",
        [
            f"{taken} of {admission.objects} objects and {admission.templates} pod templates, by strict server-side dry runs",
            "; ".join(f"{count} by {origin}" for origin, count in admission.origins.items()),
        ],
    )
    for refusal in admission.refusals:
        yield from _more(f"refused  {refusal.title} ({refusal.source}): {refusal.message}")
    if admission.unchecked:
        yield from _more(f"not checked, no schema at hand: {', '.join(admission.unchecked)}")


def _placed(report: Report, paint: Painter) -> Iterator[str]:
    landing = report.landing
    schedulers = " and ".join(report.schedulers)
    yield from _block("Placed", [f"{landing.placed} pods on {len(landing.nodes)} nodes by {schedulers}"])
    for node in landing.nodes:
        yield ""
        yield paint(f"{'':{_MARGIN}}{joined(node.name, node.type_name, node.zone, by='  ')}", _BOLD)
        yield f"{'':{_MARGIN}}{', '.join(_shares(node))}"
        yield from _pods_of(node)
    idle = landing.idle_devices()
    words = [f"{count} {name} on {node}" for name, nodes in idle.items() for node, count in nodes.items()]
    yield ""
    yield from _block("Idle", ["; ".join(words) if words else _no_idle(landing)])


def _no_idle(landing: Landing) -> str:
    return "no device" if any(node.devices for node in landing.nodes) else "there are no devices"


def _shares(node: LandedNode) -> Iterator[str]:
    """``cpu 190 of 191.45``, for everything that can run out."""
    for name in ("cpu", "memory", "pods", *node.devices):
        taken, most = node.taken.get(name, Decimal()), node.allocatable.get(name, Decimal())
        if name == "memory":
            yield f"memory {number(taken / _GIB)} of {number(most / _GIB)} GiB"
        else:
            yield f"{name} {number(taken)} of {number(most)}"


def _pods_of(node: LandedNode) -> Iterator[str]:
    servers = [pod for pod in node.pods if not pod.on_each_node and not pod.stands_in_for]
    width = max((len(pod.owner) for pod in servers), default=0)
    for owner, pods in groupby(servers, key=lambda pod: pod.owner):
        for pod in pods:
            yield f"{'':{_MARGIN + 2}}{owner:<{width}}  {_asked(pod)}".rstrip()
    daemons = [pod for pod in node.pods if pod.on_each_node]
    others = [pod for pod in node.pods if pod.stands_in_for and not pod.on_each_node]
    yield from _together("DaemonSets", daemons)
    yield from _together("charts and add-ons (stand-ins)", others)
    if node.ended:
        yield from _more(f"ran here and ended: {', '.join(unique(node.ended))}", indent=2)


def _together(what: str, pods: Sequence[LandedPod]) -> Iterator[str]:
    if not pods:
        return
    names = Counter(pod.owner.rpartition("/")[2] for pod in pods)
    shown = ", ".join(f"{count} × {name}" if count > 1 else name for name, count in names.items())
    cpu, memory = (sum((pod.requests.get(name, Decimal()) for pod in pods), Decimal()) for name in ("cpu", "memory"))
    yield from _more(f"{what}, cpu {number(cpu)}, memory {number(memory / _GIB)} GiB: {shown}", indent=2)


def _asked(pod: LandedPod | PendingPod) -> str:
    parts = []
    for name, value in pod.requests.items():
        if name == "memory":
            parts.append(f"memory {number(value / _GIB)} GiB")
        elif name != "ephemeral-storage":
            which = f" ({spans(pod.devices)})" if isinstance(pod, LandedPod) and pod.devices and "/" in name else ""
            parts.append(f"{name} {number(value)}{which}")
    return ", ".join(parts)


def _pending(pod: PendingPod) -> Iterator[str]:
    what = "" if pod.name else ": no pod could be made"
    yield from _block("Pending", [f"{pod.owner}{what}"])
    if asked := _asked(pod):
        yield from _more(f"asks for {asked}")
    yield from _more(pod.said)


def _phases(phases: Sequence[Phase], *, pending: bool) -> Iterator[str]:
    for phase in phases:
        took = f"{phase.outcome.duration_s:.1f} s, {len(phase.outcome.steps)} objects"
        later = f"; every pod and endpoint {phase.settled.duration_s:.1f} s later" if phase.settled else ""
        yield from _block(phase.name.capitalize(), [f"done in {took}{later}" if phase.is_complete else f"not done after {took}"])
        for outcome in phase.parts:
            for refusal in outcome.refusals:
                yield from _more(f"refused  {refusal.title}: {refusal.message}")
            for stall in outcome.stalls:
                yield from _more(f"waits    {stall.title}: {stall.waits_for}")
                # What keeps pods off nodes was said of them already.
                for words in () if pending else stall.words:
                    yield from _more(words, indent=9)
                if stall.behind:
                    yield from _more(f"behind it: {', '.join(stall.behind)}", indent=9)


def _not_real(report: Report) -> Iterator[str]:
    yield from _block("Not real", report.stands_in)
    if report.differs:
        yield from _block("Differs", report.differs)


def _block(heading: str, paragraphs: Iterable[str]) -> Iterator[str]:
    """Paragraphs beside a heading."""
    first = heading
    for paragraph in paragraphs:
        for line in wrap(paragraph, _WIDTH - _MARGIN, break_long_words=False, break_on_hyphens=False):
            yield f"{first:<{_MARGIN}}{line}"
            first = ""


def _more(paragraph: str, *, indent: int = 0) -> Iterator[str]:
    margin = " " * (_MARGIN + indent)
    yield from wrap(
        paragraph, _WIDTH, initial_indent=margin, subsequent_indent=f"{margin}  ", break_long_words=False, break_on_hyphens=False
    )


# -- JSON ------------------------------------------------------------------------------------------------------------------------


def render_json(report: Report) -> str:
    """The same as one JSON document; quantities are numbers, memory in bytes, times in seconds."""
    admission = report.admission
    document = {
        "schema": SCHEMA,
        "stack": report.stack,
        "well": report.is_well,
        "kubernetes": report.kubernetes,
        "admission": {
            "objects": admission.objects,
            "podTemplates": admission.templates,
            "origins": admission.origins,
            "unchecked": list(admission.unchecked),
            "refusals": [
                {"object": refusal.title, "source": refusal.source, "reason": refusal.reason, "message": refusal.message}
                for refusal in admission.refusals
            ],
        },
        "nodes": [_node_document(node) for node in report.landing.nodes],
        "pending": [
            {
                "owner": pod.owner,
                "namespace": pod.namespace,
                "pod": pod.name,
                "requests": _amounts(pod.requests),
                "said": pod.said,
            }
            for pod in report.landing.pending
        ],
        "idleDevices": report.landing.idle_devices(),
        "rollout": [_phase_document(phase) for phase in report.phases],
        "verify": [
            {"subject": check.subject, "verdict": check.verdict, "found": check.finding.found, "expected": check.finding.expected}
            for check in report.checks
        ],
        "schedulers": list(report.schedulers),
        "complaints": list(report.complaints),
        "notReal": list(report.stands_in),
        "differs": list(report.differs),
        "seconds": report.seconds,
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _node_document(node: LandedNode) -> dict[str, Any]:
    return {
        "name": node.name,
        "pool": node.pool,
        "instanceType": node.type_name,
        "zone": node.zone,
        "allocatable": _amounts(node.allocatable),
        "taken": _amounts(node.taken),
        "pods": [
            {
                "namespace": pod.namespace,
                "name": pod.name,
                "owner": pod.owner,
                "requests": _amounts(pod.requests),
                "devices": list(pod.devices),
                "standsInFor": pod.stands_in_for,
            }
            for pod in node.pods
        ],
        "ended": list(node.ended),
    }


def _phase_document(phase: Phase) -> dict[str, Any]:
    return {
        "name": phase.name,
        "complete": phase.is_complete,
        "seconds": round(phase.outcome.duration_s, 3),
        "settledSeconds": round(phase.settled.duration_s, 3) if phase.settled else None,
        "steps": [
            {"object": step.title, "action": step.action, "beganSeconds": step.began_s, "tookSeconds": step.took_s}
            for step in phase.outcome.steps
        ],
        "refusals": [
            {"object": one.title, "reason": one.reason, "message": one.message} for part in phase.parts for one in part.refusals
        ],
        "stalls": [
            {"object": one.title, "waitsFor": one.waits_for, "words": list(one.words), "behind": list(one.behind)}
            for part in phase.parts
            for one in part.stalls
        ],
        "unreached": list(phase.outcome.unreached),
    }


def _amounts(amounts: Amounts) -> dict[str, float | int]:
    return {name: int(value) if value == value.to_integral_value() else float(value) for name, value in amounts.items()}
