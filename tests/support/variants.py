"""Shipped stacks with a changed section, as if somebody had edited the stack file."""

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from conftest import PROJECT, record_once
from eks_inference.faults import SpecError
from eks_inference.rules import Verdict
from eks_inference.stack.reading import parse_stack
from eks_inference.stack.registry import check_spec
from stackgraph.graph.document import Graph


def recorded_with(
    section: dict[str, Any], stack: str = "inf2-llama3", secrets: Mapping[str, str] = MappingProxyType({})
) -> Graph:
    """Returns the graph of a stack with ``section`` merged into its stack object; ``None`` removes a key.

    ``secrets`` are those of the configuration, by their whole keys.
    """
    config = dict(PROJECT.config(PROJECT.stack_file(stack)).values)
    spec = json.loads(config["eks-inference:stack"])
    merge(spec, section)
    config["eks-inference:stack"] = json.dumps(spec)
    place = {"project": PROJECT.name, "stack": stack, "root": PROJECT.root}
    return record_once(PROJECT.main, config=config | dict(secrets), secret_keys=[*secrets], **place)


def faults(section: dict[str, Any]) -> list[str]:
    """What is refused in the stack on one GPU with a section of changes."""
    try:
        found = verdict(section).faults
    except SpecError as error:
        found = error.faults
    return [str(fault) for fault in found]


def verdict(section: dict[str, Any]) -> Verdict:
    """What the rules about specs say of the stack on one GPU with a section of changes."""
    spec = json.loads(PROJECT.config(PROJECT.stack_file("smoke-gpu")).values["eks-inference:stack"])
    merge(spec, section)
    return check_spec(parse_stack(json.dumps(spec)), "us-west-2")


def merge(spec: dict[str, Any], section: dict[str, Any]) -> None:
    """Merges ``section`` into ``spec``; ``None`` removes a key."""
    for key, value in section.items():
        if isinstance(value, dict) and isinstance(spec.get(key), dict):
            merge(spec[key], value)
        elif value is None:
            spec.pop(key, None)
        else:
            spec[key] = value
