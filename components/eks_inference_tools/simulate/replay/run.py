"""Runs a replay on its own control plane: a real Prometheus, a real controller, and users that come and go."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import requests

from eks_inference.place.quantity import amount
from eks_inference_tools.placing.nodes import SimulatedNode, managed_nodes, manifest
from eks_inference_tools.reading.live_objects import condition_of, is_ready, name_of
from eks_inference_tools.simulate.control_plane.control_plane import TOOLS as CONTROL_PLANE_TOOLS
from eks_inference_tools.simulate.control_plane.control_plane import ControlPlane, control_plane
from eks_inference_tools.simulate.control_plane.processes import ComponentError, serving
from eks_inference_tools.simulate.control_plane.toolchain import Toolchain
from eks_inference_tools.simulate.replay import custom_metrics, prometheus
from eks_inference_tools.simulate.replay.custom_metrics import CustomMetrics
from eks_inference_tools.simulate.replay.subject import HPA_TYPE, POD_MONITOR_TYPE, RULE_TYPE, TIMELINE, Phase, Sample, Subject
from eks_inference_tools.simulate.replay.triton import FIGURES, Fleet, Replica
from eks_inference_tools.simulate.world.objects import cluster_objects
from stackgraph.graph.document import Graph
from stackgraph.graph.values import at
from stackgraph.problems import Problem

TOOLS = (*CONTROL_PLANE_TOOLS, prometheus.TOOL)

_PERIOD_SECONDS = 1.0
_SETTLE_SECONDS = 60
_AFTER_LEAST_SECONDS = 20
_NOT_YET = frozenset(type_.rpartition(":")[2] for type_ in (HPA_TYPE, POD_MONITOR_TYPE, RULE_TYPE))
"""Kinds that are not applied with the others: Prometheus' configuration covers two, and the autoscaler comes last."""


def replay(
    toolchain: Toolchain,
    graph: Graph,
    subject: Subject,
    replica: Replica,
    *,
    timeline: Sequence[Phase] = TIMELINE,
    watch: Callable[[Sample], None] = lambda sample: None,
) -> tuple[Sample, ...]:
    """Runs the timeline in real time and returns its samples; calls ``watch`` with each. Raises ``ComponentError``."""
    fleet = Fleet(replica, FIGURES)
    with control_plane(toolchain) as plane, ExitStack() as stack:
        _set_up(plane, graph, subject)
        port = stack.enter_context(serving(fleet.answer))
        server = prometheus.start(plane, subject, proxy=f"http://127.0.0.1:{port}")
        metrics = stack.enter_context(custom_metrics.registered(plane, subject, server))
        loop = _Loop(plane, subject, fleet, metrics)
        # The autoscaler comes last, as in the stack.
        plane.processes.wait_until(loop.knows_metric, seconds=_SETTLE_SECONDS, what=f"a series for {subject.metric}")
        plane.api.apply(subject.autoscaler)
        taken = []
        for sample in loop.run(timeline):
            watch(sample)
            taken.append(sample)
    return tuple(taken)


# -- objects in the cluster ------------------------------------------------------------------------------------------------------


def _set_up(plane: ControlPlane, graph: Graph, subject: Subject) -> None:
    """Creates the stack's managed nodes, and the server's namespace with its objects except the autoscaler and monitoring."""
    for node in managed_nodes(graph):
        plane.api.create(_with_devices(node))
    for item in cluster_objects(graph):
        here = item.namespace == subject.namespace or (item.kind, item.name) == ("Namespace", subject.namespace)
        if here and item.kind not in _NOT_YET:
            plane.api.apply(item.manifest)
    plane.processes.wait_until(lambda: _ready(plane, subject), seconds=_SETTLE_SECONDS, what=f"a pod of {subject.deployment}")


def _with_devices(node: SimulatedNode) -> dict[str, Any]:
    """Returns the node with its devices in the status, without a device plugin."""
    found, devices = manifest(node), {name: str(count) for name, count in node.devices.items()}
    return {**found, "status": {key: {**found["status"][key], **devices} for key in ("capacity", "allocatable")}}


def _ready(plane: ControlPlane, subject: Subject) -> Mapping[str, Mapping[str, Any]]:
    """Returns the pods of the Deployment that are Ready and not being deleted, by name."""
    deployment = plane.api.get("deployments.apps", subject.deployment, subject.namespace)
    labels = at(deployment, "spec", "selector", "matchLabels") or {}
    selector = ",".join(f"{key}={value}" for key, value in labels.items())
    pods = plane.api.list("pods", subject.namespace, labelSelector=selector)
    return {name_of(pod): pod for pod in pods if is_ready(pod)}


# -- the loop --------------------------------------------------------------------------------------------------------------------


@dataclass
class _Loop:
    plane: ControlPlane
    subject: Subject
    fleet: Fleet
    metrics: CustomMetrics
    silent: frozenset[str] = frozenset()
    pods: int = 0
    last: float = field(default_factory=time.monotonic)

    def knows_metric(self) -> bool:
        """Returns whether Prometheus has scraped a pod and the adapter has listed its series."""
        return self._values(list(self._advance())) is not None

    def run(self, timeline: Sequence[Phase]) -> Iterator[Sample]:
        start, end = time.monotonic(), 0.0
        for phase in timeline:
            self.fleet.load(phase.users)
            if phase.silent and not self.silent:
                pods = _ready(self.plane, self.subject)
                self.silent = frozenset([max(pods, key=lambda name: (pods[name]["metadata"]["creationTimestamp"], name))])
            end += phase.seconds
            least_since: float | None = None
            while (now := time.monotonic() - start) < end:
                sample = self._sample(now, phase.users)
                yield sample
                if sample.replicas > self.subject.limits.least:
                    least_since = None
                elif least_since is None:
                    least_since = now
                elif phase.until_least and now - least_since > _AFTER_LEAST_SECONDS:
                    end = now
                time.sleep(max(0.0, start + now + _PERIOD_SECONDS - time.monotonic()))

    def _sample(self, now: float, users: int) -> Sample:
        plane, subject = self.plane, self.subject
        plane.processes.ensure_alive()
        pods = self._advance()
        deployment = plane.api.get("deployments.apps", subject.deployment, subject.namespace)
        autoscaler = plane.api.get("horizontalpodautoscalers.autoscaling", subject.name, subject.namespace) or {}
        active, limited = condition_of(autoscaler, "ScalingActive"), condition_of(autoscaler, "ScalingLimited")
        current = at(autoscaler, "status", "currentMetrics") or [{}]
        average = at(current[0], "pods", "current", "averageValue")
        return Sample(
            at=now,
            users=users,
            replicas=at(deployment, "spec", "replicas") or 0,
            desired=at(autoscaler, "status", "desiredReplicas") or 0,
            ready=tuple(sorted(pods)),
            silent=self.silent & set(pods),
            idle=self.fleet.idle(),
            values=self._values(list(pods)),
            average=float(amount(average)) if average else None,
            active=active["status"] == "True" if active else None,
            limited=limited["reason"] if limited and limited["status"] == "True" else "",
            message=at(active, "message") or "",
            completed=self.fleet.completed,
        )

    def _advance(self) -> Mapping[str, Mapping[str, Any]]:
        """Lets the Ready pods work until now, and returns them."""
        pods = _ready(self.plane, self.subject)
        if len(pods) < self.pods:
            self.silent = frozenset()
        self.pods = len(pods)
        self.fleet.serve({pod["status"]["podIP"]: name for name, pod in pods.items()}, self.silent)
        now = time.monotonic()
        self.fleet.advance(now - self.last)
        self.last = now
        return pods

    def _values(self, pods: Sequence[str]) -> Mapping[str, float] | None:
        try:
            return self.metrics.values(self.subject.metric, self.subject.namespace, pods)
        except requests.RequestException as error:
            self.plane.processes.ensure_alive()
            raise ComponentError([Problem("Prometheus does not answer", given=str(error))]) from error
