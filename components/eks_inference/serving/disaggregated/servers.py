"""The processes of a pair: their commands, environment, ports and cores. Pure functions; no pulumi.

What a process only learns in its pod, the addresses of both, stands as ``PREFILL_ADDRESS`` and ``DECODE_ADDRESS`` in command and
environment; ``assets/start.py`` fills it in.

Sources: Neuron documentation, "Tutorial: Disaggregated Inference on Trn2" (server.sh, baseline_server.sh); vLLM of
aws-neuron/upstreaming-to-vllm (``distributed/kv_transfer/neuron``: the handshake, its port, core offsets); ai-on-eks,
vllm-llama3.1-405b-trn1 (libfabric variables).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from eks_inference.accelerators.neuron.plan import cores_of
from eks_inference.serving.disaggregated.artifact import Artifact, artifact, model_folder, tensor_parallel
from eks_inference.serving.disaggregated.spec import DisaggregatedPairSpec, RoleSpec
from eks_inference.serving.pods import engine_args

Role = Literal["prefill", "decode", "baseline"]

API_PORT = 8000
"""Where clients talk: the router, or the baseline server."""

SERVER_PORTS: Mapping[Role, int] = {"prefill": 8100, "decode": 8200, "baseline": API_PORT}
"""HTTP of each server: API, health and metrics."""

KV_PORT = 14579
"""Of prefill: the handshake, then requests for KV caches. The engine's default, which the source system leaves unsaid."""

BOOTSTRAP_PORT = 45645
"""Of both: where the Neuron runtimes agree on a transfer."""

MEETING_PORT = 14580
"""Of prefill, before it serves: where the two pods of a pair tell each other their addresses. Ours."""

PREFILL_ADDRESS = "@PREFILL_ADDRESS@"
DECODE_ADDRESS = "@DECODE_ADDRESS@"

_LOOPBACK = "127.0.0.1"
_KV_BUFFER_BYTES = 2e11  # the source system's


@dataclass(frozen=True)
class Server:
    """One process."""

    role: Role
    port: int
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)


def servers(spec: DisaggregatedPairSpec) -> dict[Role, Server]:
    """What runs: both roles, or the baseline in their place."""
    roles: tuple[Role, ...] = ("prefill", "decode") if spec.serving == "pair" else ("baseline",)
    return {role: server(spec, role) for role in roles}


def server(spec: DisaggregatedPairSpec, role: Role) -> Server:
    compiled = artifact(spec)
    own = _own(spec, role)
    extra = {**spec.extra_args, **own.extra_args}
    command = (
        *("python3", "-m", "vllm.entrypoints.openai.api_server"),
        *("--model", model_folder(spec)),
        *("--served-model-name", spec.model.id),
        *("--tensor-parallel-size", str(tensor_parallel(spec))),
        *("--max-num-seqs", str(spec.max_num_seqs)),
        *("--max-model-len", str(spec.max_model_len)),
        *(("--kv-transfer-config", json.dumps(kv_transfer(spec, role))) if role != "baseline" else ()),
        *("--port", str(SERVER_PORTS[role])),
        *engine_args(spec.profile, max_num_seqs=spec.max_num_seqs, max_model_len=spec.max_model_len, extra=extra),
    )
    return Server(role, SERVER_PORTS[role], command, {**_environment(spec, role, compiled), **spec.extra_env, **own.extra_env})


def kv_transfer(spec: DisaggregatedPairSpec, role: Role) -> dict[str, Any]:
    """``--kv-transfer-config`` of a role. Both name prefill's address: prefill listens there, decode connects to it."""
    return {
        "kv_connector": "NeuronConnector",
        "kv_buffer_device": "cpu",
        "kv_role": {"prefill": "kv_producer", "decode": "kv_consumer"}[role],
        "kv_rank": {"prefill": 0, "decode": 1}[role],
        "kv_parallel_size": 2,
        "kv_buffer_size": _KV_BUFFER_BYTES,
        "kv_ip": _addresses(spec)[0],
        "kv_port": KV_PORT,
        "neuron_core_offset": first_core(spec, role),
    }


def first_core(spec: DisaggregatedPairSpec, role: Role) -> int:
    """The first core of a role, counted over its node: on one node decode has the second half."""
    half = cores_of(spec.shape.devices, spec.shape) // 2
    return half if role == "decode" and spec.instances == 1 else 0


def document(spec: DisaggregatedPairSpec, *, meeting_address: str, meeting_seconds: int) -> dict[str, Any]:
    """What the scripts in the pods read. ``meeting_address`` is the name decode knows prefill by; on one node nobody meets."""
    meets = spec.instances == 2 and spec.serving == "pair"
    return {
        "artifact": artifact(spec).document,
        "meeting": {"address": meeting_address, "port": MEETING_PORT, "seconds": meeting_seconds} if meets else None,
        "servers": {
            role: {"command": list(each.command), "environment": dict(each.environment)} for role, each in servers(spec).items()
        },
    }


def _environment(spec: DisaggregatedPairSpec, role: Role, compiled: Artifact) -> dict[str, str]:
    prefill, decode = _addresses(spec)
    last = first_core(spec, role) + tensor_parallel(spec) - 1
    transfer = {
        # A beta switch, as the tutorial has it.
        "NEURON_RT_ASYNC_SENDRECV_EXPERIMENTAL_ENABLED": "1",
        "NEURON_RT_ASYNC_SENDRECV_BOOTSTRAP_PORT": str(BOOTSTRAP_PORT),
        "NEURON_SEND_IP": prefill,
        "NEURON_RECV_IP": decode,
        "FI_PROVIDER": "efa",
        "FI_EFA_USE_DEVICE_RDMA": "1",
    }
    return {
        "VLLM_NEURON_FRAMEWORK": "neuronx-distributed-inference",
        "NEURON_COMPILED_ARTIFACTS": compiled.folder,
        # Asynchronous execution, which --async-mode was compiled for.
        "NEURON_RT_ASYNC_EXEC_MAX_INFLIGHT_REQUESTS": "2",
        **({"NEURON_RT_VISIBLE_CORES": f"{first_core(spec, role)}-{last}"} if spec.instances == 1 else {}),
        **(transfer if role != "baseline" else {}),
        # All of the model is in the store.
        "HF_HUB_OFFLINE": "1",
    }


def _addresses(spec: DisaggregatedPairSpec) -> tuple[str, str]:
    """Of prefill and decode."""
    return (_LOOPBACK, _LOOPBACK) if spec.instances == 1 else (PREFILL_ADDRESS, DECODE_ADDRESS)


def _own(spec: DisaggregatedPairSpec, role: Role) -> RoleSpec:
    return {"prefill": spec.prefill, "decode": spec.decode}.get(role, RoleSpec())
