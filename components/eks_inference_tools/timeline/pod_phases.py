"""The phases between an object with pods and their first answer: node, image, weights, compilation, start. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from eks_inference.catalog.engines import STREAMER
from eks_inference.catalog.instances import Accelerator, ForAccelerator
from eks_inference.catalog.models import Model
from eks_inference.catalog.times import Typical, phase_time

_MIB = 1024**2

Role = Literal["server", "download", "compile", "other"]
"""What pods do before they are ready or complete: serve a model, store its weights, compile it; or something else."""


@dataclass(frozen=True)
class PodStart(ForAccelerator):
    """What decides how long the pods of one object take.

    ``new_node`` names the pool whose node Karpenter starts for them, empty when the node stands. ``no_node``: no pool of the
    graph has a node for them, so something else has to bring one. ``image_gb`` is None for an image of unknown size.
    ``pulled``: the image is on the node. ``from_hub``: weights come from the Hugging Face Hub. ``weights_stored`` and
    ``compiled``: pods use what an earlier Job or start left; Jobs that would leave it are done.
    """

    role: Role
    accelerator: Accelerator | None = None
    new_node: str = ""
    instance_type: str = ""
    image: str = ""
    image_gb: float | None = None
    pulled: bool = False
    fast_image_pull: bool = False
    disk_mib_s: int | None = None
    model: Model | None = None
    model_name: str = ""
    from_hub: bool = True
    weights_stored: bool = False
    compiled: bool = False
    no_node: bool = False
    load_format: str = ""
    fast_load: str = ""
    """What ``load_format`` could be, if the engine has something faster."""
    pool: str = ""
    """URN of the pool that has a node for them."""

    @property
    def weights_gb(self) -> float | None:
        return self.model.weight_bytes() / 1e9 if self.model else None

    @property
    def billions(self) -> float | None:
        return self.model.parameters / 1e9 if self.model else None


@dataclass(frozen=True)
class Phase:
    """One phase. ``name`` is unique among those of a start. ``time`` is None without a typical time."""

    name: str
    title: str
    time: Typical | None


def phases(start: PodStart) -> tuple[Phase, ...]:
    """Returns the phases in their order."""
    done = (start.role == "download" and start.weights_stored) or (start.role == "compile" and start.compiled)
    return () if done else tuple(_phases(start))


def _phases(start: PodStart) -> Iterator[Phase]:
    if start.new_node:
        time = phase_time("node", start.accelerator, instance_type=start.instance_type)
        yield Phase("node", f"Karpenter starts a node of {start.new_node}", time)
    elif start.no_node:
        yield Phase("node", "a node comes from elsewhere: no pool here has one for it", None)
    if not start.pulled:
        size = f" of {start.image_gb:g} GB" if start.image_gb else ""
        yield Phase("pull", f"the node pulls the image{size}", pull_time(start))
    if start.role == "server":
        yield from _of_server(start)
    elif start.role == "download":
        yield _download(start)
    elif start.role == "compile":
        yield _compilation(start)
    else:
        yield Phase("run", "the pods run", None)


def pull_time(start: PodStart) -> Typical | None:
    """Returns how long the node takes to pull the image: never less than its disk takes to write it."""
    plain, factor = phase_time("pull"), phase_time("fast pull")
    if start.image_gb is None or plain is None:
        return None
    floor = start.image_gb * 1e9 / (start.disk_mib_s * _MIB) if start.disk_mib_s else 0
    if start.fast_image_pull:
        return plain.by(factor).times(start.image_gb, floor) if factor else None
    return plain.times(start.image_gb, floor)


def _of_server(start: PodStart) -> Iterator[Phase]:
    model = start.model_name or "the model"
    whole = phase_time("download and start", start.accelerator, start.billions, start.instance_type)
    if whole and start.from_hub and not start.weights_stored and not start.compiled:
        yield Phase("start", f"the server downloads, compiles and loads {model}", whole)
        return
    if start.load_format == STREAMER and not start.from_hub and not start.weights_stored:
        whole, each = phase_time("start, streamed", start.accelerator, start.billions), phase_time("stream", start.accelerator)
        if whole is None and each and start.weights_gb is not None:
            yield Phase("load", f"the server streams {model} from S3", each.times(start.weights_gb))
            yield Phase("start", "it compiles and starts", None)
        else:
            yield Phase("start", f"the server streams {model} from S3, compiles and starts", whole)
        return
    if not start.weights_stored:
        yield _download(start)
    if start.neuron:
        if not start.compiled:
            yield _compilation(start)
        yield Phase("start", f"the server loads {model}", phase_time("start, compiled", start.accelerator, start.billions))
        return
    whole = phase_time("start, compiled" if start.compiled else "start", start.accelerator, start.billions)
    load, size = phase_time("load", start.accelerator), start.weights_gb
    fast = start.load_format and start.load_format == start.fast_load
    if load and fast and (factor := phase_time("fast load", start.accelerator)):
        load, whole = load.by(factor), None  # what is known as a whole has a plain load in it
    if whole is None and load and size is not None:
        yield Phase("load", f"the server loads {model}", load.times(size))
        yield Phase("start", "it compiles and starts", None)
        return
    yield Phase("start", f"the server loads {model} and starts", whole)


def _download(start: PodStart) -> Phase:
    each, size = phase_time("download"), start.weights_gb
    shown = f" ({size:.0f} GB)" if size and size >= 1 else ""
    time = each.times(size) if each and size is not None and start.from_hub else None
    return Phase("download", f"{start.model_name or 'the model'} is downloaded{shown}", time)


def _compilation(start: PodStart) -> Phase:
    time = phase_time("compile", start.accelerator, start.billions)
    return Phase("compile", f"{start.model_name or 'the model'} is compiled", time)
