"""A stack file around a model in a place where it fits: its text, with comments. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from eks_inference.accelerators.neuron.plan import needs_scheduler
from eks_inference.catalog.instances import InstanceType, instance_type, instance_types
from eks_inference.catalog.zones import zone_ids
from eks_inference.cluster.spec import ClusterSpec
from eks_inference.network.plan import choose_zones
from eks_inference.observability.spec import MONITORS
from eks_inference.pools.node_plan import root_volume_gib
from eks_inference.pools.spec import ManagedPoolSpec
from eks_inference.serving.memory import GIB
from eks_inference.serving.spec import HubModel
from eks_inference.specs.settings import SharedSettings
from eks_inference.stack.defaults import CORE_POOL
from eks_inference.stack.rules import BESIDE_THE_MODEL_GIB
from eks_inference_tools.fitting.pace import Traffic
from eks_inference_tools.fitting.search import Row
from eks_inference_tools.fitting.trials import ACCELERATED, CORE
from stackgraph.graph.wording import counted
from stackgraph.recorder.yaml_file import block, flow

_ZONES = 2
"""The fewest that an EKS control plane takes."""
_DISK_STEP_GIB = 100
_SIZE = ("architecture", "vcpus", "memory_mib")

_OPEN = "open to all addresses until you narrow cluster.endpoint.public_access_cidrs; every request needs an IAM principal"
_SCARCE = "the file names no reservation: before `pulumi up`, set capacity_reservation_id of pool accelerated to yours"

TOKEN = "eks-inference:huggingFaceToken"

TAKEN = (*(key for key in SharedSettings.model_fields if key != "silenced"), "addons", "karpenter", "scaling", "observability")
"""Sections that are taken from ``like`` as they are. Others are written for the model, or name servers, hosts or instance types
of the stack that ``like`` is."""


@dataclass(frozen=True)
class Order:
    """What a stack file is written from."""

    name: str
    row: Row
    model: Mapping[str, Any]
    """The key ``model`` of the server."""
    like: Mapping[str, Any] | None = None
    """The stack object that settings of the whole stack are taken from."""
    catalog: tuple[str, ...] = ()
    """Files with rows of one's own, by their paths in the project."""
    traffic: Traffic | None = None

    @property
    def region(self) -> str:
        return self.row.offer.region

    @property
    def secrets(self) -> tuple[str, ...]:
        """Keys of the configuration that somebody has to set: the token for a gated repository."""
        return (TOKEN,) if HubModel.model_validate({**self.row.trial.source}).needs_token else ()


def stack_file(order: Order) -> str:
    """Returns the text. Raises ``SpecError`` where the region has too few zones for the instance type and the core nodes."""
    trial = order.row.trial
    instance = trial.instance
    head = (
        "# yaml-language-server: $schema=schema.json",
        "#",
        f"# {trial.model.name} on {instance.name}: one vLLM server. `eks-inference new` wrote this file. Change what you like:",
        "# `eks-inference check` judges it.",
        "config:",
        f"  aws:region: {order.region}",
        "  eks-inference:stack:",
    )
    body = [line for section in _sections(order) for line in section]
    return "\n".join([*head, *(f"    {line}" if line else "" for line in body)]) + "\n"


def _sections(order: Order) -> Iterator[list[str]]:
    like, instance = dict(order.like or {}), order.row.trial.instance
    yield [f"name: {order.name}"]
    yield _written("catalog", list(order.catalog)) if order.catalog else []
    yield from (_written(key, _without_others(value, instance)) for key, value in like.items() if key in TAKEN)
    if not like:
        yield ["tags:", "  project: eks-inference"]
    yield _written("silenced", _silenced(order)) if _silenced(order) else []
    yield _network(order)
    yield _written("cluster", like["cluster"]) if "cluster" in like else _cluster()
    yield ["pools:", *_indented(_core(order)), *_indented(_accelerated(order))]
    yield _accelerators(order) if instance.neuron else ["accelerators:", "  nvidia: {}"]
    yield ["servers:", f"  {order.name}:", *_indented(_indented(list(_server(order))))]


def _without_others(value: Any, instance: InstanceType) -> Any:
    """Returns the section with monitors for the devices of the instance type alone."""
    others = [key for key, devices in MONITORS.items() if devices != instance.accelerator]
    return {key: one for key, one in value.items() if key not in others} if isinstance(value, Mapping) else value


def _silenced(order: Order) -> dict[str, str]:
    """The rules that the file breaks knowingly, with reasons; those of another stack's own parts stay there."""
    found = {} if order.like else {"AWS001": _OPEN}
    given = (order.like or {}).get("silenced", {})
    found |= {rule: reason for rule, reason in given.items() if rule[:3] in ("AWS", "OBS", "NET", "K8S")}
    return found | ({"POO007": _SCARCE} if order.row.trial.instance.needs_reservation else {})


def _network(order: Order) -> list[str]:
    instance = order.row.trial.instance
    like = {key: value for key, value in (order.like or {}).get("network", {}).items() if key not in ("zones", "zone_ids")}
    settings = like or {"nat": "single", "endpoints": ["s3"]}
    which = f"; the node with accelerators is in one that offers {instance.family}" if _zones_of(order) else ""
    return [
        "network:",
        f"  # Two zones of {order.region}{which}.",
        f"  zone_ids: {flow(_zones(order))}",
        *(f"  {key}: {flow(value)}" for key, value in settings.items()),
    ]


def _zones(order: Order) -> list[str]:
    """The zones of the network."""
    core = _core_pool(order).get("instance_types", ())[:1]
    return list(choose_zones(order.region, [*core, order.row.trial.instance.name], _ZONES))


def _zones_of(order: Order) -> list[str]:
    """Those of them that offer the instance type; empty where nobody told."""
    offered = zone_ids(order.region, order.row.trial.instance.name)
    return [zone for zone in _zones(order) if zone in offered]


def _cluster() -> list[str]:
    return [
        "cluster:",
        f"  version: {flow(ClusterSpec().version)}",
        "  endpoint:",
        "    # `pulumi up` and kubectl work from anywhere with this setting. Narrow it to your own addresses.",
        "    public: true",
        "    public_access_cidrs: [0.0.0.0/0]",
    ]


def _core_pool(order: Order) -> Mapping[str, Any]:
    """The settings of the core pool: those of ``like``, or the usual ones with a type of that size that the region has."""
    like = order.like or {}
    settings = like.get("pools", {}).get(like.get("core_pool", CORE), {})
    if settings:
        return {key: value for key, value in settings.items() if key != "zone_ids"}
    (usual,) = CORE_POOL["instance_types"]
    there = (one for one in _as_large(instance_type(usual)) if zone_ids(order.region, one.name))
    return {**CORE_POOL, "instance_types": [next((one.name for one in there), usual)]}


def _as_large(usual: InstanceType) -> Iterator[InstanceType]:
    """The instance type, then others without accelerators that have as much CPU and memory."""
    yield usual
    for one in instance_types().values():
        if not one.accelerator and all(getattr(one, each) == getattr(usual, each) for each in _SIZE):
            yield one


def _core(order: Order) -> list[str]:
    return [
        "# DNS, controllers and whatever else needs no accelerator.",
        f"{CORE}:",
        *(f"  {key}: {flow(value)}" for key, value in _core_pool(order).items()),
    ]


def _accelerated(order: Order) -> list[str]:
    trial = order.row.trial
    instance = trial.instance
    nodes = order.row.sized.nodes if order.row.sized else 1
    there = "One node, which" if nodes == 1 else f"{nodes} nodes, each of which"
    lines = [
        f"# {there} has devices for {counted(trial.pods, 'pod')} of the server. More replicas than that need a larger size.",
        f"{ACCELERATED}:",
        "  kind: managed",
        f"  instance_types: [{instance.name}]",
        f"  size: {nodes}",
    ]
    if offered := _zones_of(order):
        lines += [f"  zone_ids: {flow(offered)}"]
    else:
        lines += [f"  # Give zone_ids: the network's zones that offer {instance.family}, which are not known here."]
    if disk := _disk_gib(order):
        lines += ["  # Image and weights.", f"  root_volume_gib: {disk}"]
    if instance.needs_reservation:
        lines += [
            "  # EC2 does not have this type on demand. Give the reservation that the node comes from, and for a",
            "  # capacity block also capacity_type: capacity_block and one zone.",
            "  # capacity_reservation_id: cr-0123456789abcdef0",
        ]
    return lines


def _disk_gib(order: Order) -> int | None:
    """The size of the root disk, where the default is too small and images are not on local disks."""
    trial = order.row.trial
    if trial.instance.nvme_gb:
        return None
    weights = trial.pods * trial.model.weight_bytes() / GIB
    needed = BESIDE_THE_MODEL_GIB + max(weights, (trial.server or {}).get("disk_gib", 0))
    usual = root_volume_gib(ManagedPoolSpec(instance_types=(trial.instance.name,), size=1))
    return None if needed <= usual else int(-(-needed // _DISK_STEP_GIB) * _DISK_STEP_GIB)


def _accelerators(order: Order) -> list[str]:
    trial = order.row.trial
    if needs_scheduler(trial.devices, trial.instance):
        why = f"A pod takes {trial.devices} of the {trial.instance.devices} devices of a node, which must be neighbours."
        return ["accelerators:", f"  # {why}", "  neuron: {scheduler: true}"]
    return [
        "accelerators:",
        "  # A pod takes one device or all of a node, so nothing has to choose neighbours.",
        "  neuron: {scheduler: false}",
    ]


def _server(order: Order) -> Iterator[str]:
    trial = order.row.trial
    unit = "NeuronCores" if trial.instance.neuron else "GPUs"
    comments = {
        "tensor_parallel": f"One copy of the model over this many {unit}.",
        "max_model_len": f"Tokens of prompt and answer together; the model was made for at most {trial.model.max_positions}.",
        "max_num_seqs": f"The batch that is compiled. There is room for {counted(trial.sequences, 'sequence')} of the longest."
        if trial.instance.neuron
        else f"Sequences at once. The KV cache holds {trial.sequences} of the longest; what it cannot hold waits.",
        "quantized_weights": "The engine converts the weights when it starts.",
        "quantized_kv": "Twice the sequences in the same memory; the checkpoint has no scales for it, so answers degrade."
        if order.row.degrades
        else "Twice the sequences in the same memory, slightly different answers.",
        "extra_args": "Prompts are computed in smaller pieces: tokens of other answers wait for them.",
        "task": "sentence-transformers reads the repository (modules.json).",
        "disk_gib": "Twice the weights: what a pod downloads and writes.",
    }
    if order.secrets:
        comments["model"] = f"Gated: accept its licence on the Hub, then `pulumi config set --secret {TOKEN}`."
    sized = order.row.sized
    replicas = {"replicas": sized.replicas} if sized else {}
    if sized:
        took = sized.answered
        comments["replicas"] = (
            f"Enough for the traffic, with spare replicas: 95 of 100 first tokens within {took.first_token[95] * 1e3:.0f} ms, "
            f"95 of 100 tokens within {took.token[95] * 1e3:.0f} ms."
        )
    told = HubModel.model_validate({**trial.source}).known
    task = {"task": trial.model.task} if told and told.task != trial.model.task else {}
    for key, value in {**(trial.server or {}), **task, **replicas, **_traffic(order), "model": dict(order.model)}.items():
        if key in comments:
            yield f"# {comments[key]}"
        yield f"{key}: {flow(value)}"


def _traffic(order: Order) -> dict[str, Any]:
    """What was asked for, so that `check` judges it."""
    if not (asked := order.traffic):
        return {}
    wanted = {"time_to_first_token_seconds": asked.first_token_s, "time_between_tokens_seconds": asked.token_s}
    objectives = {key: seconds for key, seconds in wanted.items() if seconds is not None}
    found = {"traffic": {"rate": asked.rate, "input_tokens": asked.input, "output_tokens": asked.output}}
    return found | ({"objectives": objectives} if objectives else {})


def _written(key: str, value: Any) -> list[str]:
    """A section without comments."""
    return block({key: value}, width=120).splitlines()


def _indented(lines: list[str]) -> list[str]:
    return [f"  {line}" for line in lines]
