"""Calculates how long a disk takes for a cold start, and the limits for waiting that follow from it. Pure; no pulumi.

Only disks can be calculated. Nobody promises how fast a registry or the Hub sends, a compiler compiles and devices load. So
the seconds here are what a start takes at least, with all pods of a node at once, and limits are far above them.

Sources: image sizes of catalog/engines.toml; weights of catalog/models.toml; throughput of root disks (``pools/disks.py``).
"""

import math
from dataclasses import dataclass, replace

from eks_inference.catalog.engines import EngineProfile, Startup
from eks_inference.catalog.models import Model
from eks_inference.placement import Placement
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
class ColdStart:
    """A cold start of all pods that a node holds. ``model`` is None where pods download none, or one of unknown size."""

    engine: EngineProfile
    model: Model | None
    placement: Placement
    devices: int
    """Devices of one pod."""

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The phases in their order."""
        startup = self.engine.startup
        pods = max(self.placement.instance_type.devices // max(self.devices, 1), 1)
        speed = self.placement.disk_mib_s
        weights = (self.model.name, pods, self.model.weight_bytes() / 1e9) if self.model else None
        return (
            Phase("a node starts", startup.node_start_s),
            pull(self.engine, self.placement),
            moved("its pods download the model", startup.download_s, weights, speed, _LOCAL),
            Phase("the engine compiles", startup.compile_s),
            Phase("it loads", startup.load_s),
        )

    @property
    def startup(self) -> Startup:
        """The limits of the engine profile, raised where the disk needs more."""
        _, pull, download, *_ = self.phases
        return replace(self.engine.startup, image_pull_s=pull.limit_s, download_s=download.limit_s)


def pull(engine: EngineProfile, placement: Placement) -> Phase:
    """Returns the phase in which a node pulls the engine's image."""
    image = ("image", 1, engine.image_gb) if engine.image_gb else None
    return moved("it pulls the image", engine.startup.image_pull_s, image, placement.disk_mib_s, _LOCAL)


def moved(what: str, limit_s: int, content: tuple[str, int, float] | None, mib_s: int | None, place: str) -> Phase:
    """Returns a phase that reads or writes ``content`` (name, copies, gigabytes of each) at so many MiB/s; None: unknown."""
    if content is None or mib_s is None:
        return Phase(what, limit_s, working=f"speed of {place} unknown" if content else "size unknown")
    name, copies, gigabytes = content
    disk_s = math.ceil(copies * gigabytes * 1e9 / (mib_s * _MIB))
    times = f"{copies} x " if copies > 1 else ""
    return Phase(what, max(limit_s, MARGIN * disk_s), disk_s, f"{name}: {times}{gigabytes:.1f} GB / {mib_s} MiB/s")


def cold_start(spec: ServerSpec, placement: Placement, devices: int) -> ColdStart:
    """Returns the cold start of a server whose pods have so many devices each."""
    model = None if spec.stores_model else spec.model.known
    return ColdStart(spec.profile, model, placement, devices)
