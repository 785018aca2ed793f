"""Finds what answers nothing while `pulumi up` changes it, model servers first, and for how long by typical times. Pure."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from eks_inference.catalog.times import PASSES, Typical
from eks_inference.serving.storage_plan import CACHE_VARIABLE
from eks_inference_tools.reading.clusters import parts
from eks_inference_tools.reading.object_kinds import group_kind, name_of, nodes_of, serve_applications, title_of
from eks_inference_tools.reading.pod_templates import pod_templates, prefetched
from eks_inference_tools.reading.rollouts import at_once, budgeted, pods_of, restarts, surges
from eks_inference_tools.reading.scalars import whole
from eks_inference_tools.timeline.beside import Beside
from eks_inference_tools.timeline.durations import duration, spread, total
from eks_inference_tools.timeline.pod_phases import PodStart, phases, pull_time
from eks_inference_tools.timeline.rolls import UNDISTURBED, Roll, rolled, shrunk
from eks_inference_tools.timeline.schedule import Step
from eks_inference_tools.timeline.starts import Homes
from eks_inference_tools.timeline.timeline import End, Timeline
from eks_inference_tools.timeline.update_steps import create_time
from stackgraph.diff.comparison_domain import Danger, Effect, Weight
from stackgraph.diff.dangers import taken_along
from stackgraph.diff.graphs import ResourceChange, StackDiff
from stackgraph.graph.document import STACK_TYPE, Graph, Resource
from stackgraph.graph.values import at, grouped, items, leaves, table, text, unique
from stackgraph.state.engine_steps import deletes_first

_KEPT = re.compile(rf"\$[({{]{CACHE_VARIABLE}[)}}]/[^\s\"]+")
"""Where a server keeps compiled graphs beyond its pods."""


def outages(diff: StackDiff, before: Timeline, after: Timeline, beside: Beside) -> Iterator[Danger]:
    """Yields the servers that are gone, those whose last pod ends, or may end, before its successor answers, those that wait for
    room for ever, and the pools whose nodes go. What else a Service leads to counts as a server.
    """
    late, room, models = _late(diff, before, after, beside), beside.room, {**before.servers, **after.servers}
    gone = [] if any(diff.by_urn[urn].kind == "create" for urn in late) else [*_gone(diff, before, after)]
    yield from (*late.values(), *gone)
    before, after = before.answering, after.answering
    stacks = {"", *(resource.urn for resource in after.graph.of_type(STACK_TYPE))}
    moved: list[tuple[tuple[str, bool], str]] = []
    # What else the component of a server has is away with it.
    away = {diff.by_urn[urn].resource.parent for urn in (*late, *(danger.urn for danger in gone))} - stacks
    rolls = {urn: roll for urn, roll in rolled(diff).items() if urn not in beside.unused}
    fewer, heads, budgets = shrunk(diff), _heads(after.graph), [*_budgets(after.graph, rolls)]
    stay, along = {urn for urn, pool, _ in budgets if rolls[pool].patient}, taken_along(diff)
    for urn, name in after.servers.items():
        change, start = diff.by_urn[urn], after.starts[urn]
        if by := along.get(urn):
            what = f"{name} no longer answers: {title_of(by.resource)} leaves the program, and goes with all that is in it"
            yield Danger("server-gone", what, urn, Weight.REPLACED, name, ("outage",))
            continue
        if change.before is None or change.after is None or urn in late:
            continue
        old = before.starts.get(change.before.urn)
        if start.no_node and old and not old.no_node:
            what = f"{name} no longer answers: no pool has a node for it"
            yield Danger("server-stopped", what, urn, Weight.REPLACED, name, ("outage",))
            continue
        pool, roll = diff.by_urn.get(start.pool), rolls.get(start.pool)
        nodes, more, way, may, inside = name_of(pool.resource) if pool else "", "", "", False, False
        first = pool is not None and pool.kind == "replace" and deletes_first(pool)
        made = [create_time(pool.resource)] if pool and first and not start.new_node else []
        spec, pods = change.after.inputs.get("spec"), pods_of(after.graph, change.after, before.graph)
        head = at(spec, "rayClusterConfig", "headGroupSpec", "template")
        size = whole(at(spec, "leaderWorkerTemplate", "size")) or 1
        end = "its pods end" if pods > 1 else f"its only group of {size} pods ends" if size > 1 else "its only pod ends"
        if change.kind == "replace" and deletes_first(change):
            end, group = f"{end} ({', '.join(change.because[:3])})", _group(after, change.after)
            names = ", ".join(after.servers[one] for one in group)
            way = f"{names}: {room(group, '`rollout: second_group`')}" if group else ""
        elif pool and pool.kind == "replace" and urn in models:
            end += f" with the nodes of {nodes}"
            more = f"; for good where AWS has no {start.instance_type or 'such node'} then" if first else ""
        elif change.kind == "update" and restarts(change) and at_once(change.after, pods) >= pods:
            if inside := group_kind(change.after)[1] == "RayService":
                end = end.replace("pod", "replica")
            ways = _way(change, pods, is_model=urn in models)
            way = f"{name}: {room((urn,), ways)}" if ways else ""
        elif urn not in models and pool and pool.kind == "replace" and (pods == 1 or first):
            moved.append(((pool.urn, False), name))
            continue
        elif roll and urn not in stay and _ends(roll, at(spec, "template"), old, start) and _is_alone(after.graph, urn):
            if urn not in models:
                moved.append(((start.pool, False), name))
                continue
            beside_it = [server for server in after.servers if server in models and after.starts[server].pool == start.pool]
            alone = tuple(one for one in beside_it if _is_alone(after.graph, one))
            end, names = f"{end} with its node of {nodes}", ", ".join(after.servers[one] for one in alone)
            each = " of each" if alone[1:] else ""
            way = f"{names}: {room(alone, f'a second replica{each} on another node', elsewhere=True)}"
        elif urn in models and old and (left := diff.by_urn.get(old.pool)) and left.kind == "delete" and not restarts(change):
            end += f" with the nodes of {name_of(left.resource)}"
        elif pods <= fewer.get(start.pool, 0):
            if urn not in models:
                moved.append(((start.pool, True), name))
                continue
            end, may = f"{end}, if AWS chooses {'its node' if pods == 1 else 'their nodes'} of {nodes},", True
        elif (under := diff.by_urn.get(heads.get(urn, ""))) and (
            under.kind == "replace" or _ends(rolls.get(under.urn), head, None, None) or under.urn in fewer
        ):
            may, of = under.kind != "replace" and under.urn not in rolls, name_of(under.resource)
            end, made = (
                f"its workers end with the Ray head{', if AWS chooses' if may else ' and'} its node of {of}",
                [pull_time(start)],
            )
        else:
            continue
        elsewhere = may and start.pool in fewer
        fresh = pool is not None and (pool.kind == "replace" or roll is not None or elsewhere)
        stays = old is not None and not fresh and (old.pool, old.instance_type) == (start.pool, start.instance_type)
        again = _in_its_worker(start, old, change) if inside else started_again(start, old if stays else None, change)
        if elsewhere:
            again = replace(again, pulled=again.pulled or again.image in prefetched(after.graph))
        if roll and pool and pool.kind != "replace":
            again = replace(again, new_node="" if roll.successor_first else nodes)
        if urn not in models and change.resource.parent in away:
            continue
        away |= {change.resource.parent} - stacks
        when, seconds = _time(again, made)
        when = f"for {when}" if seconds or urn in models else f"until its successor{' is' if pods == 1 else 's are'} ready"
        done = _listing([done for phase in phases(again) for words, done in _DONE.items() if words in phase.title])
        has = f"its successor has {done}" if pods == 1 else f"their successors have {done}"
        was = before.servers.get(change.before.urn, name)
        who = name if was == name else f"{was} becomes {name}, which"
        what = f"{who} {'may answer' if may else 'answers'} nothing {when}: {end} before {has}{more}"
        kind, weight = ("server-may-stop", Weight.UNSURE) if may else ("server-stopped", Weight.REPLACED)
        yield Danger(kind, what, urn, weight, was, ("outage",), seconds, way)
    for urn, roll in rolls.items():
        yield Danger("nodes-kept" if roll.blocked else "nodes-rolled", roll.words, urn, roll.weight, roll.name)
    for (urn, may), names in grouped(moved).items():
        subject, who = nodes_of(diff.by_urn[urn].resource), ", ".join(names)
        what = f"{who} may not answer while pods move" if may else f"{who} cannot answer while the pods move"
        yield Danger("pods-may-move" if may else "pods-move", f"{subject}: {what}", urn, subject=subject)
    for _, pool, budget in budgets:
        roll = rolls[pool]
        kind = "nodes-stuck" if roll.fails else "nodes-kept" if roll.patient else "nodes-rolled"
        weight = Weight.REFUSED if roll.fails else roll.weight
        yield Danger(kind, f"{roll.name}: {budget}: {roll.kept}", pool, weight, roll.name)


def _budgets(graph: Graph, rolls: Mapping[str, Roll]) -> Iterator[tuple[str, str, str]]:
    """The disruption budgets that keep pods on nodes which are exchanged: the URNs of pods and pool, and the budget in words."""
    for part in parts(graph):
        homes = Homes(part.graph)
        for budget, template, kept in budgeted(part.graph):
            home = homes.of(template) if kept else None
            if home and home.urn in rolls and not rolls[home.urn].blocked:
                yield template.urn, home.urn, f"{title_of(budget)} lets no pod of {template.title} go ({kept})"


def _late(diff: StackDiff, before: Timeline, after: Timeline, beside: Beside) -> Mapping[str, Danger]:
    """Deployments whose pods find no room beside those that end only later: `pulumi up` waits for them and fails.

    It deletes last. An update that may take no pod away first needs room for one more.
    """
    found, starts = dict[str, Danger](), {**before.starts, **after.starts}
    gone = tuple(resource_change.urn for resource_change in diff.of_kind("delete") if resource_change.urn in before.servers)
    for change in (change for change in diff.changes if change.after and group_kind(change.after)[1] == "Deployment"):
        urn, resource = change.urn, change.resource
        name, is_server = after.servers.get(urn) or title_of(resource), urn in after.servers
        beside_itself = surges(change, pods_of(after.graph, resource))
        if not beside_itself and not (is_server and change.kind == "create"):
            continue
        olds = (urn,) if beside_itself else gone
        crowded = beside.crowded(urn, olds)
        if not crowded or not (beside_itself or any(starts[one].pool == starts[urn].pool for one in crowded if one in starts)):
            continue
        alike = not beside_itself and name in {before.servers[old] for old in olds}
        others = ", ".join(title_of(before.graph.by_urn[old]) if alike else before.servers.get(old, "what runs") for old in olds)
        last = "" if beside_itself or not olds else f" while {others} stands, which it deletes last"
        compiles = is_server and any(
            one.role == "compile" and diff.by_urn[job].kind in ("create", "replace") for job, one in after.starts.items()
        )
        answers = f", and {others} {'is away while it compiles' if compiles else 'answers on'}" if olds else ""
        what = f"{name} waits for ever, and `pulumi up` fails: there is no room for its pods{last}{answers}"
        same = [before.servers[one] for one in gone if starts[one].model_name == starts[urn].model_name] if is_server else []
        way = f"{name}: {beside.room((urn,), 'room for both')}" if beside_itself else _renaming(same, name)
        away: tuple[Effect, ...] = ("outage",) if compiles and olds else ()
        found[urn] = Danger("server-waits", what, urn, Weight.REPLACED, name, away, avoid=way)
    return found


def _renaming(olds: Sequence[str], new: str) -> str:
    if not olds or new in olds:
        return ""
    return f"{olds[0]}: `renamed_from: {olds[0]}` makes {new} replace it in order, and keep its cache and store"


_DONE = {"a node": "got a node", "pulls": "pulled its image", "download": "downloaded", "compile": "compiled", " loads": "loaded"}


def _heads(graph: Graph) -> Mapping[str, str]:
    """The pools of Ray heads, by the URN of their RayService. Workers end with a head whose state nothing else keeps
    (Ray, "GCS fault tolerance in KubeRay"), however many they are.
    """
    return {
        pod_template.urn: home.urn
        for part in parts(graph)
        for homes in (Homes(part.graph),)
        for pod_template in pod_templates(part.graph)
        if (pod_template.kind, pod_template.part) == ("RayService", "head") and (home := homes.of(pod_template))
        if not at(pod_template.owner.inputs, "spec", "rayClusterConfig", "gcsFaultToleranceOptions")
    }


def _group(after: Timeline, resource: Resource) -> tuple[str, ...]:
    """The servers that `rollout: recreate` ends together."""
    above = after.graph.by_urn.get(resource.parent)
    group = tuple(server for server in after.servers if after.graph.by_urn[server].parent == resource.parent)
    return group if above and at(above.inputs, "rollout") else ()


def _is_alone(graph: Graph, urn: str) -> bool:
    return urn in graph.by_urn and pods_of(graph, graph.by_urn[urn]) == 1


def _way(change: ResourceChange, pods: int, *, is_model: bool) -> str:
    """How a second one could run beside the first while that is updated; nothing for pods that share no disk of a claim."""
    if not is_model and group_kind(change.resource)[1] == "Deployment":
        volumes = items(at(change.resource.inputs, "spec", "template", "spec", "volumes"))
        one = "a second replica or maxSurge: 1" if pods == 1 else "maxUnavailable: 1"
        return "" if any(at(volume, "persistentVolumeClaim") for volume in volumes) else one
    if not is_model:
        return ""
    endpoint, kind = "a second server behind an endpoint", group_kind(change.resource)[1]
    if kind == "RayService" and any(one.path[:2] == ("spec", "rayClusterConfig") for one in change.properties):
        return f"`upgrade: new_cluster` or {endpoint}"
    if kind != "Deployment" or text(at(change.resource.inputs, "spec", "strategy", "type")) == "Recreate":
        return endpoint
    return f"surge: 1, a second replica or {endpoint}"


def _listing(words: Sequence[str]) -> str:
    *most, last = unique(words) or ("started",)
    return f"{', '.join(most)} and {last}" if most else last


def _gone(diff: StackDiff, before: Timeline, after: Timeline) -> Iterator[Danger]:
    fresh = {urn: name for urn, name in after.servers.items() if diff.by_urn[urn].kind == "create"}
    left = {change.before.urn for change in diff.changes if change.before and change.after}
    for urn, name in before.servers.items():
        if urn in left:
            continue
        if anew := [one for one, same in fresh.items() if same == name]:
            objects = [title_of(graph.by_urn[one]) for graph, one in ((after.graph, anew[0]), (before.graph, urn))]
            order = "which `pulumi up` deletes last: without nodes for both, the new one waits for those of the old one"
            what = f"{name} is made anew, and may answer nothing meanwhile: {objects[0]} in place of {objects[1]}, {order}"
            yield Danger("server-stopped", what, urn, Weight.REPLACED, name, ("outage",))
            continue
        if name in after.servers.values():
            continue
        model = before.starts[urn].model_name or "its model"
        same = [new for one, new in fresh.items() if after.starts[one].model_name == before.starts[urn].model_name]
        new = f"; {same[0]} is another server with the same model" if same else ""
        way = _renaming([name], same[0]) if same else ""
        what = f"{name} is removed: no server of this name serves {model} any more{new}"
        yield Danger("server-gone", what, urn, Weight.REPLACED, name, ("outage",), avoid=way)


def _ends(roll: Roll | None, template: Any, old: PodStart | None, new: PodStart | None) -> bool:
    """Whether pods end with their nodes."""
    alone = text(at(template, "metadata", "annotations", UNDISTURBED)) == "true"
    if roll is None or roll.blocked or (alone and not roll.forced):
        return False
    return not (roll.by_type and old and new and old.instance_type == new.instance_type)


def _time(start: PodStart, before: Sequence[Typical | None]) -> tuple[str, int]:
    """How long a start takes, after what has to be made before, in words and in seconds (p50)."""
    times = [*before, *(phase.time for phase in phases(start))]
    known = [typical for typical in times if typical]
    low, p50, high = (sum(typical.at(which) for typical in known) for which in PASSES)
    end = End("", "", p50, low, high, tuple(Step(str(place), "", "", None) for place, one in enumerate(times) if one is None))
    if not p50:
        return "a cold start, which has no typical time", 0
    of = f" of {len(known)} of its {len(times)} steps" if end.untimed else ""
    return f"{total(end)} ({'' if duration(low) == duration(high) else f'{spread(end)}, '}by typical times{of})", round(p50)


def started_again(start: PodStart, old: PodStart | None, change: ResourceChange) -> PodStart:
    """Returns the start of a pod where graphs are kept that it finds again; with ``old`` on the node that its predecessor leaves,
    with the image."""
    before, after = (kept(side) for side in (change.before, change.after))
    again = replace(start, compiled=start.compiled or bool(after and before == after))
    if old is None:
        return again
    return replace(again, new_node="", no_node=False, pulled=start.pulled or old.image == start.image)


def _in_its_worker(start: PodStart, old: PodStart | None, change: ResourceChange) -> PodStart:
    """Returns the start of a replica in a Ray worker that stays, with its image and what was downloaded.

    One that compiles counts its download: the time of both together is what was measured.
    """
    assert change.before is not None
    assert change.after is not None
    same = old is not None and old.model_name == start.model_name and _model(change.before) == _model(change.after)
    again = started_again(start, start, change)
    return replace(again, weights_stored=start.weights_stored or (same and again.compiled))


def _model(service: Resource) -> list[Any]:
    """What tells Serve's applications which model, and where it is: their arguments, and variables of our own ones."""
    wanted = [(at(one, "args"), table(at(one, "runtime_env", "env_vars"))) for one in serve_applications(service.inputs)]
    return [(args, {key: value for key, value in has.items() if key.startswith("MODEL_")}) for args, has in wanted]


def kept(resource: Resource | None) -> frozenset[str]:
    """Where a server keeps compiled graphs: another pod of it that names the same places finds them."""
    texts = (leave for leave in leaves(resource.inputs) if isinstance(leave, str)) if resource else ()
    return frozenset(place for one in texts for place in _KEPT.findall(one))
