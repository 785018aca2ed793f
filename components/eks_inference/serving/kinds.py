"""The registry of the kinds of model servers. Pure; no pulumi: a row imports its component only to build a server."""

from typing import TYPE_CHECKING, Annotated, Any, Union

from pydantic import Field

from eks_inference.serving.disaggregated.kind import KIND as DISAGGREGATED
from eks_inference.serving.kind import Kind
from eks_inference.serving.prefill_decode.kind import KIND as PREFILL_DECODE
from eks_inference.serving.ray_serve.kind import KIND as RAY_SERVE
from eks_inference.serving.shape import ServerSpec
from eks_inference.serving.triton.kind import KIND as TRITON
from eks_inference.serving.vllm.kind import KIND as VLLM

KINDS: dict[str, Kind] = {kind.name: kind for kind in (RAY_SERVE, VLLM, TRITON, DISAGGREGATED, PREFILL_DECODE)}
"""Every kind by name. ``stack.spec.register_kind`` adds a kind."""

USUAL = VLLM.name
"""The kind of a server in a stack file that does not say its kind."""


def kind_of(spec: ServerSpec) -> Kind:
    return KINDS[spec.kind]


class _OfAnyKind:
    """Makes pydantic choose the spec of a server by its ``kind``, among the kinds registered when the model class is built."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        specs = tuple(kind.spec for kind in KINDS.values())
        return handler.generate_schema(Annotated[Union[specs], Field(discriminator="kind")])  # noqa: UP007


if TYPE_CHECKING:
    AnyServerSpec = ServerSpec
else:
    AnyServerSpec = Annotated[Any, _OfAnyKind()]
