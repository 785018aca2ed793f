"""Draws a server's day as an SVG: requests, what its autoscaler sees, pods."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from eks_inference_tools.simulate.day.day import Course, Day, Moment
from eks_inference_tools.simulate.day.text import rate_at
from stackgraph.graph.wording import counted
from stackgraph.presentation import markup
from stackgraph.presentation.markup import Markup, raw

_WIDTH, _LEFT, _RIGHT = 760.0, 52.0, 640.0
_TOP, _PANEL, _GAP, _FOOT = 54.0, 104.0, 40.0, 46.0
_MINUTE = 60
_STYLE = """
svg { background: #fff; }
text { font: 12px system-ui, sans-serif; fill: #1f2933; }
.title { font-size: 15px; font-weight: 600; }
.quiet, .tick { fill: #616e7c; }
.tick { text-anchor: middle; }
.side { text-anchor: end; }
.grid { stroke: #e4e7eb; }
.loss { stroke: #c05621; stroke-dasharray: 5 4; }
.line { fill: none; stroke-width: 2; stroke-linejoin: round; }
.rate { stroke: #52606d; }
.metric { stroke: #6b46c1; }
.wanted { stroke: #2b6cb0; }
.answering { stroke: #2b6cb0; stroke-width: 6; stroke-opacity: 0.25; }
"""


@dataclass(frozen=True)
class _Panel:
    """A curve on the common time axis, from 0 to the last of its ``steps``. ``top`` is its place in the picture."""

    top: float
    title: str
    steps: Sequence[float]

    def y(self, value: float) -> float:
        return self.top + _PANEL * (1 - min(value / self.steps[-1], 1))

    def frame(self) -> Iterator[Markup]:
        yield markup.label("", _LEFT, self.top - 9, self.title)
        for step in self.steps:
            yield markup.line("grid", _LEFT, self.y(step), _RIGHT, self.y(step))
            yield markup.label("tick side", _LEFT - 8, self.y(step) + 4, f"{step:g}")

    def curve(self, kind: str, course: Course, value: Callable[[Moment], float | None]) -> Markup:
        points = [(moment.at, value(moment)) for moment in course.moments]
        end = points[-1][0] or 1.0
        inside = zip(points, points[1:], points[2:], strict=False)
        turns = [here for before, here, after in inside if not before[1] == here[1] == after[1]]
        kept = [points[0], *turns, points[-1]]
        return markup.path(f"line {kind}", ((_x(at, end), None if here is None else self.y(here)) for at, here in kept))


def render_plot(day: Day, course: Course) -> str:
    """Returns the text of an SVG file."""
    moments, load = course.moments, course.subject.load
    end, most = moments[-1].at or 1.0, max(max(moment.wanted, moment.answering) for moment in moments)
    seen = [moment.metric for moment in moments if moment.metric is not None]
    tops = [_TOP + 24 + number * (_PANEL + _GAP) for number in range(3 if seen else 2)]
    rates = _Panel(tops[0], "Requests a second", markup.round_steps(max(rate for _, rate in load.rates)))
    pods = _Panel(tops[-1], "Pods: wide, those that answer; thin, those that are wanted", range(most + 2))
    drawn = [
        markup.label("title", _LEFT, 22, f"{day.stack}: a day of {course.subject.name}"),
        markup.label("quiet", _LEFT, 42, "In real time: controllers and Prometheus are real, servers a model."),
        *rates.frame(),
        rates.curve("rate", course, lambda moment: rate_at(load, moment.at)),
    ]
    if seen:
        metric = _Panel(tops[1], "What the autoscaler sees, averaged over pods", markup.round_steps(max(seen) or 1))
        drawn += [*metric.frame(), metric.curve("metric", course, lambda moment: moment.metric)]
    drawn += [
        *pods.frame(),
        pods.curve("answering", course, lambda moment: moment.answering),
        pods.curve("wanted", course, lambda moment: moment.wanted),
    ]
    bottom = tops[-1] + _PANEL
    if day.losses:
        drawn.append(markup.line("loss", _x(day.lost_at, end), tops[0], _x(day.lost_at, end), bottom))
    drawn += [
        markup.label("tick", _x(minute * _MINUTE, end), bottom + 18, f"{minute}:00") for minute in range(int(end // _MINUTE) + 1)
    ]
    title, size = f"{day.stack}: requests and pods of a day", (_WIDTH, bottom + _FOOT)
    style, namespace = raw("style", _STYLE), "http://www.w3.org/2000/svg"
    return markup.picture("", title, _in_words(course), size, [style, *drawn], xmlns=namespace) + "\n"


def _x(at: float, end: float) -> float:
    return _LEFT + (_RIGHT - _LEFT) * at / end


def _in_words(course: Course) -> str:
    """The curves as a sentence: ``4.03 requests/s, 1 pod; at 61 s 6.62 requests/s``."""
    load, moments = course.subject.load, course.moments
    phrases = [f"{rate_at(load, 0):.3g} requests/s, {counted(moments[0].wanted, 'pod')}"]
    for before, now in pairwise(moments):
        rate = rate_at(load, now.at)
        said = [f"{rate:.3g} requests/s"] if rate != rate_at(load, before.at) else []
        said += [counted(now.wanted, "pod")] if now.wanted != before.wanted else []
        if said:
            phrases.append(f"at {now.at:.0f} s {', '.join(said)}")
    return "; ".join(phrases)
