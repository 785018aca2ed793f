"""Reads containers, requests and placement from the ``spec`` of a pod, in a template or in a cluster. Pure.

It leaves out secret and unknown values.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from typing import Any

from eks_inference.stack.nested import put
from eks_inference_tools.reading.expressions import Expression, expressions
from eks_inference_tools.reading.scalars import quantities, whole
from stackgraph.graph.values import at, is_token, items, table, text

AFFINITY = ("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")
"""Path of the required terms in the spec of a pod."""


@dataclass(frozen=True, eq=False)
class Container:
    """A container of a pod. ``first`` marks an init container. ``document`` is as given."""

    document: Any
    first: bool = False

    @cached_property
    def name(self) -> str:
        return text(at(self.document, "name"))

    @property
    def title(self) -> str:
        return f"{'init container' if self.first else 'container'} {self.name}"

    @cached_property
    def image(self) -> str:
        return text(at(self.document, "image"))

    @cached_property
    def command(self) -> tuple[str, ...]:
        """The words of its command and arguments. Unknown ones are their tokens."""
        return (*_words(self.document, "command"), *_words(self.document, "args"))

    @property
    def has_own_command(self) -> bool:
        """Whether it overrides the entry point of its image."""
        return any(True for _ in _words(self.document, "command"))

    @cached_property
    def words(self) -> tuple[str, ...]:
        """The known words of its command and arguments."""
        return tuple(word for word in self.command if not is_token(word))

    @cached_property
    def environment(self) -> tuple[tuple[str, str], ...]:
        """The names and values of its variables with literal values."""
        return tuple(
            (text(at(variable, "name")), value)
            for variable in items(at(self.document, "env"))
            if isinstance(value := at(variable, "value"), str) and not is_token(value)
        )

    @cached_property
    def ports(self) -> tuple[tuple[str, int | None], ...]:
        """The names and numbers of its ports."""
        return tuple((text(at(port, "name")), whole(at(port, "containerPort"))) for port in items(at(self.document, "ports")))

    @cached_property
    def limits(self) -> Mapping[str, Any]:
        """Limits by resource, as given."""
        return table(at(self.document, "resources", "limits"))

    @cached_property
    def asked(self) -> Mapping[str, Any]:
        """Requests by resource, as given. A resource with only a limit requests that limit."""
        return {**self.limits, **self.own_requests}

    @cached_property
    def own_requests(self) -> Mapping[str, Any]:
        """Requests by resource, as given, without those implied by limits."""
        return table(at(self.document, "resources", "requests"))

    @cached_property
    def requests(self) -> Mapping[str, Decimal]:
        """Requests as numbers, without unknown quantities."""
        return quantities(self.asked)


@dataclass(frozen=True, eq=False)
class PodSpec:
    """The ``spec`` of a pod or of a pod template. ``document`` is as given and may have any type.

    ``claimed`` is what its claims ask for (``devices.py``), which the document does not tell.
    """

    document: Any
    claimed: Mapping[str, Decimal] = field(default_factory=dict)

    @cached_property
    def containers(self) -> tuple[Container, ...]:
        """Its init containers, then the others."""
        first = (Container(item, first=True) for item in items(at(self.document, "initContainers")))
        return (*first, *(Container(item) for item in items(at(self.document, "containers"))))

    @cached_property
    def requests(self) -> Mapping[str, Decimal]:
        """What the scheduler reserves for one pod: what it claims, and the sum of its containers or more for an init container.

        Sidecars, which are init containers that keep running, count as containers (Kubernetes, "Sidecar containers").
        """
        total, most = defaultdict[str, Decimal](Decimal), defaultdict[str, Decimal](Decimal)
        for container in self.containers:
            ends_first = container.first and at(container.document, "restartPolicy") != "Always"
            for name, value in container.requests.items():
                if ends_first:
                    most[name] = max(most[name], value + total[name])
                else:
                    total[name] += value
        return {name: max(total[name], most[name]) for name in sorted({*total, *most})} | dict(self.claimed)

    @cached_property
    def node_selector(self) -> Mapping[str, str]:
        return {key: text(value) for key, value in table(at(self.document, "nodeSelector")).items()}

    @cached_property
    def affinity_terms(self) -> tuple[tuple[Expression, ...], ...]:
        """The terms of the required node affinity. A node has to match one of them."""
        return tuple(expressions(at(term, "matchExpressions")) for term in items(at(self.document, *AFFINITY)))

    @cached_property
    def places(self) -> "tuple[PodSpec, ...]":
        """The pod with each term of that affinity alone."""
        terms = tuple(items(at(self.document, *AFFINITY)))
        if len(terms) < 2:
            return (self,)
        return tuple(PodSpec(put(self.document, AFFINITY, [term]), self.claimed) for term in terms)

    def chosen_labels(self) -> Iterator[tuple[str, str]]:
        """The node labels and values in the node selector and in every term of the affinity."""
        yield from self.node_selector.items()
        for term in self.affinity_terms:
            for expression in term:
                for value in expression.values:
                    yield expression.key, value

    @cached_property
    def tolerations(self) -> tuple[Any, ...]:
        return tuple(items(at(self.document, "tolerations")))

    @cached_property
    def scheduler(self) -> str:
        """Its ``schedulerName``. Empty when it is left out."""
        return text(at(self.document, "schedulerName"))

    @cached_property
    def service_account(self) -> str:
        return text(at(self.document, "serviceAccountName")) or "default"

    @cached_property
    def volumes(self) -> tuple[Any, ...]:
        return tuple(items(at(self.document, "volumes")))

    @cached_property
    def claims(self) -> tuple[str, ...]:
        """The names of its PersistentVolumeClaims."""
        return tuple(text(name) for volume in self.volumes if (name := at(volume, "persistentVolumeClaim", "claimName")))


def _words(container: Any, key: str) -> Iterator[str]:
    return (word for word in items(at(container, key)) if isinstance(word, str))
