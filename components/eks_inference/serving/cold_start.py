"""Calculates how long a cold start is waited for: by the bytes that it moves, and by the slowest rates seen. Pure; no pulumi.

Nobody promises how fast a registry or the Hub sends, a compiler compiles and devices load. So a phase is waited for as long as
the engine profile says, and longer where its bytes need it: at the slowest rate of ``catalog/times.toml``, which is also the
upper end of the timeline, and several times as long as the disk takes with all pods of a node at once.

Sources: image sizes of catalog/engines.toml; weights of catalog/models.toml or of the model's shape; rates of catalog/times.toml;
throughput of root disks (``pools/node_plan.py``).
"""

import math
from dataclasses import dataclass, replace

from eks_inference.catalog.engines import EngineProfile, Startup
from eks_inference.catalog.models import Model
from eks_inference.catalog.times import Typical, phase_time
from eks_inference.place.placement import Placement
from eks_inference.serving.features import EngineFeatures
from eks_inference.serving.shape import ServerSpec

MARGIN = 3
"""A limit is at least so many times what the disk needs: a pull writes an image packed and unpacked, and networks are slower."""

_MIB = 1024**2
_LOCAL = "the local disks"


@dataclass(frozen=True)
class Phase:
    """One phase of a cold start."""

    what: str
    limit_s: int
    """How long it is waited for."""
    disk_s: int | None = None
    """How long the disk or store takes for what the phase moves; None: nothing of known size, or at an unknown speed."""
    working: str = ""
    """How ``disk_s`` was calculated, or why it was not."""


@dataclass(frozen=True)
class Weights:
    """Where pods have the weights of the model from."""

    downloads: bool = True
    """Whether pods download the model; otherwise a volume has it."""
    stored: bool = False
    """Whether it is on a file system of all pods, into which one of them downloads it; otherwise each writes it to its node."""
    streamed: bool = False
    """Whether the engine reads it from S3, and nothing writes it to a disk."""
    store_mib_s: int | None = None
    """What a node reads from that file system in MiB/s; None: unknown."""


@dataclass(frozen=True)
class ColdStart:
    """A cold start of all pods that a node holds. ``model`` is None where its size is unknown."""

    engine: EngineProfile
    model: Model | None
    placement: Placement
    devices: int
    """Devices of one pod."""
    weights: Weights = Weights()
    draft_bytes: int = 0
    """Weights of a draft model, which pods download beside the model."""

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The phases in their order."""
        startup = self.engine.startup
        pods = max(self.placement.instance_type.devices // max(self.devices, 1), 1)
        where, action, place, speed = self.weights, "download", _LOCAL, self.placement.disk_mib_s
        if where.streamed:
            action, place, speed = "stream", "S3", None
        elif where.stored:
            place, speed = "the store", where.store_mib_s
        copies = 1 if where.stored else pods
        moving = (self.model.name, copies, self.weight_bytes / 1e9) if self.model and where.downloads else None
        load_s = _waited(startup.load_s, phase_time("load", self.engine.accelerator), self.weight_bytes / 1e9)
        if where.store_mib_s:
            load_s = max(load_s, MARGIN * math.ceil(pods * self.weight_bytes / (where.store_mib_s * _MIB)))
        return (
            Phase("a node starts", startup.node_start_s),
            pull(self.engine, self.placement),
            moved(f"its pods {action} the model", startup.download_s, moving, speed, place, phase_time("download")),
            Phase("the engine compiles", startup.compile_s),
            Phase("it loads", load_s),
        )

    @property
    def reads_at_unknown_speed(self) -> bool:
        """Whether pods load the model from a file system whose speed is unknown."""
        return self.weights.stored and self.weights.store_mib_s is None

    @property
    def startup(self) -> Startup:
        """The limits of the engine profile, raised where the bytes of the image or the model need more."""
        _, pull, download, _, load = self.phases
        return replace(self.engine.startup, image_pull_s=pull.limit_s, download_s=download.limit_s, load_s=load.limit_s)

    @property
    def weight_bytes(self) -> int:
        """Size of all weights that a pod loads, as published. 0: unknown."""
        return self.model.weight_bytes() + self.draft_bytes if self.model else 0


def pull(engine: EngineProfile, placement: Placement) -> Phase:
    """Returns the phase in which a node pulls the engine's image."""
    image = ("image", 1, engine.image_gb) if engine.image_gb else None
    return moved("it pulls the image", engine.startup.image_pull_s, image, placement.disk_mib_s, _LOCAL, phase_time("pull"))


def moved(
    what: str, limit_s: int, content: tuple[str, int, float] | None, mib_s: int | None, place: str, rate: Typical | None = None
) -> Phase:
    """Returns a phase that writes or reads ``content`` (name, copies, gigabytes of each) at so many MiB/s; None: unknown.

    ``rate`` is how long one gigabyte takes where it comes from.
    """
    if content is None:
        return Phase(what, limit_s, working="size unknown")
    name, copies, gigabytes = content
    limit_s = _waited(limit_s, rate, gigabytes)
    if mib_s is None:
        slowest = f"; {gigabytes:.1f} GB x {rate.high:g} s at the slowest seen" if rate else ""
        return Phase(what, limit_s, working=f"speed of {place} unknown{slowest}")
    disk_s = math.ceil(copies * gigabytes * 1e9 / (mib_s * _MIB))
    times = f"{copies} x " if copies > 1 else ""
    return Phase(what, max(limit_s, MARGIN * disk_s), disk_s, f"{name}: {times}{gigabytes:.1f} GB / {mib_s} MiB/s")


def _waited(limit_s: int, rate: Typical | None, gigabytes: float) -> int:
    """The limit of a phase that may be as slow as the slowest that was seen."""
    return max(limit_s, math.ceil(rate.high * gigabytes)) if rate else limit_s


def cold_start(spec: ServerSpec, placement: Placement, devices: int) -> ColdStart:
    """Returns the cold start of a server whose pods have so many devices each."""
    draft = spec.draft_bytes if isinstance(spec, EngineFeatures) else 0
    return ColdStart(spec.profile, spec.model.known, placement, devices, weights_of(spec), draft)


def weights_of(spec: ServerSpec) -> Weights:
    """Returns where pods of a server have the weights from."""
    return Weights(spec.downloads, spec.stores_model, spec.streams_model, spec.store_mib_s)
