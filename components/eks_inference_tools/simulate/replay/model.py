"""Models one Triton pod with vLLM under concurrent users, fitted to two published measurements: an illustration, not a forecast.

A request takes a base time, plus a little for every request in the batch; a user sends the next request as soon as the answer
is complete. Both times are fitted to the source's rows for 8 and 16 users, with one pod each. The rows for 32, 64 and 128 users
serve as a comparison. vLLM takes 256 sequences at once here, so nothing waits inside it.

No row contains the time in Triton's queue. The source did not scale out with 16 users, so their queueing was not above the
target; the model assumes that it was exactly at the target. This is the only assumption.

Sources: loadtest/published.toml; Little's law; Kubernetes documentation, "Horizontal Pod Autoscaling", algorithm details.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from eks_inference_tools.loadtest_report.published import published
from eks_inference_tools.loadtest_report.record import Run

FIGURES = "gpu-opt350m"
"""The published figures that the model is fitted to and compared with."""

FITTED = (8, 16)
"""Users of the rows that the model is fitted to."""

TOLERANCE = 0.1
"""The share of the target by which the average may differ from it (--horizontal-pod-autoscaler-tolerance)."""


@dataclass(frozen=True)
class Replica:
    """One pod. Times are milliseconds per request."""

    alone_ms: float
    per_user_ms: float
    queue_ms: float

    def latency_ms(self, users: float) -> float:
        """Returns the time from sending a request to its last token, with this many users on the pod."""
        return self.alone_ms + self.per_user_ms * users

    def completed_per_s(self, users: float) -> float:
        return 1000 * users / self.latency_ms(users)

    def queueing(self, users: float) -> float:
        """Returns the queue time of all requests in milliseconds per second, the metric that the source scales by."""
        return self.completed_per_s(users) * self.queue_ms


@dataclass(frozen=True)
class Prediction:
    """One row of the source's table, with the model's figures.

    ``pods`` is the source's number at the end of the measurement, ``pods_before`` at its start; ``pods_wanted`` is the number at
    which the autoscaler settles according to the model. ``latency_before_ms`` is the latency with ``pods_before``.
    """

    users: int
    pods: int
    pods_before: int
    pods_wanted: int
    measured_ms: float
    measured_per_s: float
    latency_ms: float
    latency_before_ms: float
    completed_per_s: float

    @property
    def fitted(self) -> bool:
        return self.users in FITTED

    def document(self) -> dict[str, Any]:
        return {
            "users": self.users,
            "fitted": self.fitted,
            "pods": {"source": self.pods, "before": self.pods_before, "model": self.pods_wanted},
            "latency_ms": _beside(self.measured_ms, self.latency_ms),
            "latency_with_pods_before_ms": _beside(self.measured_ms, self.latency_before_ms),
            "completed_per_s": _beside(self.measured_per_s, self.completed_per_s),
        }


def rows() -> tuple[Run, ...]:
    """Returns the rows of the source, sorted by users."""
    return tuple(sorted(published()[FIGURES].runs, key=lambda run: run.users or 0))


def fitted(runs: Sequence[Run], target: float) -> Replica:
    """Returns the model of one pod. ``target`` is the autoscaler's, in milliseconds of queueing per second."""
    (few, few_ms), (many, many_ms) = ((run.users or 0, _latency_ms(run)) for run in runs if run.users in FITTED)
    per_user = (many_ms - few_ms) / (many - few)
    alone = few_ms - per_user * few
    return Replica(alone, per_user, queue_ms=target / Replica(alone, per_user, 0).completed_per_s(many))


def predictions(model: Replica, runs: Sequence[Run], *, target: float, least: int, most: int) -> tuple[Prediction, ...]:
    """Returns a prediction for every row. The source ran one measurement after the other without waiting for a scale-in."""
    all_users, pods = [run.users or 0 for run in runs], [run.chips or least for run in runs]
    return tuple(
        Prediction(
            users=users,
            pods=count,
            pods_before=before,
            pods_wanted=settled(model, users, pods=before, target=target, most=most),
            measured_ms=_latency_ms(run),
            measured_per_s=(run.completed_per_min or 0) / 60,
            latency_ms=model.latency_ms(users / count),
            latency_before_ms=model.latency_ms(users / before),
            completed_per_s=count * model.completed_per_s(users / count),
        )
        for run, users, count, before in zip(runs, all_users, pods, [least, *pods], strict=False)
    )


def settled(model: Replica, users: int, *, pods: int, target: float, most: int) -> int:
    """Returns the number of pods at which the autoscaler stops scaling out from ``pods``, with users spread evenly."""
    while (more := min(wanted(pods, model.queueing(users / pods), target), most)) > pods:
        pods = more
    return pods


def wanted(pods: int, average: float, target: float) -> int:
    """Returns the pods a HorizontalPodAutoscaler wants for an average, before it applies its bounds and behaviour."""
    ratio = average / target
    return pods if 1 - TOLERANCE <= ratio <= 1 + TOLERANCE else math.ceil(ratio * pods)


def deviation(measured: float, modelled: float) -> float:
    """Returns the error of the model as a share of the measurement."""
    return modelled / measured - 1


def _latency_ms(run: Run) -> float:
    return run.metrics["e2e_ms"]["mean"]


def _beside(measured: float, modelled: float) -> dict[str, float]:
    return {"source": measured, "model": round(modelled, 2), "deviation": round(deviation(measured, modelled), 4)}
