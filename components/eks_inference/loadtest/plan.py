"""The Kubernetes objects around a load test. Pure functions; no pulumi.

Sources: GuideLLM v0.7.3 (Containerfile: user 1001, /opt/app-root/bin, tar); Kubernetes documentation for Job, CronJob and Pod
Security "restricted".
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from eks_inference.kubernetes import network_policy as policy
from eks_inference.kubernetes.pod_security import RESTRICTED_CONTAINER
from eks_inference.kubernetes.workloads import job_pod
from eks_inference.loadtest.guidellm_plan import SCRIPT_FILE, Target, ready_timeout_seconds, script
from eks_inference.loadtest.spec import LoadTestSpec
from eks_inference.placement import Placement

TEST_LABEL = "eks-inference/load-test"
RESULTS_FOLDER = "/results"
READER_SECONDS = 3600

_CONFIG_FOLDER = "/load-test"
_CONFIG_FILE = "config.json"
_PYTHON = "/opt/app-root/bin/python"  # the interpreter GuideLLM is installed in
_START_SECONDS = 600  # of the pod: its image and its volume
_GRACE_SECONDS = 900  # what assets/load_test.py gives the tool beyond the measurement

_USER = 1001
_CONTAINER_SECURITY = {**RESTRICTED_CONTAINER, "readOnlyRootFilesystem": True}


def deadline_seconds(spec: LoadTestSpec, targets: Mapping[str, Target]) -> int:
    """Upper bound of the Job: its start, the wait, and every measurement at its longest."""
    measurements = len(targets) * len(spec.users)
    return _START_SECONDS + ready_timeout_seconds(spec, targets) + measurements * (spec.timeout_seconds + _GRACE_SECONDS)


# -- Kubernetes objects ---------------------------------------------------------------------------------------------------------


def config_map(name: str, spec: LoadTestSpec, configuration: Mapping[str, Any]) -> dict[str, Any]:
    """Script and configuration, under a name of their own for each content."""
    return {
        "metadata": {"name": job_name(name, configuration), "namespace": spec.namespace},
        "data": {SCRIPT_FILE: script(), _CONFIG_FILE: json.dumps(configuration, indent=1) + "\n"},
        "immutable": True,
    }


def volume_claim(name: str, spec: LoadTestSpec) -> dict[str, Any]:
    storage_class = {"storageClassName": spec.storage_class} if spec.storage_class else {}
    return {
        # The storage class waits for the first pod, which waits for this claim to exist: nothing may wait for the volume.
        "metadata": {
            "name": results_claim(name),
            "namespace": spec.namespace,
            "annotations": {"pulumi.com/skipAwait": "true"},
        },
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": f"{spec.volume_gib}Gi"}},
            **storage_class,
        },
    }


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
    """The Job. ``secret_env`` is for what talks to the servers, ``token_env`` for what asks the Hub."""
    full_name = job_name(name, configuration)
    script_path, config_path = f"{_CONFIG_FOLDER}/{SCRIPT_FILE}", f"{_CONFIG_FOLDER}/{_CONFIG_FILE}"
    scratch = {"name": "scratch", "mountPath": "/tmp"}
    config = {"name": "config", "mountPath": _CONFIG_FOLDER, "readOnly": True}
    environment = {
        # The root file system is read-only.
        "HOME": "/tmp",
        "HF_HOME": "/tmp/huggingface",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        **spec.extra_env,
    }
    return {
        # A failed test is no failed deployment, and `pulumi up` need not last as long as the test.
        "metadata": {"name": full_name, "namespace": spec.namespace, "annotations": {"pulumi.com/skipAwait": "true"}},
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": deadline_seconds(spec, targets),
            "template": {
                "metadata": {
                    "labels": {TEST_LABEL: name},
                    # A test that is moved half-way has measured nothing.
                    "annotations": {"karpenter.sh/do-not-disrupt": "true"},
                },
                "spec": {
                    **job_pod(placement, _USER),
                    "initContainers": [
                        {
                            "name": "wait-for-models",
                            "image": configuration["image"],
                            "command": [_PYTHON, "-u", script_path, "wait", config_path],
                            "env": [*secret_env, {"name": "PYTHONDONTWRITEBYTECODE", "value": "1"}],
                            "resources": _guaranteed("100m", "128Mi"),
                            "securityContext": _CONTAINER_SECURITY,
                            "volumeMounts": [config],
                        }
                    ],
                    "containers": [
                        {
                            "name": "guidellm",
                            "image": configuration["image"],
                            "command": [_PYTHON, "-u", script_path, "run", config_path, RESULTS_FOLDER],
                            "workingDir": "/tmp",
                            "env": [
                                *secret_env,
                                *token_env,
                                {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
                                *({"name": key, "value": value} for key, value in environment.items()),
                            ],
                            "resources": _guaranteed(spec.cpu, spec.memory),
                            "securityContext": _CONTAINER_SECURITY,
                            "volumeMounts": [config, scratch, {"name": "results", "mountPath": RESULTS_FOLDER}],
                        }
                    ],
                    "volumes": [
                        {"name": "config", "configMap": {"name": full_name}},
                        {"name": "scratch", "emptyDir": {"sizeLimit": "2Gi"}},
                        _results_volume(name),
                    ],
                },
            },
        },
    }


def reader(name: str, spec: LoadTestSpec, image: str, placement: Placement) -> dict[str, Any]:
    """A CronJob that never runs by itself: the template of the pods through which ``copy_commands`` reach the volume."""
    return {
        "metadata": {"name": reader_name(name), "namespace": spec.namespace},
        "spec": {
            "suspend": True,
            "schedule": "0 0 1 1 *",
            "jobTemplate": {
                "spec": {
                    "backoffLimit": 0,
                    "activeDeadlineSeconds": READER_SECONDS,
                    "ttlSecondsAfterFinished": 60,
                    "template": {
                        "metadata": {"labels": {TEST_LABEL: name}},
                        "spec": {
                            **job_pod(placement, _USER),
                            "terminationGracePeriodSeconds": 1,  # the first process of a container ignores the request to end
                            "containers": [
                                {
                                    "name": "reader",
                                    "image": image,
                                    "command": ["/bin/sleep", str(READER_SECONDS)],
                                    "resources": _guaranteed("100m", "64Mi"),
                                    "securityContext": _CONTAINER_SECURITY,
                                    "volumeMounts": [{"name": "results", "mountPath": RESULTS_FOLDER, "readOnly": True}],
                                }
                            ],
                            "volumes": [_results_volume(name)],
                        },
                    },
                }
            },
        },
    }


def network_policy(name: str, spec: LoadTestSpec, targets: Mapping[str, Target]) -> dict[str, Any]:
    """Nobody asks the test; it asks the servers, and the Hub for tokenizers."""
    ports: dict[str, set[int]] = {}
    for target in targets.values():
        ports.setdefault(target.namespace, set()).add(target.port)
    servers = [policy.allow_to(policy.namespace(where), tcp=sorted(open_ports)) for where, open_ports in sorted(ports.items())]
    return policy.network_policy(name, spec.namespace, selector={}, ingress=[], egress=[policy.DNS, *servers, policy.HTTPS])


# -- reading the results --------------------------------------------------------------------------------------------------------


def job_name(name: str, configuration: Mapping[str, Any]) -> str:
    """Of the Job and what it reads. Another configuration is another Job."""
    return f"{name}-{configuration['digest']}"


def results_claim(name: str) -> str:
    return f"{name}-results"


def reader_name(name: str) -> str:
    return f"{name}-reader"


def log_command(name: str, spec: LoadTestSpec, configuration: Mapping[str, Any]) -> str:
    """All records of the run as JSON lines: the run, its measurements, its requests."""
    return f"kubectl -n {spec.namespace} logs job/{job_name(name, configuration)} -c guidellm | grep '^{{'"


def copy_commands(name: str, spec: LoadTestSpec) -> list[str]:
    """The folders of all runs as ./results: a pod of ``reader``, a copy through it, its end."""
    kubectl, reader = f"kubectl -n {spec.namespace}", reader_name(name)
    return [
        f"{kubectl} create job {reader} --from=cronjob/{reader}",
        f"{kubectl} wait --for=jsonpath='{{.status.ready}}'=1 --timeout=10m job/{reader}",
        f"mkdir -p results && {kubectl} exec job/{reader} -- tar -cf - -C {RESULTS_FOLDER} . | tar -xf - -C results",
        f"{kubectl} delete job {reader}",
    ]


# -- parts ----------------------------------------------------------------------------------------------------------------------


def _results_volume(name: str) -> dict[str, Any]:
    return {"name": "results", "persistentVolumeClaim": {"claimName": results_claim(name)}}


def _guaranteed(cpu: str, memory: str) -> dict[str, dict[str, str]]:
    return {"requests": {"cpu": cpu, "memory": memory}, "limits": {"cpu": cpu, "memory": memory}}
