"""Simulated Triton servers: the pods of one Deployment that share users among them, and what each tells Prometheus.

Counters are those of Triton's documentation ("Metrics"), as far as the library's rules read them; they move when a response is
complete, as Triton's do with decoupled models. A pod answers as soon as it is Ready: the minutes in which a real one pulls,
downloads and loads are left out. Users are shared out evenly: a request goes to the pod with the fewest.
"""

import random
import threading
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from eks_inference.scaling.plan import QUEUE_COUNTER
from eks_inference.serving.triton.plan import PORTS
from eks_inference_tools.simulate.control_plane.loopback import Answer, Request, plain
from eks_inference_tools.simulate.replay.model import Replica

SUCCESS, FAILURE, PENDING = "nv_inference_request_success", "nv_inference_request_failure", "nv_inference_pending_request_count"

EXPORTED = (SUCCESS, FAILURE, QUEUE_COUNTER, PENDING)
"""Names of all series of a simulated Triton."""

METRICS_PATH = "/metrics"

_FAILURES = ("REJECTED", "CANCELED", "BACKEND", "OTHER")
_STEP_SECONDS = 0.05
_SPREAD = 0.2  # answers differ in length, so that a batch does not end at once
_SEED = 1


@dataclass
class _Request:
    """One user's: what is left of it, as a part of an average one, and who works on it."""

    left: float
    pod: str = ""


@dataclass
class _Counters:
    success: int = 0
    queue_us: float = 0


class Fleet:
    """The pods of a server under a closed loop of users. May be used by several threads.

    ``model`` is the name in the label of that name.
    """

    def __init__(self, replica: Replica, model: str) -> None:
        self._replica = replica
        self._model = model
        self._random = random.Random(_SEED)
        self._requests: list[_Request] = []
        self._counters: dict[str, _Counters] = {}
        self.completed = 0
        """Requests completed so far, by pods that are gone too."""
        self._lock = threading.Lock()

    def serve(self, pods: Iterable[str]) -> None:
        """Which pods are Ready. What others worked on begins anew; a new pod's counters begin at 0."""
        with self._lock:
            names = sorted(set(pods))
            self._counters = {name: self._counters.get(name) or _Counters() for name in names}
            for request in self._requests:
                if request.pod not in self._counters:
                    request.pod, request.left = self._least_loaded(), self._work()

    def load(self, users: int) -> None:
        """How many users there are from now on. Those that leave take their requests with them."""
        with self._lock:
            del self._requests[users:]
            while len(self._requests) < users:
                # Somewhere in the middle of a request: users that begin together would stay together.
                self._requests.append(_Request(self._work() * self._random.random(), self._least_loaded()))

    def advance(self, seconds: float) -> None:
        """Lets time pass."""
        with self._lock:
            while seconds > 0:
                step = min(seconds, _STEP_SECONDS)
                self._step(step)
                seconds -= step

    def idle(self) -> frozenset[str]:
        """Pods without a request."""
        with self._lock:
            return frozenset(self._counters) - {request.pod for request in self._requests}

    def exposition(self, pod: str) -> str | None:
        """What the pod answers Prometheus; None for one that is not there."""
        with self._lock:
            counters = self._counters.get(pod)
        if counters is None:
            return None
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
        return "".join(f"{line}\n" for line in lines)

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
        """The pod with the fewest requests, the first by name of several; nobody while no pod is Ready."""
        load = Counter(request.pod for request in self._requests)
        return min(self._counters, key=lambda pod: (load[pod], pod), default="")


class Exporters:
    """The metrics ports of all pods at once, as a proxy: Prometheus asks for a pod's own address, and gets that pod's answer.

    So its configuration stays as the stack has it, addresses and ports too. ``answer`` is what an HTTP server needs.
    """

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._pods: Mapping[str, str] = {}
        self._silent: Collection[str] = ()

    def update(self, pods: Mapping[str, str], silent: Collection[str]) -> None:
        """``pods`` are names by IP address; those in ``silent`` do not answer."""
        self._pods, self._silent = dict(pods), frozenset(silent)

    def answer(self, request: Request) -> Answer:
        asked = urlsplit(request.target)
        pod = self._pods.get(asked.hostname or "")
        if pod is None or asked.port != PORTS["metrics"] or pod in self._silent:
            return plain(502, "nobody listens there\n")
        text = self._fleet.exposition(pod)
        if text is None or (request.method, asked.path) != ("GET", METRICS_PATH):
            return plain(404, "not found\n")
        return plain(200, text)
