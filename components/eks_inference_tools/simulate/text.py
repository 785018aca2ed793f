"""Renders the report of a simulation for a terminal."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from typing import Unpack

from rich.console import RenderableType
from rich.text import Text

from eks_inference.accelerators.neuron.plan import DEVICE_RESOURCE
from eks_inference_tools.reading.devices import OF_KIND, shown
from eks_inference_tools.reading.scalars import number
from eks_inference_tools.simulate.report import Phase, Report
from eks_inference_tools.simulate.world.admit import Admission
from eks_inference_tools.simulate.world.scheduled_pods import (
    Amounts,
    NodeWithPods,
    PendingPod,
    ScheduledPod,
    ScheduledPods,
    spans,
)
from eks_inference_tools.verify.observed import counted as verdicts
from stackgraph.graph.values import joined, unique
from stackgraph.graph.wording import counted
from stackgraph.presentation.output import Drawing
from stackgraph.presentation.terminal import Columns, Paragraph, drawn, listed, words

_MARGIN = " " * 10
_WIDEST_OWNER = 56
_MOST_TITLES = 12
_GIB = Decimal(2**30)
_DISK = "ephemeral-storage"
_IN_BYTES = ("memory", _DISK)

Lines = Iterator[RenderableType]


def render_text(report: Report, **drawing: Unpack[Drawing]) -> str:
    """Returns the report; only words without a break make a line longer."""
    return drawn(_lines(report), **drawing)


def _lines(report: Report) -> Lines:
    about = f" on a simulated cluster of {report.kubernetes}; no container ran"
    yield from (Paragraph(words(report.stack, "bold").append_text(words(about))), "")
    yield from _admitted(report.admission)
    yield ""
    yield from _placed(report)
    yield from _pending(report.scheduled.pending)
    yield ""
    yield from _phases(report.phases, report.scheduled.pending)
    yield from _block("Verify", [verdicts(report.checks) or "nothing to look at"])
    for check in report.checks:
        if check.verdict != "ok":
            finding = check.finding
            expected = f"; expected: {finding.expected}" if finding.expected else ""
            yield _more(f"{check.verdict:<9}{check.subject}: {finding.found}{expected}")
    yield from _block("Faults", report.complaints)
    yield ""
    yield from _block("Not real", report.stands_in, "dim")
    yield from _block("Differs", report.differs, "dim")
    yield ""
    if report.is_well:
        yield words("Everything was admitted, landed and rolled out.", "green")
    else:
        yield Paragraph(listed((f"{count} {what}" for what, count in report.faults().items() if count), "red"))


def _admitted(admission: Admission) -> Lines:
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
        yield _more(f"refused  {refusal.title}{source}: {refusal.message}")
    if admission.unchecked:
        yield _more(words("not checked for want of a schema: ").append_text(listed(admission.unchecked)))


def _placed(report: Report) -> Lines:
    scheduled = report.scheduled
    schedulers = " and ".join(report.schedulers)
    yield from _block(
        "Placed", [f"{counted(scheduled.placed, 'pod')} on {counted(len(scheduled.nodes), 'node')} by {schedulers}"]
    )
    for node in scheduled.nodes:
        yield ""
        yield words(_MARGIN + joined(node.name, node.type_name, node.zone, by="  "), "bold")
        yield Paragraph(listed(_shares(node)), _MARGIN)
        yield from _pods_of(node)
    yield ""
    nothing = "no device" if any(node.devices for node in scheduled.nodes) else "there are no devices"
    yield from _block("Idle", ["; ".join(_idle(scheduled)) or nothing])


def _idle(scheduled: ScheduledPods) -> Iterator[str]:
    """Yields ``1 nvidia.com/gpu on each of gpu-1, gpu-2`` for every resource and count."""
    for resource, counts in scheduled.idle_devices().items():
        for count in sorted(set(counts.values()), reverse=True):
            nodes = [node for node, idle in counts.items() if idle == count]
            yield f"{count} {shown(resource)} on {'each of ' if len(nodes) > 1 else ''}{', '.join(nodes)}"


def _shares(node: NodeWithPods) -> Iterator[str]:
    """Yields ``cpu 190 of 191.45`` for every resource that can run out."""
    for name in ("cpu", "memory", "pods", *node.devices):
        scale, unit = (_GIB, " GiB") if name == "memory" else (1, "")
        taken, most = (amounts.get(name, Decimal()) / scale for amounts in (node.taken, node.allocatable))
        yield f"{shown(name)} {number(taken)} of {number(most)}{unit}"


def _pods_of(node: NodeWithPods) -> Lines:
    servers = Counter(
        (pod.owner, _asked(pod.requests, pod.devices).plain)
        for pod in node.pods
        if not pod.on_each_node and not pod.stands_in_for
    )
    rows = [(_times(count, owner), Text(asked)) for (owner, asked), count in servers.items()]
    yield Columns(rows, indent=len(_MARGIN) + 2, most=_WIDEST_OWNER)
    yield from _together("DaemonSets", [pod for pod in node.pods if pod.on_each_node])
    others = [pod for pod in node.pods if pod.stands_in_for and not pod.on_each_node]
    yield from _together("charts and add-ons (stand-ins)", others)
    if node.ended:
        yield _more(words("ran here and ended: ").append_text(listed(unique(node.ended))), indent=2)


def _together(what: str, pods: Sequence[ScheduledPod]) -> Lines:
    if not pods:
        return
    names = Counter(pod.owner.rpartition("/")[2] for pod in pods)
    shown = ", ".join(_times(count, name) for name, count in names.items())
    cpu, memory = (sum((pod.requests.get(name, Decimal()) for pod in pods), Decimal()) for name in ("cpu", "memory"))
    yield _more(f"{what}, cpu {number(cpu)}, memory {number(memory / _GIB)} GiB: {shown}", indent=2)


def _times(count: int, what: str) -> str:
    return f"{count} × {what}" if count > 1 else what


def _asked(requests: Amounts, devices: Sequence[int] = (), *, disk: bool = False) -> Text:
    """Lists a pod's requests in the order of ``_shares``, and which devices it has; its disk space only with ``disk``."""
    parts = []
    for name in sorted(requests, key=lambda name: ("/" in name, name not in ("cpu", "memory"), name)):
        value = requests[name]
        if name in _IN_BYTES or name.startswith("hugepages-"):
            parts += [f"{name} {number(value / _GIB)} GiB"] if disk or name != _DISK else []
        else:
            of_neuron = devices and name in (DEVICE_RESOURCE, OF_KIND["neuron"])
            parts.append(f"{shown(name)} {number(value)}{f' ({spans(devices)})' if of_neuron else ''}")
    return listed(parts)


def _pending(pending: Sequence[PendingPod]) -> Lines:
    """Shows pods that look the same as one entry with their number."""
    alike = Counter((pod.owner, bool(pod.name), _asked(pod.requests, disk=True).plain, pod.said) for pod in pending)
    for (owner, made, asked, said), count in alike.items():
        title = _times(count, owner) if made else f"{owner}: no further pod could be created"
        yield ""
        yield from _block("Pending", [title], "red")
        if asked:
            yield _more(words("asks for ").append(asked))
        yield _more(said)


def _phases(phases: Sequence[Phase], pending: Sequence[PendingPod]) -> Lines:
    # The report shows above why pods are Pending.
    shown = tuple(f"{f'Pod {pod.namespace}/{pod.name}' if pod.name else pod.owner}: " for pod in pending)
    for phase in phases:
        yield from _block(phase.name.capitalize(), [_went(phase)])
        for outcome in phase.parts:
            for refusal in outcome.refusals:
                yield _more(f"refused  {refusal.title}: {refusal.message}")
            for stall in outcome.stalls:
                yield _more(f"waits    {stall.title}: {stall.waits_for}")
                yield from (_more(said, indent=9) for said in stall.words if not said.startswith(shown))
                if stall.behind:
                    yield _more(words("behind it: ").append_text(_first_of(stall.behind)), indent=9)
            behind = {title for stall in outcome.stalls for title in stall.behind}
            if others := [title for title in outcome.unreached if title not in behind]:
                yield _more(words("not reached: ").append_text(_first_of(others)))


def _went(phase: Phase) -> str:
    took = f"{phase.outcome.duration_s:.1f} s, {counted(len(phase.outcome.steps), 'object')}"
    if not phase.outcome.is_complete:
        return f"unfinished after {took} done"
    if phase.settled is None:
        return f"done in {took}"
    what = "every pod and endpoint ready" if phase.settled.is_complete else "some pods or endpoints still not ready"
    return f"done in {took}; {what} {phase.settled.duration_s:.1f} s later"


def _first_of(titles: Sequence[str]) -> Text:
    more = len(titles) - _MOST_TITLES
    return listed(titles[:_MOST_TITLES]).append(f" and {more} more" if more > 0 else "")


def _block(heading: str, paragraphs: Iterable[str], style: str = "") -> Lines:
    """Yields the paragraphs, with the heading beside the first."""
    first = f"{heading:<{len(_MARGIN)}}"
    for paragraph in paragraphs:
        yield Paragraph(words(paragraph, style), words(first, style))
        first = _MARGIN


def _more(paragraph: Text | str, *, indent: int = 0) -> Paragraph:
    margin = _MARGIN + " " * indent
    return Paragraph(words(paragraph) if isinstance(paragraph, str) else paragraph, margin, f"{margin}  ")
