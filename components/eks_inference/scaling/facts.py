"""What the rules of scaling judge: an autoscaler, what it scales, and what it scales by. Pure; no pulumi."""

from dataclasses import dataclass

from eks_inference.rules import Path
from eks_inference.scaling.spec import AutoscalerSpec
from eks_inference.serving.facts import ServingFacts


@dataclass(frozen=True)
class ScalingFacts:
    """One autoscaler of one server. ``metrics`` says whether something in the stack collects what it scales by."""

    path: Path
    spec: AutoscalerSpec
    server: ServingFacts
    metrics: bool
