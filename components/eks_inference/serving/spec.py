"""Parts of the specs of all model servers: engine, source of the model, and place of compiled artifacts."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, JsonValue
from pydantic_core import PydanticCustomError

from eks_inference.catalog.engines import engine
from eks_inference.catalog.models import is_gated
from eks_inference.pools.spec import BUCKET, BUCKET_WORDS, BucketName
from eks_inference.serving.flags import spelt_out
from eks_inference.spec import Form, ResourceName, Spec, VolumeGib, stated


def _known_engine(name: str) -> str:
    try:
        engine(name)
    except KeyError as error:
        raise PydanticCustomError("NEU001", "{fault}", {"fault": error.args[0]}) from None
    return name


EngineName = Annotated[str, AfterValidator(_known_engine), Field(description="Engine profile of the catalog.")]

Argument = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]*$")]
"""Name of an engine flag, without the dashes."""

ExtraArgs = Annotated[Mapping[Argument, JsonValue], BeforeValidator(spelt_out)]
"""Engine flags of a user with their values, in one spelling. A part of an object may be given as ``flag.key``."""

_SERVED_NAME = Field(pattern=r"^[\w.-]+(/[\w.-]+)*$", description="Name of the model in requests.")


_PART = r"[\w.-]*[\w-][\w.-]*"
"""Part of a path that is more than dots: folders of the store have such names."""


class HubModel(Spec):
    """A model on the Hugging Face Hub. Every start downloads it."""

    kind: Literal["hugging_face"] = Field(default="hugging_face", description="From the Hugging Face Hub.")
    id: str = Field(
        pattern=rf"^{_PART}/{_PART}$",
        description="Repository on the Hugging Face Hub, e.g. NousResearch/Meta-Llama-3-8B-Instruct.",
    )
    revision: str | None = Field(
        default=None,
        pattern=rf"^{_PART}(/{_PART})*$",
        description="Commit, tag or branch of the repository. Default: the main branch, which may change between two starts.",
    )
    gated: bool | None = Field(
        default=None,
        description="Whether the repository requires users to accept its licence. It then needs the secret huggingFaceToken. "
        "Default: what the catalog says about the model, or else about its owner (meta-llama: true).",
    )

    @property
    def needs_token(self) -> bool:
        """Whether a download of the model needs a token (Hugging Face documentation, "Gated models")."""
        return is_gated(self.id) if self.gated is None else self.gated


class S3Model(Spec):
    """A model folder (configuration, tokenizer, safetensors) in S3. Every start copies it to the node's disk.

    EKS Pod Identity allows the server's pods to read exactly what is below ``uri``. The bucket may be in another region. A bucket
    of another account must grant access itself. The folder must not change under the same name: put a version into its name.
    """

    kind: Literal["s3"] = Field(default="s3", json_schema_extra=stated, description="From S3.")
    uri: Annotated[
        str, Form(rf"s3://{BUCKET}(/[A-Za-z0-9!_.'()-]+)+", f"s3://<bucket>/<folder>, with a bucket of {BUCKET_WORDS}")
    ] = Field(
        description="Folder with the files, without a trailing slash, e.g. s3://models/llama-3-8b-instruct/v1.",
    )
    id: Annotated[str, _SERVED_NAME]
    size_gib: int = Field(default=100, ge=1, description="Node disk reserved for the copy; a pod that uses more is evicted.")

    @property
    def bucket(self) -> str:
        return self.uri.removeprefix("s3://").partition("/")[0]

    @property
    def prefix(self) -> str:
        return self.uri.removeprefix("s3://").partition("/")[2]


class VolumeModel(Spec):
    """A model folder on a volume, mounted read-only.

    You create the claim in the namespace of the server, and the pods wait for it. Several workers need a volume that several
    nodes can mount.
    """

    kind: Literal["volume"] = Field(default="volume", json_schema_extra=stated, description="From a volume.")
    claim: ResourceName = Field(description="PersistentVolumeClaim in the server's namespace.")
    path: str | None = Field(
        default=None, pattern=r"^\w[\w.-]*(/\w[\w.-]*)*$", description="Folder on the volume. Default: the root of the volume."
    )
    id: Annotated[str, _SERVED_NAME]


def _from_the_hub_unless_said(given: Any) -> Any:
    return {"kind": "hugging_face", **given} if isinstance(given, dict) else given


ModelSource = Annotated[HubModel | S3Model | VolumeModel, Field(discriminator="kind"), BeforeValidator(_from_the_hub_unless_said)]
"""Source of a model. Without ``kind`` it is the Hugging Face Hub."""


class NoCompileCache(Spec):
    """No compile cache: every start compiles."""

    kind: Literal["none"] = Field(default="none", json_schema_extra=stated, description="Keep nothing: every start compiles.")


class S3CompileCache(Spec):
    """Compiled graphs in S3. They outlive pods, nodes and zones, and all workers share them.

    EKS Pod Identity allows the pods to read and write below ``prefix`` and to list the bucket. Without the right to list, S3
    answers "forbidden" instead of "not found".
    """

    kind: Literal["s3"] = Field(default="s3", description="In S3.")
    bucket: BucketName | None = Field(
        default=None,
        description="Existing bucket in this account and region. Default: a new bucket, which is deleted with the stack.",
    )
    prefix: str = Field(
        default="neuron-compile-cache",
        pattern=r"^[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)*$",
        description="Prefix of all keys. Servers may share it.",
    )


class VolumeCompileCache(Spec):
    """Compiled graphs on a volume of the server, which is deleted with the server.

    The default storage class of the cluster creates EBS volumes, which stay in one zone and attach to one node at a time. Several
    workers therefore need a storage class whose volumes many nodes can mount (EFS, FSx for Lustre).
    """

    kind: Literal["volume"] = Field(default="volume", json_schema_extra=stated, description="On a volume.")
    size_gib: VolumeGib = Field(default=50, ge=1, description="Size of the volume.")
    storage_class: ResourceName | None = Field(default=None, description="Storage class. Default: the cluster's.")


CompileCache = Annotated[NoCompileCache | S3CompileCache | VolumeCompileCache, Field(discriminator="kind")]
"""Where compiled graphs are kept between starts."""
