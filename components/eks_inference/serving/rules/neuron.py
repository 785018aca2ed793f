"""Rules for model servers of every kind on Neuron devices. Ids NEU…"""

from collections.abc import Iterator
from functools import partial

from eks_inference.accelerators.neuron.plan import cores_of, devices_for_cores, is_legal, needs_scheduler
from eks_inference.catalog.tables import version_numbers
from eks_inference.catalog.versions import neuron_driver_floor, neuron_sdk_driver
from eks_inference.rules import Judgement, ReadRule, rule
from eks_inference.serving.facts import ServingFacts
from eks_inference.serving.rules import any_accelerator, kv_flags
from eks_inference.serving.rules.any_accelerator import accelerator_rule

neuron_rule = partial(accelerator_rule, "neuron")

UNKNOWN_NAMES = ReadRule(
    "NEU001",
    "Instance types and engine profiles are in the catalog.",
    fix="correct the name, or add a row to the catalog",
    source="catalog/instances.toml and catalog/engines.toml, with the source of every row",
)

AMAZON_LINUX_2 = ReadRule(
    "NEU016",
    "Nodes do not run Amazon Linux 2.",
    fix="leave ami out, or say {kind: release}: AL2023 with the driver of the pool's accelerator",
    source="awslabs/amazon-eks-ami#2545: no AL2 image since 26 November 2025, 1.32 was the last Kubernetes version with one; "
    "Neuron release notes: no runtime on AL2 since SDK 2.20",
)

_FEATURE_GUIDE = "NxD Inference feature guide, tensor parallelism"


# -- devices and cores ----------------------------------------------------------------------------------------------------------


@neuron_rule(
    "NEU002",
    "The instance type can give the Neuron devices that a pod asks for.",
    fix="choose one of the allowed numbers of devices",
    source="Neuron scheduler extension, sets of neighbouring devices; EKS user guide, device groups of Trn2",
)
def devices_can_be_given(server: ServingFacts) -> Iterator[Judgement]:
    legal = ", ".join(map(str, server.instance.legal_device_counts))
    exist = server.devices <= server.instance.devices
    yield Judgement(
        holds=is_legal(server.devices, server.instance),
        path=server.at("devices"),
        working=(f"{server.instance.name} has {_devices(server.instance.devices)}; neighbours come in sets of {legal}",),
        message=f"{server.devices} devices of {server.instance.name} are not all neighbours: the Neuron scheduler rejects the pod"
        if exist
        else f"{_devices(server.devices)} on {server.instance.name}, which has {server.instance.devices}",
        given=str(server.devices),
        allowed=legal,
    )


@neuron_rule(
    "NEU003",
    "The devices of a pod have a NeuronCore for each part of the model.",
    fix="ask for more devices, or lower tensor_parallel",
    source="Neuron documentation, architecture pages: NeuronCores of each chip",
)
def cores_suffice(server: ServingFacts) -> Iterator[Judgement]:
    cores = cores_of(server.devices, server.instance)
    yield Judgement(
        holds=server.tensor_parallel <= cores,
        path=server.at("tensor_parallel"),
        working=(_cores_line(server),),
        message=f"tensor_parallel {server.tensor_parallel} is more than the {cores} NeuronCores of a pod",
        given=str(server.tensor_parallel),
        allowed=f"at most {cores}, or {_devices_that_hold(server.tensor_parallel, server)}",
    )


@neuron_rule(
    "NEU004",
    "A pod uses all of its NeuronCores.",
    severity="warning",
    fix="ask for fewer devices, or split the model over more cores",
    source="source system for Llama-3 on Ray Serve: 12 devices for 2 cores; AWS's sample for disaggregated inference: 8 for 8",
)
def no_core_is_idle(server: ServingFacts) -> Iterator[Judgement]:
    cores = cores_of(server.devices, server.instance)
    used = server.copies * server.tensor_parallel
    if not 0 < used <= cores or server.devices > server.instance.devices:
        return
    copies = "1 copy" if server.copies == 1 else f"{server.copies} copies"
    fewest = devices_for_cores(used, server.instance)
    yield Judgement(
        holds=used == cores,
        path=server.at("devices"),
        working=(_cores_line(server), f"{copies} x tensor_parallel {server.tensor_parallel} = {used}; {cores - used} idle"),
        message=f"{cores - used} of the {cores} NeuronCores of a pod are idle",
        given=f"{_devices(server.devices)}, {copies} over {server.tensor_parallel} cores",
        fix=f"ask for {_devices(fewest)}" if fewest < server.devices else "split the model over more cores",
    )


@neuron_rule(
    "NEU005",
    "The engine supports the tensor parallel degree.",
    fix="choose one of the supported degrees",
    source=_FEATURE_GUIDE,
)
def degree_is_supported(server: ServingFacts) -> Iterator[Judgement]:
    degrees = server.engine.tensor_parallel.get(server.instance.family)
    if degrees is None:
        return
    unlisted = server.tensor_parallel in server.instance.unlisted_tensor_parallel
    yield Judgement(
        holds=server.tensor_parallel in degrees,
        path=server.at("tensor_parallel"),
        working=(f"{server.engine.name} on {server.instance.family}: {', '.join(map(str, degrees))}",),
        message=f"no document lists {server.tensor_parallel} cores on {server.instance.family}"
        + (", though AWS has served that way" if unlisted else ""),
        given=str(server.tensor_parallel),
        allowed=", ".join(map(str, degrees)),
        severity="warning" if unlisted else "error",
    )


heads_divide = neuron_rule(
    "NEU006",
    "Attention heads divide evenly among the cores.",
    fix="choose a tensor_parallel that divides the number of heads",
    source=_FEATURE_GUIDE,
)(any_accelerator.heads)


@neuron_rule(
    "NEU007",
    "Each KV head is held only once.",
    severity="warning",
    fix="where the memory is wanted for sequences, split over at most as many cores as the model has KV heads",
    source="NxD Inference, REPLICATE_TO_TP_DEGREE and CONVERT_TO_MHA",
)
def kv_heads_are_held_once(server: ServingFacts) -> Iterator[Judgement]:
    if server.model is None:
        yield server.unknown_model("heads")
        return
    model, degree = server.model, server.tensor_parallel
    held = model.kv_heads_at(degree)
    yield Judgement(
        holds=held == model.kv_heads,
        path=server.at("tensor_parallel"),
        working=(f"{held} KV heads held over {degree} cores / {model.kv_heads} of {model.name} = {held / model.kv_heads:g}",),
        message=f"each of the {model.kv_heads} KV heads is held {held / model.kv_heads:g} times, and so is its KV cache",
        given=str(degree),
        allowed=f"at most {model.kv_heads} for one of each",
    )


memory_suffices = neuron_rule(
    "NEU008",
    "Weights and KV cache fit the memory of a NeuronCore.",
    fix="lower max_num_seqs or max_model_len, or split the model over more cores",
    source="Neuron documentation (memory of each chip; determine_available_memory design); checked against a measurement, "
    "see serving/memory.py",
)(any_accelerator.memory)


@neuron_rule(
    "NEU009",
    "A pod that takes a part of a node's devices goes through the Neuron scheduler.",
    fix="turn the Neuron scheduler on (accelerators.neuron.scheduler)",
    source="aws-neuron-sdk, Neuron scheduler extension: the kubelet alone may pick devices that are not neighbours",
)
def parts_of_nodes_have_a_scheduler(server: ServingFacts) -> Iterator[Judgement]:
    if server.placement.claimed:  # the scheduler of the control plane allocates
        return
    needed = needs_scheduler(server.devices, server.instance)
    given = f"{server.devices} of the {server.instance.devices} devices of {server.instance.name}"
    yield Judgement(
        holds=server.scheduler or not needed,
        path=server.at("devices"),
        working=(f"{given}: the scheduler is {'' if needed else 'not '}needed, and {'' if server.scheduler else 'not '}there",),
        message="needs the Neuron scheduler",
        given=given,
        allowed="1, all, or a scheduler",
    )


# -- engine ---------------------------------------------------------------------------------------------------------------------


@rule(
    "NEU012",
    "The engine is for the chips.",
    fix="choose one of the allowed engine profiles, or another instance type",
    source="Neuron release notes: NxD Inference kernels left Inf2 and Trn1 in SDK 2.29, its successor serves Trn2 and Trn3 only",
)
def engine_is_for_the_chip(server: ServingFacts) -> Iterator[Judgement]:
    if not server.instance.nvidia:
        yield from any_accelerator.engine(server)


engine_knows_the_model = neuron_rule(
    "NEU013",
    "The engine knows the model's architecture.",
    fix="choose another engine profile; what Neuron does not serve runs on GPUs",
    source="model lists of NxD Inference and of vLLM on Neuron, as catalog/engines.toml keeps them",
)(any_accelerator.architecture)


@neuron_rule(
    "NEU014",
    "Flags of the KV cache and of buckets agree with batch and length.",
    fix="leave the flag out: the engine profile sets what is needed",
    source="Neuron documentation, vLLM on Neuron: user guide for NxD Inference (generation C), configuration options (D)",
)
def flags_agree(server: ServingFacts) -> Iterator[Judgement]:
    if buckets := server.engine.generation.buckets:
        yield from kv_flags.buckets_agree(server, buckets)
    if not server.engine.generation.paged:
        yield from kv_flags.blocks_agree(server)
        yield from kv_flags.lengths_agree(server)


@neuron_rule(
    "NEU015",
    "The Neuron driver of the nodes is as new as the image's SDK.",
    severity="warning",
    fix="choose a newer AMI release (ami.release_version), or an engine profile of an older SDK",
    source="Neuron release notes: driver of each SDK; containers of SDK 2.30 and later do not work with drivers up to 2.26",
)
def driver_suits_the_image(server: ServingFacts) -> Iterator[Judgement]:
    engine, driver = server.engine, server.placement.driver
    if driver is None or engine.sdk is None or engine.retired:
        return
    floor = neuron_driver_floor(engine.sdk)
    oldest = engine.minimum_driver or neuron_sdk_driver(engine.sdk)
    broken = floor is not None and version_numbers(driver)[: len(version_numbers(floor))] <= version_numbers(floor)
    yield Judgement(
        holds=not broken and version_numbers(driver) >= version_numbers(oldest),
        path=server.at("engine"),
        working=(
            f"driver on the nodes of pool '{server.placement.pool}': {driver}; SDK of the image: {engine.sdk}",
            f"oldest driver it is known to work with: {oldest}",
            *([f"does not work with drivers up to {floor}"] if floor else []),
        ),
        message=f"containers of Neuron SDK {engine.sdk} do not work with driver {driver}"
        if broken
        else f"Neuron SDK {engine.sdk} is untested with driver {driver}",
        given=driver,
        allowed=f"{oldest} or newer",
        severity="error" if broken else None,
    )


# -- pods -----------------------------------------------------------------------------------------------------------------------


pod_fits = neuron_rule(
    "NEU021",
    "A pod fits a node.",
    fix="ask for less CPU or memory, or leave them out for the devices' share",
    source="Kubernetes node allocatable as AL2023 reserves it; DaemonSets' requests inferred",
)(any_accelerator.pod)


ports_agree = neuron_rule(
    "NEU022",
    "The engine listens where the Service leads.",
    fix="leave --port out",
    source="vLLM documentation, --port (default 8000)",
)(any_accelerator.ports)


@neuron_rule(
    "NEU023",
    "Compiled graphs outlive the pod.",
    severity="warning",
    fix="keep the compile cache in S3 or on a volume",
    source="Neuron documentation, compile cache; cold compilations of 15 to 30 minutes",
)
def compiled_graphs_are_kept(server: ServingFacts) -> Iterator[Judgement]:
    seconds = server.startup.compile_s
    yield Judgement(
        holds=server.compile_cache,
        path=server.at("compile_cache"),
        working=(f"every start may compile for up to {seconds} s",),
        message=f"every pod start compiles again, which may take {seconds // 60} minutes",
        given="none",
    )


@neuron_rule(
    "NEU025",
    "A pod has the host memory to hold the weights while they are loaded.",
    severity="warning",
    fix="ask for more memory, or choose an instance type with more",
    source="inferred: NxD Inference reads and splits the whole checkpoint on the host before it goes to the devices; it "
    "takes a folder that pods download first as it is, and only what it downloads itself as float32",
)
def weights_fit_the_host(server: ServingFacts) -> Iterator[Judgement]:
    if server.model is None:
        yield server.unknown_model("host memory")
        return
    if not server.memory_mib:
        return
    copies = max(server.copies, 1)
    weights = server.model.weight_bytes() / 1024**3
    memory = server.memory_mib / 1024
    yield Judgement(
        holds=copies * weights <= memory,
        path=server.at("memory"),
        working=(f"{copies} x {weights:.1f} GiB = {copies * weights:.1f} GiB; memory of the pod: {memory:.1f} GiB",),
        message=f"loading {server.model.name} may take {copies * weights:.0f} GiB of host memory, and the pod has {memory:.0f}",
        given=f"{memory:.0f} GiB",
        allowed=f"at least {copies * weights:.0f} GiB",
    )


def _devices(count: int) -> str:
    return f"{count} Neuron device{'' if count == 1 else 's'}"


def _cores_line(server: ServingFacts) -> str:
    per_device = server.instance.cores_per_device
    return f"{_devices(server.devices)} x {per_device} cores = {cores_of(server.devices, server.instance)} NeuronCores"


def _devices_that_hold(cores: int, server: ServingFacts) -> str:
    try:
        return _devices(devices_for_cores(cores, server.instance))
    except ValueError:
        return "a larger instance type"
