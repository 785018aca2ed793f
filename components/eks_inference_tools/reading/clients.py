"""What clients see of a change: who answers no longer, at which address, and who is asked while a server is away. Pure."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from eks_inference_tools.reading.endpoints import MODEL_ENDPOINT, answering, endpoints, led_to
from eks_inference_tools.reading.graph_facts import GraphFacts
from eks_inference_tools.reading.object_kinds import namespace_of, title, title_of
from stackgraph.diff.comparison_domain import Danger, Weight
from stackgraph.diff.graphs import ResourceChange, StackDiff
from stackgraph.graph.document import Graph
from stackgraph.graph.values import at, items, text
from stackgraph.graph.wording import counted


def seen_by_clients(diff: StackDiff, of_servers: Iterable[Danger]) -> Iterator[Danger]:
    """The dangers of servers, none of them an outage where endpoints ask others meanwhile, and then those of endpoints."""
    found = list(of_servers)
    away = {danger.subject for danger in found if "outage" in danger.effects}
    for one in found:
        instead = _instead(diff, one.subject, away) if one.subject in away else ""
        yield replace(one, what=f"{one.what}; {instead}", weight=Weight.CHANGED, effects=(), avoid="") if instead else one
    for change, before, after in _endpoints(diff):
        yield from _lost(change, before, after)


_Answering = dict[str, frozenset[str]]


def _endpoints(diff: StackDiff) -> Iterator[tuple[ResourceChange, _Answering, _Answering]]:
    """The endpoints of the base, and who answers for which model before and after."""
    for change in diff.changes:
        if (old := change.before) and old.type == MODEL_ENDPOINT and diff.base and diff.head:
            after = answering(diff.head, change.after.urn) if change.after else {}
            yield change, answering(diff.base, old.urn), after


def _instead(diff: StackDiff, server: str, away: set[str]) -> str:
    """Who answers all that endpoints ask a server for, while it is away; empty if nobody does for some of it."""
    asked = [
        (change.resource.name, (servers & after.get(model, frozenset())) - away)
        for change, before, after in _endpoints(diff)
        if change.after
        for model, servers in before.items()
        if server in servers
    ]
    if not all(others for _, others in asked):
        return ""
    return "; ".join(dict.fromkeys(f"{name} asks {', '.join(sorted(others))} instead" for name, others in asked))


def _lost(change: ResourceChange, before: _Answering, after: _Answering) -> Iterator[Danger]:
    """Servers may run on, but clients have the endpoint's address, its keys and its names of models."""
    name, urn = change.resource.name, change.urn
    if change.before is None or change.after is None:
        what = f"{name} is removed: nothing answers at its address any more"
        yield Danger("endpoint-gone", what, urn, Weight.REPLACED, name, ("outage",))
        return
    if gone := ", ".join(sorted(before.keys() - after.keys())):
        what = f"{name} answers requests for {gone} with 404: none of its servers has the name any more"
        yield Danger("model-gone", what, urn, Weight.REPLACED, name, ("outage",))
    if change.before.inputs.get("keys") and change.after.inputs.get("keys") is False:
        yield Danger("opened", f"{name} no longer asks its clients for a key", urn, Weight.OPENED, name)
    for model in sorted(before.keys() & after.keys()):
        if len(after[model]) < len(before[model]):
            left, now = ", ".join(sorted(before[model] - after[model])), counted(len(after[model]), "server")
            what = f"{name}: {now} instead of {len(before[model])} for {model}, without {left}"
            yield Danger("capacity-down", what, urn, subject=name)


def addresses(diff: StackDiff) -> Iterator[Danger]:
    """What stays in the program, and no longer answers: Services without pods, and addresses that go."""
    assert diff.base is not None
    assert diff.head is not None
    led, facts = {one.urn for one, pods in led_to(diff.base) if pods}, GraphFacts(diff.head)
    for service, pods in led_to(diff.head):
        change = diff.by_urn[service.urn]
        if not pods and change.before and change.before.urn in led and facts.pods_known(namespace_of(service) or "default"):
            what = f"{title_of(service)} no longer answers: it leads to no pod"
            yield Danger("service-empty", what, service.urn, Weight.REPLACED, title_of(service), ("outage",))
    before, after = ({(e.kind, e.namespace, e.name): e for e in endpoints(graph)} for graph in (diff.base, diff.head))
    for key, old in before.items():
        if (new := after.get(key)) is None:
            continue
        gone = [f"for {host}" for host in old.hosts if {host, f"*.{host.partition('.')[2]}", ""}.isdisjoint(new.hosts or [""])]
        ports = [_ports(graph, one.urn) for graph, one in ((diff.base, old), (diff.head, new))]
        gone += [f"at port {port}" for port in ports[0] if port not in ports[1]]
        gone += ["from outside the cluster"] if old.outside and not new.outside else []
        if not gone and old.outside and "," in old.type and old.type != new.type:
            gone = [f"at its address: its load balancer is made anew ({old.type} → {new.type})"]
        if gone:
            subject = title(*key)
            what = f"{subject} answers no longer {', '.join(gone)}"
            yield Danger("address-gone", what, new.urn, Weight.REPLACED, subject, ("outage",))


def _ports(graph: Graph, urn: str) -> list[str]:
    return [text(at(item, "port")) for item in items(at(graph.by_urn[urn].inputs, "spec", "ports"))]
