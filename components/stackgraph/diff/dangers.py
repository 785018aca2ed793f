"""What a reviewer must not miss: what is deleted, replaced, opened, unprotected, or made smaller."""

import ipaddress
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from eks_inference_tools.reading.facts import Facts, NodeCapacity, facts_of
from eks_inference_tools.reading.node_groups import LAUNCH_TEMPLATE_TYPE, NODE_GROUP_TYPE
from eks_inference_tools.reading.node_pools import NODE_CLASS_TYPE, NODE_POOL_TYPE
from stackgraph.diff import replacements
from stackgraph.diff.graphs import ResourceChange, StackDiff
from stackgraph.graph.describe import identity, short_type
from stackgraph.graph.values import at, is_token, items, table, text, texts

CLUSTER_TYPES = ("eks:index:Cluster", "aws:eks/cluster:Cluster")
_NODE_TYPES = (NODE_GROUP_TYPE, NODE_POOL_TYPE, NODE_CLASS_TYPE)
# IPv4 networks as large as a carrier's, or larger; IPv6 alike.
_WIDE_V4, _WIDE_V6 = 8, 32


@dataclass(frozen=True)
class Danger:
    """One thing to look at. ``kind`` is a word for programs, ``what`` a line for people, ``urn`` the resource it is about."""

    kind: str
    what: str
    urn: str = ""


def dangers(diff: StackDiff) -> tuple[Danger, ...]:
    """What is dangerous about the changes of a stack, worst first. A stack that is new as a whole has none."""
    if diff.base is None:
        return ()
    found = [
        *_replaced(diff),
        *_deleted(diff),
        *_refused(diff),
        *_versions(diff),
        *_unprotected(diff),
        *_opened(diff),
        *_rolled(diff),
    ]
    if diff.head is not None:
        found += _of_facts(facts_of(diff.base), facts_of(diff.head))
    return tuple(dict.fromkeys(found))


# -- resources -------------------------------------------------------------------------------------------------------------------


def _replaced(diff: StackDiff) -> Iterator[Danger]:
    for change in diff.of_kind("replace"):
        resource = change.resource
        because = ", ".join(change.because[:3])
        if resource.type in CLUSTER_TYPES:
            yield Danger(
                "cluster-replaced", f"cluster {resource.name} is replaced, with all that runs in it ({because})", change.urn
            )
        elif resource.type in _NODE_TYPES:
            yield Danger("nodes-replaced", f"nodes of {resource.name} are replaced ({because})", change.urn)
        elif replacements.holds_data(resource.type):
            yield Danger("data-replaced", f"{_named(change)} is replaced, what it holds is lost ({because})", change.urn)
    others = [change for change in diff.of_kind("replace") if not _is_said(change)]
    if others:
        yield Danger("replaced", f"{_several(others)} replaced")


def _is_said(change: ResourceChange) -> bool:
    type_ = change.resource.type
    return type_ in CLUSTER_TYPES or type_ in _NODE_TYPES or replacements.holds_data(type_)


def _deleted(diff: StackDiff) -> Iterator[Danger]:
    gone = diff.of_kind("delete")
    if diff.head is None and gone:
        yield Danger("stack-deleted", f"the stack file is gone: {len(gone)} resources are no longer described by anything")
        return
    for change in gone:
        resource = change.resource
        kept = resource.options.get("retainOnDelete")
        if resource.type in CLUSTER_TYPES:
            yield Danger("cluster-deleted", f"cluster {resource.name} is deleted", change.urn)
        elif resource.type in _NODE_TYPES:
            yield Danger("nodes-deleted", f"nodes of {resource.name} are deleted", change.urn)
        elif replacements.holds_data(resource.type):
            ending = "leaves the stack but is kept" if kept else "is deleted, with what it holds"
            yield Danger("data-deleted", f"{_named(change)} {ending}", change.urn)
    others = [change for change in gone if not _is_said(change)]
    if others:
        yield Danger("deleted", f"{_several(others)} deleted")


def _several(changes: list[ResourceChange]) -> str:
    """``Deployment a/b, Service a/c and 4 more are``."""
    names = [_named(change) for change in changes]
    shown = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
    return f"{shown} {'is' if len(names) == 1 else 'are'}"


def _named(change: ResourceChange) -> str:
    resource = change.resource
    return f"{short_type(resource.type)} {identity(resource)}"


def _refused(diff: StackDiff) -> Iterator[Danger]:
    for change in diff.changes:
        if change.refused:
            yield Danger("refused", f"{_named(change)}: the service refuses another {', '.join(change.refused)}", change.urn)


def _versions(diff: StackDiff) -> Iterator[Danger]:
    """Control planes go up one minor version at a time, and never down (EKS API, UpdateClusterVersion)."""
    for change in diff.changes:
        if change.resource.type not in CLUSTER_TYPES or change.before is None or change.after is None:
            continue
        old, new = (text(side.inputs.get("version")).split(".") for side in (change.before, change.after))
        if len(old) == len(new) == 2 and all(part.isdecimal() for part in (*old, *new)):
            step = int(new[1]) - int(old[1])
            if old[0] != new[0] or step < 0 or step > 1:
                what = f"cluster {change.resource.name}: EKS refuses {'.'.join(new)} after {'.'.join(old)}"
                yield Danger("refused", what, change.urn)


def _unprotected(diff: StackDiff) -> Iterator[Danger]:
    for change in diff.changes:
        if change.before is None or change.after is None:
            continue
        for option, words in (("protect", "protection from deletion"), ("retainOnDelete", "retention on deletion")):
            if change.before.options.get(option) and not change.after.options.get(option):
                yield Danger("protection-removed", f"{_named(change)} loses its {words}", change.urn)
        for key in ("deletionProtection", "enableDeletionProtection", "disableApiTermination"):
            if change.before.inputs.get(key) is True and change.after.inputs.get(key) is not True:
                yield Danger("protection-removed", f"{_named(change)} loses its deletion protection", change.urn)
        for key in ("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets"):
            if change.before.inputs.get(key) is True and change.after.inputs.get(key) is not True:
                yield Danger("protection-removed", f"{_named(change)} no longer has {key}", change.urn)


def _rolled(diff: StackDiff) -> Iterator[Danger]:
    """Node groups whose nodes change one after the other: their template, release or version changes."""
    if diff.head is None:
        return
    templates = {c.urn for c in diff.changes if c.resource.type == LAUNCH_TEMPLATE_TYPE and c.kind == "update" and c.properties}
    for resource in diff.head.of_type(NODE_GROUP_TYPE):
        change = diff.by_urn[resource.urn]
        if change.before is None or change.kind == "replace":
            continue
        named = [c.name for c in change.properties if c.path[0] in ("version", "releaseVersion")]
        named += ["launch template"] * bool(templates & set(resource.property_dependencies.get("launchTemplate", ())))
        if named:
            yield Danger(
                "nodes-rolled", f"nodes of {resource.name} are exchanged one after the other ({', '.join(named)})", change.urn
            )


# -- reach -----------------------------------------------------------------------------------------------------------------------


def _opened(diff: StackDiff) -> Iterator[Danger]:
    """Addresses that can reach something now and could not before."""
    for change in diff.changes:
        if change.after is None:
            continue
        before = set(_reach(change.before.inputs, change.resource.type)) if change.before else set()
        wider = sorted(set(_reach(change.after.inputs, change.resource.type)) - before)
        if wider:
            yield Danger("opened", f"{_named(change)} is open to {', '.join(wider)}", change.urn)


def _reach(inputs: Mapping[str, Any], type_: str) -> Iterator[str]:
    """Wide networks that may come in."""
    if type_ in CLUSTER_TYPES:
        network = inputs if type_ == CLUSTER_TYPES[0] else at(inputs, "vpcConfig")
        public = at(network, "endpointPublicAccess")
        # What EKS does unless told otherwise: public, from everywhere.
        if public is None or public is True:
            yield from filter(is_wide, texts(at(network, "publicAccessCidrs")) or ("0.0.0.0/0",))
    elif type_.rpartition(":")[2] in ("SecurityGroup", "DefaultSecurityGroup"):
        for rule in items(at(inputs, "ingress")):
            yield from filter(is_wide, (*texts(at(rule, "cidrBlocks")), *texts(at(rule, "ipv6CidrBlocks"))))
    elif type_.endswith("SecurityGroupIngressRule"):
        yield from filter(is_wide, texts([inputs.get("cidrIpv4"), inputs.get("cidrIpv6")]))
    elif type_.endswith(":SecurityGroupRule") and inputs.get("type") == "ingress":
        yield from filter(is_wide, (*texts(inputs.get("cidrBlocks")), *texts(inputs.get("ipv6CidrBlocks"))))
    elif type_.endswith(":NetworkPolicy"):
        for rule in items(at(inputs, "spec", "ingress")):
            for peer in items(at(rule, "from")):
                yield from filter(is_wide, texts(at(peer, "ipBlock", "cidr")))


def is_wide(cidr: str) -> bool:
    """Whether a network is so wide that it may as well be everybody."""
    try:
        network = ipaddress.ip_network(cidr, strict=False)
    except ValueError:
        return False
    if network.is_private and network.prefixlen >= _WIDE_V4:
        return False
    return network.prefixlen <= (_WIDE_V4 if network.version == 4 else _WIDE_V6)


# -- what the stack is for -------------------------------------------------------------------------------------------------------


def _of_facts(before: Facts, after: Facts) -> Iterator[Danger]:
    old_endpoints = {(e.kind, e.namespace, e.name): e for e in before.endpoints}
    for endpoint in after.endpoints:
        old = old_endpoints.get((endpoint.kind, endpoint.namespace, endpoint.name))
        internal = "internal" in endpoint.type
        if endpoint.outside and not internal and (old is None or not old.outside or "internal" in old.type):
            name = "/".join(filter(None, (endpoint.namespace, endpoint.name)))
            yield Danger("opened", f"{endpoint.kind} {name} is reached from outside the cluster ({endpoint.type})", endpoint.urn)
    for old, new in _pairs({m.owner: m for m in before.models}, {m.owner: m for m in after.models}):
        if old.model != new.model:
            yield Danger("model-changed", f"{new.owner} serves {new.model} instead of {old.model}")
    for old, new in _pairs({c.urn: c for c in before.capacity}, {c.urn: c for c in after.capacity}):
        yield from _of_nodes(old, new)
    workloads = ({(w.urn, w.part): w for w in facts.workloads} for facts in (before, after))
    for old, new in _pairs(*workloads):
        gone, fresh = sorted(set(old.images) - set(new.images)), sorted(set(new.images) - set(old.images))
        if gone and fresh and new.accelerators:
            yield Danger("image-changed", f"{new.title}: image {', '.join(fresh)} instead of {', '.join(gone)}", new.urn)
        if old.pods is not None and new.pods is not None and new.pods < old.pods:
            yield Danger("capacity-down", f"{new.title}: {new.pods} pods instead of {old.pods}", new.urn)


def _of_nodes(old: NodeCapacity, new: NodeCapacity) -> Iterator[Danger]:
    kinds = ((*old.instance_types, *old.families), (*new.instance_types, *new.families))
    if kinds[0] != kinds[1]:
        was, now = (", ".join(kind) or "any" for kind in kinds)
        yield Danger("instance-type-changed", f"nodes of {new.name}: {now} instead of {was}", new.urn)
    # Another release of the same image is said with the nodes that are exchanged for it.
    if old.image.partition(" ")[0] != new.image.partition(" ")[0] and old.image and new.image and not is_token(new.image):
        yield Danger("image-changed", f"nodes of {new.name}: {new.image} instead of {old.image}", new.urn)
    if old.nodes is not None and new.nodes is not None and new.nodes < old.nodes:
        yield Danger("capacity-down", f"nodes of {new.name}: {new.nodes} instead of {old.nodes}", new.urn)
    for resource, limit in table(old.limits).items():
        now = table(new.limits).get(resource)
        if now is not None and _less(text(now), text(limit)):
            yield Danger("capacity-down", f"nodes of {new.name}: at most {now} {resource} instead of {limit}", new.urn)


def _less(one: str, other: str) -> bool:
    return one.isdecimal() and other.isdecimal() and int(one) < int(other)


def _pairs(before: Mapping[Any, Any], after: Mapping[Any, Any]) -> list[tuple[Any, Any]]:
    return [(before[key], after[key]) for key in after if key in before]
