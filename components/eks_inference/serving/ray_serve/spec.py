"""The settings of a vLLM server on Ray Serve."""

import operator
from collections.abc import Iterator
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from eks_inference.catalog.instances import InstanceType, instance_type
from eks_inference.catalog.tables import version_numbers
from eks_inference.images.spec import InClusterImage, PinnedImage, ServerImage
from eks_inference.pools.spec import InstanceTypeName
from eks_inference.serving.shape import CompilingServerSpec, Helper, Operator, PoolChoice
from eks_inference.serving.spec import EngineName
from eks_inference.specs.base import MOST_PODS, Cpu, Memory, ResourceName, Spec, stated


class RayHeadSpec(Spec):
    """The Ray head: controller, dashboard and autoscaler. It serves no model and needs no accelerator."""

    pool: ResourceName = Field(
        default="",
        json_schema_extra=stated,
        exclude_if=operator.not_,
        description="Pool of the head. Its nodes should be stable: all workers stop with the head.",
    )
    instance_type: InstanceTypeName | None = Field(default=None, description="Instance type. Optional if the pool has only one.")
    cpu: Cpu = Field(default="2", description="CPU request and limit of the head. The autoscaler takes 500m more.")
    memory: Memory = Field(default="8Gi", description="Memory request and limit of the head's container.")
    image: PinnedImage | None = Field(
        default=None,
        description="Image of the head. Default: the workers' image. Ray and Python must have the same versions as in that.",
    )


class RayWorkerSpec(Spec):
    """The Ray workers: pods with Neuron devices that run Serve replicas. Ray scales them between min and max."""

    pool: ResourceName = Field(default="", json_schema_extra=stated, exclude_if=operator.not_, description="Pool of the workers.")
    instance_type: InstanceTypeName = Field(description="Instance type of the workers' nodes; sets a worker's capacity.")
    devices: int | None = Field(default=None, ge=1, description="Neuron devices of one worker. Default: the instance type's.")
    cpu: Cpu | None = Field(default=None, description="CPU of one worker. Default: the devices' share of the node's.")
    memory: Memory | None = Field(default=None, description="Memory of one worker. Default: the devices' share, as for cpu.")
    shared_memory_gib: int = Field(default=8, ge=3, description="Size of /dev/shm, part of memory. Ray's objects take 2 GiB.")
    initial: int = Field(default=1, ge=0, description="Workers at the start.")
    min: int = Field(default=1, ge=0, description="Minimum number of workers.")
    max: int = Field(default=3, ge=1, le=MOST_PODS, description="Maximum number of workers.")

    @property
    def shape(self) -> InstanceType:
        return instance_type(self.instance_type)

    @property
    def device_count(self) -> int:
        return self.shape.devices if self.devices is None else self.devices

    @model_validator(mode="after")
    def _devices_exist(self) -> Self:
        if not self.shape.neuron:
            raise ValueError(f"{self.instance_type} has no Neuron devices")
        return self

    @model_validator(mode="after")
    def _counts_in_order(self) -> Self:
        if not self.min <= self.initial <= self.max:
            raise ValueError(f"workers: min {self.min} <= initial {self.initial} <= max {self.max} does not hold")
        return self


class ServeReplicasSpec(Spec):
    """Serve replicas, each one vLLM server. Serve scales them by the requests in flight."""

    min: int = Field(default=1, ge=1, description="Minimum number of replicas.")
    max: int = Field(default=3, ge=1, le=MOST_PODS, description="Maximum number of replicas.")
    target_ongoing_requests: float | None = Field(
        default=None,
        gt=0,
        description=(
            "Requests in flight per replica, including queued ones, above which Serve adds a replica. Default: four fifths of "
            "max_num_seqs, so that the next replica loads before this one is full. The source system's value of 1 requests "
            "another node for every additional user, even when the batch has room."
        ),
    )
    cpus: int | None = Field(default=None, ge=1, description="CPUs that Ray reserves per replica. Default: an equal share.")

    @model_validator(mode="after")
    def _counts_in_order(self) -> Self:
        if self.min > self.max:
            raise ValueError(f"replicas: min {self.min} is more than max {self.max}")
        return self


_FIRST_RAY = (2, 31)
"""The first with a wheel for Python 3.12, which the engine's image has (PyPI, read 2026-11-28)."""


class RayServeVllmSpec(CompilingServerSpec):
    """vLLM on Neuron behind Ray Serve: an OpenAI API whose replicas scale over several workers."""

    accelerators: ClassVar[tuple[str, ...]] = ("neuron",)
    placed_under: ClassVar[tuple[str, ...]] = ("worker",)

    kind: Literal["ray_serve_vllm"] = "ray_serve_vllm"
    head_service_name: ResourceName = Field(default="vllm", description="Name of the Service that selects the Ray head.")
    engine: EngineName = "neuron-2.28-vllm-0.13"
    image: ServerImage = Field(description="Image with the profile's vLLM and Ray: a pinned reference or an in-cluster build.")
    ray_version: str | None = Field(
        default=None, pattern=r"^2\.\d+\.\d+$", description="Ray release in the image. Default: the profile's."
    )
    head: RayHeadSpec = Field(description="The Ray head.")
    worker: RayWorkerSpec = Field(description="The Ray workers.")
    replicas: ServeReplicasSpec = Field(default_factory=lambda: ServeReplicasSpec(), description="The Serve replicas.")
    idle_timeout_seconds: int = Field(
        default=600,
        ge=60,
        description=(
            "How long a worker without a replica stays. Ray's default of 60 seconds would release the node in every lull; a new "
            "one costs a node start, an image pull and a model load."
        ),
    )
    startup_timeout_seconds: int | None = Field(
        default=None,
        ge=60,
        description="Time limit for one replica to download, compile and load. Default: the engine profile's budget.",
    )
    upgrade: Literal["none", "new_cluster"] = Field(
        default="none",
        description=(
            "What happens when images, resources or scripts change. new_cluster: KubeRay starts a second Ray cluster and "
            "switches over, which temporarily doubles the accelerators. none: nothing, until the RayCluster is deleted. "
            "Changes of the model and its settings need neither: Serve replaces replicas in place. A change of only the worker's "
            "initial, min or max never reaches a running Ray cluster (KubeRay 1.7 ignores them when it compares clusters)."
        ),
    )

    @property
    def ray(self) -> str:
        """The Ray release in the image."""
        release = self.ray_version or self.profile.ray
        assert release is not None, "refused by _ray_is_known"
        return release

    @property
    def image_arguments(self) -> dict[str, str]:
        return {**super().image_arguments, "RAY_VERSION": self.ray}

    @property
    def compiling_pods(self) -> int:
        return self.worker.max

    @property
    def operators(self) -> frozenset[Operator]:
        return frozenset({"kuberay"})

    @property
    def helpers(self) -> tuple[Helper, ...]:
        place = PoolChoice(self.head.pool, self.head.instance_type, under=("head",))
        return (Helper("head", place, 1, self.head.cpu, self.head.memory),)

    def main_pool(self) -> PoolChoice:
        return PoolChoice(self.worker.pool, self.worker.instance_type, under=("worker",))

    def pools(self) -> Iterator[PoolChoice]:
        yield self.main_pool()
        yield PoolChoice(self.head.pool, self.head.instance_type, under=("head",))

    @model_validator(mode="after")
    def _ray_is_known(self) -> Self:
        if self.ray_version is None and self.profile.ray is None:
            raise ValueError(f"ray_version: no Ray release is known to go with engine {self.engine}; give your image's")
        built = isinstance(self.image, InClusterImage) and not self.image.dockerfile
        if built and version_numbers(self.ray) < _FIRST_RAY:
            raise ValueError(f"ray_version: {self.ray} has no wheel for the Python of the engine's image; give 2.31.0 or later")
        return self
