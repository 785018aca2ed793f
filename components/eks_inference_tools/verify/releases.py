"""What arrives as one thing and consists of many: Helm releases and EKS add-ons."""

from collections.abc import Iterator

from eks_inference_tools.reading.expected import ExpectedAddon, ExpectedRelease
from eks_inference_tools.reading.kinds import KINDS, WORKLOADS, subject_of
from eks_inference_tools.reading.live_objects import Object, annotations_of, labels_of, name_of
from eks_inference_tools.verify.observed import Observed
from eks_inference_tools.verify.verdicts import Finding, failed, ok, unknown, wait, worst
from eks_inference_tools.verify.workloads import workload
from stackgraph.graph.values import text

_GOING_ON = ("pending-install", "pending-upgrade", "pending-rollback", "uninstalling")


def release(wanted: ExpectedRelease, observed: Observed) -> Finding:
    """Helm's own record, the chart's version, and every workload that Helm marked as made by this release."""
    made = list(release_workloads(wanted, observed))
    findings = [_recorded(wanted, made, observed), *_chart(wanted, made)]
    findings += [unknown(blocked.message, blocked.next) for kind in WORKLOADS if (blocked := observed.unreadable.get(kind))]
    for resource, item in made:
        state = workload(resource, item, item, observed)
        found = f"{KINDS[resource]} {name_of(item)} {state.found}"
        findings.append(Finding(state.verdict, found, state.expected, state.next))
    return worst(findings)


def release_workloads(wanted: ExpectedRelease, observed: Observed) -> Iterator[tuple[str, Object]]:
    """Workloads with the annotations that Helm puts on everything it makes."""
    mark = {"meta.helm.sh/release-name": wanted.name, "meta.helm.sh/release-namespace": wanted.namespace}
    for resource in WORKLOADS:
        for item in observed.all(resource):
            if mark.items() <= annotations_of(item).items():
                yield resource, item


def _recorded(wanted: ExpectedRelease, made: list[tuple[str, Object]], observed: Observed) -> Finding:
    history = f"helm -n {wanted.namespace} history {wanted.name}"
    if observed.releases is None:
        if made:
            return ok("its record is a Secret you may not read")
        return unknown("its record is a Secret you may not read", history)
    record = observed.releases.get((wanted.namespace, wanted.name))
    if record is None:
        return failed("not installed", f"{wanted.chart} {wanted.version}", "pulumi up --refresh")
    if record.status == "deployed":
        return ok(f"deployed, revision {record.revision}")
    found = f"revision {record.revision} is {record.status}"
    return wait(found, "deployed", history) if record.status in _GOING_ON else failed(found, "deployed", history)


def _chart(wanted: ExpectedRelease, made: list[tuple[str, Object]]) -> Iterator[Finding]:
    """The version on the label ``helm.sh/chart``, which charts put on their objects by convention; subcharts name themselves."""
    for resource, item in made:
        name, _, version = text(labels_of(item).get("helm.sh/chart")).rpartition(f"{wanted.chart}-")
        # A label takes no plus sign, so Helm's convention writes an underscore.
        if not name and version[:1].isdigit() and version != wanted.version.replace("+", "_"):
            found = f"{KINDS[resource]} {name_of(item)} is of chart version {version}"
            yield failed(found, wanted.version, f"helm -n {wanted.namespace} history {wanted.name}")


def addon(wanted: ExpectedAddon, cluster: str, observed: Observed) -> Finding:
    """The workloads that an add-on is known to run."""
    findings = []
    for resource, namespace, name in wanted.workloads:
        subject = f"{KINDS[resource]} {name}"
        if blocked := observed.unreadable.get(resource):
            findings.append(unknown(blocked.message, blocked.next))
            continue
        item = observed.find(resource, namespace, name)
        if item is None:
            describe = f"aws eks describe-addon --cluster-name {cluster} --addon-name {wanted.name}"
            findings.append(failed(f"there is no {subject_of(resource, namespace, name)}", "the add-on's workloads", describe))
            continue
        state = workload(resource, item, item, observed)
        findings.append(Finding(state.verdict, f"{subject} {state.found}", state.expected, state.next))
    return worst(findings)


def addon_workloads(wanted: ExpectedAddon, observed: Observed) -> Iterator[tuple[str, Object]]:
    for resource, namespace, name in wanted.workloads:
        if (item := observed.find(resource, namespace, name)) is not None:
            yield resource, item
