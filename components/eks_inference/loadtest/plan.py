"""Plans a load test: its Kubernetes objects, the configuration of GuideLLM, and what it shares with other clients of model
servers. Pure functions; no pulumi.

GuideLLM (vllm-project/guidellm) is maintained, vLLM's documentation recommends it, and its image can be pulled without an
account. LLMPerf, which the source system uses, is no longer maintained. Its inter-token latency includes the time to first token:
do not compare the two.

Sources: GuideLLM v0.7.3 (Containerfile: user 1001, /opt/app-root/bin, tar; docs/guides; schemas of scenario and report), run
against tests/support/openai_server.py; Kubernetes documentation for Job, CronJob and Pod Security "restricted".
"""

import hashlib
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files
from typing import Any
from urllib.parse import urlsplit

from eks_inference.catalog.models import POOLING, Task
from eks_inference.kubernetes.merge import merged
from eks_inference.kubernetes.network_policy import DNS, HTTPS, allow_to, namespace, network_policy
from eks_inference.kubernetes.workloads import READ_ONLY_CONTAINER, job_pod
from eks_inference.loadtest.spec import HubTokenizer, LoadTestSpec, TokenCounts
from eks_inference.place.placement import Placement
from eks_inference.serving.pod_parts import Hardware

SCHEMA = 1
"""Version of the configuration and of the records in the results (``assets/load_test.py``)."""

SCRIPT_FILE = "load_test.py"
_SILENCE_SECONDS = 600  # without a token before a request counts as failed

REQUESTS: Mapping[Task, str] = {"chat": "/v1/chat/completions", "complete": "/v1/completions", "embed": "/v1/embeddings"}
"""Where each task that is measured is asked for; the tool has none for the others, or needs recordings to send."""

_NOT_MEASURED = {"enabled", "servers", "image", "namespace", "volume_gib", "storage_class"}  # irrelevant, or stated elsewhere

TEST_LABEL = "eks-inference/load-test"
RESULTS_FOLDER = "/results"
READER_SECONDS = 3600

_CONFIG_FOLDER = "/load-test"
_PYTHON = "/opt/app-root/bin/python"  # the interpreter GuideLLM is installed in
_START_SECONDS = 600  # for the pod to start: image pull and volume
_GRACE_SECONDS = 900  # what assets/load_test.py gives the tool beyond the measurement
_USER = 1001


@dataclass(frozen=True)
class Target:
    """One model server under test. ``tokenizer`` counts the tokens of its prompts; ``hardware`` is None when unknown."""

    namespace: str
    endpoint: str
    model: str
    startup_seconds: int
    tokenizer: HubTokenizer
    hardware: Hardware | None = None
    task: Task = "chat"


def script() -> str:
    """Returns the text of the script that runs in the pod."""
    return files("eks_inference.loadtest").joinpath("assets", SCRIPT_FILE).read_text("utf-8")


def configuration(name: str, spec: LoadTestSpec, targets: Mapping[str, Target], image: str) -> dict[str, Any]:
    """Returns the configuration of ``assets/load_test.py``. ``digest`` is a hash of all other keys and of the script."""
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
    """Returns the GuideLLM scenario file of one measurement."""
    tokenizer: dict[str, Any] = {"kind": "huggingface_auto", "model": target.tokenizer.id}
    if target.tokenizer.revision:
        tokenizer["load_kwargs"] = {"revision": target.tokenizer.revision}
    ours = {
        "backend": {
            "kind": "openai_http",
            "target": target.endpoint,
            "model": target.model,
            "request_format": REQUESTS[target.task],
            # The validation calls /health, which Ray Serve and routers may lack. The init container has already seen an answer.
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
                **(_lengths("output_tokens", spec.output_tokens) if target.task not in POOLING else {}),
            }
        ],
        # Each run and measurement draws new prompts, so that none is in a server's prefix cache.
        "seed": {"kind": "static", "value": zlib.crc32(f"{spec.run}/{server}/{users}".encode()) >> 1},
        # Keep the figures of every request, but none of the texts, which are random words.
        "metrics": {"kind": "generative", "sample_size": 0},
    }
    return {"spec": merged(ours, spec.guidellm)}


def ready_timeout_seconds(spec: LoadTestSpec, targets: Mapping[str, Target]) -> int:
    """Returns how long to wait for all servers together, because they start at the same time."""
    return spec.ready_timeout_seconds or max(target.startup_seconds for target in targets.values())


def _about(target: Target) -> dict[str, Any]:
    about: dict[str, Any] = {"endpoint": target.endpoint, "model": target.model, "tokenizer": target.tokenizer.id}
    if target.task != "chat":
        about["task"] = target.task
    if on := target.hardware:
        about |= asdict(on) | ({"devices": on.devices} if on.devices else {})
    return about


def _lengths(key: str, tokens: TokenCounts) -> dict[str, int]:
    return {key: tokens.mean, **({f"{key}_stdev": tokens.stddev} if tokens.stddev else {})}


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
