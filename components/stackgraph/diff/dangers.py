"""Finds the changes that a reviewer must not miss: deletions, replacements, new exposure, lost protection, and a domain's own."""

import ipaddress
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from stackgraph.diff import replacements
from stackgraph.diff.comparison_domain import NO_DOMAIN, ComparedDomain, Danger, Effect, Weight
from stackgraph.diff.graphs import Kind, ResourceChange, StackDiff
from stackgraph.graph.describe import identity, is_kubernetes_object, short_type
from stackgraph.graph.document import Graph, Resource
from stackgraph.graph.values import at, grouped, is_token, items, text, texts
from stackgraph.graph.wording import counted, first_of

# Prefix lengths up to which a network counts as the whole Internet: as large as one carrier's.
_WIDE_V4, _WIDE_V6 = 8, 32

_PROTECTIVE_OPTIONS = {"protect": "its protection from deletion", "retainOnDelete": "its retention on deletion"}
_PROTECTIVE_INPUTS = (
    *("deletionProtection", "enableDeletionProtection", "disableApiTermination"),
    *("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets"),
)


def dangers(diff: StackDiff, domain: ComparedDomain = NO_DOMAIN) -> tuple[Danger, ...]:
    """The dangers of a stack's changes, worst first. A new stack has none."""
    if diff.base is None:
        return ()
    if diff.head is None:
        gone = len(diff.of_kind("delete"))
        what = f"the stack file was deleted: {counted(gone, 'resource')} would no longer be managed"
        return (Danger("stack-deleted", what, weight=Weight.DELETED),) if gone else ()
    found = [*domain.dangers(diff), *_emptied(diff)]
    found += [
        *_lost(diff, "replace", Weight.REPLACED, found),
        *_lost(diff, "delete", Weight.DELETED, found),
        *_shortened(diff),
        *_unsure(diff, found),
        *_refused(diff),
        *_taken(diff),
        *_unprotected(diff),
        *newly_reached(diff, _who_comes_in),
        *_shut(diff),
    ]
    return tuple(dict.fromkeys(sorted(found, key=lambda danger: danger.weight)))


def _lost(diff: StackDiff, kind: Kind, weight: Weight, found: Iterable[Danger]) -> Iterator[Danger]:
    """One danger for each data store, and one for all other resources that ``found`` does not name."""
    said = {danger.urn for danger in found if danger.weight == weight}
    others = []
    for change in diff.of_kind(kind):
        if change.urn in said:
            continue
        holds, kept = _held(change, diff.base), change.resource.options.get("retainOnDelete")
        if not holds:
            others += [] if _is_copied(change) else [change]
        elif kind == "replace":
            because = ", ".join(change.because[:3])
            ending = f"by an empty one; the old one is kept, with {holds}" if kept else f"and loses {holds}"
            old = change.before or change.resource  # the one that goes, where its name changes
            what = f"{short_type(old.type)} {identity(old)} is replaced {ending} ({because})"
            yield Danger("data-replaced", what, change.urn, weight, effects=() if kept else ("loss",))
        else:
            ending = f"leaves the stack but is kept, with {holds}" if kept else f"is deleted with {holds}"
            yield Danger("data-deleted", f"{_named(change)} {ending}", change.urn, weight, effects=() if kept else ("loss",))
    if others:
        word = "replaced" if kind == "replace" else "deleted"
        gone = {other.urn for other in others}
        others.sort(key=lambda one: not gone.isdisjoint(chain(*one.resource.property_dependencies.values())))  # causes first
        yield Danger(word, f"{_several(others)} {'is' if len(others) == 1 else 'are'} {word}", weight=weight)


def taken_along(diff: StackDiff) -> Mapping[str, ResourceChange]:
    """Objects that stay in the program and go all the same, by URN: with their namespace or definition, which leaves it.

    `pulumi up` deletes last, and the API server deletes what is inside.
    """
    anew = {_in_cluster(change.resource, "") for change in diff.of_kind("create")}
    going = [one for one in diff.of_kind("delete") if not one.resource.options.get("retainOnDelete")]
    going = [resource_change for resource_change in going if _in_cluster(resource_change.resource, "") not in anew]
    inside = [(_carried_by(resource_change.resource), resource_change) for resource_change in going]
    return {
        resource.urn: change
        for carries, change in inside
        if carries
        for resource in (diff.head.resources if diff.head else ())
        if is_kubernetes_object(resource) and resource.provider == change.resource.provider and carries(resource)
    }


def _carried_by(resource: Resource) -> Callable[[Resource], bool] | None:
    """Tells what the API server deletes with a namespace, or with the definition of a kind."""
    spec, name = resource.inputs.get("spec"), at(resource.inputs, "metadata", "name")
    if resource.type == "kubernetes:core/v1:Namespace" and isinstance(name, str) and not is_token(name):
        return lambda resource: at(resource.inputs, "metadata", "namespace") == name
    if resource.type.endswith(":CustomResourceDefinition"):
        begins, ends = f"kubernetes:{text(at(spec, 'group'))}/", f":{text(at(spec, 'names', 'kind'))}"
        return lambda resource: resource.type.startswith(begins) and resource.type.endswith(ends)
    return None


def _emptied(diff: StackDiff) -> Iterator[Danger]:
    assert diff.head is not None
    for by, urns in grouped((by.urn, urn) for urn, by in taken_along(diff).items()).items():
        change, inside = diff.by_urn[by], [diff.by_urn[urn] for urn in urns]
        what = f"{_named(change)} is deleted with what stays in the program, {_several(inside)}: only `pulumi refresh` notices"
        loses: tuple[Effect, ...] = ("loss",) if any(replacements.held(one.resource.type) for one in inside) else ()
        yield Danger("deleted-with", what, change.urn, Weight.DELETED, effects=("outage", *loses))


_KEEP_CLAIMS = ("Chart", "Release", "StatefulSet")
"""Kinds whose claims of storage no program names."""


def _held(change: ResourceChange, base: Graph | None) -> str:
    """What is lost with a resource. A namespace that holds only objects of the program adds nothing."""
    resource = change.before or change.resource
    if resource.type == "kubernetes:core/v1:Namespace" and base:
        places = ((one, at(one.inputs, "metadata", "namespace") or one.inputs.get("namespace")) for one in base.resources)
        inside = [one.type.rpartition(":")[2] for one, place in places if place and text(place) == identity(resource)]
        if inside and not {*inside} & {*_KEEP_CLAIMS}:
            return ""
    return replacements.held(resource.type)


def _is_copied(change: ResourceChange) -> bool:
    """Whether a successor has another name, and those that read the old one change with it."""
    named = at(change.resource.inputs, "metadata", "name") is not None
    copies = change.kind == "replace" and change.resource.type in ("kubernetes:core/v1:ConfigMap", "kubernetes:core/v1:Secret")
    return copies and (not named or "metadata.name" in change.because)


def _shortened(diff: StackDiff) -> Iterator[Danger]:
    """Log groups that keep logs for fewer days than before; 0 is for ever (CloudWatch Logs, PutRetentionPolicy)."""
    for change in diff.of_kind("update"):
        if change.resource.type != "aws:cloudwatch/logGroup:LogGroup" or change.before is None:
            continue
        before, after = (side.inputs.get("retentionInDays") or 0 for side in (change.before, change.resource))
        if isinstance(after, int | float) and isinstance(before, int | float) and 0 < after < (before or after + 1):
            what = f"{_named(change)} keeps logs for {counted(int(after), 'day')}: older ones are deleted"
            yield Danger("data-deleted", what, change.urn, Weight.DELETED, effects=("loss",))


def _unsure(diff: StackDiff, found: Iterable[Danger]) -> Iterator[Danger]:
    """One danger for each data store that may be replaced, and one for all others with one reason for the doubt."""
    others: dict[str, list[ResourceChange]] = {}
    refused = {danger.urn for danger in found if danger.kind == "refused"}
    for change in diff.unsure:
        if change.urn in refused:
            continue
        if holds := replacements.held(change.resource.type):
            what = f"{_named(change)} may be replaced, and lose {holds} ({', '.join(change.unsure[:3])}: {change.doubt})"
            yield Danger("data-may-be-replaced", what, change.urn, Weight.UNSURE)
        else:
            others.setdefault(change.doubt, []).append(change)
    for doubt, changes in others.items():
        yield Danger("may-be-replaced", f"{_several(changes)} may be replaced: {doubt}", weight=Weight.UNSURE)


def _several(changes: Sequence[ResourceChange]) -> str:
    return first_of([*map(_named, changes)], 4)


def _named(change: ResourceChange) -> str:
    return f"{short_type(change.resource.type)} {identity(change.resource)}"


def _refused(diff: StackDiff) -> Iterator[Danger]:
    for change in diff.changes:
        if change.refused:
            what = f"{_named(change)}: the service refuses to change {', '.join(change.refused)}"
            yield Danger("refused", what, change.urn, Weight.REFUSED)


def _taken(diff: StackDiff) -> Iterator[Danger]:
    """Kubernetes objects that are created under a name which an object has that is deleted only later.

    The provider refuses that since it creates on the client's side (pulumi/pulumi-kubernetes#4278); before, it took the object
    over and then deleted it (#2948).
    """
    gone = {key for change in diff.of_kind("delete") if (key := _in_cluster(change.resource, change.resource.provider))}
    found = []
    for change in diff.of_kind("create"):
        by = diff.by_urn.get(change.resource.provider)
        provider = by.before.urn if by and by.before and by.kind != "replace" else ""
        if _in_cluster(change.resource, provider) in gone:
            found.append(change)
    if found:
        verb = "is" if len(found) == 1 else "are"
        how = "`pulumi up` finds the names taken and fails, as it deletes last; aliases keep the objects"
        yield Danger("refused", f"{_several(found)} {verb} both created and deleted: {how}", weight=Weight.REFUSED)


def _in_cluster(resource: Resource, provider: str) -> tuple[str, str, str] | None:
    """What only one object can have, of an object whose name the program chooses."""
    name = at(resource.inputs, "metadata", "name")
    given = is_kubernetes_object(resource) and isinstance(name, str) and not is_token(name)
    return (provider, resource.type, identity(resource)) if given else None


def _unprotected(diff: StackDiff) -> Iterator[Danger]:
    for change in diff.changes:
        before, after = change.before, change.after
        if before is None or after is None:
            continue
        lost = [words for key, words in _PROTECTIVE_OPTIONS.items() if before.options.get(key) and not after.options.get(key)]
        lost += [key for key in _PROTECTIVE_INPUTS if before.inputs.get(key) is True and after.inputs.get(key) is not True]
        for what in lost:
            yield Danger("protection-removed", f"{_named(change)} loses {what}", change.urn, Weight.UNPROTECTED)


def newly_reached(diff: StackDiff, reach: Callable[[Resource], Iterator[str]]) -> Iterator[Danger]:
    """Resources that become reachable from further networks. ``reach`` returns the networks that reach a resource."""
    for change in diff.changes:
        if change.after is None:
            continue
        before = set(reach(change.before)) if change.before else set()
        wider = sorted(set(reach(change.after)) - before)
        if wider:
            yield Danger("opened", f"{_named(change)} is open to {', '.join(wider)}", change.urn, Weight.OPENED)


def _who_comes_in(resource: Resource) -> Iterator[str]:
    """Wide networks that a security group, its rule or a NetworkPolicy lets in."""
    inputs, kind = resource.inputs, resource.type.rpartition(":")[2]
    rules: Iterable[Any] = ()
    if kind in ("SecurityGroup", "DefaultSecurityGroup"):
        rules = items(at(inputs, "ingress"))
    elif kind == "SecurityGroupIngressRule" or (kind == "SecurityGroupRule" and inputs.get("type") == "ingress"):
        rules = [inputs]
    elif kind == "NetworkPolicy":
        rules = [at(peer, "ipBlock") for rule in items(at(inputs, "spec", "ingress")) for peer in items(at(rule, "from"))]
    for rule in rules:
        for key in ("cidrBlocks", "ipv6CidrBlocks", "cidrIpv4", "cidrIpv6", "cidr"):
            yield from filter(is_wide, texts(at(rule, key)))


def _shut(diff: StackDiff) -> Iterator[Danger]:
    """NetworkPolicies that let in pods of all namespaces before, and of some now, and the first one of a namespace."""
    policies = [resource for resource in diff.base.resources if resource.type.endswith(":NetworkPolicy")] if diff.base else []
    had = {at(policy.inputs, "metadata", "namespace") for policy in policies if _is_for_ingress(policy.inputs)}
    fresh = {identity(one.resource) for one in diff.of_kind("create") if one.resource.type.endswith(":Namespace")}
    for change in diff.of_kind("create"):
        inputs, place = change.resource.inputs, at(change.resource.inputs, "metadata", "namespace")
        first = change.resource.type.endswith(":NetworkPolicy") and place not in had and text(place) not in fresh
        if first and _is_for_ingress(inputs) and not _is_for_all(inputs):
            whom = "whom it names" if items(at(inputs, "spec", "ingress")) else "nobody"
            yield Danger(
                "shut", f"{_named(change)} is the first there: its pods, open to all until now, let in {whom}", change.urn
            )
    for change in diff.of_kind("update"):
        if change.resource.type.endswith(":NetworkPolicy") and change.before and change.after:
            before, after = (_is_for_all(side.inputs) for side in (change.before, change.after))
            if before and not after:
                yield Danger("shut", f"{_named(change)} no longer lets in pods of every namespace", change.urn)


def _is_for_ingress(policy: Any) -> bool:
    return "Ingress" in (texts(at(policy, "spec", "policyTypes")) or ("Ingress",))


def _is_for_all(policy: Any) -> bool:
    peers = [items(at(rule, "from")) or [{"namespaceSelector": {}}] for rule in items(at(policy, "spec", "ingress"))]
    return any(at(peer, "namespaceSelector") == {} for found in peers for peer in found)


def is_wide(cidr: str) -> bool:
    """Whether a network is so wide that it amounts to the whole Internet."""
    try:
        network = ipaddress.ip_network(cidr, strict=False)
    except ValueError:
        return False
    if network.is_private and network.prefixlen >= 7:  # fc00::/7 is the widest; 0.0.0.0/0 is private, too
        return False
    return network.prefixlen <= (_WIDE_V4 if network.version == 4 else _WIDE_V6)
