"""Evaluates expressions over node labels, as in node affinity and the requirements of NodePools. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from eks_inference_tools.reading.scalars import whole
from stackgraph.graph.values import is_token, items, text, texts

Values = frozenset[str] | None
"""The possible values of a label on a node. Empty: the node does not have the label. None: any value, or no label."""


@dataclass(frozen=True)
class Expression:
    """One NodeSelectorRequirement of the Kubernetes API. The token of an unknown one is its ``key``."""

    key: str
    operator: str
    values: tuple[str, ...]

    @property
    def is_known(self) -> bool:
        return not is_token(self.key)

    def fulfilled_by(self, possible: Values) -> bool:
        """Whether a label with one of the possible values can fulfil the expression. Unknown values always can."""
        if possible is None or any(is_token(value) for value in self.values):
            return True
        if self.operator == "In":
            return any(value in possible for value in self.values)
        if self.operator == "NotIn":
            return not possible or any(value not in self.values for value in possible)
        if self.operator == "Exists":
            return bool(possible)
        if self.operator == "DoesNotExist":
            return not possible
        limit = whole(self.values[0]) if self.values else None
        numbers = [whole(value) for value in possible]
        if self.operator in ("Gt", "Lt") and limit is not None:
            return any(number is None or (number > limit if self.operator == "Gt" else number < limit) for number in numbers)
        return True


def expressions(value: Any) -> tuple[Expression, ...]:
    """Reads a list of expressions, such as ``matchExpressions`` or ``requirements``."""
    return tuple(_expression(item) for item in items(value))


def _expression(value: Any) -> Expression:
    if not isinstance(value, Mapping):
        return Expression(text(value), "", ())
    return Expression(text(value.get("key")), text(value.get("operator")), texts(value.get("values")))
