"""Calculates what a cold start writes to a node's disk, and the limits for waiting that follow from it. Pure; no pulumi.

Only the disk can be calculated. Nobody promises how fast a registry or the Hub sends, a compiler compiles and devices load. So
the seconds here are what a start takes at least, with all pods of a node at once, and limits are far above them.

Sources: image sizes of catalog/engines.toml; weights of catalog/models.toml; throughput of root disks (``pools/disks.py``).
"""

import math
from dataclasses import dataclass, replace

from eks_inference.catalog.engines import EngineProfile, Startup
from eks_inference.catalog.models import Model, find_model
from eks_inference.placement import Placement
from eks_inference.serving.shape import ServerSpec

MARGIN = 3
"""A limit is at least so many times what the disk needs: a pull writes an image packed and unpacked, and networks are slower."""

_MIB = 1024**2


@dataclass(frozen=True)
class Phase:
    """One phase of a cold start."""

    what: str
    limit_s: int
    """How long it is waited for."""
    disk_s: int | None = None
    """How long the disk takes for what the phase writes; None: it writes nothing of known size to a disk of known speed."""
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
        image = ("image", 1, self.engine.image_gb) if self.engine.image_gb else None
        weights = (self.model.name, pods, self.model.weight_bytes() / 1e9) if self.model else None
        return (
            Phase("a node starts", startup.node_start_s),
            self._written("it pulls the image", startup.image_pull_s, image),
            self._written("its pods download the model", startup.download_s, weights),
            Phase("the engine compiles", startup.compile_s),
            Phase("it loads", startup.load_s),
        )

    @property
    def startup(self) -> Startup:
        """The limits of the engine profile, raised where the disk needs more."""
        _, pull, download, *_ = self.phases
        return replace(self.engine.startup, image_pull_s=pull.limit_s, download_s=download.limit_s)

    def _written(self, what: str, limit_s: int, content: tuple[str, int, float] | None) -> Phase:
        speed = self.placement.disk_mib_s
        if content is None or speed is None:
            return Phase(what, limit_s, working="speed of the local disks unknown" if content else "size unknown")
        name, copies, gigabytes = content
        disk_s = math.ceil(copies * gigabytes * 1e9 / (speed * _MIB))
        times = f"{copies} x " if copies > 1 else ""
        working = f"{name}: {times}{gigabytes:.1f} GB / {speed} MiB/s"
        return Phase(what, max(limit_s, MARGIN * disk_s), disk_s, working)


def cold_start(spec: ServerSpec, placement: Placement, devices: int) -> ColdStart:
    """Returns the cold start of a server whose pods have so many devices each."""
    model = None if spec.stores_model else find_model(spec.model.id)
    return ColdStart(spec.profile, model, placement, devices)
