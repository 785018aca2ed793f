"""What a simulation leaves out or takes for granted, said in words: of nodes, and of pods in the place of charts. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from eks_inference_tools.reading.graph_facts import GraphFacts
from eks_inference_tools.reading.node_shapes import NodeShape
from eks_inference_tools.simulate.world.footprint import without_footprint
from eks_inference_tools.simulate.world.node_pools import KarpenterPool, ManagedGroup, karpenter_pools, managed_groups
from stackgraph.graph.document import Graph
from stackgraph.graph.values import unique

# Settings of the kubelet that change what pods can use in ways that a node here does not show.
_UNHEARD_SETTINGS = ("evictionHard", "kubeReserved", "podsPerCore", "reservedMemory", "reservedSystemCPUs", "systemReserved")

# Labels that a simulated node gets from elsewhere when its shape leaves them open.
_FILLED_LABELS = ("eks.amazonaws.com/", "karpenter.", "kubernetes.io/", "topology.")

_OWN_IMAGE = "it has an image of your own: its nodes are reckoned as those of EKS's AL2023 images"
_MADE_UP_ZONES = "the zones of its subnets are not in the graph: those of its nodes are made up"


@dataclass(frozen=True)
class Unsimulated:
    """What differs from a real cluster or takes no part in the simulation, and why.

    ``subject`` is ``pool default``, ``scheduler volcano``; empty where it is about all nodes.
    """

    subject: str
    why: str


def unsimulated(graph: Graph) -> tuple[Unsimulated, ...]:
    """What is left out or taken for granted, each once."""
    found = [Unsimulated("", why) for why in _of_graph(graph)]
    for group in managed_groups(graph):
        found += (Unsimulated(f"pool {group.node_group.pool}", why) for why in _of_group(group))
    for pool in karpenter_pools(graph):
        found += (Unsimulated(f"pool {pool.node_pool.name}", why) for why in _of_karpenter_pool(pool))
    return tuple(dict.fromkeys(found))


def _of_graph(graph: Graph) -> Iterator[str]:
    facts = GraphFacts(graph)
    if not facts.shapes:
        yield "the graph makes no nodes"
    elif facts.clusters and not facts.nodes_known:
        yield "the graph makes nodes in other ways, too: they are not here"
    for title in without_footprint(graph):
        yield f"the catalog does not know what the {title} runs: its pods are not here"


def _of_group(group: ManagedGroup) -> Iterator[str]:
    known = unique(shape.type_name for shape in group.shapes if shape.instance)
    if group.node_group.sizes[1] is None:
        yield "its size is not known before a deployment: it has no nodes here"
    if missing := unique(shape.type_name or "its instance type" for shape in group.shapes if not shape.instance):
        yield f"the catalog does not know {', '.join(missing)}: no such node is started here"
    if len(known) > 1:
        yield f"all its nodes are {known[0]} here; EC2 may start {', '.join(known[1:])} instead"
    image = group.node_group.ami_type
    if group.node_group.template is None:
        yield "its launch template is not in the graph: disk, interfaces and settings are EKS's own here"
    elif group.node_group.own_image:
        yield _OWN_IMAGE
    elif image and not image.startswith("AL2023"):
        yield f"its nodes have an image {image} and are reckoned as those of AL2023 images"
    if not group.user_data.read:
        yield "its user data is not known before a deployment: settings in it have no effect here"
    if not group.zones_known:
        yield _MADE_UP_ZONES
    yield from _of_any(group.user_data.kubelet, group.shapes)


def _of_karpenter_pool(pool: KarpenterPool) -> Iterator[str]:
    if missing := unique(shape.type_name for shape in pool.shapes if not shape.instance):
        yield f"the catalog does not know {', '.join(missing)}: Karpenter starts none of those here"
    if any(not shape.type_name for shape in pool.shapes):
        yield "it may choose instance types that the catalog does not know: Karpenter starts none of those here"
    if pool.node_class is None:
        yield "its EC2NodeClass is not in the graph: disk and settings are Karpenter's own here"
    elif pool.node_class.own_image:
        yield _OWN_IMAGE
    if pool.node_class and pool.node_class.has_user_data:
        yield "settings in the user data of its EC2NodeClass have no effect here"
    if not pool.zones_known:
        yield _MADE_UP_ZONES
    yield from _of_any(pool.kubelet, pool.shapes)


def _of_any(kubelet: Mapping[str, Any], shapes: tuple[NodeShape, ...]) -> Iterator[str]:
    if unheard := [key for key in _UNHEARD_SETTINGS if key in kubelet]:
        yield f"its kubelet settings {', '.join(unheard)} change what pods can use; here they do not"
    hidden = {key for shape in shapes for key, values in shape.labels.items() if values is None}
    if lacking := sorted(key for key in hidden if not key.startswith(_FILLED_LABELS)):
        yield f"the values of its labels {', '.join(lacking)} are not known: its nodes lack them here"
