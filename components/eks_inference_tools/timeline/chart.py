"""A timeline as a chart of stackgraph's page."""

from eks_inference_tools.timeline.timeline import CAVEAT, Timeline, timeline
from eks_inference_tools.timeline.whatifs import what_ifs
from eks_inference_tools.timeline.wording import duration, seen, spread, total
from stackgraph.domain import Bar, Chart
from stackgraph.graph.document import Graph
from stackgraph.graph.values import joined

_MOST_SAVINGS = 3


def chart(graph: Graph) -> Chart | None:
    """Returns the steps of a first `pulumi up` and of its pods; None for a program that creates nothing which takes time."""
    found = timeline(graph)
    spans = found.creation.typical.spans
    last = max((found.update, *found.answers), key=lambda end: end.p50)
    deciding = {step.id for step in found.creation.path(last)}
    bars = [
        Bar(step.title, spans[step.id].start, spans[step.id].end, step.urn, step.id in deciding, seen(step))
        for step in found.creation.steps
        if step.time is None or step.time.samples
    ]
    if not any(bar.end for bar in bars):
        return None
    ends = [("pulumi up is done", found.update.p50), *((f"{end.name} answers", end.p50) for end in found.answers)]
    return Chart("Time until the first answer", bars, tuple(_notes(found)), ends)


def _notes(found: Timeline) -> list[str]:
    told = [f"pulumi up: {total(found.update)} ({spread(found.update)})"]
    told += [f"first answer of {end.name}: {total(end)} ({spread(end)})" for end in found.answers]
    told.append(f"pulumi destroy: {total(found.destroy)} ({spread(found.destroy)})")
    savings = [f"{one.change} saves {duration(one.saves)}" for one in what_ifs(found)[:_MOST_SAVINGS]]
    return [CAVEAT, f"{joined(*told, by='; ')}.", *([f"Sooner: {joined(*savings, by='; ')}."] if savings else [])]
