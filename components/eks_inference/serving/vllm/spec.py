"""What a user decides about a plain vLLM server."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, JsonValue, field_validator, model_validator

from eks_inference.catalog.models import POOLING, Task
from eks_inference.images.spec import InClusterImage, ServerImage
from eks_inference.scaling.spec import KedaSpec
from eks_inference.serving.features import NOWHERE, Domain, Medium, fetches
from eks_inference.serving.flag_values import other_names
from eks_inference.serving.shape import CompilingServerSpec, ReplicatedServerSpec
from eks_inference.serving.spec import AdapterName, AdapterSource, AdapterSpec, HubModel, S3AdapterSpec
from eks_inference.specs.base import ResourceName, stated
from eks_inference.storage.plan import node_mib_s
from eks_inference.storage.spec import EfsStoreSpec, FileSystem

_DOMAINS = "allowed-media-domains"
_DOCKERFILE = "ARG ENGINE_IMAGE\nFROM ${ENGINE_IMAGE}\n"
_AUDIO = 'RUN uv pip install --system "vllm[audio]=={}"\n'


class VllmServerSpec(ReplicatedServerSpec, CompilingServerSpec):
    """Plain vLLM on Neuron devices or GPUs: one or several equal pods behind one OpenAI API."""

    kind: Literal["vllm"] = Field(default="vllm", json_schema_extra=stated)
    image: ServerImage | None = Field(
        default=None,
        description=(
            "Image with the engine profile's vLLM: a reference with tag or digest, or an image built in the cluster. Default: "
            "the engine profile's image. A build without a Dockerfile copies that image to a repository of the stack, "
            "with vllm[audio] where the task is transcribe."
        ),
    )
    autoscaling: KedaSpec | None = Field(
        default=None, description="Autoscaler that sets the number of pods instead of replicas. Default: none."
    )
    disk_gib: int = Field(
        default=100,
        ge=10,
        description=(
            "Node disk reserved for what one pod downloads, compiles and writes; a pod that uses more is evicted. A model copied "
            "from S3 needs its own size_gib in addition."
        ),
    )
    store: EfsStoreSpec | None = Field(
        default=None,
        description=(
            "Shared file system that keeps the model, so that it is downloaded once. With engines on NxD Inference it also keeps "
            "the compiled model with the weights of each core, so that later starts neither compile nor split. For models of the "
            "Hub. Reads are billed by size. Default: none; each pod downloads to its node."
        ),
    )
    shared_store: ResourceName | None = Field(
        default=None,
        description="In place of store: one of the stack's stores, which several servers use. A model is then downloaded once "
        "for all of them, and servers with equal settings load one artifact.",
    )
    task: Task | None = Field(
        default=None,
        exclude_if=lambda task: task is None,
        description="What requests ask for: chat; complete (a model without a chat template); on GPUs also embed, rerank, "
        "classify and transcribe. It decides the engine's runner, the paths that endpoints lead out, and which clients ask the "
        "server. Default: what the model was made for, by the catalog or its config.json.",
    )
    adapters: dict[AdapterName, AdapterSource] = Field(
        default_factory=dict,
        description="LoRA adapters by the name that requests ask for. Each is loaded at the start and takes part of the GPUs' "
        "memory; none is loaded later. On GPUs; adapters of the Hub beside a model of the Hub. Default: none.",
    )
    limit_mm_per_prompt: dict[Medium, Annotated[int, Field(ge=0)]] | None = Field(
        default=None,
        exclude_if=lambda limits: limits is None,
        description="The most pictures and videos in a prompt, for models that see. The engine makes room for the largest "
        "of each medium that it takes; with 0 of each it does not load the tower that sees. Default: vLLM's, 999 of each.",
    )
    allowed_media_domains: tuple[Domain, ...] = Field(
        default=(),
        exclude_if=lambda domains: not domains,
        description="Hosts that the engine fetches pictures and videos of requests from. Default: none; requests then bring "
        "them along (data: URLs).",
    )
    port: int | None = Field(
        default=None, ge=1024, le=65535, description="Port of API and metrics. Default: the engine profile's."
    )

    @property
    def does(self) -> Task:
        return self.task or super().does

    @property
    def image_reference(self) -> str | InClusterImage:
        image = super().image_reference
        if isinstance(image, InClusterImage) and image.dockerfile == _DOCKERFILE and self.does == "transcribe":
            return image.model_copy(update={"dockerfile": _DOCKERFILE + _AUDIO.format(self.profile.vllm)})
        return image

    @model_validator(mode="after")
    def _tokens_are_of_texts(self) -> Self:
        signals = [one for one in ("first_token_seconds", "token_seconds") if self.autoscaling and getattr(self.autoscaling, one)]
        keys = [f"autoscaling.{signal}" for signal in signals]
        keys += ["objectives.time_to_first_token_seconds"] if self.objectives.time_to_first_token_seconds else []
        if keys and self.does in POOLING:
            raise ValueError(f"{', '.join(keys)}: an answer of task {self.does} has no tokens; leave it out")
        return self

    @model_validator(mode="after")
    def _media_are_for_models_that_see(self) -> Self:
        keys = [key for key in ("limit_mm_per_prompt", "allowed_media_domains") if getattr(self, key)]
        if keys and self.model.known and not self.model.known.sees:
            raise ValueError(f"{', '.join(keys)}: {self.model.id} takes texts alone; leave it out")
        return self

    @property
    def compiling_pods(self) -> int:
        return self.most

    @property
    def kept_in(self) -> EfsStoreSpec | None:
        """The file system that keeps the model, its own or one of the stack."""
        return EfsStoreSpec() if self.shared_store else self.store

    @property
    def hub_adapters(self) -> Mapping[str, AdapterSpec]:
        return {name: one for name, one in sorted(self.adapters.items()) if isinstance(one, AdapterSpec)}

    @property
    def s3_adapters(self) -> tuple[str, ...]:
        return tuple(one.uri for _, one in sorted(self.adapters.items()) if isinstance(one, S3AdapterSpec))

    @property
    def stores_of_the_stack(self) -> frozenset[str]:
        return frozenset({self.shared_store} if self.shared_store else ())

    @property
    def store_mib_s(self) -> int | None:
        return node_mib_s(self.kept_in) if self.kept_in else None

    @property
    def stores_model(self) -> bool:
        return self.kept_in is not None or super().stores_model

    @property
    def sharding(self) -> Mapping[str, JsonValue]:
        return self.profile.generation.sharding or {} if self.kept_in else {}

    @property
    def file_systems(self) -> frozenset[FileSystem]:
        return frozenset({self.kept_in.file_system} if self.kept_in else ())

    def _chosen(self) -> Iterator[tuple[str, str]]:
        yield from super()._chosen()
        if self.adapters:
            yield "adapters", "on"

    @property
    def _feature_settings(self) -> dict[str, Any]:
        found = super()._feature_settings
        if self.limit_mm_per_prompt is not None:
            found["limit-mm-per-prompt"] = self.limit_mm_per_prompt
        if self.allowed_media_domains or (fetches(self.profile, self.model.known) and _DOMAINS not in self.extra_args):
            found[_DOMAINS] = [*self.allowed_media_domains] or [NOWHERE]
        return found

    def _values(self) -> dict[str, Any]:
        ranks = [adapter.rank for adapter in self.adapters.values()]
        return {**super()._values(), "adapters": len(ranks), "largest_rank": max(ranks, default=None)}

    @model_validator(mode="after")
    def _adapters_are_beside_a_model_of_the_hub(self) -> Self:
        if self.hub_adapters and not isinstance(self.model, HubModel):
            raise ValueError(
                "adapters: pods download them from the Hub as they do its models; beside a model from elsewhere, keep them in S3"
            )
        if self.adapters and "lora-modules" in self.extra_args:
            raise ValueError(
                "extra_args: lora-modules: the engine would load these in place of adapters; list them all under adapters"
            )
        if twice := self.adapters.keys() & {self.model.id, *other_names(self.model.id, self.extra_args)}:
            raise ValueError(f"adapters: {', '.join(sorted(twice))} is a name of the model itself; give the adapter another")
        return self

    @model_validator(mode="after")
    def _store_holds_a_model_of_the_hub(self) -> Self:
        if self.store and self.shared_store:
            raise ValueError("store, shared_store: a server has one of them; leave the other out")
        if self.kept_in and not isinstance(self.model, HubModel):
            given = "store" if self.store else "shared_store"
            raise ValueError(f"{given}: it keeps models of the Hugging Face Hub; leave it out for models in S3 or on a volume")
        return self

    @field_validator("image")
    @classmethod
    def _default_dockerfile(cls, image: ServerImage | None) -> ServerImage | None:
        if isinstance(image, InClusterImage) and image.dockerfile is None:
            return image.model_copy(update={"dockerfile": _DOCKERFILE})
        return image
