"""Compares the expected state of a stack with the observed state of a cluster. Pure: equal inputs give equal checks."""

import re
from collections.abc import Callable, Iterator, Mapping

from eks_inference_tools.reading.expected import Expected, ExpectedObject
from eks_inference_tools.reading.live_objects import Object, identity_of, is_leaving
from eks_inference_tools.reading.object_kinds import (
    DAEMON_SETS,
    JOBS,
    NAMESPACES,
    NODE_CLASSES,
    NODE_POOLS,
    NODES,
    RAY_SERVICES,
    SERVICES,
    STORAGE_CLASSES,
    VOLUME_CLAIMS,
    WORKLOADS,
    generated_services,
    is_default_class,
    subject_of,
)
from eks_inference_tools.verify import node_checks, ray_checks, release_checks
from eks_inference_tools.verify.observed import Check, Finding, Observed, failed, ok, unknown, wait
from eks_inference_tools.verify.workload_checks import other_pods, pods_of, workload
from stackgraph.graph.values import text

CLUSTER_AREA = "Cluster"
NODES_AREA = "Nodes"
PODS_AREA = "Other pods"


def judge(expected: Expected, observed: Observed) -> list[Check]:
    """Returns every check of a stack, in report order."""
    found = [*_cluster(expected, observed), *_nodes(expected, observed)]
    parts = [*_objects(expected, observed), *_packages(expected, observed)]
    order = {area: number for number, area in enumerate(expected.areas)}
    found += sorted(parts, key=lambda check: order[check.area])
    found += _other_pods(expected, observed)
    return found


def _cluster(expected: Expected, observed: Observed) -> Iterator[Check]:
    version = observed.server_version
    minor = re.match(r"v?(\d+\.\d+)", version)
    if not expected.version or (minor and minor[1] == expected.version):
        finding = ok(version)
    else:
        finding = failed(version or "no version", f"Kubernetes {expected.version}", "pulumi up")
    yield Check(CLUSTER_AREA, "Kubernetes API", finding)


def _nodes(expected: Expected, observed: Observed) -> Iterator[Check]:
    for pool in expected.pools:
        yield Check(NODES_AREA, f"nodes of pool {pool.name}", observed.gap(NODES) or node_checks.pool_nodes(pool, observed))


# -- objects of the graph --------------------------------------------------------------------------------------------------------


def _objects(expected: Expected, observed: Observed) -> Iterator[Check]:
    for wanted in expected.objects:
        if not wanted.name:
            yield Check(wanted.area, f"{wanted.subject}?", unknown("its name is only known after deployment"))
            continue
        item = observed.find(wanted.resource, wanted.namespace, wanted.name)
        yield Check(wanted.area, wanted.subject, _object(wanted, item, observed))
        if wanted.resource == STORAGE_CLASSES and is_default_class(wanted.manifest):
            default = observed.gap(STORAGE_CLASSES) or release_checks.default_storage_class(wanted.name, observed)
            yield Check(wanted.area, "default StorageClass", default)
        elif wanted.resource == DAEMON_SETS and item and node_checks.is_neuron_plugin(wanted.namespace, wanted.name):
            yield from _neuron(expected, wanted, item, observed)
        elif wanted.resource == RAY_SERVICES and item:
            yield from _ray(wanted, item, observed)


def _object(wanted: ExpectedObject, item: Object | None, observed: Observed) -> Finding:
    if blocked := observed.unreadable.get(wanted.resource):
        if blocked.reason == "forbidden":
            return unknown(blocked.message, blocked.next)
        return failed("the cluster does not have this kind", "its CustomResourceDefinition", blocked.next)
    if item is None:
        return _absent(wanted)
    if is_leaving(item):
        return failed("it is being deleted", "there", f"kubectl get {wanted.resource} --all-namespaces")
    return _CHECKS[wanted.resource](wanted, item, observed)


def _absent(wanted: ExpectedObject) -> Finding:
    lifetime = (wanted.manifest.get("spec") or {}).get("ttlSecondsAfterFinished") if wanted.resource == JOBS else None
    if lifetime is not None:
        return ok(f"not there: it removes itself {text(lifetime)} s after completion")
    return failed("not there", "there", "pulumi up --refresh")


_CHECKS: Mapping[str, Callable[[ExpectedObject, Object, Observed], Finding]] = {
    **dict.fromkeys(WORKLOADS, lambda wanted, item, observed: workload(wanted.resource, wanted.manifest, item, observed)),
    **dict.fromkeys((NODE_CLASSES, NODE_POOLS), lambda wanted, item, _: node_checks.karpenter_object(wanted.resource, item)),
    NAMESPACES: lambda _, item, __: release_checks.namespace(item),
    RAY_SERVICES: lambda wanted, item, _: ray_checks.ray_service(wanted.manifest, item),
    SERVICES: lambda wanted, item, observed: release_checks.service(wanted.manifest, item, observed),
    STORAGE_CLASSES: lambda wanted, item, _: release_checks.storage_class(wanted.manifest, item),
    VOLUME_CLAIMS: lambda _, item, __: release_checks.volume_claim(item),
}
"""The check of an object that exists, by resource."""


def _neuron(expected: Expected, wanted: ExpectedObject, plugin: Object, observed: Observed) -> Iterator[Check]:
    if gap := observed.gap(NODES):
        yield Check(wanted.area, "Neuron devices", gap)
        return
    yield Check(wanted.area, "Neuron plugin on nodes", node_checks.plugin_coverage(plugin, observed))
    ready = workload(DAEMON_SETS, wanted.manifest, plugin, observed).verdict == "ok"
    for pool in expected.pools:
        finding = node_checks.devices(node_checks.members(pool, observed), ready)
        if finding is not None:
            yield Check(wanted.area, f"Neuron devices of pool {pool.name}", finding)


def _ray(wanted: ExpectedObject, item: Object, observed: Observed) -> Iterator[Check]:
    for part, finding in ray_checks.ray_groups(wanted.manifest, item, observed):
        yield Check(wanted.area, f"{wanted.namespace}/{wanted.name} {part}", finding)
    for name in generated_services(wanted.name):
        service = observed.find(SERVICES, wanted.namespace, name)
        describe = f"kubectl -n {wanted.namespace} describe rayservice {wanted.name}"
        absent = wait("not there yet", "KubeRay creates it when the Ray cluster is ready", describe)
        finding = observed.gap(SERVICES) or (release_checks.service({}, service, observed) if service else absent)
        yield Check(wanted.area, subject_of(SERVICES, wanted.namespace, name), finding)


# -- charts and add-ons ----------------------------------------------------------------------------------------------------------


def _packages(expected: Expected, observed: Observed) -> Iterator[Check]:
    for release in expected.releases:
        yield Check(release.area, f"Helm release {release.namespace}/{release.name}", release_checks.release(release, observed))
    for addon in expected.addons:
        yield Check(addon.area, f"add-on {addon.name}", release_checks.addon(addon, expected.cluster, observed))


# -- other pods ------------------------------------------------------------------------------------------------------------------


def _other_pods(expected: Expected, observed: Observed) -> Iterator[Check]:
    """Checks pods in the stack's namespaces that no other check covers: those that operators or people created."""
    claimed = {identity_of(pod) for pod in _claimed(expected, observed)}
    for namespace in expected.namespaces():
        if finding := other_pods(namespace, claimed, observed):
            yield Check(PODS_AREA, f"namespace {namespace}", finding)


def _claimed(expected: Expected, observed: Observed) -> Iterator[Object]:
    for wanted in expected.objects:
        item = observed.find(wanted.resource, wanted.namespace, wanted.name)
        if item is not None and wanted.resource in WORKLOADS:
            yield from pods_of(wanted.resource, item, observed)
        elif item is not None and wanted.resource == RAY_SERVICES:
            yield from ray_checks.ray_pods(item, observed)
    for release in expected.releases:
        for resource, item in release_checks.release_workloads(release, observed):
            yield from pods_of(resource, item, observed)
    for addon in expected.addons:
        for resource, item in release_checks.addon_workloads(addon, observed):
            yield from pods_of(resource, item, observed)
