"""What the rules of scaling judge: an autoscaler, what it scales, and what it scales by. Pure; no pulumi."""

from dataclasses import dataclass

from eks_inference.rules import Path
from eks_inference.scaling.spec import AutoscalerSpec
from eks_inference.serving.facts import ServingFacts


@dataclass(frozen=True)
class ScalingFacts:
    """One autoscaler of one server."""

    path: Path
    spec: AutoscalerSpec
    server: ServingFacts
    metrics: bool
    """Whether something in the stack collects what it scales by."""
    scrape_interval_s: int = 30
    """How often that is collected."""
