"""Asks vLLM's own start-up code about servers, on a machine without GPU and without weights.

``judge.py`` runs in an environment with the engine's wheel for CUDA (``make engine``), one process with a fork for each case.
From the parser of `vllm serve` to the size of the KV cache all code is the engine's; ``stand_ins.py`` has what is not. Nothing is
computed, so it does not reach what follows the loading of weights: repacking them, the profile run, what kernels refuse in C++,
CUDA graphs, buffers of LoRA adapters, NCCL, memory of the host.
"""
