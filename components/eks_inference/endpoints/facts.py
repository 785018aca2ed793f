"""The subject of the rules about endpoints: a proxy, and the servers behind it. Pure; no pulumi."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from eks_inference.endpoints.spec import ModelEndpointSpec


@dataclass(frozen=True)
class ServerBehind:
    """A server behind an endpoint."""

    limited: bool
    """Whether only some namespaces may call it past the endpoint."""
    answer_seconds: int
    """How long a terminating pod goes on with the requests it has: the longest answer that the library expects."""
    model: str = ""
    """Name of the model in requests; empty for the KServe API."""
    namespace: str = ""
    tells_load: bool = False
    """Whether clients reach pods that tell vLLM's metrics of their load."""


@dataclass(frozen=True)
class EndpointFacts:
    """An endpoint in its stack, with its servers by name."""

    about: ClassVar[str] = "endpoints"

    name: str
    spec: ModelEndpointSpec
    servers: Mapping[str, ServerBehind]

    def at(self, key: str) -> tuple[str, ...]:
        """Returns the path of a key of the endpoint in the stack."""
        return ("endpoints", self.name, key)
