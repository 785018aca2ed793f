"""Servers of each kind that runs vLLM's plugin for Neuron, as rules see them."""

from collections.abc import Iterator, Mapping
from typing import Any

from eks_inference.catalog.instances import instance_type
from eks_inference.place.placement import Placement
from eks_inference.serving.facts import ServingFacts
from eks_inference.serving.ray_serve.rules import serving_facts as ray_facts
from eks_inference.serving.ray_serve.spec import RayServeVllmSpec
from eks_inference.serving.vllm.facts import serving_facts
from eks_inference.serving.vllm.spec import VllmServerSpec
from vectors.nixl import servers

ENGINE = "neuron-2.32-vllm-0.24"


def of_vllm(length: int = 8192, on: str = "trn2.48xlarge", **keys: Any) -> ServingFacts:
    spec = {"model": {"id": "Qwen/Qwen3-32B"}, "engine": ENGINE, "pool": "p", "tensor_parallel": 4, "max_num_seqs": 8, **keys}
    parsed = VllmServerSpec.model_validate({**spec, "max_model_len": length})
    return serving_facts(parsed, Placement("p", instance_type(on), {}), scheduler=True)


def of_ray(length: int = 8192, on: str = "trn2.48xlarge", **keys: Any) -> ServingFacts:
    """Ray Serve in an image of a user's, as no release of Ray is known to run the engine."""
    own = {"image": "registry.example/ray:1", "ray_version": "2.52.1", "head": {"pool": "h"}}
    worker = {"worker": {"pool": "p", "instance_type": on}}
    spec = {"model": {"id": "Qwen/Qwen3-32B"}, "engine": ENGINE, "tensor_parallel": 8, "max_num_seqs": 8, **own, **worker, **keys}
    parsed = RayServeVllmSpec.model_validate({**spec, "max_model_len": length})
    return ray_facts(parsed, Placement("p", instance_type(on), {}), scheduler=True)


def everywhere(length: int, tokens: int | str | None, keys: Mapping[str, Any]) -> Iterator[ServingFacts]:
    """The servers of each kind that runs the engine, with the tokens as a flag and as a key."""
    flag = {} if tokens is None else {"max-num-batched-tokens": tokens}
    flags = {**keys, "extra_args": {**keys.get("extra_args", {}), **flag}}
    yield of_vllm(length, **flags)
    yield of_ray(length, **flags)
    groups = [servers(max_model_len=length, **flags)]
    if isinstance(tokens, int):
        groups.append(servers(max_model_len=length, roles={"max_num_batched_tokens": tokens}, **keys))
    for group in groups:
        yield group.prefill.server
        yield group.decode.server
