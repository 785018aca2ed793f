"""A real API server and real controllers: pods come only with credentials, and their controllers try until they have some."""

from collections.abc import Iterator
from typing import Any

import pytest

from eks_inference.cluster.plan import CREDENTIALS_VARIABLE, credentials_guard
from eks_inference_tools.simulate.control_plane.control_plane import ControlPlane, control_plane
from eks_inference_tools.simulate.control_plane.kubernetes_api import ApiRefusal
from eks_inference_tools.simulate.control_plane.toolchain import Toolchain

pytestmark = pytest.mark.cluster

SPACE, ACCOUNT = "tools", "runner"
NODE = {"cpu": "8", "memory": "32Gi", "pods": "110"}
KINDS = ("apps/v1/Deployment", "apps/v1/StatefulSet", "apps/v1/DaemonSet", "batch/v1/Job")


@pytest.fixture(scope="module")
def plane(toolchain: Toolchain) -> Iterator[ControlPlane]:
    with control_plane(toolchain) as plane:
        plane.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}})
        for account in (ACCOUNT, "other"):
            metadata = {"name": account, "namespace": SPACE}
            plane.api.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
        plane.api.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": {"allocatable": NODE}})
        yield plane


def pod(account: str = ACCOUNT, **container: Any) -> dict[str, Any]:
    return {"serviceAccountName": account, "containers": [{"name": "c", "image": "i.invalid/i", **container}]}


def refusal(plane: ControlPlane, spec: dict[str, Any]) -> str:
    metadata = {"generateName": "one-", "namespace": SPACE}
    try:
        plane.api.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}, dry_run=True)
    except ApiRefusal as refused:
        return refused.message
    return ""


def workload(kind: str) -> dict[str, Any]:
    version, _, kind = kind.rpartition("/")
    labels = {"app": kind.lower()}
    spec: dict[str, Any] = {"template": {"metadata": {"labels": labels}, "spec": pod()}}
    if kind == "Job":
        spec |= {"backoffLimit": 0}
        spec["template"]["spec"]["restartPolicy"] = "Never"
    else:
        spec |= {"selector": {"matchLabels": labels}, **({"serviceName": "s"} if kind == "StatefulSet" else {})}
    return {"apiVersion": version, "kind": kind, "metadata": {"name": kind.lower(), "namespace": SPACE}, "spec": spec}


def test_every_controller_waits_until_its_pods_get_credentials(plane: ControlPlane):
    policy, binding = credentials_guard(SPACE, ACCOUNT)
    for manifest in (policy, binding):
        plane.api.create(manifest)
    plane.processes.wait_until(lambda: "Pod Identity" in refusal(plane, pod()), seconds=60, what="the guard is in effect")
    assert not refusal(plane, pod(env=[{"name": CREDENTIALS_VARIABLE, "value": "http://169.254.170.23/v1/credentials"}]))
    assert not refusal(plane, pod("other")), "another service account is none of its business"

    for kind in KINDS:
        plane.api.create(workload(kind))

    def refused() -> set[str]:
        events = plane.api.list("events", SPACE)
        return {e["involvedObject"]["kind"] for e in events if e["reason"] == "FailedCreate" and "credentials" in e["message"]}

    everyone = {"ReplicaSet", "StatefulSet", "DaemonSet", "Job"}
    plane.processes.wait_until(lambda: everyone <= refused(), seconds=60, what="each controller is refused a pod")
    assert not plane.api.list("pods", SPACE)

    # To the controllers an association that takes effect looks like this: the same pod is admitted now.
    plane.api.delete("validatingadmissionpolicybindings.admissionregistration.k8s.io", binding["metadata"]["name"])

    def owners() -> set[str]:
        return {item["metadata"]["ownerReferences"][0]["kind"] for item in plane.api.list("pods", SPACE)}

    plane.processes.wait_until(lambda: everyone <= owners(), seconds=180, what="each controller has its pod")
