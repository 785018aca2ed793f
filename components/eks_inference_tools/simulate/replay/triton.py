"""Simulates Triton servers: one pod with vLLM under concurrent users, the pods of a Deployment that share users, and the metrics
that they export.

Counters are those of Triton's documentation ("Metrics") that the library's rules read. They increase when a response is complete,
as Triton's do with decoupled models. A pod serves as soon as it is Ready, without the minutes in which a real one pulls its image
and loads the model. A request goes to the pod with the fewest requests.
"""

import math
import random
import threading
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from eks_inference.scaling.plan import QUEUE_COUNTER
from eks_inference.serving.triton.plan import PORTS
from eks_inference_tools.loadtest_report.record import Run, published
from eks_inference_tools.simulate.control_plane.processes import Answer, Request, plain

# The model of one pod is an illustration, not a forecast. A request takes a base time, plus a little for every request in the
# batch; a user sends the next request as soon as the answer is complete. Both times are fitted to the source's rows for 8 and 16
# users, with one pod each. The rows for 32, 64 and 128 users serve as a comparison. vLLM takes 256 sequences at once here, so
# nothing waits inside it.
#
# No row contains the time in Triton's queue. The source did not scale out with 16 users, so their queueing was not above the
# target; the model assumes that it was exactly at the target. This is the only assumption.
#
# Sources: loadtest/published.toml; Little's law; Kubernetes documentation, "Horizontal Pod Autoscaling", algorithm details.

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


SUCCESS, FAILURE, PENDING = "nv_inference_request_success", "nv_inference_request_failure", "nv_inference_pending_request_count"

EXPORTED = (SUCCESS, FAILURE, QUEUE_COUNTER, PENDING)
"""Names of all series of a simulated Triton."""

_FAILURES = ("REJECTED", "CANCELED", "BACKEND", "OTHER")
_STEP_SECONDS = 0.05
_SPREAD = 0.2  # answers differ in length, so that the requests of a batch do not end together
_SEED = 1


@dataclass
class _Request:
    """The request of one user: the work left, in average requests, and the pod that serves it (empty while there is none)."""

    left: float
    pod: str = ""


@dataclass
class _Counters:
    success: int = 0
    queue_us: float = 0


class Fleet:
    """The pods of a server under a closed loop of users. Several threads may use it.

    ``model`` is a label of the metrics. ``answer`` makes it an HTTP proxy for the metrics ports of all pods, so that Prometheus
    can scrape the pods' own addresses.
    """

    def __init__(self, replica: Replica, model: str) -> None:
        self._replica = replica
        self._model = model
        self._random = random.Random(_SEED)
        self._requests: list[_Request] = []
        self._counters: dict[str, _Counters] = {}
        self.completed = 0
        """Requests completed so far, including those of pods that are gone."""
        self._pods: Mapping[str, str] = {}
        self._silent: Collection[str] = ()
        self._lock = threading.Lock()

    def serve(self, pods: Mapping[str, str], silent: Collection[str] = ()) -> None:
        """Sets the Ready pods, as names by IP address; those in ``silent`` do not answer Prometheus.

        Requests of pods that are gone start again elsewhere; counters of new pods start at 0.
        """
        with self._lock:
            self._pods, self._silent = dict(pods), frozenset(silent)
            self._counters = {name: self._counters.get(name) or _Counters() for name in sorted(pods.values())}
            for request in self._requests:
                if request.pod not in self._counters:
                    request.pod, request.left = self._least_loaded(), self._work()

    def load(self, users: int) -> None:
        """Sets the number of users. Users that leave abandon their requests."""
        with self._lock:
            del self._requests[users:]
            while len(self._requests) < users:
                # Each starts somewhere within a request: users that start together would stay together.
                self._requests.append(_Request(self._work() * self._random.random(), self._least_loaded()))

    def advance(self, seconds: float) -> None:
        """Lets time pass."""
        with self._lock:
            while seconds > 0:
                step = min(seconds, _STEP_SECONDS)
                self._step(step)
                seconds -= step

    def idle(self) -> frozenset[str]:
        """Returns the pods without a request."""
        with self._lock:
            return frozenset(self._counters) - {request.pod for request in self._requests}

    def answer(self, request: Request) -> Answer:
        """Answers a scrape of a pod's address."""
        asked = urlsplit(request.target)
        with self._lock:
            pod = self._pods.get(asked.hostname or "")
            if pod is None or asked.port != PORTS["metrics"] or pod in self._silent:
                return plain(502, "no pod listens at this address\n")
            counters = self._counters[pod]
        if (request.method, asked.path) != ("GET", "/metrics"):
            return plain(404, "not found\n")
        labels = f'model="{self._model}",version="1"'
        lines = [
            f"# TYPE {SUCCESS} counter",
            f"{SUCCESS}{{{labels}}} {counters.success}",
            f"# TYPE {FAILURE} counter",
            *(f'{FAILURE}{{{labels},reason="{reason}"}} 0' for reason in _FAILURES),
            f"# TYPE {QUEUE_COUNTER} counter",
            f"{QUEUE_COUNTER}{{{labels}}} {round(counters.queue_us)}",
            f"# TYPE {PENDING} gauge",
            f"{PENDING}{{{labels}}} 0",
        ]
        return plain(200, "".join(f"{line}\n" for line in lines))

    def _step(self, seconds: float) -> None:
        at_work = Counter(request.pod for request in self._requests)
        pace = {pod: 1000 * seconds / self._replica.latency_ms(count) for pod, count in at_work.items()}
        for request in self._requests:
            if not request.pod:
                continue
            request.left -= pace[request.pod]
            if request.left <= 0:
                counters = self._counters[request.pod]
                counters.success += 1
                self.completed += 1
                counters.queue_us += 1000 * self._replica.queue_ms
                request.pod = ""
                request.left += self._work()
                request.pod = self._least_loaded()

    def _work(self) -> float:
        return self._random.uniform(1 - _SPREAD, 1 + _SPREAD)

    def _least_loaded(self) -> str:
        """Returns the pod with the fewest requests, the first by name if there are several; "" while no pod is Ready."""
        load = Counter(request.pod for request in self._requests)
        return min(self._counters, key=lambda pod: (load[pod], pod), default="")
