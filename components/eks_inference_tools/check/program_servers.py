"""What stays unjudged of a program without a stack object: components of ours judge themselves, nobody judges other servers."""

from collections.abc import Iterator

from eks_inference.rules import NotJudged
from eks_inference_tools.reading.platforms import not_judged
from stackgraph.graph.document import Graph, Resource
from stackgraph.graph.structure import Structure

_BY_NO_RULE = NotJudged(
    path=(),
    what=("memory", "architecture", "disk"),
    of="the program's servers",
    why="the program has no stack object, so only rules about resources were applied",
    fix="components refuse what cannot run; judge servers of your own by hand",
)
_GROUPS_WITHOUT_PODS = (
    "admissionregistration.k8s.io",
    "networking.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "storage.k8s.io",
)
_CORE_KINDS_WITH_PODS = ("List", "Pod", "PodList", "PodTemplate", "ReplicationController")


def left_open(graph: Graph) -> Iterator[NotJudged]:
    """Yields what components of a program could not judge, and that nothing judges servers outside them."""
    platforms = tuple(not_judged(graph))
    told = {one.summary for one in platforms}
    yield from platforms
    yield from dict.fromkeys(one for text in graph.warnings if text not in told and (one := NotJudged.read(text)))
    structure = Structure(graph)
    ours = [one.urn for one in graph.resources if one.package == "eks-inference" and not one.remote]
    judged = {*ours, *(resource.urn for urn in ours for resource in structure.inside(urn))}
    if not ours or any(_may_run_servers(resource) and resource.urn not in judged for resource in graph.resources):
        yield _BY_NO_RULE


def _may_run_servers(resource: Resource) -> bool:
    """Whether a resource may be a server, or make one. Nobody knows what a kind of somebody else's does."""
    if resource.package != "kubernetes":
        return resource.remote and resource.package == "eks-inference"
    _, versioned_group, kind = resource.type.split(":")
    group = versioned_group.partition("/")[0]
    return kind in _CORE_KINDS_WITH_PODS if group == "core" else group not in _GROUPS_WITHOUT_PODS
