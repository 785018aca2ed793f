"""Plans the web UI, the smoke test and the client of a Triton server. Pure functions; no pulumi.

Sources: Open WebUI 0.12.4 (env.py, config.py, main.py and CHANGELOG of its package; Dockerfile and start.sh of its image), the
source system's manifest (names, ports).
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from eks_inference.clients.spec import OpenWebUISpec, SmokeTestSpec, TritonClientSpec
from eks_inference.kubernetes.network_policy import Door
from eks_inference.kubernetes.workloads import (
    APP_LABEL,
    READ_ONLY_CONTAINER,
    RESTRICTED_CONTAINER,
    job_pod,
    restricted_pod,
    service,
)
from eks_inference.loadtest.plan import CONFIG_FILE, guaranteed, job_name, job_spec
from eks_inference.place.placement import Placement

WEB_UI_NAME = "open-webui"
WEB_UI_PROGRESS_SECONDS = 900
"""A small node takes minutes for the image (1.6 GB), the database migrations and the embedding model."""
WEB_UI_KEY_VARIABLE = "SERVING_API_KEY"
"""Variable with the servers' key. Open WebUI does not read it; it would use OPENAI_API_KEY for speech and images too."""

SMOKE_TEST_NAME = "smoke-test"
_SCRIPT = "chat.py"
_SCRIPT_FOLDER = "/client"
_ANSWER_SECONDS = 300  # without data before a question counts as failed
_ANSWERS_SECONDS = 900  # for three answers of at most 200 tokens on a busy server
_MARGIN_SECONDS = 300  # to pull a small image, perhaps on a new node

_DATA = "/data"
_USER = 1000

_WEB_UI_PORT = 8080
_WEB_UI_HEALTH = "/health"


def web_ui_door() -> Door:
    """Returns where people's browsers enter."""
    return Door(WEB_UI_NAME, 80, {APP_LABEL: WEB_UI_NAME}, _WEB_UI_PORT, _WEB_UI_HEALTH)


def web_ui_service(spec: OpenWebUISpec) -> dict[str, Any]:
    """Returns ``metadata`` and ``spec`` of the Service."""
    door = web_ui_door()
    return service(WEB_UI_NAME, spec.namespace, {APP_LABEL: WEB_UI_NAME}, [("http", door.port, "http")], awaited=True)


def web_ui_deployment(
    spec: OpenWebUISpec, *, image: str, endpoints: Sequence[str], secrets: Sequence[Mapping[str, Any]], placement: Placement
) -> dict[str, Any]:
    """Returns ``metadata`` and ``spec`` of the Deployment. ``secrets`` are ``env`` entries."""
    labels = {APP_LABEL: WEB_UI_NAME}
    # Kubernetes expands the variable. An empty key would become a header without a value, hence "none".
    key = f"$({WEB_UI_KEY_VARIABLE})" if WEB_UI_KEY_VARIABLE in [entry["name"] for entry in secrets] else "none"
    environment = {
        "OPENAI_API_BASE_URLS": ";".join(endpoints),
        "OPENAI_API_KEYS": ";".join(key for _ in endpoints),  # one for each URL
        "ENABLE_OLLAMA_API": "false",
        # Otherwise the database keeps the values of the first start, and later changes of these variables have no effect.
        "ENABLE_PERSISTENT_CONFIG": "false",
        "ENABLE_SIGNUP": "false",
        # Open WebUI must not look for updates and models: the NetworkPolicy makes each attempt time out.
        "OFFLINE_MODE": "true",
        # Not /app/backend/data: an empty volume there would hide the image's embedding and speech models.
        "DATA_DIR": _DATA,
        # The key that signs sessions. start.sh generates it once at random; on the volume it outlives the pod.
        "WEBUI_SECRET_KEY_FILE": f"{_DATA}/.webui_secret_key",
        "HOME": _DATA,  # root owns the home directory of the image
        **spec.extra_env,
    }
    plain = [{"name": name, "value": value} for name, value in environment.items()]
    probe = {"httpGet": {"path": _WEB_UI_HEALTH, "port": "http"}, "periodSeconds": 10, "timeoutSeconds": 5}
    container = {
        "name": WEB_UI_NAME,
        "image": image,
        # Secrets come first: Kubernetes expands only variables that are defined earlier.
        "env": list({entry["name"]: dict(entry) for entry in (*secrets, *plain)}.values()),
        "ports": [{"name": "http", "containerPort": _WEB_UI_PORT}],
        # No CPU limit: with half a core the imports take minutes, and afterwards the process idles.
        "resources": {"requests": {"cpu": spec.cpu, "memory": spec.memory}, "limits": {"memory": spec.memory}},
        "startupProbe": {**probe, "failureThreshold": 60},
        "readinessProbe": probe,
        "livenessProbe": {**probe, "failureThreshold": 6},
        "securityContext": RESTRICTED_CONTAINER,
        "volumeMounts": [{"name": "data", "mountPath": _DATA}],
    }
    pod = {
        **_pod(placement),
        "containers": [container],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": WEB_UI_NAME}}],
    }
    return {
        "metadata": {"name": WEB_UI_NAME, "namespace": spec.namespace, "labels": labels},
        "spec": {
            # More replicas need PostgreSQL and Redis; the volume's files allow one node only.
            "replicas": 1,
            "strategy": {"type": "Recreate"},
            "progressDeadlineSeconds": WEB_UI_PROGRESS_SECONDS,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def port_forward_command(namespace: str) -> str:
    """Returns the command that makes the web UI reachable at http://localhost:8081, as in the source system."""
    return f"kubectl -n {namespace} port-forward svc/{WEB_UI_NAME} 8081:80"


def smoke_test_script() -> dict[str, str]:
    """Returns the client's script by file name. ``eks-inference chat`` runs the same file."""
    return {_SCRIPT: files("eks_inference.clients").joinpath(_SCRIPT).read_text("utf-8")}


def smoke_test_seconds(startup_seconds: int) -> int:
    """Returns how long the Job may take: a cold start of the server, three answers, and a margin."""
    return startup_seconds + _ANSWERS_SECONDS + _MARGIN_SECONDS


def smoke_test_job(
    namespace: str,
    spec: SmokeTestSpec,
    *,
    image: str,
    endpoint: str,
    model: str,
    task: str = "chat",
    startup_seconds: int,
    placement: Placement,
    secret_env: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """Returns ``metadata`` and ``spec`` of the Job. Jobs are immutable, so the name has a hash of whatever affects the result."""
    command = ["python", f"{_SCRIPT_FOLDER}/{_SCRIPT}", "--url", endpoint, "--model", model]
    command += ["--task", task] * (task != "chat")
    command += ["--wait", str(startup_seconds), "--timeout", str(_ANSWER_SECONDS)]
    labels = {APP_LABEL: SMOKE_TEST_NAME}
    container = {
        "name": SMOKE_TEST_NAME,
        "image": image,
        "command": command,
        "env": [
            {"name": "PYTHONUNBUFFERED", "value": "1"},
            {"name": "PYTHONDONTWRITEBYTECODE", "value": "1"},
            *(dict(entry) for entry in secret_env),
        ],
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "128Mi"}},
        "securityContext": READ_ONLY_CONTAINER,
        "volumeMounts": [{"name": "script", "mountPath": _SCRIPT_FOLDER, "readOnly": True}],
    }
    job = {
        "backoffLimit": 0,  # the script itself waits for the server, and a retry would hide a failure
        "activeDeadlineSeconds": smoke_test_seconds(startup_seconds),
        "template": {
            "metadata": {"labels": labels},
            "spec": {
                **_pod(placement),
                "restartPolicy": "Never",
                "containers": [container],
                "volumes": [{"name": "script", "configMap": {"name": SMOKE_TEST_NAME}}],
            },
        },
    }
    content = json.dumps([smoke_test_script(), job, spec.run], sort_keys=True)
    digest = hashlib.sha256(content.encode()).hexdigest()[:10]
    # replaceUnready: the next `pulumi up` replaces a failed Job instead of failing on it forever.
    annotation = "pulumi.com/replaceUnready" if spec.wait else "pulumi.com/skipAwait"
    return {
        "metadata": {
            "name": f"{SMOKE_TEST_NAME}-{digest}",
            "namespace": namespace,
            "labels": labels,
            "annotations": {annotation: "true"},
        },
        "spec": job,
    }


def _pod(placement: Placement) -> dict[str, Any]:
    """Returns the fields that the pods of web UI and smoke test share."""
    return {
        **{field: value for field, value in placement.scheduling().items() if value},
        "securityContext": {**restricted_pod(_USER), "fsGroupChangePolicy": "OnRootMismatch"},
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
    }


# The client of a Triton server. Sources: genai-perf 0.0.16 (parser, artifacts), and that of Triton 24.07 as the source system's
# log shows it; Triton's Python client (``tritonclient.grpc``), both in NVIDIA's images ``<release>-py3-sdk``; the source system's
# Job (sequence, figures).

TRITON_CLIENT_LABEL = "eks-inference/triton-client"
TRITON_SCRIPT = "triton_client.py"

_START_SECONDS = 900  # to pull an image of about 10 GB
_WINDOWS = 10  # perf_analyzer stops after these, even if its figures have not stabilized
_TRITON_MARGIN_SECONDS = 300  # tokenizer and prompts before a measurement, answers in flight after it


@dataclass(frozen=True)
class TritonTarget:
    """The server under test. ``grpc`` is ``host:port``."""

    namespace: str
    grpc: str
    model: str
    tokenizer: str
    tokenizer_revision: str | None
    release: str
    """Release of Triton, and thus of the client, e.g. ``26.08``."""
    startup_seconds: int


def _asset(name: str) -> str:
    return files("eks_inference.clients").joinpath("assets", name).read_text("utf-8")


def triton_script() -> str:
    """Returns the text of the script that runs in the pod."""
    return _asset(TRITON_SCRIPT)


def triton_prompts(spec: TritonClientSpec) -> list[str]:
    """Returns the prompts of the test."""
    return list(spec.prompts) or _asset("prompts.txt").splitlines()


def triton_command(spec: TritonClientSpec, target: TritonTarget, users: int) -> list[str]:
    """Returns the command of one measurement. genai-perf of Triton 24.07 and older has no subcommand and other options."""
    older = target.release <= "24.07"
    revision = ["--tokenizer-revision", target.tokenizer_revision] if target.tokenizer_revision and not older else []
    return [
        *(["genai-perf"] if older else ["genai-perf", "profile"]),
        *("--model", target.model, "--backend", "vllm"),
        *(("--service-kind", "triton") if older else ("--endpoint-type", "kserve")),
        *("--streaming", "--url", target.grpc),
        *("--num-prompts", str(spec.num_prompts), "--random-seed", str(spec.seed)),
        *("--synthetic-input-tokens-mean", str(spec.input_tokens.mean)),
        *("--synthetic-input-tokens-stddev", str(spec.input_tokens.stddev)),
        *("--output-tokens-mean", str(spec.output_tokens)),
        *("--concurrency", str(users), "--measurement-interval", str(spec.measurement_interval_seconds * 1000)),
        *("--tokenizer", target.tokenizer),
        *revision,
    ]


def triton_configuration(spec: TritonClientSpec, target: TritonTarget, image: str) -> dict[str, Any]:
    """Returns the configuration of ``assets/triton_client.py``. ``digest`` is a hash of the rest, the image and the script."""
    content = {
        "url": target.grpc,
        "model": target.model,
        "ready_timeout_seconds": target.startup_seconds,
        "prompts": triton_prompts(spec),
        "sampling": {"temperature": spec.temperature, "top_p": spec.top_p, "max_tokens": spec.max_tokens},
        "measurements": [{"users": users, "command": triton_command(spec, target, users)} for users in spec.users],
    }
    hashed = json.dumps([content, str(spec.run), image, triton_script()], sort_keys=True)
    return {"digest": hashlib.sha256(hashed.encode()).hexdigest()[:10], **content}


def triton_deadline_seconds(spec: TritonClientSpec, target: TritonTarget) -> int:
    """Returns the upper bound of the Job: its start, the wait for the model, and every measurement at its longest."""
    measurement = _WINDOWS * spec.measurement_interval_seconds + _TRITON_MARGIN_SECONDS
    return _START_SECONDS + target.startup_seconds + len(spec.users) * measurement


def triton_job_spec(
    name: str,
    spec: TritonClientSpec,
    configuration: Mapping[str, Any],
    target: TritonTarget,
    *,
    image: str,
    placement: Placement,
    token_env: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """Returns the ``spec`` of a Job that tests the answers and then measures."""

    def container(role: str) -> dict[str, Any]:
        return {
            "name": role,
            "image": image,
            "imagePullPolicy": "IfNotPresent",
            "command": ["python3", "-u", f"{_SCRIPT_FOLDER}/{TRITON_SCRIPT}", role, f"{_SCRIPT_FOLDER}/{CONFIG_FILE}"],
            "workingDir": "/tmp",
            "env": [*token_env, {"name": "HOME", "value": "/tmp"}, {"name": "HF_HOME", "value": "/tmp/huggingface"}],
            "resources": guaranteed(spec.cpu, spec.memory),
            "securityContext": READ_ONLY_CONTAINER,
            "volumeMounts": [
                {"name": "client", "mountPath": _SCRIPT_FOLDER, "readOnly": True},
                {"name": "scratch", "mountPath": "/tmp"},
            ],
        }

    pod = {
        **job_pod(placement, _USER),
        "initContainers": [container("test")],
        "containers": [container("perf")],
        "volumes": [
            {"name": "client", "configMap": {"name": job_name(name, configuration)}},
            {"name": "scratch", "emptyDir": {"sizeLimit": "4Gi"}},
        ],
    }
    return job_spec({TRITON_CLIENT_LABEL: name}, triton_deadline_seconds(spec, target), pod)


def triton_log_command(name: str, spec: TritonClientSpec, configuration: Mapping[str, Any]) -> str:
    """Returns the command that prints the first Job's log: the test, then the measurements."""
    return f"kubectl -n {spec.namespace} logs job/{job_name(name, configuration)} --all-containers"


def triton_again_command(name: str, spec: TritonClientSpec) -> str:
    """Returns the command that runs the client again."""
    return f"kubectl -n {spec.namespace} create job {name}-$(date +%s) --from=cronjob/{name}"
