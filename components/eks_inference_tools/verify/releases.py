"""Checks Helm releases and EKS add-ons, each with its workloads."""

from collections.abc import Iterator
from dataclasses import replace

from eks_inference_tools.reading.expected import ExpectedAddon, ExpectedRelease
from eks_inference_tools.reading.kinds import KINDS, WORKLOADS, subject_of
from eks_inference_tools.reading.live_objects import Object, annotations_of, labels_of, name_of
from eks_inference_tools.verify.observed import Finding, Observed, failed, ok, unknown, wait, worst
from eks_inference_tools.verify.workloads import workload
from stackgraph.graph.values import text

_IN_PROGRESS = ("pending-install", "pending-upgrade", "pending-rollback", "uninstalling")


def release(wanted: ExpectedRelease, observed: Observed) -> Finding:
    """Checks Helm's record, the chart version, and every workload that Helm annotated as part of this release."""
    made = list(release_workloads(wanted, observed))
    findings = [_recorded(wanted, made, observed), *_chart(wanted, made)]
    findings += [gap for kind in WORKLOADS if (gap := observed.gap(kind))]
    return worst([*findings, *(_part(resource, item, observed) for resource, item in made)])


def release_workloads(wanted: ExpectedRelease, observed: Observed) -> Iterator[tuple[str, Object]]:
    """Yields workloads with the annotations that Helm sets on all objects of a release."""
    mark = {"meta.helm.sh/release-name": wanted.name, "meta.helm.sh/release-namespace": wanted.namespace}
    for resource in WORKLOADS:
        for item in observed.all(resource):
            if mark.items() <= annotations_of(item).items():
                yield resource, item


def _recorded(wanted: ExpectedRelease, made: list[tuple[str, Object]], observed: Observed) -> Finding:
    history = f"helm -n {wanted.namespace} history {wanted.name}"
    if observed.releases is None:
        found = "its record is a Secret you may not read"
        return ok(found) if made else unknown(found, history)
    record = observed.releases.get((wanted.namespace, wanted.name))
    if record is None:
        return failed("not installed", f"{wanted.chart} {wanted.version}", "pulumi up --refresh")
    if record.status == "deployed":
        return ok(f"deployed, revision {record.revision}")
    found = f"revision {record.revision} is {record.status}"
    return wait(found, "deployed", history) if record.status in _IN_PROGRESS else failed(found, "deployed", history)


def _chart(wanted: ExpectedRelease, made: list[tuple[str, Object]]) -> Iterator[Finding]:
    """Checks the version in the label ``helm.sh/chart``, a convention of charts. Subcharts have their own name in it."""
    for resource, item in made:
        name, _, version = text(labels_of(item).get("helm.sh/chart")).rpartition(f"{wanted.chart}-")
        # Labels cannot contain a plus sign, so Helm's convention replaces it by an underscore.
        if not name and version[:1].isdigit() and version != wanted.version.replace("+", "_"):
            found = f"{KINDS[resource]} {name_of(item)} has chart version {version}"
            yield failed(found, wanted.version, f"helm -n {wanted.namespace} history {wanted.name}")


def addon(wanted: ExpectedAddon, cluster: str, observed: Observed) -> Finding:
    """Checks the workloads that an add-on is known to run."""
    findings = []
    for resource, namespace, name in wanted.workloads:
        if gap := observed.gap(resource):
            findings.append(gap)
        elif item := observed.find(resource, namespace, name):
            findings.append(_part(resource, item, observed))
        else:
            describe = f"aws eks describe-addon --cluster-name {cluster} --addon-name {wanted.name}"
            findings.append(failed(f"there is no {subject_of(resource, namespace, name)}", "the add-on's workloads", describe))
    return worst(findings)


def _part(resource: str, item: Object, observed: Observed) -> Finding:
    state = workload(resource, item, item, observed)
    return replace(state, found=f"{KINDS[resource]} {name_of(item)} {state.found}")


def addon_workloads(wanted: ExpectedAddon, observed: Observed) -> Iterator[tuple[str, Object]]:
    for resource, namespace, name in wanted.workloads:
        if (item := observed.find(resource, namespace, name)) is not None:
            yield resource, item
