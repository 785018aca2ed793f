"""Finds the nodes that pods go to: those of a managed node group stand when it is created, Karpenter starts its own. Pure."""

import base64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from eks_inference.catalog.disks import FAST_IMAGE_PULL, GP3
from eks_inference_tools.placing.placed import PlacedNode, Placing
from eks_inference_tools.reading.machines import Machine
from eks_inference_tools.reading.node_groups import node_groups
from eks_inference_tools.reading.node_pools import node_pools
from eks_inference_tools.reading.node_shapes import NodeShape, node_shapes
from eks_inference_tools.reading.pod_templates import PodTemplate
from eks_inference_tools.reading.pods import PodSpec
from eks_inference_tools.reading.scalars import whole
from eks_inference_tools.reading.scheduling import suits
from stackgraph.graph.document import Graph
from stackgraph.graph.tokens import is_token
from stackgraph.graph.values import at, text


@dataclass(frozen=True)
class Home:
    """The nodes that pods go to. ``urn`` is that of the pool's resource. ``instance_type`` is empty when it is open.

    ``nodes`` is how many stand once the pool exists, None when it is unknown. ``disk_mib_s`` is the throughput of the disk that
    images go to, None when it is unknown or a local disk.
    """

    pool: str
    urn: str
    by_karpenter: bool
    nodes: int | None = None
    instance_type: str = ""
    disk_mib_s: int | None = None
    fast_image_pull: bool = False

    @property
    def empty(self) -> bool:
        """Whether it is a node group without a node: the engine starts none, and Karpenter neither."""
        return not self.by_karpenter and self.nodes == 0


class Homes:
    """Where the pods of one cluster run: on nodes that stand, else on those that Karpenter starts, else in empty node groups."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    def of(self, template: PodTemplate) -> Home | None:
        """Returns where pods run, None when no pool of the graph takes them."""
        shapes = [one for one in self._shapes if self._takes(one, template.spec)]
        if not shapes:
            return None
        # Of several types, Karpenter chooses one. Placing tells which, but takes as long as everything else here.
        if shapes[0].by_karpenter and len(shapes) > 1 and (node := self._placed.get((template.urn, template.part))):
            return self._home(node.pool, node.urn, node.by_karpenter, node.instance.name)
        return self._home(shapes[0].pool, shapes[0].urn, shapes[0].by_karpenter, shapes[0].type_name)

    def _home(self, pool: str, urn: str, by_karpenter: bool, instance_type: str) -> Home:
        machine = self._machines.get(urn)
        return Home(
            pool=pool,
            urn=urn,
            by_karpenter=by_karpenter,
            nodes=self._nodes.get(urn),
            instance_type=instance_type,
            disk_mib_s=_throughput(machine),
            fast_image_pull=_pulls_fast(machine),
        )

    @cached_property
    def _placed(self) -> Mapping[tuple[str, str], PlacedNode]:
        """The node of the first pod of each template, by URN and part."""
        nodes = Placing(self._graph).at(ending=True).nodes
        return {(pod.template.urn, pod.template.part): node for node in reversed(nodes) for pod in node.pods}

    def _takes(self, shape: NodeShape, pod: PodSpec) -> bool:
        wanted = {name: amount for name, amount in pod.requests.items() if "/" in name}
        return all(shape.offers.get(name, 0) >= amount for name, amount in wanted.items()) and suits(pod, shape)

    @cached_property
    def _shapes(self) -> tuple[NodeShape, ...]:
        def order(shape: NodeShape) -> int:
            return 1 if shape.by_karpenter else 0 if self._nodes.get(shape.urn) != 0 else 2

        return tuple(sorted(node_shapes(self._graph), key=order))

    @cached_property
    def _nodes(self) -> Mapping[str, int | None]:
        groups = {group.urn: group.sizes[1] for group in node_groups(self._graph)}
        return groups | {pool.urn: pool.replicas or 0 for pool in node_pools(self._graph)}

    @cached_property
    def _machines(self) -> Mapping[str, Machine | None]:
        groups = {group.urn: group.template for group in node_groups(self._graph)}
        return groups | {pool.urn: pool.node_class for pool in node_pools(self._graph)}


def _throughput(machine: Machine | None) -> int | None:
    """Returns the throughput of the root disk in MiB/s, None when it is unknown or does not matter."""
    if machine is None or "RAID0" in _settings(machine):
        return None
    disk = machine.root_disk
    if disk is None or not disk.ebs or disk.type != GP3.name:
        return None
    return GP3.least_mib_s if disk.throughput is None else whole(disk.throughput)


def _pulls_fast(machine: Machine | None) -> bool:
    return machine is not None and FAST_IMAGE_PULL.gate in _settings(machine)


def _settings(machine: Machine) -> str:
    return "\n".join(_texts(machine.document))


def _texts(document: Any) -> Iterator[str]:
    """Yields the settings of a node that are not fields: its user data, decoded, and its policy for local disks."""
    yield text(at(document, "instanceStorePolicy"))
    given = at(document, "userData")
    if isinstance(given, str) and not is_token(given):
        try:
            yield base64.b64decode(given, validate=True).decode()
        except ValueError:
            yield given
