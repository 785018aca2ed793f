"""Judges an autoscaler by the samples of a replay; the report and its JSON document. Pure."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, get_type_hints

from eks_inference_tools.loadtest_report.record import published
from eks_inference_tools.simulate.replay.subject import SYNC_SECONDS, Limits, Sample, Step, Subject, steps
from eks_inference_tools.simulate.replay.triton import FIGURES, FITTED, TOLERANCE, Prediction, Replica, predictions, rows
from stackgraph.graph.wording import counted
from stackgraph.strict_json import OrNull

_SLACK_SECONDS = 10

_NOTHING = 0.01  # queueing below this counts as none


@dataclass(frozen=True)
class Finding:
    """A requirement on an autoscaler, whether it holds, and the evidence."""

    name: str
    holds: bool
    seen: str


_Verdict = tuple[bool, str]
"""Whether a requirement holds, and the evidence."""


def judge(samples: Sequence[Sample], limits: Limits) -> tuple[Finding, ...]:
    """Returns every finding. A requirement that the replay did not put to the test does not hold."""
    verdicts = {
        "scales out under queueing": _scales_out(samples, limits),
        f"never more than {limits.most} pods, nor fewer than {limits.least}": _stays_within_bounds(samples, limits),
        "scales in after the load": _scales_in(samples, limits),
        f"waits {limits.scale_in_seconds} s before it scales in": _waits_before_scaling_in(samples, limits),
        "every value is a number": _has_no_nan(samples),
        "does not flap": _does_not_flap(samples, limits),
        "missing pods do not freeze it": _sees_past_missing_pods(samples, limits),
        "idle pods do not freeze it": _counts_idle_pods(samples, limits),
    }
    return tuple(Finding(name, *verdict) for name, verdict in verdicts.items())


def longest_pause(samples: Sequence[Sample]) -> float:
    """Returns the most seconds between two samples. A busy machine that kept them waiting kept all others waiting, too."""
    return max((later.at - earlier.at for earlier, later in pairwise(samples)), default=0.0)


def _slack(samples: Sequence[Sample]) -> float:
    """Returns the seconds allowed between a decision of the controller and the sample that shows it."""
    return _SLACK_SECONDS + longest_pause(samples)


def _scales_out(samples: Sequence[Sample], limits: Limits) -> _Verdict:
    """The autoscaler must add pods at the controller's first sync after the average exceeds the target and its tolerance."""
    most_queueing = limits.target * (1 + TOLERANCE)
    above = next((s for s in samples if (s.queueing or 0) > most_queueing), None)
    if above is None:
        return False, f"the average was never above {most_queueing:g} ms"
    step = next((step for step in steps(samples, "replicas") if step.up and step.at >= above.at - SYNC_SECONDS), None)
    if step is None or step.at > above.at + SYNC_SECONDS + _slack(samples):
        end = step.at if step else samples[-1].at
        return False, f"{above.queueing:.1f} ms at {above.at:.0f} s, but no further pod for {end - above.at:.0f} s"
    most = max(sample.replicas for sample in samples)
    return True, f"from {step.before} at {step.at:.0f} s, with {above.queueing:.1f} ms, to {most}"


def _stays_within_bounds(samples: Sequence[Sample], limits: Limits) -> _Verdict:
    for sample in samples:
        for count, what in ((sample.replicas, "replicas"), (len(sample.ready), "pods"), (sample.desired, "desired")):
            if count > limits.most:
                return False, f"{count} {what} at {sample.at:.0f} s"
        if sample.replicas < limits.least:
            return False, f"{sample.replicas} replicas at {sample.at:.0f} s"
    capped = sum(sample.limited == "TooManyReplicas" for sample in samples)
    return capped > 0, f"it wanted more than {limits.most} in {capped} of {len(samples)} samples"


def _scales_in(samples: Sequence[Sample], limits: Limits) -> _Verdict:
    fall = next((step for step in reversed(steps(samples, "users")) if not step.up), None)
    most = max(sample.replicas for sample in samples)
    if fall is None or most == limits.least:
        return False, "there was nothing to scale in from"
    # The controller assumes a missing pod to be at the target, which keeps one more pod until a window after it is seen again.
    missing = any(_missing(step.last) for step in _scale_ins(samples))
    windows = (limits.scale_in_seconds + limits.blind_seconds) * missing + limits.scale_in_seconds
    allowed = windows + limits.window_seconds + 2 * SYNC_SECONDS + _slack(samples)
    there = next((s for s in samples if s.at >= fall.at and s.replicas == limits.least), None)
    if there is None:
        left, took = samples[-1].replicas, samples[-1].at - fall.at
        return False, f"still {left} replicas {took:.0f} s after the drop to {fall.after} users"
    took = there.at - fall.at
    return took <= allowed, f"down to {limits.least} {took:.0f} s after the drop to {fall.after} users; at most {allowed:.0f} s"


def _waits_before_scaling_in(samples: Sequence[Sample], limits: Limits) -> _Verdict:
    first = next(iter(_scale_ins(samples)), None)
    if first is None:
        return False, "it never scaled in"
    fall = next((step for step in reversed(steps(samples, "users")) if not step.up and step.at <= first.at), None)
    if fall is None:
        return False, f"from {first.before} to {first.after} at {first.at:.0f} s without a drop in users"
    waited = first.at - fall.at
    return waited >= limits.scale_in_seconds, f"the first pod went {waited:.0f} s after the users"


def _has_no_nan(samples: Sequence[Sample]) -> _Verdict:
    values = [(sample, pod, value) for sample in samples for pod, value in (sample.values or {}).items()]
    for sample, pod, value in values:
        if not math.isfinite(value):
            return False, f"{value} of {pod} at {sample.at:.0f} s"
    return bool(values), f"{len(values)} values"


def _does_not_flap(samples: Sequence[Sample], limits: Limits) -> _Verdict:
    """Every step must follow a change of load in its direction, made since the last step in the opposite direction."""
    users, taken = steps(samples, "users"), steps(samples, "replicas")
    for number, step in enumerate(taken):
        other = next((earlier for earlier in reversed(taken[:number]) if earlier.up != step.up), None)
        # Load that the metric still covers counts, too.
        since = other.at - limits.window_seconds if other else samples[0].at
        if not any(change.up == step.up and since <= change.at <= step.at for change in users):
            more = "more" if step.up else "fewer"
            return False, f"from {step.before} to {step.after} at {step.at:.0f} s, but no {more} users since {since:.0f} s"
    turns = sum(first.up != second.up for first, second in pairwise(taken))
    return bool(taken), f"{len(taken)} steps, {counted(turns, 'turn')}"


def _sees_past_missing_pods(samples: Sequence[Sample], limits: Limits) -> _Verdict:
    """The autoscaler must see its metric once any pod has answered long enough, and must scale in while another is missing."""
    enough = limits.blind_seconds + _slack(samples)
    for sample, answering in zip(samples, _seconds_of(samples, _answering), strict=True):
        if max(answering.values(), default=0) > enough and not sample.active:
            return False, f"at {sample.at:.0f} s it saw no metric: {sample.message}"
    missing = [step for step in _scale_ins(samples) if _missing(step.last)]
    if not missing:
        return False, "no pod was missing when it scaled in"
    return True, f"from {missing[0].before} to {missing[0].after} at {missing[0].at:.0f} s, with a pod missing"


def _counts_idle_pods(samples: Sequence[Sample], limits: Limits) -> _Verdict:
    """A pod must have the value 0 once it has been idle for the metric's window, and a step in must happen with such pods."""
    enough = max(limits.window_seconds, limits.blind_seconds) + _slack(samples)
    zeros = 0
    for sample, idle in zip(samples, _seconds_of(samples, _idle), strict=True):
        for pod in (pod for pod, seconds in idle.items() if seconds > enough):
            value = (sample.values or {}).get(pod)
            if value is None or value > _NOTHING:
                shown = "no value" if value is None else f"{value:g} ms"
                return False, f"{pod} has been idle for {enough:.0f} s, and has {shown} at {sample.at:.0f} s"
            zeros += 1
    if not any(step.last.idle for step in _scale_ins(samples)):
        return False, "no pod was idle when it scaled in"
    return zeros > 0, f"{zeros} values of idle pods, each 0"


def _scale_ins(samples: Sequence[Sample]) -> list[Step]:
    return [step for step in steps(samples, "replicas") if not step.up]


def _missing(sample: Sample) -> bool:
    """Returns whether a Ready pod has no value."""
    return any(pod not in (sample.values or {}) for pod in sample.ready)


def _answering(sample: Sample) -> Iterator[str]:
    return (pod for pod in sample.ready if pod not in sample.silent)


def _idle(sample: Sample) -> Iterator[str]:
    return (pod for pod in _answering(sample) if pod in sample.idle)


def _seconds_of(samples: Sequence[Sample], pods: Callable[[Sample], Iterable[str]]) -> Iterator[dict[str, float]]:
    """Yields for each sample the seconds for which each pod that ``pods`` selects has been selected without a break."""
    since: dict[str, float] = {}
    for sample in samples:
        since = {pod: since.get(pod, sample.at) for pod in pods(sample)}
        yield {pod: sample.at - start for pod, start in since.items()}


SCHEMA = 1
_BESIDE = dict.fromkeys(("source", "model", "deviation"), float)
SHAPE = {
    "stack": str,
    "autoscaler": dict.fromkeys(("namespace", "name", "metric"), str),
    "limits": {"least": int, "most": int, "target": float},
    **{key: [str] for key in ("real", "of_the_stack", "stand_ins")},
    "holds": bool,
    "findings": [Finding],
    "samples": [
        {**get_type_hints(Sample), "values": OrNull({"*": float | str}), **dict.fromkeys(("limited", "message"), str | None)}
    ],
    "model": {
        "source": str,
        "fitted_to_users": [int],
        **dict.fromkeys(("alone_ms", "per_user_ms", "queue_ms"), float),
        "rows": [
            {
                "users": int,
                "fitted": bool,
                "pods": {"source": int, "before": int, "model": int},
                **dict.fromkeys(("latency_ms", "latency_with_pods_before_ms", "completed_per_s"), _BESIDE),
            }
        ],
    },
}
"""Version of the JSON document."""

REAL = ("Prometheus", "kube-controller-manager", "kube-scheduler", "kube-apiserver", "etcd")
STACKS_OWN = ("HorizontalPodAutoscaler", "Deployment", "PodMonitors", "PrometheusRules", "rules of prometheus-adapter")
STAND_INS = (
    "Triton servers (a model of one pod, Ready at once, users shared out evenly)",
    "kubelets (kwok)",
    "prometheus-operator",
    "prometheus-adapter",
)


@dataclass(frozen=True)
class Report:
    """A replay with its findings and the model it used."""

    subject: Subject
    samples: tuple[Sample, ...]
    findings: tuple[Finding, ...]
    model: Replica
    predictions: tuple[Prediction, ...]

    @property
    def holds(self) -> bool:
        return all(finding.holds for finding in self.findings)

    def document(self) -> dict[str, Any]:
        """Returns the report as JSON. ``schema`` changes when a key does."""
        subject, limits, model = self.subject, self.subject.limits, self.model
        return {
            "schema": SCHEMA,
            "stack": subject.stack,
            "autoscaler": {"namespace": subject.namespace, "name": subject.name, "metric": subject.metric},
            "limits": {"least": limits.least, "most": limits.most, "target": limits.target},
            "real": list(REAL),
            "of_the_stack": list(STACKS_OWN),
            "stand_ins": list(STAND_INS),
            "holds": self.holds,
            "findings": [asdict(finding) for finding in self.findings],
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


def reported(subject: Subject, samples: tuple[Sample, ...], model: Replica) -> Report:
    """Judges the samples, and compares the model with the published table."""
    limits = subject.limits
    beside = predictions(model, rows(), target=limits.target, least=limits.least, most=limits.most)
    return Report(subject, samples, judge(samples, limits), model, beside)
