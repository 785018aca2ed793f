"""A timeline as a chart of stackgraph's page."""

from collections.abc import Iterator

from eks_inference_tools.timeline.timeline import CAVEAT, Timeline
from eks_inference_tools.timeline.whatifs import what_ifs
from eks_inference_tools.timeline.wording import answering, duration, seen, spread, total
from stackgraph.domain import Bar, Chart

_MOST_SAVINGS = 3


def chart(found: Timeline) -> Chart | None:
    """Returns the steps of a first `pulumi up` and of its pods; None for a program that creates nothing which takes time."""
    spans = found.creation.typical.spans
    last = max((found.update, *found.answers), key=lambda end: end.p50)
    deciding = {step.id for step in found.creation.path(last)}
    bars = [
        Bar(
            step.phase or step.title,
            spans[step.id].start,
            spans[step.id].end if step.time else None,
            step.urn,
            step.id in deciding,
            seen(step),
            step.time.source if step.time else "",
        )
        for step in found.creation.steps
        if step.time is None or step.time.p50
    ]
    if not bars:
        return None
    ends = [("pulumi up is done", found.update.p50), *((servers, end.p50) for servers, end in answering(found))]
    return Chart("Time until the first answer", bars, CAVEAT, tuple(_facts(found)), ends)


def _facts(found: Timeline) -> Iterator[str]:
    yield f"pulumi up is done after {total(found.update)} ({spread(found.update)})."
    for servers, end in answering(found):
        yield f"{servers} after {total(end)} ({spread(end)})."
    yield f"pulumi destroy takes {total(found.destroy)} ({spread(found.destroy)})."
    for one in what_ifs(found)[:_MOST_SAVINGS]:
        yield f"Sooner by {duration(one.saves)}: {one.change}."
