"""What the rules judge of a pair: its two servers as they will be started, and the objects planned for them. Pure; no pulumi."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from eks_inference.accelerators.neuron.plan import cores_of
from eks_inference.catalog.engines import EngineProfile
from eks_inference.kubernetes.quantity import cpu_millis, memory_mib
from eks_inference.placement import Placement
from eks_inference.pools.spec import PoolSpec
from eks_inference.rules import Path
from eks_inference.serving.disaggregated import jobs, workloads
from eks_inference.serving.disaggregated.artifact import Artifact, artifact, tensor_parallel
from eks_inference.serving.disaggregated.servers import SERVER_PORTS, Role, Server, server, servers
from eks_inference.serving.disaggregated.spec import DisaggregatedPairSpec
from eks_inference.serving.facts import ServingFacts, server_facts
from eks_inference.serving.flags import flag, switched
from eks_inference.serving.hardware import Hardware


@dataclass(frozen=True)
class RoleFacts:
    """One server of the pair, read from the command and environment it will be started with."""

    role: Role
    tensor_parallel: str
    max_num_seqs: str
    max_model_len: str
    artifact: str
    """Folder it loads."""
    caches_prefixes: bool
    transfer: Mapping[str, Any]
    """``--kv-transfer-config``."""
    first_core: int
    last_core: int
    send_address: str
    receive_address: str

    @property
    def core_offset(self) -> Any:
        return self.transfer.get("neuron_core_offset", 0)

    @property
    def cores(self) -> str:
        return f"{self.first_core}-{self.last_core}"


@dataclass(frozen=True)
class DisaggregatedFacts:
    """A pair. ``path`` is its key in the stack, empty when the component judges itself.

    The rules judge the pair also while the baseline serves in its place: it is one setting away.
    """

    path: Path
    spec: DisaggregatedPairSpec
    engine: EngineProfile
    placement: Placement
    pool: PoolSpec | None
    """The servers' pool; None where only its placement is known."""
    prefill: RoleFacts
    decode: RoleFacts
    artifact: Artifact
    efa_interfaces: int
    """EFA interfaces one pod asks for."""
    workload: Mapping[str, Any]
    """The planned Deployment or LeaderWorkerSet."""
    compile_job: Mapping[str, Any]
    """The planned Job."""
    compile_pool: str

    @property
    def cores(self) -> int:
        """Cores of a node as its pool sets them."""
        return cores_of(self.placement.instance_type.devices, self.placement.instance_type)

    def at(self, *keys: str) -> Path:
        """Where in the stack a setting stands."""
        return (*self.path, *keys)


def disaggregated_facts(
    name: str, spec: DisaggregatedPairSpec, placement: Placement, *, pool: PoolSpec | None = None, path: Path = ()
) -> DisaggregatedFacts:
    """``placement`` is where the servers run, on ``pool``. Images and names of ConfigMaps do not matter here."""
    pair = spec.model_copy(update={"serving": "pair"})
    compiled = artifact(pair)
    return DisaggregatedFacts(
        path=path,
        spec=spec,
        engine=spec.profile,
        placement=placement,
        pool=pool,
        prefill=_role(pair, server(pair, "prefill"), placement),
        decode=_role(pair, server(pair, "decode"), placement),
        artifact=compiled,
        efa_interfaces=workloads.efa_interfaces(pair, placement),
        workload=workloads.workload(name, pair, placement, image=spec.image_reference, config=""),
        compile_job=jobs.compilation(name, pair, placement, image=spec.image_reference, config=""),
        compile_pool=spec.compile_pool or spec.pool,
    )


def serving_facts(
    spec: DisaggregatedPairSpec, placement: Placement, *, scheduler: bool, path: Path = ()
) -> tuple[ServingFacts, ...]:
    """What the rules of all servers judge, one for each pod: two copies of the model in one, or one copy in each of two.

    What a start waits for is not among it: the model is in the store and compiled when a server starts.
    """
    pods: dict[str, list[Role]] = {}
    for role in servers(spec):
        pods.setdefault(workloads.role_of_pod(spec, role), []).append(role)
    return tuple(_pod(spec, placement, roles, scheduler=scheduler, path=path) for roles in pods.values())


def hardware(spec: DisaggregatedPairSpec, placement: Placement) -> Hardware:
    """The devices the model is split over: a baseline in place of a pair on one node leaves half of it idle."""
    pods, shape = serving_facts(spec, placement, scheduler=False), placement.instance_type
    cores = pods[0].copies * pods[0].tensor_parallel
    return Hardware(shape.name, math.ceil(cores / shape.cores_per_device), pods_min=len(pods), pods_max=len(pods))


def _pod(spec: DisaggregatedPairSpec, placement: Placement, roles: list[Role], *, scheduler: bool, path: Path) -> ServingFacts:
    first = server(spec, roles[0])
    return server_facts(
        spec,
        placement,
        path=path,
        scheduler=scheduler,
        devices=placement.instance_type.devices,
        tensor_parallel=tensor_parallel(spec),
        max_num_seqs=spec.max_num_seqs,
        max_model_len=spec.max_model_len,
        copies=len(roles),
        copies_per_request=len(roles),
        cpu_millis=cpu_millis(spec.cpu),
        memory_mib=memory_mib(spec.memory),
        arguments=first.command,
        environment=first.environment,
        container_port=SERVER_PORTS[roles[0]],
        service_port=SERVER_PORTS[roles[0]],
        efa_interfaces=workloads.efa_interfaces(spec, placement) if spec.serving == "pair" else 0,
        keys={"devices": ("instances",)},
    )


def _role(spec: DisaggregatedPairSpec, one: Server, placement: Placement) -> RoleFacts:
    instance = placement.instance_type
    everything = f"0-{cores_of(instance.devices, instance) - 1}"
    first, _, last = one.environment.get("NEURON_RT_VISIBLE_CORES", everything).partition("-")
    return RoleFacts(
        role=one.role,
        tensor_parallel=flag(one.command, "tensor-parallel-size") or "",
        max_num_seqs=flag(one.command, "max-num-seqs") or "",
        max_model_len=flag(one.command, "max-model-len") or "",
        artifact=one.environment.get("NEURON_COMPILED_ARTIFACTS", ""),
        caches_prefixes=switched(one.command, "enable-prefix-caching", False),
        transfer=_object(flag(one.command, "kv-transfer-config")),
        first_core=int(first) if first.isdecimal() else 0,
        last_core=int(last or first) if (last or first).isdecimal() else -1,
        send_address=one.environment.get("NEURON_SEND_IP", ""),
        receive_address=one.environment.get("NEURON_RECV_IP", ""),
    )


def _object(text: str | None) -> Mapping[str, Any]:
    try:
        found = json.loads(text or "")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
