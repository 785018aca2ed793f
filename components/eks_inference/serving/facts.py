"""The facts about one model server of any kind, and about its autoscaler, that rules judge, and how many pods find no place on
the nodes of a pool. Pure; no pulumi.

Source: Kubernetes scheduling: a pod takes its devices, CPU and memory from one node.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from eks_inference.catalog.engines import EngineProfile, Startup
from eks_inference.catalog.instances import InstanceType
from eks_inference.catalog.models import Model, Task, no_row, ways_to_a_shape
from eks_inference.place.nodes import (
    DAEMONS_CPU_MILLIS,
    DAEMONS_MEMORY_MIB,
    Allocatable,
    allocatable,
    cpu_millis,
    less,
    memory_mib,
)
from eks_inference.place.placement import Placement
from eks_inference.rules import Judgement, Path, not_judged
from eks_inference.scaling.spec import AutoscalerSpec
from eks_inference.serving.cold_start import ColdStart, Weights, weights_of
from eks_inference.serving.deployment import device_count, resources, startup_timeout_seconds
from eks_inference.serving.features import EngineFeatures
from eks_inference.serving.shape import ReplicatedServerSpec, ServerSpec
from eks_inference.serving.spec import HubModel


def is_commit(revision: str | None) -> bool:
    """Whether a revision names a commit, and no branch or tag, which may move."""
    return bool(revision and re.fullmatch(r"[0-9a-f]{7,40}", revision))


@dataclass(frozen=True, eq=False)
class ServingFacts:
    """What one pod of a server holds and requests.

    ``path`` is the server's key in the stack, empty when a component checks itself. ``keys`` maps a fact to its path below that
    key where the path is not simply the name of the fact, ``{"devices": ("worker", "devices")}``, or of a key of a fact,
    ``{"extra_args.seed": ("decode", "extra_args", "seed")}``.
    """

    about: ClassVar[str] = "model servers"

    path: Path
    kind: str
    """Kind of the server: ``ray_serve_vllm``, ``vllm``, ``triton``, ``disaggregated``."""
    engine: EngineProfile
    model_id: str
    model: Model | None
    """None when the catalog does not know the model. Rules that need its shape then yield ``unknown_model``."""
    placement: Placement
    devices: int
    """Neuron devices or GPUs of one pod."""
    tensor_parallel: int
    """NeuronCores or GPUs that one copy of the model is split over."""
    max_num_seqs: int
    max_model_len: int
    weights: Weights = Weights()  # noqa: RUF009 - frozen
    copies: int = 1
    """Copies of the model in one pod. Ray places as many replicas in a worker as its cores can hold."""
    copies_per_request: int = 1
    """Copies that work on one request: both of a prefill and decode pair in one pod."""
    pods_min: int = 1
    pods_max: int = 1
    pods_beside: int = 0
    """Pods that a rollout brings beside those of before, at most."""
    cpu_millis: int = 0
    memory_mib: int = 0
    """CPU and memory that one pod requests."""
    shared_memory_mib: int = 0
    """Size of /dev/shm, a part of the memory; 0: unknown."""
    disk_gib: int | None = None
    """Disk that one pod may fill with a model it downloads; None if it downloads none or has no limit."""
    snapshot: bool = False
    """Whether the files of the model are downloaded before the engine starts: only safetensors are."""
    scheduler: bool = False
    """Whether the Neuron scheduler extension is installed."""
    startup_timeout_s: int = 0
    """How long the server may take from the start of its process until it answers."""
    arguments: tuple[str, ...] = ()
    """Command-line flags of the engine."""
    environment: Mapping[str, str] = field(default_factory=dict)
    compile_cache: bool = True
    """Whether compiled graphs outlive the pod."""
    container_port: int = 8000
    service_port: int = 8000
    """Target port of the Service."""
    part: str = ""
    """The part of the server, where parts differ: ``prefill``, ``decode``. Empty: there is one kind of pod."""
    claims: bool = False
    """Whether pods of this kind can claim devices, where no device plugin offers them."""
    efa_interfaces: int = 0
    """EFA interfaces that one pod requests."""
    image: str = ""
    """Image reference; empty when the image is built in the cluster."""
    does: Task = "chat"
    """What clients ask it for."""
    has_task: bool = False
    """Whether servers of this kind have the key ``task``."""
    features: EngineFeatures | None = None
    """The features that the user decided; None for kinds that have none."""
    no_formula: str = ""
    """Why the shape that the user gave for an unknown model cannot be judged; empty where there is no such shape."""
    extra_args: Mapping[str, Any] = field(default_factory=dict)
    """Flags of the user; ``arguments`` includes them."""
    extra_env: Mapping[str, str] = field(default_factory=dict)
    """Variables of the user; ``environment`` includes them."""
    keys: Mapping[str, Path] = field(default_factory=dict)
    pinned: bool = False
    """Whether the files of the model stay as they are: they are those of a commit, or not of the Hub."""
    led_out: bool = False
    """Whether a gateway leads to the server."""
    first: "ServingFacts | None" = None
    """The same pods where they run first; None: that is here."""
    beside: bool = False
    """Whether another server of the same pod already stands for what the pod holds and requests: only flags differ."""

    @property
    def elsewhere(self) -> str:
        """Where the pods are judged, unless that is where they run first."""
        return f"on {self.instance.name} of pool {self.placement.pool}" if self.first else ""

    @property
    def startup(self) -> Startup:
        """The limits of a cold start."""
        return self.cold_start.startup

    @property
    def cold_start(self) -> ColdStart:
        """What a start from nothing takes."""
        draft = self.features.draft_bytes if self.features else 0
        return ColdStart(self.engine, self.model, self.placement, self.devices, self.weights, draft)

    @property
    def instance(self) -> InstanceType:
        return self.placement.instance_type

    @property
    def neuron(self) -> bool:
        return self.instance.neuron

    @property
    def pools(self) -> bool:
        """Whether such a server may be for a task whose answer is no text."""
        return self.has_task and not self.neuron

    def at(self, fact: str) -> Path:
        """Returns the path of a fact in the stack."""
        return (*self.path, *self.keys.get(fact, (fact,)))

    def under(self, fact: str, key: str) -> Path:
        """Returns the path of one key of a fact that is a mapping."""
        own = self.keys.get(f"{fact}.{key}")
        return (*self.path, *own) if own else (*self.at(fact), key)

    def at_flag(self, name: str) -> Path:
        """Returns where the user set a flag: its own path, that of the key or feature behind it, or that of all flags."""
        if name not in self.extra_args and (key := name.replace("-", "_")) in self.keys:
            return self.at(key)
        if name in self.extra_args or self.features is None:
            return self.under("extra_args", name) if name in self.extra_args else self.at("extra_args")
        feature = "dtype" if name == "dtype" else self.features.setting(self.engine.name, name)
        return (*self.path, *feature.split(".")) if feature else self.at("extra_args")

    def unknown_model(self, what: str) -> Judgement:
        """The judgement of a rule that would need the model's shape."""
        if self.no_formula:
            fix = "measure it: the log of vLLM says how much memory weights and KV cache take"
            return not_judged(what, self.model_id, (*self.path, "model", "id"), why=self.no_formula, fix=fix)
        return not_judged(
            what,
            self.model_id,
            (*self.path, "model", "id"),
            why=no_row(self.model_id),
            fix=f"correct the id; or {ways_to_a_shape(self.model_id)}",
        )


@dataclass(frozen=True)
class ScalingFacts:
    """The autoscaler of one server."""

    about: ClassVar[str] = "autoscalers of servers"

    path: Path
    spec: AutoscalerSpec
    server: ServingFacts
    metrics: bool
    """Whether something in the stack collects the metrics that the autoscaler reads."""
    scrape_interval_s: int = 30
    """How often the metrics are collected."""
    at_once: int | None = None
    """The most requests that are at the server at once. None: nothing in the stack limits them."""


def server_facts(spec: ServerSpec, placement: Placement, *, path: Path, scheduler: bool, **engine: Any) -> ServingFacts:
    """Returns the facts of a server. ``engine`` holds those that depend on the kind of server."""
    image = spec.image_reference
    return ServingFacts(
        path=path,
        kind=spec.kind,
        engine=spec.profile,
        model_id=spec.model.id,
        model=spec.model.known,
        no_formula=spec.model.no_formula,
        placement=placement,
        scheduler=scheduler,
        weights=weights_of(spec),
        does=spec.does,
        image=image if isinstance(image, str) else "",
        features=spec if isinstance(spec, EngineFeatures) else None,
        extra_args=spec.extra_args,
        extra_env=spec.extra_env,
        pinned=not isinstance(spec.model, HubModel) or is_commit(spec.model.revision),
        **engine,
    )


def replicated_facts(
    spec: ReplicatedServerSpec,
    placement: Placement,
    *,
    path: Path,
    scheduler: bool,
    keys: Mapping[str, Path] | None = None,
    **engine: Any,
) -> ServingFacts:
    """Returns the facts of a server of equal pods."""
    shape = placement.instance_type
    # Rules refuse an instance type without devices, whose pods have no share of it.
    share = resources(spec, placement) if shape.accelerator else {"cpu": spec.cpu or "0", "memory": spec.memory or "0"}
    return server_facts(
        spec,
        placement,
        path=path,
        scheduler=scheduler,
        devices=device_count(spec, shape),
        pods_min=spec.fewest,
        pods_max=spec.most - spec.surge,
        pods_beside=spec.surge,
        cpu_millis=cpu_millis(share["cpu"]),
        memory_mib=memory_mib(share["memory"]),
        shared_memory_mib=spec.shared_memory_gib * 1024,
        startup_timeout_s=startup_timeout_seconds(spec, placement),
        claims=True,
        keys={
            "pods_max": ("autoscaling", "max") if spec.autoscaling else ("replicas",),
            "startup_timeout": ("startup_timeout_seconds",),
            **(keys or {}),
        },
        **engine,
    )


def room(placement: Placement) -> Allocatable:
    """Returns the most that pods can use of a node beside its DaemonSets."""
    return less(allocatable(placement.instance_type, placement.kubelet), DAEMONS_CPU_MILLIS, DAEMONS_MEMORY_MIB)


@dataclass(frozen=True)
class EqualPods:
    """Equal pods in one pool. ``placement`` is that of the pool."""

    name: str
    placement: Placement
    devices: int
    cpu_millis: int
    memory_mib: int
    fewest: int
    most: int
    """Once servers are scaled out, and while they are rolled out."""


def equal_pods(name: str, server: ServingFacts) -> EqualPods:
    """Returns the pods of a server."""
    sizes = server.devices, server.cpu_millis, server.memory_mib, server.pods_min, server.pods_max + server.pods_beside
    return EqualPods(name, server.placement, *sizes)


def left_over(groups: Sequence[EqualPods], nodes: int, counts: Sequence[int]) -> dict[str, int]:
    """Returns how many pods of each group find no node: first fit, largest pods first. ``counts`` has the pods of each group."""
    placement = groups[0].placement
    usable = room(placement)
    free = [[placement.instance_type.devices, usable.cpu_millis, usable.memory_mib] for _ in range(nodes)]
    left: dict[str, int] = {}
    for group, count in sorted(zip(groups, counts, strict=True), key=lambda pair: -pair[0].devices):
        wish = (group.devices, group.cpu_millis, group.memory_mib)
        for _ in range(count):
            node = next((node for node in free if all(have >= want for have, want in zip(node, wish, strict=True))), None)
            if node is None:
                left[group.name] = left.get(group.name, 0) + 1
                continue
            for index, want in enumerate(wish):
                node[index] -= want
    return left
