"""Runs Karpenter itself for the NodePools of a graph, with a stand-in for EC2: the nodes that the catalog knows.

Provisioning, consolidation, drift, expiry and budgets are those of sigs.k8s.io/karpenter. EC2 has any number of each instance
type, at list prices; spot costs ``_SPOT`` of them. What the terms of an EC2NodeClass select in an account is not looked up.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from eks_inference.catalog.prices import instance_price
from eks_inference.place.placement import CAPACITY_TYPE_LABEL
from eks_inference_tools.placing.footprint import STANDS_IN_FOR_LABEL
from eks_inference_tools.placing.started_nodes import HARDWARE_ANNOTATION, NodeKind, karpenter_kinds
from eks_inference_tools.reading.devices import CLAIMED
from eks_inference_tools.reading.expected import expected_of
from eks_inference_tools.reading.live_objects import identity_of, is_leaving, labels_of, name_of, node_of
from eks_inference_tools.reading.object_kinds import NODE_CLASSES, NODES, PODS
from eks_inference_tools.reading.releases import charts
from eks_inference_tools.simulate.control_plane.control_plane import ControlPlane
from eks_inference_tools.simulate.control_plane.kubernetes_api import Api
from eks_inference_tools.simulate.stand_ins.loop import Seen, condition, conditions, set_status
from stackgraph.graph.document import Graph
from stackgraph.graph.values import at, table

TOOL = "karpenter-on-kwok"
_CHART, _GATES = "karpenter", ("settings", "featureGates")
_SPOT = 0.5
"""Share of the list price: less than on demand, so that Karpenter prefers it, as with most types."""
_DEAR = 1e6
"""The price of a type without one: the last choice."""
_FOREIGN = ("karpenter.k8s.aws/", "kubernetes.io/", "node.kubernetes.io/", "topology.k8s.aws/", "topology.kubernetes.io/")
"""Domains of the labels that AWS's provider gives nodes; Karpenter adds all others from the NodePool."""

Lacks = Callable[[str, Mapping[str, str]], bool]
"""Whether EC2 has no instance for a pool, with such labels of zone and capacity type."""


class Karpenter:
    """Runs Karpenter once the pods of its chart run, if the graph installs it, and says that EC2NodeClasses are ready."""

    title = "EC2 for Karpenter"

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._kinds: tuple[NodeKind, ...] = ()
        self._releases: list[str] = []
        self._wanted = self._runs = _Settings()

    def follow(self, graph: Graph, lacks: Lacks = lambda pool, labels: False) -> None:
        """From now on, this is for the NodePools of the graph, without the instances that EC2 ``lacks``."""
        self._kinds = karpenter_kinds(graph)
        installed = [chart for chart in charts(graph) if chart.name == _CHART]
        self._releases = [chart.release for chart in installed]
        gates = {key: value for chart in installed for key, value in table(at(chart.values, *_GATES)).items()}
        words = ",".join(f"{key[:1].upper()}{key[1:]}={json.dumps(value)}" for key, value in gates.items())
        self._wanted = _Settings(
            json.dumps({"machines": machines(self._kinds, lacks), "version": expected_of(graph).version}), words
        )

    @property
    def reads(self) -> tuple[str, ...]:
        return (PODS, NODES, NODE_CLASSES) if self._kinds else ()

    def reconcile(self, seen: Seen, api: Api) -> None:
        if not self._kinds:
            return
        _end_pods_without_node(seen, api)
        running = {labels_of(pod).get(STANDS_IN_FOR_LABEL) for pod in seen[PODS] if at(pod, "status", "phase") == "Running"}
        if not running.issuperset(self._releases):
            return
        for item in seen[NODE_CLASSES]:
            now = conditions(item, [condition("Ready", True, "Ready", "")])
            set_status(api, item, {**table(item.get("status")), "conditions": now})
        if self._runs != self._wanted:
            self.close()
            self._start()

    def close(self) -> None:
        """Ends Karpenter, before anything else takes the control plane."""
        if self._runs != _Settings():
            self._plane.processes.stop(TOOL)
            self._runs = _Settings()

    def _start(self) -> None:
        plane, self._runs = self._plane, self._wanted
        file = plane.processes.folder / "machines.json"
        file.write_text(self._runs.machines, "utf-8")
        argv = [plane.toolchain.path(TOOL), file, plane.kubeconfig]
        plane.processes.start(TOOL, [*argv, *([f"--feature-gates={self._runs.gates}"] if self._runs.gates else [])])


class _Settings(NamedTuple):
    """Those that Karpenter reads once."""

    machines: str = ""
    gates: str = ""


def _end_pods_without_node(seen: Seen, api: Api) -> None:
    """Their kubelet is gone and can no longer report that they have ended. Kubernetes itself collects them after a minute."""
    there = {name_of(node) for node in seen[NODES]}
    for pod in seen[PODS]:
        if is_leaving(pod) and node_of(pod) not in {"", *there}:
            namespace, name = identity_of(pod)
            api.delete(PODS, name, namespace, gracePeriodSeconds=0)


def machines(kinds: tuple[NodeKind, ...], lacks: Lacks = lambda pool, labels: False) -> dict[str, list[dict[str, Any]]]:
    """Returns what EC2 has for each NodePool, as tools/karpenter/aws.go reads it."""
    found: dict[str, list[dict[str, Any]]] = {}
    for kind in kinds:
        devices = {name: str(count) for name, count in kind.devices.items() if name not in CLAIMED}
        hardware = {HARDWARE_ANNOTATION: json.dumps(dict(kind.devices))} if kind.devices else {}
        found.setdefault(kind.shape.pool, []).append(
            {
                "name": kind.instance.name,
                "labels": _labels(kind),
                "capacity": {**kind.capacity, **devices},
                "allocatable": {**kind.allocatable, **devices},
                "registers": dict(kind.capacity),
                "annotations": hardware,
                "offerings": [offering for offering in _offerings(kind) if not lacks(kind.shape.pool, offering["labels"])],
            }
        )
    return found


def _labels(kind: NodeKind) -> Mapping[str, list[str]]:
    ours = {key: sorted(values) for key, values in kind.shape.labels.items() if values and key.startswith(_FOREIGN)}
    return ours | {"topology.kubernetes.io/region": [kind.region]}


def _offerings(kind: NodeKind) -> Iterator[dict[str, Any]]:
    known = instance_price(kind.instance.name, kind.region)
    price = known.usd if known else _DEAR
    shares = {"on-demand": 1.0, "spot": _SPOT, "reserved": 0.0}
    for zone in kind.zones:
        for capacity in sorted(kind.shape.labels.get(CAPACITY_TYPE_LABEL) or ["on-demand"]):
            yield {"labels": {**zone.labels(), CAPACITY_TYPE_LABEL: capacity}, "price": float(price) * shares[capacity]}
