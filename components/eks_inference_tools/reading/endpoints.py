"""Reads endpoints from a graph: Services, Ingresses and load balancers, and what the proxies of model endpoints ask. Pure."""

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from eks_inference_tools.reading.object_kinds import name_of, namespace_of
from eks_inference_tools.reading.pod_templates import PodTemplate, pod_templates
from stackgraph.graph.describe import is_kubernetes_object, ports, short_type
from stackgraph.graph.document import Graph, Resource, is_read
from stackgraph.graph.values import at, grouped, items, joined, table, text, unique

_SCHEME_ANNOTATIONS = (
    "service.beta.kubernetes.io/aws-load-balancer-scheme",
    "service.beta.kubernetes.io/aws-load-balancer-internal",
    "alb.ingress.kubernetes.io/scheme",
)
MODEL_ENDPOINT = "eks-inference:index:ModelEndpoint"
_SCHEMES = {"true": "internal", "false": "internet-facing"}


@dataclass(frozen=True)
class Endpoint:
    """A Service, Ingress or load balancer. ``outside``: it is reachable from outside the cluster."""

    urn: str
    kind: str
    namespace: str
    name: str
    type: str
    ports: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    outside: bool = False


def endpoints(graph: Graph) -> tuple[Endpoint, ...]:
    """The endpoints of a graph, those that are reachable from outside the cluster first."""
    return tuple(sorted(_endpoints(graph), key=lambda e: (not e.outside, e.namespace, e.name, e.kind, e.urn)))


def _endpoints(graph: Graph) -> Iterator[Endpoint]:
    for resource in graph.resources:
        inputs = resource.inputs
        if resource.type in ("aws:lb/loadBalancer:LoadBalancer", "aws:alb/loadBalancer:LoadBalancer") and not is_read(resource):
            scheme = _SCHEMES.get(text(inputs.get("internal")) or "false", "")
            type_ = joined(text(inputs.get("loadBalancerType")) or "application", scheme, by=", ")
            yield Endpoint(resource.urn, short_type(resource.type), "", text(resource.name), type_, outside=True)
        if not is_kubernetes_object(resource):
            continue
        namespace, name, spec = namespace_of(resource), name_of(resource), inputs.get("spec")
        annotations = table(at(inputs, "metadata", "annotations"))
        said = next((text(annotations[key]) for key in _SCHEME_ANNOTATIONS if key in annotations), "")
        scheme = _SCHEMES.get(said, said)
        if resource.type == "kubernetes:core/v1:Service":
            type_ = text(at(spec, "type")) or "ClusterIP"
            type_ = "headless" if at(spec, "clusterIP") == "None" else type_
            outside = type_ not in ("ClusterIP", "ExternalName", "headless")
            type_ = joined(type_, scheme if type_ == "LoadBalancer" else "", by=", ")
            yield Endpoint(resource.urn, "Service", namespace, name, type_, ports(spec), outside=outside)
        elif resource.type == "kubernetes:networking.k8s.io/v1:Ingress":
            hosts = unique(text(at(rule, "host")) for rule in items(at(spec, "rules")))
            type_ = joined(at(spec, "ingressClassName"), scheme, by=", ")
            yield Endpoint(resource.urn, "Ingress", namespace, name, type_, hosts=hosts, outside=True)


def led_to(graph: Graph) -> Iterator[tuple[Resource, tuple[PodTemplate, ...]]]:
    """Yields the Services that select pods, each with the templates of those; without objects that are scaled to none."""
    pods = [pod_template for pod_template in pod_templates(graph) if pod_template.pods != 0 or pod_template.between]
    for service in graph.of_type("kubernetes:core/v1:Service"):
        if wanted := table(at(service.inputs, "spec", "selector")):
            place = namespace_of(service) or "default"
            yield service, tuple(pod for pod in pods if pod.namespace == place and pod.has_labels(wanted))


def answering(graph: Graph, endpoint: str) -> dict[str, frozenset[str]]:
    """The servers that a model endpoint asks, by the model that a request names, as the routes of its proxy say."""
    pairs = [pair for one in graph.resources if one.parent == endpoint for pair in _asked(at(one.inputs, "data", "envoy.json"))]
    return {model: frozenset(servers) for model, servers in grouped(pairs).items()}


def _asked(value: Any) -> Iterator[tuple[str, str]]:
    """Models, each with a server that a route anywhere inside leads to. Envoy's cluster is called as its servers."""
    if isinstance(value, Mapping) and "route" in value:
        named = [text(at(item, "value", "string_match", "exact")) for item in items(at(value, "match", "dynamic_metadata"))]
        ways = items(at(value, "route", "weighted_clusters", "clusters"))
        clusters = [at(way, "name") for way in ways if at(way, "weight")] or [at(value, "route", "cluster")]
        model = next(filter(None, named), "the KServe API" if at(value, "match", "safe_regex") else "")
        yield from ((model, one) for cluster in clusters for one in text(cluster).partition("/")[0].split("+") if model)
    elif isinstance(value, str):
        with suppress(ValueError):
            yield from _asked({} if value[:1] != "{" else json.loads(value))
    elif isinstance(value, Mapping | list):
        for inner in value.values() if isinstance(value, Mapping) else value:
            yield from _asked(inner)
