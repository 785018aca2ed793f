"""The kinds of model servers: a row each, and everything that a stack needs to know of a kind.

A kind is a folder with a spec, facts, a component and ``kind.py``, which holds its row. Whoever works with servers of any kind
asks the row, the spec (``shape.py``) or the component (``handle.py``), never which kind it is. Pure; no pulumi: what builds
components is imported when a server is built.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args

from pydantic import Field

from eks_inference.placement import Placement
from eks_inference.pools.spec import PoolSpec
from eks_inference.rules import Path
from eks_inference.serving.shape import ServerSpec

if TYPE_CHECKING:
    import pulumi

    from eks_inference.serving.handle import Dependencies, Server, ServerSite

_BUILT_IN = ("ray_serve", "vllm", "triton", "disaggregated")


@dataclass(frozen=True)
class Site:
    """Where a server would run: what its facts follow from beside its spec. ``path`` is the server's key in the stack."""

    path: Path
    placement: Placement
    """Of the pods that hold the model."""
    pools: Mapping[str, PoolSpec]
    zone_ids: Sequence[str]
    """Zones of the network; none where they cannot be told."""
    pool_zones: Callable[[PoolSpec], Sequence[str]]
    scheduler: bool
    """Whether the Neuron scheduler extension is installed."""


@dataclass(frozen=True)
class Kind:
    """One kind of model server."""

    spec: type[ServerSpec]
    """What a user decides. The literal of its field ``kind`` names the kind."""
    facts: Callable[[str, Any, Site], Iterable[object]]
    """The subjects of rules in a server, by its name, its spec and its site: ``ServingFacts`` for each sort of pod that holds the
    model, and whatever the kind's own rules judge."""
    build: "Callable[[str, Any, Dependencies, ServerSite, pulumi.ResourceOptions], Server]"
    """Builds the component."""
    api: Literal["openai", "kserve"]
    """What clients speak: the OpenAI API, or KServe v2 over HTTP and gRPC."""
    dashboards: tuple[str, ...] = ()
    """Dashboards of Grafana that show such a server."""
    rules: str = ""
    """The module with rules about nothing but this kind; none: there are no such rules."""

    @property
    def name(self) -> str:
        return get_args(self.spec.model_fields["kind"].annotation)[0]


KINDS: dict[str, Kind] = {}
"""Every kind by its name. ``stack.spec.register_kind`` adds one."""

for _folder in _BUILT_IN:
    _row: Kind = import_module(f"eks_inference.serving.{_folder}.kind").KIND
    KINDS[_row.name] = _row


def kind_of(spec: ServerSpec) -> Kind:
    """The row of a server's kind."""
    return KINDS[spec.kind]


class _OfAnyKind:
    """Makes pydantic read a server by its ``kind``, whichever kinds there are when a model is built."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        specs = tuple(kind.spec for kind in KINDS.values())
        return handler.generate_schema(Annotated[Union[specs], Field(discriminator="kind")])  # noqa: UP007


if TYPE_CHECKING:
    AnyServerSpec = ServerSpec
else:
    AnyServerSpec = Annotated[Any, _OfAnyKind()]
