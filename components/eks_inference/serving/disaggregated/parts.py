"""Builds the parts that several objects of a pair share: names, labels, ConfigMaps, volumes, security contexts. No pulumi."""

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from eks_inference.accelerators.efa.plan import EFA_RESOURCE
from eks_inference.kubernetes.workloads import RESTRICTED_CONTAINER, restricted_pod
from eks_inference.place.placement import Placement
from eks_inference.serving.disaggregated.artifact import STORE
from eks_inference.serving.disaggregated.spec import DisaggregatedPairSpec
from eks_inference.serving.pods import ROLE_LABEL, SERVER_LABEL, device_resource, script_texts

SCRIPTS = "/eks-inference"
PLAN = f"{SCRIPTS}/pair.json"

ROOT_POD: Mapping[str, Any] = {
    "automountServiceAccountToken": False,
    # With links, every Service of the namespace sets variables such as VLLM_PORT=tcp://... in every pod.
    "enableServiceLinks": False,
    "securityContext": {"runAsUser": 0, "seccompProfile": {"type": "RuntimeDefault"}},
}

SCRIPT_POD: Mapping[str, Any] = {**ROOT_POD, "securityContext": restricted_pod(1000)}
"""Fields of pods that run one of our scripts in a plain Python image."""

SCRIPT_CONTAINER: Mapping[str, Any] = {**RESTRICTED_CONTAINER, "readOnlyRootFilesystem": True}

_PATHS = {"store": STORE, "tmp": "/tmp", "shared-memory": "/dev/shm", "scripts": SCRIPTS}


def claim_name(name: str) -> str:
    """Returns the name of the claim of the store."""
    return f"{name}-store"


def front(spec: DisaggregatedPairSpec) -> str:
    """Returns the role of the pod that clients call."""
    return "router" if spec.serving == "pair" else "baseline"


def labels(name: str, role: str) -> dict[str, str]:
    return {SERVER_LABEL: name, ROLE_LABEL: role}


def config_map(name: str, what: str, data: Mapping[str, str], spec: DisaggregatedPairSpec) -> dict[str, Any]:
    """Returns ``metadata`` and ``data``. A digest in the name ensures that pods read only the content they were created for."""
    metadata = {"name": f"{name}-{what}-{digest(data)}", "namespace": spec.namespace_of(name)}
    return {"metadata": metadata, "data": dict(data)}


DIGEST_LENGTH = 10


def digest(content: Any) -> str:
    """Returns a hash that makes the names of objects with different content differ."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:DIGEST_LENGTH]


def scripts(*names: str) -> dict[str, str]:
    """Returns the texts of scripts by file name."""
    return script_texts("disaggregated", *names)


def whole_node(spec: DisaggregatedPairSpec) -> dict[str, str]:
    """Returns requests and limits of a pod that takes all devices of its node, even if it uses only part of the cores.

    So no scheduler has to find adjacent devices, and no other pod gets the node's chips.
    """
    return {"cpu": spec.cpu, "memory": spec.memory, device_resource(spec.shape): str(spec.shape.devices)}


def efa_resources(placement: Placement) -> dict[str, str]:
    """Returns the EFA interfaces that one pod requests: all of its node. They are extended resources (EKS user guide, EFA), and
    each chip sends through its nearest ones (inferred).
    """
    return {EFA_RESOURCE: str(placement.efa_interfaces)}


def root_container(capabilities: Sequence[str] = ()) -> dict[str, Any]:
    """Returns the security context of a container that runs as root with only these capabilities."""
    allowed = {"drop": ["ALL"], **({"add": list(capabilities)} if capabilities else {})}
    return {"allowPrivilegeEscalation": False, "capabilities": allowed}


def volumes(name: str, spec: DisaggregatedPairSpec, config: str, *wanted: str) -> list[dict[str, Any]]:
    """Returns the ``wanted`` volumes (store, tmp, shared-memory), and the scripts in the ConfigMap ``config``."""
    known = {
        "store": {"persistentVolumeClaim": {"claimName": claim_name(name)}},
        # The Neuron runtime keeps a lock file in /tmp, and fails on one that another user left.
        "tmp": {"emptyDir": {}},
        "shared-memory": {"emptyDir": {"medium": "Memory", "sizeLimit": f"{spec.shared_memory_gib}Gi"}},
        "scripts": {"configMap": {"name": config}},
    }
    return [{"name": each, **known[each]} for each in (*wanted, "scripts")]


def mounts(*wanted: str, read_only: Collection[str] = ()) -> list[dict[str, Any]]:
    """Returns the mounts of the ``wanted`` volumes and of the scripts. The scripts are always read-only."""
    return [
        {"name": each, "mountPath": _PATHS[each], **({"readOnly": True} if each in (*read_only, "scripts") else {})}
        for each in (*wanted, "scripts")
    ]


def placed(placement: Placement) -> dict[str, Any]:
    """Returns the scheduling fields of a pod, without empty ones."""
    return {field: value for field, value in placement.scheduling().items() if value}


def variables(values: Mapping[str, str]) -> list[dict[str, Any]]:
    return [{"name": name, "value": value} for name, value in values.items()]
