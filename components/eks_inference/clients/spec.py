"""Settings of model servers' clients: a web UI for people, tests that a server answers, and measurements of Triton."""

from typing import Annotated

from pydantic import Field

from eks_inference.cluster.plan import STORAGE_CLASS
from eks_inference.images.spec import PinnedImage
from eks_inference.loadtest.spec import HubTokenizer, TokenCounts, Users
from eks_inference.specs.base import Cpu, ExistingName, Memory, Namespace, ResourceName, Spec, Variable, VolumeGib


class OpenWebUISpec(Spec):
    """Open WebUI: a browser chat with every model server that has an OpenAI API. Users reach it by a port forward."""

    namespace: Namespace = Field(default="openwebui", description="Namespace of the web UI. The component creates it.")
    image: PinnedImage | None = Field(default=None, description="Image that replaces the pinned one.")
    admin_email: str = Field(
        default="admin@example.com",
        pattern=r"^[^@\s]+@[^@\s]+$",
        description="E-mail address that the administrator signs in with. It gets no mail. Open WebUI stores it in lower case.",
    )
    volume_gib: VolumeGib = Field(default=10, ge=1, description="Size of the volume for accounts, chats and uploads, in GiB.")
    storage_class: ExistingName = Field(default=STORAGE_CLASS, description="Storage class of the volume.")
    cpu: Cpu = Field(default="500m", description="CPU request. There is no limit, because startup takes more.")
    memory: Memory = Field(default="2Gi", description="Memory request and limit. The embedding model takes about 1 GiB.")
    extra_env: dict[Variable, str] = Field(
        default_factory=dict,
        description="Additional environment variables, e.g. ENABLE_TAGS_GENERATION: 'false'. They take precedence.",
    )


class SmokeTestSpec(Spec):
    """A Job that asks a model server three questions. It runs again when its script, image or server changes."""

    image: PinnedImage | None = Field(default=None, description="Image that replaces the pinned one; `python` 3.11 or newer.")
    wait: bool = Field(
        default=False,
        description=(
            "Whether `pulumi up` waits for the answers and fails without them. A cold start can take an hour or more. By "
            "default nothing waits, and the Job's log has the result."
        ),
    )
    run: str = Field(default="", max_length=60, description="Any text. Changing it runs the test again.")


Prompt = Annotated[str, Field(min_length=1, pattern=r"^[^\n]+$")]


class TritonClientSpec(Spec):
    """A Job that sends prompts to a Triton server over gRPC, and then measures the server with NVIDIA's genai-perf.

    The defaults are the source system's: 20 prompts; 8 to 128 users, 128 tokens in and out, 100 prompts with seed 1, windows of
    30 seconds. The Job runs with the first deployment, after every change that affects the measurement, and on demand.
    """

    run: str | int = Field(default="1", description="Change this value to run the client again. Any other change also does so.")
    namespace: Namespace = Field(default="triton-client", description="Namespace of the client. The component creates it.")
    server: ResourceName | None = Field(default=None, description="Server to test. Default: the stack's only Triton server.")
    prompts: tuple[Prompt, ...] = Field(
        default=(), description="Prompts of the test, one line each. Default: 20 sentence starts."
    )
    max_tokens: int = Field(default=100, ge=1, description="Longest answer of the test, in tokens.")
    temperature: float = Field(default=0.1, ge=0, description="Temperature of the test's answers.")
    top_p: float = Field(default=0.95, gt=0, le=1, description="Probability mass that the test's answers are sampled from.")
    users: Users = Field(default=(8, 16, 32, 64, 128), min_length=1, description="Concurrent users, one measurement each.")
    input_tokens: TokenCounts = Field(default_factory=lambda: TokenCounts(mean=128), description="Length of measured prompts.")
    output_tokens: int = Field(default=128, ge=1, description="Longest answer of the measurement, in tokens.")
    num_prompts: int = Field(default=100, ge=1, description="Distinct prompts of a measurement, which genai-perf repeats.")
    seed: int = Field(default=1, ge=0, description="Seed of the prompts.")
    measurement_interval_seconds: int = Field(default=30, ge=1, description="Length of one measurement window.")
    tokenizer: HubTokenizer | None = Field(default=None, description="Tokenizer that counts tokens. Default: the model's own.")
    image: PinnedImage | None = Field(
        default=None,
        description="Image with Triton's Python client and genai-perf. Default: the client image of the server's release.",
    )
    cpu: Cpu = Field(default="1", description="CPU request and limit. Too little CPU inflates the measured latency.")
    memory: Memory = Field(default="2Gi", description="Memory request and limit of the client. The source system uses 1Gi.")


class ClientsSpec(Spec):
    """Clients of the model servers. An absent section creates nothing."""

    open_webui: OpenWebUISpec | None = Field(default=None, description="A chat in the browser. Absent: none.")
    smoke_test: SmokeTestSpec | None = Field(default=None, description="A test of every server with an OpenAI API. Absent: none.")
    triton: TritonClientSpec | None = Field(default=None, description="A test and measurement of a Triton server. Absent: none.")
