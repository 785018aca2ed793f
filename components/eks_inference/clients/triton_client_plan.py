"""The client of a Triton server as data: what it is told, its Job, and the template for further ones. Pure; no pulumi.

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
from eks_inference.kubernetes import network_policy as policy
from eks_inference.kubernetes.pod_security import RESTRICTED_CONTAINER
from eks_inference.kubernetes.workloads import job_pod
from eks_inference.placement import Placement

CLIENT_LABEL = "eks-inference/triton-client"

_FOLDER = "/client"
_SCRIPT, _CONFIG, _PROMPTS = "triton_client.py", "config.json", "prompts.txt"
_START_SECONDS = 900  # pull of an image of about 10 GB
_WINDOWS = 10  # after which perf_analyzer gives up on steady figures
_MARGIN_SECONDS = 300  # tokenizer and prompts before a measurement, answers under way after it
_USER = 1000
_CONTAINER_SECURITY = {**RESTRICTED_CONTAINER, "readOnlyRootFilesystem": True}


@dataclass(frozen=True)
class Target:
    """The server that is asked. ``grpc`` is host and port."""

    namespace: str
    grpc: str
    model: str
    tokenizer: str
    tokenizer_revision: str | None
    release: str
    """Of Triton, and so of the client: ``26.08``."""
    startup_seconds: int

    @property
    def port(self) -> int:
        return int(self.grpc.rpartition(":")[2])


def _asset(name: str) -> str:
    return files("eks_inference.clients").joinpath("assets", name).read_text("utf-8")


def script() -> str:
    """What runs in the pod."""
    return _asset(_SCRIPT)


def prompts(spec: TritonClientSpec) -> list[str]:
    """Prompts of the test."""
    return list(spec.prompts) or _asset(_PROMPTS).splitlines()


def command(spec: TritonClientSpec, target: Target, users: int) -> list[str]:
    """One measurement. genai-perf of Triton 24.07 has no subcommand and its own word for Triton's protocol."""
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
    """All that ``assets/triton_client.py`` is told. ``digest`` stands for the rest of it, the image and the script."""
    content = {
        "url": target.grpc,
        "model": target.model,
        "ready_timeout_seconds": target.startup_seconds,
        "prompts": prompts(spec),
        "sampling": {"temperature": spec.temperature, "top_p": spec.top_p, "max_tokens": spec.max_tokens},
        "measurements": [{"users": users, "command": command(spec, target, users)} for users in spec.users],
    }
    seen = [content, str(spec.run), image, script()]
    return {"digest": hashlib.sha256(json.dumps(seen, sort_keys=True).encode()).hexdigest()[:10], **content}


def deadline_seconds(spec: TritonClientSpec, target: Target) -> int:
    """Upper bound of the Job: its start, the wait for the model, and every measurement at its longest."""
    measurement = _WINDOWS * spec.measurement_interval_seconds + _MARGIN_SECONDS
    return _START_SECONDS + target.startup_seconds + len(spec.users) * measurement


# -- Kubernetes objects ---------------------------------------------------------------------------------------------------------


def job_name(name: str, told: Mapping[str, Any]) -> str:
    """Of the first Job and of what it reads. Another configuration is another Job."""
    return f"{name}-{told['digest']}"


def config_map(name: str, spec: TritonClientSpec, told: Mapping[str, Any]) -> dict[str, Any]:
    """``metadata`` and ``data`` of script and configuration, under a name of their own for each content."""
    return {
        "metadata": {"name": job_name(name, told), "namespace": spec.namespace},
        "data": {_SCRIPT: script(), _CONFIG: json.dumps(told, indent=1) + "\n"},
        "immutable": True,
    }


def job(name: str, spec: TritonClientSpec, told: Mapping[str, Any], work: Mapping[str, Any]) -> dict[str, Any]:
    """``metadata`` and ``spec`` of the Job that runs with a deployment; nothing waits for it. ``work`` is its ``job_spec``."""
    return {
        # A failed test is no failed deployment, and `pulumi up` need not last as long as the measurement.
        "metadata": {
            "name": job_name(name, told),
            "namespace": spec.namespace,
            "annotations": {"pulumi.com/skipAwait": "true"},
        },
        "spec": work,
    }


def again(name: str, spec: TritonClientSpec, work: Mapping[str, Any]) -> dict[str, Any]:
    """``metadata`` and ``spec`` of a CronJob that never runs by itself: the template of further Jobs."""
    return {
        "metadata": {"name": name, "namespace": spec.namespace},
        "spec": {"suspend": True, "schedule": "0 0 1 1 *", "jobTemplate": {"spec": work}},
    }


def job_spec(
    name: str,
    spec: TritonClientSpec,
    told: Mapping[str, Any],
    target: Target,
    *,
    image: str,
    placement: Placement,
    token_env: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """``spec`` of a Job that asks the questions and then measures."""

    def container(role: str) -> dict[str, Any]:
        return {
            "name": role,
            "image": image,
            "imagePullPolicy": "IfNotPresent",
            "command": ["python3", "-u", f"{_FOLDER}/{_SCRIPT}", role, f"{_FOLDER}/{_CONFIG}"],
            "workingDir": "/tmp",
            "env": [*token_env, {"name": "HOME", "value": "/tmp"}, {"name": "HF_HOME", "value": "/tmp/huggingface"}],
            "resources": {
                "requests": {"cpu": spec.cpu, "memory": spec.memory},
                "limits": {"cpu": spec.cpu, "memory": spec.memory},
            },
            "securityContext": _CONTAINER_SECURITY,
            "volumeMounts": [
                {"name": "client", "mountPath": _FOLDER, "readOnly": True},
                {"name": "scratch", "mountPath": "/tmp"},
            ],
        }

    return {
        "backoffLimit": 0,
        "activeDeadlineSeconds": deadline_seconds(spec, target),
        "template": {
            "metadata": {
                "labels": {CLIENT_LABEL: name},
                # A test that is moved half-way has measured nothing.
                "annotations": {"karpenter.sh/do-not-disrupt": "true"},
            },
            "spec": {
                **job_pod(placement, _USER),
                "initContainers": [container("test")],
                "containers": [container("perf")],
                "volumes": [
                    {"name": "client", "configMap": {"name": job_name(name, told)}},
                    {"name": "scratch", "emptyDir": {"sizeLimit": "4Gi"}},
                ],
            },
        },
    }


def network_policy(name: str, spec: TritonClientSpec, target: Target) -> dict[str, Any]:
    """Nobody asks the client; it asks the server, and the Hub for a tokenizer."""
    server = policy.allow_to(policy.namespace(target.namespace), tcp=[target.port])
    return policy.network_policy(name, spec.namespace, selector={}, ingress=[], egress=[policy.DNS, server, policy.HTTPS])


# -- commands for people --------------------------------------------------------------------------------------------------------


def log_command(name: str, spec: TritonClientSpec, told: Mapping[str, Any]) -> str:
    """What the first Job printed, the test before the measurements."""
    return f"kubectl -n {spec.namespace} logs job/{job_name(name, told)} --all-containers"


def again_command(name: str, spec: TritonClientSpec) -> str:
    """Runs the client once more."""
    return f"kubectl -n {spec.namespace} create job {name}-$(date +%s) --from=cronjob/{name}"
