"""What the rules of load tests judge: a test and one of the servers it asks. Pure; no pulumi."""

from dataclasses import dataclass

from eks_inference.loadtest.spec import LoadTestSpec
from eks_inference.rules import Path
from eks_inference.serving.facts import ServingFacts


@dataclass(frozen=True)
class LoadTestFacts:
    """``path`` is the test's key in the stack, empty when a component judges itself; ``name`` is the server's."""

    spec: LoadTestSpec
    name: str
    server: ServingFacts
    path: Path = ()
