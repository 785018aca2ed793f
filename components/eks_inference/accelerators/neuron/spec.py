"""Settings of Neuron support."""

from pydantic import Field

from eks_inference.spec import Spec


class NeuronSpec(Spec):
    """The Neuron device plugin, and the scheduler that allocates several devices of one node."""

    scheduler: bool = Field(
        default=True,
        description=(
            "Install the Neuron scheduler extension and the second scheduler my-scheduler. Pods that request more than one "
            "but not all Neuron devices of a node need it."
        ),
    )
