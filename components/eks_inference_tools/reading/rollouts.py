"""What follows an update of a property (``after_update.toml``), and how one replaces the pods of an object: whether it does, how
many serve, how many of them go at once, and of which a disruption budget lets none go. Pure.

Sources: Deployment, resolveFenceposts (kubernetes/pkg/controller/deployment/util); LeaderWorkerSet, rolloutStrategy; Ray Serve,
deployment_state.py (replicas of another version restart, one at a time, or a fifth of them), version.py and config.py (what makes
another version); Kubernetes, Specifying a Disruption Budget: with as many pods available as one demands, no eviction ever
succeeds.
"""

import math
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from eks_inference_tools.reading.autoscalers import autoscalers
from eks_inference_tools.reading.object_kinds import group_kind, name_of, namespace_of, serve_applications, serve_deployments
from eks_inference_tools.reading.pod_templates import PodTemplate, pod_templates
from eks_inference_tools.reading.scalars import quantity, whole
from stackgraph.diff.differences import ABSENT, Path, PropertyChange
from stackgraph.diff.graphs import ResourceChange
from stackgraph.diff.replacements import covers, pattern_of
from stackgraph.graph.describe import is_kubernetes_object
from stackgraph.graph.document import Graph, Resource
from stackgraph.graph.values import at, is_token, items, leaves, table, text

Then = Literal["nothing", "scale", "restart", "roll", "refused", "ignored", "final"]

_ROUNDED = {"maxSurge": math.ceil, "maxUnavailable": math.floor}
_CODE = ("import_path", "runtime_env", "args")
_ACTOR = ("name", "ray_actor_options", "placement_group_bundles", "placement_group_strategy")
"""What of an application, and of its deployments, Serve changes only by a restart of replicas."""


@dataclass(frozen=True, eq=False)
class Row:
    """A row of the table. ``of`` are paths by kind."""

    of: Mapping[str, Sequence[Path]]
    then: Then
    source: str
    says: str = ""
    only: str = ""
    when: Mapping[str, str] = field(default_factory=dict)

    def named(self, type_: str, path: Path) -> Path | None:
        """The path of the row that names a property of a type, if any does."""
        prefix = f"{type_.partition(':')[0]}:".removeprefix("kubernetes:")
        own = (path for kind in (type_.rpartition(":")[2], "*") for path in self.of.get(prefix + kind, ()))
        return next((one for one in own if covers(one, path)), None)

    def applies(self, resource: Resource, one: PropertyChange) -> bool:
        has = (text(at(resource.inputs, *path.split("."))) == value for path, value in self.when.items())
        return self.named(resource.type, one.path) is not None and _is(self.only, one) and all(has)


@cache
def rows() -> tuple[Row, ...]:
    """The rows in their order."""
    text_ = files("eks_inference_tools.reading").joinpath("after_update.toml").read_text(encoding="utf-8")
    return tuple(Row(_of(row.pop("of")), **row) for row in tomllib.loads(text_)["row"])


def follows(change: ResourceChange) -> Iterator[tuple[Row, PropertyChange]]:
    """Yields each changed property of an update with its row. A property without one is left out."""
    for property_change in change.properties if change.kind == "update" else ():
        if row := next((row for row in rows() if row.applies(change.resource, property_change)), None):
            yield row, property_change


def _of(given: str) -> Mapping[str, Sequence[Path]]:
    """``Kind path path aws:Kind`` by kind: those of Kubernetes have no prefix. One without paths has all."""
    kinds = re.split(r"(?:^|\s+)(?=[A-Z*]|aws:|eks:)", given.strip())
    named = (kind.split() for kind in kinds if kind)
    return {kind: tuple(map(pattern_of, paths)) or ((),) for kind, *paths in named}


def _is(only: str, one: PropertyChange) -> bool:
    if only == "less":
        before, after = (quantity(side) for side in (one.before, one.after))
        return before is not None and after is not None and after < before
    if only == "mode":
        return ABSENT in (one.before, one.after)
    before, after = ({text(leaf) for leaf in leaves(side)} for side in (one.before, one.after))
    # Of requirements, one that is gone asks for less.
    return not only or (one.after is not ABSENT and not before <= after)


def restarts(change: ResourceChange) -> bool:
    """Whether an update replaces pods, or in a Ray cluster the replicas of a model."""
    assert change.before is not None
    assert change.after is not None
    parts = {one.path[:2] for row, one in follows(change) if row.then == "restart"}
    if group_kind(change.resource)[1] == "RayService":
        # A new Ray cluster answers before the old one ends.
        anew = ("spec", "rayClusterConfig") in parts
        return not anew and _applications(change.before) != _applications(change.after)
    return bool(parts)


def _applications(service: Resource) -> list[Any]:
    """What of Serve's applications restarts replicas."""
    found = serve_applications(service.inputs)
    deployments = [[_only(own, _ACTOR) for own in items(at(one, "deployments"))] for one in found]
    return [[_only(one, _CODE) for one in found], deployments]


def _only(given: Any, keys: tuple[str, ...]) -> dict[str, Any]:
    return {key: value for key, value in table(given).items() if key in keys}


def pods_of(graph: Graph, resource: Resource, before: Graph | None = None) -> int:
    """How many pods, groups of pods or replicas of a model serve at least; an autoscaler kept those of ``before`` until now."""
    kind, spec = group_kind(resource)[1], resource.inputs.get("spec")
    if kind == "RayService":
        own = [one for found in serve_deployments(resource.inputs).values() for one in found]
        counts = (whole(at(one, "autoscaling_config", "min_replicas")) or whole(at(one, "num_replicas")) for one in own)
        return max(min((count or 1 for count in counts), default=1), 1)
    scaled = (namespace_of(resource), kind, name_of(resource))
    own, old = ([one.least for one in autoscalers(of) if one.target == scaled] if of else [] for of in (graph, before))
    least = next(iter((own and old) or own), None)
    return least or whole(at(spec, "replicas")) or 1


def at_once(resource: Resource, pods: int) -> int:
    """How many of so many pods an update takes away before their successors answer."""
    kind, spec = group_kind(resource)[1], resource.inputs.get("spec")
    if kind == "Deployment" and text(at(spec, "strategy", "type")) == "Recreate":
        return pods
    if kind == "Deployment":
        rolling = at(spec, "strategy", "rollingUpdate")
        surge, away = (_share(at(rolling, key), pods, whole_of) for key, whole_of in _ROUNDED.items())
        return away if surge or away else 1
    if kind == "LeaderWorkerSet":
        rolling = at(spec, "rolloutStrategy", "rollingUpdateConfiguration")
        return 0 if whole(at(rolling, "maxSurge")) else whole(at(rolling, "maxUnavailable")) or 1
    return 1


def surges(change: ResourceChange, pods: int) -> bool:
    """Whether an update starts pods before it ends others."""
    return change.kind == "update" and restarts(change) and not at_once(change.resource, pods)


def _share(given: Any, pods: int, whole_of: Callable[[float], int]) -> int:
    """A number of pods, or a percentage of them; 25 % where nothing is given."""
    count = whole(given)
    percent = whole(text(given or "25%").removesuffix("%"))
    return count if count is not None else whole_of(pods * (percent or 0) / 100)


def budgeted(graph: Graph) -> Iterator[tuple[Resource, PodTemplate, str]]:
    """Yields budgets, the templates of their pods with a known number of pods, and why none of these may go, or nothing.

    A Job ends by itself; an autoscaler decides the number.
    """
    budgets = [one for one in graph.resources if is_kubernetes_object(one) and group_kind(one)[1] == "PodDisruptionBudget"]
    if not budgets:
        return
    scaled, pods = {autoscaler.target for autoscaler in autoscalers(graph)}, [*pod_templates(graph)]
    for budget in budgets:
        selector, spec = at(budget.inputs, "spec", "selector"), budget.inputs.get("spec")
        if is_token(selector) or is_token(at(selector, "matchLabels")) or at(selector, "matchExpressions"):
            continue
        for template in pods:
            ends_or_grows = template.kind in ("Job", "Pod") or (template.given_namespace, template.kind, template.name) in scaled
            beside = template.namespace == (namespace_of(budget) or "default")
            if template.pods and beside and not ends_or_grows and template.has_labels(table(at(selector, "matchLabels"))):
                yield budget, template, _kept(spec, template.pods)


def _kept(spec: Any, pods: int) -> str:
    """Percentages are rounded up."""
    for key in ("minAvailable", "maxUnavailable"):
        given = at(spec, key)
        share = text(given).removesuffix("%") if text(given).endswith("%") else ""
        number = -(-int(share) * pods // 100) if share.isdecimal() else whole(given)
        if number is not None and (number >= pods if key == "minAvailable" else number == 0):
            return f"{key} {text(given)} of {pods}"
    return ""
