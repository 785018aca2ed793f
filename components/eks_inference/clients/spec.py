"""The settings of clients of model servers: a web UI for people, and tests that a server answers."""

from pydantic import Field

from eks_inference.clients.triton_client_spec import TritonClientSpec
from eks_inference.cluster.plan import STORAGE_CLASS
from eks_inference.images.spec import PinnedImage
from eks_inference.spec import Cpu, Memory, Namespace, ResourceName, Spec, Variable, VolumeGib


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
    storage_class: ResourceName = Field(default=STORAGE_CLASS, description="Storage class of the volume.")
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


class ClientsSpec(Spec):
    """Clients of the model servers. An absent section creates nothing."""

    open_webui: OpenWebUISpec | None = Field(default=None, description="A chat in the browser. Absent: none.")
    smoke_test: SmokeTestSpec | None = Field(default=None, description="A test of every server with an OpenAI API. Absent: none.")
    triton: TritonClientSpec | None = Field(default=None, description="A test and measurement of a Triton server. Absent: none.")
