"""What a prefill and decode pair must keep to. Numbers DI…

Sources: Neuron documentation, "Disaggregated Inference" (guide and tutorial for Trn2), "nrt_async_sendrecv"; vLLM of
aws-neuron/upstreaming-to-vllm, ``distributed/kv_transfer/neuron``; NxD Inference API guide.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from eks_inference.accelerators.efa.plan import EFA_RESOURCE
from eks_inference.catalog.connectors import connector
from eks_inference.pools.plan import makes_placement_group
from eks_inference.pools.spec import ExistingPlacementGroup, ManagedPoolSpec
from eks_inference.rules import Judgement, rule
from eks_inference.serving.disaggregated.facts import DisaggregatedFacts
from eks_inference.serving.facts import ServingFacts
from eks_inference.serving.flags import flag
from eks_inference.serving.pods import device_resource

CONNECTOR = "NeuronConnector"

_GUIDE = "Neuron documentation, Disaggregated Inference on Trn2"


@rule(
    "DI001",
    "The pair runs where its transfer works: an engine with the connector, a chip it is for, nodes with EFA.",
    fix="use engine neuron-2.26-vllm-0.9 on a managed pool of trn2.48xlarge with efa",
    source=f"{_GUIDE}: EFA is needed on one instance too",
)
def transfer_has_what_it_needs(pair: DisaggregatedFacts) -> Iterator[Judgement]:
    engine, instance = pair.engine, pair.placement.instance_type
    reason, offered = connector(CONNECTOR).reason_against(instance), ", ".join(connector(CONNECTOR).instance_types)
    yield Judgement(
        holds=CONNECTOR in engine.kv_connectors,
        path=pair.at("engine"),
        working=(f"connectors of {engine.name}: {', '.join(engine.kv_connectors) or 'none'}; the pair's: {CONNECTOR}",),
        message=f"engine {engine.name} has no {CONNECTOR}",
        given=engine.name,
    )
    yield Judgement(
        holds=not reason,
        path=pair.at("instance_type"),
        working=(f"offered for {offered}; the servers run on {instance.name}",),
        message=f"a pair on {instance.name} is not offered: {reason}",
        given=instance.name,
        allowed=offered,
    )
    yield Judgement(
        holds=pair.placement.efa_interfaces > 0,
        path=pair.at("pool"),
        working=(f"EFA interfaces of a node of pool '{pair.placement.pool}': {pair.placement.efa_interfaces}",),
        message=f"the nodes of pool '{pair.placement.pool}' have no EFA, and the KV cache goes over it, on one node too",
        given=pair.placement.pool,
        allowed=f"a managed pool with efa: {{}}, of an instance type that offers it ({instance.name}: {instance.efa_interfaces})",
    )


@rule(
    "DI002",
    "Both servers are started for the artifact that is compiled.",
    fix="leave the flag out: both servers take it from the pair's own setting",
    source="vLLM on NxD Inference loads an artifact whatever the flags say; the transfer pairs core with core and slot with slot",
)
def both_serve_one_artifact(pair: DisaggregatedFacts) -> Iterator[Judgement]:
    compiled = pair.artifact.inputs
    for fact, wanted in (
        ("tensor_parallel", str(compiled["tensor_parallel"])),
        ("max_num_seqs", str(compiled["max_num_seqs"])),
        ("max_model_len", str(compiled["max_model_len"])),
        ("artifact", pair.artifact.folder),
    ):
        given = {role.role: getattr(role, fact) for role in (pair.prefill, pair.decode)}
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
        message=f"the model is compiled for LNC {compiled['logical_cores']}, and the nodes have {logical}",
        given=str(compiled["logical_cores"]),
        allowed=str(logical),
        fix="give compile.logical_nc_config and the pool's logical_cores one value",
    )


@rule(
    "DI003",
    "The model is compiled with the mask of sequence ids.",
    fix="leave compile.apply_seq_ids_mask on",
    source=f"{_GUIDE}: --apply-seq-ids-mask",
)
def sequences_are_masked(pair: DisaggregatedFacts) -> Iterator[Judgement]:
    masked = "--apply-seq-ids-mask" in pair.artifact.inputs["flags"]
    yield Judgement(
        holds=masked,
        path=pair.at("compile", "apply_seq_ids_mask"),
        working=(f"--apply-seq-ids-mask is {'among' if masked else 'not among'} the options of the compiler",),
        message="without the mask a prefill writes into the KV caches of other sequences: answers are wrong, and nothing says so",
        given="off",
        allowed="on",
    )


@rule(
    "DI004",
    "No server of the pair keeps the KV cache of prompts.",
    fix="leave prefix caching off",
    source="Neuron documentation, Disaggregated Inference: automatic prefix caching is not supported",
)
def prefixes_are_not_cached(pair: DisaggregatedFacts) -> Iterator[Judgement]:
    compiled = "--enable-prefix-caching" in pair.artifact.inputs["flags"]
    for what, on, path in (
        ("the model is compiled", compiled, pair.at("compile", "enable_prefix_caching")),
        *((f"{role.role} is started", role.caches_prefixes, pair.at(role.role)) for role in (pair.prefill, pair.decode)),
    ):
        yield Judgement(
            holds=not on,
            path=path,
            working=(f"{what} with{'' if on else 'out'} prefix caching",),
            message=f"{what} with prefix caching, which a pair cannot have",
            given="on",
            allowed="off",
        )


@rule(
    "DI005",
    "Each server has cores of its own, and says where they begin.",
    fix="leave NEURON_RT_VISIBLE_CORES and neuron_core_offset to the library, or lower tensor_parallel",
    source="Neuron runtime, nrt_async_sendrecv: core ids count over the host; one communicator for each visible core",
)
def cores_are_apart(pair: DisaggregatedFacts) -> Iterator[Judgement]:
    prefill, decode = pair.prefill, pair.decode
    shares = 2 if pair.spec.instances == 1 else 1
    degree = pair.artifact.inputs["tensor_parallel"]
    yield Judgement(
        holds=shares * degree <= pair.cores,
        path=pair.at("tensor_parallel"),
        working=(f"{shares} x {degree} = {shares * degree} of the {pair.cores} cores of a node",),
        message=f"{shares * degree} cores are needed on a node that has {pair.cores}",
        given=str(degree),
        allowed=f"at most {pair.cores // shares}",
    )
    if pair.spec.instances == 1:
        yield Judgement(
            holds=prefill.last_core < decode.first_core or decode.last_core < prefill.first_core,
            path=pair.at("decode"),
            working=(f"cores of prefill {prefill.cores}, of decode {decode.cores}",),
            message="prefill and decode are to use the same cores",
            given=f"{prefill.cores} and {decode.cores}",
        )
    for role in (prefill, decode):
        count = role.last_core - role.first_core + 1
        yield Judgement(
            holds=str(role.core_offset) == str(role.first_core) and count == (degree if shares == 2 else pair.cores),
            path=pair.at(role.role),
            working=(f"{role.role}: cores {role.cores} = {count}, neuron_core_offset {role.core_offset}",),
            message=f"the transfer of {role.role} would begin at another core than its model, or count others",
            given=f"cores {role.cores}, neuron_core_offset {role.core_offset}",
            allowed=f"neuron_core_offset {role.first_core}, {degree} cores",
        )


@rule(
    "DI006",
    "Both servers look for prefill in the same place.",
    fix="leave kv_ip, NEURON_SEND_IP and NEURON_RECV_IP to the library",
    source="vLLM of aws-neuron/upstreaming-to-vllm: prefill listens at kv_ip, decode connects to it",
)
def addresses_agree(pair: DisaggregatedFacts) -> Iterator[Judgement]:
    for what, values in {
        "kv_ip": {role.role: role.transfer.get("kv_ip") for role in (pair.prefill, pair.decode)},
        "kv_port": {role.role: role.transfer.get("kv_port") for role in (pair.prefill, pair.decode)},
        "NEURON_SEND_IP": {role.role: role.send_address for role in (pair.prefill, pair.decode)},
        "NEURON_RECV_IP": {role.role: role.receive_address for role in (pair.prefill, pair.decode)},
    }.items():
        yield Judgement(
            holds=len(set(values.values())) == 1,
            path=pair.at("decode"),
            working=(f"{what}: " + ", ".join(f"{role} {value}" for role, value in values.items()),),
            message=f"prefill and decode have different values of {what}: they would wait for each other for ever",
            given=", ".join(str(value) for value in values.values()),
        )
    yield Judgement(
        holds=pair.prefill.transfer.get("kv_ip") == pair.prefill.send_address,
        path=pair.at("prefill"),
        working=(f"kv_ip {pair.prefill.transfer.get('kv_ip')}, address of prefill {pair.prefill.send_address}",),
        message="kv_ip is not the address of prefill",
        given=str(pair.prefill.transfer.get("kv_ip")),
        allowed=pair.prefill.send_address,
    )


@rule(
    "DI007",
    "The nodes of the pair are next to each other.",
    fix="give the pool a size of at least instances, one zone, and leave its placement group on",
    source=f"{_GUIDE}; EC2 user guide, Elastic Fabric Adapter: traffic stays in one zone; cluster placement groups",
)
def nodes_are_neighbours(pair: DisaggregatedFacts) -> Iterator[Judgement]:
    placement, needed = pair.placement, pair.spec.instances
    if placement.max_nodes is not None:
        yield Judgement(
            holds=placement.max_nodes >= needed,
            path=pair.at("instances"),
            working=(f"nodes of pool '{placement.pool}': {placement.max_nodes}; the pair takes {needed}",),
            message=f"pool '{placement.pool}' has {placement.max_nodes} of {needed} nodes: one server would wait for the other's",
            given=str(placement.max_nodes),
            allowed=f"at least {needed}",
        )
    if needed == 1:
        return
    yield Judgement(
        holds=len(placement.zone_ids) <= 1,
        path=pair.at("pool"),
        working=(f"zones of pool '{placement.pool}': {', '.join(placement.zone_ids) or 'not known'}",),
        message="the two nodes may start in different zones, and EFA does not cross them",
        given=", ".join(placement.zone_ids),
        allowed="one zone",
    )
    if isinstance(pair.pool, ManagedPoolSpec):
        yield _placement_group(pair, pair.pool)


def _placement_group(pair: DisaggregatedFacts, pool: ManagedPoolSpec) -> Judgement:
    """Nodes of a reservation stand where it was made: a group would not move them together, and may keep them from starting."""
    grouped = makes_placement_group(pool) or isinstance(pool.placement, ExistingPlacementGroup)
    where = "in a placement group" if grouped else "out of a reservation" if pool.reserved else "wherever there is room"
    return Judgement(
        holds=grouped or pool.reserved,
        path=pair.at("pool"),
        working=(f"nodes of pool '{pair.placement.pool}' start {where}",),
        message="without a placement group the two nodes may be far apart, and every request moves its KV cache between them",
        given="placement: none",
        allowed="auto, or the name of a group",
        severity="warning",
    )


@rule(
    "DI008",
    "A pod asks for all EFA interfaces of its node.",
    fix="leave efa_interfaces out",
    source="EKS user guide, EFA: interfaces are extended resources; inferred: each chip sends through the interfaces next to it",
)
def interfaces_are_asked_for(pair: DisaggregatedFacts) -> Iterator[Judgement]:
    asked, there = pair.efa_interfaces, pair.placement.efa_interfaces
    if not there:
        return
    yield Judgement(
        holds=asked == there,
        path=pair.at("efa_interfaces"),
        working=(f"{EFA_RESOURCE}: {asked} asked for, {there} of a node of pool '{pair.placement.pool}'",),
        message=f"{asked} interfaces are asked for on nodes with {there}: "
        + ("the pod stays pending" if asked > there else "some chips have none next to them"),
        given=str(asked),
        allowed=str(there),
    )


@rule(
    "DI009",
    "Neither server waits for the other to be ready before it starts.",
    fix="start both at once: startupPolicy LeaderCreated, restartPolicy RecreateGroupOnPodRestart",
    source="vLLM of aws-neuron/upstreaming-to-vllm, neuron_buffer.py: one handshake, before the model is loaded",
)
def servers_start_together(pair: DisaggregatedFacts) -> Iterator[Judgement]:
    planned = pair.workload
    if planned["kind"] != "LeaderWorkerSet":
        containers = [each["name"] for each in planned["spec"]["template"]["spec"]["containers"]]
        yield Judgement(
            holds=len(containers) == 1,
            path=pair.at("instances"),
            working=(f"{planned['kind']}: both servers in container {', '.join(containers)}, ended and started together",),
            message="servers in containers of their own are restarted one without the other",
            given=", ".join(containers),
        )
        return
    start, restart = planned["spec"].get("startupPolicy"), planned["spec"]["leaderWorkerTemplate"].get("restartPolicy")
    yield Judgement(
        holds=start == "LeaderCreated" and restart == "RecreateGroupOnPodRestart",
        path=pair.at("instances"),
        working=(f"LeaderWorkerSet: startupPolicy {start}, restartPolicy {restart}",),
        message="prefill is ready only once decode has started: decode would never start"
        if start != "LeaderCreated"
        else "a server that comes back alone is never shaken hands with",
        given=f"{start}, {restart}",
        allowed="LeaderCreated, RecreateGroupOnPodRestart",
    )


@rule(
    "DI010",
    "Servers that exchange KV caches by NIXL on one node do not use shared memory.",
    fix="set FI_EFA_ENABLE_SHM_TRANSFER=0 in extra_env",
    source="vllm-neuron documentation, disaggregated inference with NIXL: single host",
)
def nixl_goes_over_efa(server: ServingFacts) -> Iterator[Judgement]:
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
        message="between servers of one node libfabric takes shared memory: the engine starts, and answers are wrong",
        given=given or "not set",
        allowed="0",
    )


@rule(
    "DI011",
    "The image holds the libraries that reach EFA.",
    severity="warning",
    fix="use the engine profile's image, or one that adds the EFA installer",
    source="Dockerfiles of aws-neuron/deep-learning-containers: EFA is in the images from SDK 2.26 on",
)
def image_reaches_efa(pair: DisaggregatedFacts) -> Iterator[Judgement]:
    own = pair.spec.image is not None and pair.spec.image != pair.engine.image
    if own:
        return
    yield Judgement(
        holds=pair.engine.efa_userspace,
        path=pair.at("engine"),
        working=(f"image of {pair.engine.name}: {'with' if pair.engine.efa_userspace else 'without'} EFA libraries",),
        message=f"the image of {pair.engine.name} is not known to hold EFA libraries: communicators time out after a minute",
        given=pair.engine.image,
    )


@rule(
    "DI013",
    "The compile Job gets the chips it needs while the servers hold them.",
    fix="leave the Job's priority to the library, or give compile_pool a pool of its own",
    source="Kubernetes documentation, Pod Priority and Preemption; devices are not shared between pods",
)
def compilation_goes_first(pair: DisaggregatedFacts) -> Iterator[Judgement]:
    resource, devices = device_resource(pair.placement.instance_type), pair.placement.instance_type.devices
    job, server = _pod(pair.compile_job), _pod(pair.workload)
    asked, held = _asked(job, resource), _asked(server, resource)
    apart = pair.compile_pool != pair.spec.pool
    precedes = bool(job.get("priorityClassName")) and not server.get("priorityClassName")
    yield Judgement(
        holds=apart or precedes or asked + held <= devices,
        path=pair.at("compile_pool"),
        working=(
            f"compile Job: {asked} devices of pool '{pair.compile_pool}', servers: {held} of pool '{pair.spec.pool}', "
            f"of {devices} a node",
            f"priority class of the Job: {job.get('priorityClassName', 'none')}, of the servers: "
            f"{server.get('priorityClassName', 'none')}",
        ),
        message="a changed artifact could not be compiled: the Job would wait for chips of servers that wait for the Job",
        given=f"{asked} + {held} of {devices} devices",
    )


def _pod(planned: Mapping[str, Any]) -> Mapping[str, Any]:
    """The pod of a Job or Deployment, or the leader of a LeaderWorkerSet."""
    spec = planned["spec"]
    template = spec["leaderWorkerTemplate"]["leaderTemplate"] if "leaderWorkerTemplate" in spec else spec["template"]
    return template["spec"]


def _asked(pod: Mapping[str, Any], resource: str) -> int:
    return sum(int(container["resources"]["requests"].get(resource, 0)) for container in pod["containers"])


@rule(
    "DI014",
    "The model is compiled for every length that comes.",
    fix="leave the buckets out: they follow from max_model_len",
    source="NxD Inference API guide, buckets and sequence parallelism",
)
def buckets_cover_the_lengths(pair: DisaggregatedFacts) -> Iterator[Judgement]:
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
            message=f"the last of {name} is not max_model_len, or they do not rise",
            given=", ".join(map(str, buckets)),
            allowed=f"rising, up to {longest}",
        )
    if options.sequence_parallel_enabled:
        uneven = [bucket for bucket in options.context_buckets(longest) if bucket % degree]
        yield Judgement(
            holds=not uneven,
            path=pair.at("compile", "context_encoding_buckets"),
            working=(f"lengths of prefill mod {degree} cores: {', '.join(map(str, uneven)) or 'none'} not 0",),
            message=f"sequence parallelism splits a prompt over {degree} cores, and {uneven} do not divide",
            given=", ".join(map(str, uneven)),
            allowed=f"multiples of {degree}",
        )
