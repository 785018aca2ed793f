"""Derives what rules judge in a group: both kinds of servers as started, and how they pair. Pure; no pulumi."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from eks_inference.catalog.engines import EngineProfile
from eks_inference.place.placement import Placement
from eks_inference.pools.spec import PoolSpec
from eks_inference.rules import Path
from eks_inference.serving.facts import ServingFacts
from eks_inference.serving.flags import object_flag
from eks_inference.serving.prefill_decode.plan import Group, RoleServers, extra_args, extra_env
from eks_inference.serving.prefill_decode.spec import ROLES, PrefillDecodeSpec, Role
from eks_inference.serving.vllm.facts import serving_facts


@dataclass(frozen=True)
class RoleFacts:
    """The servers of one role."""

    role: Role
    server: ServingFacts
    """One pod: its flags, variables, devices and interfaces. Its ``path`` is the server's key, ``at`` finds the role's."""
    transfer: Mapping[str, Any]
    """``--kv-transfer-config`` as the engine reads it; empty where there is none, or it is no object."""
    pool: PoolSpec | None
    """None when only the placement is known."""

    @property
    def placement(self) -> Placement:
        return self.server.placement

    @property
    def connector_settings(self) -> Mapping[str, Any]:
        """``kv_connector_extra_config`` of the transfer."""
        found = self.transfer.get("kv_connector_extra_config", {})
        return found if isinstance(found, Mapping) else {}


@dataclass(frozen=True)
class PrefillDecodeFacts:
    """A group of prefill and decode servers. ``path`` is its key in the stack; empty when a component judges itself."""

    about: ClassVar[str] = "prefill and decode servers"

    path: Path
    spec: PrefillDecodeSpec
    engine: EngineProfile
    revision: str
    prefill: RoleFacts
    decode: RoleFacts

    @property
    def roles(self) -> tuple[RoleFacts, RoleFacts]:
        return self.prefill, self.decode

    def at(self, *keys: str) -> Path:
        """Returns the path of a setting in the stack."""
        return (*self.path, *keys)


def role_servers_facts(spec: PrefillDecodeSpec, one: RoleServers, *, scheduler: bool, path: Path = ()) -> ServingFacts:
    """Returns what the rules about all servers judge in the servers of one role. Settings are found at the role's keys."""
    interfaces = one.engine.efa_interfaces
    plain = serving_facts(one.spec, one.placement, scheduler=scheduler, path=path, efa_interfaces=interfaces)
    tuned: Role = one.role if spec.serving == "disaggregated" else "decode"
    own = spec.role(tuned)
    given: Mapping[str, Mapping[str, Any]] = {"extra_args": own.extra_args, "extra_env": own.extra_env}
    keys = {
        **{
            key: (one.role, key)
            for key in (
                *("devices", "tensor_parallel", "disk_gib", "pool", "instance_type", "cpu", "memory", "shared_memory_gib"),
                "efa_interfaces",
            )
        },
        "lease": ("kv_transfer", "lease_seconds"),
        "max_num_seqs": (tuned, "max_num_seqs"),
        **({"max_num_batched_tokens": (tuned, "max_num_batched_tokens")} if own.max_num_batched_tokens else {}),
        "startup_timeout": (one.role, "startup_timeout_seconds"),
        "pods_max": (one.role, "autoscaling", "max") if one.spec.autoscaling else (one.role, "replicas"),
        **{f"{setting}.{key}": (tuned, setting, key) for setting, values in given.items() for key in values},
    }
    return replace(
        plain,
        kind=spec.kind,
        part=one.role,
        has_task=False,
        features=spec,
        pods_beside=plain.pods_max if spec.rollout == "second_group" else 0,
        extra_args=extra_args(spec, one.role),
        extra_env=extra_env(spec, one.role),
        keys=keys,
    )


def group_facts(
    group: Group, *, scheduler: bool, pools: Mapping[Role, PoolSpec] | None = None, path: Path = ()
) -> PrefillDecodeFacts:
    """Returns the facts of a group."""
    prefill, decode = (_role(group, role, scheduler=scheduler, pool=pools[role] if pools else None, path=path) for role in ROLES)
    return PrefillDecodeFacts(
        path=path,
        spec=group.spec,
        engine=group.spec.profile,
        revision=group.revision,
        prefill=prefill,
        decode=decode,
    )


def _role(group: Group, role: Role, *, scheduler: bool, pool: PoolSpec | None, path: Path) -> RoleFacts:
    server = role_servers_facts(group.spec, group.roles[role], scheduler=scheduler, path=path)
    return RoleFacts(role, server, object_flag(server.arguments, "kv-transfer-config"), pool)
