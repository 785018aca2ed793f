"""One Triton with vLLM under a number of users at once, after two published measurements of one: an illustration, no forecast.

A request takes a time of its own and a little longer for every other request in the batch; a user asks again as soon as the
answer is complete. Both times are fitted to the source's rows for 8 and 16 users, one pod each; the rows for 32, 64 and 128 are
what it is held against. vLLM takes 256 sequences at once here, so nothing waits inside it.

The time in Triton's queue is in none of the rows. The source's one pod stayed alone with 16 users, so they cannot have been above
the target; the model has them at it. That is an assumption, and the only one.

Sources: loadtest/published.toml; Little's law; Kubernetes documentation, "Horizontal Pod Autoscaling", algorithm details.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from eks_inference_tools.loadtest_report.published import published
from eks_inference_tools.loadtest_report.record import Run

FIGURES = "gpu-opt350m"
"""The published figures it is fitted to and held against."""

FITTED = (8, 16)
"""Users of the rows it is fitted to."""

TOLERANCE = 0.1
"""By how much of the target a HorizontalPodAutoscaler lets the average differ (--horizontal-pod-autoscaler-tolerance)."""


@dataclass(frozen=True)
class Replica:
    """One pod. Times are milliseconds of one request."""

    alone_ms: float
    per_user_ms: float
    queue_ms: float

    def latency_ms(self, users: float) -> float:
        """From sending a request to its last token, with so many users on the pod, this one among them."""
        return self.alone_ms + self.per_user_ms * users

    def completed_per_s(self, users: float) -> float:
        return 1000 * users / self.latency_ms(users)

    def queueing(self, users: float) -> float:
        """Milliseconds that requests wait in Triton's queue, each second, all together: what the source scales by."""
        return self.completed_per_s(users) * self.queue_ms


@dataclass(frozen=True)
class Prediction:
    """One row of the source's table, beside what the model makes of it.

    ``pods`` are those the source had in the end, ``pods_before`` those it began with, ``pods_wanted`` those the autoscaler would
    settle at by the model.
    """

    users: int
    pods: int
    pods_before: int
    pods_wanted: int
    measured_ms: float
    measured_per_s: float
    model: Replica

    @property
    def fitted(self) -> bool:
        return self.users in FITTED

    @property
    def latency_ms(self) -> float:
        return self.model.latency_ms(self.users / self.pods)

    @property
    def latency_before_ms(self) -> float:
        """With the pods that the measurement began with."""
        return self.model.latency_ms(self.users / self.pods_before)

    @property
    def completed_per_s(self) -> float:
        return self.pods * self.model.completed_per_s(self.users / self.pods)

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
    """The source's rows, by users."""
    return tuple(sorted(published()[FIGURES].runs, key=lambda run: run.users or 0))


def fitted(runs: Sequence[Run], target: float) -> Replica:
    """The model of one pod. ``target`` is the autoscaler's, in milliseconds of queueing a second."""
    (few, few_ms), (many, many_ms) = ((run.users or 0, _latency_ms(run)) for run in runs if run.users in FITTED)
    per_user = (many_ms - few_ms) / (many - few)
    alone = few_ms - per_user * few
    return Replica(alone, per_user, queue_ms=target / Replica(alone, per_user, 0).completed_per_s(many))


def predictions(model: Replica, runs: Sequence[Run], *, target: float, least: int, most: int) -> tuple[Prediction, ...]:
    """Every row of the table. The source went from one to the next without waiting for pods to go."""
    found = []
    before = least
    for run in runs:
        users, pods = run.users or 0, run.chips or least
        found.append(
            Prediction(
                users=users,
                pods=pods,
                pods_before=before,
                pods_wanted=settled(model, users, pods=before, target=target, most=most),
                measured_ms=_latency_ms(run),
                measured_per_s=(run.completed_per_min or 0) / 60,
                model=model,
            )
        )
        before = pods
    return tuple(found)


def settled(model: Replica, users: int, *, pods: int, target: float, most: int) -> int:
    """Pods at which the autoscaler stops adding any, when it begins with ``pods`` and users are shared out evenly."""
    while (more := min(wanted(pods, model.queueing(users / pods), target), most)) > pods:
        pods = more
    return pods


def wanted(pods: int, average: float, target: float) -> int:
    """Pods that a HorizontalPodAutoscaler wants by one average over all of them, before its bounds and its behaviour."""
    ratio = average / target
    return pods if 1 - TOLERANCE <= ratio <= 1 + TOLERANCE else math.ceil(ratio * pods)


def deviation(measured: float, modelled: float) -> float:
    """How far the model is off, as a part of what was measured."""
    return modelled / measured - 1


def _latency_ms(run: Run) -> float:
    return run.metrics["e2e_ms"]["mean"]


def _beside(measured: float, modelled: float) -> dict[str, float]:
    return {"source": measured, "model": round(modelled, 2), "deviation": round(deviation(measured, modelled), 4)}
