"""A replay on a control plane of its own: a real Prometheus and a real controller, and users that come and go."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import requests

from eks_inference.kubernetes.quantity import amount
from eks_inference_tools.simulate.control_plane.control_plane import TOOLS as CONTROL_PLANE_TOOLS
from eks_inference_tools.simulate.control_plane.control_plane import ControlPlane, control_plane
from eks_inference_tools.simulate.control_plane.loopback import serving
from eks_inference_tools.simulate.control_plane.processes import ComponentError
from eks_inference_tools.simulate.control_plane.toolchain import Toolchain
from eks_inference_tools.simulate.replay import custom_metrics, prometheus
from eks_inference_tools.simulate.replay.custom_metrics import CustomMetrics
from eks_inference_tools.simulate.replay.model import FIGURES, Replica
from eks_inference_tools.simulate.replay.samples import TIMELINE, Phase, Sample
from eks_inference_tools.simulate.replay.subject import HPA_TYPE, POD_MONITOR_TYPE, RULE_TYPE, Subject
from eks_inference_tools.simulate.replay.triton import Exporters, Fleet
from eks_inference_tools.simulate.world.nodes import SimulatedNode, managed_nodes, manifest
from eks_inference_tools.simulate.world.objects import cluster_objects
from stackgraph.graph.document import Graph
from stackgraph.graph.values import at
from stackgraph.problems import Problem

TOOLS = (*CONTROL_PLANE_TOOLS, prometheus.TOOL)

_PERIOD_SECONDS = 1.0
_SETTLE_SECONDS = 60
_AFTER_LEAST_SECONDS = 20
_NOT_YET = frozenset(type_.rpartition(":")[2] for type_ in (HPA_TYPE, POD_MONITOR_TYPE, RULE_TYPE))
"""Kinds that Prometheus' configuration is made of, or that come last."""

Watch = Callable[[Sample], None]
"""Is told of every sample as it is taken."""


def replay(
    toolchain: Toolchain,
    graph: Graph,
    subject: Subject,
    replica: Replica,
    *,
    timeline: Sequence[Phase] = TIMELINE,
    watch: Watch = lambda sample: None,
) -> tuple[Sample, ...]:
    """Runs the timeline in real time. Raises ``ComponentError`` when a part of it ends or does not begin."""
    fleet = Fleet(replica, FIGURES)
    exporters = Exporters(fleet)
    with control_plane(toolchain) as plane, ExitStack() as stack:
        _set_up(plane, graph, subject)
        port = stack.enter_context(serving(exporters.answer))
        server = prometheus.start(plane, subject, proxy=f"http://127.0.0.1:{port}")
        metrics = stack.enter_context(custom_metrics.registered(plane, subject, server))
        loop = _Loop(plane, subject, fleet, exporters, metrics)
        # As in the stack, where it comes after everything it needs.
        plane.processes.wait_until(loop.knows_metric, seconds=_SETTLE_SECONDS, what=f"a series for {subject.metric}")
        plane.api.apply(subject.autoscaler)
        taken = []
        for sample in loop.run(timeline):
            watch(sample)
            taken.append(sample)
    return tuple(taken)


# -- what stands in the cluster --------------------------------------------------------------------------------------------------


def _set_up(plane: ControlPlane, graph: Graph, subject: Subject) -> None:
    """The stack's managed nodes, and the server's namespace with all that the stack puts there but its autoscaler."""
    for node in managed_nodes(graph):
        plane.api.create(_with_devices(node))
    for item in cluster_objects(graph):
        here = item.namespace == subject.namespace or (item.kind, item.name) == ("Namespace", subject.namespace)
        if here and item.kind not in _NOT_YET:
            plane.api.apply(item.manifest)
    plane.processes.wait_until(lambda: _ready(plane, subject), seconds=_SETTLE_SECONDS, what=f"a pod of {subject.deployment}")


def _with_devices(node: SimulatedNode) -> dict[str, Any]:
    """As it is once the device plugin runs on it, which is not what is looked at here."""
    found, devices = manifest(node), {name: str(count) for name, count in node.devices.items()}
    return {**found, "status": {key: {**found["status"][key], **devices} for key in ("capacity", "allocatable")}}


def _ready(plane: ControlPlane, subject: Subject) -> Mapping[str, Mapping[str, Any]]:
    """Pods of the Deployment that are Ready and not about to go, by name."""
    deployment = plane.api.get("deployments.apps", subject.deployment, subject.namespace)
    labels = at(deployment, "spec", "selector", "matchLabels") or {}
    selector = ",".join(f"{key}={value}" for key, value in labels.items())
    pods = plane.api.list("pods", subject.namespace, labelSelector=selector)
    return {pod["metadata"]["name"]: pod for pod in pods if _is_ready(pod)}


def _is_ready(pod: Mapping[str, Any]) -> bool:
    return "deletionTimestamp" not in pod["metadata"] and _condition(pod, "Ready").get("status") == "True"


def _condition(item: Mapping[str, Any] | None, type_: str) -> Mapping[str, Any]:
    conditions = at(item, "status", "conditions") or ()
    return next((condition for condition in conditions if condition["type"] == type_), {})


# -- the loop --------------------------------------------------------------------------------------------------------------------


class _Loop:
    def __init__(self, plane: ControlPlane, subject: Subject, fleet: Fleet, exporters: Exporters, metrics: CustomMetrics) -> None:
        self._plane = plane
        self._subject = subject
        self._fleet = fleet
        self._exporters = exporters
        self._metrics = metrics
        self._silent = frozenset[str]()
        self._pods = 0
        self._last = time.monotonic()

    def knows_metric(self) -> bool:
        """Whether a pod has been scraped, and the adapter has listed its series."""
        pods = self._share_out()
        return self._values(list(pods)) is not None

    def run(self, timeline: Sequence[Phase]) -> Iterator[Sample]:
        start, end = time.monotonic(), 0.0
        for phase in timeline:
            self._fleet.load(phase.users)
            if phase.silent:
                self._silence()
            end += phase.seconds
            least_since: float | None = None
            while (now := time.monotonic() - start) < end:
                sample = self._sample(now, phase.users)
                yield sample
                if sample.replicas > self._subject.limits.least:
                    least_since = None
                elif least_since is None:
                    least_since = now
                elif phase.until_least and now - least_since > _AFTER_LEAST_SECONDS:
                    end = now
                time.sleep(max(0.0, start + now + _PERIOD_SECONDS - time.monotonic()))

    def _silence(self) -> None:
        if not self._silent:
            pods = _ready(self._plane, self._subject)
            youngest = max(pods, key=lambda name: (pods[name]["metadata"]["creationTimestamp"], name))
            self._silent = frozenset([youngest])

    def _sample(self, now: float, users: int) -> Sample:
        plane, subject = self._plane, self._subject
        plane.processes.ensure_alive()
        pods = self._share_out()
        deployment = plane.api.get("deployments.apps", subject.deployment, subject.namespace)
        autoscaler = plane.api.get("horizontalpodautoscalers.autoscaling", subject.name, subject.namespace)
        active = _condition(autoscaler, "ScalingActive")
        current = at(autoscaler, "status", "currentMetrics") or [{}]
        average = at(current[0], "pods", "current", "averageValue")
        return Sample(
            at=now,
            users=users,
            replicas=at(deployment, "spec", "replicas") or 0,
            desired=at(autoscaler, "status", "desiredReplicas") or 0,
            ready=tuple(sorted(pods)),
            silent=self._silent & set(pods),
            idle=self._fleet.idle(),
            values=self._values(list(pods)),
            average=float(amount(average)) if average else None,
            active=active["status"] == "True" if active else None,
            limited=_limit(autoscaler),
            message=active.get("message", ""),
            completed=self._fleet.completed,
        )

    def _share_out(self) -> Mapping[str, Mapping[str, Any]]:
        """The pods that are Ready, after they have worked until now."""
        pods = _ready(self._plane, self._subject)
        if len(pods) < self._pods:
            self._silent = frozenset()
        self._pods = len(pods)
        self._fleet.serve(pods)
        now = time.monotonic()
        self._fleet.advance(now - self._last)
        self._last = now
        self._exporters.update({pod["status"]["podIP"]: name for name, pod in pods.items()}, self._silent)
        return pods

    def _values(self, pods: Sequence[str]) -> Mapping[str, float] | None:
        try:
            return self._metrics.values(self._subject.metric, self._subject.namespace, pods)
        except requests.RequestException as error:
            self._plane.processes.ensure_alive()
            raise ComponentError([Problem("Prometheus does not answer", given=str(error))]) from error


def _limit(autoscaler: Mapping[str, Any] | None) -> str:
    limited = _condition(autoscaler, "ScalingLimited")
    return limited["reason"] if limited.get("status") == "True" else ""
