"""Vectors of the rules about the traffic of servers."""

from typing import Any

from eks_inference.catalog.models import find_model
from eks_inference.observability.spec import Objectives
from eks_inference.serving.traffic import TrafficSpec
from eks_inference.speed.rules import TrafficFacts
from vectors import Vector
from vectors.serving import gpu


def traffic(**load: Any) -> TrafficFacts:
    """Returns OPT-350M on up to four g4dn.xlarge with prompts of 500 tokens and answers of 100."""
    asked = TrafficSpec.model_validate({"input_tokens": 500, "output_tokens": 100, **load})
    return TrafficFacts(gpu(), asked, Objectives(time_to_first_token_seconds=1))


def seeing(pictures: float) -> TrafficFacts:
    """Returns a model that sees, whose prompts may have two pictures."""
    server = gpu(model=find_model("Qwen3-VL-8B"), arguments=('--limit-mm-per-prompt={"image": 2}',))
    return TrafficFacts(server, traffic(rate=1, pictures=pictures).traffic, Objectives())


VECTORS = {
    "TRF001": Vector(lambda: traffic(rate=1), lambda: traffic(rate=1000), "asked: 1000"),
    "TRF002": Vector(lambda: seeing(2), lambda: seeing(3), "takes 2 pictures a request, and 3 are asked on average"),
}
