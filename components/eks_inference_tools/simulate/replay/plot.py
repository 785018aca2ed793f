"""The replicas of a replay as a picture: users, queueing and pods over the same time, as an SVG that stands by itself."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from eks_inference_tools.simulate.replay.samples import Sample, steps
from eks_inference_tools.simulate.replay.subject import Subject
from stackgraph.presentation.markup import Markup, element, raw

_WIDTH, _LEFT, _RIGHT = 760.0, 52.0, 620.0
_TOP, _PANEL, _GAP = 54.0, 104.0, 40.0
_FOOT = 46.0
_MINUTE = 60
_MOST_STEPS = 5

_STYLE = """
svg { background: #fff; }
text { font: 12px system-ui, sans-serif; fill: #1f2933; }
.title { font-size: 15px; font-weight: 600; }
.quiet, .tick { fill: #616e7c; }
.tick { text-anchor: middle; }
.side { text-anchor: end; }
.grid { stroke: #e4e7eb; }
.bound { stroke: #c05621; stroke-dasharray: 5 4; }
.bound-name { fill: #9c4221; }
.line { fill: none; stroke-width: 2; stroke-linejoin: round; }
.users { stroke: #52606d; }
.queueing { stroke: #6b46c1; }
.pods { stroke: #2b6cb0; }
.ready { stroke: #2b6cb0; stroke-width: 6; stroke-opacity: 0.25; }
.silent { fill: #f0b429; fill-opacity: 0.16; }
"""


@dataclass(frozen=True)
class _Panel:
    """A plot above the common axis of time. ``top`` is where it begins in the picture, ``most`` the value at its upper edge."""

    top: float
    most: float

    def y(self, value: float) -> float:
        return self.top + _PANEL * (1 - min(value, self.most) / self.most)

    def frame(self, title: str, steps: Sequence[float]) -> Iterator[Markup]:
        yield element("text", title, x=_number(_LEFT), y=_number(self.top - 9))
        for step in steps:
            yield _line("grid", _LEFT, self.y(step), _RIGHT, self.y(step))
            yield element("text", f"{step:g}", class_="tick side", x=_number(_LEFT - 8), y=_number(self.y(step) + 4))

    def bound(self, value: float, name: str) -> Iterator[Markup]:
        yield _line("bound", _LEFT, self.y(value), _RIGHT, self.y(value))
        yield _beside(name, self.y(value), "bound-name")


def render_plot(samples: Sequence[Sample], subject: Subject) -> str:
    """The picture, as the text of an SVG file."""
    limits, end = subject.limits, samples[-1].at
    panels = [_Panel(_TOP + 24 + number * (_PANEL + _GAP), 1) for number in range(3)]
    bottom = panels[-1].top + _PANEL
    height = bottom + _FOOT

    def x(at: float) -> float:
        return _LEFT + (_RIGHT - _LEFT) * at / end

    users = _Panel(panels[0].top, max(sample.users for sample in samples) or 1)
    queueing_steps = _round_steps(max([limits.target, *(sample.queueing or 0 for sample in samples)]))
    queueing = _Panel(panels[1].top, queueing_steps[-1])
    pods = _Panel(panels[2].top, limits.most + 1)

    drawn = [
        element("text", f"{subject.stack}: pods follow the queue", class_="title", x=_number(_LEFT), y="22"),
        element("text", _UNDER_TITLE, class_="quiet", x=_number(_LEFT), y="42"),
        *_silence(samples, x, panels[0].top, bottom),
        *users.frame("Users at once", [0, users.most]),
        *_drawn("users", _stairs(samples, lambda sample: sample.users), x, users),
        *_counts(samples, x, users),
        *queueing.frame("Queueing, milliseconds a second, average of the pods that are seen", queueing_steps),
        *queueing.bound(limits.target, f"target {limits.target:g}"),
        *_drawn("queueing", [(sample.at, sample.queueing) for sample in samples], x, queueing),
        *pods.frame("Pods", range(limits.most + 2)),
        *pods.bound(limits.most, f"maximum {limits.most}"),
        *_drawn("ready", _stairs(samples, lambda sample: len(sample.ready)), x, pods),
        *_drawn("pods", _stairs(samples, lambda sample: sample.replicas), x, pods),
        _beside("thin: wanted", bottom - 16),
        _beside("wide: Ready", bottom),
        *_times(end, x, bottom),
    ]
    return (
        element(
            "svg",
            element("title", f"{subject.stack}: users, queueing and pods of a replay", id="title"),
            element("desc", f"{in_words(samples)}.", id="words"),
            raw("style", _STYLE),
            *drawn,
            xmlns="http://www.w3.org/2000/svg",
            viewBox=f"0 0 {_number(_WIDTH)} {_number(height)}",
            width=_number(_WIDTH),
            height=_number(height),
            role="img",
            aria_labelledby="title words",
        )
        + "\n"
    )


_UNDER_TITLE = "A replay in real time: Prometheus and the controller are real, the servers are a model."
_SILENCE = ("one pod does not", "answer Prometheus")


def in_words(samples: Sequence[Sample]) -> str:
    """The curve as a sentence: ``0 users, 1 pod; at 61 s 16 users``."""
    told = []
    before: tuple[int, int] | None = None
    for sample in samples:
        users, pods = sample.users, sample.replicas
        if before is None:
            told.append(f"{users} users, {_pods(pods)}")
        elif (users, pods) != before:
            changed = [f"{users} users"] * (users != before[0]) + [_pods(pods)] * (pods != before[1])
            told.append(f"at {sample.at:.0f} s {', '.join(changed)}")
        before = (users, pods)
    return "; ".join(told)


def _pods(count: int) -> str:
    return f"{count} pod" if count == 1 else f"{count} pods"


def _stairs(samples: Sequence[Sample], value: Callable[[Sample], float]) -> list[tuple[float, float | None]]:
    """A value that stays as it is until it changes."""
    found: list[tuple[float, float | None]] = []
    for sample in samples:
        if found and found[-1][1] != value(sample):
            found.append((sample.at, found[-1][1]))
        found.append((sample.at, value(sample)))
    return found


def _drawn(
    kind: str, points: Sequence[tuple[float, float | None]], x: Callable[[float], float], panel: _Panel
) -> Iterator[Markup]:
    """A line, with a break where there is no value."""
    path, pen = [], "M"
    for at, value in points:
        if value is None or not math.isfinite(value):
            pen = "M"
        else:
            path.append(f"{pen}{_number(x(at))},{_number(panel.y(value))}")
            pen = "L"
    if path:
        yield element("path", class_=f"line {kind}", d=" ".join(path))


def _counts(samples: Sequence[Sample], x: Callable[[float], float], panel: _Panel) -> Iterator[Markup]:
    """The number of users where it changes to one that no line of the grid tells."""
    for step in steps(samples, "users"):
        if 0 < step.after < panel.most:
            yield element("text", str(step.after), x=_number(x(step.at) + 4), y=_number(panel.y(step.after) - 5))


def _silence(samples: Sequence[Sample], x: Callable[[float], float], top: float, bottom: float) -> Iterator[Markup]:
    """While a pod does not answer Prometheus."""
    silent = [sample.at for sample in samples if sample.silent]
    if silent:
        left, right = x(silent[0]), x(silent[-1])
        yield element(
            "rect", class_="silent", x=_number(left), y=_number(top), width=_number(right - left), height=_number(bottom - top)
        )
        for number, words in enumerate(_SILENCE):
            yield element("text", words, class_="quiet side", x=_number(right - 6), y=_number(top + 40 + 16 * number))


def _times(end: float, x: Callable[[float], float], bottom: float) -> Iterator[Markup]:
    for minute in range(int(end // _MINUTE) + 1):
        yield element("text", f"{minute}:00", class_="tick", x=_number(x(minute * _MINUTE)), y=_number(bottom + 18))
    yield element(
        "text", "minutes since the autoscaler was made", class_="tick", x=_number((_LEFT + _RIGHT) / 2), y=_number(bottom + 37)
    )


def _beside(words: str, y: float, class_: str = "quiet") -> Markup:
    return element("text", words, class_=class_, x=_number(_RIGHT + 8), y=_number(y + 4))


def _round_steps(largest: float) -> list[float]:
    """Round numbers from 0 to one at or above the largest."""
    power = 10.0 ** math.floor(math.log10(largest))
    step = next(step for step in (power * factor for factor in (0.2, 0.5, 1, 2, 5)) if largest / step <= _MOST_STEPS)
    return [number * step for number in range(math.ceil(largest / step) + 1)]


def _line(class_: str, x1: float, y1: float, x2: float, y2: float) -> Markup:
    return element("line", class_=class_, x1=_number(x1), y1=_number(y1), x2=_number(x2), y2=_number(y2))


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
