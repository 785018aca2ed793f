"""Decides whether a pod matches a node shape, by selectors, affinity and taints as the scheduler does. Pure.

Secret and unknown values count as matching.
"""

from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any

from eks_inference.place.placement import Taint
from eks_inference_tools.reading.expressions import Expression
from eks_inference_tools.reading.node_shapes import NodeShape
from eks_inference_tools.reading.pods import PodSpec
from stackgraph.graph.values import at, is_token, text

_SHOWN = 4


def obstacles(pod: PodSpec, shape: NodeShape) -> tuple[str, ...]:
    """The reasons why a pod cannot run on these nodes. Empty when it can."""
    return tuple(_obstacles(pod, shape))


def suits(pod: PodSpec, shape: NodeShape) -> bool:
    """Whether a pod can run on these nodes. Looks no further than the first obstacle."""
    return next(_obstacles(pod, shape), None) is None


def nearest(key: str, value: str, shapes: tuple[NodeShape, ...]) -> str:
    """The most similar label of any shape, as ``key=value``. Empty when none is similar."""
    known = {f"{label}={value}": value for shape in shapes for label, values in shape.labels.items() for value in values or ()}
    found = get_close_matches(f"{key}={value}", sorted(known), n=1, cutoff=0.6)
    return found[0] if found and found[0] != f"{key}={value}" else ""


def tolerates(toleration: Any, taint: Taint) -> bool:
    """Whether a toleration matches a taint."""
    if is_token(toleration) or any(is_token(at(toleration, field)) for field in ("key", "operator", "value", "effect")):
        return True
    key, value, effect = (text(at(toleration, field)) for field in ("key", "value", "effect"))
    if effect not in ("", taint.effect):
        return False
    if text(at(toleration, "operator")) == "Exists":
        return key in ("", taint.key)
    return (key, value) == (taint.key, taint.value)


def _obstacles(pod: PodSpec, shape: NodeShape) -> Iterator[str]:
    for key, wanted in pod.node_selector.items():
        if not shape.can_have(Expression(key, "In", (wanted,))):
            yield f"needs label {key}={wanted}, {_what_it_has(shape, key)}"
    terms = [list(_term_lacking(term, shape)) for term in pod.affinity_terms]
    if terms and all(terms):
        yield from min(terms, key=len)
    for taint in shape.taints:
        if not any(tolerates(toleration, taint) for toleration in pod.tolerations):
            yield f"does not tolerate taint {taint.key}{'=' if taint.value else ''}{taint.value}:{taint.effect}"


def _term_lacking(term: tuple[Expression, ...], shape: NodeShape) -> Iterator[str]:
    for expression in term:
        if expression.is_known and not shape.can_have(expression):
            values = f"{', '.join(expression.values[:_SHOWN])}{' …' if len(expression.values) > _SHOWN else ''}"
            yield f"needs {f'{expression.key} {expression.operator} {values}'.strip()}, {_what_it_has(shape, expression.key)}"


def _what_it_has(shape: NodeShape, key: str) -> str:
    values = shape.possible(key)
    if values is None:
        return "nodes have others"
    return f"nodes have {' or '.join(sorted(values))}" if values else "nodes have no such label"
