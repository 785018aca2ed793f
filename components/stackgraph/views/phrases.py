"""A graph's facts in words: what the tree and the page say in the same way."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eks_inference_tools.reading.capacity import NodeCapacity
from eks_inference_tools.reading.overview import Opaque
from eks_inference_tools.reading.workloads import Workload
from stackgraph.graph.composition import Composition, is_component, is_opaque, is_read
from stackgraph.graph.document import Resource
from stackgraph.graph.values import joined, text, unique


def counted(number: int, one: str, many: str = "") -> str:
    """``1 resource``, ``2 resources``; ``many`` is the plural where it is not just an s more."""
    return f"{number} {one if number == 1 else many or one + 's'}"


# -- headline --------------------------------------------------------------------------------------------------------------------

_FAMILIES = {
    "aws": ("AWS", "AWS"),
    "kubernetes": ("Kubernetes", "Kubernetes"),
    "other": ("other", "other"),
    "provider": ("provider", "providers"),
    "component": ("component", "components"),
    "opaque": ("chart or remote component (not seen inside)", "charts and remote components (not seen inside)"),
}


@dataclass(frozen=True)
class Counts:
    """How many resources a deployment creates: all, and by family with the words for that many; ``asides`` tell of all others."""

    made: int
    families: Mapping[str, tuple[int, str]]
    asides: tuple[str, ...]


def counts(composition: Composition) -> Counts:
    resources = composition.graph.resources
    shown = [composition.graph.by_urn[urn] for urn in composition.parent]
    made = [resource for resource in shown if not is_read(resource)]
    kinds = Counter(family(resource) for resource in made)
    asides = []
    if len(shown) > len(made):
        asides.append(f"reads {counted(len(shown) - len(made), 'existing resource')}")
    if hidden := sum(resource.is_default_provider for resource in resources):
        asides.append(f"{counted(hidden, 'default provider')} not listed")
    families = {name: (kinds[name], words[kinds[name] != 1]) for name, words in _FAMILIES.items() if kinds[name]}
    return Counts(len(made), families, tuple(asides))


def family(resource: Resource) -> str:
    """``aws``, ``kubernetes``, ``other``, ``provider``, ``component``, or ``opaque``."""
    if is_opaque(resource):
        return "opaque"
    if is_component(resource):
        return "component"
    if resource.is_provider:
        return "provider"
    return resource.package if resource.package in ("aws", "kubernetes") else "other"


# -- facts -----------------------------------------------------------------------------------------------------------------------


def nodes(capacity: NodeCapacity) -> str:
    """How many nodes of which instance types: ``2 (1–4) × inf2.8xlarge``, ``as needed × any inf2``."""
    families = f"any {'/'.join(few(capacity.families))}" if capacity.families else ""
    types = " or ".join(unique((*few(capacity.instance_types), families))) or "any instance type"
    return f"{capacity.size or ('as needed' if capacity.manager == 'Karpenter' else '?')} × {types}"


def node_kind(capacity: NodeCapacity) -> str:
    """``node group, on-demand``."""
    return joined(capacity.manager, " or ".join(capacity.capacity_types), by=", ")


def node_traits(capacity: NodeCapacity) -> tuple[str, ...]:
    """What the nodes are apart from their types: limits, image, disk, interfaces, requirements."""
    limits = [f"{value} {key}".strip() for key, value in capacity.limits.items()]
    unlimited = "no limit" if capacity.manager == "Karpenter" and not limits else ""
    return unique(
        (
            f"at most {' and '.join(limits)}" if limits else unlimited,
            capacity.image,
            capacity.root_disk,
            capacity.interfaces,
            *capacity.requirements,
        )
    )


def asks(workload: Workload) -> tuple[str, ...]:
    """What one pod asks for, accelerators first: ``neuron 1``, ``cpu 30``."""
    accelerators = [f"{resource.rpartition('/')[2]} {amount}" for resource, amount in workload.accelerators.items()]
    others = [f"{kind} {amount}" for kind, amount in (("cpu", workload.cpu), ("memory", workload.memory)) if amount]
    return (*accelerators, *others)


def selected_nodes(workload: Workload) -> tuple[str, ...]:
    """The labels of the nodes that a pod insists on."""
    return tuple(label(key, "/".join(few(value.split(", ")))) for key, value in workload.node_selector.items())


def not_seen(found: Sequence[Opaque]) -> str:
    """``2 charts and 1 remote component: what they make is known when they are deployed``."""
    kinds = Counter(item.kind for item in found)
    numbers = [counted(number, kind) for kind, number in sorted(kinds.items())]
    return f"{' and '.join(numbers)}: what they make is known when they are deployed"


def label(key: str, value: str) -> str:
    """A label without the domain that names its owner: ``instance-type=inf2.8xlarge``."""
    return "=".join(unique((key.rpartition("/")[2], value)))


def few(names: Sequence[str], limit: int = 3) -> Sequence[str]:
    """The first names and how many more there are; one more name is not worth such words."""
    return names if len(names) <= limit + 1 else (*names[:limit], f"{len(names) - limit} more")


def by_path(value: Any, path: str = "") -> Iterator[tuple[str, Sequence[str]]]:
    """The values of stack outputs by path; lists of texts stay together."""
    if isinstance(value, Mapping) and value:
        for key in sorted(value):
            yield from by_path(value[key], f"{path}.{text(key)}" if path else text(key))
    elif isinstance(value, list) and any(isinstance(item, dict | list) for item in value):
        for number, item in enumerate(value):
            yield from by_path(item, f"{path}[{number}]")
    elif path:
        yield path, [text(item) for item in value] if isinstance(value, list) and value else [text(value)]
