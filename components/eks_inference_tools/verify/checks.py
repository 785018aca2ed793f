"""From what a stack should be and what a cluster holds to verdicts. Pure: the same two always give the same checks."""

import re
from collections.abc import Iterator

from eks_inference_tools.reading.expected import Expected, ExpectedObject
from eks_inference_tools.reading.kinds import (
    DAEMON_SETS,
    JOBS,
    NODE_CLASSES,
    NODE_POOLS,
    NODES,
    RAY_SERVICES,
    SERVICES,
    STORAGE_CLASSES,
    VOLUME_CLAIMS,
    WORKLOADS,
    subject_of,
)
from eks_inference_tools.reading.kuberay import generated_services
from eks_inference_tools.reading.live_objects import Object, identity_of, is_leaving
from eks_inference_tools.verify import nodes, ray, releases, services
from eks_inference_tools.verify.observed import Observed
from eks_inference_tools.verify.verdicts import Check, Finding, failed, ok, unknown, wait
from eks_inference_tools.verify.workloads import pods_of, strays, strays_finding, workload
from stackgraph.graph.values import text

CLUSTER_AREA = "Cluster"
NODES_AREA = "Nodes"
PODS_AREA = "Other pods"


def judge(expected: Expected, observed: Observed) -> list[Check]:
    """Every check of a stack, in the order of a report."""
    found = [*_cluster(expected, observed), *_nodes(expected, observed)]
    parts = [*_objects(expected, observed), *_packages(expected, observed)]
    order = {area: number for number, area in enumerate(expected.areas)}
    found += sorted(parts, key=lambda check: order[check.area])
    found += _strays(expected, observed)
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
        subject = f"nodes of pool {pool.name}"
        if blocked := observed.unreadable.get(NODES):
            yield Check(NODES_AREA, subject, unknown(blocked.message, blocked.next))
        else:
            yield Check(NODES_AREA, subject, nodes.pool_nodes(pool, observed))


# -- objects of the graph --------------------------------------------------------------------------------------------------------


def _objects(expected: Expected, observed: Observed) -> Iterator[Check]:
    for wanted in expected.objects:
        if not wanted.name:
            yield Check(wanted.area, f"{wanted.subject}?", unknown("only the deployment knows its name"))
            continue
        item = observed.find(wanted.resource, wanted.namespace, wanted.name)
        yield Check(wanted.area, wanted.subject, _object(wanted, item, observed))
        if wanted.resource == STORAGE_CLASSES and services.is_default_class(wanted.manifest):
            yield Check(wanted.area, "default StorageClass", _default_class(wanted, observed))
        elif wanted.resource == DAEMON_SETS and item and nodes.is_neuron_plugin(wanted.namespace, wanted.name):
            yield from _neuron(expected, wanted, item, observed)
        elif wanted.resource == RAY_SERVICES and item:
            yield from _ray(wanted, item, observed)


def _object(wanted: ExpectedObject, item: Object | None, observed: Observed) -> Finding:
    if blocked := observed.unreadable.get(wanted.resource):
        if blocked.reason == "forbidden":
            return unknown(blocked.message, blocked.next)
        return failed("the cluster does not know this kind", "its CustomResourceDefinition", blocked.next)
    if item is None:
        return _absent(wanted)
    if is_leaving(item):
        return failed("it is being deleted", "there", f"kubectl get {wanted.resource} --all-namespaces")
    return _state(wanted, item, observed)


def _absent(wanted: ExpectedObject) -> Finding:
    lifetime = (wanted.manifest.get("spec") or {}).get("ttlSecondsAfterFinished") if wanted.resource == JOBS else None
    if lifetime is not None:
        return ok(f"not there: it removes itself {text(lifetime)} s after its end")
    return failed("not there", "there", "pulumi up --refresh")


def _state(wanted: ExpectedObject, item: Object, observed: Observed) -> Finding:
    if wanted.resource in WORKLOADS:
        return workload(wanted.resource, wanted.manifest, item, observed)
    if wanted.resource in (NODE_CLASSES, NODE_POOLS):
        return nodes.karpenter_object(wanted.resource, item)
    if wanted.resource == RAY_SERVICES:
        return ray.ray_service(wanted.manifest, item)
    if wanted.resource == SERVICES:
        return services.service(wanted.manifest, item, observed)
    if wanted.resource == VOLUME_CLAIMS:
        return services.volume_claim(item)
    if wanted.resource == STORAGE_CLASSES:
        return services.storage_class(wanted.manifest, item)
    return services.namespace(item)


def _default_class(wanted: ExpectedObject, observed: Observed) -> Finding:
    if blocked := observed.unreadable.get(STORAGE_CLASSES):
        return unknown(blocked.message, blocked.next)
    return services.default_storage_class(wanted.name, observed)


def _neuron(expected: Expected, wanted: ExpectedObject, plugin: Object, observed: Observed) -> Iterator[Check]:
    if blocked := observed.unreadable.get(NODES):
        yield Check(wanted.area, "Neuron devices", unknown(blocked.message, blocked.next))
        return
    yield Check(wanted.area, "Neuron plugin on nodes", nodes.plugin_coverage(plugin, observed))
    ready = workload(DAEMON_SETS, wanted.manifest, plugin, observed).verdict == "ok"
    for pool in expected.pools:
        finding = nodes.devices(nodes.members(pool, observed), ready)
        if finding is not None:
            yield Check(wanted.area, f"Neuron devices of pool {pool.name}", finding)


def _ray(wanted: ExpectedObject, item: Object, observed: Observed) -> Iterator[Check]:
    for part, finding in ray.ray_groups(wanted.manifest, item, observed):
        yield Check(wanted.area, f"{wanted.namespace}/{wanted.name} {part}", finding)
    for name in generated_services(wanted.name):
        yield Check(wanted.area, subject_of(SERVICES, wanted.namespace, name), _generated_service(wanted, name, observed))


def _generated_service(wanted: ExpectedObject, name: str, observed: Observed) -> Finding:
    if blocked := observed.unreadable.get(SERVICES):
        return unknown(blocked.message, blocked.next)
    item = observed.find(SERVICES, wanted.namespace, name)
    if item is None:
        describe = f"kubectl -n {wanted.namespace} describe rayservice {wanted.name}"
        return wait("not there yet", "KubeRay makes it when the Ray cluster is ready", describe)
    return services.service({}, item, observed)


# -- charts and add-ons ----------------------------------------------------------------------------------------------------------


def _packages(expected: Expected, observed: Observed) -> Iterator[Check]:
    for release in expected.releases:
        yield Check(release.area, f"Helm release {release.namespace}/{release.name}", releases.release(release, observed))
    for addon in expected.addons:
        yield Check(addon.area, f"add-on {addon.name}", releases.addon(addon, expected.cluster, observed))


# -- pods that controllers made --------------------------------------------------------------------------------------------------


def _strays(expected: Expected, observed: Observed) -> Iterator[Check]:
    """Pods in the stack's own namespaces that no check above looks at: of operators, or of somebody's hand."""
    claimed = {identity_of(pod) for pod in _claimed(expected, observed)}
    for namespace in expected.namespaces():
        finding = strays_finding(strays(namespace, claimed, observed))
        if finding is not None:
            yield Check(PODS_AREA, f"namespace {namespace}", finding)


def _claimed(expected: Expected, observed: Observed) -> Iterator[Object]:
    for wanted in expected.objects:
        item = observed.find(wanted.resource, wanted.namespace, wanted.name)
        if item is not None and wanted.resource in WORKLOADS:
            yield from pods_of(wanted.resource, item, observed)
        elif item is not None and wanted.resource == RAY_SERVICES:
            yield from ray.ray_pods(item, observed)
    for release in expected.releases:
        for resource, item in releases.release_workloads(release, observed):
            yield from pods_of(resource, item, observed)
    for addon in expected.addons:
        for resource, item in releases.addon_workloads(addon, observed):
            yield from pods_of(resource, item, observed)
