"""Plans the servers of a group: each kind a plain vLLM server with the settings of its role; engines, names, guards, quota. Pure
functions; no pulumi.

Sources: vLLM documentation, "NixlConnector Usage Guide"; EKS user guide, "Manage EFA devices"; for flags see ``roles``.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from eks_inference.catalog.instances import InstanceType
from eks_inference.catalog.nixl import leases, nixl_profile, side_channel
from eks_inference.kubernetes.merge import merged
from eks_inference.kubernetes.network_policy import allow_from, allow_to, network_policy, pods
from eks_inference.place.claimed_devices import claimed_resource
from eks_inference.place.placement import Placement
from eks_inference.serving import deployment
from eks_inference.serving.deployment import Engine, device_count
from eks_inference.serving.pod_parts import (
    ROLE_LABEL,
    SERVER_LABEL,
    TERMINATION_SECONDS,
    Hardware,
    closed,
    device_quota,
    device_resource,
    egress,
    from_prometheus,
    quota_devices,
)
from eks_inference.serving.prefill_decode.spec import ROLES, PrefillDecodeSpec, Role, RoleServersSpec
from eks_inference.serving.spec import NoCompileCache
from eks_inference.serving.vllm import plan as vllm
from eks_inference.serving.vllm.spec import VllmServerSpec

# Sources: vLLM 0.30.0, ``distributed/kv_transfer`` (wheel) and its documentation, "NixlConnector Usage Guide"; aws-neuron-sdk
# 81ce03ae, vllm-neuron/docs/tutorials/tutorial-di-1p1d-xpyd.md (variables of both roles).

KV_ROLES: Mapping[Role, str] = {"prefill": "kv_producer", "decode": "kv_consumer"}

_OWN = frozenset(
    {
        "kind",
        "namespace",
        "image",
        "extra_args",
        "extra_env",
        "objectives",
        "traffic",
        "renamed_from",
        "compile_cache",
        "egress",
    }
)
_SHARED = tuple(one for one in PrefillDecodeSpec.model_fields if one in VllmServerSpec.model_fields and one not in _OWN)
_SIZES = (
    *("pool", "instance_type", "devices", "tensor_parallel", "cpu", "memory", "shared_memory_gib", "disk_gib"),
    "startup_timeout_seconds",
)

MAX_NAME_LENGTH = deployment.MAX_NAME_LENGTH - len("-prefill")
"""Longest name of a group: each role is a server whose name starts with it."""

SIDE_CHANNEL = "side-channel"
"""Name of the port on which servers ask each other where KV caches are."""


def server_name(name: str, role: Role) -> str:
    """Returns the name of the servers of one role: the start of their objects' names."""
    return f"{name}-{role}"


def settings_of(spec: PrefillDecodeSpec, role: Role) -> RoleServersSpec:
    """Returns the settings of the engine: in the baseline, those of decode everywhere."""
    return spec.role(role if spec.serving == "disaggregated" else "decode")


def extra_args(spec: PrefillDecodeSpec, role: Role) -> dict[str, Any]:
    """Returns the flags of the user."""
    return merged(spec.extra_args, settings_of(spec, role).extra_args)


def extra_env(spec: PrefillDecodeSpec, role: Role) -> dict[str, str]:
    """Returns the variables of the user."""
    return {**spec.extra_env, **settings_of(spec, role).extra_env}


def as_server(name: str, spec: PrefillDecodeSpec, role: Role, shape: InstanceType) -> VllmServerSpec:
    """Returns the servers of one role as plain vLLM servers of their own."""
    own, tuned = spec.role(role), settings_of(spec, role)
    counts = {"replicas": own.replicas} if own.autoscaling is None else {"autoscaling": own.autoscaling}
    given: dict[str, Any] = {
        **{key: getattr(spec, key) for key in _SHARED},
        **{key: getattr(own, key) for key in _SIZES},
        **counts,
        "namespace": spec.namespace_of(name),
        "image": spec.image,
        "max_num_seqs": tuned.max_num_seqs,
        "compile_cache": spec.compile_cache or NoCompileCache(),
        "extra_args": merged(_flags(spec, role), extra_args(spec, role)),
        "extra_env": {**_environment(spec, role, shape), **extra_env(spec, role)},
    }
    return VllmServerSpec.model_validate(given)


def kv_transfer(spec: PrefillDecodeSpec, role: Role) -> dict[str, Any]:
    """Returns our ``--kv-transfer-config`` of a role; flags of the user may change it."""
    profile = nixl_profile(spec.profile.accelerator)
    return {
        "kv_connector": profile.connector_for(_window(spec)),
        "kv_role": KV_ROLES[role],
        "kv_buffer_device": profile.buffer_device,
        "kv_load_failure_policy": spec.kv_transfer.failure_policy,
        "kv_connector_extra_config": {"backends": list(profile.backends), leases().key: spec.kv_transfer.lease_seconds},
    }


def efa_interfaces(spec: PrefillDecodeSpec, role: Role, placement: Placement) -> int:
    """Returns how many EFA interfaces one pod gets: by default the share of its devices."""
    own, shape = spec.role(role), placement.instance_type
    if spec.serving == "baseline":
        return 0
    if own.efa_interfaces:
        return own.efa_interfaces
    devices, each = own.devices or shape.devices, nixl_profile(spec.profile.accelerator).interfaces_per_device
    return min(each * devices, placement.efa_interfaces) or placement.efa_interfaces * devices // max(shape.devices, 1)


def revision(name: str, spec: PrefillDecodeSpec, shapes: Mapping[Role, InstanceType]) -> str:
    """Returns a hash of what a group's servers share: image, model, flags and variables of both roles.

    A handshake compares version, model, data type and blocks and refuses others; the rest has one revision for simplicity.
    """
    servers: dict[Role, VllmServerSpec] = {role: as_server(name, spec, role, shapes[role]) for role in ROLES}
    seen = {
        "image": spec.image_reference,
        "model": spec.model.model_dump(mode="json", exclude={"gated", "shape"}),
        "serving": spec.serving,
        **{
            role: [vllm.arguments(server, shapes[role]), server.extra_env, device_count(server, shapes[role])]
            for role, server in servers.items()
        },
    }
    return hashlib.sha256(json.dumps(seen, sort_keys=True).encode()).hexdigest()[:8]


def _flags(spec: PrefillDecodeSpec, role: Role) -> dict[str, Any]:
    tuned = settings_of(spec, role)
    found: dict[str, Any] = {}
    if tuned.max_num_batched_tokens:
        found["max-num-batched-tokens"] = tuned.max_num_batched_tokens
    if spec.serving == "disaggregated":
        found["kv-transfer-config"] = kv_transfer(spec, role)
        if role == "prefill":
            # Without it, SIGTERM frees blocks that decode has yet to read.
            found["shutdown-timeout"] = spec.kv_transfer.lease_seconds
        if _window(spec):
            # With a connector, vLLM would keep the KV cache of whole sequences for layers that only see a window of it.
            found["disable-hybrid-kv-cache-manager"] = False
    return found


def _environment(spec: PrefillDecodeSpec, role: Role, shape: InstanceType) -> dict[str, str]:
    if spec.serving == "baseline":
        return {}
    unused = {"prefill": "DECODE", "decode": "PREFILL"}[role]
    return {
        side_channel().port: str(spec.kv_transfer.side_channel_port),
        **nixl_profile(spec.profile.accelerator).environment,
        # Graphs that the role never runs.
        **({f"VLLM_NEURON_SKIP_{unused}_WARMUP": "1"} if shape.neuron else {}),
    }


def _window(spec: PrefillDecodeSpec) -> int:
    """The sliding window of some of the model's layers; 0: none, or nothing is known of the model."""
    return spec.model.known.window if spec.model.known else 0


@dataclass(frozen=True)
class RoleServers:
    """The servers of one role, as planned."""

    role: Role
    name: str
    """The start of their objects' names."""
    spec: VllmServerSpec
    placement: Placement
    engine: Engine
    labels: Mapping[str, str]

    @property
    def lingering(self) -> int:
        """How long a pod may take to end, in seconds."""
        return TERMINATION_SECONDS + self.engine.lingers_seconds


@dataclass(frozen=True)
class Group:
    """Prefill and decode servers of one revision."""

    name: str
    spec: PrefillDecodeSpec
    revision: str
    roles: Mapping[Role, RoleServers]

    def __iter__(self) -> Iterator[RoleServers]:
        return iter(self.roles.values())


def server_labels(name: str) -> dict[str, str]:
    """Returns the labels that servers of both roles have in every revision; routers lack one of them."""
    return {SERVER_LABEL: name, "app.kubernetes.io/component": "servers"}


def labels(name: str, role: Role) -> dict[str, str]:
    """Returns the labels of the servers of one role, of every revision."""
    return {**server_labels(name), ROLE_LABEL: role}


def group(name: str, spec: PrefillDecodeSpec, placements: Mapping[Role, Placement]) -> Group:
    """Returns the servers of a group on these placements."""
    shapes: dict[Role, InstanceType] = {role: placements[role].instance_type for role in ROLES}
    return Group(
        name,
        spec,
        revision(name, spec, shapes),
        {role: _servers(name, spec, role, placements[role]) for role in ROLES},
    )


def port(spec: PrefillDecodeSpec) -> int:
    """Returns the port of API and metrics of every server."""
    return spec.profile.port


def _servers(name: str, spec: PrefillDecodeSpec, role: Role, placement: Placement) -> RoleServers:
    server = as_server(name, spec, role, placement.instance_type)
    plain = vllm.engine(name, server, placement, efa_interfaces(spec, role, placement))
    if spec.serving == "disaggregated":
        privileged = spec.kv_transfer.security == "privileged"
        plain = replace(
            plain,
            # Prefill tells decode this address, so 0.0.0.0 would lead nowhere.
            fields={side_channel().host: side_channel().host_field},
            side_ports={SIDE_CHANNEL: spec.kv_transfer.side_channel_port},
            root=True,
            security={"privileged": True}
            if privileged
            else {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"], "add": ["IPC_LOCK"]},
            },
            lingers_seconds=spec.kv_transfer.lease_seconds if role == "prefill" else 0,
        )
    # Dashboards and alerts tell the roles apart by the names of their ports.
    engine = replace(plain, ports={role: port(spec)})
    return RoleServers(role, server_name(name, role), server, placement, engine, labels(name, role))


def quota(group: Group) -> dict[str, Any]:
    """Allows for a complete second group where a rollout brings one, or for successors of pods that still end."""
    hard: dict[str, int] = {}
    beside = group.spec.rollout == "second_group"
    for one in group:
        shape, count = one.placement.instance_type, deployment.device_count(one.spec, one.placement.instance_type)
        claimed = deployment.claims(one.spec, one.placement, one.engine.efa_interfaces).devices
        each = {claimed_resource(device_class): number for device_class, number in claimed.items()} or {
            f"requests.{device_resource(shape)}": count
        }
        for resource, devices in each.items():
            most = quota_devices(one.spec.most, ending=one.spec.most if beside else 1, devices=devices)
            hard[resource] = hard.get(resource, 0) + most
    return device_quota(group.spec.namespace_of(group.name), hard)


def budgets(group: Group) -> dict[str, dict[str, Any]]:
    """Returns the disruption budgets by role: a drain takes one pod of each role at a time."""
    return {one.role: deployment.disruption_budget(one.name, one.spec, one.labels) for one in group}


def network_policies(group: Group, *, router: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Returns the NetworkPolicies of the servers by role. ``router`` has the labels of the routers.

    Nobody else reaches a server: they answer whoever asks, and the side channel of prefill gives KV caches away. EFA traffic is
    not subject to policies, but to the security group of the nodes.
    """
    spec, space = group.spec, group.spec.namespace_of(group.name)
    found = {"closed": closed(group.name, space)}
    for role_servers in group:
        others = [pods(other.labels) for other in group if other.role != role_servers.role]
        side = list(role_servers.engine.side_ports.values())
        found[role_servers.role] = network_policy(
            role_servers.name,
            space,
            selector=role_servers.labels,
            ingress=[
                allow_from(pods(router), tcp=[port(spec)]),
                *([allow_from(*others, tcp=side)] if side else []),
                *from_prometheus(spec.metrics_namespaces, port(spec)),
            ],
            egress=[*egress(spec), *([allow_to(*others, tcp=side)] if side else [])],
        )
    return found


def hardware(group: Group) -> Hardware:
    """Returns the devices of both roles. Types may differ: then those of decode stand for all."""
    decode, prefill = (
        deployment.hardware(group.roles[role].spec, group.roles[role].placement.instance_type) for role in ("decode", "prefill")
    )
    if decode.devices_per_pod == prefill.devices_per_pod and decode.instance_type == prefill.instance_type:
        return replace(decode, pods_min=decode.pods_min + prefill.pods_min, pods_max=decode.pods_max + prefill.pods_max)
    most = decode.devices_per_pod * decode.pods_max + prefill.devices_per_pod * prefill.pods_max
    return Hardware(decode.instance_type, most, pods_min=1, pods_max=1)
