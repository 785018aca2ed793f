"""Rules about limits: names, tags and rules of load balancers that the services accept (``limits.toml``), and what a stack may
cost (COST…).
"""

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from importlib.resources import files
from typing import Any

from eks_inference.rules import Judgement, Severity, not_judged, rule
from eks_inference_tools.cost.estimate import estimated
from eks_inference_tools.cost.money import budget_of, per_month
from eks_inference_tools.reading.clusters import PLATFORM
from eks_inference_tools.reading.graph_facts import GraphFacts
from eks_inference_tools.reading.object_kinds import group_kind, title_of
from stackgraph.graph.describe import is_kubernetes_object
from stackgraph.graph.document import Resource, is_read
from stackgraph.graph.values import at, grouped, is_token, items, table, text

# Names of roles, bindings and trust bundles are paths: "system:node" is one.
_NAMED_BY_PATHS = ("certificates.k8s.io", "rbac.authorization.k8s.io")

_INGRESS_GROUP = "alb.ingress.kubernetes.io/group.name"
_BUDGET_KEY = ("budget_usd_per_month",)


@cache
def limits() -> Mapping[str, Any]:
    """The tables of ``limits.toml``."""
    return tomllib.loads(files("eks_inference_tools.check").joinpath("limits.toml").read_text("utf-8"))


@rule(
    "AWS012",
    "Tags are within the limits of AWS.",
    fix="remove, shorten or rename the tag; tags of the whole stack stand in the key tags of the stack file",
    source=limits()["tags"]["source"],
)
def tags_are_accepted(facts: GraphFacts) -> Iterator[Judgement]:
    # The tags of a stack are on all of its resources, and one finding for each would bury the others.
    alike = grouped(
        (_wrong_tags(resource, tags), (resource, tags)) for resource in facts.graph.resources for tags in _tags(resource)
    )
    for (wrong, severity), found in alike.items():
        resource, tags = found[0]
        where = f"{resource.name}{f' and {len(found) - 1} more' if len(found) > 1 else ''}"
        yield Judgement(
            holds=not wrong,
            path=(),
            working=(f"{where}: at most {max(len(tags) for _, tags in found)} tags of {limits()['tags']['most']}",),
            message=f"{where}: {'; '.join(wrong)}",
            given=", ".join(_short(f"{key}: {value}") for key, value in list(tags.items())[:5]),
            severity=severity,
            resource=resource.urn,
        )


def _tags(resource: Resource) -> Iterator[Mapping[str, str]]:
    """The tags of a resource of AWS, and those it gives to what it starts. Leaves out values that are not known."""
    if is_read(resource):
        return
    found = []
    if resource.type.startswith(("aws:", "eks:")):
        found = [resource.inputs.get("tags"), *(at(item, "tags") for item in items(resource.inputs.get("tagSpecifications")))]
    elif group_kind(resource) == ("karpenter.k8s.aws", "EC2NodeClass"):
        found = [at(resource.inputs, "spec", "tags")]
    for tags in found:
        known = {key: value for key, value in table(tags).items() if isinstance(value, str) and not is_token(value)}
        if known:
            yield known


def _wrong_tags(resource: Resource, tags: Mapping[str, str]) -> tuple[tuple[str, ...], Severity | None]:
    """Returns what is wrong with the tags of a resource, and how serious it is if not as the rule says."""
    known, iam = limits()["tags"], resource.type.startswith("aws:iam/")
    most, strict = known["fewer"].get(resource.type, known["most"]), resource.type.startswith(tuple(known["strict"]))
    wrong = [f"{len(tags)} tags, at most {most}"] if len(tags) > most else []
    odd = []
    for key, value in tags.items():
        if not 0 < len(key) <= known["longest_key"]:
            wrong.append(f"the key {_short(key)!r} has {len(key)} characters, of 1 to {known['longest_key']}")
        if len(value) > known["longest_value"]:
            wrong.append(f"the value of tag {_short(key)} has {len(value)} characters, of at most {known['longest_value']}")
        if key.lower().startswith("aws:"):
            wrong.append(f"the key {_short(key)} begins with aws:, which is reserved")
        if iam and sum(key.lower() == other.lower() for other in tags) > 1:
            wrong.append(f"IAM takes the key {_short(key)} in one case only")
        if not all(re.fullmatch(known["form"], part) for part in (key, value)):
            odd.append(_short(f"{key}: {value}"))
    # Other services take most characters, though not all of them say so.
    severity = "warning" if odd and not wrong and not strict else None
    return (*wrong, *(f"tag {one}: of other characters than {known['words']}" for one in odd)), severity


@rule(
    "K8S016",
    "Names of Kubernetes objects have a length and characters that the API server accepts.",
    fix="shorten what the name is made of: the name of the stack or server, or the key that gives it",
    source="catalog of limits in check/limits.toml, with the source of each row",
)
def objects_are_accepted(facts: GraphFacts) -> Iterator[Judgement]:
    known = limits()
    for resource in facts.graph.resources:
        if not is_kubernetes_object(resource):
            continue
        group, kind = group_kind(resource)
        own = known["kubernetes"].get(kind) if group in ("core", "batch") else None
        name = at(resource.inputs, "metadata", "name")
        if group not in _NAMED_BY_PATHS and isinstance(name, str) and not is_token(name):
            yield _named(resource, f"the name of {title_of(resource)}", name, own or known["kubernetes"]["other"])


def _named(resource: Resource, title: str, name: str, limit: Mapping[str, Any]) -> Judgement:
    longest = limit["longest"]
    return Judgement(
        holds=len(name) <= longest and re.fullmatch(limit["form"], name) is not None,
        path=(),
        working=(f"{title}: {len(name)} characters of {longest} ({limit['source']})",),
        message=f"{title} {f'has {len(name)} characters' if len(name) > longest else 'is not of the form that is accepted'}",
        given=_short(name),
        allowed=f"at most {longest}: {limit['words']}",
        resource=resource.urn,
    )


def _short(given: str) -> str:
    shown = text(given)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."


@rule(
    "GWY011",
    "The paths of an IngressGroup fit its load balancer.",
    severity="warning",
    fix="put the servers behind an endpoint, to which one path leads, or have the quota raised (Rules per Application Load "
    "Balancer)",
    source=limits()["balancer_rules"]["source"],
)
def paths_fit_a_balancer(facts: GraphFacts) -> Iterator[Judgement]:
    most = limits()["balancer_rules"]["most"]
    groups = grouped(
        (text(at(one.inputs, "metadata", "annotations", _INGRESS_GROUP)), one) for one in facts.objects.get("Ingress", ())
    )
    for group, members in groups.items():
        rules = [rule for member in members for rule in items(at(member.inputs, "spec", "rules"))]
        count = sum(len(items(at(rule, "http", "paths"))) for rule in rules)
        if group:
            yield Judgement(
                holds=count <= most,
                path=(),
                working=(f"IngressGroup {group}: {count} paths, of {most} rules that a load balancer has at first",),
                message=f"IngressGroup {group} has {count} paths, a rule each, and its load balancer at first {most} rules",
                given=str(count),
                allowed=f"at most {most}",
                resource=members[-1].urn,
            )


@rule(
    "COST001",
    "A stack costs at most its budget.",
    fix="take fewer nodes or smaller types (`plan` lists them by price), give your own prices (key prices), or raise the budget",
    source="list prices of the catalog, or the stack's own; 730 hours a month, as AWS counts them (AWS Pricing Calculator)",
)
def stays_within_its_budget(facts: GraphFacts) -> Iterator[Judgement]:
    if (budget := budget_of(facts.graph)) is None:
        return
    urn = facts.graph.of_type(PLATFORM)[0].urn
    found = estimated(facts.graph)
    _, deployed, most = found.totals
    beyond = [total.usd_per_month > budget for total in (deployed, most)]
    first, last = (per_month(total.usd_per_month) for total in (deployed, most))
    working = (f"{first} a month as deployed, {last} at most; the budget is {per_month(budget)}",)
    if any(beyond):
        cost, when = (deployed, "as deployed") if beyond[0] else (most, "with all nodes that may start")
        yield Judgement(
            holds=False,
            path=_BUDGET_KEY,
            working=working,
            message=f"the stack costs {per_month(cost.usd_per_month)} a month {when}",
            given=per_month(budget),
            # Autoscalers do not stay at their most.
            severity="error" if beyond[0] else "warning",
            resource=urn,
        )
    elif most.at_least:
        unpriced = (*found.missing(), *(uncounted.shown for uncounted in found.uncounted))
        what, fix = "whether the stack stays within its budget", "give its price in the key prices"
        yield replace(not_judged(what, "the stack", _BUDGET_KEY, why=unpriced[0], fix=fix), resource=urn)
    else:
        yield Judgement(holds=True, path=_BUDGET_KEY, working=working, resource=urn)
