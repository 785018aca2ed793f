"""Runs vLLM's own scheduler on a clock that steps of a formula turn. In the environment of vLLM; cases come by standard input.

As the engine's loop does it (vLLM 0.30, ``v1/engine/core.py``): ``step``, and with steps ahead ``step_with_batch_queue``.
"""

import json
import sys
from collections import deque
from typing import Any

import torch
from vllm import SamplingParams
from vllm.config import CacheConfig, DeviceConfig, ModelConfig, SchedulerConfig, VllmConfig
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

LONGEST = 1024


def scheduler(case: dict[str, Any], model: Any) -> Any:
    own = SchedulerConfig(
        max_num_seqs=case["max_num_seqs"],
        max_num_batched_tokens=case["step_tokens"],
        max_model_len=LONGEST,
        enable_chunked_prefill=True,
        is_encoder_decoder=False,
        async_scheduling=case["ahead"],
    )
    block, blocks = case["block"], case["kv_tokens"] // case["block"] + 1  # vLLM keeps one for itself
    cache = CacheConfig(block_size=block, enable_prefix_caching=False)
    cache.num_gpu_blocks = blocks
    config = VllmConfig(scheduler_config=own, model_config=model, cache_config=cache, device_config=DeviceConfig("cpu"))
    group = KVCacheGroupSpec(["layer"], FullAttentionSpec(block_size=block, num_kv_heads=1, head_size=1, dtype=torch.float32))
    kv = KVCacheConfig(num_blocks=blocks, kv_cache_tensors=[], kv_cache_groups=[group])
    kind = AsyncScheduler if case["ahead"] else Scheduler
    return kind(config, kv, StructuredOutputManager(config), block_size=block)


def run(case: dict[str, Any], model: Any) -> dict[str, Any]:
    """Returns when each token of each request came, and how often requests lost their blocks."""
    engine, arrivals, known = scheduler(case, model), deque(enumerate(case["arrivals"])), dict[str, Any]()
    params = SamplingParams(max_tokens=case["answer"], ignore_eos=True)
    params.update_from_generation_config({}, 1)
    times: list[list[float]] = [[] for _ in arrivals]
    computed: deque[tuple[Any, list[str], float]] = deque()
    now = free = 0.0
    while arrivals or engine.has_requests() or computed:
        if not engine.has_requests() and not computed:
            now = max(now, arrivals[0][1])
        while arrivals and arrivals[0][1] <= now:
            number, at = arrivals.popleft()
            known[str(number)] = Request(str(number), [1] * case["prompt"], params, None, arrival_time=at)
            engine.add_request(known[str(number)])
        if engine.has_requests() and len(computed) <= case["ahead"]:
            out = engine.schedule()
            if out.total_num_scheduled_tokens:
                seconds, sampled = step(case["step"], out, known)
                free = max(now, free) + seconds
                computed.append((out, sampled, free))
                if len(computed) <= case["ahead"]:
                    continue
            elif not computed:
                engine.update_from_output(out, ModelRunnerOutput([], {}))
                continue
        out, sampled, now = computed.popleft()
        ids = list(out.num_scheduled_tokens)
        tokens = [[7] if one in sampled else [] for one in ids]
        result = ModelRunnerOutput(ids, {one: place for place, one in enumerate(ids)}, sampled_token_ids=tokens)
        for outputs in engine.update_from_output(out, result).values():
            for output in outputs.outputs:
                times[int(output.request_id)] += [now] * len(output.new_token_ids)
    return {"times": times, "preemptions": sum(one.num_preemptions for one in known.values())}


def step(formula: list[float], out: Any, known: dict[str, Any]) -> tuple[float, list[str]]:
    """Returns what a step takes, and the requests that get a token in it."""
    decoding = context = prefill = 0
    sampled = list[str]()
    for name, tokens in out.num_scheduled_tokens.items():
        one = known[name]
        before = one.num_computed_tokens - tokens
        # A request that lost its blocks computes its prompt and its answer so far as a prompt.
        if tokens == 1 and before >= one.num_prompt_tokens:
            decoding, context = decoding + 1, context + before
        else:
            prefill += tokens
        if one.num_computed_tokens >= one.num_tokens:
            sampled.append(name)
    fixed, sequence, token, prompt = formula
    return fixed + sequence * decoding + token * context + prompt * prefill, sampled


if __name__ == "__main__":
    shape = ModelConfig(model=sys.argv[1], dtype="float32", max_model_len=LONGEST, seed=0)
    print("\n" + json.dumps([run(case, shape) for case in json.load(sys.stdin)]))
