"""What specs of all model servers share: engine, where a model comes from, and where compiled artifacts stay."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from eks_inference.catalog.engines import engine
from eks_inference.catalog.models import is_gated
from eks_inference.pools.spec import BucketName
from eks_inference.spec import ResourceName, Spec


def _known_engine(name: str) -> str:
    try:
        engine(name)
    except KeyError as error:
        raise PydanticCustomError("NEU001", "{fault}", {"fault": error.args[0]}) from None
    return name


EngineName = Annotated[str, AfterValidator(_known_engine), Field(description="Engine profile of the catalog.")]

Argument = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]*$")]
"""Name of a flag of the engine, without the dashes."""

_SERVED_NAME = Field(pattern=r"^[\w.-]+(/[\w.-]+)*$", description="The name requests give the model.")


class HubModel(Spec):
    """A model on the Hugging Face Hub. Every start downloads it."""

    kind: Literal["hugging_face"] = Field(default="hugging_face", description="From the Hugging Face Hub.")
    id: str = Field(
        pattern=r"^[\w.-]+/[\w.-]+$",
        description="Repository on the Hugging Face Hub, e.g. NousResearch/Meta-Llama-3-8B-Instruct.",
    )
    revision: str | None = Field(
        default=None,
        pattern=r"^[\w./-]+$",
        description="Commit, tag or branch of the repository. Default: its main branch, which may change between two starts.",
    )
    gated: bool | None = Field(
        default=None,
        description="Whether the repository wants its licence accepted first: then the secret huggingFaceToken is needed. "
        "Default: as the catalog knows the model, or else its owner (meta-llama: true).",
    )

    @property
    def needs_token(self) -> bool:
        """Whether nobody can download the model without a token (Hugging Face documentation, "Gated models")."""
        return is_gated(self.id) if self.gated is None else self.gated


class S3Model(Spec):
    """A model folder (configuration, tokenizer, safetensors) in S3, copied onto the node's disk at every start.

    The server's pods get leave to read exactly what is below ``uri``, by EKS Pod Identity. The bucket may be in another region;
    one of another account has to allow it itself. What is copied must not change under its name: put a version into it.
    """

    kind: Literal["s3"] = Field(description="From S3.")
    uri: str = Field(
        pattern=r"^s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[A-Za-z0-9!_.'()-]+)+$",
        description="Folder that holds the files, without a slash at the end, e.g. s3://models/llama-3-8b-instruct/v1.",
    )
    id: Annotated[str, _SERVED_NAME]
    size_gib: int = Field(default=100, ge=1, description="Node disk set aside for the copy; more than this ends the pod.")

    @property
    def bucket(self) -> str:
        return self.uri.removeprefix("s3://").partition("/")[0]

    @property
    def prefix(self) -> str:
        return self.uri.removeprefix("s3://").partition("/")[2]


class VolumeModel(Spec):
    """A model folder on a volume, mounted read-only.

    The claim is yours, in the namespace of the server; pods wait for it. Several workers need one that several nodes can mount.
    """

    kind: Literal["volume"] = Field(description="From a volume.")
    claim: ResourceName = Field(description="PersistentVolumeClaim in the server's namespace.")
    path: str | None = Field(
        default=None, pattern=r"^\w[\w.-]*(/\w[\w.-]*)*$", description="Folder inside the volume. Default: the volume itself."
    )
    id: Annotated[str, _SERVED_NAME]


def _from_the_hub_unless_said(given: Any) -> Any:
    return {"kind": "hugging_face", **given} if isinstance(given, dict) else given


ModelSource = Annotated[HubModel | S3Model | VolumeModel, Field(discriminator="kind"), BeforeValidator(_from_the_hub_unless_said)]
"""Where a model comes from; without ``kind`` it is the Hugging Face Hub."""


class NoCompileCache(Spec):
    """Every start compiles."""

    kind: Literal["none"] = Field(description="Keep nothing: every start compiles.")


class S3CompileCache(Spec):
    """Compiled graphs in S3: they outlive pods, nodes and zones, and all workers share them.

    Pods get leave to read and write below ``prefix`` by EKS Pod Identity, and to list the bucket: without the latter S3 answers
    "forbidden" instead of "not there".
    """

    kind: Literal["s3"] = Field(default="s3", description="In S3.")
    bucket: BucketName | None = Field(
        default=None,
        description="Bucket that exists, in this account and region. Default: one is made, which goes with the stack.",
    )
    prefix: str = Field(
        default="neuron-compile-cache",
        pattern=r"^[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)*$",
        description="What all keys begin with. Servers may share it.",
    )


class VolumeCompileCache(Spec):
    """Compiled graphs on a volume of the server, which goes with it.

    The cluster's default storage class gives EBS volumes: of one zone, for one node at a time. So with more than one worker a
    storage class for many nodes (EFS, FSx for Lustre) has to be named.
    """

    kind: Literal["volume"] = Field(description="On a volume.")
    size_gib: int = Field(default=50, ge=1, description="Size of the volume.")
    storage_class: ResourceName | None = Field(default=None, description="Storage class. Default: the cluster's.")


CompileCache = Annotated[NoCompileCache | S3CompileCache | VolumeCompileCache, Field(discriminator="kind")]
"""Where compiled graphs stay between starts."""
