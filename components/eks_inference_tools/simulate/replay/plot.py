"""Draws a replay as a standalone SVG: users, queueing and pods over time."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from eks_inference_tools.simulate.replay.samples import Sample, steps
from eks_inference_tools.simulate.replay.subject import Subject
from stackgraph.graph.wording import counted
from stackgraph.presentation import svg
from stackgraph.presentation.markup import Markup, raw

_WIDTH, _LEFT, _RIGHT = 760.0, 52.0, 620.0
_TOP, _PANEL, _GAP = 54.0, 104.0, 40.0
_FOOT = 46.0
_MINUTE = 60

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
    """A plot on the common time axis. ``top`` is its position in the picture, ``most`` the value at its upper edge."""

    top: float
    most: float

    def y(self, value: float) -> float:
        return self.top + _PANEL * (1 - min(value, self.most) / self.most)

    def frame(self, title: str, steps: Sequence[float]) -> Iterator[Markup]:
        yield svg.label("", _LEFT, self.top - 9, title)
        for step in steps:
            yield svg.line("grid", _LEFT, self.y(step), _RIGHT, self.y(step))
            yield svg.label("tick side", _LEFT - 8, self.y(step) + 4, f"{step:g}")

    def bound(self, value: float, name: str) -> Iterator[Markup]:
        yield svg.line("bound", _LEFT, self.y(value), _RIGHT, self.y(value))
        yield _beside(name, self.y(value), "bound-name")


def render_plot(samples: Sequence[Sample], subject: Subject) -> str:
    """Returns the text of an SVG file."""
    limits, end = subject.limits, samples[-1].at
    tops = [_TOP + 24 + number * (_PANEL + _GAP) for number in range(3)]
    bottom = tops[-1] + _PANEL

    def x(at: float) -> float:
        return _LEFT + (_RIGHT - _LEFT) * at / end

    users = _Panel(tops[0], max(sample.users for sample in samples) or 1)
    queueing_steps = svg.round_steps(max([limits.target, *(sample.queueing or 0 for sample in samples)]))
    queueing = _Panel(tops[1], queueing_steps[-1])
    pods = _Panel(tops[2], limits.most + 1)

    drawn = [
        svg.label("title", _LEFT, 22, f"{subject.stack}: pods follow the queue"),
        svg.label("quiet", _LEFT, 42, _UNDER_TITLE),
        *_silence(samples, x, tops[0], bottom),
        *users.frame("Users at once", [0, users.most]),
        _drawn("users", _stairs(samples, lambda sample: sample.users), x, users),
        *_counts(samples, x, users),
        *queueing.frame("Queueing, milliseconds a second, average of the pods that are seen", queueing_steps),
        *queueing.bound(limits.target, f"target {limits.target:g}"),
        _drawn("queueing", [(sample.at, sample.queueing) for sample in samples], x, queueing),
        *pods.frame("Pods", range(limits.most + 2)),
        *pods.bound(limits.most, f"maximum {limits.most}"),
        _drawn("ready", _stairs(samples, lambda sample: len(sample.ready)), x, pods),
        _drawn("pods", _stairs(samples, lambda sample: sample.replicas), x, pods),
        _beside("thin: wanted", bottom - 16),
        _beside("wide: Ready", bottom),
        *_times(end, x, bottom),
    ]
    title, style = f"{subject.stack}: users, queueing and pods of a replay", raw("style", _STYLE)
    size, namespace = (_WIDTH, bottom + _FOOT), "http://www.w3.org/2000/svg"
    return svg.picture("", title, _in_words(samples), size, [style, *drawn], xmlns=namespace) + "\n"


_UNDER_TITLE = "A replay in real time: Prometheus and the controller are real, the servers are a model."
_SILENCE = ("one pod does not", "answer Prometheus")


def _in_words(samples: Sequence[Sample]) -> str:
    """Returns the curves as a sentence: ``0 users, 1 pod; at 61 s 16 users``."""
    phrases = [f"{samples[0].users} users, {counted(samples[0].replicas, 'pod')}"]
    for before, now in pairwise(samples):
        users = [f"{now.users} users"] if now.users != before.users else []
        pods = [counted(now.replicas, "pod")] if now.replicas != before.replicas else []
        if users or pods:
            phrases.append(f"at {now.at:.0f} s {', '.join(users + pods)}")
    return "; ".join(phrases)


def _stairs(samples: Sequence[Sample], value: Callable[[Sample], float]) -> list[tuple[float, float | None]]:
    """Returns the points of a step curve: the value holds until the next sample that changes it."""
    found: list[tuple[float, float | None]] = []
    for sample in samples:
        if found and found[-1][1] != value(sample):
            found.append((sample.at, found[-1][1]))
        found.append((sample.at, value(sample)))
    return found


def _drawn(kind: str, points: Sequence[tuple[float, float | None]], x: Callable[[float], float], panel: _Panel) -> Markup:
    return svg.path(f"line {kind}", ((x(at), None if value is None else panel.y(value)) for at, value in points))


def _counts(samples: Sequence[Sample], x: Callable[[float], float], panel: _Panel) -> Iterator[Markup]:
    """Labels every change of users to a number that no grid line shows."""
    for step in steps(samples, "users"):
        if 0 < step.after < panel.most:
            yield svg.label("", x(step.at) + 4, panel.y(step.after) - 5, str(step.after))


def _silence(samples: Sequence[Sample], x: Callable[[float], float], top: float, bottom: float) -> Iterator[Markup]:
    """Shades the time in which a pod does not answer Prometheus."""
    silent = [sample.at for sample in samples if sample.silent]
    if silent:
        left, right = x(silent[0]), x(silent[-1])
        yield svg.rect("silent", left, top, right - left, bottom - top)
        for number, words in enumerate(_SILENCE):
            yield svg.label("quiet side", right - 6, top + 40 + 16 * number, words)


def _times(end: float, x: Callable[[float], float], bottom: float) -> Iterator[Markup]:
    for minute in range(int(end // _MINUTE) + 1):
        yield svg.label("tick", x(minute * _MINUTE), bottom + 18, f"{minute}:00")
    yield svg.label("tick", (_LEFT + _RIGHT) / 2, bottom + 37, "minutes since the autoscaler was made")


def _beside(words: str, y: float, class_: str = "quiet") -> Markup:
    return svg.label(class_, _RIGHT + 8, y + 4, words)
