"""Lists what a simulation leaves out or assumes about nodes and about the pods of charts, in words. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from eks_inference.catalog.instances import instance_types
from eks_inference_tools.placing.footprint import without_footprint
from eks_inference_tools.placing.node_pools import KarpenterPool, ManagedGroup, karpenter_pools, managed_groups
from eks_inference_tools.reading.graph_facts import GraphFacts
from eks_inference_tools.reading.node_shapes import NodeShape
from eks_inference_tools.simulate.world.resource_slices import assumed
from stackgraph.graph.document import Graph
from stackgraph.graph.values import unique

# Kubelet settings that change what pods can use. Simulated nodes ignore them.
_IGNORED_SETTINGS = ("podsPerCore", "reservedMemory", "reservedSystemCPUs")

# Labels that a simulated node gets from another source if its shape leaves them open.
_FILLED_LABELS = ("eks.amazonaws.com/", "karpenter.", "kubernetes.io/", "topology.")

_OWN_IMAGE = "it has a custom image: its nodes are sized like those of EKS's AL2023 images"
_MADE_UP_ZONES = "the zones of its subnets are not in the graph: those of its nodes are made up"


@dataclass(frozen=True)
class Unsimulated:
    """What differs from a real cluster or is left out of the simulation, and why.

    ``subject`` is ``pool default`` or ``scheduler volcano``, and empty for all nodes.
    """

    subject: str
    why: str


def unsimulated(graph: Graph) -> tuple[Unsimulated, ...]:
    """Returns everything that is left out or assumed, without repetitions."""
    facts = GraphFacts(graph)
    of_graph = {
        "the graph creates no nodes": not facts.shapes,
        "the graph also creates nodes in other ways: they are not simulated": (
            facts.shapes and facts.clusters and not facts.nodes_known
        ),
    }
    of_graph |= {
        f"the catalog does not know what the {title} runs: its pods are not simulated": True for title in without_footprint(graph)
    }
    claimed = unique(shape.instance.name for shape in facts.shapes if shape.claimed and shape.instance)
    of_graph |= {assumed(instance_types()[name]): True for name in claimed}
    differences = [
        ("", of_graph),
        *((f"pool {group.node_group.pool}", _of_group(group)) for group in managed_groups(graph)),
        *((f"pool {pool.node_pool.name}", _of_karpenter_pool(pool)) for pool in karpenter_pools(graph)),
    ]
    return tuple(dict.fromkeys(Unsimulated(subject, why) for subject, whys in differences for why in whys if whys[why]))


def _of_group(group: ManagedGroup) -> Mapping[str, object]:
    """Returns what may differ for a managed node group, and whether it does."""
    types = unique(shape.type_name for shape in group.shapes if shape.instance)
    missing = unique(shape.type_name or "its instance type" for shape in group.shapes if not shape.instance)
    image, template = group.node_group.ami_type, group.node_group.template
    return {
        "its size is known only after deployment: no node is simulated": group.node_group.sizes[1] is None,
        f"the catalog does not know {', '.join(missing)}: no such node is simulated": missing,
        f"all its simulated nodes are {', '.join(types[:1])}; EC2 may start {', '.join(types[1:])} instead": types[1:],
        "its launch template is not in the graph: disk, interfaces and settings are the defaults of EKS": template is None,
        _OWN_IMAGE: template and group.node_group.own_image,
        f"its nodes have the image {image} and are sized like those of AL2023 images": (
            template and not group.node_group.own_image and image and not image.startswith("AL2023")
        ),
        "its user data is known only after deployment: its settings have no effect": not group.user_data.read,
        _MADE_UP_ZONES: not group.zones_known,
        **_of_any(group.user_data.kubelet, group.shapes),
    }


def _of_karpenter_pool(pool: KarpenterPool) -> Mapping[str, object]:
    """Returns what may differ for a NodePool, and whether it does."""
    missing = unique(shape.type_name for shape in pool.shapes if not shape.instance)
    node_class = pool.node_pool.node_class
    return {
        f"the catalog does not know {', '.join(missing)}: the simulated Karpenter starts none of those": missing,
        "it may choose instance types that the catalog does not know: the simulated Karpenter starts none of those": (
            not all(shape.type_name for shape in pool.shapes)
        ),
        "its EC2NodeClass is not in the graph: disk and settings are the defaults of Karpenter": node_class is None,
        _OWN_IMAGE: node_class and node_class.own_image,
        "settings in the user data of its EC2NodeClass have no effect": node_class and node_class.has_user_data,
        _MADE_UP_ZONES: not pool.zones_known,
        **_of_any(pool.kubelet, pool.shapes),
    }


def _of_any(kubelet: Mapping[str, Any], shapes: tuple[NodeShape, ...]) -> Mapping[str, object]:
    ignored = [key for key in _IGNORED_SETTINGS if key in kubelet]
    hidden = {key for shape in shapes for key, values in shape.labels.items() if values is None}
    lacking = sorted(key for key in hidden if not key.startswith(_FILLED_LABELS))
    return {
        f"its kubelet settings {', '.join(ignored)} change what pods can use, but have no effect here": ignored,
        f"the values of its labels {', '.join(lacking)} are not known: its simulated nodes lack them": lacking,
    }
