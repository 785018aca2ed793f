"""Rules K8S… about how Kubernetes objects fit together, and about interfaces that anybody could enter."""

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from eks_inference.catalog.features import Opening, openings
from eks_inference.rules import Judgement, rule
from eks_inference.specs.base import namespace_fault
from eks_inference_tools.reading.admission import not_served
from eks_inference_tools.reading.graph_facts import GraphFacts, walk
from eks_inference_tools.reading.object_kinds import group_kind, is_default_class, name_of, namespace_of, title_of
from eks_inference_tools.reading.pod_templates import PodTemplate
from eks_inference_tools.reading.releases import addons
from eks_inference_tools.reading.scalars import is_true, whole
from eks_inference_tools.reading.security_groups import EVERYWHERE
from stackgraph.graph.describe import is_kubernetes_object
from stackgraph.graph.document import Resource
from stackgraph.graph.values import at, grouped, is_token, items, table, text, texts, unique


@rule(
    "K8S005",
    "At most one StorageClass is the default.",
    fix="annotate only one as default; with several, claims without a class use the newest",
    source="Kubernetes, Default StorageClass; the EBS add-on of EKS creates a default class when configured to",
)
def one_default_storage_class(facts: GraphFacts) -> Iterator[Judgement]:
    classes = [item for item in facts.objects.get("StorageClass", ()) if is_default_class(item.inputs)]
    makers = [addon for addon in addons(facts.graph) if is_true(at(addon.configuration, "defaultStorageClass", "enabled"))]
    names = [*(name_of(resource) for resource in classes), *(f"that of add-on {maker.name}" for maker in makers)]
    if names:
        yield Judgement(
            holds=len(names) == 1,
            path=(),
            working=(f"default StorageClasses: {', '.join(names)}",),
            message=f"{len(names)} StorageClasses are the default: {', '.join(names)}",
            given=", ".join(names),
            allowed="one",
            resource=(*classes, *(maker.resource for maker in makers))[-1].urn,
        )


@rule(
    "K8S006",
    "Load balancers on the internet limit their source networks.",
    severity="warning",
    fix="make it internal, or set the source networks (loadBalancerSourceRanges, inbound-cidrs)",
    source="AWS Load Balancer Controller, annotations; Kubernetes, loadBalancerSourceRanges",
)
def load_balancers_closed(facts: GraphFacts) -> Iterator[Judgement]:
    for service in facts.objects.get("Service", ()):
        spec, annotations = service.inputs.get("spec"), table(_annotations(service))
        if at(spec, "type") != "LoadBalancer" or is_token(spec) or is_token(_annotations(service)):
            continue
        internal = any(text(annotations.get(key)) in ("true", "internal") for key in _INTERNAL)
        ranges = (*texts(at(spec, "loadBalancerSourceRanges")), *_listed(annotations, _SERVICE_RANGES))
        yield _reachable(service, internal=internal, ranges=ranges)
    for ingress in facts.objects.get("Ingress", ()):
        annotations = table(_annotations(ingress))
        if annotations.get("alb.ingress.kubernetes.io/scheme") == "internet-facing":
            guarded = "alb.ingress.kubernetes.io/security-groups" in annotations
            yield _reachable(ingress, internal=guarded, ranges=_listed(annotations, ("alb.ingress.kubernetes.io/inbound-cidrs",)))


_INTERNAL = ("service.beta.kubernetes.io/aws-load-balancer-scheme", "service.beta.kubernetes.io/aws-load-balancer-internal")
_SERVICE_RANGES = (
    "service.beta.kubernetes.io/load-balancer-source-ranges",
    "service.beta.kubernetes.io/aws-load-balancer-source-ranges",
)


def _listed(annotations: Mapping[str, Any], keys: tuple[str, ...]) -> tuple[str, ...]:
    found = (one.strip() for key in keys for one in text(annotations.get(key)).split(","))
    return unique(found)


def _reachable(resource: Resource, *, internal: bool, ranges: tuple[str, ...]) -> Judgement:
    limited = bool(ranges) and not EVERYWHERE & set(ranges)
    title = title_of(resource)
    how = "internal or behind a security group" if internal else f"open to {', '.join(ranges) or '0.0.0.0/0'}"
    return Judgement(
        holds=internal or limited,
        path=(),
        working=(f"{title}: {how}",),
        message=f"{title} is open to the whole internet",
        given=", ".join(ranges) or "no source ranges",
        allowed="an internal load balancer, or source ranges",
        resource=resource.urn,
    )


@rule(
    "K8S007",
    "Only one owner sets the number of pods: the object itself or one autoscaler.",
    fix="leave replicas out where an autoscaler sets them, or ignore changes to replicas; use one autoscaler per target",
    source="Kubernetes, Horizontal Pod Autoscaling, migrating to HPA; pulumi/pulumi-kubernetes issue 2491; KEDA, ScaledObject",
)
def one_owner_of_replicas(facts: GraphFacts) -> Iterator[Judgement]:
    owners: dict[tuple[str, str, str], str] = {}
    pods = {(pod.given_namespace, pod.kind, pod.name): pod for pod in facts.pods}
    for scaler in facts.autoscalers:
        namespace, kind, name = scaler.target
        title, target = f"{scaler.kind} {scaler.name}", f"{kind} {namespace}/{name}"
        if any(is_token(part) for part in scaler.target):
            continue
        other = owners.setdefault(scaler.target, title)
        pod = pods.get(scaler.target)
        owner = pod.owner if pod else None
        replicas = at(owner.inputs.get("spec"), "replicas") if owner else None
        ignored = owner is not None and any(
            path in ("spec", "spec.replicas") for path in items(owner.options.get("ignoreChanges"))
        )
        ray = kind.startswith("Ray")
        fixed = replicas is not None and not is_token(replicas) and not ignored
        faults = [
            *([f"{target} sets replicas to {text(replicas)}, and {title} changes them"] if fixed and not ray else []),
            *([f"{target} is scaled by {other} and by {title}"] if other != title else []),
            *([f"{title} scales {target}, whose pods Ray's own autoscaler sets"] if ray else []),
        ]
        yield Judgement(
            holds=not faults,
            path=(),
            working=(f"{title} gives {target} {scaler.bounds} pods; its own replicas: {text(replicas) or 'not set'}",),
            message="; ".join(faults),
            given=f"replicas: {text(replicas)}" if fixed else target,
            allowed="replicas left out",
            resource=owner.urn if owner else scaler.urn,
        )


@rule(
    "K8S008",
    "Every Service selects pods, and its target ports exist on them.",
    fix="select labels of the pods; set targetPort to the name or number of a containerPort, which the server's --port equals",
    source="Kubernetes, Service: selectors and targetPort by name",
)
def services_lead_to_pods(facts: GraphFacts) -> Iterator[Judgement]:
    for service in facts.objects.get("Service", ()):
        spec = service.inputs.get("spec")
        selector = at(spec, "selector")
        if is_token(selector) or not table(selector) or at(spec, "type") == "ExternalName":
            continue
        namespace = namespace_of(service) or "default"
        pods = [pod for pod in facts.pods if pod.namespace == namespace and pod.has_labels(table(selector))]
        if pods:
            yield from _ports_found(service, spec, pods)
        elif facts.pods_known(namespace):
            wanted = ", ".join(f"{key}={text(value)}" for key, value in table(selector).items())
            yield Judgement(
                holds=False,
                path=(),
                working=(f"{title_of(service)}: no pod template of namespace {namespace} has {wanted}",),
                message=f"{title_of(service)} selects no pod: none in namespace {namespace} has {wanted}",
                given=wanted,
                resource=service.urn,
            )
    for pod, container, title in facts.containers:
        numbers = {number for _, number in container.ports}
        said = _flag_value(container.words, "--port")
        if said is not None and numbers and None not in numbers:
            named = ", ".join(map(str, numbers))
            yield Judgement(
                holds=said in numbers,
                path=(),
                working=(f"{title}: --port {said}; containerPorts {named}",),
                message=f"{title} listens on {said}, which is not among its containerPorts",
                given=f"--port {said}",
                allowed=named,
                resource=pod.urn,
            )


def _ports_found(service: Resource, spec: Any, pods: list[PodTemplate]) -> Iterator[Judgement]:
    ports = [port for pod in pods for container in pod.containers for port in container.ports]
    names, numbers = {name for name, _ in ports}, {number for _, number in ports if number is not None}
    for port in items(at(spec, "ports")):
        target = at(port, "targetPort")
        target = at(port, "port") if target is None else target
        number = whole(target)
        if is_token(target) or (number is None and not isinstance(target, str)) or (number is not None and not numbers):
            continue
        have = ", ".join(unique(f"{name} {text(one)}".strip() for name, one in ports))
        yield Judgement(
            holds=target in names if number is None else number in numbers,
            path=(),
            working=(
                f"{title_of(service)} port {text(at(port, 'port'))} leads to {text(target)}; its pods have {have or 'none'}",
            ),
            message=f"{title_of(service)} leads to port {text(target)}, which {pods[0].title} does not have",
            given=text(target),
            allowed=have,
            # A port can be open without being declared. An undeclared name cannot be resolved.
            severity=None if number is None else "warning",
            resource=service.urn,
        )


def _flag_value(words: tuple[str, ...], flag: str) -> int | None:
    """The number that follows a flag, as the next word or after an equals sign."""
    for word, following in pairwise((*words, "")):
        if word == flag:
            return whole(following)
        if word.startswith(f"{flag}="):
            return whole(word.partition("=")[2])
    return None


@rule(
    "K8S015",
    "A RayService uses only names and fields that KubeRay supports.",
    fix="name a Service beside the RayService instead; shorten the name; use startup and idle times instead of the thresholds",
    source="ray-project/kuberay issues 2433 (headService name), 4045 (length of the name), 1657 (thresholds without effect)",
)
def ray_services_as_kuberay_takes_them(facts: GraphFacts) -> Iterator[Judgement]:
    for service in facts.objects.get("RayService", ()):
        spec, name = service.inputs.get("spec"), name_of(service)
        head = text(at(spec, "rayClusterConfig", "headGroupSpec", "headService", "metadata", "name"))
        ignored = [key for key in _IGNORED_BY_KUBERAY if at(spec, key) is not None and not is_token(spec)]
        refused = [
            *(["it sets the name of its head Service"] if head and not is_token(head) else []),
            *([f"its name has {len(name)} characters"] if len(name) > _LONGEST_RAY_SERVICE and not is_token(name) else []),
        ]
        yield Judgement(
            holds=not refused and not ignored,
            path=(),
            working=(
                f"{title_of(service)}: {len(name)} characters, at most {_LONGEST_RAY_SERVICE}; head Service {head or 'unnamed'}",
            ),
            message=f"{title_of(service)}: {'; '.join((*refused, *(f'{key} has no effect' for key in ignored)))}",
            severity=None if refused else "warning",
            resource=service.urn,
        )


_LONGEST_RAY_SERVICE = 47
_IGNORED_BY_KUBERAY = ("serviceUnhealthySecondThreshold", "deploymentUnhealthySecondThreshold")


@rule(
    "K8S020",
    "Metadata of objects holds no empty map or list.",
    severity="warning",
    fix="leave the key out when there is nothing in it",
    source="Kubernetes API, ObjectMeta: empty fields are not stored, also of custom resources",
)
def metadata_is_kept(facts: GraphFacts) -> Iterator[Judgement]:
    for resource in (resource for found in facts.objects.values() for resource in found):
        metadata = table(resource.inputs.get("metadata"))
        empty = sorted(key for key, value in metadata.items() if value in ({}, [], ()))
        yield Judgement(
            holds=not empty,
            path=(),
            working=(f"{title_of(resource)}: {', '.join(sorted(metadata))}",),
            message=f"{title_of(resource)}: the API server drops the empty {', '.join(empty)}, so every preview adds it",
            given=", ".join(empty),
            resource=resource.urn,
        )


@rule(
    "K8S018",
    "Every object of a cluster is declared once, and no declared namespace is one of Kubernetes's own.",
    fix="give each its own name or namespace; read what exists instead of declaring it",
    source="Kubernetes, Server-Side Apply: a second declaration takes fields over, and destruction of either deletes the object; "
    "Namespaces: initial ones and the prefix kube-",
)
def objects_are_declared_once(facts: GraphFacts) -> Iterator[Judgement]:
    objects = [one for one in facts.graph.resources if is_kubernetes_object(one) and not is_token(name_of(one))]
    named = [resource for resource in objects if at(resource.inputs, "metadata", "name")]
    for same in grouped(((one.provider, *group_kind(one), namespace_of(one), name_of(one)), one) for one in named).values():
        first, *others = same
        if others or group_kind(first)[1] == "Namespace":
            taken = namespace_fault(name_of(first)) if group_kind(first)[1] == "Namespace" else ""
            yield Judgement(
                holds=not others and not taken,
                path=(),
                working=(f"{title_of(first)}: declared by {', '.join(resource.name for resource in same)}",),
                message=f"{title_of(first)} is declared by {' and '.join(one.name for one in same)}" if others else taken,
                given=name_of(first),
                resource=same[-1].urn,
            )


@rule(
    "K8S025",
    "The cluster's version serves the API version of each object.",
    fix="write the object in the API version that took its place",
    source="Kubernetes, APILifecycleRemoved of each kind (reading/removed_apis.toml)",
)
def apis_are_served(facts: GraphFacts) -> Iterator[Judgement]:
    gone, first = tuple(not_served(facts)), next(filter(is_kubernetes_object, facts.graph.resources), None)
    for one, why in gone:
        yield Judgement(False, (), (why,), why, resource=one.urn)
    if first and facts.kubernetes_version and not gone:
        told = f"nothing is known to be gone from Kubernetes {facts.kubernetes_version}"
        yield Judgement(True, (), (told,), resource=first.urn)


def _annotations(resource: Resource) -> Any:
    return at(resource.inputs, "metadata", "annotations")


_LOGIN = ("metadata", "annotations", "alb.ingress.kubernetes.io/auth-type")


@rule(
    "K8S017",
    "Web interfaces ask for a login, and charts open none to the internet.",
    severity="warning",
    fix="leave the setting out; reach the interface with kubectl port-forward, or put a login in front",
    source="catalog/openings.toml; an error where an Ingress without a login leads to the interface",
)
def doors_are_closed(facts: GraphFacts) -> Iterator[Judgement]:
    interfaces, values = openings("interface"), openings("chart")
    led_out = {namespace_of(item) for item in facts.objects.get("Ingress", ()) if not at(item.inputs, *_LOGIN)}
    for pod, container, title in facts.containers:
        variables = dict(container.environment)
        for name, value in variables.items():
            if (row := interfaces.get(name)) and (not row.beside or is_true(variables.get(row.beside))):
                yield _door(title, name, value, row, open_=row.by(value), urn=pod.urn, refused=pod.namespace in led_out)
    for chart in facts.charts:
        for path, value in walk(chart.values):
            where, dotted = f"chart {chart.resource.name}", ".".join(path)
            for row in (row for end, row in values.items() if f".{dotted}".endswith(f".{end}")):
                beside = at(chart.values, *path[:-1])
                limited = text(value) == "LoadBalancer" and (at(beside, "loadBalancerSourceRanges") or at(beside, "annotations"))
                yield _door(where, dotted, text(value), row, open_=row.by(text(value)) and not limited, urn=chart.resource.urn)


def _door(where: str, key: str, value: str, row: Opening, *, open_: bool, urn: str, refused: bool = False) -> Judgement:
    given = text(f"{key}: {value}")
    return Judgement(
        holds=not open_,
        path=(),
        working=(f"{where}: {given}; {row.source}",),
        message=f"{where}: {given}: {row.opens}",
        given=given,
        resource=urn,
        severity="error" if refused else None,
    )
