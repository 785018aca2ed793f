"""Rules about claimed devices that relate several parts of a stack. Ids DRA…"""

from collections.abc import Iterator

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
