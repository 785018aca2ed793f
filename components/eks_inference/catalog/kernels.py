"""Kernels of vLLM for quantized checkpoints on GPUs: loads ``kernels.toml``."""

from dataclasses import dataclass, replace
from functools import cache

from eks_inference.catalog.quantization import Quantization
from eks_inference.catalog.tables import arguments, rows, table, version_numbers

Capability = tuple[int, int]


@dataclass(frozen=True)
class Pads:
    """What a kernel rounds the widths of experts up to, on GPUs from a compute capability on."""

    since: Capability
    hidden: int
    expert: int

    def grown(self, hidden: int, expert: int) -> float:
        """How many times larger the weights of an expert of these widths become."""
        return _up(hidden, self.hidden) / hidden * _up(expert, self.expert) / expert


@dataclass(frozen=True)
class LinearBackend:
    """A value of ``--linear-backend`` that is needed where a release selects a kernel that fails."""

    fails: str
    """The kernel, one of ``EngineFacts.kernels``."""
    below: Capability
    """The first GPUs on which it works."""
    backend: str
    unsaid: tuple[str, ...] = ()
    """Values of which nobody has said whether they work too. All others do not."""


@dataclass(frozen=True)
class Kernel:
    """What a method of quantization needs of a GPU."""

    minimum: Capability
    """Oldest GPUs with a kernel."""
    below: Capability | None = None
    """The first GPUs that have none any more. None: there are none such."""
    certain: Capability | None = None
    """Oldest GPUs with a kernel for every checkpoint of the method. None: those of ``minimum``."""
    names: tuple[str, ...] = ()
    """What ``--quantization`` may say of such a checkpoint, beside the method itself."""
    pads: tuple[Pads, ...] = ()
    linear: LinearBackend | None = None
    """What is needed for weights that do not share their scales in blocks. None: nothing."""

    def serves(self, capability: Capability) -> bool:
        """Whether there is one for GPUs of this compute capability, at least for some checkpoints."""
        return capability >= self.minimum and (self.below is None or capability < self.below)

    def pads_on(self, capability: Capability) -> Pads | None:
        """The row for a GPU; None where the kernel pads nothing."""
        return next((one for one in reversed(self.pads) if one.since <= capability), None)


def kernel(quantization: Quantization, vllm: str) -> Kernel | None:
    """Returns the kernel of a vLLM release (``"0.27.1"``) for a quantized checkpoint; None where no source was read."""
    known = _kernels(vllm)
    found = (known.get("int8-activations") if quantization.integer_activations else None) or known.get(quantization.method)
    return replace(found, linear=None) if found and quantization.group else found


@cache
def _kernels(vllm: str) -> dict[str, Kernel]:
    release = tuple(int(part) for part in vllm.split(".") if part.isdecimal())
    tables = table("kernels.toml")
    earlier = [one for one in tables if version_numbers(one) <= release]
    found = rows(tables[max(earlier, key=version_numbers)]) if earlier else {}
    return {method: _kernel(columns) for method, columns in found.items()}


def _kernel(columns: dict[str, object]) -> Kernel:
    found = arguments(columns)
    pads = tuple(Pads(**arguments(one)) for one in found.pop("pads", ()))
    linear = LinearBackend(**found.pop("linear")) if "linear" in found else None
    return Kernel(**found, pads=pads, linear=linear)


def _up(width: int, multiple: int) -> int:
    return -(-width // multiple) * multiple
