"""Derives what the rules about pairs judge: the two servers as started. Pure; no pulumi."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from eks_inference.accelerators.neuron.plan import cores_of
from eks_inference.catalog.engines import EngineProfile
from eks_inference.place.nodes import cpu_millis, memory_mib
from eks_inference.place.placement import Placement
from eks_inference.pools.spec import PoolSpec
from eks_inference.rules import Path
from eks_inference.serving.disaggregated.pair_processes import Role, role_settings, roles_by_pod, server
from eks_inference.serving.disaggregated.parts import Artifact, artifact, tensor_parallel
from eks_inference.serving.disaggregated.spec import DisaggregatedPairSpec
from eks_inference.serving.facts import ServingFacts, server_facts
from eks_inference.serving.flags import flag, object_flag, switched
from eks_inference.serving.pod_parts import Hardware


@dataclass(frozen=True)
class RoleFacts:
    """One server of the pair, parsed from its command and environment."""

    role: Role
    tensor_parallel: str
    max_num_seqs: str
    max_model_len: str
    artifact: str
    """Folder that it loads."""
    caches_prefixes: bool
    transfer: Mapping[str, Any]
    """``--kv-transfer-config``."""
    cores: str
    """As its variable has them."""
    seen: range
    """These cores; none if that is no range of numbers."""
    send_address: str
    receive_address: str

    @property
    def core_offset(self) -> Any:
        return self.transfer.get("neuron_core_offset", 0)


@dataclass(frozen=True)
class DisaggregatedFacts:
    """A pair. ``path`` is its key in the stack; it is empty when a component judges itself.

    The facts describe the pair even while the baseline serves in its place, because one setting switches back.
    """

    about: ClassVar[str] = "disaggregated pairs"

    path: Path
    spec: DisaggregatedPairSpec
    engine: EngineProfile
    placement: Placement
    pool: PoolSpec | None
    """The servers' pool; None when only its placement is known."""
    prefill: RoleFacts
    decode: RoleFacts
    artifact: Artifact

    @property
    def roles(self) -> tuple[RoleFacts, RoleFacts]:
        return self.prefill, self.decode

    @property
    def cores(self) -> int:
        """Logical cores of a node, as its pool configures them."""
        return cores_of(self.placement.instance_type.devices, self.placement.instance_type)

    def at(self, *keys: str) -> Path:
        """Returns the path of a setting in the stack."""
        return (*self.path, *keys)


def disaggregated_facts(
    spec: DisaggregatedPairSpec, placement: Placement, *, pool: PoolSpec | None = None, path: Path = ()
) -> DisaggregatedFacts:
    """Returns the facts of a pair whose servers run on ``placement`` of ``pool``. Images do not matter here."""
    pair = spec.model_copy(update={"serving": "pair"})
    return DisaggregatedFacts(
        path=path,
        spec=spec,
        engine=spec.profile,
        placement=placement,
        pool=pool,
        prefill=_role(pair, "prefill", placement),
        decode=_role(pair, "decode", placement),
        artifact=artifact(pair),
    )


def serving_facts(
    spec: DisaggregatedPairSpec, placement: Placement, *, scheduler: bool, path: Path = ()
) -> tuple[ServingFacts, ...]:
    """Returns what the rules about all servers judge: two copies of the model in one pod, or one copy in each of two.

    Startup times are absent: when a server starts, the model is in the store and compiled.
    """
    found = []
    for roles in roles_by_pod(spec).values():
        pod = server_facts(
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
            shared_memory_mib=spec.shared_memory_gib * 1024,
            efa_interfaces=placement.efa_interfaces if spec.serving == "pair" else 0,
        )
        found += [_process(pod, spec, role, beside=role != roles[0]) for role in roles]
    return tuple(found)


def _process(pod: ServingFacts, spec: DisaggregatedPairSpec, role: Role, *, beside: bool) -> ServingFacts:
    """Returns the facts of one server in its pod. A flag or variable of its own is found at the role's key."""
    process, own = server(spec, role), role_settings(spec, role)
    given: Mapping[str, Mapping[str, Any]] = {"extra_args": own.extra_args, "extra_env": own.extra_env}
    wide = ("--dtype=float32",) if spec.compile.torch_dtype == "float32" else ()  # what the artifact has, whatever a flag says
    return replace(
        pod,
        arguments=(*process.command, *wide),
        environment=process.environment,
        container_port=process.port,
        service_port=process.port,
        extra_args={**spec.extra_args, **own.extra_args},
        extra_env={**spec.extra_env, **own.extra_env},
        keys={
            "devices": ("instances",),
            **{f"{setting}.{key}": (role, setting, key) for setting, keys in given.items() for key in keys},
        },
        beside=beside,
    )


def hardware(spec: DisaggregatedPairSpec, placement: Placement) -> Hardware:
    """Returns the devices that the model is split over. A baseline on one node leaves half of the node idle."""
    pods = [pod for pod in serving_facts(spec, placement, scheduler=False) if not pod.beside]
    shape = placement.instance_type
    cores = pods[0].copies * pods[0].tensor_parallel
    return Hardware(shape.name, math.ceil(cores / shape.cores_per_device), pods_min=len(pods), pods_max=len(pods))


def _role(spec: DisaggregatedPairSpec, role: Role, placement: Placement) -> RoleFacts:
    one, instance = server(spec, role), placement.instance_type
    everything = f"0-{cores_of(instance.devices, instance) - 1}"
    cores = one.environment.get("NEURON_RT_VISIBLE_CORES", everything)
    ends = re.fullmatch(r"(\d{1,4})(?:-(\d{1,4}))?", cores)
    return RoleFacts(
        role=role,
        tensor_parallel=flag(one.command, "tensor-parallel-size") or "",
        max_num_seqs=flag(one.command, "max-num-seqs") or "",
        max_model_len=flag(one.command, "max-model-len") or "",
        artifact=one.environment.get("NEURON_COMPILED_ARTIFACTS", ""),
        caches_prefixes=switched(one.command, "enable-prefix-caching", False),
        transfer=object_flag(one.command, "kv-transfer-config"),
        cores=cores,
        seen=range(int(ends[1]), int(ends[2] or ends[1]) + 1) if ends else range(0),
        send_address=one.environment.get("NEURON_SEND_IP", ""),
        receive_address=one.environment.get("NEURON_RECV_IP", ""),
    )
