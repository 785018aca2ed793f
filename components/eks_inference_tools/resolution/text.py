"""Values with their origins as a stack file: it reads back as the same stack. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from eks_inference_tools.resolution.values import Section, Value
from stackgraph.recorder.yaml_file import block, flow

_INDENT = "  "
_DEFAULT = "default"
_LONGEST = 100
"""Characters of a mapping on one line."""


def stack_file(name: str, stack: Section, stack_key: str, others: Mapping[str, Any], secrets: Sequence[str]) -> str:
    """Returns the text. ``others`` are the other keys of the configuration, ``secrets`` those that nothing shows."""
    lines = [
        f"# Stack {name} with what its file leaves open. A value without a comment stands in the file; `{_DEFAULT}` is that",
        "# of the schema; any other comment says what decides. A key that is not here has its default, or no value.",
        "config:",
        *(_INDENT + line for key, value in others.items() for line in _written(key, value, "")),
        *(f"{_INDENT}# {key}: a secret, which is not shown" for key in secrets),
        f"{_INDENT}{stack_key}:",
        *(_INDENT * 2 + line for line in _section(stack)),
    ]
    return "\n".join(lines) + "\n"


def _section(section: Section) -> Iterator[str]:
    for key, one in section.entries.items():
        if isinstance(one, Value):
            yield from _written(key, one.value, _comment(_told(one, section.why)))
        elif one.entries:
            yield f"{_key(key)}:" + _comment(one.why)
            yield from (_INDENT + line for line in _section(one))
        else:
            yield f"{_key(key)}: {{}}" + _comment(one.why or ("" if one.said else _DEFAULT))


def _written(key: str, value: Any, comment: str) -> Iterator[str]:
    """A key with its value: on one line, or a long mapping on several."""
    if isinstance(value, Mapping) and len(flow(value)) > _LONGEST:
        yield f"{_key(key)}:{comment}"
        for inner, one in value.items():
            yield from (_INDENT + line for line in _written(inner, one, ""))
    else:
        yield f"{_key(key)}: {flow(value)}{comment}"


def _told(value: Value, above: str) -> str:
    """What the comment of a value says, unless the object that it is in says it."""
    if value.origin == "schema":
        return _DEFAULT
    return value.why if value.why != above else ""


def _comment(text: str) -> str:
    return f"  # {text}" if text else ""


def _key(key: str) -> str:
    text = block({key: None}).strip()
    return flow(key) if text.startswith("? ") else text.removesuffix(": null")
