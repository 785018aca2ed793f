"""Renders the report of a replay for a terminal."""

from collections.abc import Iterator, Sequence

from rich.console import RenderableType

from eks_inference_tools.loadtest_report.figures import NONE
from eks_inference_tools.loadtest_report.record import published
from eks_inference_tools.simulate.replay.report import REAL, STACKS_OWN, STAND_INS, Report
from eks_inference_tools.simulate.replay.samples import Sample
from eks_inference_tools.simulate.replay.subject import Subject
from eks_inference_tools.simulate.replay.triton import FIGURES, FITTED, Prediction, deviation
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
