"""A replay as text and as JSON: what happened, how it is judged, and the source's table beside the model's."""

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from eks_inference_tools.loadtest_report.figures import NONE
from eks_inference_tools.loadtest_report.published import published
from eks_inference_tools.simulate.replay.judge import Finding
from eks_inference_tools.simulate.replay.model import FIGURES, FITTED, Prediction, Replica, deviation
from eks_inference_tools.simulate.replay.samples import Sample
from eks_inference_tools.simulate.replay.subject import Subject

SCHEMA = 1
"""Version of the JSON document."""

WIDTH = 110

_REAL = ("Prometheus", "kube-controller-manager", "kube-scheduler", "kube-apiserver", "etcd")
_STACKS_OWN = ("HorizontalPodAutoscaler", "Deployment", "PodMonitors", "PrometheusRules", "rules of prometheus-adapter")
_STAND_INS = (
    "Triton servers (a model of one pod, Ready at once, users shared out evenly)",
    "kubelets (kwok)",
    "prometheus-operator",
    "prometheus-adapter",
)

_WORDS_OF_LIMITS = {"TooManyReplicas": "more are wanted than it may have", "TooFewReplicas": "fewer are wanted than it must have"}


@dataclass(frozen=True)
class Report:
    """A replay and all that is said of it."""

    subject: Subject
    samples: tuple[Sample, ...]
    findings: tuple[Finding, ...]
    model: Replica
    predictions: tuple[Prediction, ...]

    @property
    def holds(self) -> bool:
        return all(finding.holds for finding in self.findings)

    def document(self) -> dict[str, Any]:
        """As JSON. ``schema`` changes when a key does."""
        subject, limits, model = self.subject, self.subject.limits, self.model
        return {
            "schema": SCHEMA,
            "stack": subject.stack,
            "autoscaler": {"namespace": subject.namespace, "name": subject.name, "metric": subject.metric},
            "limits": {"least": limits.least, "most": limits.most, "target": limits.target},
            "real": list(_REAL),
            "of_the_stack": list(_STACKS_OWN),
            "stand_ins": list(_STAND_INS),
            "holds": self.holds,
            "findings": [finding.document() for finding in self.findings],
            "samples": [sample.document() for sample in self.samples],
            "model": {
                "source": published()[FIGURES].source,
                "fitted_to_users": list(FITTED),
                "alone_ms": round(model.alone_ms, 2),
                "per_user_ms": round(model.per_user_ms, 3),
                "queue_ms": round(model.queue_ms, 4),
                "rows": [prediction.document() for prediction in self.predictions],
            },
        }


def render_text(report: Report) -> str:
    blocks = [list(_head(report.subject)), list(_course(report.samples)), list(_judged(report)), list(_table(report))]
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def _head(subject: Subject) -> Iterator[str]:
    limits = subject.limits
    yield f"{subject.stack}: HorizontalPodAutoscaler {subject.namespace}/{subject.name}, replayed"
    yield (
        f"  {limits.least} to {limits.most} pods by {subject.metric}, {limits.target:g} on average; "
        f"in after {limits.scale_in_seconds} s; a scrape every {limits.scrape_seconds} s"
    )
    yield from _wrapped(f"  real: {', '.join(_REAL)}")
    yield from _wrapped(f"  the stack's own: {', '.join(_STACKS_OWN)}")
    yield from _wrapped(f"  stand-ins: {', '.join(_STAND_INS)}")


def _course(samples: Sequence[Sample]) -> Iterator[str]:
    """A line for every change."""
    yield "   time  users  queue ms/s  wanted  Ready"
    before: Sample | None = None
    for sample in samples:
        words = _changes(before, sample)
        if before is None or words:
            minutes, seconds = divmod(int(sample.at), 60)
            queueing = NONE if sample.queueing is None else f"{sample.queueing:.1f}"
            line = f"  {minutes:2}:{seconds:02}  {sample.users:5}  {queueing:>10}  {sample.replicas:6}  {len(sample.ready):5}"
            yield f"{line}  {', '.join(words)}".rstrip()
        before = sample


def _changes(before: Sample | None, now: Sample) -> list[str]:
    if before is None:
        return []
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
        words.append(_WORDS_OF_LIMITS.get(now.limited, now.limited))
    return words


def _judged(report: Report) -> Iterator[str]:
    width = max(len(finding.name) for finding in report.findings)
    for finding in report.findings:
        yield f"  {'ok    ' if finding.holds else 'FAILED'}  {finding.name.ljust(width)}  {finding.seen}"


def _table(report: Report) -> Iterator[str]:
    model = report.model
    yield from _wrapped(f"The source's table beside the model of one pod, as an illustration ({published()[FIGURES].source})")
    yield "                  pods        end to end, ms           requests/s              with the pods before"
    yield "  users   source model   source  model     off     source  model     off       pods  model     off"
    for row in report.predictions:
        latency_off = " fitted" if row.fitted else _off(row.measured_ms, row.latency_ms)
        yield (
            f"  {row.users:5}   {row.pods:6} {row.pods_wanted:5}   {row.measured_ms:6.0f}  {row.latency_ms:5.0f}  {latency_off}"
            f"     {row.measured_per_s:6.2f}  {row.completed_per_s:5.2f}  {_off(row.measured_per_s, row.completed_per_s)}"
            f"       {row.pods_before:4}  {row.latency_before_ms:5.0f}  {_off(row.measured_ms, row.latency_before_ms)}"
        )
    fitted = " and ".join(map(str, FITTED))
    yield from _wrapped(
        f"  Fitted to the rows for {fitted} users only: a request takes {model.alone_ms:.0f} ms, and {model.per_user_ms:.1f} ms "
        f"for each request in the batch. Assumed, as no row tells it: {model.queue_ms:.2f} ms in Triton's queue, so that "
        f"{FITTED[-1]} users are at the target."
    )
    yield from _wrapped(
        "  The source was slower than the model with the pods it had in the end, and nearer to it with those it began with. "
        "Likely reasons: it measured while pods were added, and a connection of gRPC stays with the pod it began with."
    )


def _off(measured: float, modelled: float) -> str:
    return f"{100 * deviation(measured, modelled):+5.0f} %"


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
