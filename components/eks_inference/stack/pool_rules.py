"""Rules about pools beside the rest of a stack: devices of nodes, and nodes that Karpenter starts. Ids DRA…, POO… and KAR…"""

from collections.abc import Iterator

from eks_inference.accelerators.neuron.plan import needs_scheduler
from eks_inference.pools.spec import KarpenterPoolSpec, ManagedPoolSpec, PoolSpec, seconds_of
from eks_inference.rules import Judgement, rule
from eks_inference.serving.pod_parts import TERMINATION_SECONDS
from eks_inference.stack.facts import StackFacts


@rule(
    "DRA007",
    "The Neuron monitor sees the devices that servers use.",
    fix="leave observability.neuron_monitor out, or let the device plugin offer the devices (devices: plugin)",
    source="aws-neuron-sdk, Neuron Monitor of the Kubernetes guide: it depends on the device plugin",
)
def monitor_sees_devices(stack: StackFacts) -> Iterator[Judgement]:
    claimed = [name for name, pool in stack.spec.pools.items() if pool.claimed and pool.instances()[0].neuron]
    if stack.spec.observability.neuron_monitor:
        some = stack.spec.offers("plugin", "neuron")
        yield Judgement(
            holds=not claimed,
            path=("observability", "neuron_monitor"),
            working=(f"pools whose Neuron devices are claimed: {', '.join(claimed) or 'none'}",),
            message=f"the monitor does not see the devices of {', '.join(claimed)}, which the driver allocates",
            given=", ".join(claimed),
            severity="warning" if some else "error",
        )


_DEVICES_OF_TWO_SOCKETS = 8
"""Instances with as many devices have two sockets, each with half of the devices."""


@rule(
    "POO014",
    "The topology manager admits the pods of servers.",
    fix="leave topologyManagerPolicy out, or choose best-effort or restricted",
    source="Kubernetes documentation, Topology Manager: single-numa-node refuses a pod that one NUMA node cannot hold; "
    "pytorch/ci-infra#696: p5.48xlarge has two, with four GPUs each",
)
def one_numa_node_holds_a_pod(stack: StackFacts) -> Iterator[Judgement]:
    for server in stack.servers.values():
        pool = stack.spec.pools.get(server.placement.pool)
        if not isinstance(pool, ManagedPoolSpec) or pool.kubelet.topologyManagerPolicy != "single-numa-node":
            continue
        there = server.instance.devices
        each = there // 2 if there >= _DEVICES_OF_TWO_SOCKETS else there
        yield Judgement(
            holds=server.devices <= each,
            path=("pools", server.placement.pool, "kubelet", "topologyManagerPolicy"),
            working=(f"{server.path[-1]} asks for {server.devices} devices; a NUMA node of {server.instance.name} has {each}",),
            message=f"no pod of '{server.path[-1]}' is ever admitted (TopologyAffinityError)",
            given="single-numa-node",
            allowed="best-effort, restricted, none",
        )


@rule(
    "KAR003",
    "Pods that use only some of a node's Neuron devices run on pools whose nodes do not follow the pods.",
    severity="warning",
    fix="use a managed pool or one of Karpenter with replicas, or give each pod one device or all devices of a node",
    source="Karpenter considers only the number of free devices. The Neuron scheduler extension also requires adjacent ones and "
    "may reject a pod for which Karpenter started a node (Neuron documentation, scheduler flow)",
)
def parts_of_nodes_on_managed_pools(stack: StackFacts) -> Iterator[Judgement]:
    for server in stack.servers.values():
        pool = server.placement.pool
        spec = stack.spec.pools[pool]
        if isinstance(spec, KarpenterPoolSpec) and spec.replicas is None and server.neuron:
            yield Judgement(
                holds=not needs_scheduler(server.devices, server.instance),
                path=server.at("devices"),
                working=(f"{server.devices} of {server.instance.devices} devices of {server.instance.name}",),
                message=f"Karpenter fills pool '{pool}' and does not know which devices are adjacent",
                given=str(server.devices),
                allowed=f"1 or {server.instance.devices}",
            )


@rule(
    "KAR005",
    "Karpenter keeps pools of a fixed number of nodes only with a feature gate.",
    fix="set karpenter.static_capacity to true, or leave replicas out of the pool",
    source="Karpenter 1.14, Settings: without the feature gate StaticCapacity no controller looks at these NodePools",
)
def fixed_pools_are_kept(stack: StackFacts) -> Iterator[Judgement]:
    on = stack.spec.karpenter.static_capacity
    for name, pool in stack.spec.pools.items():
        if isinstance(pool, KarpenterPoolSpec) and pool.replicas is not None:
            yield Judgement(
                holds=on,
                path=("pools", name, "replicas"),
                working=(f"replicas: {pool.replicas}; karpenter.static_capacity: {str(on).lower()}",),
                message=f"no node of pool '{name}' would ever start",
                given=str(pool.replicas),
            )


@rule(
    "KAR007",
    "A pod that a whole server depends on runs on a node that stays.",
    severity="warning",
    fix="move it to a managed pool, or set consolidation_policy to WhenEmpty and expire_after to Never, and leave spot out",
    source="Karpenter documentation, Disruption; EC2 user guide, Spot Instance interruption notices; ray-project/kuberay#615: "
    "all workers stop with the head",
)
def single_helpers_stay(stack: StackFacts) -> Iterator[Judgement]:
    for name, server in stack.spec.servers.items():
        for helper in server.helpers:
            pool = stack.spec.pools.get(helper.place.pool or stack.spec.core_pool)
            if helper.pods == 1 and pool:
                why = _leaves(pool)
                yield Judgement(
                    holds=not why,
                    path=("servers", name, *helper.place.pool_path),
                    working=(_how(pool),),
                    message=f"'{name}' answers nothing while its {helper.name} starts anew: {why}",
                    given=helper.place.pool,
                )
    core = stack.spec.pools.get(stack.spec.core_pool)
    if core and (why := _leaves(core)):
        message = f"DNS and the controllers run there: {why}"
        yield Judgement(False, ("pools", stack.spec.core_pool), (_how(core),), message, given=_how(core), fix="leave spot out")


def _leaves(pool: PoolSpec) -> str:
    """Why a node of the pool ends by itself, or nothing."""
    if "spot" in _how(pool):
        return "its node ends two minutes after a notice"
    if isinstance(pool, ManagedPoolSpec):
        return ""
    if pool.replicas is None and pool.consolidation_policy != "WhenEmpty":
        return "Karpenter may move it at any time"
    return f"Karpenter replaces its node after {pool.expire_after}" if pool.expire_after != "Never" else ""


def _how(pool: PoolSpec) -> str:
    if isinstance(pool, ManagedPoolSpec):
        return f"capacity: {pool.capacity_type}"
    return f"capacity: {', '.join(pool.capacity_types)}; {pool.consolidation_policy}; {pool.expire_after}"


@rule(
    "KAR009",
    "Karpenter lets model servers finish their requests.",
    severity="warning",
    fix="raise termination_grace_period, or leave it out",
    source="Karpenter documentation, Disruption: after terminationGracePeriod a node ends, whatever its pods are granted",
)
def servers_drain(stack: StackFacts) -> Iterator[Judgement]:
    for server in stack.servers.values():
        pool = stack.spec.pools[server.placement.pool]
        if isinstance(pool, KarpenterPoolSpec) and (given := pool.termination_grace_period):
            yield Judgement(
                holds=seconds_of(given) >= TERMINATION_SECONDS,
                path=("pools", server.placement.pool, "termination_grace_period"),
                working=(f"{given} of the pool; '{server.path[-1]}' ends requests for up to {TERMINATION_SECONDS} s",),
                message=f"requests of '{server.path[-1]}' are cut off {given} after its node begins to end",
                given=given,
                allowed=f"at least {TERMINATION_SECONDS}s",
            )
