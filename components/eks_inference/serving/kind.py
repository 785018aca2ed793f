"""One kind of model server: the row that a kind's folder gives to the registry (``kinds.py``). Pure; no pulumi.

Code for servers of any kind asks the row, the spec (``shape.py``) or the component (``handle.py``), and never compares kinds.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from eks_inference.place.placement import Placement
from eks_inference.pools.spec import PoolSpec
from eks_inference.rules import Path
from eks_inference.serving.choosing import Sketch
from eks_inference.serving.shape import PoolChoice, ServerSpec

if TYPE_CHECKING:
    import pulumi

    from eks_inference.serving.handle import Dependencies, Server, ServerSite


@dataclass(frozen=True)
class Site:
    """Where a server would run. Its facts follow from this and its spec. ``path`` is the server's key in the stack."""

    path: Path
    placement: Placement
    """The placement of the pods that hold the model."""
    pools: Mapping[str, PoolSpec]
    place: Callable[[PoolChoice], Placement]
    """Returns the placement on another pool of the server."""
    zone_ids: Sequence[str]
    """Zones of the network; empty when they are unknown."""
    pool_zones: Callable[[PoolSpec], Sequence[str]]
    scheduler: bool
    """Whether the Neuron scheduler extension is installed."""


@dataclass(frozen=True)
class Kind:
    """One kind of model server."""

    spec: type[ServerSpec]
    """The spec, whose field ``kind`` is a literal with the name of the kind."""
    facts: Callable[[str, Any, Site], Iterable[object]]
    """Returns what rules judge in a server with this name, spec and site: ``ServingFacts``, and facts of the kind's own rules."""
    build: "Callable[[str, Any, Dependencies, ServerSite, pulumi.ResourceOptions], Server]"
    api: Literal["openai", "kserve"]
    """The API for clients: the OpenAI API, or KServe v2 over HTTP and gRPC."""
    tells_load: bool = False
    """Whether clients reach pods that tell vLLM's metrics of their load at the same port."""
    dashboards: tuple[str, ...] = ()
    """Grafana dashboards for such a server."""
    rules: tuple[str, ...] = ()
    """The modules with the rules for this kind alone."""
    sketched: Callable[[Sketch], Mapping[str, Any] | None] | None = None
    """Returns a server of this kind as a stack file has it, or None where the kind is not for the engine. None: nobody searches
    for places of such servers."""

    @property
    def name(self) -> str:
        return get_args(self.spec.model_fields["kind"].annotation)[0]
