"""Vectors of the rules about autoscalers."""

from typing import Any

from eks_inference.scaling.facts import ScalingFacts
from eks_inference.scaling.spec import KedaSpec
from vectors import Vector
from vectors.serving import server


def scaling(metrics: bool = True, **spec: Any) -> ScalingFacts:
    """A good autoscaler, changed."""
    wish = KedaSpec.model_validate({"kind": "keda", "min": 1, "max": 4, **spec})
    return ScalingFacts(("servers", "llama", "autoscaling"), wish, server(), metrics)


VECTORS = {
    "SCL001": Vector(scaling, lambda: scaling(metrics=False), "nothing in this stack collects"),
    "SCL002": Vector(scaling, lambda: scaling(min=0), "never a pod again"),
    "SCL003": Vector(scaling, lambda: scaling(min=4), "it never scales"),
    "SCL004": Vector(scaling, lambda: scaling(scale_in_seconds=10), "may go after 10 s"),
}
