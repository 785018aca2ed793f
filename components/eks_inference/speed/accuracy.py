"""Published measurements as the model of a step sees them: what was served, and what is predicted for it. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property

from eks_inference.catalog.engines import engine
from eks_inference.catalog.instances import instance_types
from eks_inference.catalog.models import model
from eks_inference.catalog.quantization import Quantization
from eks_inference.catalog.speeds import Chip, Constants, Measured, chips
from eks_inference.serving.choosing import USUAL_SEQUENCES
from eks_inference.serving.memory import MemoryUse
from eks_inference.serving.memory_settings import MemorySettings
from eks_inference.serving.split import Parallel
from eks_inference.speed.step import QUEUED, StepTimes, of_memory

_PRECISIONS: Mapping[str, Quantization] = {
    "fp8": Quantization("fp8", 8),
    "int8": Quantization("int8", 8),
    "int4": Quantization("awq", 4, 128, 20),
    "nvfp4": Quantization("compressed-tensors", 4, 16, 8),
    "mxfp4": Quantization("mxfp4", 4, 32, 8, experts_only=True),
}
_ENGINES = {"nvidia": "cuda-vllm-0.30", "neuron": "neuron-2.28-vllm-0.13"}
_MOST_SEQUENCES = {"trtllm": 2048}
"""``max_batch_size`` of ``trtllm-bench`` (TensorRT-LLM documentation), whose tables of maxima are; others have vLLM's."""
_MOST_OF_THE_PEAK = 2 / 3
"""Share of the peak that no engine was seen to reach in prompts: most reach less than 0.45."""


@dataclass(frozen=True)
class Case:
    """A measurement with the memory of what was served."""

    row: Measured
    use: MemoryUse
    chip: Chip

    @cached_property
    def _times(self) -> StepTimes:
        found = of_memory(self.use, self.chip, Constants())
        if self.use.instance.neuron:
            batch = self.row.compiled or (self.row.users if self.row.load == "batch" else 1)
            return replace(found, compiled_batch=batch)
        return found

    def times(self, constants: Constants) -> StepTimes:
        return replace(self._times, constants=constants)

    def token(self, constants: Constants) -> float:
        """The mean time between tokens, in seconds."""
        row, times = self.row, self.times(constants)
        if row.load == "batch":
            context = round(row.users * (row.prompt + row.answer / 2))
            return times.seconds(decoding=row.users, context_tokens=context, prefill_tokens=0)
        return times.between_tokens(row.users, row.prompt, row.answer)

    def first_token(self, constants: Constants) -> float:
        """The time to the first token of a request that is alone, or of a whole batch."""
        return self.times(constants).first_token(self.row.prompt, self.row.users if self.row.load == "batch" else 1)

    def tokens_a_second(self, constants: Constants) -> float:
        """The most that is reached, with the batch that the memory rules let the engine have."""
        row, use, times = self.row, self.use, self.times(constants)
        if row.load == "batch":
            return row.users * row.answer / (self.first_token(constants) + row.answer * self.token(constants))
        held = use.pool * use.parts * use.split.ranks / (use.kv_sequence / use.max_model_len * (row.prompt + row.answer / 2))
        most = _MOST_SEQUENCES.get(row.engine, USUAL_SEQUENCES)
        batch = max(min(row.users or most, most, held), 1.0)
        return batch / times.between_tokens(batch, row.prompt, row.answer)

    def queues(self, constants: Constants) -> bool:
        """Whether the first token waited so long that requests queued."""
        found = self.row.ttft_ms
        return found is not None and found / 1e3 > QUEUED * self.first_token(constants)

    @property
    def possible(self) -> bool:
        """Whether the prompts can have been computed, all of them, for so many users: else they came from a cache, or the users
        were fewer than the source says."""
        row, work = self.row, self._times.work
        if row.load or self.use.instance.neuron or not row.ttft_ms or not row.itl_ms:
            return True
        rate = row.users / (row.ttft_ms + row.itl_ms * (row.answer - 1)) * 1e3
        peak = self.chip.tflops.get(work.arithmetic, self.chip.tflops["bf16"]) * 1e12
        return rate * (row.prompt + row.answer) * work.products < _MOST_OF_THE_PEAK * peak

    @property
    def experts(self) -> bool:
        return self.use.model.experts > 0


@cache
def case(row: Measured) -> Case:
    chip, kind = chips()[row.device], model(row.model)
    served = replace(kind, quantization=_quantization(row, kind.quantization))
    instance = max(
        (one for one in instance_types().values() if one.chip == chip.chip and chip.memory_gib in (None, one.device_memory_gib)),
        key=lambda instance_type: instance_type.devices,
    )
    split = Parallel(row.tensor, row.stages, row.ranks, expert=row.ranks > 1)
    settings = MemorySettings(parallel=split, max_num_seqs=row.compiled or USUAL_SEQUENCES)
    assert instance.accelerator, row.device
    length = int(row.prompt + row.answer)
    return Case(row, MemoryUse(served, instance, engine(_ENGINES[instance.accelerator]), row.tensor, 1, length, settings), chip)


def _quantization(row: Measured, published: Quantization | None) -> Quantization | None:
    """A checkpoint that is published with so many bits has its own layout of scales."""
    found = _PRECISIONS.get(row.precision)
    return published if found and published and published.bits == found.bits and row.precision != "nvfp4" else found
