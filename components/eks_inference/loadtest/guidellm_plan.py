"""Plans the configuration of GuideLLM and of the script around it. Pure functions; no pulumi.

GuideLLM (vllm-project/guidellm) is maintained, vLLM's documentation recommends it, and its image can be pulled without an
account. LLMPerf, which the source system uses, is no longer maintained. Its inter-token latency includes the time to first token:
do not compare the two.

Sources: GuideLLM v0.7.3 (docs/guides; schemas of scenario and report), run against tests/support/openai_server.py.
"""

import hashlib
import json
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.resources import files
from typing import Any

from eks_inference.catalog.models import POOLING, Task
from eks_inference.kubernetes.merge import merged
from eks_inference.loadtest.spec import HubTokenizer, LoadTestSpec, TokenCounts
from eks_inference.serving.pods import Hardware

SCHEMA = 1
"""Version of the configuration and of the records in the results (``assets/load_test.py``)."""

SCRIPT_FILE = "load_test.py"
_SILENCE_SECONDS = 600  # without a token before a request counts as failed

REQUESTS: Mapping[Task, str] = {"chat": "/v1/chat/completions", "complete": "/v1/completions", "embed": "/v1/embeddings"}
"""Where each task that is measured is asked for; the tool has none for the others, or needs recordings to send."""

_NOT_MEASURED = {"enabled", "servers", "image", "namespace", "volume_gib", "storage_class"}  # irrelevant, or stated elsewhere


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
