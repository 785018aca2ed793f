"""Whether a pod can land on a node shape: selectors, affinity and taints as the scheduler reads them. Pure.

What is secret or unknown never keeps a pod away.
"""

from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any

from eks_inference.placement import Taint
from eks_inference_tools.reading.expressions import Expression
from eks_inference_tools.reading.node_shapes import NodeShape
from eks_inference_tools.reading.pods import PodSpec
from stackgraph.graph.tokens import is_token
from stackgraph.graph.values import at, text

_SHOWN = 4


def obstacles(pod: PodSpec, shape: NodeShape) -> tuple[str, ...]:
    """What keeps a pod off such nodes, in words; empty when it can land there."""
    return (*_labels_lacking(pod, shape), *_taints_not_tolerated(pod, shape))


def nearest(key: str, value: str, shapes: tuple[NodeShape, ...]) -> str:
    """The label of any of the shapes that looks most like this one; empty when none does."""
    known = {f"{label}={one}": one for shape in shapes for label, values in shape.labels.items() for one in values or ()}
    found = get_close_matches(f"{key}={value}", sorted(known), n=1, cutoff=0.6)
    return found[0] if found and found[0] != f"{key}={value}" else ""


def tolerates(toleration: Any, taint: Taint) -> bool:
    """Whether a toleration answers a taint."""
    if is_token(toleration) or any(is_token(at(toleration, field)) for field in ("key", "operator", "value", "effect")):
        return True
    key, value, effect = (text(at(toleration, field)) for field in ("key", "value", "effect"))
    if effect not in ("", taint.effect):
        return False
    if text(at(toleration, "operator")) == "Exists":
        return key in ("", taint.key)
    return (key, value) == (taint.key, taint.value)


def _labels_lacking(pod: PodSpec, shape: NodeShape) -> Iterator[str]:
    for key, wanted in pod.node_selector.items():
        if not shape.can_have(Expression(key, "In", (wanted,))):
            yield f"needs label {key}={wanted}, {_what_it_has(shape, key)}"
    terms = [list(_term_lacking(term, shape)) for term in pod.affinity_terms]
    if terms and all(terms):
        yield from min(terms, key=len)


def _term_lacking(term: tuple[Expression, ...], shape: NodeShape) -> Iterator[str]:
    for one in term:
        if one.is_known and not shape.can_have(one):
            values = f"{', '.join(one.values[:_SHOWN])}{' …' if len(one.values) > _SHOWN else ''}"
            yield f"needs {f'{one.key} {one.operator} {values}'.strip()}, {_what_it_has(shape, one.key)}"


def _what_it_has(shape: NodeShape, key: str) -> str:
    values = shape.possible(key)
    if values is None:
        return "nodes have others"
    return f"nodes have {' or '.join(sorted(values))}" if values else "nodes have no such label"


def _taints_not_tolerated(pod: PodSpec, shape: NodeShape) -> Iterator[str]:
    for taint in shape.taints:
        if not any(tolerates(toleration, taint) for toleration in pod.tolerations):
            yield f"does not tolerate taint {taint.key}{'=' if taint.value else ''}{taint.value}:{taint.effect}"
