"""Makes each kind of server of a group a plain vLLM server with the settings of its role. Pure functions; no pulumi.

Sources: vLLM 0.30.0, ``distributed/kv_transfer`` (wheel) and its documentation, "NixlConnector Usage Guide"; aws-neuron-sdk
81ce03ae, vllm-neuron/docs/tutorials/tutorial-di-1p1d-xpyd.md (variables of both roles).
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from eks_inference.catalog.instances import InstanceType
from eks_inference.catalog.nixl import leases, nixl_profile, side_channel
from eks_inference.kubernetes.merge import merged
from eks_inference.place.placement import Placement
from eks_inference.serving.deployment import device_count
from eks_inference.serving.prefill_decode.spec import ROLES, PrefillDecodeSpec, Role, RoleServersSpec
from eks_inference.serving.spec import NoCompileCache
from eks_inference.serving.vllm import plan as vllm
from eks_inference.serving.vllm.spec import VllmServerSpec

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
        "behind_load_balancer",
        "egress",
    }
)
_SHARED = tuple(one for one in PrefillDecodeSpec.model_fields if one in VllmServerSpec.model_fields and one not in _OWN)
_SIZES = (
    *("pool", "instance_type", "devices", "tensor_parallel", "cpu", "memory", "shared_memory_gib", "disk_gib"),
    "startup_timeout_seconds",
)


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
    """Returns a hash of what servers of a group have in common: image, model, flags and variables of both roles.

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
