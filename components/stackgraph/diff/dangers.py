"""What a reviewer must not miss: what is deleted, replaced, opened or unprotected; and what a domain finds."""

import ipaddress
from collections.abc import Callable, Iterable, Iterator

from stackgraph.diff import replacements
from stackgraph.diff.domain import NO_DOMAIN, ComparedDomain, Danger, Weight
from stackgraph.diff.graphs import Kind, ResourceChange, StackDiff
from stackgraph.graph.describe import identity, short_type
from stackgraph.graph.document import Resource
from stackgraph.graph.values import at, items, texts

# IPv4 networks as large as a carrier's, or larger; IPv6 alike.
_WIDE_V4, _WIDE_V6 = 8, 32


def dangers(diff: StackDiff, domain: ComparedDomain = NO_DOMAIN) -> tuple[Danger, ...]:
    """What is dangerous about the changes of a stack, worst first. A stack that is new as a whole has none."""
    if diff.base is None:
        return ()
    if diff.head is None:
        gone = len(diff.of_kind("delete"))
        what = f"the stack file is gone: {gone} resources are no longer described by anything"
        return (Danger("stack-deleted", what, weight=Weight.DELETED),) if gone else ()
    found = list(domain.dangers(diff))
    found += [
        *_lost(diff, "replace", Weight.REPLACED, found),
        *_lost(diff, "delete", Weight.DELETED, found),
        *_refused(diff),
        *_unprotected(diff),
        *newly_reached(diff, _who_comes_in),
    ]
    return tuple(dict.fromkeys(sorted(found, key=lambda danger: danger.weight)))


# -- resources -------------------------------------------------------------------------------------------------------------------


def _lost(diff: StackDiff, kind: Kind, weight: Weight, found: Iterable[Danger]) -> Iterator[Danger]:
    """Data stores one by one, and in one line all others that nothing was found about."""
    said = {danger.urn for danger in found if danger.weight == weight}
    others = []
    for change in diff.of_kind(kind):
        if change.urn in said:
            continue
        if not replacements.holds_data(change.resource.type):
            others.append(change)
        elif kind == "replace":
            because = ", ".join(change.because[:3])
            yield Danger("data-replaced", f"{_named(change)} is replaced, what it holds is lost ({because})", change.urn, weight)
        else:
            kept = change.resource.options.get("retainOnDelete")
            ending = "leaves the stack but is kept" if kept else "is deleted, with what it holds"
            yield Danger("data-deleted", f"{_named(change)} {ending}", change.urn, weight)
    if others:
        word = "replaced" if kind == "replace" else "deleted"
        yield Danger(word, f"{_several(others)} {word}", weight=weight)


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
            what = f"{_named(change)}: the service refuses another {', '.join(change.refused)}"
            yield Danger("refused", what, change.urn, Weight.REFUSED)


def _unprotected(diff: StackDiff) -> Iterator[Danger]:
    for change in diff.changes:
        for what in _lost_protection(change):
            yield Danger("protection-removed", f"{_named(change)} {what}", change.urn, Weight.UNPROTECTED)


def _lost_protection(change: ResourceChange) -> Iterator[str]:
    if change.before is None or change.after is None:
        return
    for option, words in (("protect", "protection from deletion"), ("retainOnDelete", "retention on deletion")):
        if change.before.options.get(option) and not change.after.options.get(option):
            yield f"loses its {words}"
    for key in ("deletionProtection", "enableDeletionProtection", "disableApiTermination"):
        if change.before.inputs.get(key) is True and change.after.inputs.get(key) is not True:
            yield "loses its deletion protection"
    for key in ("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets"):
        if change.before.inputs.get(key) is True and change.after.inputs.get(key) is not True:
            yield f"no longer has {key}"


# -- reach -----------------------------------------------------------------------------------------------------------------------


def newly_reached(diff: StackDiff, reach: Callable[[Resource], Iterator[str]]) -> Iterator[Danger]:
    """Networks that reach a resource now and could not before. ``reach`` tells which those of a resource are."""
    for change in diff.changes:
        if change.after is None:
            continue
        before = set(reach(change.before)) if change.before else set()
        wider = sorted(set(reach(change.after)) - before)
        if wider:
            yield Danger("opened", f"{_named(change)} is open to {', '.join(wider)}", change.urn, Weight.OPENED)


def _who_comes_in(resource: Resource) -> Iterator[str]:
    """Wide networks that may come in."""
    inputs, type_ = resource.inputs, resource.type
    if type_.rpartition(":")[2] in ("SecurityGroup", "DefaultSecurityGroup"):
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
