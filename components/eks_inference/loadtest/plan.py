"""A load test as data: what GuideLLM is told, and the Kubernetes objects around it. Pure functions; no pulumi.

The tool is GuideLLM (vllm-project/guidellm): maintained, recommended by vLLM's own documents, published as an image that can be
pulled without an account. LLMPerf, which the source system uses, is no longer maintained, and its inter-token latency contains
the time to first token: do not compare the two.

Sources: GuideLLM v0.7.3 (Containerfile: user 1001, /opt/app-root/bin, tar; docs/guides; schemas of scenario and report), run
against tests/openai_server.py; Kubernetes documentation for Job, CronJob and Pod Security "restricted".
"""

import hashlib
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files
from typing import Any
from urllib.parse import urlsplit

from eks_inference.kubernetes import network_policy as policy
from eks_inference.kubernetes.pod_security import RESTRICTED_CONTAINER, restricted_pod
from eks_inference.loadtest.spec import HubTokenizer, LoadTestSpec, TokenCounts
from eks_inference.merge import merged
from eks_inference.placement import Placement
from eks_inference.serving.hardware import Hardware

SCHEMA = 1
"""Version of the configuration and of the records in the results (``assets/load_test.py``)."""

TEST_LABEL = "eks-inference/load-test"
RESULTS_FOLDER = "/results"
READER_SECONDS = 3600

_CONFIG_FOLDER = "/load-test"
_SCRIPT_FILE = "load_test.py"
_CONFIG_FILE = "config.json"
_PYTHON = "/opt/app-root/bin/python"  # the interpreter GuideLLM is installed in
_START_SECONDS = 600  # of the pod: its image and its volume
_SILENCE_SECONDS = 600  # of a server in the middle of an answer, and before its first token: then the request has failed
_GRACE_SECONDS = 900  # what assets/load_test.py gives the tool beyond the measurement

_NOT_MEASURED = {"enabled", "servers", "image", "namespace", "volume_gib", "storage_class"}  # or told otherwise

_USER = 1001
_CONTAINER_SECURITY = {**RESTRICTED_CONTAINER, "readOnlyRootFilesystem": True}


@dataclass(frozen=True)
class Target:
    """One model server under test. ``tokenizer`` is what counts its prompts; ``hardware`` is None where nobody said."""

    namespace: str
    endpoint: str
    model: str
    startup_seconds: int
    tokenizer: HubTokenizer
    hardware: Hardware | None = None

    @property
    def port(self) -> int:
        address = urlsplit(self.endpoint)
        return address.port or (443 if address.scheme == "https" else 80)


def script() -> str:
    """What runs in the pod."""
    return files("eks_inference.loadtest").joinpath("assets", _SCRIPT_FILE).read_text("utf-8")


def configuration(name: str, spec: LoadTestSpec, targets: Mapping[str, Target], image: str) -> dict[str, Any]:
    """All that ``assets/load_test.py`` is told. ``digest`` stands for the rest of it and for the script."""
    content = {
        "schema": SCHEMA,
        "name": name,
        "tool": "guidellm",
        "image": image,
        "ready_timeout_seconds": ready_timeout_seconds(spec, targets),
        "spec": spec.model_dump(mode="json", exclude_none=True, exclude=_NOT_MEASURED),
        "servers": {server: _about(target) for server, target in targets.items()},
        "measurements": [
            {
                "server": server,
                "users": users,
                "requests": users * spec.requests_per_user,
                "timeout_seconds": spec.timeout_seconds,
                "scenario": scenario(spec, server, target, users),
            }
            for server, target in targets.items()
            for users in spec.users
        ],
    }
    digest = hashlib.sha256((json.dumps(content, sort_keys=True) + script()).encode()).hexdigest()
    return {"digest": digest[:10], **content}


def scenario(spec: LoadTestSpec, server: str, target: Target, users: int) -> dict[str, Any]:
    """A scenario file of GuideLLM: one measurement."""
    tokenizer: dict[str, Any] = {"kind": "huggingface_auto", "model": target.tokenizer.id}
    if target.tokenizer.revision:
        tokenizer["load_kwargs"] = {"revision": target.tokenizer.revision}
    ours = {
        "backend": {
            "kind": "openai_http",
            "target": target.endpoint,
            "model": target.model,
            "request_format": "/v1/chat/completions",
            # It would ask for /health, which Ray Serve and routers need not have; the wait before has seen an answer.
            "validate_backend": False,
            "timeout": _SILENCE_SECONDS,
            **({"extras": {"body": spec.sampling}} if spec.sampling else {}),
        },
        "profile": {"kind": "concurrent", "streams": [users]},
        "constraints": [
            {"kind": "max_requests", "count": users * spec.requests_per_user},
            {"kind": "max_duration", "seconds": spec.timeout_seconds},
        ],
        "tokenizer": tokenizer,
        "data": [
            {
                "kind": "synthetic_text",
                **_lengths("prompt_tokens", spec.input_tokens),
                **_lengths("output_tokens", spec.output_tokens),
            }
        ],
        # Other prompts in every run and measurement: a server's prefix cache must not know them.
        "seed": {"kind": "static", "value": zlib.crc32(f"{spec.run}/{server}/{users}".encode()) >> 1},
        # The figures of every request, without its texts: they are noise.
        "metrics": {"kind": "generative", "sample_size": 0},
    }
    return {"spec": merged(ours, spec.guidellm)}


def ready_timeout_seconds(spec: LoadTestSpec, targets: Mapping[str, Target]) -> int:
    """One budget for all servers: they start at the same time."""
    return spec.ready_timeout_seconds or max(target.startup_seconds for target in targets.values())


def deadline_seconds(spec: LoadTestSpec, targets: Mapping[str, Target]) -> int:
    """Upper bound of the Job: its start, the wait, and every measurement at its longest."""
    measurements = len(targets) * len(spec.users)
    return _START_SECONDS + ready_timeout_seconds(spec, targets) + measurements * (spec.timeout_seconds + _GRACE_SECONDS)


# -- Kubernetes objects ---------------------------------------------------------------------------------------------------------


def config_map(name: str, spec: LoadTestSpec, configuration: Mapping[str, Any]) -> dict[str, Any]:
    """Script and configuration, under a name of their own for each content."""
    return {
        "metadata": {"name": job_name(name, configuration), "namespace": spec.namespace},
        "data": {_SCRIPT_FILE: script(), _CONFIG_FILE: json.dumps(configuration, indent=1) + "\n"},
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
    script_path, config_path = f"{_CONFIG_FOLDER}/{_SCRIPT_FILE}", f"{_CONFIG_FOLDER}/{_CONFIG_FILE}"
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
                    **_pod(placement),
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
                            **_pod(placement),
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


def _about(target: Target) -> dict[str, Any]:
    about: dict[str, Any] = {"endpoint": target.endpoint, "model": target.model, "tokenizer": target.tokenizer.id}
    if on := target.hardware:
        about |= asdict(on) | ({"devices": on.devices} if on.devices else {})
    return about


def _lengths(key: str, tokens: TokenCounts) -> dict[str, int]:
    return {key: tokens.mean, **({f"{key}_stdev": tokens.stddev} if tokens.stddev else {})}


def _pod(placement: Placement) -> dict[str, Any]:
    return {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "nodeSelector": dict(placement.node_selector),
        "tolerations": placement.tolerations(),
        "securityContext": restricted_pod(_USER),
    }


def _results_volume(name: str) -> dict[str, Any]:
    return {"name": "results", "persistentVolumeClaim": {"claimName": results_claim(name)}}


def _guaranteed(cpu: str, memory: str) -> dict[str, dict[str, str]]:
    return {"requests": {"cpu": cpu, "memory": memory}, "limits": {"cpu": cpu, "memory": memory}}
