"""The settings of a load test."""

from typing import Annotated, Any

from pydantic import AfterValidator, Field, JsonValue

from eks_inference.images.spec import PinnedImage
from eks_inference.serving.spec import PATH, HubRepository
from eks_inference.specs.base import Cpu, ExistingName, Memory, Namespace, ResourceName, Spec, Variable, VolumeGib


def _no_duplicates(values: tuple[Any, ...]) -> tuple[Any, ...]:
    if len(set(values)) < len(values):
        raise ValueError(f"has an entry twice: {', '.join(map(str, values))}")
    return values


Distinct = AfterValidator(_no_duplicates)
Users = Annotated[tuple[Annotated[int, Field(ge=1)], ...], Distinct]


class TokenCounts(Spec):
    """A number of tokens that is drawn from a normal distribution."""

    mean: int = Field(ge=1, description="Mean, in tokens of the model's own tokenizer.")
    stddev: int = Field(default=0, ge=0, description="Standard deviation, in tokens. 0: every request has the mean.")


class HubTokenizer(Spec):
    """A tokenizer on the Hugging Face Hub."""

    id: HubRepository = Field(description="Repository, e.g. NousResearch/Meta-Llama-3-8B-Instruct.")
    revision: str | None = Field(default=None, pattern=PATH, description="Commit, tag or branch. Default: main.")


class LoadTestSpec(Spec):
    """A test that measures each server with each number of users in turn. Users send requests without a pause.

    The defaults are the source system's: 512 +- 20 tokens in, 245 +- 20 out, 8 requests per user, 7200 seconds at most, and
    2, 4, 8 and 16 users.
    """

    enabled: bool = Field(default=True, description="Whether the test runs. If false, namespace, volume and results remain.")
    run: str | int = Field(
        default="1",
        description="Change this value to run the test again. Any other change also does so. The value seeds the prompts.",
    )
    namespace: Namespace = Field(default="loadtest", description="Namespace of the test. The component creates it.")
    servers: Annotated[tuple[ResourceName, ...], Distinct] = Field(
        default=(), description="Names of servers to test, in this order. Default: all whose task is chat, complete or embed."
    )
    input_tokens: TokenCounts = Field(
        default_factory=lambda: TokenCounts(mean=512, stddev=20),
        description="Length of the prompts. The server adds the tokens of its chat template.",
    )
    output_tokens: TokenCounts = Field(
        default_factory=lambda: TokenCounts(mean=245, stddev=20),
        description="Length of the answers. They are exact: the server must ignore the end-of-sequence token (ignore_eos).",
    )
    users: Users = Field(
        default=(2, 4, 8, 16),
        min_length=1,
        description="Concurrent users. Each number is one measurement; several numbers form a sweep in this order.",
    )
    requests_per_user: int = Field(default=8, ge=1, description="Requests per user and measurement. Idle users send the next.")
    timeout_seconds: int = Field(
        default=7200,
        ge=60,
        description="Longest time of one measurement. No request starts after it; requests in flight may end as incomplete.",
    )
    ready_timeout_seconds: int | None = Field(
        default=None, ge=60, description="How long to wait until every model answers. Default: the slowest server's cold start."
    )
    sampling: dict[str, JsonValue] = Field(
        default_factory=dict,
        description="Additional keys of every request body, e.g. {temperature: 0.7, top_p: 0.9, top_k: 50}, {ignore_eos: false}.",
    )
    tokenizer: HubTokenizer | None = Field(
        default=None,
        description="Tokenizer that counts the tokens of the prompts. Default: that of the server's model on the Hub.",
    )
    image: PinnedImage | None = Field(default=None, description="Image with GuideLLM that replaces the pinned one.")
    volume_gib: VolumeGib = Field(
        default=10, ge=1, description="Size of the volume for results. A default run takes about 1 MiB."
    )
    storage_class: ExistingName | None = Field(default=None, description="Storage class. Default: the cluster's (gp3).")
    cpu: Cpu = Field(default="2", description="CPU request and limit. Too little CPU inflates the measured latency.")
    memory: Memory = Field(default="2Gi", description="Memory request and limit. GuideLLM used 1 GiB with 16 users.")
    extra_env: dict[Variable, str] = Field(
        default_factory=dict,
        description="Additional environment variables, e.g. HF_ENDPOINT for a mirror of the Hub. They take precedence.",
    )
    guidellm: dict[str, Any] = Field(
        default_factory=dict,
        description="Merged over 'spec' of every GuideLLM scenario file, e.g. {profile: {rampup_duration: 10}}.",
    )
