"""What every shipped stack closes: Pod Security "restricted" and NetworkPolicies, but for exceptions that are named with reasons.

Pods inside of charts are not seen; their namespaces are, and the API server holds them to what these enforce.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from conftest import STACKS, recorded
from eks_inference.kubernetes.workloads import RESTRICTED_CONTAINER, enforce, restricted_pod
from eks_inference_tools.reading.pod_templates import PodTemplate, pod_templates
from pod_standards import CONTROLS, Breach, breaches
from stackgraph.graph.document import Graph
from traffic import policies_of

_DATA = tomllib.loads(Path(__file__).with_name("pod_security_exceptions.toml").read_text())


@dataclass(frozen=True)
class Level:
    """Namespaces that enforce a lower level."""

    namespace: str
    level: str
    reason: str


@dataclass(frozen=True)
class Lax:
    """Pods that break controls of "restricted"; ``pods`` is a pattern of their titles."""

    pods: str
    breaks: list[str]
    reason: str


@dataclass(frozen=True)
class Open:
    """Namespaces that no policy closes in some directions."""

    namespace: str
    ways: list[str]
    reason: str


LEVELS = [Level(**entry) for entry in _DATA["levels"]]
LAX = [Lax(**entry) for entry in _DATA["pods"]]
OPEN = [Open(**entry) for entry in _DATA["open"]]


# -- what a stack does -----------------------------------------------------------------------------------------------------------


def levels(graph: Graph) -> dict[str, str]:
    """What each namespace that the stack makes enforces."""
    (label,) = enforce("restricted")
    made = (resource.inputs["metadata"] for resource in graph.of_type("kubernetes:core/v1:Namespace"))
    return {metadata["name"]: metadata.get("labels", {}).get(label, "nothing") for metadata in made}


def broken(template: PodTemplate) -> set[Breach]:
    return breaches(template.template["spec"])


def open_ways(graph: Graph) -> set[tuple[str, str]]:
    """Namespaces and directions that are open to pods nobody thought of: no policy there selects all pods."""
    charts = {release.inputs["namespace"] for release in graph.of_type("kubernetes:helm.sh/v3:Release")}
    namespaces = {template.namespace for template in pod_templates(graph)} | charts | levels(graph).keys()
    closed = {
        (policy["metadata"]["namespace"], way)
        for policy in policies_of(graph)
        if not policy["spec"]["podSelector"]
        for way in policy["spec"]["policyTypes"]
    }
    return {(namespace, way) for namespace in namespaces for way in ("Ingress", "Egress")} - closed


# -- the stacks ------------------------------------------------------------------------------------------------------------------


def test_namespaces_enforce_restricted(shipped: Graph) -> None:
    for namespace, level in levels(shipped).items():
        excepted = {exception.level for exception in LEVELS if fnmatchcase(namespace, exception.namespace)}
        assert level in {"restricted", *excepted}, namespace


def test_pods_meet_restricted(shipped: Graph) -> None:
    for template in pod_templates(shipped):
        excepted = {control for exception in LAX if fnmatchcase(template.title, exception.pods) for control in exception.breaks}
        assert not {breach for breach in broken(template) if breach.control not in excepted}, template.title


def test_restricted_namespaces_admit_their_pods(shipped: Graph) -> None:
    enforced = levels(shipped)
    for template in pod_templates(shipped):
        assert enforced.get(template.namespace) != "restricted" or not broken(template), template.title


def test_namespaces_are_closed_by_default(shipped: Graph) -> None:
    for namespace, way in open_ways(shipped):
        assert any(fnmatchcase(namespace, exception.namespace) and way in exception.ways for exception in OPEN), (namespace, way)


# -- the exceptions --------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def graphs() -> list[Graph]:
    return [recorded(stack) for stack in STACKS]


@pytest.mark.parametrize("exception", LEVELS, ids=lambda e: e.namespace)
def test_namespaces_of_a_lower_level_are_there(graphs: list[Graph], exception: Level) -> None:
    enforced = {level for graph in graphs for name, level in levels(graph).items() if fnmatchcase(name, exception.namespace)}
    assert exception.level in enforced


def test_namespaces_of_a_lower_level_have_a_pod_that_would_be_refused(graphs: list[Graph]) -> None:
    for graph in graphs:
        for namespace, level in levels(graph).items():
            there = [template for template in pod_templates(graph) if template.namespace == namespace]
            assert level == "restricted" or not there or any(map(broken, there)), f"{namespace} of {graph.stack}"


@pytest.mark.parametrize("exception", LAX, ids=lambda e: e.pods)
def test_controls_that_pods_may_break_are_broken(graphs: list[Graph], exception: Lax) -> None:
    templates = [template for graph in graphs for template in pod_templates(graph) if fnmatchcase(template.title, exception.pods)]
    assert {breach.control for template in templates for breach in broken(template)} == set(exception.breaks)


@pytest.mark.parametrize("exception", OPEN, ids=lambda e: e.namespace)
def test_ways_that_may_be_open_are_open(graphs: list[Graph], exception: Open) -> None:
    found = {way for graph in graphs for name, way in open_ways(graph) if fnmatchcase(name, exception.namespace)}
    assert found == set(exception.ways)


@pytest.mark.parametrize("exception", [*LEVELS, *LAX, *OPEN], ids=lambda e: e.reason[:30])
def test_reasons_are_sentences(exception: Level | Lax | Open) -> None:
    assert exception.reason.endswith(".")
    assert len(exception.reason.split()) > 5


# -- the rules themselves --------------------------------------------------------------------------------------------------------

RESTRICTED = {
    "securityContext": restricted_pod(1000),
    "containers": [{"name": "c", "securityContext": RESTRICTED_CONTAINER, "ports": [{"containerPort": 80}]}],
    "volumes": [{"name": "v", "emptyDir": {}}],
}


def with_pod(**fields: Any) -> dict[str, Any]:
    return {**RESTRICTED, **fields}


def with_context(**fields: Any) -> dict[str, Any]:
    return with_pod(securityContext={**restricted_pod(1000), **fields})


def with_container(**fields: Any) -> dict[str, Any]:
    return with_pod(initContainers=[{"name": "i", "securityContext": RESTRICTED_CONTAINER, **fields}])


def with_container_context(**fields: Any) -> dict[str, Any]:
    return with_container(securityContext={**RESTRICTED_CONTAINER, **fields})


BROKEN = [
    ("Host Namespaces", with_pod(hostNetwork=True)),
    ("Host Namespaces", with_pod(hostPID=True)),
    ("Host Namespaces", with_pod(hostIPC=True)),
    ("HostPath Volumes", with_pod(volumes=[{"name": "v", "hostPath": {"path": "/dev"}}])),
    ("Volume Types", with_pod(volumes=[{"name": "v", "nfs": {"server": "s", "path": "/"}}])),
    ("Host Ports", with_container(ports=[{"containerPort": 80, "hostPort": 80}])),
    ("Host Probes / Lifecycle Hooks", with_container(livenessProbe={"tcpSocket": {"host": "10.0.0.1", "port": 22}})),
    ("Host Probes / Lifecycle Hooks", with_container(lifecycle={"preStop": {"httpGet": {"host": "10.0.0.1", "port": 80}}})),
    ("Privileged Containers", with_container_context(privileged=True)),
    ("Privilege Escalation", with_container_context(allowPrivilegeEscalation=True)),
    ("Privilege Escalation", with_container(securityContext={"capabilities": {"drop": ["ALL"]}})),
    ("Capabilities", with_container_context(capabilities={"drop": ["NET_RAW"]})),
    ("Capabilities", with_container_context(capabilities={"drop": ["ALL"], "add": ["IPC_LOCK"]})),
    ("Running as Non-root", with_container_context(runAsNonRoot=False)),
    ("Running as Non-root", with_pod(securityContext={"seccompProfile": {"type": "RuntimeDefault"}})),
    ("Running as Non-root user", with_context(runAsUser=0)),
    ("Running as Non-root user", with_container_context(runAsUser=0)),
    ("Seccomp", with_container_context(seccompProfile={"type": "Unconfined"})),
    ("Seccomp", with_pod(securityContext={"runAsNonRoot": True})),
    ("AppArmor", with_container_context(appArmorProfile={"type": "Unconfined"})),
    ("/proc Mount Type", with_container_context(procMount="Unmasked")),
    ("SELinux", with_context(seLinuxOptions={"type": "spc_t"})),
    ("Sysctls", with_context(sysctls=[{"name": "kernel.msgmax", "value": "1"}])),
    ("HostProcess", with_context(windowsOptions={"hostProcess": True})),
]


@pytest.mark.parametrize(("control", "pod"), BROKEN)
def test_a_pod_that_breaks_one_control(control: str, pod: Mapping[str, Any]) -> None:
    assert {breach.control for breach in breaches(pod)} == {control}


def test_every_control_has_a_pod_that_breaks_it() -> None:
    assert {control for control, _ in BROKEN} == CONTROLS


@pytest.mark.parametrize(
    "pod",
    [
        RESTRICTED,
        with_container_context(capabilities={"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}),
        with_container(
            livenessProbe={"httpGet": {"path": "/", "port": 80}}, lifecycle={"preStop": {"exec": {"command": ["true"]}}}
        ),
        {"containers": [{"name": "c", "securityContext": {**RESTRICTED_CONTAINER, **restricted_pod(1)}}]},
    ],
)
def test_a_pod_that_meets_restricted(pod: Mapping[str, Any]) -> None:
    assert not breaches(pod)
