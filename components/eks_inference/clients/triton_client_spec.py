"""What a user decides about the client of a Triton server: a test of its answers, then a measurement."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from eks_inference.images.spec import PinnedImage
from eks_inference.loadtest.spec import HubTokenizer, TokenCounts, Users
from eks_inference.spec import Quantity, ResourceName, Spec

Prompt = Annotated[str, Field(min_length=1, pattern=r"^[^\n]+$")]


class TritonClientSpec(Spec):
    """A Job that asks a Triton server some prompts over gRPC, and then measures it with NVIDIA's genai-perf.

    The defaults are the source system's: 20 prompts; 8 to 128 users, 128 tokens in and out, 100 prompts of seed 1, windows of 30
    seconds. It runs with the first deployment, again with every change of what it measures, and on demand.
    """

    run: str | int = Field(
        default="1", description="Change it to run the client again; a change of anything else does so by itself."
    )
    namespace: ResourceName = Field(default="triton-client", description="Namespace of the client; made here.")
    server: ResourceName | None = Field(
        default=None, description="Which server of the stack is asked. Default: its Triton server, when there is just one."
    )
    prompts: tuple[Prompt, ...] = Field(
        default=(), description="Prompts of the test, a line each. Default: 20 of this library, beginnings of sentences."
    )
    max_tokens: int = Field(default=100, ge=1, description="Longest answer of the test, in tokens.")
    temperature: float = Field(default=0.1, ge=0, description="Temperature of the test's answers.")
    top_p: float = Field(default=0.95, gt=0, le=1, description="Probability mass the test's answers are drawn from.")
    users: tuple[Users, ...] = Field(
        default=(8, 16, 32, 64, 128),
        min_length=1,
        description="Users at once. Each number is a measurement of its own; they run in this order.",
    )
    input_tokens: TokenCounts = Field(
        default_factory=lambda: TokenCounts(mean=128), description="Length of the measurement's prompts."
    )
    output_tokens: int = Field(default=128, ge=1, description="Length of the measurement's answers, at most, in tokens.")
    num_prompts: int = Field(default=100, ge=1, description="Different prompts of a measurement; they are asked again and again.")
    seed: int = Field(default=1, ge=0, description="Seed of the prompts.")
    measurement_interval_seconds: int = Field(default=30, ge=1, description="Length of one window of measurement.")
    tokenizer: HubTokenizer | None = Field(
        default=None,
        description="Whence the tokenizer that counts tokens. Default: the repository of the server's model on the Hub.",
    )
    image: PinnedImage | None = Field(
        default=None, description="Image with Triton's Python client and genai-perf. Default: that of the server's release."
    )
    cpu: Quantity = Field(
        default="1", description="CPU of the client, request and limit. Too little shows as latency the server does not have."
    )
    memory: Quantity = Field(default="2Gi", description="Memory of the client, request and limit. The source system gives 1Gi.")

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        if len(set(self.users)) < len(self.users):
            raise ValueError(f"users has an entry twice: {', '.join(map(str, self.users))}")
        return self
