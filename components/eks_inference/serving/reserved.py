"""Calculates what an engine takes of one core or GPU beside weights and KV cache. Pure.

vLLM on GPUs runs the largest step that its settings allow, samples as many sequences as it may hold, and leaves the rest of its
share to the KV cache. Its peak is that of sampling, which neither length of sequences nor split of the model changes, plus the
hidden states of the step. The terms and their sources are data: ``catalog/reserves.toml``. docs/memory.md has measurements.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from eks_inference.catalog.instances import InstanceType
from eks_inference.catalog.models import Model
from eks_inference.catalog.reserves import Reserve

GIB = 1024**3
_FLOAT_BYTES = 4
_HIDDEN_BYTES = 2
USUAL_SEQUENCES = 256
"""vLLM's ``max_num_seqs`` where none is set, on most GPUs (vLLM, ``EngineArgs.get_batch_defaults``)."""


@dataclass(frozen=True)
class Term:
    """One part of the sum."""

    what: str
    size: float
    """In bytes."""
    factors: str = ""
    """How the size is computed; empty where it is a figure of the catalog."""


@dataclass(frozen=True)
class Reserved:
    """What one core or GPU holds beside weights and KV cache."""

    reserve: Reserve
    model: Model
    instance: InstanceType
    parts: int
    """Cores or GPUs that one copy of the model occupies."""
    sequences: int
    """Sequences at once (``--max-num-seqs``)."""
    step_tokens: int
    """Tokens of one step (``--max-num-batched-tokens``)."""
    eager: bool = False
    """Whether the engine runs without CUDA graphs (``--enforce-eager``)."""

    @cached_property
    def terms(self) -> tuple[Term, ...]:
        return tuple(one for one in self._terms() if one.size)

    def _terms(self) -> Iterator[Term]:
        row, model = self.reserve, self.model
        context = row.several_gpus_gib if self.parts > 1 else row.one_gpu_gib
        yield Term("CUDA context", context * GIB)
        physical = self.instance.physical_cores_per_device / (self.instance.cores_per_device or 1)
        yield Term("runtime", row.physical_core_gib * physical * GIB)
        if row.sampler_copies:
            yield Term(
                "sampling",
                row.sampler_copies * self.sequences * model.vocabulary * _FLOAT_BYTES + row.sampler_gib * GIB,
                f"{row.sampler_copies:g} x {self.sequences} sequences x {model.vocabulary} x {_FLOAT_BYTES} bytes"
                + (f" + {row.sampler_gib:g} GiB" if row.sampler_gib else ""),
            )
            yield Term(
                "hidden states",
                self.step_tokens * model.hidden * _HIDDEN_BYTES,
                f"{self.step_tokens} tokens x {model.hidden} x {_HIDDEN_BYTES} bytes",
            )
        yield Term("CUDA graphs", 0 if self.eager else row.graphs_gib * GIB)

    @cached_property
    def size(self) -> int:
        """The sum in bytes."""
        return int(sum(one.size for one in self.terms))

    @property
    def margin(self) -> int | None:
        """How far the sum may be off, in bytes; None: unknown."""
        return None if self.reserve.margin_gib is None else int(self.reserve.margin_gib * GIB)

    @property
    def working(self) -> tuple[str, ...]:
        """The calculation, one line; none where nothing is known."""
        if not self.terms:
            return ()
        terms = [f"{one.what} {one.factors + ' = ' if one.factors else ''}{one.size / GIB:.2f}" for one in self.terms]
        sum_ = f" = {self.size / GIB:.2f} GiB" if len(terms) > 1 else " GiB"
        margin = "" if self.reserve.margin_gib is None else f", within {self.reserve.margin_gib:g} GiB"
        return (f"beside weights and KV cache: {' + '.join(terms)}{sum_}{margin}",)
