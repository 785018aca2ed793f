"""Texts and the resources they come from: made of Outputs, or handed out as Outputs that carry edges."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pulumi


def rendered(render: Callable[[Any], str], document: Any) -> pulumi.Input[str]:
    """Returns the text of a document: as an Output where it holds one, else plain. ``render`` sees no Outputs."""
    return pulumi.Output.from_input(document).apply(render) if _holds_output(document) else render(document)


def carried(text: str, by: Sequence[pulumi.Resource]) -> pulumi.Output[str]:
    """Returns a text that a preview knows as an Output: what uses it comes after these resources and goes before them."""
    return pulumi.Output.all(*(resource.urn for resource in by)).apply(lambda _: text)


def _holds_output(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(map(_holds_output, value.values()))
    return any(map(_holds_output, value)) if isinstance(value, list | tuple) else isinstance(value, pulumi.Output)
