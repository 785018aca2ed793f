"""Checks of the flags that size the KV cache and the compiled buckets of vLLM on Neuron, for rule NEU014."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from eks_inference.catalog.engines import Buckets
from eks_inference.rules import Judgement, Path
from eks_inference.serving.facts import ServingFacts
from eks_inference.serving.flag_values import size
from eks_inference.serving.flags import flag, plugin_settings, switched


def blocks_agree(server: ServingFacts) -> Iterator[Judgement]:
    """Requires one block per sequence without prefix caching, and otherwise enough blocks for a full batch at full length."""
    generation = server.engine.generation
    caches_prefixes = _caches_prefixes(server)
    sequences, length = server.max_num_seqs, server.max_model_len
    size, blocks = flag(server.arguments, "block-size"), flag(server.arguments, "num-gpu-blocks-override")
    if (size or generation.needs_block_size) and not caches_prefixes:
        yield Judgement(
            holds=size == str(length),
            path=server.at_flag("block-size"),
            working=(f"one block per sequence: --block-size = max_model_len = {length}",),
            message="without prefix caching, a block holds a whole sequence",
            given=f"--block-size={size}" if size else "no --block-size",
            allowed=f"--block-size={length}",
            fix=f"give --block-size={length}" if generation.needs_block_size else "",
        )
    if blocks is None or not blocks.isdecimal():
        return
    if caches_prefixes and size and size.isdecimal() and int(size):
        needed = -(-length // int(size)) * sequences
        formula = f"{length} tokens / {size} per block, rounded up, x {sequences} sequences = {needed} blocks"
        holds, allowed = int(blocks) >= needed, f"at least {needed}"
    elif not caches_prefixes and generation.blocks_are_sequences:
        formula = f"one block per sequence: --num-gpu-blocks-override = max_num_seqs = {sequences}"
        holds, allowed = int(blocks) == sequences, str(sequences)
    else:
        return
    yield Judgement(
        holds=holds,
        path=server.at_flag("num-gpu-blocks-override"),
        working=(formula,),
        message=f"{blocks} blocks for {sequences} sequences of {length} tokens",
        given=f"--num-gpu-blocks-override={blocks}",
        allowed=allowed,
    )


def lengths_agree(server: ServingFacts) -> Iterator[Judgement]:
    """Requires graphs of NxD Inference for the longest sequence; warns where none takes the longest prompt."""
    config = plugin_settings(server.engine, server.arguments) or {}
    for key, field in (("context_encoding_buckets", "prompt_buckets"), ("token_generation_buckets", "length_buckets")):
        if key in config:
            buckets, longest, prompts = config[key], server.max_model_len, field == "prompt_buckets"
            rising = isinstance(buckets, list) and all(type(one) is int for one in buckets) and buckets == sorted({*buckets})
            last = buckets[-1] if rising and buckets else 0
            yield Judgement(
                holds=last == longest,
                path=_path(server, field),
                working=(f"last of {key} = max_model_len = {longest}",),
                message=f"no graph takes prompts of more than {last} tokens"
                if prompts and 0 < last < longest
                else f"{key} do not rise to max_model_len",
                given=json.dumps(buckets),
                allowed=f"[..., {longest}]",
                fix=f"end the list with {longest}",
                severity="warning" if prompts and 0 < last < longest else None,
            )


def buckets_agree(server: ServingFacts, known: Buckets) -> Iterator[Judgement]:
    """Graphs are compiled for these sizes, so the largest bucket must equal the largest input."""
    config = plugin_settings(server.engine, server.arguments)
    if config is None:  # NEU028 says so
        return
    batched = _batched_tokens(server)
    for key, field, what, largest in (
        ("num_seqs_buckets", "batch_buckets", "max_num_seqs", server.max_num_seqs),
        ("num_batched_tokens_buckets", "prompt_buckets", "--max-num-batched-tokens", batched),
    ):
        if key in config and largest is not None:
            buckets = config[key]
            yield Judgement(
                holds=_rise(buckets) and buckets[-1] == largest,
                path=_path(server, field),
                working=(f"{key} rise, and the last is {what} = {largest}",),
                message=f"{key} do not rise to {what}",
                given=json.dumps(buckets),
                allowed=f"[..., {largest}]",
            )
    if (lengths := config.get("decode_context_length_buckets")) is not None:
        unit, longest = known.length_unit, server.max_model_len
        yield Judgement(
            holds=_rise(lengths) and all(0 < length < longest and length % unit == 0 for length in lengths),
            path=_path(server, "length_buckets"),
            working=(f"decode_context_length_buckets rise, are multiples of {unit} and below max_model_len = {longest}",),
            message="decode_context_length_buckets do not fit max_model_len",
            given=json.dumps(lengths),
            allowed=f"multiples of {unit} below {longest}",
        )
    yield from _prompts_agree(server, known, config, batched)


def in_segments(server: ServingFacts) -> bool:
    """Whether prompts are processed in segments, as far as anybody knows."""
    given, batched = plugin_settings(server.engine, server.arguments) or {}, _batched_tokens(server)
    return given.get("kv_segment_size_buckets") is not None or (batched is not None and batched < server.max_model_len)


def _rise(sizes: Any) -> bool:
    """Whether these are sizes, each larger than the one before: the plugin refuses others, and an empty list."""
    return isinstance(sizes, list) and bool(sizes) and all(type(one) is int for one in sizes) and sizes == sorted({*sizes})


def _prompts_agree(server: ServingFacts, known: Buckets, config: Mapping[str, Any], batched: int | None) -> Iterator[Judgement]:
    """Requires prompts in segments that the kernel takes, or whole prompts, short enough and without prefix caching."""
    segments, tokens = config.get("kv_segment_size_buckets"), config.get("num_batched_tokens_buckets")
    longest = server.max_model_len
    if segments is not None:
        given = flag(server.arguments, "block-size") or ""
        block = int(given) if given.isdecimal() and int(given) else known.block_size
        sizes = [segment_size for segment_size in known.segment_sizes if segment_size % block == 0]
        tokens = segments if tokens is None else tokens
        most = known.segments or len(sizes)
        yield Judgement(
            holds=_rise(segments) and len(segments) <= most and all(one in sizes for one in segments) and segments == tokens,
            path=_at_settings(server),
            working=(
                f"kv_segment_size_buckets = num_batched_tokens_buckets, at most {most}, each of {sizes}, a multiple of the block "
                f"size {block}",
            ),
            message="kv_segment_size_buckets do not fit the segmented attention kernel",
            given=f"{json.dumps(segments)}, num_batched_tokens_buckets {json.dumps(tokens)}",
            allowed=f"equal lists of {'one of ' if most == 1 else ''}{', '.join(map(str, sizes))}",
        )
        return
    if batched is None:
        return
    given = flag(server.arguments, "max-num-batched-tokens") is not None
    path = server.at_flag("max-num-batched-tokens" if given else "enable-prefix-caching")
    smaller = ", ".join(str(segment_size) for segment_size in known.segment_sizes if segment_size < longest)
    whole_fits = known.longest_whole is None or longest <= known.longest_whole
    step = f"{batched} tokens a step, max_model_len {longest}"
    if batched < longest:
        yield Judgement(
            holds=batched in known.segment_sizes,
            path=path,
            working=(
                f"{step}: segments of {batched} tokens, which the kernel has of {', '.join(map(str, known.segment_sizes))}",
            ),
            message=f"the segmented attention kernel has no segments of {batched} tokens: the server does not start",
            given=str(batched),
            allowed=f"{smaller}{f', or {longest} without prefix caching' if whole_fits else ''}",
            fix="set max-num-batched-tokens to one of the allowed values",
        )
        if isinstance(tokens, list) and tokens[-1:] == [batched] and batched in known.segment_sizes:
            yield Judgement(
                holds=len(tokens) == 1,
                path=_path(server, "prompt_buckets"),
                working=(f"{step}: segments of {batched} tokens, so num_batched_tokens_buckets = [{batched}]",),
                message="prompts in segments have buckets of one length: the server does not start",
                given=json.dumps(tokens),
                allowed=f"[{batched}]",
                fix="leave out the others; or end them with max_model_len and say prefix_caching: false, for whole prompts",
            )
        return
    yield Judgement(
        holds=whole_fits,
        path=path,
        working=(f"{step}: whole prompts, which have at most {known.longest_whole} tokens",),
        message=f"prompts of {longest} tokens are too long to be processed whole: the server does not start",
        given=str(batched),
        allowed=smaller,
        fix="set max-num-batched-tokens to one of the allowed values",
    )
    if whole_fits:
        caches = _caches_prefixes(server)
        yield Judgement(
            holds=not caches,
            path=path,
            working=(f"{step}: whole prompts; prefix caching: {'on' if caches else 'off'}",),
            message="prefix caching needs prompts in segments, and here they are processed whole: the server does not start",
            given=step,
            allowed=f"{f'{smaller} tokens a step, or ' if smaller else ''}no prefix caching",
            fix=f"{'process fewer tokens a step, or ' if smaller else ''}turn prefix caching off (prefix_caching: false)",
        )


def _caches_prefixes(server: ServingFacts) -> bool:
    default = bool(server.engine.generation.defaults.get("enable-prefix-caching", False))
    return switched(server.arguments, "enable-prefix-caching", default)


def _batched_tokens(server: ServingFacts) -> int | None:
    """Returns the most tokens of one step, which are never more than a sequence has; None where nobody knows."""
    defaults, longest = server.engine.generation.defaults, server.max_model_len
    text = flag(server.arguments, "max-num-batched-tokens")
    found = size(text) if text is not None else defaults.get("max-num-batched-tokens")
    if found is None:
        return None
    if text is None:  # EngineArgs of vLLM 0.24
        if not switched(server.arguments, "enable-chunked-prefill", bool(defaults.get("enable-chunked-prefill", False))):
            return longest
        found *= 2 if flag(server.arguments, "performance-mode") == "throughput" else 1
    return min(int(found), longest)


def _path(server: ServingFacts, field: str) -> Path:
    """Returns the key that sets buckets: one of ``neuron``, or the flags of the user."""
    chosen = server.features.chosen if server.features else {}
    return (*server.path, "neuron", field) if f"neuron.{field}" in chosen else _at_settings(server)


def _at_settings(server: ServingFacts) -> Path:
    known = server.engine.generation.settings
    return server.at_flag(known.flag) if known else server.at("extra_args")
