"""What a user decides about a vLLM server on Ray Serve."""

from collections.abc import Iterator
from typing import Literal, Self

from pydantic import Field, model_validator

from eks_inference.catalog.instances import InstanceType, instance_type
from eks_inference.images.spec import PinnedImage, ServerImage
from eks_inference.pools.spec import InstanceTypeName
from eks_inference.serving.shape import CompilingServerSpec, Operator, PoolChoice
from eks_inference.serving.spec import EngineName
from eks_inference.spec import Quantity, ResourceName, Spec


class RayHeadSpec(Spec):
    """The Ray head: controller, dashboard and autoscaler. It serves no model and needs no accelerator."""

    pool: ResourceName = Field(description="Pool the head runs in; one whose nodes stay, because all workers end with the head.")
    instance_type: InstanceTypeName | None = Field(
        default=None, description="Instance type; may be left out when the pool has one."
    )
    cpu: Quantity = Field(
        default="2", description="CPU of the head's container, request and limit. Its autoscaler takes 500m more."
    )
    memory: Quantity = Field(default="8Gi", description="Memory of the head's container, request and limit.")
    image: PinnedImage | None = Field(
        default=None,
        description="Image of the head. Default: the workers'. Ray and Python must be of the same versions as theirs.",
    )


class RayWorkerSpec(Spec):
    """The Ray workers: pods with Neuron devices in which Serve replicas run. Ray adds and removes them between min and max."""

    pool: ResourceName = Field(description="Pool the workers run in.")
    instance_type: InstanceTypeName = Field(description="Instance type of the workers' nodes; it decides what one worker holds.")
    devices: int | None = Field(
        default=None, ge=1, description="Neuron devices of one worker. Default: all of the instance type."
    )
    cpu: Quantity | None = Field(
        default=None, description="CPU of one worker. Default: what pods can use of the node in proportion to the devices."
    )
    memory: Quantity | None = Field(default=None, description="Memory of one worker. Default: as cpu.")
    shared_memory_gib: int = Field(
        default=8, ge=3, description="Size of /dev/shm; a part of the memory. Ray's object store takes 2 GiB."
    )
    initial: int = Field(default=1, ge=0, description="Workers to begin with.")
    min: int = Field(default=1, ge=0, description="Fewest workers.")
    max: int = Field(default=3, ge=1, description="Most workers.")

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
    """Serve replicas: one vLLM server each. Serve adds and removes them by the requests under way."""

    min: int = Field(default=1, ge=1, description="Fewest replicas.")
    max: int = Field(default=3, ge=1, description="Most replicas.")
    target_ongoing_requests: float | None = Field(
        default=None,
        gt=0,
        description=(
            "Requests under way per replica, waiting ones included, above which Serve adds a replica. Default: four fifths of "
            "max_num_seqs, so that the next one loads before this one is full. The source system's 1 asks for another node with "
            "every further user, whatever the batch still holds."
        ),
    )
    cpus: int | None = Field(
        default=None, ge=1, description="CPUs Ray sets aside for one replica. Default: an equal share of the worker's."
    )

    @model_validator(mode="after")
    def _counts_in_order(self) -> Self:
        if self.min > self.max:
            raise ValueError(f"replicas: min {self.min} is more than max {self.max}")
        return self


class RayServeVllmSpec(CompilingServerSpec):
    """vLLM on Neuron behind Ray Serve: an OpenAI API whose replicas scale from one worker to several."""

    kind: Literal["ray_serve_vllm"] = "ray_serve_vllm"
    head_service_name: ResourceName = Field(default="vllm", description="Name of the Service that selects the Ray head.")
    engine: EngineName = "neuron-2.28-vllm-0.13"
    image: ServerImage = Field(
        description="Image with the engine profile's vLLM and Ray: a reference with tag or digest, or one built in the cluster."
    )
    ray_version: str | None = Field(
        default=None, pattern=r"^2\.\d+\.\d+$", description="Ray release inside the image. Default: the engine profile's."
    )
    tensor_parallel: int = Field(ge=1, description="NeuronCores one replica splits the model over.")
    max_model_len: int = Field(ge=1, description="Longest sequence, prompt and answer together, in tokens.")
    max_num_seqs: int = Field(ge=1, description="Sequences one replica works on at once: the batch size it is compiled for.")
    head: RayHeadSpec = Field(description="The Ray head.")
    worker: RayWorkerSpec = Field(description="The Ray workers.")
    replicas: ServeReplicasSpec = Field(default_factory=lambda: ServeReplicasSpec(), description="The Serve replicas.")
    idle_timeout_seconds: int = Field(
        default=600,
        ge=60,
        description=(
            "How long a worker stays without a replica. Ray's own 60 seconds would give the node away in every lull; getting it "
            "back costs a node start, an image pull and a model load."
        ),
    )
    startup_timeout_seconds: int | None = Field(
        default=None,
        ge=60,
        description="How long one replica may download, compile and load. Default: the engine profile's budget.",
    )
    upgrade: Literal["none", "new_cluster"] = Field(
        default="none",
        description=(
            "What a change of images, resources or scripts does. new_cluster: KubeRay starts a second Ray cluster and moves "
            "over, which takes as many accelerators again. none: nothing, until somebody deletes the RayCluster. Changes of the "
            "model and its settings need neither: Serve replaces replicas in place. A change of the worker's initial, min or max "
            "alone reaches a running Ray cluster with neither (KubeRay 1.7 compares clusters without them)."
        ),
    )
    evictions: Literal["refused", "allowed"] = Field(
        default="refused",
        description=(
            "Whether a drain may take the Ray head (all workers end with it) and workers below their min. refused: disruption "
            "budgets hold it up, and with it the replacement of a node that is too old, until somebody deletes the pod or this "
            "is set to allowed. Node failures and spot interruptions do not ask."
        ),
    )

    @property
    def ray(self) -> str:
        """The Ray release inside the image."""
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

    def main_pool(self) -> PoolChoice:
        return PoolChoice(self.worker.pool, self.worker.instance_type, under=("worker",))

    def pools(self) -> Iterator[PoolChoice]:
        yield self.main_pool()
        yield PoolChoice(self.head.pool, self.head.instance_type, under=("head",))

    @model_validator(mode="after")
    def _ray_is_known(self) -> Self:
        if self.ray_version is None and self.profile.ray is None:
            raise ValueError(f"ray_version: no Ray release is known to go with engine {self.engine}; give the one in your image")
        return self
