"""A simulation as a person reads it, and as a program does."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from textwrap import wrap
from typing import Any

from eks_inference.accelerators.neuron.plan import DEVICE_RESOURCE
from eks_inference_tools.reading.pods import number
from eks_inference_tools.simulate.landing import Amounts, LandedNode, LandedPod, Landing, PendingPod
from eks_inference_tools.simulate.rollout.walk import Outcome
from eks_inference_tools.simulate.world.admit import Admission
from eks_inference_tools.simulate.world.device_sets import spans
from eks_inference_tools.verify.report import counted as verdicts
from eks_inference_tools.verify.verdicts import Check
from stackgraph.graph.values import joined, unique
from stackgraph.graph.wording import counted

SCHEMA = 1

_WIDTH = 120
_MARGIN = 10
_WIDEST_OWNER = 56
_MOST_TITLES = 12
_UNBROKEN = "\u00a0"
_BOLD, _DIM, _RED, _GREEN = "1", "2", "31", "32"
_GIB = Decimal(2**30)
_DISK = "ephemeral-storage"
_IN_BYTES = ("memory", _DISK)

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
            "of the rollouts unfinished": sum(not phase.is_complete for phase in self.phases),
            "not as `verify` expects": sum(check.verdict != "ok" for check in self.checks),
        }


# -- text ------------------------------------------------------------------------------------------------------------------------


def render_text(report: Report, *, colour: bool = False) -> str:
    """The whole report for a terminal, in lines of 120 columns as far as its words allow. ``colour``: with ANSI colours."""

    def paint(words: str, style: str) -> str:
        return f"\x1b[{style}m{words}\x1b[0m" if colour and words else words

    head = _wrapped(f"{report.stack} on a simulated cluster of {report.kubernetes}; nothing ran, on AWS or elsewhere", _WIDTH)
    lines = [head[0].replace(report.stack, paint(report.stack, _BOLD), 1), *head[1:], ""]
    lines += _admitted(report.admission)
    lines += ["", *_placed(report, paint)]
    lines += _pending(report.landing.pending, paint)
    lines += ["", *_phases(report.phases, report.landing.pending)]
    lines += _block("Verify", [verdicts(report.checks) or "nothing to look at"])
    for check in report.checks:
        if check.verdict != "ok":
            finding = check.finding
            expected = f"; expected: {finding.expected}" if finding.expected else ""
            lines += _more(f"{check.verdict:<9}{check.subject}: {finding.found}{expected}")
    if report.complaints:
        lines += _block("Denied", report.complaints)
    lines += ["", *(paint(line, _DIM) for line in _not_real(report))]
    return "\n".join([*lines, "", *_verdict(report, paint)]) + "\n"


def _verdict(report: Report, paint: Painter) -> Iterator[str]:
    if report.is_well:
        yield paint("Everything was admitted, landed and rolled out.", _GREEN)
    else:
        words = _listed(f"{count} {what}" for what, count in report.faults().items() if count)
        yield from (paint(line, _RED) for line in _wrapped(words, _WIDTH))


def _admitted(admission: Admission) -> Iterator[str]:
    taken = admission.objects - len({refusal.urn for refusal in admission.refusals})
    yield from _block(
        "Admitted",
        [
            f"{taken} of {counted(admission.objects, 'object')} and {counted(admission.templates, 'pod template')}, "
            "by strict server-side dry runs",
            "; ".join(f"{count} by {origin}" for origin, count in admission.origins.items()),
        ],
    )
    for refusal in admission.refusals:
        source = f" ({refusal.source})" if refusal.source else ""
        yield from _more(f"refused  {refusal.title}{source}: {refusal.message}")
    if admission.unchecked:
        yield from _more(f"not checked, no schema at hand: {_listed(admission.unchecked)}")


def _placed(report: Report, paint: Painter) -> Iterator[str]:
    landing = report.landing
    schedulers = " and ".join(report.schedulers)
    yield from _block("Placed", [f"{counted(landing.placed, 'pod')} on {counted(len(landing.nodes), 'node')} by {schedulers}"])
    for node in landing.nodes:
        yield ""
        yield paint(f"{'':{_MARGIN}}{joined(node.name, node.type_name, node.zone, by='  ')}", _BOLD)
        yield from _block("", [_listed(_shares(node))])
        yield from _pods_of(node)
    yield ""
    yield from _block("Idle", ["; ".join(_idle(landing)) or _no_idle(landing)])


def _idle(landing: Landing) -> Iterator[str]:
    """``1 nvidia.com/gpu on each of gpu-1, gpu-2``"""
    for resource, counts in landing.idle_devices().items():
        for count in sorted(set(counts.values()), reverse=True):
            nodes = [node for node, idle in counts.items() if idle == count]
            yield f"{count} {resource} on {'each of ' if len(nodes) > 1 else ''}{', '.join(nodes)}"


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
    servers = Counter(
        (pod.owner, _asked(pod.requests, pod.devices)) for pod in node.pods if not pod.on_each_node and not pod.stands_in_for
    )
    rows = [(_times(count, owner), asked) for (owner, asked), count in servers.items()]
    width = max((len(title) for title, _ in rows if len(title) <= _WIDEST_OWNER), default=0)
    for title, asked in rows:
        if len(title) <= width:
            yield from _block(f"{'':{_MARGIN + 2}}{title}", [asked], column=_MARGIN + 2 + width + 2)
        else:
            yield from (*_more(_listed([title]), indent=2), *_more(asked, indent=4))
    daemons = [pod for pod in node.pods if pod.on_each_node]
    others = [pod for pod in node.pods if pod.stands_in_for and not pod.on_each_node]
    yield from _together("DaemonSets", daemons)
    yield from _together("charts and add-ons (stand-ins)", others)
    if node.ended:
        yield from _more(f"ran here and ended: {_listed(unique(node.ended))}", indent=2)


def _together(what: str, pods: Sequence[LandedPod]) -> Iterator[str]:
    if not pods:
        return
    names = Counter(pod.owner.rpartition("/")[2] for pod in pods)
    shown = ", ".join(_times(count, name) for name, count in names.items())
    cpu, memory = (sum((pod.requests.get(name, Decimal()) for pod in pods), Decimal()) for name in ("cpu", "memory"))
    yield from _more(f"{what}, cpu {number(cpu)}, memory {number(memory / _GIB)} GiB: {shown}", indent=2)


def _times(count: int, what: str) -> str:
    return f"{count} × {what}" if count > 1 else what


def _asked(requests: Amounts, devices: Sequence[int] = (), *, disk: bool = False) -> str:
    """What a pod asks for, in the order of ``_shares``; which devices it has; its disk space only where that matters."""
    parts = []
    for name in sorted(requests, key=lambda name: ("/" in name, name not in ("cpu", "memory"), name)):
        value = requests[name]
        if name in _IN_BYTES or name.startswith("hugepages-"):
            parts += [f"{name} {number(value / _GIB)} GiB"] if disk or name != _DISK else []
        else:
            parts.append(f"{name} {number(value)}{f' ({spans(devices)})' if devices and name == DEVICE_RESOURCE else ''}")
    return _listed(parts)


def _pending(pending: Sequence[PendingPod], paint: Painter) -> Iterator[str]:
    """Pods that are the same to a reader are told of once."""
    alike = Counter((pod.owner, bool(pod.name), _asked(pod.requests, disk=True), pod.said) for pod in pending)
    for (owner, made, asked, said), count in alike.items():
        title = _times(count, owner) if made else f"{owner}: no further pod could be made"
        yield ""
        yield from (paint(line, _RED) for line in _block("Pending", [title]))
        if asked:
            yield from _more(f"asks for {asked}")
        yield from _more(said)


def _phases(phases: Sequence[Phase], pending: Sequence[PendingPod]) -> Iterator[str]:
    # What keeps pods off nodes was said of them already.
    told = tuple(f"{f'Pod {pod.namespace}/{pod.name}' if pod.name else pod.owner}: " for pod in pending)
    for phase in phases:
        yield from _block(phase.name.capitalize(), [_went(phase)])
        for outcome in phase.parts:
            for refusal in outcome.refusals:
                yield from _more(f"refused  {refusal.title}: {refusal.message}")
            for stall in outcome.stalls:
                yield from _more(f"waits    {stall.title}: {stall.waits_for}")
                for words in stall.words:
                    if not words.startswith(told):
                        yield from _more(words, indent=9)
                if stall.behind:
                    yield from _more(f"behind it: {_first_of(stall.behind)}", indent=9)
            behind = {title for stall in outcome.stalls for title in stall.behind}
            if others := [title for title in outcome.unreached if title not in behind]:
                yield from _more(f"not reached: {_first_of(others)}")


def _went(phase: Phase) -> str:
    took = f"{phase.outcome.duration_s:.1f} s, {counted(len(phase.outcome.steps), 'object')}"
    if not phase.outcome.is_complete:
        return f"unfinished after {took} done"
    if phase.settled is None:
        return f"done in {took}"
    what = "every pod and endpoint" if phase.settled.is_complete else "not every pod and endpoint was there"
    return f"done in {took}; {what} {phase.settled.duration_s:.1f} s later"


def _first_of(titles: Sequence[str]) -> str:
    more = len(titles) - _MOST_TITLES
    return _listed(titles[:_MOST_TITLES]) + (f" and {more} more" if more > 0 else "")


def _not_real(report: Report) -> Iterator[str]:
    yield from _block("Not real", report.stands_in)
    if report.differs:
        yield from _block("Differs", report.differs)


def _block(heading: str, paragraphs: Iterable[str], *, column: int = _MARGIN) -> Iterator[str]:
    """Paragraphs beside a heading, which must be shorter than ``column``."""
    first = heading
    for paragraph in paragraphs:
        for line in _wrapped(paragraph, _WIDTH - column):
            yield f"{first:<{column}}{line}"
            first = ""
    if first:
        yield first


def _more(paragraph: str, *, indent: int = 0) -> Iterator[str]:
    margin = " " * (_MARGIN + indent)
    yield from _wrapped(paragraph, _WIDTH, first=margin, others=f"{margin}  ")


def _listed(parts: Iterable[str]) -> str:
    """The parts with commas; lines break between them only."""
    return ", ".join(part.replace(" ", _UNBROKEN) for part in parts)


def _wrapped(paragraph: str, width: int, *, first: str = "", others: str = "") -> list[str]:
    """Lines of that width, in which words are never cut: names are there to be copied. No letter of it steers a terminal."""
    harmless = "".join(letter if letter.isprintable() or letter == _UNBROKEN else " " for letter in paragraph)
    lines = wrap(harmless, width, initial_indent=first, subsequent_indent=others, break_long_words=False, break_on_hyphens=False)
    return [line.replace(_UNBROKEN, " ") for line in lines]


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
