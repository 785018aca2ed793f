"""Gives inputs of Kubernetes objects the form in which the provider keeps them in a state.

The provider reads an object of a built-in kind into the Go types of its API and writes it again. This leaves out a zero value of
a field that is ``omitempty`` and no pointer. Of a Secret, ``stringData`` becomes ``data``. Other inputs stay as they are.

Sources: pulumi-kubernetes v4 ``provider/pkg/provider/provider.go`` (normalizeInputs), ``provider/pkg/clients/unstructured.go``;
k8s.io/api v0.36.2, ``types.go`` of all groups.
"""

import base64
from collections.abc import Mapping, Set
from typing import Any

from stackgraph.graph.tokens import SECRET, UNKNOWN

_GROUPS = frozenset(
    f"{name}.k8s.io"
    for name in (
        *("admissionregistration", "apiregistration", "authentication", "authorization", "certificates", "coordination"),
        *("discovery", "events", "flowcontrol.apiserver", "networking", "node", "rbac.authorization", "resource", "scheduling"),
        *("storage", "storagemigration"),
    )
)
"""The built-in groups with a dot in their names. Definitions of custom resources are kept as they are given."""

_POINTERS = frozenset(
    (
        *("apiGroup", "appProtocol", "containerName", "driver", "fsType", "hostname", "ingressClassName", "loadBalancerClass"),
        *("localhostProfile", "managedBy", "name", "namespace", "nodeName", "path", "pool", "runAsUserName", "runtimeClassName"),
        *("signerName", "storageClassName", "timeZone", "trafficDistribution", "url", "version", "volumeAttributesClassName"),
    )
)
"""Texts that may be pointers, for which an empty text is a value. In a PersistentVolume, ``storageClassName`` is none."""

_SWITCHES = frozenset(
    (
        *("globalDefault", "hostIPC", "hostNetwork", "hostPID", "insecureSkipTLSVerifyBackend", "paused"),
        *("publishNotReadyAddresses", "readOnly", "stdin", "stdinOnce", "tty", "unschedulable"),
    )
)
"""Switches that are no pointers: false is their zero value."""

_NUMBERS = frozenset(
    (
        *("failureThreshold", "healthCheckNodePort", "hostPort", "initialDelaySeconds", "minReadySeconds", "nodePort"),
        *("periodSeconds", "successThreshold"),
    )
)
"""Numbers that are no pointers: 0 is their zero value."""


def normalized(type_: str, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs that a program gives to a resource as a state keeps them."""
    package, _, rest = type_.partition(":")
    group, _, kind = rest.partition("/")
    if package != "kubernetes" or ("." in group and group not in _GROUPS):
        return dict(inputs)
    if kind.endswith(":Secret"):
        return _secret(inputs)
    return _without_zeros(inputs, _POINTERS - {"storageClassName"} if kind.endswith(":PersistentVolume") else _POINTERS)


def _without_zeros(value: Any, pointers: Set[str]) -> Any:
    if isinstance(value, list):
        return [_without_zeros(item, pointers) for item in value]
    if not isinstance(value, Mapping):
        return value
    return {key: _without_zeros(item, pointers) for key, item in value.items() if not _is_zero(key, item, pointers)}


def _is_zero(key: str, value: Any, pointers: Set[str]) -> bool:
    if isinstance(value, bool):
        return not value and key in _SWITCHES
    if isinstance(value, int | float):
        return not value and key in _NUMBERS
    return value == [] or (value == "" and key not in pointers)


def _secret(inputs: Mapping[str, Any]) -> dict[str, Any]:
    texts = inputs.get("stringData")
    if not texts or texts == UNKNOWN:
        return dict(inputs)
    data = SECRET if texts == SECRET else {**(inputs.get("data") or {}), **{key: _encoded(text) for key, text in texts.items()}}
    return {key: value for key, value in inputs.items() if key != "stringData"} | {"data": data}


def _encoded(text: Any) -> Any:
    hidden = not isinstance(text, str) or text in (SECRET, UNKNOWN)
    return text if hidden else base64.b64encode(text.encode()).decode()
