"""Simulates Triton servers: the pods of one Deployment that share users, and the metrics that each exports.

Counters are those of Triton's documentation ("Metrics") that the library's rules read. They increase when a response is complete,
as Triton's do with decoupled models. A pod serves as soon as it is Ready, without the minutes in which a real one pulls its image
and loads the model. A request goes to the pod with the fewest requests.
"""

import random
import threading
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from eks_inference.scaling.plan import QUEUE_COUNTER
from eks_inference.serving.triton.plan import PORTS
from eks_inference_tools.simulate.control_plane.loopback import Answer, Request, plain
from eks_inference_tools.simulate.replay.model import Replica

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
