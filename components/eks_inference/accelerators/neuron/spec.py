"""What a user decides about Neuron support."""

from pydantic import Field

from eks_inference.spec import Spec


class NeuronSpec(Spec):
    """The Neuron device plugin, and the scheduler that hands out several devices of one node."""

    scheduler: bool = Field(
        default=True,
        description=(
            "Install the Neuron scheduler extension and the second scheduler my-scheduler. Needed by pods that take more than "
            "one and fewer than all Neuron devices of a node; pods that take one or all do without."
        ),
    )
