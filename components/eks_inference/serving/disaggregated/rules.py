"""Rules about prefill and decode pairs. Their ids begin with DI.

Sources: Neuron documentation, "Disaggregated Inference" (guide and tutorial for Trn2), "nrt_async_sendrecv"; vLLM of
aws-neuron/upstreaming-to-vllm, ``distributed/kv_transfer/neuron``; NxD Inference API guide.
"""

import math
from collections.abc import Iterator

from eks_inference.catalog.nixl import connector
from eks_inference.pools.node_spec import ExistingPlacementGroup
from eks_inference.pools.plan import makes_placement_group
from eks_inference.pools.spec import ManagedPoolSpec
from eks_inference.rules import Judgement, not_judged, rule
from eks_inference.serving.cold_start import MARGIN
from eks_inference.serving.disaggregated.facts import DisaggregatedFacts
from eks_inference.serving.disaggregated.pair_processes import compilation, download
from eks_inference.serving.facts import ServingFacts
from eks_inference.serving.flags import flag

CONNECTOR = "NeuronConnector"

_GUIDE = "Neuron documentation, Disaggregated Inference on Trn2"


@rule(
    "DI001",
    "The pair runs where its transfer works: the engine has the connector, which supports the chip, and the nodes have EFA.",
    fix="use engine neuron-2.26-vllm-0.9 on a managed pool of trn2.48xlarge with efa",
    source=f"{_GUIDE}: even one instance needs EFA",
)
def transfer_is_supported(pair: DisaggregatedFacts) -> Iterator[Judgement]:
    engine, instance = pair.engine, pair.placement.instance_type
    transfer = connector(CONNECTOR)
    reason, offered = transfer.reason_against(instance), ", ".join(transfer.instance_types)
    yield Judgement(
        holds=CONNECTOR in engine.kv_connectors,
        path=pair.at("engine"),
        working=(f"connectors of {engine.name}: {', '.join(engine.kv_connectors) or 'none'}; needed: {CONNECTOR}",),
        message=f"engine {engine.name} has no {CONNECTOR}",
        given=engine.name,
    )
    yield Judgement(
        holds=not reason,
        path=pair.at("instance_type"),
        working=(f"supported: {offered}; the servers run on {instance.name}",),
        message=f"a pair does not run on {instance.name}: {reason}",
        given=instance.name,
        allowed=offered,
    )
    yield Judgement(
        holds=pair.placement.efa_interfaces > 0,
        path=pair.at("pool"),
        working=(f"EFA interfaces of a node of pool '{pair.placement.pool}': {pair.placement.efa_interfaces}",),
        message=f"the nodes of pool '{pair.placement.pool}' have no EFA, which carries the KV cache even on one node",
        given=pair.placement.pool,
        allowed=f"a managed pool with efa: {{}} and an instance type that has it ({instance.name}: {instance.efa_interfaces})",
    )


@rule(
    "DI002",
    "Both servers start with the settings of the compiled artifact.",
    fix="remove the flag: both servers take the value from the pair's own setting",
    source="vLLM on NxD Inference loads an artifact regardless of flags; the transfer maps core to core and slot to slot",
)
def servers_match_the_artifact(pair: DisaggregatedFacts) -> Iterator[Judgement]:
    compiled = pair.artifact.inputs
    for fact, wanted in (
        ("tensor_parallel", str(compiled["tensor_parallel"])),
        ("max_num_seqs", str(compiled["max_num_seqs"])),
        ("max_model_len", str(compiled["max_model_len"])),
        ("artifact", pair.artifact.folder),
    ):
        given = {role.role: getattr(role, fact) for role in pair.roles}
        differing = [role for role, value in given.items() if value != wanted]
        yield Judgement(
            holds=not differing,
            path=pair.at(differing[0] if len(differing) == 1 else fact),
            working=(f"{fact}: compiled {wanted}, " + ", ".join(f"{role} {value}" for role, value in given.items()),),
            message=f"{' and '.join(differing)} would run with another {fact} than the model is compiled for",
            given=", ".join(f"{role} {given[role]}" for role in differing),
            allowed=wanted,
        )
    logical = pair.placement.logical_cores or pair.placement.instance_type.default_logical_core_setting
    yield Judgement(
        holds=compiled["logical_cores"] == logical,
        path=pair.at("compile", "logical_nc_config"),
        working=(
            f"logical cores (LNC): compiled for {compiled['logical_cores']}, nodes of pool '{pair.placement.pool}' {logical}",
        ),
        message=f"the model is compiled for LNC {compiled['logical_cores']}, and the nodes have LNC {logical}",
        given=str(compiled["logical_cores"]),
        allowed=str(logical),
        fix="set compile.logical_nc_config and the pool's logical_cores to the same value",
    )
    compile_ = pair.spec.compile
    tiled = ["cc_pipeline_tiling_factor"] if compile_.cc_pipeline_tiling_factor != 1 else []
    for option in (*compile_.extra_args, *tiled):
        yield not_judged(
            "meaning",
            f"--{option.replace('_', '-')} of inference_demo",
            pair.at("compile", *(() if option in tiled else ("extra_args",)), option),
            why="the options of inference_demo, and what each does to the artifact, are not listed here",
            fix="compare it with the NxD Inference API guide; a wrong one ends the compile Job",
        )


@rule(
    "DI004",
    "Neither server uses prefix caching.",
    fix="leave prefix caching off",
    source="Neuron documentation, Disaggregated Inference: automatic prefix caching is not supported",
)
def prefix_caching_is_off(pair: DisaggregatedFacts) -> Iterator[Judgement]:
    for role in pair.roles:
        yield Judgement(
            holds=not role.caches_prefixes,
            path=pair.at(role.role),
            working=(f"{role.role} is started with{'' if role.caches_prefixes else 'out'} prefix caching",),
            message=f"{role.role} is started with prefix caching, which a pair does not support",
            given="on",
            allowed="off",
        )


@rule(
    "DI005",
    "Each server has its own cores, and its core offset matches.",
    fix="leave NEURON_RT_VISIBLE_CORES and neuron_core_offset to the library, or lower tensor_parallel",
    source="Neuron runtime, nrt_async_sendrecv: core ids are numbered over the host; one communicator per visible core",
)
def cores_are_disjoint(pair: DisaggregatedFacts) -> Iterator[Judgement]:
    prefill, decode = pair.prefill, pair.decode
    shares = 2 if pair.spec.instances == 1 else 1
    degree = pair.artifact.inputs["tensor_parallel"]
    yield Judgement(
        holds=shares * degree <= pair.cores,
        path=pair.at("tensor_parallel"),
        working=(f"{shares} x {degree} = {shares * degree} of the {pair.cores} cores of a node",),
        message=f"the servers need {shares * degree} cores on a node that has {pair.cores}",
        given=str(degree),
        allowed=f"at most {pair.cores // shares}",
    )
    if pair.spec.instances == 1:
        yield Judgement(
            holds=min(prefill.seen.stop, decode.seen.stop) <= max(prefill.seen.start, decode.seen.start),
            path=pair.at("decode"),
            working=(f"cores of prefill {prefill.cores}, of decode {decode.cores}",),
            message="prefill and decode would share cores",
            given=f"{prefill.cores} and {decode.cores}",
        )
    for role in pair.roles:
        first, count = role.seen.start, len(role.seen)
        yield Judgement(
            holds=str(role.core_offset) == str(first) and count == (degree if shares == 2 else pair.cores),
            path=pair.at(role.role),
            working=(f"{role.role}: cores {role.cores} = {count}, neuron_core_offset {role.core_offset}",),
            message=f"the transfer of {role.role} would use other cores than its model",
            given=f"cores {role.cores}, neuron_core_offset {role.core_offset}",
            allowed=f"neuron_core_offset {first}, {degree} cores",
        )


@rule(
    "DI006",
    "Both servers have the same addresses for the transfer.",
    fix="leave kv_ip, NEURON_SEND_IP and NEURON_RECV_IP to the library",
    source="vLLM of aws-neuron/upstreaming-to-vllm: prefill listens at kv_ip, decode connects to it",
)
def addresses_agree(pair: DisaggregatedFacts) -> Iterator[Judgement]:
    prefill, decode = (
        {
            "kv_ip": role.transfer.get("kv_ip"),
            "kv_port": role.transfer.get("kv_port"),
            "NEURON_SEND_IP": role.send_address,
            "NEURON_RECV_IP": role.receive_address,
        }
        for role in pair.roles
    )
    for what, value in prefill.items():
        yield Judgement(
            holds=value == decode[what],
            path=pair.at("decode"),
            working=(f"{what}: prefill {value}, decode {decode[what]}",),
            message=f"prefill and decode have different values of {what}: they would wait for each other forever",
            given=f"{value}, {decode[what]}",
        )
    kv_ip, address = prefill["kv_ip"], pair.prefill.send_address
    yield Judgement(
        holds=kv_ip == address,
        path=pair.at("prefill"),
        working=(f"kv_ip {kv_ip}, address of prefill {address}",),
        message="kv_ip is not the address of prefill",
        given=str(kv_ip),
        allowed=address,
    )


@rule(
    "DI007",
    "The pool has enough nodes for the pair, close to each other.",
    fix="give the pool a size of at least instances, a single zone, and its default placement group",
    source=f"{_GUIDE}; EC2 user guide, Elastic Fabric Adapter: traffic stays within a zone; cluster placement groups",
)
def nodes_are_neighbours(pair: DisaggregatedFacts) -> Iterator[Judgement]:
    placement, needed = pair.placement, pair.spec.instances
    if placement.max_nodes is not None:
        yield Judgement(
            holds=placement.max_nodes >= needed,
            path=pair.at("instances"),
            working=(f"nodes of pool '{placement.pool}': {placement.max_nodes}; the pair needs {needed}",),
            message=f"pool '{placement.pool}' has {placement.max_nodes} of {needed} nodes: one server would never get a node",
            given=str(placement.max_nodes),
            allowed=f"at least {needed}",
        )
    if needed == 1:
        return
    yield Judgement(
        holds=len(placement.zone_ids) <= 1,
        path=pair.at("pool"),
        working=(f"zones of pool '{placement.pool}': {', '.join(placement.zone_ids) or 'unknown'}",),
        message="the two nodes may start in different zones, and EFA does not cross zones",
        given=", ".join(placement.zone_ids),
        allowed="one zone",
    )
    if not isinstance(pair.pool, ManagedPoolSpec):
        return
    # A reservation determines where its nodes are: a placement group would not move them, and might keep them from starting.
    reserved = pair.pool.reserved
    grouped = makes_placement_group(pair.pool) or isinstance(pair.pool.placement, ExistingPlacementGroup)
    where = "in a placement group" if grouped else "in a capacity reservation" if reserved else "wherever there is capacity"
    yield Judgement(
        holds=grouped or reserved,
        path=pair.at("pool"),
        working=(f"nodes of pool '{placement.pool}' start {where}",),
        message="without a placement group the two nodes may be far apart, and every request moves its KV cache between them",
        given="placement: none",
        allowed="auto, or the name of a group",
        severity="warning",
    )


@rule(
    "DI010",
    "Servers that exchange KV caches by NIXL on one node do not use shared memory.",
    fix="set FI_EFA_ENABLE_SHM_TRANSFER=0 in extra_env",
    source="vllm-neuron documentation, disaggregated inference with NIXL: single host",
)
def nixl_uses_efa(server: ServingFacts) -> Iterator[Judgement]:
    transfer = flag(server.arguments, "kv-transfer-config") or ""
    if "NixlConnector" not in transfer or server.devices >= server.instance.devices:
        return
    given = server.environment.get("FI_EFA_ENABLE_SHM_TRANSFER")
    yield Judgement(
        holds=given == "0",
        path=server.at("extra_env"),
        working=(
            f"{server.devices} of {server.instance.devices} devices: another server may be on the node",
            f"FI_EFA_ENABLE_SHM_TRANSFER: {given or 'not set'}",
        ),
        message="libfabric uses shared memory between servers on one node: the engine starts, and answers are wrong",
        given=given or "not set",
        allowed="0",
    )


@rule(
    "DI011",
    "The image contains the libraries for EFA.",
    severity="warning",
    fix="use the engine profile's image, or one that runs the EFA installer",
    source="Dockerfiles of aws-neuron/deep-learning-containers: images contain EFA since SDK 2.26",
)
def image_contains_efa(pair: DisaggregatedFacts) -> Iterator[Judgement]:
    if pair.spec.image not in (None, pair.engine.image):
        return
    yield Judgement(
        holds=pair.engine.efa_userspace,
        path=pair.at("engine"),
        working=(f"image of {pair.engine.name}: {'with' if pair.engine.efa_userspace else 'without'} EFA libraries",),
        message=f"the image of {pair.engine.name} is not known to contain EFA libraries: communicators time out after a minute",
        given=pair.engine.image,
    )


@rule(
    "DI014",
    "The model is compiled for every length up to max_model_len.",
    fix="remove the buckets: they follow from max_model_len",
    source="NxD Inference API guide, buckets and sequence parallelism",
)
def buckets_cover_all_lengths(pair: DisaggregatedFacts) -> Iterator[Judgement]:
    options, longest = pair.spec.compile, pair.spec.max_model_len
    if not options.enable_bucketing:
        return
    degree = pair.artifact.inputs["tensor_parallel"]
    for name, buckets in (
        ("context_encoding_buckets", options.context_buckets(longest)),
        ("token_generation_buckets", options.generation_buckets(longest)),
    ):
        yield Judgement(
            holds=list(buckets) == sorted(set(buckets)) and buckets[-1] == longest,
            path=pair.at("compile", name),
            working=(f"{name}: {', '.join(map(str, buckets))}; max_model_len {longest}",),
            message=f"the last of {name} is not max_model_len, or they do not ascend",
            given=", ".join(map(str, buckets)),
            allowed=f"ascending, up to {longest}",
        )
    if options.sequence_parallel_enabled:
        uneven = [bucket for bucket in options.context_buckets(longest) if bucket % degree]
        yield Judgement(
            holds=not uneven,
            path=pair.at("compile", "context_encoding_buckets"),
            working=(f"prefill lengths that {degree} cores do not divide: {', '.join(map(str, uneven)) or 'none'}",),
            message=f"sequence parallelism splits a prompt over {degree} cores, which do not divide {uneven}",
            given=", ".join(map(str, uneven)),
            allowed=f"multiples of {degree}",
        )


@rule(
    "DI045",
    "The model is compiled with tokens that it has.",
    fix="lower it",
    source="config.json of the model: vocab_size; torch.topk and embeddings fail beyond it",
)
def tokens_are_in_the_vocabulary(pair: DisaggregatedFacts) -> Iterator[Judgement]:
    has = pair.spec.model.known.vocabulary if pair.spec.model.known else 0
    for key, most in (("global_topk", has), ("pad_token_id", has - 1)) if has else ():
        given = getattr(pair.spec.compile, key)
        working, message = f"{key} {given}; tokens of {pair.spec.model.id}: {has}", "it does not compile, or fails with a request"
        where, allowed = pair.at("compile", key), f"at most {most}"
        yield Judgement(given <= most, where, (working,), message=message, given=str(given), allowed=allowed)


@rule(
    "DI015",
    "The Jobs of a pair may take as long as its store needs.",
    fix="raise the limit, or give the store more throughput",
    source="EFS and FSx for Lustre user guides, throughput; each Job moves the whole model (storage/plan.py); "
    "catalog/times.toml, download",
)
def store_is_waited_for(pair: DisaggregatedFacts) -> Iterator[Judgement]:
    for phase, minutes, key in (
        (download(pair.spec), pair.spec.download_timeout_minutes, "download_timeout_minutes"),
        (compilation(pair.spec), pair.spec.compile_timeout_minutes, "compile_timeout_minutes"),
    ):
        if phase.disk_s is None:
            yield not_judged(key, str(minutes), pair.at(key), why=phase.working, fix="see that the Job ends in time")
            continue
        yield Judgement(
            holds=phase.limit_s <= minutes * 60,
            path=pair.at(key),
            working=(f"{phase.working} = {phase.disk_s} s; limit: {minutes * 60} s",),
            message=f"{phase.what}, which may take {phase.limit_s} s and takes the store alone {phase.disk_s} s",
            given=f"{minutes} minutes",
            allowed=f"at least {math.ceil(phase.limit_s / 60)} minutes: {MARGIN} x what the store needs, or the slowest download",
            severity="error" if phase.disk_s > minutes * 60 else "warning",
        )
