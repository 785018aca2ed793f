"""Nodes and devices that are paid for and that no pod uses, even when autoscalers have started the most pods. Pure."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from eks_inference.accelerators.neuron.plan import CORE_RESOURCE, DEVICE_RESOURCE
from eks_inference.accelerators.nvidia.plan import GPU_RESOURCE
from eks_inference_tools.placing.placed import PlacedNode, Placement
from stackgraph.graph.values import at, items

_DEVICES = (DEVICE_RESOURCE, CORE_RESOURCE, GPU_RESOURCE)


@dataclass(frozen=True)
class Unused:
    """Of one instance type in one pool: ``nodes`` without a pod that uses devices, and ``devices`` left on nodes with one."""

    urn: str
    type: str
    nodes: int
    of_nodes: int
    devices: int
    of_devices: int


def unused(placements: Sequence[Placement]) -> Iterator[Unused]:
    """Yields what no pod uses at any of the scales. Says nothing where no pod of the program uses a device."""
    left = [_left(placement) for placement in placements]
    if not any(used for by_type in left for _, _, used in by_type.values()):
        return
    for key in left[0]:
        if all(key in by_type for by_type in left):
            nodes, devices, _ = (min(amounts) for amounts in zip(*(by_type[key] for by_type in left), strict=True))
            if nodes or devices:
                standing = [node for node in placements[0].nodes if (node.urn, node.instance.name) == key]
                each = standing[0].instance.devices
                yield Unused(*key, nodes, len(standing), devices, (len(standing) - nodes) * each)


def _left(placement: Placement) -> Mapping[tuple[str, str], tuple[int, int, int]]:
    """By pool and type: nodes that nothing uses, devices left on the others, and devices in use."""
    found: dict[tuple[str, str], tuple[int, int, int]] = defaultdict(lambda: (0, 0, 0))
    for node in placement.nodes:
        if has := node.instance.devices:
            used = _used(node)
            nodes, devices, all_used = found[node.urn, node.instance.name]
            found[node.urn, node.instance.name] = (nodes + (not used), devices + (has - used if used else 0), all_used + used)
    return found


def _used(node: PlacedNode) -> int:
    """The devices of a node that pods ask for, a part of one counted whole. Claims may be for all of them."""
    if any(items(at(pod.template.spec.document, "resourceClaims")) for pod in node.pods):
        return node.instance.devices
    share = max(
        (
            sum((pod.template.spec.requests.get(name, Decimal(0)) for pod in node.pods), Decimal(0)) / number
            for name, number in node.devices.items()
            if name in _DEVICES
        ),
        default=Decimal(0),
    )
    return -int(-share * node.instance.devices // 1)
