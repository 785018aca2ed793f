"""The subjects of the rules about load tests: a test and one of its servers, and the requests of any client. Pure; no pulumi."""

from dataclasses import dataclass
from typing import ClassVar

from eks_inference.loadtest.spec import LoadTestSpec, TokenCounts
from eks_inference.rules import Path
from eks_inference.serving.facts import ServingFacts


@dataclass(frozen=True)
class LoadTestFacts:
    """A load test of the server ``name``. ``path`` is the test's key in the stack; it is empty when a component judges itself."""

    about: ClassVar[str] = "load tests"

    spec: LoadTestSpec
    name: str
    server: ServingFacts
    path: Path = ()


@dataclass(frozen=True)
class RequestFacts:
    """The requests that a load test or another measuring client sends to the server ``name``. ``path`` is the client's key."""

    about: ClassVar[str] = "requests of measuring clients"

    name: str
    server: ServingFacts
    input_tokens: TokenCounts
    output_tokens: TokenCounts
    path: Path
