"""Finds changes to clusters, nodes, models and servers that a reviewer must not miss, and what pods need beside nodes: values of
their environment, and disks.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from eks_inference.catalog.charts import charts
from eks_inference_tools.reading.admission import let_in_no_more
from eks_inference_tools.reading.autoscalers import autoscalers
from eks_inference_tools.reading.cluster_words import NodeCapacity
from eks_inference_tools.reading.clusters import CLUSTER_TYPE, PLATFORM, REMOTE_CLUSTER_TYPE, public_networks
from eks_inference_tools.reading.devices import OFFERED_BY, shown
from eks_inference_tools.reading.endpoints import Endpoint
from eks_inference_tools.reading.graph_facts import GraphFacts
from eks_inference_tools.reading.machines import SUBNET_TYPE
from eks_inference_tools.reading.node_groups import NODE_GROUP_TYPE
from eks_inference_tools.reading.node_pools import NODE_CLASS_TYPE, NODE_POOL_TYPE
from eks_inference_tools.reading.object_kinds import group_kind, name_of, namespace_of, nodes_of, replicas, title, title_of
from eks_inference_tools.reading.pod_templates import PodTemplate, pod_templates
from eks_inference_tools.reading.releases import ADDON_TYPE, CHART_TYPES, Addon, chart_of
from eks_inference_tools.reading.rollouts import Then, follows, surges
from eks_inference_tools.reading.scalars import is_true, quantity, whole
from eks_inference_tools.reading.stack_sections import Overview, overview_of
from stackgraph.diff.comparison_domain import Danger, Weight
from stackgraph.diff.dangers import is_wide, newly_reached
from stackgraph.diff.graphs import ResourceChange, StackDiff
from stackgraph.graph.describe import is_kubernetes_object
from stackgraph.graph.document import Graph, Resource
from stackgraph.graph.values import at, grouped, is_token, items, table, text, unique
from stackgraph.graph.wording import counted
from stackgraph.state.engine_steps import deletes_first

_VALUES = {"configMapRef": "ConfigMap", "configMapKeyRef": "ConfigMap", "secretRef": "Secret", "secretKeyRef": "Secret"}
_STORED = ("spec", "resources", "requests", "storage")

_CLUSTER_TYPES = (CLUSTER_TYPE, REMOTE_CLUSTER_TYPE)
_VPC = "aws:ec2/vpc:Vpc"
_NODE_TYPES = (NODE_GROUP_TYPE, NODE_POOL_TYPE, NODE_CLASS_TYPE)


def needs(diff: StackDiff) -> Iterator[Danger]:
    """Values that no pod reads before it restarts, or that pods still ask for; disks that stay as they are, or with one pod."""
    assert diff.head is not None
    objects = {(group_kind(resource)[1], namespace_of(resource), name_of(resource)): resource for resource in diff.head.resources}
    using = grouped(
        ((kind, pods.given_namespace, name), pods)
        for pods in pod_templates(diff.head)
        if diff.by_urn[pods.urn].kind in ("same", "dependencies")
        for kind, name in _in_environment(pods)
    )
    for change in diff.changes:
        kind, subject = group_kind(change.resource)[1], title_of(change.resource)
        key = (kind, namespace_of(change.resource), name_of(change.resource))
        if asking := using.get(key, ()) if change.before else ():
            gone = key not in objects and not change.resource.options.get("retainOnDelete")
            changed = any(one.path[0] in ("data", "stringData", "binaryData") for one in change.properties)
            told = asking if gone else [one for one in asking if changed and not _reloaded(one, key[2])]
            pods = told[0].title + (f" and {len(told) - 1} more" if told[1:] else "") if told else ""
            if gone:
                what = f"{subject} is deleted, and pods of {pods} ask for it: none of them starts again"
                yield Danger("deleted", what, change.urn, Weight.DELETED)
            elif told:
                what = f"{subject}: the pods of {pods} keep the old values until they restart"
                yield Danger("without-effect", what, change.urn, Weight.REFUSED, subject)
        elif kind == "PersistentVolumeClaim" and change.kind == "update" and change.before:
            name = at(change.resource.inputs, "spec", "storageClassName")
            old, new = (quantity(at(resource.inputs, *_STORED)) for resource in (change.before, change.resource))
            class_ = objects.get(("StorageClass", "", text(name)))
            if old and new and new > old and class_ and not class_.inputs.get("allowVolumeExpansion"):
                what = f"{subject}: its class {name} lets no claim grow, and the API server refuses"
                yield Danger("refused", what, change.urn, Weight.REFUSED, subject)
        elif kind == "Deployment" and (held := _held(change, objects)):
            what = f"{subject} may wait for ever, and `pulumi up` fail: its new pod starts while the old one holds {held}"
            yield Danger("claim-held", what, change.urn, Weight.UNSURE, subject, avoid=f"{subject}: strategy Recreate")


def _in_environment(pods: PodTemplate) -> set[tuple[str, str]]:
    """Kind and name of each ConfigMap and Secret that the variables of containers come from."""
    documents = [container.document for container in pods.containers]
    sources = [
        one for each in documents for one in (*items(at(each, "envFrom")), *(at(e, "valueFrom") for e in items(at(each, "env"))))
    ]
    found = ((kind, at(source, key)) for source in sources for key, kind in _VALUES.items())
    return {(kind, text(at(one, "name"))) for kind, one in found if one and not at(one, "optional")}


def _reloaded(pods: PodTemplate, name: str) -> bool:
    """Whether Stakater's Reloader restarts the pods when these values change (its README, Annotations)."""
    given = {**table(at(pods.template, "metadata", "annotations")), **table(at(pods.owner.inputs, "metadata", "annotations"))}
    return any(
        "reloader.stakater.com/" in key and (value == "true" or name in map(str.strip, text(value).split(",")))
        for key, value in given.items()
    )


def _held(change: ResourceChange, objects: Any) -> str:
    """A disk of one node (Kubernetes, Persistent Volumes, access modes), which the pods of an update need at once."""
    spec = change.resource.inputs.get("spec")
    for item in items(at(spec, "template", "spec", "volumes")) if surges(change, whole(at(spec, "replicas")) or 1) else ():
        name = text(at(item, "persistentVolumeClaim", "claimName"))
        claim = objects.get(("PersistentVolumeClaim", namespace_of(change.resource), name))
        if claim and at(claim.inputs, "spec", "accessModes") in (["ReadWriteOnce"], ["ReadWriteOncePod"]):
            return f"the disk of {title_of(claim)}, which goes with no pod to another node"
    return ""


def dangers(diff: StackDiff) -> Iterator[Danger]:
    """The dangers in the changes of a stack that both sides have, in the order in which they are shown."""
    yield from _versions(diff)
    yield from _moved(diff)
    yield from _gone(diff)
    yield from _without_devices(diff)
    yield from newly_reached(diff, _who_reaches_a_cluster)
    if not cluster_is_refused(diff):
        yield from let_in_no_more(diff)
        yield from needs(diff)
        yield from _after_updates(diff)
        yield from _scaled(diff)
    if diff.base is not None and diff.head is not None:
        yield from _of_facts(overview_of(diff.base), overview_of(diff.head))


# -- resources -------------------------------------------------------------------------------------------------------------------


def _gone(diff: StackDiff) -> Iterator[Danger]:
    gone = (*diff.of_kind("replace"), *diff.of_kind("delete"))
    be = "would be" if cluster_is_refused(diff) else "are"
    for change in sorted(gone, key=lambda one: one.resource.type != _VPC):  # all that is in it goes with it
        name, type_ = change.resource.name, change.resource.type
        because = ", ".join(change.because[:3])
        if type_ in _CLUSTER_TYPES and change.kind == "replace":
            what = f"cluster {name} is replaced, with all that runs in it ({because})"
            yield Danger("cluster-replaced", what, change.urn, Weight.REPLACED, effects=("outage", "loss"))
        elif type_ == _VPC and change.kind == "replace" and not cluster_is_refused(diff):
            what = f"network {name} is replaced, with all that stands in it ({because})"
            yield Danger("network-replaced", what, change.urn, Weight.REPLACED, effects=("outage",))
        elif type_ in _CLUSTER_TYPES:
            yield Danger("cluster-deleted", f"cluster {name} is deleted", change.urn, Weight.DELETED, effects=("outage", "loss"))
        elif type_ in _NODE_TYPES and change.kind == "replace":
            what = f"{nodes_of(change.resource)} {be} replaced ({because})"
            yield Danger("nodes-replaced", what, change.urn, Weight.REPLACED, nodes_of(change.resource))
        elif group_kind(change.resource)[1] in ("Job", "RayJob") and change.kind == "replace":
            yield Danger("job-again", f"{title_of(change.resource)} runs again ({because})", change.urn, Weight.REPLACED)
        elif change.kind == "replace" and deletes_first(change) and (held := _holding(diff, change.resource)):
            what = f"{title_of(change.resource)} stays while {held} uses it, and `pulumi up` fails: it deletes the claim first"
            yield Danger("refused", what, change.urn, Weight.REFUSED)
        elif type_ in CHART_TYPES:
            yield from _defined_by(diff, change)
        elif type_ == ADDON_TYPE and change.kind == "delete" and (without := _without_addon(diff, Addon(change.resource))):
            yield Danger("addon-deleted", without, change.urn, Weight.DELETED)
        elif type_ in _NODE_TYPES:
            what = f"{nodes_of(change.resource)} {be} deleted"
            yield Danger("nodes-deleted", what, change.urn, Weight.DELETED, nodes_of(change.resource))


def _defined_by(diff: StackDiff, change: ResourceChange) -> Iterator[Danger]:
    """What a chart's definitions keep out or take along (Helm, pkg/action/validate.go: checkOwnership; uninstall.go)."""
    known, title = charts().get(chart_of(change.resource).name), f"Release {chart_of(change.resource).release}"
    defines = known.defines if known else ()
    stay = [resource for resource in (diff.head.resources if diff.head else ()) if resource.provider == change.resource.provider]
    inside = [title_of(resource) for resource in stay if is_kubernetes_object(resource) and group_kind(resource)[0] in defines]
    if defines and change.kind == "replace" and not deletes_first(change):
        what = f"{title}: Helm refuses a second one while the definitions of {', '.join(defines)} are of the first"
        yield Danger("refused", what, change.urn, Weight.REPLACED)
    elif inside:
        objects = inside[0] + (f" and {len(inside) - 1} more" if inside[1:] else "")
        what = f"{title} is deleted with the definitions of what stays in the program, {objects}: only `pulumi refresh` notices"
        nodes = any(resource.type == NODE_POOL_TYPE for resource in stay)
        yield Danger("deleted-with", what, change.urn, Weight.DELETED, effects=("outage",) if nodes else ())


def _without_addon(diff: StackDiff, addon: Addon) -> str:
    """What is missing without an add-on, if neither its software nor another resource of its name stays."""
    stays = any(Addon(resource).name == addon.name for resource in (diff.head.of_type(ADDON_TYPE) if diff.head else ()))
    without = table(addon.runs).get("without")
    kept = stays or not without or is_true(addon.resource.inputs.get("preserve"))
    return "" if kept else f"add-on {addon.name} is deleted: {without}"


def _holding(diff: StackDiff, claim: Resource) -> str:
    """What has pods before and after that use a claim, also ended ones: they keep it (kubernetes, pvcprotection, podUsesPVC)."""
    mounted = ("persistentVolumeClaim", "claimName")
    return next(
        (
            pods.title
            for pods in (pod_templates(diff.head) if diff.head and group_kind(claim)[1] == "PersistentVolumeClaim" else ())
            if pods.kind != "CronJob"
            and pods.namespace == (namespace_of(claim) or "default")
            and diff.by_urn[pods.urn].kind in ("same", "update")
            and any(at(item, *mounted) == name_of(claim) for item in items(at(pods.template, "spec", "volumes")))
        ),
        "",
    )


def _without_devices(diff: StackDiff) -> Iterator[Danger]:
    """Devices that nothing offers any more (Kubernetes, Device Plugins; dynamic resource allocation)."""
    assert diff.base is not None
    assert diff.head is not None
    before, after = GraphFacts(diff.base), GraphFacts(diff.head)
    gone = {change.urn for change in diff.of_kind("delete")}
    for resource in OFFERED_BY if gone else ():
        asking = unique(pod.title for pod in after.pods if resource in pod.requests)
        offered = [(one.urn, title) for one, title, _ in before.offering(resource) if one.urn in gone]
        if asking and offered and not any(after.offering(resource)):
            ((urn, title), *_), (one, *more) = offered, asking
            pods = one + (f" and {len(more)} more" if more else "")
            what = f"{title} is deleted, and nothing offers {shown(resource)} any more: none of the pods of {pods} starts again"
            yield Danger("devices-gone", what, urn, Weight.DELETED)


_FAILS = ": `pulumi up` fails there, and what needs the cluster stays as it is"


def cluster_is_refused(diff: StackDiff) -> bool:
    """Whether EKS refuses the change of a cluster, so that nothing that needs it is updated."""
    return any(danger.kind == "refused" for danger in (*_versions(diff), *_moved(diff)))


def _versions(diff: StackDiff) -> Iterator[Danger]:
    """Control planes are upgraded one minor version at a time and never downgraded (EKS API, UpdateClusterVersion)."""
    for change in diff.changes:
        if change.resource.type not in _CLUSTER_TYPES or change.before is None or change.after is None:
            continue
        old, new = (text(side.inputs.get("version")).split(".") for side in (change.before, change.after))
        if len(old) == len(new) == 2 and all(part.isdecimal() for part in (*old, *new)):
            step = int(new[1]) - int(old[1])
            if old[0] != new[0] or step < 0 or step > 1:
                what = f"cluster {change.resource.name}: EKS rejects a change from {'.'.join(old)} to {'.'.join(new)}{_FAILS}"
                yield Danger("refused", what, change.urn, Weight.REPLACED)
            elif step:
                what = f"cluster {change.resource.name} goes to {'.'.join(new)} for good: EKS never goes back to {'.'.join(old)}"
                yield Danger("no-way-back", what, change.urn, Weight.UNPROTECTED)


def _moved(diff: StackDiff) -> Iterator[Danger]:
    """Control planes keep their VPC and their set of zones (EKS API, UpdateClusterConfig; aws/containers-roadmap#170, #2258)."""
    for change in diff.changes:
        stays = change.resource.type in _CLUSTER_TYPES and change.kind != "replace"
        if not stays or change.before is None or change.after is None:
            continue
        sides = ((diff.base, change.before), (diff.head, change.after))
        (old, vpcs), (new, _) = (_surroundings(graph, cluster) for graph, cluster in sides if graph is not None)
        anew = [diff.by_urn[urn] for urn in vpcs if diff.by_urn[urn].kind == "replace"]
        if any("region" in resource_change.because for resource_change in anew):
            what = f"cluster {change.resource.name} is replaced, with all that runs in it (region)"
            yield Danger("cluster-replaced", what, change.urn, Weight.REPLACED, effects=("outage", "loss"))
        elif anew:
            what = f"cluster {change.resource.name}: EKS moves no cluster to another VPC, and its own is replaced{_FAILS}"
            yield Danger("refused", what, change.urn, Weight.REPLACED)
        elif old and new and old != new:
            zones = " to ".join(", ".join(sorted(zones)) for zones in (old, new))
            what = f"cluster {change.resource.name}: EKS rejects a change of the control plane's zones from {zones}{_FAILS}"
            yield Danger("refused", what, change.urn, Weight.REPLACED)


def _surroundings(graph: Graph, cluster: Resource) -> tuple[frozenset[str], tuple[str, ...]]:
    """The zones of a control plane, empty when one is unknown, and the VPCs of the program that it refers to."""
    found = [graph.by_urn[urn] for urns in cluster.property_dependencies.values() for urn in urns if urn in graph.by_urn]
    subnets = [resource for resource in found if resource.type == SUBNET_TYPE]
    zones = frozenset(text(at(one.inputs, "availabilityZoneId") or at(one.inputs, "availabilityZone")) for one in subnets)
    around = [urn for subnet in subnets for urn in subnet.property_dependencies.get("vpcId", ())]
    vpcs = unique(resource.urn for resource in (*found, *(graph.by_urn[urn] for urn in around)) if resource.type == _VPC)
    return frozenset() if any(not zone or is_token(zone) for zone in zones) else zones, vpcs


def _who_reaches_a_cluster(resource: Resource) -> Iterator[str]:
    """Wide networks from which the API of a cluster is reachable."""
    if resource.type in _CLUSTER_TYPES:
        yield from filter(is_wide, public_networks(resource) or ())


def _after_updates(diff: StackDiff) -> Iterator[Danger]:
    """What the table of ``after_update.toml`` says of a changed property: what is refused or left undone comes first."""
    for change in diff.changes:
        told = grouped((row, one) for row, one in follows(change) if row.says)
        for row, (one, *_) in told.items():
            subject = title_of(change.resource)
            path = ".".join(map(str, row.named(change.resource.type, one.path) or one.path))
            says = row.says.format(before=text(one.before), after=text(one.after), path=path)
            weight = Weight.UNPROTECTED if row.then == "final" else Weight.REFUSED
            yield Danger(_KINDS[row.then], f"{subject}: {says}", change.urn, weight, subject)


def _scaled(diff: StackDiff) -> Iterator[Danger]:
    """What has as many pods as its object says once no autoscaler has the say, and fewer replicas of Ray Serve."""
    before, after = ({one.target: one for one in autoscalers(graph)} if graph else {} for graph in (diff.base, diff.head))
    for change in diff.changes:
        target = (namespace_of(change.resource), group_kind(change.resource)[1], name_of(change.resource))
        if change.before is None or change.after is None:
            continue
        fewer = list[str]()
        if target in before and target not in after:
            pods, old = whole(at(change.after.inputs, "spec", "replicas")), before[target]
            pods = 1 if pods is None else pods
            if old.most is None or pods < old.most:
                fewer.append(f"{counted(pods, 'pod')} instead of {old.bounds} by {old.by}")
        elif target[1] == "RayService":
            old, new = (replicas(side.inputs) for side in (change.before, change.after))
            less = [(of, now, most) for of, most in old.items() if (now := new.get(of)) is not None and now < most]
            fewer += [f"at most {counted(now, 'replica')} of {of} instead of {most}" for of, now, most in less]
        subject = title_of(change.resource)
        yield from (Danger("capacity-down", f"{subject}: {what}", change.urn, subject=subject) for what in fewer)


_KINDS: Mapping[Then, str] = {"refused": "refused", "ignored": "without-effect", "scale": "capacity-down", "final": "no-way-back"}


# -- models, workloads and capacity ----------------------------------------------------------------------------------------------


def _of_facts(before: Overview, after: Overview) -> Iterator[Danger]:
    was_open = {(e.kind, e.namespace, e.name) for e in before.endpoints if _is_open(e)}
    for endpoint in after.endpoints:
        if _is_open(endpoint) and (endpoint.kind, endpoint.namespace, endpoint.name) not in was_open:
            what = f"{title(endpoint.kind, endpoint.namespace, endpoint.name)} is reachable from outside the cluster"
            yield Danger("opened", f"{what} ({endpoint.type})", endpoint.urn)
    for old, new in _pairs({m.owner: m for m in before.models}, {m.owner: m for m in after.models}):
        if old.model != new.model:
            yield Danger("model-changed", f"{new.owner} serves {new.model} instead of {old.model}", subject=new.owner)
        task, other = (one.settings.get("task", "the model's own") for one in (new, old))
        if task != other:
            what = f"{new.owner} has another task ({other} → {task}): clients ask it at other paths"
            yield Danger("task-changed", what, subject=new.owner)
    for old, new in _pairs({c.urn: c for c in before.capacity}, {c.urn: c for c in after.capacity}):
        yield from _of_nodes(old, new)
    workloads = ({(w.urn, w.part): w for w in facts.workloads} for facts in (before, after))
    for old, new in _pairs(*workloads):
        if new.kind != "Job" and old.pods is not None and new.pods is not None and new.pods < old.pods:
            ends = ("outage",) if new.accelerators and not new.pods else ()
            yield Danger("capacity-down", f"{new.title}: {counted(new.pods, 'pod')} instead of {old.pods}", new.urn, effects=ends)


def _is_open(endpoint: Endpoint) -> bool:
    return endpoint.outside and "internal" not in endpoint.type


def _of_nodes(old: NodeCapacity, new: NodeCapacity) -> Iterator[Danger]:
    subject = f"nodes of {new.name}"
    kinds = ((*old.instance_types, *old.families), (*new.instance_types, *new.families))
    if {*kinds[0]} - {*kinds[1]}:
        was, now = (", ".join(kind) or "any" for kind in kinds)
        yield Danger("instance-type-changed", f"{subject}: {now} instead of {was}", new.urn, subject=subject)
    if old.nodes is not None and new.nodes is not None and new.nodes < old.nodes:
        which = "empty ones first" if new.manager == "Karpenter" else "any of them"  # Karpenter, static/utils.go
        what = f"{subject}: {new.nodes} instead of {old.nodes}; pods of those that end, {which}, start again elsewhere"
        yield Danger("capacity-down", what, new.urn, subject=subject)
    for resource, limit in table(old.limits).items():
        now = table(new.limits).get(resource)
        if text(now).isdecimal() and text(limit).isdecimal() and int(text(now)) < int(text(limit)):
            yield Danger("capacity-down", f"{subject}: at most {now} {resource} instead of {limit}", new.urn, subject=subject)


def _pairs(before: Mapping[Any, Any], after: Mapping[Any, Any]) -> list[tuple[Any, Any]]:
    return [(before[key], after[key]) for key in after if key in before]


def resolved_otherwise(diff: StackDiff) -> Iterator[Danger]:
    """Yields each open key whose value changes, with the row or rule that decides now."""
    if diff.base is None or diff.head is None:
        return
    before = dict(_resolved(diff.base))
    for urn, after in _resolved(diff.head):
        for path, now in after.items():
            was = table(before.get(urn, {})).get(path)
            if was is not None and table(was).get("value") != table(now).get("value"):
                values = " instead of ".join(json.dumps(table(one).get("value"), ensure_ascii=False) for one in (now, was))
                what = f"the stack file leaves {path} open: it resolves to {values} ({text(table(now).get('why'))})"
                yield Danger("resolved-otherwise", what, urn)


def _resolved(graph: Graph) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """What the platforms of a program resolved, by URN."""
    for resource in graph.of_type(PLATFORM):
        yield resource.urn, table(resource.inputs.get("resolved"))
