"""Which key of the stack file a recorded resource comes from: that of the part of the platform which made it. Pure."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from eks_inference.rules import Path
from eks_inference_tools.reading.platforms import PLATFORM
from stackgraph.graph.document import Graph, Resource

if TYPE_CHECKING:
    from eks_inference.stack.spec import StackSpec

_TOKEN = "eks-inference:index:"

_PARTS: dict[str, Path] = {
    "Vpc": ("network",),
    "EksCluster": ("cluster",),
    "ClusterAddons": ("addons",),
    "Karpenter": ("karpenter",),
    "KubeRayOperator": ("kuberay",),
    "CloudWatchObservability": ("observability", "cloudwatch"),
    "FluentBit": ("observability", "fluent_bit"),
    "PrometheusStack": ("observability", "prometheus"),
    "NeuronMonitor": ("observability", "neuron_monitor"),
    "DcgmExporter": ("observability", "dcgm_exporter"),
    "NeuronPlugin": ("accelerators", "neuron"),
    "NeuronScheduler": ("accelerators", "neuron", "scheduler"),
    "NvidiaDevicePlugin": ("accelerators", "nvidia"),
    "Keda": ("scaling", "keda"),
    "PrometheusAdapter": ("scaling", "prometheus_adapter"),
    "OpenWebUI": ("clients", "open_webui"),
    "SmokeTest": ("clients", "smoke_test"),
    "TritonClient": ("clients", "triton"),
    "LoadTest": ("load_test",),
}
"""Components of which a platform has one, with the key that asks for them. Servers and pools have keys of their own."""


def stack_key(urn: str, graph: Graph, spec: "StackSpec") -> Path:
    """Returns the key of the part that made a resource; empty for one that no key asks for, or that a program made itself."""
    line = list(_line(graph.by_urn.get(urn), graph))
    platform = next((number for number, one in enumerate(line) if one.type == PLATFORM), 0)
    if not platform or line[platform].name != spec.name:
        return ()
    part = line[platform - 1]
    if (kind := part.type.removeprefix(_TOKEN)) in _PARTS:
        return _PARTS[kind]
    pool = part.name.removeprefix(f"{spec.name}-")
    if kind in ("ManagedPool", "KarpenterPool") and pool in spec.pools:
        return ("pools", pool)
    # A server, or what belongs to it: its store, its image, its cache.
    servers = [server for server in spec.servers if part.name == server or part.name.startswith(f"{server}-")]
    return ("servers", max(servers, key=len)) if servers else ()


def _line(resource: Resource | None, graph: Graph) -> Iterator[Resource]:
    """A resource and its ancestors, the nearest first."""
    while resource is not None:
        yield resource
        resource = graph.by_urn.get(resource.parent)
