"""Builds what views show about time besides the timeline itself."""

from collections.abc import Iterator

from eks_inference_tools.timeline.timeline import Course, End, Timeline
from eks_inference_tools.timeline.wording import dominating, duration, spread, told, total
from stackgraph.domain import Listing, Part, Row, Section

_ABOUT = ("typical times", "that others published, no promises; `--timeline` shows every step")


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
    longest = tuple(f"{one.step.title} {duration(one.seconds)}" for one in dominating(told(course, end)))
    return Row((what, total(end), spread(end)), {"mostly": longest})
