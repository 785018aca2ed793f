"""What a model server on Neuron devices must keep to. Numbers NEU…"""

from collections.abc import Iterator

from eks_inference.rules import Judgement, rule
from eks_inference.serving.facts import ServingFacts


@rule(
    "NEU006",
    "Attention heads divide evenly among the cores.",
    fix="choose a tensor_parallel that divides the number of heads",
    source="NxD Inference feature guide, tensor parallelism",
)
def heads_divide(server: ServingFacts) -> Iterator[Judgement]:
    if not server.neuron or server.model is None:
        return
    heads, degree = server.model.heads, server.tensor_parallel
    yield Judgement(
        holds=server.model.splits_over(degree),
        path=server.at("tensor_parallel"),
        working=(f"heads mod tensor_parallel = {heads} mod {degree} = {heads % degree}",),
        message=f"{heads} attention heads of {server.model.name} do not divide evenly among {degree} cores",
        given=str(degree),
        allowed=", ".join(str(divisor) for divisor in range(1, heads + 1) if heads % divisor == 0),
    )
