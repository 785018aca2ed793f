"""Pods: what a pod's ``spec`` says of containers, requests and places, wherever it is read: in a template or in a cluster. Pure.

What is secret or unknown is left out.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any

from eks_inference_tools.reading.expressions import Expression, expressions
from eks_inference_tools.reading.scalars import quantities, whole
from stackgraph.graph.tokens import is_token
from stackgraph.graph.values import at, items, table, text

_AFFINITY = ("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")


@dataclass(frozen=True, eq=False)
class Container:
    """One container of a pod; ``first`` for those that run before the others. ``document`` is as it was given."""

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
        """Words of its command and arguments, with what stands for those that are not known."""
        return (*_words(self.document, "command"), *_words(self.document, "args"))

    @property
    def has_own_command(self) -> bool:
        """Whether it runs something else than its image would by itself."""
        return any(True for _ in _words(self.document, "command"))

    @cached_property
    def words(self) -> tuple[str, ...]:
        """Words of its command and arguments that are known."""
        return tuple(word for word in self.command if not is_token(word))

    @cached_property
    def environment(self) -> tuple[tuple[str, str], ...]:
        """Names and literal values of its variables."""
        return tuple(
            (text(at(variable, "name")), value)
            for variable in items(at(self.document, "env"))
            if isinstance(value := at(variable, "value"), str) and not is_token(value)
        )

    @cached_property
    def ports(self) -> tuple[tuple[str, int | None], ...]:
        """Names and numbers of its ports."""
        return tuple((text(at(port, "name")), whole(at(port, "containerPort"))) for port in items(at(self.document, "ports")))

    @cached_property
    def limits(self) -> Mapping[str, Any]:
        """Limits as they are given, by resource."""
        return table(at(self.document, "resources", "limits"))

    @cached_property
    def asked(self) -> Mapping[str, Any]:
        """Requests as they are given, by resource; what only has a limit requests that."""
        return {**self.limits, **self.own_requests}

    @cached_property
    def own_requests(self) -> Mapping[str, Any]:
        """Requests as they are given, without what only has a limit."""
        return table(at(self.document, "resources", "requests"))

    @cached_property
    def requests(self) -> Mapping[str, Decimal]:
        """What it asks for; quantities that are not known are left out."""
        return quantities(self.asked)


@dataclass(frozen=True, eq=False)
class PodSpec:
    """The ``spec`` of a pod or of its template. ``document`` is as it was given, and may be anything."""

    document: Any

    @cached_property
    def containers(self) -> tuple[Container, ...]:
        """Those that run first first."""
        first = (Container(one, first=True) for one in items(at(self.document, "initContainers")))
        return (*first, *(Container(one) for one in items(at(self.document, "containers"))))

    @cached_property
    def requests(self) -> Mapping[str, Decimal]:
        """What the scheduler reserves for one pod: its containers together, or more where an init container needs more.

        Init containers that stay (sidecars) count with the others (Kubernetes, "Sidecar containers").
        """
        total: dict[str, Decimal] = {}
        most: dict[str, Decimal] = {}
        for container in self.containers:
            if container.first and at(container.document, "restartPolicy") != "Always":
                for name, value in container.requests.items():
                    most[name] = max(most.get(name, Decimal()), value + total.get(name, Decimal()))
            else:
                for name, value in container.requests.items():
                    total[name] = total.get(name, Decimal()) + value
        return {name: max(total.get(name, Decimal()), most.get(name, Decimal())) for name in sorted({*total, *most})}

    @cached_property
    def node_selector(self) -> Mapping[str, str]:
        return {key: text(value) for key, value in table(at(self.document, "nodeSelector")).items()}

    @cached_property
    def affinity_terms(self) -> tuple[tuple[Expression, ...], ...]:
        """Terms of the required node affinity, of which one has to match."""
        return tuple(expressions(at(term, "matchExpressions")) for term in items(at(self.document, *_AFFINITY)))

    def chosen_labels(self) -> Iterator[tuple[str, str]]:
        """Node labels and values that the selector names, and those of every term of the affinity."""
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
        """The scheduler it names; empty for Kubernetes' own."""
        return text(at(self.document, "schedulerName"))

    @cached_property
    def service_account(self) -> str:
        return text(at(self.document, "serviceAccountName")) or "default"

    @cached_property
    def volumes(self) -> tuple[Any, ...]:
        return tuple(items(at(self.document, "volumes")))

    @cached_property
    def claims(self) -> tuple[str, ...]:
        """Names of the volume claims that it mounts."""
        return tuple(text(name) for one in self.volumes if (name := at(one, "persistentVolumeClaim", "claimName")))

    @cached_property
    def ephemeral_volumes(self) -> tuple[str, ...]:
        """Names of the volumes whose claims come and go with the pod."""
        return tuple(text(at(one, "name")) for one in self.volumes if at(one, "ephemeral"))


def _words(container: Any, key: str) -> Iterator[str]:
    return (word for word in items(at(container, key)) if isinstance(word, str))
