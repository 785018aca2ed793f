"""What the rules judge in a pod template, of whatever object it is. Pure; what is secret or unknown is left out."""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any

from eks_inference.kubernetes.quantity import amount
from eks_inference_tools.reading.workloads import PodTemplate, requests_of, whole
from stackgraph.graph.tokens import is_token
from stackgraph.graph.values import at, items, table, text

# Labels that controllers put on the pods of a template.
_PUT_ON_PODS = (
    "apps.kubernetes.io/",
    "batch.kubernetes.io/",
    "controller-uid",
    "job-name",
    "leaderworkerset.sigs.k8s.io/",
    "pod-template-hash",
    "statefulset.kubernetes.io/",
)
_RAY_LABELS = ("app.kubernetes.io/", "ray.io/")


@dataclass(frozen=True, eq=False)
class Container:
    """One container of a pod template; ``first`` for those that run before the others."""

    name: str
    spec: Any
    first: bool = False

    @property
    def title(self) -> str:
        return f"{'init container' if self.first else 'container'} {self.name}"

    @cached_property
    def image(self) -> str:
        return text(at(self.spec, "image"))

    @cached_property
    def words(self) -> tuple[str, ...]:
        """Command and arguments."""
        words = (*items(at(self.spec, "command")), *items(at(self.spec, "args")))
        return tuple(word for word in words if isinstance(word, str) and not is_token(word))

    @cached_property
    def environment(self) -> tuple[tuple[str, str], ...]:
        """Names and literal values of its variables."""
        return tuple(
            (text(at(variable, "name")), value)
            for variable in items(at(self.spec, "env"))
            if isinstance(value := at(variable, "value"), str) and not is_token(value)
        )

    @cached_property
    def ports(self) -> tuple[tuple[str, int | None], ...]:
        """Names and numbers of its ports."""
        return tuple((text(at(port, "name")), whole(at(port, "containerPort"))) for port in items(at(self.spec, "ports")))

    @cached_property
    def requests(self) -> Mapping[str, Decimal]:
        """What it asks for; quantities that are not known are left out."""
        return {name: found for name, value in requests_of(self.spec).items() if (found := quantity(value)) is not None}


@dataclass(frozen=True, eq=False)
class Pod:
    """Pods of one template."""

    template: PodTemplate

    @property
    def urn(self) -> str:
        return self.template.owner.urn

    @property
    def kind(self) -> str:
        return self.template.kind

    @property
    def namespace(self) -> str:
        return self.template.namespace or "default"

    @cached_property
    def title(self) -> str:
        """``Deployment demo/server`` or ``RayService demo/llama (head)``."""
        return self.template.title

    @cached_property
    def spec(self) -> Any:
        return at(self.template.template, "spec")

    @cached_property
    def _labels(self) -> Any:
        source = self.template.owner.inputs if self.kind == "Pod" else self.template.template
        return at(source, "metadata", "labels")

    @cached_property
    def containers(self) -> tuple[Container, ...]:
        return containers_of(self.spec)

    @cached_property
    def requests(self) -> Mapping[str, Decimal]:
        """What the scheduler reserves for one pod."""
        return requests_of_pod(self.spec)

    def has_labels(self, selector: Mapping[str, Any]) -> bool:
        """Whether a selector of equal labels takes its pods; labels that controllers or secrets give are taken to match."""
        if is_token(self._labels):
            return True
        labels = table(self._labels)
        unseen = (*_PUT_ON_PODS, *(_RAY_LABELS if self.kind.startswith("Ray") else ()))
        for key, value in selector.items():
            if key in labels:
                own = labels[key]
                if text(own) != text(value) and not is_token(own) and not is_token(value):
                    return False
            elif not key.startswith(unseen) or text(value) in self._other_roles(key):
                return False
        return True

    def _other_roles(self, key: str) -> tuple[str, ...]:
        """Values KubeRay gives that label on the object's other pods only."""
        if key != "ray.io/node-type":
            return ()
        return ("worker",) if self.template.part == "head" else ("head",)


def containers_of(pod: Any) -> tuple[Container, ...]:
    """Containers of a pod (the ``spec`` of its template), those that run first first."""
    first = (Container(text(at(one, "name")), one, first=True) for one in items(at(pod, "initContainers")))
    return (*first, *(Container(text(at(one, "name")), one) for one in items(at(pod, "containers"))))


def requests_of_pod(pod: Any) -> dict[str, Decimal]:
    """What the scheduler reserves for one pod: its containers together, or more where an init container needs more.

    Init containers that stay (sidecars) count with the others (Kubernetes, "Sidecar containers").
    """
    total: dict[str, Decimal] = {}
    most: dict[str, Decimal] = {}
    for container in containers_of(pod):
        if container.first and at(container.spec, "restartPolicy") != "Always":
            for name, value in container.requests.items():
                most[name] = max(most.get(name, Decimal()), value + total.get(name, Decimal()))
        else:
            for name, value in container.requests.items():
                total[name] = total.get(name, Decimal()) + value
    return {name: max(total.get(name, Decimal()), most.get(name, Decimal())) for name in sorted({*total, *most})}


def quantity(value: Any) -> Decimal | None:
    """A quantity as a number; None for what is none or not known."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    shown = str(value)
    try:
        # Quantities are 64-bit numbers; longer texts are none.
        return amount(shown) if len(shown) <= 24 else None
    except ValueError:
        return None


def number(value: Decimal) -> str:
    """A number for people, with three places at most."""
    return f"{value:.3f}".rstrip("0").rstrip(".")
