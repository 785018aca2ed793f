"""What a user decides about the clients of model servers: a web UI for people, and tests that a server answers."""

from pydantic import Field

from eks_inference.clients.triton_client_spec import TritonClientSpec
from eks_inference.cluster.plan import STORAGE_CLASS
from eks_inference.images.spec import PinnedImage
from eks_inference.spec import Quantity, ResourceName, Spec


class OpenWebUISpec(Spec):
    """Open WebUI: a chat in the browser with every model server that has an OpenAI API, reached by a port forward."""

    namespace: ResourceName = Field(default="openwebui", description="Namespace of the web UI; made here.")
    image: PinnedImage | None = Field(default=None, description="Image instead of the pinned one.")
    admin_email: str = Field(
        default="admin@example.com",
        pattern=r"^[^@\s]+@[^@\s]+$",
        description="E-mail address the administrator signs in with; nothing is sent to it. Lower case, as Open WebUI keeps it.",
    )
    volume_gib: int = Field(default=10, ge=1, description="Size of the volume with accounts, chats and uploads, in GiB.")
    storage_class: ResourceName = Field(default=STORAGE_CLASS, description="Storage class of the volume.")
    cpu: Quantity = Field(default="500m", description="CPU request; not a limit, because it takes more while it starts.")
    memory: Quantity = Field(default="2Gi", description="Memory, request and limit. Its embedding model takes about 1 GiB.")
    extra_env: dict[str, str] = Field(
        default_factory=dict,
        description="Further environment variables of Open WebUI, e.g. ENABLE_TAGS_GENERATION: 'false'. They win.",
    )


class SmokeTestSpec(Spec):
    """Three questions to a model server, as a Job. It runs again when its script, image or server changes."""

    image: PinnedImage | None = Field(
        default=None, description="Image with Python 3.11 or newer as `python`, instead of the pinned one."
    )
    wait: bool = Field(
        default=False,
        description=(
            "Whether `pulumi up` waits for the answers and fails without them. A cold start can take an hour or more; by "
            "default nothing waits, and the Job's log tells the outcome."
        ),
    )
    run: str = Field(default="", max_length=60, description="Anything: a changed value runs the test once more.")


class ClientsSpec(Spec):
    """Clients of the model servers. Sections that are absent make nothing."""

    open_webui: OpenWebUISpec | None = Field(default=None, description="A chat in the browser. Absent: none.")
    smoke_test: SmokeTestSpec | None = Field(
        default=None, description="A test of the answers of every server with an OpenAI API. Absent: none."
    )
    triton: TritonClientSpec | None = Field(
        default=None, description="A test and a measurement of a Triton server, which has no OpenAI API. Absent: none."
    )
