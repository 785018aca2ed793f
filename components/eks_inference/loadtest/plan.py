"""Plans the Kubernetes objects of a load test. Pure functions; no pulumi.

Source: GuideLLM v0.7.3 (Containerfile: user 1001, /opt/app-root/bin, tar).
"""

from collections.abc import Mapping, Sequence
from typing import Any

from eks_inference.kubernetes.workloads import job_pod
from eks_inference.loadtest import client_plan
from eks_inference.loadtest.client_plan import CONFIG_FILE, CONTAINER_SECURITY, guaranteed, job_name
from eks_inference.loadtest.guidellm_plan import SCRIPT_FILE, Target, ready_timeout_seconds
from eks_inference.loadtest.spec import LoadTestSpec
from eks_inference.placement import Placement

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
                "securityContext": CONTAINER_SECURITY,
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
                "securityContext": CONTAINER_SECURITY,
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
    work = client_plan.job_spec({TEST_LABEL: name}, deadline_seconds(spec, targets), pod)
    return client_plan.job(name, spec.namespace, configuration, work)


def reader(name: str, spec: LoadTestSpec, image: str, placement: Placement) -> dict[str, Any]:
    """Returns ``metadata`` and ``spec`` of the suspended CronJob whose Jobs let ``copy_commands`` read the volume."""
    container = {
        "name": "reader",
        "image": image,
        "command": ["/bin/sleep", str(READER_SECONDS)],
        "resources": guaranteed("100m", "64Mi"),
        "securityContext": CONTAINER_SECURITY,
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
    return client_plan.job_template(f"{name}-reader", spec.namespace, work)


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
