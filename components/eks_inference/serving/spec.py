"""Spec parts that all model servers share: engine, model source, and where compiled artifacts go."""

import operator
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, JsonValue, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from eks_inference.catalog.config_json import LONGEST, NoFormulaError, model_of_config, parse, shape_keys
from eks_inference.catalog.engines import engine
from eks_inference.catalog.models import Model, find_model, is_gated
from eks_inference.faults import SpecError
from eks_inference.pools.spec import BUCKET, BUCKET_WORDS, BucketName
from eks_inference.serving.flags import spelt_out
from eks_inference.specs.base import ExistingName, Form, Spec, VolumeGib, listed, stated
from eks_inference.specs.project_files import read_file


def _known_engine(name: str) -> str:
    try:
        engine(name)
    except KeyError as error:
        raise PydanticCustomError("NEU001", "{fault}", {"fault": error.args[0]}) from None
    return name


EngineName = Annotated[
    str,
    AfterValidator(_known_engine),
    Field(description="Engine profile of the catalog.", json_schema_extra=listed("Engine")),
]

Argument = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]*$")]
"""Name of an engine flag, without the dashes."""

ExtraArgs = Annotated[Mapping[Argument, JsonValue], BeforeValidator(spelt_out)]
"""Engine flags of a user with their values, in one spelling. A part of an object may be given as ``flag.key``."""

# With a dash at its beginning, the engine would read it as a flag.
_SERVED_NAME = Field(pattern=r"^[\w.:@+][\w.:@+-]*(/[\w.:@+-]+)*$", description="Name of the model in requests.")


# huggingface_hub, validate_repo_id; the Hub's own names are ASCII. Its oldest repositories have no owner: gpt2.
_REPOSITORY = r"(?!.*(--|\.\.|\.git$))(W(P{0,94}W)?/)?W(P{0,94}W)?".replace("W", "[A-Za-z0-9_]").replace("P", "[A-Za-z0-9_.-]")
_REPOSITORY_WORDS = "OWNER/NAME, each of up to 96 of A-Z a-z 0-9 _ and, inside, single . and -, and without .git at the end"


def _named_as_on_the_hub(repository: str) -> str:
    if "/" not in repository and (known := find_model(repository)):
        raise ValueError(f"{repository} is the catalog's name: give the repository, {' or '.join(known.repositories)}")
    return repository


HubRepository = Annotated[
    str,
    Form(_REPOSITORY, f"a repository of the Hugging Face Hub: {_REPOSITORY_WORDS}"),
    AfterValidator(_named_as_on_the_hub),
]
_PART = r"[\w.=+@,-]*[\w=+@,-][\w.=+@,-]*"
"""Part of a path that is more than dots: folders of the store have such names."""
PATH = rf"^{_PART}(/{_PART})*$"


class ModelBase(Spec):
    """What all sources of a model share: its name, and its shape where the catalog has no row for it."""

    id: str
    config: str | None = Field(
        default=None,
        exclude=True,
        description="The model's config.json as the Hub has it, by its path from the project's folder: ./model/config.json. "
        "Rules then judge a model that the catalog does not know. Becomes shape.",
    )
    shape: dict[str, JsonValue] | None = Field(
        default=None,
        validate_default=True,
        description="The keys of config.json that say how large the model is: model_type, hidden_size, num_hidden_layers and so "
        "on. Default: what the catalog says about id.",
    )

    @property
    def known(self) -> Model | None:
        """The model's shape: what the user says of it, or else the catalog's. None: unknown, or of an unknown kind."""
        row, said = find_model(self.id), described(self.id, self.shape) if self.shape is not None else None
        # No config.json says that a decoder was made for embeddings.
        return row if self.shape is None else replace(said, task=row.task) if said and row else said

    @property
    def no_formula(self) -> str:
        """Why a shape that the user gave cannot be judged; empty where it can, or where there is none."""
        try:
            model_of_config(self.id, self.shape or {})
        except NoFormulaError as error:
            return f"{error.faults[0].message} ({error.faults[0].given})"
        except SpecError:
            pass  # no shape
        return ""

    @field_validator("config")
    @classmethod
    def _config_can_be_read(cls, path: str | None, info: ValidationInfo) -> str | None:
        if path is not None:
            _read(path, info.data.get("id", ""))
        return path

    @field_validator("shape")
    @classmethod
    def _shape_is_that_of_config(cls, shape: dict[str, JsonValue] | None, info: ValidationInfo) -> dict[str, JsonValue] | None:
        path, name = info.data.get("config"), info.data.get("id", "")
        if path and shape is not None:
            raise ValueError("config says the same; leave out one of them")
        if shape is not None:
            with _as_one_fault():
                described(name, shape)
        return _read(path, name) if path else shape


def _read(path: str, name: str) -> dict[str, Any]:
    """The shape in a config.json."""
    with _as_one_fault(path):
        shape = shape_keys(parse(read_file(path, LONGEST)))
        described(name, shape)
    return shape


def described(name: str, shape: Mapping[str, Any]) -> Model | None:
    """The model with that shape; None without a formula. Raises ``SpecError`` with every fault."""
    try:
        return model_of_config(name, shape, "the stack file")
    except NoFormulaError:
        return None


@contextmanager
def _as_one_fault(file: str = "") -> Iterator[None]:
    """Tells all faults of a shape as one of the key that holds it."""
    try:
        yield
    except SpecError as error:
        told = "; ".join(str(replace(fault, given="") if fault.given == file else fault) for fault in error.faults)
        raise ValueError(f"{file}: {told}" if file else told) from None


class HubModel(ModelBase):
    """A model on the Hugging Face Hub. Every start downloads it."""

    kind: Literal["hugging_face"] = Field(default="hugging_face", description="From the Hugging Face Hub.")
    id: HubRepository = Field(
        description="Repository on the Hugging Face Hub, e.g. NousResearch/Meta-Llama-3-8B-Instruct.",
        json_schema_extra=listed("Repository"),
    )
    revision: str | None = Field(
        default=None,
        pattern=PATH,
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


S3Folder = Annotated[
    str,
    Form(
        rf"s3://{BUCKET}(/(?!\.\.?(/|$))[A-Za-z0-9!_.'()=+@,-]+)+",
        "s3://<bucket>/<folder>, with a folder of A-Z a-z 0-9 ! _ . ' ( ) = + @ , - whose parts are neither . nor .., and a "
        f"bucket of {BUCKET_WORDS}",
    ),
]


class S3Model(ModelBase):
    """A model folder (configuration, tokenizer, safetensors) in S3. Every start copies it to the node's disk, or streams it.

    EKS Pod Identity allows the server's pods to read exactly what is below ``uri``. The bucket may be in another region. A bucket
    of another account must grant access itself. The folder must not change under the same name: put a version into its name.
    """

    kind: Literal["s3"] = Field(default="s3", json_schema_extra=stated, description="From S3.")
    uri: S3Folder = Field(
        description="Folder with the files, without a trailing slash, e.g. s3://models/llama-3-8b-instruct/v1.",
    )
    id: Annotated[str, _SERVED_NAME]
    size_gib: int = Field(default=100, ge=1, description="Node disk reserved for the copy; a pod that uses more is evicted.")
    streamed: bool = Field(
        default=False,
        exclude_if=operator.not_,
        description="Whether the engine reads the weights from S3 into the GPUs itself, and keeps no copy on the node's disk. "
        "For engines whose image has the Run:ai Model Streamer, and buckets in the region of the stack.",
    )

    @property
    def without_effect(self) -> frozenset[str]:
        return frozenset({"size_gib"} if self.streamed else ())

    @property
    def copy_gib(self) -> int:
        """Node disk for the copy; 0: there is none."""
        return 0 if self.streamed else self.size_gib

    @model_validator(mode="after")
    def _only_copies_have_a_size(self) -> Self:
        if self.streamed and "size_gib" in self.model_fields_set:
            raise ValueError("size_gib: no copy of a streamed model is on the disk; leave out size_gib or streamed")
        return self


class VolumeModel(ModelBase):
    """A model folder on a volume, mounted read-only.

    You create the claim in the namespace of the server, and the pods wait for it. Several workers need a volume that several
    nodes can mount.
    """

    kind: Literal["volume"] = Field(default="volume", json_schema_extra=stated, description="From a volume.")
    claim: ExistingName = Field(description="PersistentVolumeClaim in the server's namespace.")
    path: str | None = Field(default=None, pattern=PATH, description="Folder on the volume. Default: the root of the volume.")
    id: Annotated[str, _SERVED_NAME]


class _AdapterBase(Spec):
    rank: Literal[1, 8, 16, 32, 64, 128, 256, 320, 512] = Field(
        description="r in adapter_config.json, or the next larger of these. The largest of a server decides the memory of each."
    )


class AdapterSpec(_AdapterBase):
    """A LoRA adapter on the Hugging Face Hub, which every pod downloads before its engine starts."""

    kind: Literal["hugging_face"] = Field(
        default="hugging_face", json_schema_extra=stated, exclude_if=lambda _: True, description="From the Hugging Face Hub."
    )
    repository: HubRepository = Field(description="Repository with adapter_config.json and adapter_model.safetensors.")
    revision: str = Field(
        pattern=r"^[0-9a-f]{40}$", description="Commit of the repository: pods of one server have the same adapter."
    )

    @property
    def folder(self) -> str:
        return f"{self.repository}/{self.revision}"


class S3AdapterSpec(_AdapterBase):
    """A LoRA adapter in S3, which every pod copies before its engine starts, and may read as a model from S3."""

    kind: Literal["s3"] = Field(default="s3", json_schema_extra=stated, description="From S3.")
    uri: S3Folder = Field(
        description="Folder with adapter_config.json and adapter_model.safetensors, which must not change: name its version."
    )

    @property
    def folder(self) -> str:
        return self.uri.removeprefix("s3://")


AdapterName = Annotated[str, _SERVED_NAME]


def _kind_by_its_keys(given: Any) -> Any:
    if not isinstance(given, dict):
        return given
    return {"kind": "s3" if "uri" in given else "volume" if "claim" in given else "hugging_face", **given}


AdapterSource = Annotated[AdapterSpec | S3AdapterSpec, Field(discriminator="kind"), BeforeValidator(_kind_by_its_keys)]

ModelSource = Annotated[HubModel | S3Model | VolumeModel, Field(discriminator="kind"), BeforeValidator(_kind_by_its_keys)]
"""Source of a model. Without ``kind`` its keys say which: ``uri`` is S3, ``claim`` a volume, and neither the Hub."""


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
        pattern=PATH,
        description="Prefix of all keys. Servers may share it.",
    )


class VolumeCompileCache(Spec):
    """Compiled graphs on a volume of the server, which is deleted with the server.

    The default storage class of the cluster creates EBS volumes, which stay in one zone and attach to one node at a time. Several
    workers therefore need a storage class whose volumes many nodes can mount (EFS, FSx for Lustre).
    """

    kind: Literal["volume"] = Field(default="volume", json_schema_extra=stated, description="On a volume.")
    size_gib: VolumeGib = Field(default=50, ge=1, description="Size of the volume.")
    storage_class: ExistingName | None = Field(default=None, description="Storage class. Default: the cluster's.")


CompileCache = Annotated[NoCompileCache | S3CompileCache | VolumeCompileCache, Field(discriminator="kind")]
"""Where compiled graphs are kept between starts."""
