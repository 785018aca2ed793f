"""What a program takes at once although nobody knows it: encrypted configuration as JSON or number, outputs of other stacks."""

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import pulumi
from pulumi.config import ConfigTypeError
from pulumi.output import Output, _OutputData

from stackgraph.recorder.replaced import replaced

_SECRETS = [f"{how}_secret_{kind}" for how in ("get", "require") for kind in ("bool", "int", "float", "object")]


async def unknown(*, secret: bool = False) -> _OutputData[Any]:
    """The data of an output that nobody knows."""
    return _OutputData(resources=set(), value=None, is_known=False, is_secret=secret)


def taken_early(made_up: Callable[[str], bool], taken: Callable[[str, str], None]) -> contextlib.AbstractContextManager[None]:
    """Makes what a program reads of a placeholder for a secret unknown.

    ``made_up`` recognizes one. ``taken`` learns which outputs of a ``StackReference``, by its name, the program takes at once.
    """

    def reading(read: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(read)
        def secret(*given: Any, **named: Any) -> Any:
            try:
                return read(*given, **named)
            except ConfigTypeError as error:
                if not made_up(error.value):
                    raise
                return Output._from_data(unknown(secret=True))

        return secret

    def details(self: pulumi.StackReference, name: str) -> Any:
        taken(self.pulumi_resource_name, name)
        return get_output_details(self, name)

    get_output_details = pulumi.StackReference.get_output_details
    secrets = [(pulumi.Config, name, reading(getattr(pulumi.Config, name))) for name in _SECRETS]
    return replaced([*secrets, (pulumi.StackReference, "get_output_details", details)])
