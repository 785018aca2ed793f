"""Checks of the flags that size the KV cache and the compiled buckets of vLLM on Neuron, for rule NEU014."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from eks_inference.catalog.generations import Buckets
from eks_inference.rules import Judgement, Path
from eks_inference.serving.facts import ServingFacts
from eks_inference.serving.flags import flag, switched


def blocks_agree(server: ServingFacts) -> Iterator[Judgement]:
    """Requires one block per sequence without prefix caching, and otherwise enough blocks for a full batch at full length."""
    generation = server.engine.generation
    caches_prefixes = switched(server.arguments, "enable-prefix-caching", False)
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
    config = _config(flag(server.arguments, "additional-config") or "{}", "override_neuron_config") or {}
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
    text = flag(server.arguments, known.flag)
    if text is None:
        return
    config = _config(text, known.key)
    if config is None:
        yield Judgement(
            holds=False,
            path=server.at_flag(known.flag),
            working=(f'--{known.flag} takes JSON: {{"{known.key}": {{...}}}}',),
            message=f"--{known.flag} is not a JSON object that contains an object '{known.key}'",
            given=text,
        )
        return
    batched = flag(server.arguments, "max-num-batched-tokens")
    for key, field, what, largest in (
        ("num_seqs_buckets", "batch_buckets", "max_num_seqs", str(server.max_num_seqs)),
        ("num_batched_tokens_buckets", "prompt_buckets", "--max-num-batched-tokens", batched),
    ):
        if key in config and largest is not None:
            buckets = config[key]
            yield Judgement(
                holds=isinstance(buckets, list) and [str(one) for one in buckets[-1:]] == [largest],
                path=_path(server, field),
                working=(f"last of {key} = {what} = {largest}",),
                message=f"the last of {key} is not {what}",
                given=json.dumps(buckets),
                allowed=f"[..., {largest}]",
            )
    if (lengths := config.get("decode_context_length_buckets")) is not None:
        unit, longest = known.length_unit, server.max_model_len
        yield Judgement(
            holds=isinstance(lengths, list)
            and all(type(one) is int and 0 < one < longest and one % unit == 0 for one in lengths)
            and lengths == sorted({*lengths}),
            path=_path(server, "length_buckets"),
            working=(f"decode_context_length_buckets rise, are multiples of {unit} and below max_model_len = {longest}",),
            message="decode_context_length_buckets do not fit max_model_len",
            given=json.dumps(lengths),
            allowed=f"multiples of {unit} below {longest}",
        )
    segments = config.get("kv_segment_size_buckets")
    if segments is not None:
        size = flag(server.arguments, "block-size") or ""
        block = int(size) if size.isdecimal() and int(size) else known.block_size
        sizes = [one for one in known.segment_sizes if one % block == 0]
        tokens = config.get("num_batched_tokens_buckets", segments)
        yield Judgement(
            holds=isinstance(segments, list) and all(one in sizes for one in segments) and segments == tokens,
            path=server.at_flag(known.flag),
            working=(
                f"kv_segment_size_buckets = num_batched_tokens_buckets, each of {sizes}, a multiple of the block size {block}",
            ),
            message="kv_segment_size_buckets do not fit the segmented attention kernel",
            given=f"{json.dumps(segments)}, num_batched_tokens_buckets {json.dumps(tokens)}",
            allowed=f"equal lists of {', '.join(map(str, sizes))}",
        )


def _path(server: ServingFacts, field: str) -> Path:
    """Returns the key that sets buckets: one of ``neuron``, or the flags of the user."""
    chosen = server.features.chosen if server.features else {}
    return (*server.path, "neuron", field) if f"neuron.{field}" in chosen else server.at_flag("additional-config")


def _config(text: str, key: str) -> Mapping[str, Any] | None:
    try:
        config = json.loads(text)
    except ValueError:
        return None
    found = config.get(key, {}) if isinstance(config, dict) else None
    return found if isinstance(found, dict) else None
