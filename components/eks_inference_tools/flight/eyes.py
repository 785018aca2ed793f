"""Looks at a deployed rung through kubectl, as `verify` does, until it is well. Fetches what tells why it is not."""

import shlex
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from eks_inference.clients.plan import TRITON_CLIENT_LABEL
from eks_inference.loadtest.plan import TEST_LABEL
from eks_inference_tools.flight.course import Deployment, Leg
from eks_inference_tools.flight.evidence import answer_rows, facts, load_rows, metric_rows, not_running, troubles
from eks_inference_tools.flight.ports import Clock, Ended, Hopeless, Seen
from eks_inference_tools.reading.clusters import part_of
from eks_inference_tools.reading.expected import Expected, expected_of
from eks_inference_tools.reading.live_objects import is_leaving
from eks_inference_tools.reading.object_kinds import JOBS, NODES, PODS, RAY_SERVICES, WORKLOADS
from eks_inference_tools.timeline.durations import duration
from eks_inference_tools.verify.checks import judge
from eks_inference_tools.verify.cluster_api import AccessError, Kubectl
from eks_inference_tools.verify.observed import Check, Observed, overall
from stackgraph.graph.values import at, items, text, unique
from stackgraph.problems import Problem

POLL_S = 10.0
FAILED_FOR_S = 180.0
"""A failure that lasts so long counts: the kubelet tries pulls and starts again."""

_EVENTS = "events"
_OF_PODS = frozenset((*WORKLOADS, RAY_SERVICES))
_MEASURING = (TEST_LABEL, TRITON_CLIENT_LABEL)
_ACCESS_S = 120
_METRICS = "import urllib.request,sys;sys.stdout.write(urllib.request.urlopen('http://127.0.0.1:{port}/metrics',timeout=10).read().decode())"


class ClusterEyes:
    """``folder`` gets a kubeconfig of its own. ``show`` is told a line about what is waited for."""

    def __init__(self, folder: Path, clock: Clock, show: Callable[[str], None] = lambda line: None) -> None:
        self._folder, self._clock, self._show = folder, clock, show

    def look(self, leg: Leg, seconds: float) -> Seen:
        expected = expected_of(part_of(leg.deployments[-1].graph, None))
        end, failed_since = self._clock.now() + seconds, None
        kubectl: Kubectl | None = None
        while True:
            try:
                kubectl = kubectl or self._kubectl(expected)
                observed = kubectl.read(unique((*expected.resources(), PODS, _EVENTS)), releases=bool(expected.releases))
                checks = judge(expected, observed)
                lost = ""
            except AccessError as error:
                observed, checks, lost = Observed("", {}), [], str(error)
            verdict = overall(checks)
            now = self._clock.now()
            failed_since = (failed_since or now) if verdict in ("failed", "unknown") else None
            ended = _ended(verdict, lost, end - now, 0 if failed_since is None else now - failed_since)
            if ended:
                return self._seen(ended, kubectl, expected, observed, checks, lost)
            self._show(_waited_for(checks, lost))
            self._clock.sleep(max(min(POLL_S, end - now), 0.1))

    def watch(self, leg: Leg, deployment: Deployment) -> Hopeless:
        """Pulumi waits for a workload as long as a cold start may take, an hour or more, also where its image does not exist."""
        expected = expected_of(part_of(deployment.graph, None))
        of_pods = tuple(expected_object for expected_object in expected.objects if expected_object.resource in _OF_PODS)
        expected = replace(expected, objects=of_pods, pools=(), releases=(), addons=())
        kubectl: Kubectl | None = None
        since: Mapping[str, float] = {}

        def hopeless() -> tuple[str, ...]:
            nonlocal kubectl, since
            try:
                kubectl = kubectl or self._kubectl(expected)
                observed = kubectl.read(expected.resources())
            except AccessError:
                return ()
            items_of = ((one, observed.find(one.resource, one.namespace, one.name)) for one in of_pods)
            there = replace(expected, objects=tuple(one for one, item in items_of if item and not is_leaving(item)))
            failed = {check.subject: check.finding.found for check in judge(there, observed) if check.verdict == "failed"}
            now = self._clock.now()
            since = {subject: since.get(subject, now) for subject in failed}
            given_up = f"for {duration(FAILED_FOR_S)}, so the update is not waited for any longer"
            return tuple(f"{one}: {found}; {given_up}" for one, found in failed.items() if now - since[one] >= FAILED_FOR_S)

        return hopeless if of_pods else tuple

    def _kubectl(self, expected: Expected) -> Kubectl:
        """Makes a kubeconfig beside the user's own, which stays as it is."""
        file = self._folder / "kubeconfig"
        command = [*shlex.split(expected.access_command), "--kubeconfig", str(file)]
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_ACCESS_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise AccessError([Problem(f"`{shlex.join(command[:3])}` cannot be run: {error}")]) from None
        if done.returncode:
            raise AccessError([Problem(text(done.stderr.strip()[-300:]) or f"`{shlex.join(command[:3])}` failed")])
        return Kubectl(kubeconfig=file, access_command=expected.access_command)

    def _seen(
        self, ended: Ended, kubectl: Kubectl | None, expected: Expected, observed: Observed, checks: Sequence[Check], lost: str
    ) -> Seen:
        pods, nodes, events = observed.all(PODS), observed.all(NODES), observed.all(_EVENTS)
        rows = facts(observed.server_version, nodes, pods, events) if observed.server_version else []
        if kubectl is None or lost:
            return Seen(ended, (f"the cluster does not answer: {lost}",) if lost else (), tuple(rows))
        if ended == "done":
            rows += self._figures(kubectl, expected, observed)
            return Seen(ended, (), tuple(rows))
        logs = {
            f"{namespace}/{pod} {container}": kubectl.log(namespace, pod, container)
            for namespace, pod, container in [*not_running(pods)][:5]
        }
        return Seen(ended, troubles(checks, events, logs), tuple(rows))

    def _figures(self, kubectl: Kubectl, expected: Expected, observed: Observed) -> list[dict[str, Any]]:
        """The names of servers' metrics, and what smoke tests and load tests measured."""
        found: list[dict[str, Any]] = []
        for job in expected.objects:
            if job.resource == JOBS and job.name.startswith("smoke-test"):
                found += answer_rows(kubectl.log(job.namespace, f"job/{job.name}"))
            labels = at(job.manifest, "spec", "template", "metadata", "labels")
            if job.resource == JOBS and isinstance(labels, Mapping) and not labels.keys().isdisjoint(_MEASURING):
                found += load_rows(kubectl.log(job.namespace, f"job/{job.name}", whole=True))
        spaces = {*expected.namespaces()}
        for pod in observed.all(PODS):
            namespace = text(at(pod, "metadata", "namespace"))
            port = _port_of_server(pod)
            if namespace in spaces and port:
                spaces.discard(namespace)  # one pod of each server shows the names
                command = ("python3", "-c", _METRICS.format(port=port))
                found += metric_rows(kubectl.execute(namespace, text(at(pod, "metadata", "name")), *command))
        return found


def _ended(verdict: str, lost: str, left: float, failed_for: float) -> Ended | None:
    if verdict == "ok" and not lost:
        return "done"
    if failed_for >= FAILED_FOR_S:
        return "failed"
    return "cap" if left <= 0 else None


def _port_of_server(pod: Mapping[str, Any]) -> int | None:
    """The port of a ready pod that has devices."""
    ready = any(at(item, "type") == "Ready" and at(item, "status") == "True" for item in items(at(pod, "status", "conditions")))
    for container in items(at(pod, "spec", "containers")):
        limits = at(container, "resources", "limits")
        devices = isinstance(limits, Mapping) and any("/neuron" in key or key.endswith("/gpu") for key in limits)
        ports = [at(item, "containerPort") for item in items(at(container, "ports"))]
        if ready and devices and ports and isinstance(ports[0], int):
            return ports[0]
    return None


def _waited_for(checks: Sequence[Check], lost: str) -> str:
    waiting = next((check for check in checks if check.verdict != "ok"), None)
    return lost or (f"{waiting.subject}: {waiting.finding.found}" if waiting else "")
