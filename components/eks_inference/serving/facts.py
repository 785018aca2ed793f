"""One model server as it will run, whatever kind of server runs it: what the rules of serving judge. Pure; no pulumi."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from eks_inference.catalog.engines import EngineProfile
from eks_inference.catalog.instances import InstanceType
from eks_inference.catalog.models import Model
from eks_inference.placement import Placement
from eks_inference.rules import Path


@dataclass(frozen=True)
class ServingFacts:
    """What one pod of a server holds and asks for.

    ``path`` is the server's key in the stack, empty when a component judges itself. ``keys`` tells where a fact stands below it
    when the key is not the fact's own name: ``{"devices": ("worker", "devices")}``.
    """

    path: Path
    kind: str
    """Kind of the server: ``ray_serve_vllm``, ``vllm``, ``triton``, ``disaggregated``."""
    engine: EngineProfile
    model_id: str
    model: Model | None
    """None when the catalog does not know the model: rules that need its shape then do not apply."""
    placement: Placement
    devices: int
    """Neuron devices or GPUs of one pod."""
    tensor_parallel: int
    """Cores (Neuron) or GPUs one copy of the model is split over."""
    max_num_seqs: int
    max_model_len: int
    copies: int = 1
    """Copies of the model in one pod. Ray puts as many replicas into a worker as its cores hold."""
    copies_per_request: int = 1
    """Copies that work on one request: of a prefill and decode pair in one pod both."""
    pods_min: int = 1
    pods_max: int = 1
    cpu_millis: int = 0
    memory_mib: int = 0
    """What one pod asks for."""
    scheduler: bool = False
    """Whether the Neuron scheduler extension is installed."""
    startup_timeout_s: int = 0
    """How long the server may take from the start of its process until it answers."""
    arguments: tuple[str, ...] = ()
    """Flags of the engine as it will be started."""
    environment: Mapping[str, str] = field(default_factory=dict)
    compile_cache: bool = True
    """Whether compiled graphs outlive the pod."""
    container_port: int = 8000
    service_port: int = 8000
    """Port that the Service leads to in the pod."""
    efa_interfaces: int = 0
    """EFA interfaces one pod asks for."""
    image: str = ""
    """Reference of the image; empty when it is built in the cluster."""
    keys: Mapping[str, Path] = field(default_factory=dict)

    @property
    def instance(self) -> InstanceType:
        return self.placement.instance_type

    @property
    def neuron(self) -> bool:
        return self.instance.neuron

    def at(self, fact: str) -> Path:
        """Where in the stack a fact stands."""
        return (*self.path, *self.keys.get(fact, (fact,)))
