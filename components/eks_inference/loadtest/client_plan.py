"""Plans what clients of model servers share: a NetworkPolicy, a volume, and a Job that measures. Pure functions; no pulumi.

Source: Kubernetes documentation for Job, CronJob and Pod Security "restricted".
"""

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from eks_inference.kubernetes.network_policy import DNS, HTTPS, allow_to, namespace, network_policy
from eks_inference.kubernetes.pod_security import RESTRICTED_CONTAINER

CONFIG_FILE = "config.json"
CONTAINER_SECURITY = {**RESTRICTED_CONTAINER, "readOnlyRootFilesystem": True}


def client_policy(name: str, space: str, servers: Mapping[str, str], *, hub: bool = False) -> dict[str, Any]:
    """Returns ``metadata`` and ``spec`` of a NetworkPolicy for every pod of the namespace ``space``.

    It closes ingress and allows egress to DNS, to the port of each server, and with ``hub`` to the Hugging Face Hub. ``servers``
    maps each endpoint (a URL, or host and port) to the server's namespace.
    """
    ports: dict[str, set[int]] = {}
    for endpoint, where in servers.items():
        address = urlsplit(endpoint if "//" in endpoint else f"//{endpoint}")
        ports.setdefault(where, set()).add(address.port or (443 if address.scheme == "https" else 80))
    rules = [allow_to(namespace(where), tcp=sorted(numbers)) for where, numbers in sorted(ports.items())]
    return network_policy(name, space, selector={}, ingress=[], egress=[DNS, *rules, *([HTTPS] if hub else [])])


def guaranteed(cpu: str, memory: str) -> dict[str, dict[str, str]]:
    """Returns container resources whose requests equal their limits."""
    return {"requests": {"cpu": cpu, "memory": memory}, "limits": {"cpu": cpu, "memory": memory}}


def job_name(name: str, configuration: Mapping[str, Any]) -> str:
    """Returns the name of the Job and of its ConfigMap. The digest makes a changed configuration a new Job."""
    return f"{name}-{configuration['digest']}"


def config_map(name: str, space: str, scripts: Mapping[str, str], configuration: Mapping[str, Any]) -> dict[str, Any]:
    """Returns ``metadata`` and ``data`` of the ConfigMap with the scripts (text by file name) and the configuration."""
    return {
        "metadata": {"name": job_name(name, configuration), "namespace": space},
        "data": {**scripts, CONFIG_FILE: json.dumps(configuration, indent=1) + "\n"},
        "immutable": True,
    }


def job_spec(labels: Mapping[str, str], deadline_seconds: int, pod: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the ``spec`` of a Job that runs ``pod`` once."""
    return {
        "backoffLimit": 0,
        "activeDeadlineSeconds": deadline_seconds,
        "template": {
            # A measurement does not survive a move to another node, so Karpenter must leave the pod alone.
            "metadata": {"labels": dict(labels), "annotations": {"karpenter.sh/do-not-disrupt": "true"}},
            "spec": dict(pod),
        },
    }


def job(name: str, space: str, configuration: Mapping[str, Any], spec: Mapping[str, Any]) -> dict[str, Any]:
    """Returns ``metadata`` and ``spec`` of the Job."""
    return {
        # A failed test is no failed deployment, and `pulumi up` need not last as long as the measurement.
        "metadata": {
            "name": job_name(name, configuration),
            "namespace": space,
            "annotations": {"pulumi.com/skipAwait": "true"},
        },
        "spec": dict(spec),
    }


def job_template(name: str, space: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    """Returns ``metadata`` and ``spec`` of a suspended CronJob: people create Jobs from it with ``kubectl create job --from``."""
    return {
        "metadata": {"name": name, "namespace": space},
        "spec": {"suspend": True, "schedule": "0 0 1 1 *", "jobTemplate": {"spec": dict(spec)}},
    }


def volume_claim(name: str, space: str, gib: int, storage_class: str | None) -> dict[str, Any]:
    """Returns ``metadata`` and ``spec`` of a PersistentVolumeClaim; without a class it gets the cluster's default."""
    return {
        "metadata": {
            "name": name,
            "namespace": space,
            # The storage class binds the volume when the first pod starts, and that pod needs the claim: waiting would deadlock.
            "annotations": {"pulumi.com/skipAwait": "true"},
        },
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": f"{gib}Gi"}},
            **({"storageClassName": storage_class} if storage_class else {}),
        },
    }
