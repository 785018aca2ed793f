"""Plans the processes of a pair: their commands, environment, ports and cores, and how long they take to start. Pure functions;
no pulumi.

Commands and environment contain the placeholders ``PREFILL_ADDRESS`` and ``DECODE_ADDRESS`` for addresses that only the pods
know. ``assets/start.py`` replaces them.

Sources: Neuron documentation, "Tutorial: Disaggregated Inference on Trn2" (server.sh, baseline_server.sh); vLLM of
aws-neuron/upstreaming-to-vllm (``distributed/kv_transfer/neuron``: the handshake, its port, core offsets); ai-on-eks,
vllm-llama3.1-405b-trn1 (libfabric variables).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from eks_inference.accelerators.neuron.plan import cores_of
from eks_inference.catalog.times import Typical, phase_time
from eks_inference.catalog.vllm_arguments import vllm_releases
from eks_inference.place.placement import Placement
from eks_inference.serving.cold_start import Phase, moved, pull
from eks_inference.serving.disaggregated.parts import artifact, model_folder, tensor_parallel
from eks_inference.serving.disaggregated.spec import DisaggregatedPairSpec, RoleSpec
from eks_inference.serving.flags import flags
from eks_inference.storage.plan import node_mib_s

Role = Literal["prefill", "decode", "baseline"]

API_PORT = 8000
"""Port that clients call: on the router, or on the baseline server."""

SERVER_PORTS: Mapping[Role, int] = {"prefill": 8100, "decode": 8200, "baseline": API_PORT}
"""HTTP port of each server: API, health and metrics."""

KV_PORT = 14579
"""Port of prefill for the handshake and then requests for KV caches: the engine's default, which the source system uses."""

BOOTSTRAP_PORT = 45645
"""Port of both servers on which the Neuron runtimes negotiate a transfer."""

MEETING_PORT = 14580
"""Port of prefill on which our scripts exchange the addresses of two pods before the servers start."""

PREFILL_ADDRESS = "@PREFILL_ADDRESS@"
DECODE_ADDRESS = "@DECODE_ADDRESS@"

_LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Server:
    """The process of one server."""

    role: Role
    port: int
    command: tuple[str, ...]
    environment: Mapping[str, str]


def servers(spec: DisaggregatedPairSpec) -> dict[Role, Server]:
    """Returns the servers that run: prefill and decode, or the baseline in their place."""
    roles: tuple[Role, ...] = ("prefill", "decode") if spec.serving == "pair" else ("baseline",)
    return {role: server(spec, role) for role in roles}


def pod_of(spec: DisaggregatedPairSpec, role: Role) -> str:
    """Returns the role label of the pod that runs a server."""
    return "pair" if role != "baseline" and spec.instances == 1 else role


def roles_by_pod(spec: DisaggregatedPairSpec) -> dict[str, list[Role]]:
    """Returns the servers in each pod, by the role label of the pod."""
    held: dict[str, list[Role]] = {}
    for role in servers(spec):
        held.setdefault(pod_of(spec, role), []).append(role)
    return held


def role_settings(spec: DisaggregatedPairSpec, role: Role) -> RoleSpec:
    """Returns the settings of only one server."""
    return {"prefill": spec.prefill, "decode": spec.decode}.get(role, RoleSpec())


def server(spec: DisaggregatedPairSpec, role: Role) -> Server:
    """Returns one server, whether or not it runs."""
    own, release = role_settings(spec, role), vllm_releases().get(spec.profile.vllm)
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
        *spec.profile.flags(max_num_seqs=spec.max_num_seqs, max_model_len=spec.max_model_len, model=spec.model.known),
        *flags(extra, release.several if release else ()),
    )
    return Server(role, SERVER_PORTS[role], command, {**_environment(spec, role), **spec.extra_env, **own.extra_env})


def kv_transfer(spec: DisaggregatedPairSpec, role: Role) -> dict[str, Any]:
    """Returns the ``--kv-transfer-config`` of a role. ``kv_ip`` is prefill's address: prefill listens there, decode connects."""
    return {
        "kv_connector": "NeuronConnector",
        "kv_buffer_device": "cpu",
        "kv_role": {"prefill": "kv_producer", "decode": "kv_consumer"}[role],
        "kv_rank": {"prefill": 0, "decode": 1}[role],
        "kv_parallel_size": 2,
        "kv_buffer_size": 2e11,  # bytes, as in the source system
        "kv_ip": _addresses(spec)[0],
        "kv_port": KV_PORT,
        "neuron_core_offset": first_core(spec, role),
    }


def first_core(spec: DisaggregatedPairSpec, role: Role) -> int:
    """Returns the first core of a role, numbered over its node: on a shared node decode has the second half."""
    half = cores_of(spec.shape.devices, spec.shape) // 2
    return half if role == "decode" and spec.instances == 1 else 0


def document(spec: DisaggregatedPairSpec, *, meeting_address: str, meeting_seconds: int) -> dict[str, Any]:
    """Returns what the scripts in the pods read. Only pods on two nodes meet: decode finds prefill at ``meeting_address``."""
    meets = spec.instances == 2 and spec.serving == "pair"
    return {
        "artifact": artifact(spec).document,
        "meeting": {"address": meeting_address, "port": MEETING_PORT, "seconds": meeting_seconds} if meets else None,
        "servers": {
            role: {"command": list(each.command), "environment": dict(each.environment)} for role, each in servers(spec).items()
        },
    }


def _environment(spec: DisaggregatedPairSpec, role: Role) -> dict[str, str]:
    prefill, decode = _addresses(spec)
    last = first_core(spec, role) + tensor_parallel(spec) - 1
    transfer = (
        {}
        if role == "baseline"
        else {
            # A beta switch, from the tutorial.
            "NEURON_RT_ASYNC_SENDRECV_EXPERIMENTAL_ENABLED": "1",
            "NEURON_RT_ASYNC_SENDRECV_BOOTSTRAP_PORT": str(BOOTSTRAP_PORT),
            "NEURON_SEND_IP": prefill,
            "NEURON_RECV_IP": decode,
            "FI_PROVIDER": "efa",
            "FI_EFA_USE_DEVICE_RDMA": "1",
            # On one node libfabric would take shared memory. With NIXL answers are then wrong (aws-neuron-sdk, vllm-neuron,
            # tutorial-di-1p1d-xpyd); nobody says so of this connector, and the check of EFA tests the path without it (efa.py).
            **({"FI_EFA_ENABLE_SHM_TRANSFER": "0"} if spec.instances == 1 else {}),
            # What a server says is its address. Later forms of the connector connect to it instead of NEURON_RECV_IP.
            "VLLM_HOST_IP": {"prefill": prefill, "decode": decode}[role],
        }
    )
    return {
        "VLLM_NEURON_FRAMEWORK": "neuronx-distributed-inference",
        "NEURON_COMPILED_ARTIFACTS": artifact(spec).folder,
        # Asynchronous execution, which the model is compiled for (--async-mode).
        "NEURON_RT_ASYNC_EXEC_MAX_INFLIGHT_REQUESTS": "2",
        **({"NEURON_RT_VISIBLE_CORES": f"{first_core(spec, role)}-{last}"} if spec.instances == 1 else {}),
        **transfer,
        # The store has the complete model.
        "HF_HUB_OFFLINE": "1",
    }


def _addresses(spec: DisaggregatedPairSpec) -> tuple[str, str]:
    """Returns the addresses of prefill and decode."""
    return (_LOOPBACK, _LOOPBACK) if spec.instances == 1 else (PREFILL_ADDRESS, DECODE_ADDRESS)


def cold_start(spec: DisaggregatedPairSpec, placement: Placement) -> tuple[Phase, ...]:
    """Returns the phases from nothing to the first answer, in their order.

    One Job writes the model into the store. Another reads it and writes it once more, split up by core. Each server reads all
    parts. Downloading and compiling end at the limits of their Jobs, whatever the store needs.
    """
    startup = spec.profile.startup
    return (
        Phase("a node starts", startup.node_start_s),
        pull(spec.profile, placement),
        download(spec),
        compilation(spec),
        load(spec),
    )


def download(spec: DisaggregatedPairSpec) -> Phase:
    """Returns the phase in which a Job downloads the model."""
    return _stored(spec, "a Job downloads the model", 1, spec.download_timeout_minutes * 60, phase_time("download"))


def compilation(spec: DisaggregatedPairSpec) -> Phase:
    """Returns the phase in which a Job compiles the model."""
    copies = 2 if spec.compile.save_sharded_checkpoint else 1
    return _stored(spec, "a Job compiles it", copies, spec.compile_timeout_minutes * 60)


def load(spec: DisaggregatedPairSpec) -> Phase:
    """Returns the phase in which the servers load the model, which is waited for as long as the store needs."""
    by_pod = [len(roles) for roles in roles_by_pod(spec).values()]
    # EFS has a throughput for each node, and FSx for Lustre one that all nodes share.
    copies = max(by_pod) if spec.store.file_system == "efs" else sum(by_pod)
    return _stored(spec, "the servers load it", copies, spec.profile.startup.load_s)


def _stored(spec: DisaggregatedPairSpec, what: str, copies: int, limit_s: int, rate: Typical | None = None) -> Phase:
    model = spec.model.known
    content = (model.name, copies, model.weight_bytes() / 1e9) if model else None
    return moved(what, limit_s, content, node_mib_s(spec.store), "the store", rate)
