"""Checks the spec of a pod against the Pod Security Standard "restricted", which includes "baseline".

Source: Kubernetes documentation, "Pod Security Standards" (v1.34), which also names the controls; image volumes are allowed since
v1.33 (kubernetes/kubernetes#130394). For some fields the standard allows certain values. None of our pods sets these fields, so
here any value counts as a violation.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

_VOLUMES = frozenset(
    (
        "configMap",
        "csi",
        "downwardAPI",
        "emptyDir",
        "ephemeral",
        "image",
        "persistentVolumeClaim",
        "projected",
        "secret",
    )
)
_SECCOMP = ("RuntimeDefault", "Localhost")
_ADDED = frozenset(("NET_BIND_SERVICE",))
_UNSET = {
    "appArmorProfile": "AppArmor",
    "procMount": "/proc Mount Type",
    "seLinuxOptions": "SELinux",
    "sysctls": "Sysctls",
    "windowsOptions": "HostProcess",
}

HOST_NAMESPACES = "Host Namespaces"
PRIVILEGED = "Privileged Containers"
HOST_PATHS = "HostPath Volumes"
HOST_PORTS = "Host Ports"
HOST_PROBES = "Host Probes / Lifecycle Hooks"
VOLUMES = "Volume Types"
ESCALATION = "Privilege Escalation"
NON_ROOT = "Running as Non-root"
NON_ROOT_USER = "Running as Non-root user"
SECCOMP = "Seccomp"
CAPABILITIES = "Capabilities"

CONTROLS = frozenset(
    (
        HOST_NAMESPACES,
        PRIVILEGED,
        HOST_PATHS,
        HOST_PORTS,
        HOST_PROBES,
        VOLUMES,
        ESCALATION,
        NON_ROOT,
        NON_ROOT_USER,
        SECCOMP,
        CAPABILITIES,
        *_UNSET.values(),
    )
)


class Breach(NamedTuple):
    control: str
    where: str


def breaches(pod: Mapping[str, Any]) -> set[Breach]:
    """Returns the violations for which a namespace that enforces "restricted" refuses the pod; none if it is admitted."""
    return set(_breaches(pod))


def _breaches(pod: Mapping[str, Any]) -> Iterator[Breach]:
    own = pod.get("securityContext") or {}
    containers = {
        f"container {container['name']}": container
        for group in ("initContainers", "containers", "ephemeralContainers")
        for container in pod.get(group) or ()
    }
    yield from (Breach(HOST_NAMESPACES, key) for key in ("hostNetwork", "hostPID", "hostIPC") if pod.get(key, False) is not False)
    for volume in pod.get("volumes") or ():
        for source in volume.keys() - _VOLUMES - {"name"}:
            yield Breach(HOST_PATHS if source == "hostPath" else VOLUMES, f"volume {volume['name']}")
    yield from _context("pod", own)
    for where, container in containers.items():
        context = container.get("securityContext") or {}
        yield from _context(where, context)
        yield from (Breach(control, where) for control in _container(container, context, own))


def _context(where: str, context: Mapping[str, Any]) -> Iterator[Breach]:
    """Yields violations of the rules that hold for pods and containers."""
    if context.get("runAsNonRoot", True) is not True:
        yield Breach(NON_ROOT, where)
    if context.get("runAsUser") == 0:
        yield Breach(NON_ROOT_USER, where)
    if "seccompProfile" in context and context["seccompProfile"].get("type") not in _SECCOMP:
        yield Breach(SECCOMP, where)
    yield from (Breach(control, where) for field, control in _UNSET.items() if field in context)


def _container(container: Mapping[str, Any], context: Mapping[str, Any], pod: Mapping[str, Any]) -> Iterator[str]:
    """Yields violations of a container, whose pod may provide required settings."""
    if context.get("privileged", False) is not False:
        yield PRIVILEGED
    if context.get("allowPrivilegeEscalation") is not False:
        yield ESCALATION
    capabilities = context.get("capabilities") or {}
    if "ALL" not in (capabilities.get("drop") or ()) or not _ADDED.issuperset(capabilities.get("add") or ()):
        yield CAPABILITIES
    if "runAsNonRoot" not in context and "runAsNonRoot" not in pod:
        yield NON_ROOT
    if "seccompProfile" not in context and "seccompProfile" not in pod:
        yield SECCOMP
    if any(port.get("hostPort") for port in container.get("ports") or ()):
        yield HOST_PORTS
    hooks = (container.get("lifecycle") or {}).values()
    probes = (container[probe] for probe in ("livenessProbe", "readinessProbe", "startupProbe") if probe in container)
    if any((handler.get(how) or {}).get("host") for handler in (*hooks, *probes) for how in ("httpGet", "tcpSocket")):
        yield HOST_PROBES
