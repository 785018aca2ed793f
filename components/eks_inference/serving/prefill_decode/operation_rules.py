"""Rules about where the servers of a group run, how they stop, and how routers find them. Ids DI037 to DI044.

Sources: EC2 user guide, Elastic Fabric Adapter and placement groups; vLLM 0.30.0 (wheel), ``v1/engine/core.py``; vllm-router
0.1.17 (``--help``; what it does is tested: tests/test_vllm_router.py, tests/test_vllm_router_operation.py).
"""

from collections.abc import Iterator

from eks_inference.catalog.nixl import leases, nixl_connectors, side_channel
from eks_inference.pools.node_spec import ExistingPlacementGroup
from eks_inference.pools.plan import makes_placement_group
from eks_inference.pools.spec import ManagedPoolSpec, PoolSpec
from eks_inference.rules import Judgement, not_judged, rule
from eks_inference.serving.facts import equal_pods, left_over
from eks_inference.serving.flags import flag
from eks_inference.serving.prefill_decode.plan import KV_ROLES
from eks_inference.serving.prefill_decode.rules import PrefillDecodeFacts, group_rule

_ROUTER = "vllm-router 0.1.17"


@group_rule(
    "DI037",
    "Prefill and decode are in one zone, close to each other.",
    fix="give both pools the same single zone, or run both on one pool with its default placement group",
    source="EC2 user guide, Elastic Fabric Adapter: traffic stays within a subnet; cluster placement groups",
)
def servers_are_neighbours(group: PrefillDecodeFacts) -> Iterator[Judgement]:
    zones = sorted({zone for role in group.roles for zone in role.placement.zone_ids})
    pools = list(dict.fromkeys(role.placement.pool for role in group.roles))
    yield Judgement(
        holds=len(zones) <= 1,
        path=group.decode.server.at("pool"),
        working=(f"zones of {' and '.join(pools)}: {', '.join(zones) or 'unknown'}",),
        message="prefill and decode may start in different zones, and EFA does not cross zones",
        given=", ".join(zones),
        allowed="one zone",
    )
    one_node = len(pools) == 1 and group.decode.placement.max_nodes == 1
    if len(zones) > 1 or one_node:
        return
    groups = {_group_of(role.placement.pool, role.pool) for role in group.roles if role.pool}
    yield Judgement(
        holds=len(groups) <= 1 and "" not in groups,
        path=group.decode.server.at("pool"),
        working=(
            f"placement groups or reservations: {', '.join(sorted(groups)) or 'unknown'}; empty: wherever there is capacity",
        ),
        message="the nodes of prefill and decode may be far apart, and every request moves its KV cache between them",
        given=", ".join(sorted(group or "none" for group in groups)),
        allowed="one placement group or reservation for both",
        severity="warning",
    )


def _group_of(name: str, pool: PoolSpec) -> str:
    """Returns what keeps the nodes of a pool together, or an empty text."""
    if not isinstance(pool, ManagedPoolSpec):
        return ""
    if isinstance(pool.placement, ExistingPlacementGroup):
        return str(pool.placement.name)
    # A reservation determines where its nodes are.
    return f"that of pool {name}" if makes_placement_group(pool) or pool.reserved else ""


@group_rule(
    "DI038",
    "Flags and variables do not contradict the settings of the transfer.",
    fix="use the keys of kv_transfer, and leave the flag or variable out",
    source="vLLM takes the flags; NetworkPolicies, ports and grace periods of the group follow the settings",
)
def settings_are_followed(group: PrefillDecodeFacts) -> Iterator[Judgement]:
    wanted = group.spec.kv_transfer
    channel = side_channel()
    for role in group.roles:
        found, variables = role.connector_settings, role.server.environment
        at = role.server.at_flag("kv-transfer-config")
        for what, given, meant, path in (
            (leases().key, found.get(leases().key), wanted.lease_seconds, at),
            ("kv_load_failure_policy", role.transfer.get("kv_load_failure_policy"), wanted.failure_policy, at),
            (channel.port, variables.get(channel.port), wanted.side_channel_port, role.server.under("extra_env", channel.port)),
        ):
            yield Judgement(
                holds=str(given) == str(meant),
                path=path,
                working=(f"{role.role}: {what} {given}; kv_transfer: {meant}",),
                message=f"{what} of {role.role} is not what kv_transfer says",
                given=str(given),
                allowed=str(meant),
            )
        name = str(role.transfer.get("kv_connector"))
        yield Judgement(
            holds="nixl" in name.casefold(),
            path=at,
            working=(f"{role.role}: kv_connector {name}",),
            message=f"{name} is no connector over NIXL, on which ports, leases and routers of the group rest",
            given=name,
            allowed=", ".join(known for known, row in nixl_connectors().items() if not row.refused),
        )
        part, parts = str(role.transfer.get("kv_role")), (KV_ROLES[role.role], "kv_both")
        yield Judgement(
            holds=part in parts,
            path=at,
            working=(f"{role.role}: kv_role {part}",),
            message=f"{role.role} would have the role of the other: {part}",
            given=part,
            allowed=", ".join(parts),
        )
        address = role.server.extra_env.get(channel.host)
        yield Judgement(
            holds=address is None,
            path=role.server.under("extra_env", channel.host),
            working=(f"{role.role}: {channel.host}: {address or channel.host_field}",),
            message=f"prefill tells decode its address, and {address} is not each pod's",
            given=address or "",
            allowed=f"none; it is {channel.host_field}",
        )


@group_rule(
    "DI039",
    "Prefill that stops keeps its KV caches until decode has read them.",
    fix="leave shutdown-timeout out of extra_args",
    source="vLLM 0.30.0, v1/engine/core.py: without --shutdown-timeout a stop frees all blocks at once",
)
def stops_wait_for_reads(group: PrefillDecodeFacts) -> Iterator[Judgement]:
    one, lease = group.prefill, group.spec.kv_transfer.lease_seconds
    text = flag(one.server.arguments, "shutdown-timeout")
    seconds = int(text) if text and text.isdecimal() else 0
    yield Judgement(
        holds=seconds >= lease,
        path=one.server.at_flag("shutdown-timeout"),
        working=(f"--shutdown-timeout of prefill: {text or 'not set'}; lease: {lease} s",),
        message="prefill that stops gives away what decode is about to read",
        given=text or "not set",
        allowed=f"at least {lease}",
    )


@group_rule(
    "DI041",
    "Routers wait for a request at least as long as prefill keeps its KV cache.",
    severity="warning",
    fix="raise router.request_timeout_seconds, or lower kv_transfer.lease_seconds",
    source=f"{_ROUTER}, --request-timeout-secs: it ends prefill's part, decode's part and streams; a request cut while it waits "
    "for decode costs a prefill, and blocks until the lease ends",
)
def routers_wait(group: PrefillDecodeFacts) -> Iterator[Judgement]:
    timeout, lease = group.spec.router.request_timeout_seconds, group.spec.kv_transfer.lease_seconds
    yield Judgement(
        holds=timeout >= lease,
        path=group.at("router", "request_timeout_seconds"),
        working=(f"request timeout: {timeout} s; lease: {lease} s",),
        message=f"the router gives a request up after {timeout} s, while decode may still read its KV cache for {lease} s",
        given=str(timeout),
        allowed=f"at least {lease}",
    )


@group_rule(
    "DI042",
    "A pod of prefill is one engine with one side channel.",
    fix="raise replicas instead",
    source="vLLM documentation, NixlConnector Usage Guide: the port of the side channel is the configured one + the rank (data "
    "parallelism); Neuron plugin: data parallelism for decode only; vllm-project/vllm#22430: pipeline parallelism failed",
)
def pods_have_one_engine(group: PrefillDecodeFacts) -> Iterator[Judgement]:
    for role in group.roles:
        ranks, stages = (flag(role.server.arguments, name) for name in ("data-parallel-size", "pipeline-parallel-size"))
        path = role.server.at_flag("data-parallel-size")
        if role.role == "decode" and ranks not in (None, "1"):
            why, fix = (
                "each rank takes cores or GPUs and a copy of the model of its own",
                "see that devices suffice for all ranks",
            )
            yield not_judged("ranks", f"--data-parallel-size {ranks}", path, why=why, fix=fix)
        else:
            yield Judgement(
                holds=ranks in (None, "1"),
                path=path,
                working=(f"{role.role}: --data-parallel-size {ranks or 'not set'}",),
                message=f"prefill has {ranks} engines in a pod, and the group opens the side channel of only one",
                given=str(ranks),
                allowed="1",
            )
        yield Judgement(
            holds=stages in (None, "1"),
            path=role.server.at_flag("pipeline-parallel-size"),
            working=(f"{role.role}: --pipeline-parallel-size {stages or 'not set'}",),
            message="no source says that KV caches of several pipeline stages can be handed over",
            given=str(stages),
            allowed="1",
            severity="warning",
        )


@group_rule(
    "DI043",
    "Decode computes prompts only where it has compiled for them.",
    severity="warning",
    fix="leave kv_transfer.failure_policy at fail, and let clients repeat the request",
    source="Neuron documentation, tutorial 1P1D and xPyD: decode skips the graphs of prefill (VLLM_NEURON_SKIP_PREFILL_WARMUP); "
    "that it then compiles during a request is inferred",
)
def prompts_are_not_compiled(group: PrefillDecodeFacts) -> Iterator[Judgement]:
    policy = str(group.decode.transfer.get("kv_load_failure_policy", "fail"))
    yield Judgement(
        holds=policy == "fail" or not group.decode.server.neuron,
        path=group.at("kv_transfer", "failure_policy"),
        working=(f"failure_policy: {policy}; decode on {'Neuron' if group.decode.server.neuron else 'GPUs'}",),
        message="decode on Neuron has no graphs for prompts: it would compile for minutes while all its streams wait",
        given=policy,
        allowed="fail",
    )


@rule(
    "DI044",
    "A second group has room beside the first.",
    fix="raise the pool's size, or let the old group end first (rollout: recreate)",
    source="Kubernetes scheduling; simulated with the real scheduler (tests/eks_inference_tools/cluster/test_prefill_decode.py)",
)
def second_group_has_room(group: PrefillDecodeFacts) -> Iterator[Judgement]:
    """Also judges a baseline, which is replaced alike. CAP001 judges both groups beside other servers, and scaled out."""
    if group.spec.rollout != "second_group":
        return
    for pool in dict.fromkeys(role.placement.pool for role in group.roles):
        here = [equal_pods(role.role, role.server) for role in group.roles if role.placement.pool == pool]
        nodes, devices = here[0].placement.max_nodes, here[0].placement.instance_type.devices
        if nodes is None:
            continue
        both = [2 * one.fewest for one in here]
        unplaced = left_over(here, nodes, both)
        yield Judgement(
            holds=not unplaced,
            path=group.at("rollout"),
            working=(
                f"pool '{pool}': {nodes} x {devices} = {nodes * devices} devices",
                *(
                    f"{one.name} of two groups: {count} pods, each {one.devices} devices, {one.cpu_millis / 1000:g} CPU, "
                    f"{one.memory_mib / 1024:.0f} GiB"
                    for one, count in zip(here, both, strict=True)
                ),
            ),
            message=f"two groups do not fit pool '{pool}': the new one waits for what the old one holds",
            given="second_group",
            allowed="recreate",
        )
