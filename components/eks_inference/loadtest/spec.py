"""What a user decides about a load test."""

from typing import Annotated, Any, Self

from pydantic import Field, JsonValue, model_validator

from eks_inference.images.spec import PinnedImage
from eks_inference.spec import Quantity, ResourceName, Spec

Users = Annotated[int, Field(ge=1)]


class TokenCounts(Spec):
    """Numbers of tokens, drawn from a normal distribution."""

    mean: int = Field(ge=1, description="Mean, in tokens of the model's own tokenizer.")
    stddev: int = Field(default=0, ge=0, description="Standard deviation, in tokens. 0: every request has the mean.")


class HubTokenizer(Spec):
    """A tokenizer on the Hugging Face Hub."""

    id: str = Field(
        pattern=r"^[\w.-]+/[\w.-]+$", description="Repository with the tokenizer, e.g. NousResearch/Meta-Llama-3-8B-Instruct."
    )
    revision: str | None = Field(
        default=None, pattern=r"^[\w./-]+$", description="Commit, tag or branch of the repository. Default: its main branch."
    )


class LoadTestSpec(Spec):
    """Requests of users who ask without a pause, for each server and each number of users one after another.

    The defaults are the source system's: 512 +- 20 tokens in, 245 +- 20 out, 8 requests of each user, 7200 seconds at most, and
    2, 4, 8 and 16 users.
    """

    enabled: bool = Field(
        default=True, description="Whether the test runs. Without it, namespace, volume and results of earlier runs stay."
    )
    run: str | int = Field(
        default="1",
        description="Change it to run the test again; a change of anything else does so by itself. It also seeds the prompts.",
    )
    namespace: ResourceName = Field(default="loadtest", description="Namespace of the test; made here.")
    servers: tuple[ResourceName, ...] = Field(
        default=(), description="Names of the model servers to test, in this order. Default: all of the stack."
    )
    input_tokens: TokenCounts = Field(
        default_factory=lambda: TokenCounts(mean=512, stddev=20),
        description="Length of the prompts. The server adds the tokens of its chat template.",
    )
    output_tokens: TokenCounts = Field(
        default_factory=lambda: TokenCounts(mean=245, stddev=20),
        description="Length of the answers. The server is told to go on past an end of its own (ignore_eos), so they are exact.",
    )
    users: tuple[Users, ...] = Field(
        default=(2, 4, 8, 16),
        min_length=1,
        description="Users at once. Each number is a measurement of its own; several make a sweep, run in this order.",
    )
    requests_per_user: int = Field(
        default=8, ge=1, description="A measurement sends this many requests times its number of users, of whoever is free."
    )
    timeout_seconds: int = Field(
        default=7200,
        ge=60,
        description="Longest time of one measurement: no request begins after it. Some that are under way end as incomplete.",
    )
    ready_timeout_seconds: int | None = Field(
        default=None, ge=60, description="How long to wait until every model answers. Default: the slowest server's cold start."
    )
    sampling: dict[str, JsonValue] = Field(
        default_factory=dict,
        description="Further keys of every request's body, e.g. {temperature: 0.7, top_p: 0.9, top_k: 50}, {ignore_eos: false}.",
    )
    tokenizer: HubTokenizer | None = Field(
        default=None,
        description="Whence the tokenizer that counts the prompts. Default: the repository of the server's model on the Hub.",
    )
    image: PinnedImage | None = Field(default=None, description="Image with GuideLLM instead of the pinned one.")
    volume_gib: int = Field(
        default=10, ge=1, description="Size of the volume of the results, in GiB. A run of the defaults takes about 1 MiB."
    )
    storage_class: ResourceName | None = Field(
        default=None, description="Storage class of the volume. Default: the cluster's default class (gp3)."
    )
    cpu: Quantity = Field(
        default="2", description="CPU of the test, request and limit. Too little shows as latency the server does not have."
    )
    memory: Quantity = Field(
        default="2Gi", description="Memory of the test, request and limit. GuideLLM took 1 GiB with 16 users."
    )
    extra_env: dict[str, str] = Field(
        default_factory=dict, description="Further environment variables, e.g. HF_ENDPOINT for a mirror of the Hub. They win."
    )
    guidellm: dict[str, Any] = Field(
        default_factory=dict,
        description="Laid over 'spec' of every scenario file of GuideLLM, e.g. {profile: {rampup_duration: 10}}. It wins.",
    )

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        for field in ("users", "servers"):
            values = getattr(self, field)
            if len(set(values)) < len(values):
                raise ValueError(f"{field} has an entry twice: {', '.join(map(str, values))}")
        return self
