"""A timeline as a chart of stackgraph's page, and what views show about time besides. Pure."""

from collections.abc import Iterator

from eks_inference_tools.timeline.timeline import CAVEAT, Course, End, Timeline, what_ifs
from eks_inference_tools.timeline.wording import answering, dominating, duration, seen, spread, told, total
from stackgraph.domain import Bar, Chart, Listing, Part, Row, Section

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
    for what_if in what_ifs(found)[:_MOST_SAVINGS]:
        yield f"Sooner by {duration(what_if.saves)}: {what_if.change}."


_ABOUT = ("typical times", "published by others, no promises; `--timeline` shows every step")


def time_section(timeline: Timeline) -> Section:
    """When `pulumi up` is done, when each server answers first, how long `pulumi destroy` takes, and what takes longest."""
    rows = list(_rows(timeline))
    cells = [[(Part((text,)),) for text in (*row.cells, ", ".join(row.details["mostly"]))] for row in rows]
    listings = [Listing(("UNTIL", "TYPICALLY", "SEEN"), rows)]
    return Section("Time", listings, ("Until", "Typically", "Seen", "Mostly"), cells, _ABOUT if rows else ("", ""))


def _rows(timeline: Timeline) -> Iterator[Row]:
    ends = [("pulumi up is done", timeline.update)]
    ends += [(f"{end.name} answers first", end) for end in timeline.answers]
    for what, end in ends:
        if end.p50:
            yield _row(what, timeline.creation, end)
    if timeline.destroy.p50:
        yield _row("pulumi destroy is done", timeline.deletion, timeline.destroy)


def _row(what: str, course: Course, end: End) -> Row:
    longest = tuple(f"{path_step.step.title} {duration(path_step.seconds)}" for path_step in dominating(told(course, end)))
    return Row((what, total(end), spread(end)), {"mostly": longest})
