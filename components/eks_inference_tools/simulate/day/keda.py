"""Runs KEDA for a day: its operator and its metrics server, in a program of ours (control_plane/tools/keda).

Triggers of Prometheus get their answers from the day's own, at whatever address they name. Schedules go by this machine's clock.
"""

from collections.abc import Iterator
from typing import Any

from eks_inference.scaling.keda import RELEASE
from eks_inference_tools.reading.live_objects import condition_of
from eks_inference_tools.simulate.control_plane.control_plane import ControlPlane
from eks_inference_tools.simulate.day.custom_metrics import registration
from eks_inference_tools.simulate.day.prometheus import Prometheus

TOOL = "keda-on-loopback"

_GROUP = "external.metrics.k8s.io"


def start(plane: ControlPlane, prometheus: Prometheus) -> None:
    """Starts KEDA among the control plane's processes, and waits until the API server has its metrics."""
    argv = [plane.toolchain.path(TOOL), plane.kubeconfig, prometheus.url, "--bind-address=127.0.0.1"]
    argv += ["--authentication-skip-lookup"]  # the API server has no certificate of a client here, and names no authority
    argv += [f"--tls-cert-file={plane.certificate}", f"--tls-private-key-file={plane.certificate.with_suffix('.key')}"]
    argv += [f"--{asked}-kubeconfig={plane.kubeconfig}" for asked in ("authentication", "authorization")]
    run = plane.processes
    port = run.start_on_a_port(TOOL, lambda port: [*argv, f"--secure-port={port}"], lambda _: "Serving securely" in run.log(TOOL))
    *_, service = items = registration(RELEASE, port, _GROUP)
    for item in (*items, *_for_everyone()):
        plane.api.apply(item)

    def available() -> bool:
        found = plane.api.get("apiservices.apiregistration.k8s.io", service["metadata"]["name"]) or {}
        return (condition_of(found, "Available") or {}).get("status") == "True"

    run.wait_until(available, seconds=60, what="KEDA's metrics server")


def _for_everyone() -> Iterator[dict[str, Any]]:
    """Lets in the API server, which is nobody without a certificate."""
    of, name = "rbac.authorization.k8s.io", f"simulated-{RELEASE}"
    role = {"apiGroup": of, "kind": "ClusterRole", "name": name}
    rules = [{"apiGroups": [_GROUP], "resources": ["*"], "verbs": ["get", "list"]}]
    rules += [{"nonResourceURLs": [f"/apis/{_GROUP}*"], "verbs": ["get"]}]
    who = [{"apiGroup": of, "kind": "Group", "name": "system:unauthenticated"}]
    about = {"apiVersion": f"{of}/v1", "metadata": {"name": name}}
    yield {**about, "kind": "ClusterRole", "rules": rules}
    yield {**about, "kind": "ClusterRoleBinding", "roleRef": role, "subjects": who}
