"""Plans the Kubernetes objects of a load test, and what it shares with other clients of model servers. Pure functions; no pulumi.

Sources: GuideLLM v0.7.3 (Containerfile: user 1001, /opt/app-root/bin, tar); Kubernetes documentation for Job, CronJob and Pod
Security "restricted".
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from eks_inference.kubernetes.network_policy import DNS, HTTPS, allow_to, namespace, network_policy
from eks_inference.kubernetes.workloads import READ_ONLY_CONTAINER, job_pod
from eks_inference.loadtest.guidellm_plan import SCRIPT_FILE, Target, ready_timeout_seconds
from eks_inference.loadtest.spec import LoadTestSpec
from eks_inference.place.placement import Placement

CONFIG_FILE = "config.json"


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


def client_job(name: str, space: str, configuration: Mapping[str, Any], spec: Mapping[str, Any]) -> dict[str, Any]:
    """Returns ``metadata`` and ``spec`` of the Job of a client."""
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


TEST_LABEL = "eks-inference/load-test"
RESULTS_FOLDER = "/results"
READER_SECONDS = 3600

_CONFIG_FOLDER = "/load-test"
_PYTHON = "/opt/app-root/bin/python"  # the interpreter GuideLLM is installed in
_START_SECONDS = 600  # for the pod to start: image pull and volume
_GRACE_SECONDS = 900  # what assets/load_test.py gives the tool beyond the measurement
_USER = 1001


def deadline_seconds(spec: LoadTestSpec, targets: Mapping[str, Target]) -> int:
    """Returns the upper bound of the Job: its start, the wait for the models, and every measurement at its longest."""
    measurements = len(targets) * len(spec.users)
    return _START_SECONDS + ready_timeout_seconds(spec, targets) + measurements * (spec.timeout_seconds + _GRACE_SECONDS)


def job(
    name: str,
    spec: LoadTestSpec,
    configuration: Mapping[str, Any],
    targets: Mapping[str, Target],
    *,
    placement: Placement,
    secret_env: Sequence[Mapping[str, Any]] = (),
    token_env: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """Returns ``metadata`` and ``spec`` of the Job.

    ``secret_env`` goes to the containers that call the servers, ``token_env`` to the one that calls the Hub.
    """
    script, config = f"{_CONFIG_FOLDER}/{SCRIPT_FILE}", f"{_CONFIG_FOLDER}/{CONFIG_FILE}"
    config_mount = {"name": "config", "mountPath": _CONFIG_FOLDER, "readOnly": True}
    environment = {
        # The root file system is read-only.
        "HOME": "/tmp",
        "HF_HOME": "/tmp/huggingface",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        **spec.extra_env,
    }
    pod = {
        **job_pod(placement, _USER),
        "initContainers": [
            {
                "name": "wait-for-models",
                "image": configuration["image"],
                "command": [_PYTHON, "-u", script, "wait", config],
                "env": [*secret_env, {"name": "PYTHONDONTWRITEBYTECODE", "value": "1"}],
                "resources": guaranteed("100m", "128Mi"),
                "securityContext": READ_ONLY_CONTAINER,
                "volumeMounts": [config_mount],
            }
        ],
        "containers": [
            {
                "name": "guidellm",
                "image": configuration["image"],
                "command": [_PYTHON, "-u", script, "run", config, RESULTS_FOLDER],
                "workingDir": "/tmp",
                "env": [
                    *secret_env,
                    *token_env,
                    {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
                    *({"name": key, "value": value} for key, value in environment.items()),
                ],
                "resources": guaranteed(spec.cpu, spec.memory),
                "securityContext": READ_ONLY_CONTAINER,
                "volumeMounts": [
                    config_mount,
                    {"name": "scratch", "mountPath": "/tmp"},
                    {"name": "results", "mountPath": RESULTS_FOLDER},
                ],
            }
        ],
        "volumes": [
            {"name": "config", "configMap": {"name": job_name(name, configuration)}},
            {"name": "scratch", "emptyDir": {"sizeLimit": "2Gi"}},
            _results_volume(name),
        ],
    }
    work = job_spec({TEST_LABEL: name}, deadline_seconds(spec, targets), pod)
    return client_job(name, spec.namespace, configuration, work)


def reader(name: str, spec: LoadTestSpec, image: str, placement: Placement) -> dict[str, Any]:
    """Returns ``metadata`` and ``spec`` of the suspended CronJob whose Jobs let ``copy_commands`` read the volume."""
    container = {
        "name": "reader",
        "image": image,
        "command": ["/bin/sleep", str(READER_SECONDS)],
        "resources": guaranteed("100m", "64Mi"),
        "securityContext": READ_ONLY_CONTAINER,
        "volumeMounts": [{"name": "results", "mountPath": RESULTS_FOLDER, "readOnly": True}],
    }
    pod = {
        **job_pod(placement, _USER),
        "terminationGracePeriodSeconds": 1,  # sleep runs as process 1, which ignores SIGTERM
        "containers": [container],
        "volumes": [_results_volume(name)],
    }
    work = {
        "backoffLimit": 0,
        "activeDeadlineSeconds": READER_SECONDS,
        "ttlSecondsAfterFinished": 60,
        "template": {"metadata": {"labels": {TEST_LABEL: name}}, "spec": pod},
    }
    return job_template(f"{name}-reader", spec.namespace, work)


def log_command(name: str, spec: LoadTestSpec, configuration: Mapping[str, Any]) -> str:
    """Returns the command that prints the run, its measurements and its requests as JSON lines."""
    return f"kubectl -n {spec.namespace} logs job/{job_name(name, configuration)} -c guidellm | grep '^{{'"


def copy_commands(name: str, spec: LoadTestSpec) -> list[str]:
    """Returns the commands that copy the folders of all runs to ./results through a pod of ``reader``."""
    kubectl, reader = f"kubectl -n {spec.namespace}", f"{name}-reader"
    return [
        f"{kubectl} create job {reader} --from=cronjob/{reader}",
        f"{kubectl} wait --for=jsonpath='{{.status.ready}}'=1 --timeout=10m job/{reader}",
        f"mkdir -p results && {kubectl} exec job/{reader} -- tar -cf - -C {RESULTS_FOLDER} . | tar -xf - -C results",
        f"{kubectl} delete job {reader}",
    ]


def _results_volume(name: str) -> dict[str, Any]:
    return {"name": "results", "persistentVolumeClaim": {"claimName": f"{name}-results"}}
