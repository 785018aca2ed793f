"""Whether an autoscaler did well, by the samples of a replay. Pure."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from eks_inference_tools.simulate.replay.model import TOLERANCE
from eks_inference_tools.simulate.replay.samples import Sample, Step, steps
from eks_inference_tools.simulate.replay.subject import SYNC_SECONDS, Limits

SLACK_SECONDS = 10
"""What the steps between a controller's look and a sample may take on a busy machine."""

_NOTHING = 0.01  # less queueing than that is none


@dataclass(frozen=True)
class Finding:
    """One thing an autoscaler has to do, whether it did, and what was seen."""

    name: str
    holds: bool
    seen: str

    def document(self) -> dict[str, Any]:
        return {"name": self.name, "holds": self.holds, "seen": self.seen}


def judge(samples: Sequence[Sample], limits: Limits) -> tuple[Finding, ...]:
    """Every judgement. What a replay did not bring about does not hold either: nobody has seen it."""
    return (
        _scales_out(samples, limits),
        _stays_below_the_maximum(samples, limits),
        _scales_in(samples, limits),
        _waits_before_scaling_in(samples, limits),
        _has_no_nan(samples),
        _does_not_flap(samples, limits),
        _sees_past_missing_pods(samples, limits),
        _counts_idle_pods(samples, limits),
    )


def _scales_out(samples: Sequence[Sample], limits: Limits) -> Finding:
    """As soon as the controller looks after the average was above the target's tolerance."""
    name = "scales out under queueing"
    above = next((s for s in samples if (s.queueing or 0) > limits.target * (1 + TOLERANCE)), None)
    if above is None:
        return Finding(name, False, f"the average was never above {limits.target * (1 + TOLERANCE):g} ms")
    allowed = SYNC_SECONDS + SLACK_SECONDS
    step = next((step for step in steps(samples, "replicas") if step.up and step.at >= above.at - SYNC_SECONDS), None)
    if step is None or step.at > above.at + allowed:
        end = step.at if step else samples[-1].at
        return Finding(name, False, f"{above.queueing:.1f} ms at {above.at:.0f} s, and no pod more for {end - above.at:.0f} s")
    most = max(sample.replicas for sample in samples)
    return Finding(name, True, f"from {step.before} at {step.at:.0f} s, with {above.queueing:.1f} ms, to {most}")


def _stays_below_the_maximum(samples: Sequence[Sample], limits: Limits) -> Finding:
    name = f"never more than {limits.most} pods, nor fewer than {limits.least}"
    for sample in samples:
        for count, what in ((sample.replicas, "replicas"), (len(sample.ready), "pods"), (sample.desired, "desired")):
            if count > limits.most:
                return Finding(name, False, f"{count} {what} at {sample.at:.0f} s")
        if sample.replicas < limits.least:
            return Finding(name, False, f"{sample.replicas} replicas at {sample.at:.0f} s")
    capped = sum(sample.limited == "TooManyReplicas" for sample in samples)
    return Finding(name, capped > 0, f"more than {limits.most} were wanted in {capped} of {len(samples)} samples")


def _scales_in(samples: Sequence[Sample], limits: Limits) -> Finding:
    name = "scales in after it"
    fall = next((step for step in reversed(steps(samples, "users")) if not step.up), None)
    most = max(sample.replicas for sample in samples)
    if fall is None or most == limits.least:
        return Finding(name, False, "there was nothing to scale in from")
    # A missing pod is reckoned with as if it were at the target, so that one pod more stays until a window after it is seen.
    missing = any(_missing(sample) for step, sample in _with_samples(samples) if not step.up)
    windows = (limits.scale_in_seconds + limits.blind_seconds) * missing + limits.scale_in_seconds
    allowed = windows + limits.window_seconds + 2 * SYNC_SECONDS + SLACK_SECONDS
    there = next((s for s in samples if s.at >= fall.at and s.replicas == limits.least), None)
    if there is None:
        left, took = samples[-1].replicas, samples[-1].at - fall.at
        return Finding(name, False, f"{left} replicas {took:.0f} s after {fall.after} users were left")
    took = there.at - fall.at
    return Finding(name, took <= allowed, f"{limits.least} left {took:.0f} s after {fall.after} users were; at most {allowed} s")


def _waits_before_scaling_in(samples: Sequence[Sample], limits: Limits) -> Finding:
    name = f"waits {limits.scale_in_seconds} s before it scales in"
    first = next((step for step in steps(samples, "replicas") if not step.up), None)
    if first is None:
        return Finding(name, False, "it never scaled in")
    fall = next((step for step in reversed(steps(samples, "users")) if not step.up and step.at <= first.at), None)
    if fall is None:
        return Finding(name, False, f"{first.before} to {first.after} at {first.at:.0f} s, with no user fewer")
    waited = first.at - fall.at
    return Finding(name, waited >= limits.scale_in_seconds, f"the first pod went {waited:.0f} s after the users")


def _has_no_nan(samples: Sequence[Sample]) -> Finding:
    name = "no value that is no number"
    values = [(sample, pod, value) for sample in samples for pod, value in (sample.values or {}).items()]
    for sample, pod, value in values:
        if not math.isfinite(value):
            return Finding(name, False, f"{value} of {pod} at {sample.at:.0f} s")
    return Finding(name, bool(values), f"{len(values)} values")


def _does_not_flap(samples: Sequence[Sample], limits: Limits) -> Finding:
    """A step has to follow a change of load in its direction since the last step in the other one."""
    name = "no flap"
    users, taken = steps(samples, "users"), steps(samples, "replicas")
    for number, step in enumerate(taken):
        other = next((earlier for earlier in reversed(taken[:number]) if earlier.up != step.up), None)
        # What the metric still remembers counts as well.
        since = other.at - limits.window_seconds if other else samples[0].at
        if not any(change.up == step.up and since <= change.at <= step.at for change in users):
            more = "more" if step.up else "fewer"
            return Finding(
                name, False, f"{step.before} to {step.after} at {step.at:.0f} s, and no {more} users since {since:.0f} s"
            )
    turns = sum(first.up != second.up for first, second in pairwise(taken))
    return Finding(name, bool(taken), f"{len(taken)} steps, {turns} turn" + ("" if turns == 1 else "s"))


def _sees_past_missing_pods(samples: Sequence[Sample], limits: Limits) -> Finding:
    """While a pod has answered long enough the autoscaler sees its metric, whatever others do, and it scaled in meanwhile."""
    name = "missing pods do not freeze it"
    for sample, answering in zip(samples, _seconds_of(samples, _answering), strict=True):
        if max(answering.values(), default=0) > limits.blind_seconds + SLACK_SECONDS and not sample.active:
            return Finding(name, False, f"at {sample.at:.0f} s it saw nothing: {sample.message}")
    missing = [step for step, sample in _with_samples(samples) if not step.up and _missing(sample)]
    if not missing:
        return Finding(name, False, "no pod was missing when it scaled in")
    return Finding(name, True, f"{missing[0].before} to {missing[0].after} at {missing[0].at:.0f} s, with a pod not seen")


def _counts_idle_pods(samples: Sequence[Sample], limits: Limits) -> Finding:
    """A pod without a request for as long as the metric reaches back has 0, and the autoscaler scaled in with such pods."""
    name = "idle pods do not freeze it"
    enough = max(limits.window_seconds, limits.blind_seconds) + SLACK_SECONDS
    counted = 0
    for sample, resting in zip(samples, _seconds_of(samples, _resting), strict=True):
        for pod in (pod for pod, seconds in resting.items() if seconds > enough):
            value = (sample.values or {}).get(pod)
            if value is None or value > _NOTHING:
                shown = "no value" if value is None else f"{value:g} ms"
                return Finding(name, False, f"{pod} has had nothing to do for {enough} s, and has {shown} at {sample.at:.0f} s")
            counted += 1
    scaled_in = any(not step.up and sample.idle for step, sample in _with_samples(samples))
    seen = f"{counted} values of idle pods, each 0" if scaled_in else "no pod was idle when it scaled in"
    return Finding(name, scaled_in and counted > 0, seen)


def _with_samples(samples: Sequence[Sample]) -> list[tuple[Step, Sample]]:
    """Steps of the replicas, each with the last sample before it."""
    found = []
    for step in steps(samples, "replicas"):
        found.append((step, max((s for s in samples if s.at < step.at), key=lambda s: s.at)))
    return found


def _missing(sample: Sample) -> bool:
    """Whether a Ready pod has no value."""
    return any(pod not in (sample.values or {}) for pod in sample.ready)


def _answering(sample: Sample) -> Iterator[str]:
    return (pod for pod in sample.ready if pod not in sample.silent)


def _resting(sample: Sample) -> Iterator[str]:
    return (pod for pod in _answering(sample) if pod in sample.idle)


def _seconds_of(samples: Sequence[Sample], pods: Callable[[Sample], Iterable[str]]) -> Iterator[dict[str, float]]:
    """For each sample, how long each of the pods that ``pods`` finds in it has been among them without a break."""
    since: dict[str, float] = {}
    for sample in samples:
        since = {pod: since.get(pod, sample.at) for pod in pods(sample)}
        yield {pod: sample.at - start for pod, start in since.items()}
