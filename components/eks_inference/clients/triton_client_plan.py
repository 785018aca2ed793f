"""Plans the client of a Triton server: its configuration and its Job. Pure functions; no pulumi.

Sources: genai-perf 0.0.16 (parser, artifacts), and that of Triton 24.07 as the source system's log shows it; Triton's Python
client (``tritonclient.grpc``), both in NVIDIA's images ``<release>-py3-sdk``; the source system's Job (sequence, figures).
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from eks_inference.clients.triton_client_spec import TritonClientSpec
from eks_inference.kubernetes.workloads import job_pod
from eks_inference.loadtest.client_plan import CONFIG_FILE, CONTAINER_SECURITY, guaranteed, job_name
from eks_inference.loadtest.client_plan import job_spec as measuring_job
from eks_inference.placement import Placement

CLIENT_LABEL = "eks-inference/triton-client"
SCRIPT_FILE = "triton_client.py"

_FOLDER = "/client"
_START_SECONDS = 900  # to pull an image of about 10 GB
_WINDOWS = 10  # perf_analyzer stops after these, even if its figures have not stabilized
_MARGIN_SECONDS = 300  # tokenizer and prompts before a measurement, answers in flight after it
_USER = 1000


@dataclass(frozen=True)
class Target:
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


def script() -> str:
    """Returns the text of the script that runs in the pod."""
    return _asset(SCRIPT_FILE)


def prompts(spec: TritonClientSpec) -> list[str]:
    """Returns the prompts of the test."""
    return list(spec.prompts) or _asset("prompts.txt").splitlines()


def command(spec: TritonClientSpec, target: Target, users: int) -> list[str]:
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


def configuration(spec: TritonClientSpec, target: Target, image: str) -> dict[str, Any]:
    """Returns the configuration of ``assets/triton_client.py``. ``digest`` is a hash of the rest, the image and the script."""
    content = {
        "url": target.grpc,
        "model": target.model,
        "ready_timeout_seconds": target.startup_seconds,
        "prompts": prompts(spec),
        "sampling": {"temperature": spec.temperature, "top_p": spec.top_p, "max_tokens": spec.max_tokens},
        "measurements": [{"users": users, "command": command(spec, target, users)} for users in spec.users],
    }
    hashed = json.dumps([content, str(spec.run), image, script()], sort_keys=True)
    return {"digest": hashlib.sha256(hashed.encode()).hexdigest()[:10], **content}


def deadline_seconds(spec: TritonClientSpec, target: Target) -> int:
    """Returns the upper bound of the Job: its start, the wait for the model, and every measurement at its longest."""
    measurement = _WINDOWS * spec.measurement_interval_seconds + _MARGIN_SECONDS
    return _START_SECONDS + target.startup_seconds + len(spec.users) * measurement


def job_spec(
    name: str,
    spec: TritonClientSpec,
    configuration: Mapping[str, Any],
    target: Target,
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
            "command": ["python3", "-u", f"{_FOLDER}/{SCRIPT_FILE}", role, f"{_FOLDER}/{CONFIG_FILE}"],
            "workingDir": "/tmp",
            "env": [*token_env, {"name": "HOME", "value": "/tmp"}, {"name": "HF_HOME", "value": "/tmp/huggingface"}],
            "resources": guaranteed(spec.cpu, spec.memory),
            "securityContext": CONTAINER_SECURITY,
            "volumeMounts": [
                {"name": "client", "mountPath": _FOLDER, "readOnly": True},
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
    return measuring_job({CLIENT_LABEL: name}, deadline_seconds(spec, target), pod)


def log_command(name: str, spec: TritonClientSpec, configuration: Mapping[str, Any]) -> str:
    """Returns the command that prints the first Job's log: the test, then the measurements."""
    return f"kubectl -n {spec.namespace} logs job/{job_name(name, configuration)} --all-containers"


def again_command(name: str, spec: TritonClientSpec) -> str:
    """Returns the command that runs the client again."""
    return f"kubectl -n {spec.namespace} create job {name}-$(date +%s) --from=cronjob/{name}"
