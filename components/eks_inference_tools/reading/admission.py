"""What the API server no longer lets in: pods that a quota or limit range of their namespace refuses, and removed APIs. Pure.

Sources: kubernetes, pkg/quota/v1/evaluator/core/pods.go; plugin/pkg/admission/limitranger; SetDefaults_LimitRangeItem.
A quota with scopes, unknown values and pods whose number only a cluster knows are not counted.
"""

import tomllib
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from functools import cache
from importlib.resources import files
from typing import Any

from eks_inference_tools.reading.kinds import group_kind, namespace_of, title_of
from eks_inference_tools.reading.pod_templates import PodTemplate, pod_templates
from eks_inference_tools.reading.pods import Container, PodSpec
from eks_inference_tools.reading.scalars import number, quantities
from stackgraph.graph.describe import is_kubernetes_object
from stackgraph.graph.document import Graph, Resource
from stackgraph.graph.values import at, items, table, text

Refused = tuple[Resource, PodTemplate, str]
_ENDING = ("Job", "CronJob", "RayJob")
_NAMED = ("cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory")
"""What every container has to name where a quota limits it."""


def refused_pods(graph: Graph, beside: Callable[[PodTemplate], int]) -> Iterator[Refused]:
    """Yields each ResourceQuota and LimitRange with pods that it does not let in, and why. ``beside`` is how many pods more than
    its own an object has during an update.
    """
    kinds: dict[str, list[Resource]] = {"ResourceQuota": [], "LimitRange": []}
    for one in graph.resources:
        if is_kubernetes_object(one) and group_kind(one)[1] in kinds:
            kinds[group_kind(one)[1]].append(one)
    templates = [*pod_templates(graph)] if any(kinds.values()) else []
    limits = [(namespace_of(one) or "default", one) for one in kinds["LimitRange"]]
    specs = {id(pods): _defaulted(pods, [one for place, one in limits if place == pods.namespace]) for pods in templates}
    for place, one in limits:
        inside = [pods for pods in templates if pods.namespace == place]
        yield from ((one, pods, why) for pods in inside if (why := _out_of_range(one, specs[id(pods)])))
    for quota in kinds["ResourceQuota"]:
        hard, scoped = quantities(at(quota.inputs, "spec", "hard")), at(quota.inputs, "spec", "scopes")
        inside = [pods for pods in templates if pods.namespace == (namespace_of(quota) or "default")]
        if not scoped and not at(quota.inputs, "spec", "scopeSelector"):
            yield from _over(quota, hard, inside, specs, beside)


def _over(
    quota: Resource,
    hard: Mapping[str, Decimal],
    inside: list[PodTemplate],
    specs: Mapping[int, PodSpec],
    beside: Callable[[PodTemplate], int],
) -> Iterator[Refused]:
    silent = {id(pods): why for pods in inside if (why := _unnamed(hard, specs[id(pods)]))}
    yield from ((quota, pods, silent[id(pods)]) for pods in inside if id(pods) in silent)
    counted = [pods for pods in inside if pods.pods and pods.kind not in _ENDING and id(pods) not in silent]
    for key, most in hard.items():
        each = {id(pods): _asked(key, specs[id(pods)]) for pods in counted}
        asking = [pods for pods in counted if each[id(pods)]]
        for more in (0, 1):
            total = sum((each[id(p)] * ((p.pods or 0) + more * beside(p)) for p in asking), Decimal())
            if total > most:
                last = next(p for p in reversed(asking) if not more or beside(p))
                yield (
                    quota,
                    last,
                    f"{_shown(most, key)} {key} for pods that need {_shown(total, key)}{' during the update' * more}",
                )
                break


def _asked(key: str, spec: PodSpec) -> Decimal:
    """What one pod counts for a key of a quota."""
    if key in ("pods", "count/pods"):
        return Decimal(1)
    kind, _, resource = key.rpartition(".") if key.startswith(("requests.", "limits.")) and "/" not in key else ("", "", key)
    if "/" in key and key.startswith("requests."):
        resource = key.removeprefix("requests.")
    return (_only_limits(spec) if kind == "limits" else spec).requests.get(resource, Decimal())


def _shown(amount: Decimal, of: str) -> str:
    return f"{number(amount / 2**30)}Gi" if of.endswith(("memory", "storage")) else number(amount)


def _only_limits(spec: PodSpec) -> PodSpec:
    def of(container: Container) -> Any:
        return {**table(container.document), "resources": {"limits": container.limits}}

    return _with_containers(spec, of)


def _with_containers(spec: PodSpec, of: Callable[[Container], Any]) -> PodSpec:
    first, others = ([of(one) for one in spec.containers if one.first is which] for which in (True, False))
    return PodSpec({**table(spec.document), "initContainers": first, "containers": others}, spec.claimed)


def _unnamed(hard: Mapping[str, Decimal], spec: PodSpec) -> str:
    for container in spec.containers if not at(spec.document, "resources") else ():
        for key in _NAMED:
            named = container.limits if key.startswith("limits.") else container.asked
            if key in hard and key.rpartition(".")[2] not in named:
                return f"{container.title} names no {key}"
    return ""


def _ranges(limit: Resource) -> Iterator[tuple[str, Mapping[str, Mapping[str, Any]]]]:
    """The type and tables of each item of a LimitRange, with what the API server fills in."""
    for item in items(at(limit.inputs, "spec", "limits")):
        given = {key: table(at(item, key)) for key in ("min", "max", "default", "defaultRequest")}
        if at(item, "type") == "Container":
            given["default"] = {**given["max"], **given["default"]}
            given["defaultRequest"] = {**given["min"], **given["default"], **given["defaultRequest"]}
        yield text(at(item, "type")), given


def _defaulted(pods: PodTemplate, limits: list[Resource]) -> PodSpec:
    defaults = [one for limit in limits for type_, one in _ranges(limit) if type_ == "Container"]
    spec = pods.spec
    for has in defaults:

        def filled(container: Container, has: Mapping[str, Any] = has) -> Any:
            asked = {**has["defaultRequest"], **container.asked}
            resources = {"limits": {**has["default"], **container.limits}, "requests": asked}
            return {**table(container.document), "resources": resources}

        spec = _with_containers(spec, filled)
    return spec


def _out_of_range(limit: Resource, spec: PodSpec) -> str:
    for type_, has in _ranges(limit):
        each = [(one.title, one.requests, quantities(one.limits)) for one in spec.containers] if type_ == "Container" else []
        if type_ == "Pod":
            each = [("the pod", spec.requests, _only_limits(spec).requests)]
        for what, requests, limits in each:
            for resource, most in quantities(has["max"]).items():
                if (given := max(requests.get(resource, Decimal()), limits.get(resource, Decimal()))) > most:
                    return f"at most {has['max'][resource]} {resource}, and {what} has {_shown(given, resource)}"
            for resource, least in quantities(has["min"]).items():
                if (given := requests.get(resource, Decimal())) < least:
                    return f"at least {has['min'][resource]} {resource}, and {what} asks for {_shown(given, resource)}"
            over = [one for one, limit_ in limits.items() if requests.get(one, Decimal()) > limit_]
            if over:
                return f"its default limit of {over[0]} is below what {what} asks for"
    return ""


def not_served(graph: Graph, version: str) -> Iterator[tuple[Resource, str]]:
    """Yields objects whose API a version of Kubernetes no longer serves, and that API."""
    major, _, minor = version.partition(".")
    for one in graph.resources if major == "1" and minor.isdecimal() else ():
        api = one.type.removeprefix("kubernetes:").rpartition(":")[0]
        gone = removed_apis().get(api, {}).get(group_kind(one)[1]) if is_kubernetes_object(one) else None
        if gone and int(minor) >= gone:
            yield one, f"{title_of(one)}: Kubernetes {version} serves no {api} {group_kind(one)[1]} (gone since 1.{gone})"


@cache
def removed_apis() -> Mapping[str, Mapping[str, int]]:
    """The rows of ``removed_apis.toml``: minor versions by API version and kind."""
    text_ = files("eks_inference_tools.reading").joinpath("removed_apis.toml").read_text(encoding="utf-8")
    return tomllib.loads(text_)["minor"]
