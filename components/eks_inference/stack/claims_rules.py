"""Rules about devices that relate several parts of a stack. Ids DRA… and POO…"""

from collections.abc import Iterator

from eks_inference.pools.spec import ManagedPoolSpec
from eks_inference.rules import Judgement, rule
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
