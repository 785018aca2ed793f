"""Simulated time: it stands while the control plane works, and leaps to the pod that is ready next.

A pod of a server is held back until as much time has passed as its cold start takes by the timeline, on the node that it has got.
"""

import copy
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from eks_inference_tools.reading.live_objects import Object, Seen, has_ended, is_leaving, is_ready, labels_of, name_of, node_of
from eks_inference_tools.reading.object_kinds import LWS_GROUP_KEY_LABEL, PODS
from eks_inference_tools.reading.pod_templates import pod_templates
from eks_inference_tools.simulate.control_plane.kubernetes_api import Api, ApiRefusal
from eks_inference_tools.simulate.rollout.changes import images_in
from eks_inference_tools.simulate.world.api_objects import ClusterObject
from eks_inference_tools.timeline.pod_phases import PodStart, phases
from stackgraph.graph.document import Graph
from stackgraph.graph.values import at, text

HELD, OF = "eks-inference/held", "eks-inference/rehearsed"
"""Annotations of pods: held back (``stages.yaml`` waits until it is gone), and the URN of the object that makes them."""

_QUIET_ROUNDS = 12
"""Of 0.25 s: Jobs end after a second, and controllers follow at once."""
_PENDING_ROUNDS = 44
"""While a pod has no node: kube-scheduler retries it after at most 10 s (``podMaxBackoffSeconds``)."""

Sample = tuple[float, Mapping[str, int]]


def held(graph: Graph, objects: Sequence[ClusterObject], urns: Collection[str]) -> tuple[ClusterObject, ...]:
    """Returns the objects with pods that are held back, where the timeline knows how they start."""
    return tuple(_held(graph, item) if item.urn in urns else _patient(item) for item in objects)


def _patient(item: ClusterObject) -> ClusterObject:
    """A NodePool whose nodes wait at their end for seconds instead of hours."""
    period = at(item.manifest, "spec", "template", "spec", "terminationGracePeriod")
    if item.kind != "NodePool" or period is None:
        return item
    manifest = copy.deepcopy(item.manifest)
    manifest["spec"]["template"]["spec"]["terminationGracePeriod"] = "1s"
    return replace(item, manifest=manifest)


def _held(graph: Graph, item: ClusterObject) -> ClusterObject:
    manifest = copy.deepcopy(item.manifest)
    for pod_template in pod_templates(Graph("", "", (replace(graph.by_urn[item.urn], inputs=manifest),))):
        if pod_template.part != "head":  # it only leads workers
            pod_template.template.setdefault("metadata", {}).setdefault("annotations", {}).update({HELD: "true", OF: item.urn})
    return replace(item, manifest=manifest)


class Clock:
    """Watches the pods, and decides when those that are held back become ready: at once until ``start``.

    ``servers`` are names, and ``starts`` how pods start, by URN of the object that makes them. ``samples`` are the pods that
    answer by server, at each change; ``untimed`` are phases of a start without a typical time, by server.
    """

    def __init__(self, api: Api, servers: Mapping[str, str], starts: Mapping[str, PodStart]) -> None:
        self._api, self._servers, self._starts = api, servers, starts
        self.now, self.samples, self.untimed = 0.0, list[Sample](), defaultdict[str, set[str]](set)
        self.serving: Mapping[str, frozenset[str]] = {}
        self.stands = set[str]()
        """Nodes whose start no pod waits for."""
        self._runs, self._pulled, self._due = False, set[tuple[str, str]](), dict[str, float]()
        self._before: object = None
        self._quiet = 0

    def start(self, nodes: Collection[str]) -> None:
        self._runs, self.samples = True, self.samples[-1:]
        self.stands |= {*nodes}

    def observe(self, seen: Seen) -> bool:
        """Returns whether a pod that is held back will become ready."""
        pods = seen[PODS]
        self._count(pods)
        waiting = [pod for pod in pods if HELD in _annotations(pod) and node_of(pod) and not is_leaving(pod)]
        for pod in waiting:
            if (uid := pod["metadata"]["uid"]) not in self._due:
                self._due[uid] = self.now + (self._seconds(pod) if self._runs else 0)
        if waiting and not (self._runs and self._moves(pods)):
            first = min(self._due[one["metadata"]["uid"]] for one in waiting)
            self.now = max(self.now, first)
            for pod in waiting:
                if self._due[pod["metadata"]["uid"]] <= self.now:
                    with suppress(ApiRefusal):  # it has gone meanwhile
                        self._api.patch(pod, {"metadata": {"annotations": {HELD: None}}})
        return bool(waiting)

    def _moves(self, pods: Sequence[Object]) -> bool:
        state = frozenset((pod["metadata"]["uid"], *_state(pod)) for pod in pods)
        self._quiet = self._quiet + 1 if state == self._before else 0
        self._before = state
        return self._quiet < (_QUIET_ROUNDS if all(node_of(pod) or has_ended(pod) for pod in pods) else _PENDING_ROUNDS)

    def _seconds(self, pod: Object) -> float:
        """How long this pod takes on its node."""
        urn, node = _annotations(pod)[OF], node_of(pod)
        start = self._starts[urn]
        there = any((node, image) in self._pulled for image in images_in(pod))
        start = replace(
            start, pulled=there, no_node=False, new_node="" if node in self.stands else start.new_node or start.pool or node
        )
        self.untimed[self._servers.get(urn, urn)] |= {phase.title for phase in phases(start) if phase.time is None}
        return sum(phase.time.p50 for phase in phases(start) if phase.time)

    def _count(self, pods: Sequence[Object]) -> None:
        units = defaultdict[tuple[str, str], list[tuple[str, bool]]](list)
        for pod in pods:
            if is_ready(pod) or has_ended(pod):
                self._pulled |= {(node_of(pod), image) for image in images_in(pod)}
            if name := self._servers.get(_annotations(pod).get(OF, "")):
                unit = text(labels_of(pod).get(LWS_GROUP_KEY_LABEL)) or name_of(pod)
                units[name, unit].append((pod["metadata"]["uid"], is_ready(pod) and not is_leaving(pod)))
        found = {name: set[str]() for name in self._servers.values()}
        for (name, _), members in units.items():
            if all(ready for _, ready in members):
                found[name].add(min(uid for uid, _ in members))
        self.serving = {name: frozenset(uids) for name, uids in found.items()}
        counts = {name: len(uids) for name, uids in found.items()}
        if not self.samples or self.samples[-1][1] != counts:
            self.samples.append((self.now, counts))


def _state(pod: Object) -> Iterator[object]:
    yield is_leaving(pod)
    yield node_of(pod)
    yield at(pod, "status", "phase")
    yield is_ready(pod)
    yield HELD in _annotations(pod)


def _annotations(pod: Object) -> Mapping[str, str]:
    return at(pod, "metadata", "annotations") or {}
