"""Whether a pod can land on a node shape: selectors, affinity and taints as the scheduler reads them. Pure.

What is secret or unknown never keeps a pod away.
"""

from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any

from eks_inference.placement import Taint
from eks_inference_tools.reading.node_shapes import NodeShape
from stackgraph.graph.tokens import is_token
from stackgraph.graph.values import at, items, table, text, texts


def obstacles(pod: Any, shape: NodeShape) -> tuple[str, ...]:
    """What keeps a pod (the ``spec`` of its template) off such nodes, in words; empty when it can land there."""
    return (*_labels_lacking(pod, shape), *_taints_not_tolerated(pod, shape))


def chosen_labels(pod: Any) -> Iterator[tuple[str, str]]:
    """Labels and values the pod's selector names, and those of every term of its affinity."""
    for key, value in table(at(pod, "nodeSelector")).items():
        yield key, text(value)
    for term in _terms(pod):
        for expression in items(at(term, "matchExpressions")):
            for value in texts(at(expression, "values")):
                yield text(at(expression, "key")), value


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


def _labels_lacking(pod: Any, shape: NodeShape) -> Iterator[str]:
    for key, value in table(at(pod, "nodeSelector")).items():
        wanted = text(value)
        if not shape.can_have(key, "In", (wanted,)):
            yield f"needs label {key}={wanted}, {_what_it_has(shape, key)}"
    terms = [list(_term_lacking(term, shape)) for term in _terms(pod)]
    if terms and all(terms):
        yield from min(terms, key=len)


def _term_lacking(term: Any, shape: NodeShape) -> Iterator[str]:
    for expression in items(at(term, "matchExpressions")):
        key, operator, values = text(at(expression, "key")), text(at(expression, "operator")), texts(at(expression, "values"))
        if not is_token(key) and not shape.can_have(key, operator, values):
            wanted = f"{key} {operator} {', '.join(values[:_SHOWN])}{' …' if len(values) > _SHOWN else ''}".strip()
            yield f"needs {wanted}, {_what_it_has(shape, key)}"


_SHOWN = 4


def _what_it_has(shape: NodeShape, key: str) -> str:
    values = shape.possible(key)
    if values is None:
        return "nodes have others"
    return f"nodes have {' or '.join(sorted(values))}" if values else "nodes have no such label"


def _terms(pod: Any) -> tuple[Any, ...]:
    """Terms of the required node affinity, of which one has to match."""
    affinity = at(pod, "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
    return tuple(items(at(affinity, "nodeSelectorTerms")))


def _taints_not_tolerated(pod: Any, shape: NodeShape) -> Iterator[str]:
    tolerations = items(at(pod, "tolerations"))
    for taint in shape.taints:
        if not any(tolerates(toleration, taint) for toleration in tolerations):
            yield f"does not tolerate taint {taint.key}{'=' if taint.value else ''}{taint.value}:{taint.effect}"
