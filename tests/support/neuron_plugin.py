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
CACHE_TYPES = ("auto", "bfloat16", "float16", "float32", "fp8", "fp8_e4m3")
DEGREES = ("ep_degree", "attention_dp_size", "embedding_dp_size", "lm_head_dp_size", "mlp_dp_size")
_SUFFIXES = {"k": 1000, "K": 1024}


class Refusal(Exception):
    """The words of the plugin."""


def refusal(facts: ServingFacts) -> str:
    """Returns with which words the plugin ends the server; empty if it starts."""
    arguments, model = facts.arguments, facts.model
    method = model.quantization.method if model and model.quantization else ""
    unpacked = '--hf-overrides={"quantization_config": {}}' in arguments
    try:
        _quantization("" if unpacked else method, model.architecture if model else "llama")
        _settings(arguments)
        _finds_efa(facts.environment, facts.instance.name, facts.efa_interfaces)
        segment = _prompts(arguments, facts.max_model_len)
        _sequences(arguments, facts.max_num_seqs, facts.max_model_len)
        _cache(arguments, method, segment)
    except Refusal as said:
        return str(said)
    return ""


def last(arguments: Sequence[str], name: str) -> str | None:
    """Returns the value that the last of a flag has."""
    return next((argument.partition("=")[2] for argument in reversed(arguments) if argument.startswith(f"--{name}=")), None)


def neuron_config(arguments: Sequence[str]) -> Mapping[str, Any]:
    return json.loads(last(arguments, "additional-config") or "{}").get("neuron_config", {})


def _on(arguments: Sequence[str], name: str, default: bool) -> bool:
    switches = [argument for argument in arguments if argument in (f"--{name}", f"--no-{name}")]
    return switches[-1] == f"--{name}" if switches else default


def _quantization(method: str, architecture: str) -> None:
    if method not in ("", "modelopt", "compressed-tensors"):
        raise Refusal(f"ValueError: {method} quantization is currently not supported in neuron")
    if method == "compressed-tensors" and architecture:
        raise Refusal("ValueError: Neuron only supports compressed-tensors for KV cache quantization")


def _settings(arguments: Sequence[str]) -> None:
    config = neuron_config(arguments)
    for name in DEGREES:
        if not isinstance(config.get(name, 1), int) or config.get(name, 1) < 1:
            raise Refusal(f"ValueError: {name} must be a positive integer")
    if config.get("ep_degree", 1) > 1 and not _on(arguments, "enable-expert-parallel", False):
        raise Refusal("ValueError: ep_degree requires --enable-expert-parallel to be set")
    if any(config.get(name, 1) > 1 for name in DEGREES[1:]):
        transfer = json.loads(last(arguments, "kv-transfer-config") or "{}")
        if transfer.get("kv_role") not in ("kv_consumer", "kv_both") or int(last(arguments, "data-parallel-size") or 1) < 2:
            raise Refusal("ValueError: Component DP requires disaggregated inference on the decode server")
    if not isinstance(config.get("enable_structured_outputs", False), bool):
        raise Refusal("ValueError: enable_structured_outputs must be a boolean")
    sampled = "on_device_sampling_config" not in config or config["on_device_sampling_config"] is not None
    speculates = last(arguments, "speculative-config") is not None
    if not sampled and not speculates and _on(arguments, "async-scheduling", True):
        raise Refusal("RuntimeError: On-device sampling must be enabled for async execution")
    if config.get("quantization") == "mxfp4":
        raise Refusal("ValueError: quantization='mxfp4' is not supported on TRN2")


def _finds_efa(environment: Mapping[str, str], instance_type: str, interfaces: int) -> None:
    if environment.get("NEURON_SKIP_EFA_AFFINITY", "0") == "0" and (not interfaces or instance_type not in WITH_ADDRESSES):
        raise Refusal("RuntimeError: No EFA device found")


def _rises(name: str, given: Any) -> None:
    if not isinstance(given, list) or not given or given != sorted(set(given)) or given[0] <= 0:
        raise Refusal(f"ValueError: {name} must be in strictly ascending order")


def _prompts(arguments: Sequence[str], length: int) -> int | None:
    """Returns the size of a segment; None where prompts are processed whole."""
    config = neuron_config(arguments)
    size = min(_tokens(arguments), length)
    buckets, segments = config.get("num_batched_tokens_buckets"), config.get("kv_segment_size_buckets")
    if segments is None:
        if size >= length and length > LONGEST_WHOLE:
            raise Refusal("ValueError: Single-shot prefill is only supported when max_model_len <= 16384")
        if size < length:
            if size not in SUPPORTED:
                raise Refusal(f"ValueError: max_num_batched_tokens={size} is not a supported chunked prefill size on Neuron")
            segments = [size]
    if buckets is not None:
        _rises("num_batched_tokens_buckets", buckets)
        if buckets[-1] != size:
            raise Refusal("ValueError: Last bucket in num_batched_tokens_buckets must equal max_num_batched_tokens")
    if segments is None:
        if _on(arguments, "enable-prefix-caching", True):
            raise Refusal("ValueError: Automatic Prefix Caching (APC) requires segmented prefill to be enabled")
        return None
    _rises("kv_segment_size_buckets", segments)
    if len(segments) != 1 or segments[0] not in SUPPORTED:
        raise Refusal("ValueError: Only one segment size is currently supported")
    if buckets not in (None, segments):
        raise Refusal("ValueError: num_batched_tokens_buckets must match because the segmented kernel currently requires it")
    if segments[0] % int(last(arguments, "block-size") or 32):
        raise Refusal("ValueError: kv_segment_size must be divisible by block_size")
    return segments[0]


def _sequences(arguments: Sequence[str], most: int, length: int) -> None:
    config = neuron_config(arguments)
    if (batches := config.get("num_seqs_buckets")) is not None:
        _rises("num_seqs_buckets", batches)
        if batches[-1] != most:
            raise Refusal("ValueError: Last bucket in num_seqs_buckets must equal max_num_seqs")
    if (lengths := config.get("decode_context_length_buckets")) is not None:
        _rises("decode_context_length_buckets", lengths)
        if lengths[-1] >= length or any(length % 128 for length in lengths):
            raise Refusal("ValueError: decode_context_length_buckets must be strictly less than max_model_len, divisible by 128")


def _cache(arguments: Sequence[str], method: str, segment: int | None) -> None:
    kind = last(arguments, "kv-cache-dtype") or "auto"
    if kind not in CACHE_TYPES:
        raise Refusal(f"ValueError: Unsupported kv_cache_dtype '{kind}' on Neuron")
    fp8 = kind.startswith("fp8") or (kind == "auto" and method == "modelopt")
    if fp8 and segment and not neuron_config(arguments).get("fp8_packed_kv", False):
        raise Refusal("NotImplementedError: FP8 segmented prefill requires a packed KV cache")


def _tokens(arguments: Sequence[str]) -> int:
    text = last(arguments, "max-num-batched-tokens") or "2048"
    return int(text[:-1]) * _SUFFIXES[text[-1]] if text[-1] in _SUFFIXES else int(text)
