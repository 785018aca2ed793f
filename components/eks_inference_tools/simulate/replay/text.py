"""Renders the report of a replay for a terminal."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from rich.console import RenderableType

from eks_inference_tools.loadtest_report.figures import NONE
from eks_inference_tools.loadtest_report.record import published
from eks_inference_tools.simulate.replay.report import REAL, STACKS_OWN, STAND_INS, Report
from eks_inference_tools.simulate.replay.subject import Sample, Subject, steps
from eks_inference_tools.simulate.replay.triton import FIGURES, FITTED, Prediction, deviation
from stackgraph.graph.wording import counted
from stackgraph.presentation import markup
from stackgraph.presentation.markup import Markup, raw
from stackgraph.presentation.terminal import Columns, Paragraph, drawn, words

Lines = Iterator[RenderableType]

_LIMITED = {"TooManyReplicas": "wants more than its maximum", "TooFewReplicas": "wants fewer than its minimum"}


def render_text(report: Report) -> str:
    blocks = [_head(report.subject), _course(report.samples), _judged(report), _table(report)]
    return drawn(line for number, block in enumerate(blocks) for line in ([""] * bool(number) + [*block]))


def _head(subject: Subject) -> Lines:
    limits = subject.limits
    yield f"{subject.stack}: HorizontalPodAutoscaler {subject.namespace}/{subject.name}, replayed"
    yield (
        f"  {limits.least} to {limits.most} pods by {subject.metric}, {limits.target:g} on average; "
        f"in after {limits.scale_in_seconds} s; a scrape every {limits.scrape_seconds} s"
    )
    for what, names in (("real", REAL), ("the stack's own", STACKS_OWN), ("stand-ins", STAND_INS)):
        yield _said(f"{what}: {', '.join(names)}")


def _course(samples: Sequence[Sample]) -> Lines:
    """Shows the first sample, and every one in which something changes."""
    rows = [("time", "users", "queue ms/s", "wanted", "Ready", "")]
    for before, sample in zip([None, *samples], samples, strict=False):
        changes = _changes(before, sample) if before else []
        if before is None or changes:
            minutes, seconds = divmod(int(sample.at), 60)
            queueing = NONE if sample.queueing is None else f"{sample.queueing:.1f}"
            figures = (str(sample.users), queueing, str(sample.replicas), str(len(sample.ready)))
            rows.append((f"{minutes}:{seconds:02}", *figures, ", ".join(changes)))
    yield Columns(rows, indent=2, right=range(5))


def _changes(before: Sample, now: Sample) -> list[str]:
    words = []
    if now.users != before.users:
        words.append("more users" if now.users > before.users else "fewer users")
    if now.replicas != before.replicas:
        words.append("scaled out" if now.replicas > before.replicas else "scaled in")
    elif len(now.ready) != len(before.ready):
        words.append("pods changed")
    if now.active != before.active:
        words.append("the autoscaler sees its metric" if now.active else "the autoscaler does not see its metric")
    if bool(now.silent) != bool(before.silent):
        words.append("a pod stops answering Prometheus" if now.silent else "the silent pod answers again or is gone")
    if now.limited != before.limited and now.limited:
        words.append(_LIMITED.get(now.limited, now.limited))
    return words


def _judged(report: Report) -> Lines:
    rows = [("ok" if finding.holds else "FAILED", finding.name, finding.seen) for finding in report.findings]
    yield Columns(rows, indent=2, least=len("FAILED"))


def _table(report: Report) -> Lines:
    model = report.model
    source = published()[FIGURES].source
    yield _said(f"The published table beside the model of one pod, as an illustration ({source}); ms are end to end", indent=0)
    header = [
        ("", "pods", "pods", "ms", "ms", "ms", "requests/s", "requests/s", "requests/s", "pods", "ms", "ms"),
        ("users", "source", "model", "source", "model", "off", "source", "model", "off", "before", "model", "off"),
    ]
    yield Columns([*header, *map(_row, report.predictions)], indent=2, right=range(len(header[0])))
    fitted = " and ".join(map(str, FITTED))
    yield _said(
        f"Fitted to the rows for {fitted} users only: a request takes {model.alone_ms:.0f} ms, and {model.per_user_ms:.1f} ms "
        f"for each request in the batch. No row contains the time in Triton's queue: the model assumes {model.queue_ms:.2f} ms, "
        f"which puts {FITTED[-1]} users at the target."
    )
    yield _said(
        "The source was slower than the model with its final pods, and closer to the model with its initial pods. Likely "
        "reasons: it measured while pods were added, and a gRPC connection stays with its first pod."
    )


def _row(row: Prediction) -> tuple[str, ...]:
    return (
        *map(str, (row.users, row.pods, row.pods_wanted)),
        f"{row.measured_ms:.0f}",
        f"{row.latency_ms:.0f}",
        "fitted" if row.fitted else _off(row.measured_ms, row.latency_ms),
        f"{row.measured_per_s:.2f}",
        f"{row.completed_per_s:.2f}",
        _off(row.measured_per_s, row.completed_per_s),
        str(row.pods_before),
        f"{row.latency_before_ms:.0f}",
        _off(row.measured_ms, row.latency_before_ms),
    )


def _off(measured: float, modelled: float) -> str:
    return f"{100 * deviation(measured, modelled):+.0f} %"


def _said(text: str, *, indent: int = 2) -> Paragraph:
    return Paragraph(words(text), " " * indent, "    ")


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
        yield markup.label("", _LEFT, self.top - 9, title)
        for step in steps:
            yield markup.line("grid", _LEFT, self.y(step), _RIGHT, self.y(step))
            yield markup.label("tick side", _LEFT - 8, self.y(step) + 4, f"{step:g}")

    def bound(self, value: float, name: str) -> Iterator[Markup]:
        yield markup.line("bound", _LEFT, self.y(value), _RIGHT, self.y(value))
        yield _beside(name, self.y(value), "bound-name")


def render_plot(samples: Sequence[Sample], subject: Subject) -> str:
    """Returns the text of an SVG file."""
    limits, end = subject.limits, samples[-1].at
    tops = [_TOP + 24 + number * (_PANEL + _GAP) for number in range(3)]
    bottom = tops[-1] + _PANEL

    def x(at: float) -> float:
        return _LEFT + (_RIGHT - _LEFT) * at / end

    users = _Panel(tops[0], max(sample.users for sample in samples) or 1)
    queueing_steps = markup.round_steps(max([limits.target, *(sample.queueing or 0 for sample in samples)]))
    queueing = _Panel(tops[1], queueing_steps[-1])
    pods = _Panel(tops[2], limits.most + 1)

    drawn = [
        markup.label("title", _LEFT, 22, f"{subject.stack}: pods follow the queue"),
        markup.label("quiet", _LEFT, 42, _UNDER_TITLE),
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
    return markup.picture("", title, _in_words(samples), size, [style, *drawn], xmlns=namespace) + "\n"


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
    return markup.path(f"line {kind}", ((x(at), None if value is None else panel.y(value)) for at, value in points))


def _counts(samples: Sequence[Sample], x: Callable[[float], float], panel: _Panel) -> Iterator[Markup]:
    """Labels every change of users to a number that no grid line shows."""
    for step in steps(samples, "users"):
        if 0 < step.after < panel.most:
            yield markup.label("", x(step.at) + 4, panel.y(step.after) - 5, str(step.after))


def _silence(samples: Sequence[Sample], x: Callable[[float], float], top: float, bottom: float) -> Iterator[Markup]:
    """Shades the time in which a pod does not answer Prometheus."""
    silent = [sample.at for sample in samples if sample.silent]
    if silent:
        left, right = x(silent[0]), x(silent[-1])
        yield markup.rect("silent", left, top, right - left, bottom - top)
        for number, words in enumerate(_SILENCE):
            yield markup.label("quiet side", right - 6, top + 40 + 16 * number, words)


def _times(end: float, x: Callable[[float], float], bottom: float) -> Iterator[Markup]:
    for minute in range(int(end // _MINUTE) + 1):
        yield markup.label("tick", x(minute * _MINUTE), bottom + 18, f"{minute}:00")
    yield markup.label("tick", (_LEFT + _RIGHT) / 2, bottom + 37, "minutes since the autoscaler was made")


def _beside(words: str, y: float, class_: str = "quiet") -> Markup:
    return markup.label(class_, _RIGHT + 8, y + 4, words)
