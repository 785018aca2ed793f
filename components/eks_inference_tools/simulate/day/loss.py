"""What is lost, and what Kubernetes and AWS do about it that no program here does.

A lost instance is terminated: the cloud controller deletes its Node once that is not Ready, and its node group starts another. A
lost zone is cut off: AWS still has its instances, so their Nodes stay, and pods leave them by Kubernetes' own eviction; node
groups start nodes in their other zones.

Source: cloud-provider, node_lifecycle_controller.go; EC2 Auto Scaling user guide, "Auto Scaling benefits", instance distribution.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from eks_inference.catalog.times import phase_time
from eks_inference.place.placement import KARPENTER_POOL_LABEL, ZONE_LABEL
from eks_inference_tools.placing.nodes import NodeNames, SimulatedNode, manifest
from eks_inference_tools.reading.kinds import NODES
from eks_inference_tools.reading.live_objects import Object, condition_of, labels_of, name_of, node_of
from eks_inference_tools.simulate.control_plane.api import Api
from eks_inference_tools.simulate.control_plane.control_plane import LOST_LABEL

Kind = Literal["node", "zone"]
KINDS: tuple[Kind, ...] = ("node", "zone")

_OUTSIDE = 60.0
"""Seconds for a new node whose time nobody has measured."""


@dataclass
class Loss:
    """Nodes that are gone. ``what`` names them. ``due`` are new nodes of node groups, with the seconds after the loss."""

    kind: Kind
    what: str
    nodes: frozenset[str]
    due: list[tuple[float, SimulatedNode]] = field(default_factory=list[tuple[float, SimulatedNode]])
    without: tuple[str, ...] = ()
    """Node groups that have no other zone."""

    def strike(self, api: Api) -> None:
        for name in sorted(self.nodes):
            node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
            api.patch(node, {"metadata": {"labels": {LOST_LABEL: self.kind}}}, kind="merge")

    def follow(self, seconds: float, nodes: Sequence[Object], api: Api) -> None:
        """Does what the cloud does, so long after the loss."""
        for node in nodes:
            ready = condition_of(node, "Ready") or {}
            if self.kind == "node" and name_of(node) in self.nodes and ready.get("status") != "True":
                api.delete(NODES, name_of(node))
        for due in [one for one in self.due if one[0] <= seconds]:
            self.due.remove(due)
            api.create(manifest(due[1]))


def chosen(kind: Kind, nodes: Sequence[Object], pods: Sequence[Object], managed: Sequence[SimulatedNode]) -> Loss:
    """Returns the worst loss: the node, or the zone, with the most of these pods."""
    holds = Counter(node_of(pod) for pod in pods)
    zones = {name_of(node): str(labels_of(node).get(ZONE_LABEL, "")) for node in nodes}
    if kind == "node":
        what = min(zones, key=lambda name: (-holds[name], name))
        gone = frozenset([what])
    else:
        by_zone = Counter(dict.fromkeys(zones.values(), 0))
        for name, count in holds.items():
            by_zone[zones[name]] += count
        what = min(by_zone, key=lambda zone: (-by_zone[zone], zone))
        gone = frozenset(name for name, zone in zones.items() if zone == what)
    of_groups = {name_of(node) for node in nodes if KARPENTER_POOL_LABEL not in labels_of(node)} & gone
    lost = [node for node in managed if node.name in of_groups]
    names, due, without = NodeNames(zones), list[tuple[float, SimulatedNode]](), list[str]()
    for number, node in enumerate(lost):
        rest = [zone for zone in node.kind.zones if kind == "node" or zone.name != what]
        zone = node.zone if kind == "node" else rest[number % len(rest)] if rest else None
        if zone is None:
            without.append(node.kind.shape.pool)
            continue
        time = phase_time("node", node.kind.instance.accelerator, instance_type=node.kind.instance.name)
        due.append((time.p50 if time else _OUTSIDE, node.kind.node(names.new(node.kind.shape.pool), zone)))
    return Loss(kind, what, gone, due, tuple(dict.fromkeys(without)))
