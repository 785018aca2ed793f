"""The subject of the rules about load tests: a test and one of its servers. Pure; no pulumi."""

from dataclasses import dataclass
from typing import ClassVar

from eks_inference.loadtest.spec import LoadTestSpec
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
