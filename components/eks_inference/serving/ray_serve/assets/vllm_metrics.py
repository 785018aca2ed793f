"""Hands vLLM's own metrics on to Ray. Standard library only.

The engine answers /metrics on loopback, and several engines share a pod; Prometheus reads Ray's port of the pod, which knows
nothing of a child process. So each replica tells Ray what its engine counts. ``vllm:num_requests_waiting`` becomes
``ray_vllm_num_requests_waiting``, the name it has where Ray itself runs the engine; Ray adds labels of the replica.
"""

import contextlib
import re
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

PERIOD_S = 5.0
"""Half of the 10 seconds after which Ray passes on what it was told, and forgets it: at this pace it always has something."""

_LOOPBACK = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # a proxy for downloads is not for loopback
_SAMPLE = re.compile(r"(?P<name>vllm:[a-zA-Z0-9_:]+)(?:\{(?P<labels>.*)\})? (?P<value>\S+)")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(r"\\(.)")


@dataclass(frozen=True)
class Sample:
    """One line of Prometheus's text format."""

    name: str
    labels: dict[str, str]
    value: float


class Gauge(Protocol):
    """As much of ``ray.serve.metrics.Gauge`` as is used here."""

    def set(self, value: float, tags: dict[str, str]) -> None: ...


def samples(text: str) -> Iterator[Sample]:
    """The engine's samples in a /metrics answer, but for those that say since when a counter counts."""
    for line in text.splitlines():
        match = _SAMPLE.fullmatch(line)
        if match and not match["name"].endswith("_created"):
            labels = {key: _ESCAPED.sub(_unescaped, value) for key, value in _LABEL.findall(match["labels"] or "")}
            yield Sample(match["name"], labels, float(match["value"]))


def _unescaped(match: re.Match[str]) -> str:
    return "\n" if match[1] == "n" else match[1]


class Relay:
    """Sets a gauge of Ray for each of the engine's series.

    Counters and the buckets of histograms become gauges too: they are running totals already, which Ray's own counters and
    histograms could only be fed with differences. Prometheus goes by names and labels, not by types.
    """

    def __init__(self, engine_url: str, gauge: Callable[[str, str, tuple[str, ...]], Gauge]) -> None:
        """``gauge`` makes a gauge of a name, a description and the names of its labels: ``ray.serve.metrics.Gauge``."""
        self._url = f"{engine_url}/metrics"
        self._make = gauge
        self._gauges: dict[str, Gauge] = {}

    def start(self) -> None:
        """Hands on what the engine answers, now and then, until the process ends."""
        threading.Thread(target=self._run, name="vllm-metrics", daemon=True).start()

    def publish(self, text: str) -> None:
        """Hands on one /metrics answer."""
        for sample in samples(text):
            name = sample.name.replace(":", "_")
            if name not in self._gauges:
                self._gauges[name] = self._make(name, f"{sample.name} of the replica's engine", tuple(sample.labels))
            self._gauges[name].set(sample.value, tags=sample.labels)

    def _run(self) -> None:
        pause = threading.Event()
        while not pause.wait(PERIOD_S):
            # A metric too few is no reason to end a replica; one whose engine is dead ends by its health check.
            with contextlib.suppress(urllib.error.URLError, OSError, ValueError), _LOOPBACK.open(self._url, timeout=5) as answer:
                self.publish(answer.read().decode())
