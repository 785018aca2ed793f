"""What the API server lets in no more: pods and claims that a quota or limit range refuses, and removed APIs. Pure.

Sources: kubernetes, pkg/quota/v1/evaluator/core (pods.go, persistent_volume_claims.go); plugin/pkg/admission/limitranger;
SetDefaults_LimitRangeItem. Not counted are unknown values and pods whose number only a cluster knows.
"""

import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import cache
from importlib.resources import files
from operator import gt, lt
from typing import Any

from eks_inference_tools.reading.clusters import parts
from eks_inference_tools.reading.graph_facts import GraphFacts
from eks_inference_tools.reading.object_kinds import group_kind, namespace_of, title_of
from eks_inference_tools.reading.pod_templates import PodTemplate
from eks_inference_tools.reading.pods import Container, PodSpec
from eks_inference_tools.reading.rollouts import surges
from eks_inference_tools.reading.scalars import number, quantities, quantity, whole
from stackgraph.diff.comparison_domain import Danger, Weight
from stackgraph.diff.graphs import ResourceChange, StackDiff
from stackgraph.graph.document import Resource
from stackgraph.graph.values import at, items, table, text, texts

_ENDING = ("Job", "CronJob", "RayJob")
_NONE = Decimal()


def let_in_no_more(diff: StackDiff) -> Iterator[Danger]:
    """Pods that are refused from now on, and objects whose API the cluster serves no more."""
    assert diff.base is not None
    assert diff.head is not None

    def beside(pods: PodTemplate) -> int:
        return int(pods.kind == "Deployment" and surges(diff.by_urn[pods.urn], pods.pods or 1))

    old = {(title_of(one), pods.title) for one, pods, _ in _refused(GraphFacts(diff.base), lambda _: 0)}
    for one, pods, why in _refused(GraphFacts(diff.head), beside):
        if (title_of(one), pods.title) not in old:
            waits = diff.by_urn[pods.urn].kind in ("create", "replace") or beside(pods)
            then = "`pulumi up` waits for them and fails" if waits else "those that run stay, and nothing replaces them"
            what = f"{title_of(one)} refuses pods of {pods.title} ({why}): {then}"
            yield Danger("server-waits" if waits else "pods-refused", what, pods.urn, Weight.REFUSED)
    for quota, claims, why in _too_many_claims(GraphFacts(diff.head)):
        if more := [claim for claim in claims if _claims_more(diff.by_urn[claim.urn])]:
            what = f"{title_of(quota)} refuses a claim of {title_of(more[-1])} ({why}): `pulumi up` fails there"
            yield Danger("refused", what, more[-1].urn, Weight.REFUSED)
    known, now = (
        {one.urn: why for part in parts(graph) for one, why in not_served(GraphFacts(part.graph))}
        for graph in (diff.base, diff.head)
    )
    for urn, why in now.items():
        if urn not in known:
            touched = diff.by_urn[urn].kind in ("create", "replace", "update")
            fails = "`pulumi up` fails there" if touched else "its next change fails"
            yield Danger("refused" if touched else "api-gone", f"{why}: {fails}", urn, Weight.REFUSED)


def _refused(facts: GraphFacts, beside: Callable[[PodTemplate], int]) -> Iterator[tuple[Resource, PodTemplate, str]]:
    """Quotas and limit ranges with pods that they do not let in, and why. ``beside``: how many more pods an update has."""
    ranges = [(item, *found) for item in facts.objects.get("LimitRange", ()) for found in _ranges(item)]
    for quota in (*facts.objects.get("ResourceQuota", ()), *{one.urn: one for one, _, _ in ranges}.values()):
        place = namespace_of(quota)
        inside = [(type_, has) for one, type_, has in ranges if namespace_of(one) == place]
        pods = {one: _filled(one.spec, inside) for one in facts.pods if one.given_namespace == place}
        spec = quota.inputs.get("spec")
        if group_kind(quota)[1] == "LimitRange":
            own = [*_ranges(quota)]
            yield from ((quota, one, why) for one, has in pods.items() if (why := _out_of_range(own, has)))
        else:
            counted = {one: has for one, has in pods.items() if _in_scope(spec, has)}
            yield from ((quota, one, why) for one, why in _over(quantities(at(spec, "hard")), counted, beside))


_SCOPES: Mapping[str, Callable[[PodSpec], Any]] = {
    "Terminating": lambda pod: at(pod.document, "activeDeadlineSeconds") is not None,
    "NotTerminating": lambda pod: at(pod.document, "activeDeadlineSeconds") is None,
    "BestEffort": lambda pod: not any({"cpu", "memory"} & one.asked.keys() for one in pod.containers),
    "NotBestEffort": lambda pod: any({"cpu", "memory"} & container.asked.keys() for container in pod.containers),
    "PriorityClass": lambda pod: text(at(pod.document, "priorityClassName")),
}


def _in_scope(quota: Any, pod: PodSpec) -> bool:
    """Whether a quota counts a pod. One of a scope that is not here counts none."""
    wanted = [{"scopeName": name, "operator": "Exists"} for name in texts(at(quota, "scopes"))]
    for one in (*wanted, *items(at(quota, "scopeSelector", "matchExpressions"))):
        found, named = _SCOPES.get(text(at(one, "scopeName")), lambda _: "")(pod), texts(at(one, "values"))
        meant = {"Exists": bool(found), "DoesNotExist": not found, "In": found in named, "NotIn": found not in named}
        if not meant.get(text(at(one, "operator"))):
            return False
    return True


def _too_many_claims(facts: GraphFacts) -> Iterator[tuple[Resource, Sequence[Resource], str]]:
    """Quotas of storage, what claims it, and why that is too much."""
    claims = [(item, at(item.inputs, "spec"), 1) for item in facts.objects.get("PersistentVolumeClaim", ())]
    for item in facts.objects.get("StatefulSet", ()):
        each, pods = items(at(item.inputs, "spec", "volumeClaimTemplates")), whole(at(item.inputs, "spec", "replicas"))
        claims += [(item, at(claim, "spec"), 1 if pods is None else pods) for claim in each]
    for quota in facts.objects.get("ResourceQuota", ()):
        for key, most in quantities(at(quota.inputs, "spec", "hard")).items():
            class_, _, what = key.rpartition(".storageclass.storage.k8s.io/")
            if what.removeprefix("count/") not in ("persistentvolumeclaims", "requests.storage"):
                continue
            inside = [
                (one, number * ((quantity(at(spec, "resources", *what.split("."))) or _NONE) if "." in what else Decimal(1)))
                for one, spec, number in claims
                if namespace_of(one) == namespace_of(quota) and class_ in ("", text(at(spec, "storageClassName")))
            ]
            if (total := sum((size for _, size in inside), _NONE)) > most:
                yield quota, [one for one, _ in inside], f"{_shown(most, key)} {key} for claims of {_shown(total, key)}"


def _claims_more(change: ResourceChange) -> bool:
    sizes = (("spec", "resources"), ("spec", "replicas"))
    return change.kind in ("create", "replace") or any(property_change.path[:2] in sizes for property_change in change.properties)


def _over(
    hard: Mapping[str, Decimal], pods: Mapping[PodTemplate, PodSpec], beside: Callable[[PodTemplate], int]
) -> Iterator[tuple[PodTemplate, str]]:
    silent = {one: why for one, spec in pods.items() if (why := _unnamed(hard, spec))}
    yield from silent.items()
    counted = {one: spec for one, spec in pods.items() if one.pods and one.kind not in _ENDING and one not in silent}
    for key, most in hard.items():
        for more in (0, 1):
            each = {one: _asked(key, spec) * ((one.pods or 0) + more * beside(one)) for one, spec in counted.items()}
            if (total := sum(each.values(), _NONE)) > most:
                last = next(one for one in reversed(each) if each[one] and (not more or beside(one)))
                yield last, f"{_shown(most, key)} {key} for pods that need {_shown(total, key)}{' during the update' * more}"
                break


def _asked(key: str, spec: PodSpec) -> Decimal:
    """What one pod counts for a key of a quota."""
    if key in ("pods", "count/pods"):
        return Decimal(1)
    kind, _, resource = key.partition(".") if key.startswith(("requests.", "limits.")) else ("", "", key)
    return (_limited(spec) if kind == "limits" else spec).requests.get(resource, _NONE)


def _shown(amount: Decimal, of: str) -> str:
    return f"{number(amount / 2**30)}Gi" if of.endswith(("memory", "storage")) else number(amount)


def _with(spec: PodSpec, resources: Callable[[Container], Any]) -> PodSpec:
    """A pod with other resources of its containers."""
    anew = [(container.first, {**table(container.document), "resources": resources(container)}) for container in spec.containers]
    first, others = ([one for is_first, one in anew if is_first is which] for which in (True, False))
    return PodSpec({**table(spec.document), "initContainers": first, "containers": others}, spec.claimed)


def _limited(spec: PodSpec) -> PodSpec:
    """A pod that requests its limits."""
    return _with(spec, lambda one: {"limits": one.limits})


def _unnamed(hard: Mapping[str, Decimal], spec: PodSpec) -> str:
    """What a container does not name, of that which a quota limits."""
    for container in spec.containers if not at(spec.document, "resources") else ():
        for key in hard:
            kind, _, resource = key.rpartition(".")
            if resource in ("cpu", "memory") and resource not in (container.limits if kind == "limits" else container.asked):
                return f"{container.title} names no {key}"
    return ""


_Range = tuple[str, Mapping[str, Mapping[str, Any]]]


def _ranges(limit: Resource) -> Iterator[_Range]:
    """The type and the tables of each item of a LimitRange, with what the API server fills in."""
    for item in items(at(limit.inputs, "spec", "limits")):
        has = {key: table(at(item, key)) for key in ("min", "max", "default", "defaultRequest")}
        limits = {**has["max"], **has["default"]}
        yield (
            text(at(item, "type")),
            {**has, "default": limits, "defaultRequest": {**has["min"], **limits, **has["defaultRequest"]}},
        )


def _filled(spec: PodSpec, ranges: Sequence[_Range]) -> PodSpec:
    """A pod with the defaults of its namespace."""
    for limits, asked in ((has["default"], has["defaultRequest"]) for type_, has in ranges if type_ == "Container"):
        given = {one.name: {"limits": {**limits, **one.limits}, "requests": {**asked, **one.asked}} for one in spec.containers}
        spec = _with(spec, lambda one, given=given: given[one.name])
    return spec


def _out_of_range(ranges: Sequence[_Range], spec: PodSpec) -> str:
    for type_, has in ranges:
        each = [(one.title, one.requests, one.limits) for one in spec.containers] if type_ == "Container" else []
        each += [("the pod", spec.requests, _limited(spec).requests)] if type_ == "Pod" else []
        for what, asked, limits in each:
            most, least = ("at most", has["max"], quantities(limits), gt), ("at least", has["min"], asked, lt)
            for words, bounds, given, beyond in (most, least, ("a limit of", limits, asked, gt)):
                for key, bound in quantities(bounds).items():
                    if beyond(found := given.get(key, _NONE), bound):
                        return f"{words} {bounds[key]} {key}, and {what} has {_shown(found, key)}"
    return ""


def not_served(facts: GraphFacts) -> Iterator[tuple[Resource, str]]:
    """Yields objects of a cluster whose API its version no longer serves, and says so."""
    major, _, minor = facts.kubernetes_version.partition(".")
    for resource in facts.graph.resources if major == "1" and minor.isdecimal() else ():
        api, _, kind = resource.type.removeprefix("kubernetes:").rpartition(":")
        gone = removed_apis().get(api, {}).get(kind)
        if gone and int(minor) >= gone:
            yield resource, f"{title_of(resource)}: Kubernetes 1.{minor} serves no {kind} of {api} (gone since 1.{gone})"


@cache
def removed_apis() -> Mapping[str, Mapping[str, int]]:
    """The rows of ``removed_apis.toml``: minor versions by API version and kind."""
    return tomllib.loads(files("eks_inference_tools.reading").joinpath("removed_apis.toml").read_text(encoding="utf-8"))["minor"]
