"""Turns a recorded graph into the steps of `pulumi up` and of `pulumi destroy`. Pure.

Creation: a resource waits for its dependencies, its parent and its provider. Pulumi runs four operations at once for each CPU of
its machine unless told otherwise (pulumi/pulumi v3.259, pkg/cmd/pulumi/operations/up.go, ``defaultParallel``), so many
that it is left out here: eight at once lengthen no shipped stack by more than three percent.
Deletion: the engine deletes in waves, each of which is over before the next begins. The last has what stands on nothing, the one
before what stands on that alone, and so on (pulumi/pulumi v3.259, pkg/resource/deploy: ``ScheduleDeletes`` of step_generator.go,
``performPostSteps`` of deployment_executor.go). So a resource without dependents is deleted late if it stands on little.
"""

from collections.abc import Iterator, Mapping

from eks_inference.catalog.times import INSTANT, Action, Typical, resource_time
from eks_inference_tools.reading.object_kinds import group_kind, title_of
from eks_inference_tools.reading.readiness import SKIP_AWAIT, WAIT_FOR, is_awaited
from eks_inference_tools.reading.releases import chart_of
from eks_inference_tools.timeline.pod_phases import PodStart, phases
from eks_inference_tools.timeline.schedule import Step
from stackgraph.graph.describe import is_kubernetes_object, short_type
from stackgraph.graph.document import CHART_TYPE, STACK_TYPE, Graph, Resource, is_component, is_opaque, is_read
from stackgraph.graph.structure import in_order, needs
from stackgraph.graph.values import at, grouped, text

_POD_OWNERS = (
    "CronJob",
    "DaemonSet",
    "Deployment",
    "Job",
    "LeaderWorkerSet",
    "Pod",
    "RayCluster",
    "RayJob",
    "RayService",
    "ReplicaSet",
    "StatefulSet",
)
_PLAIN = ("kubernetes", "")
_OF_KUBERNETES = ".k8s.io"
"""How the names of Kubernetes' own groups end. Objects of others may have to wait for their controllers."""


def creation(graph: Graph, starts: Mapping[str, PodStart]) -> tuple[Step, ...]:
    """Returns the steps of `pulumi up` of a new stack, and of the pods that it does not wait for."""
    chains = {urn: tuple(_chain(graph.by_urn[urn], start)) for urn, start in starts.items()}
    ready = {urn: chain[-1].id for urn, chain in chains.items() if chain and chain[-1].in_update}
    found = []
    for resource in graph.resources:
        after = tuple(sorted(ready.get(urn, urn) for urn in needs(resource)))
        time = resource_time("create", *_PLAIN) if resource.urn in chains else create_time(resource)
        found.append(Step(resource.urn, resource.urn, title(resource), time, after))
        found += chains.get(resource.urn, ())
    return tuple(found)


def _chain(resource: Resource, start: PodStart) -> Iterator[Step]:
    before, in_update = resource.urn, is_waited_for(resource)
    for phase in phases(start):
        id_ = f"{resource.urn}#{phase.name}"
        yield Step(id_, resource.urn, f"{text(resource.name)}: {phase.title}", phase.time, (before,), in_update, phase.title)
        before = id_


def is_waited_for(resource: Resource) -> bool:
    """Returns whether the engine waits for the pods of an object."""
    group, kind = group_kind(resource)
    version = f"{'' if group == 'core' else f'{group}/'}v1"
    return is_awaited({"apiVersion": version, "kind": kind, "metadata": resource.inputs.get("metadata") or {}})


def create_time(resource: Resource) -> Typical | None:
    """Returns how long the engine takes to create a resource, without pods whose phases count one by one."""
    if is_component(resource) or resource.is_provider or is_read(resource) or resource.type == STACK_TYPE:
        return INSTANT
    if is_kubernetes_object(resource):
        annotations = at(resource.inputs, "metadata", "annotations")
        owns_pods = group_kind(resource)[1] in _POD_OWNERS
        if text(at(annotations, SKIP_AWAIT)) == "true" or (owns_pods and not is_waited_for(resource)):
            return resource_time("create", *_PLAIN)
        if _waits_for_address(resource):
            return None
        if owns_pods or text(at(annotations, WAIT_FOR)):
            return _own_time("create", resource)
    if is_opaque(resource):
        # The rows of charts are for those whose pods are awaited.
        return None if resource.inputs.get("skipAwait") is True else _own_time("create", resource)
    return resource_time("create", resource.type, what(resource))


def _waits_for_address(resource: Resource) -> bool:
    """Returns whether Pulumi waits for the address of a load balancer (pulumi-kubernetes 4, provider/pkg/await)."""
    kind = group_kind(resource)[1]
    return kind == "Ingress" or (kind == "Service" and text(at(resource.inputs, "spec", "type")) == "LoadBalancer")


def _own_time(action: Action, resource: Resource) -> Typical | None:
    """Returns the time of the row for its kind. That of the package is for what nobody waits for."""
    found = resource_time(action, resource.type, what(resource))
    return None if found is resource_time(action, *_PLAIN) else found


def what(resource: Resource) -> str:
    """Returns what tells resources of one type apart: the add-on, the chart, the kind of endpoint."""
    given = resource.inputs
    if resource.type == CHART_TYPE:
        return chart_of(resource).name
    return text(given.get("addonName") or given.get("vpcEndpointType") or "")


def title(resource: Resource) -> str:
    """``NodeGroup core-nodes`` or ``Deployment vllm/server``."""
    if is_kubernetes_object(resource):
        return title_of(resource)
    return f"{short_type(resource.type).rpartition('.')[2]} {text(resource.name)}"


# -- deletion -------------------------------------------------------------------------------------------------------------------


def deletion(graph: Graph) -> tuple[Step, ...]:
    """Returns the steps of `pulumi destroy`: waves, each behind a step of its own that takes no time."""
    return tuple(_deletion(graph))


def _deletion(graph: Graph) -> Iterator[Step]:
    for number, wave in enumerate(waves(graph)):
        gate = f"wave {number}"
        yield Step(gate, "", gate, INSTANT, (f"wave {number - 1} done",) if number else ())
        for resource in wave:
            yield Step(resource.urn, resource.urn, title(resource), _delete_time(graph, resource), (gate,))
        yield Step(f"{gate} done", "", gate, INSTANT, tuple(resource.urn for resource in wave))


def waves(graph: Graph) -> Iterator[tuple[Resource, ...]]:
    """Yields what the engine deletes at once, in its order. What the program only looks up is never deleted."""
    height: dict[str, int] = {}
    for urn in in_order(graph):
        resource = graph.by_urn[urn]
        below = (height[need] + _levels_behind(graph.by_urn[need]) for need in needs(resource) if need in height)
        # Of a remote component, a resource inside takes the time.
        height[urn] = max(below, default=-1) + (2 if resource.remote else 1)
    by_height = grouped((height[resource.urn], resource) for resource in graph.resources if not is_read(resource))
    for wave in sorted(by_height, reverse=True):
        yield tuple(by_height[wave])


def _levels_behind(resource: Resource) -> int:
    """Returns how many levels of other resources stand on the one that takes the time inside a remote component.

    In an EKS cluster a Kubernetes provider; or access entries with their policies (pulumi-eks v4.3.0,
    nodejs/eks/cluster/cluster.ts and authenticationMode.ts).
    """
    if resource.type != "eks:index:Cluster":
        return 0
    return 2 if resource.inputs.get("accessEntries") else 1


def _delete_time(graph: Graph, resource: Resource) -> Typical | None:
    if is_component(resource) or resource.is_provider or resource.type == STACK_TYPE:
        return INSTANT
    if resource.options.get("retainOnDelete") or text(resource.options.get("deletedWith")) in graph.by_urn:
        return INSTANT
    if is_kubernetes_object(resource) or resource.type == CHART_TYPE:
        group, kind = group_kind(resource)
        if kind in _POD_OWNERS or resource.type == CHART_TYPE or ("." in group and not group.endswith(_OF_KUBERNETES)):
            return _own_time("delete", resource)
    return resource_time("delete", resource.type, what(resource))
