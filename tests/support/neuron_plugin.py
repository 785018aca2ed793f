"""What vLLM's plugin for Neuron checks before it serves, said once more: the words with which it ends a server.

By release 0.24.0.1.1.0, whose source a public fork has (jinhuang12/vllm-neuron ed3580d): in ``utils/`` ``bucket_utils.py``,
``hardware_config.py`` and ``dtype_utils.py``, in ``vllm/`` ``platform.py`` and the worker's files, ``model/neuron_config.py`` and
the models of Llama. It judges arguments and environment as they are rendered, and shares nothing with the rules.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from eks_inference.serving.facts import ServingFacts

SUPPORTED = (512, 1024, 2048, 4096, 8192)
LONGEST_WHOLE = 16 * 1024
WITH_ADDRESSES = ("trn2.48xlarge",)
_SUFFIXES = {"k": 1000, "K": 1024}


class Refusal(Exception):
    """The words of the plugin."""


def refusal(facts: ServingFacts) -> str:
    """Returns with which words the plugin ends the server; empty if it starts."""
    arguments = facts.arguments
    try:
        _finds_efa(facts.environment, facts.instance.name, facts.efa_interfaces)
        _prompts(arguments, facts.max_model_len)
    except Refusal as said:
        return str(said)
    return ""


def last(arguments: Sequence[str], name: str) -> str | None:
    """Returns the value that the last of a flag has."""
    return next((one.partition("=")[2] for one in reversed(arguments) if one.startswith(f"--{name}=")), None)


def neuron_config(arguments: Sequence[str]) -> Mapping[str, Any]:
    return json.loads(last(arguments, "additional-config") or "{}").get("neuron_config", {})


def _finds_efa(environment: Mapping[str, str], instance_type: str, interfaces: int) -> None:
    if environment.get("NEURON_SKIP_EFA_AFFINITY", "0") == "0" and (not interfaces or instance_type not in WITH_ADDRESSES):
        raise Refusal("RuntimeError: No EFA device found")


def _prompts(arguments: Sequence[str], length: int) -> None:
    config = neuron_config(arguments)
    size = min(_tokens(arguments), length)
    buckets, segments = config.get("num_batched_tokens_buckets"), config.get("kv_segment_size_buckets")
    for name in ("num_seqs_buckets", "num_batched_tokens_buckets", "kv_segment_size_buckets"):
        given = config.get(name)
        if given is not None and (not given or given != sorted(set(given))):
            raise Refusal(f"ValueError: {name} must be in strictly ascending order")
    if segments is None:
        if size >= length and length > LONGEST_WHOLE:
            raise Refusal("ValueError: Single-shot prefill is only supported when max_model_len <= 16384")
        if size < length:
            if size not in SUPPORTED:
                raise Refusal(f"ValueError: max_num_batched_tokens={size} is not a supported chunked prefill size on Neuron")
            segments = [size]
    if buckets is not None and buckets[-1] != size:
        raise Refusal("ValueError: Last bucket in num_batched_tokens_buckets must equal max_num_batched_tokens")
    if segments is None:
        if _caches_prefixes(arguments):
            raise Refusal("ValueError: Automatic Prefix Caching (APC) requires segmented prefill to be enabled")
        return
    if len(segments) != 1 or segments[0] not in SUPPORTED:
        raise Refusal("ValueError: Only one segment size is currently supported")
    if buckets not in (None, segments):
        raise Refusal("ValueError: num_batched_tokens_buckets must match because the segmented kernel currently requires it")


def _tokens(arguments: Sequence[str]) -> int:
    text = last(arguments, "max-num-batched-tokens") or "2048"
    return int(text[:-1]) * _SUFFIXES[text[-1]] if text[-1] in _SUFFIXES else int(text)


def _caches_prefixes(arguments: Sequence[str]) -> bool:
    switches = [one for one in arguments if one in ("--enable-prefix-caching", "--no-enable-prefix-caching")]
    return not switches or switches[-1] == "--enable-prefix-caching"
