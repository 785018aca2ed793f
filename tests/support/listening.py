"""What listens in the pods of a graph, and whom NetworkPolicies let in: an entry for each port of each kind of pod."""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from eks_inference.kubernetes.network_policy import NAMESPACE_LABEL
from eks_inference.kubernetes.workloads import APP_LABEL
from eks_inference.serving.pods import ROLE_LABEL
from eks_inference_tools.reading.graph_facts import GraphFacts
from eks_inference_tools.reading.pod_templates import PodTemplate
from graphs import kind, kubernetes
from stackgraph.graph.document import Graph, Resource

_KNOWN = {"monitoring": "Prometheus", "kuberay-operator": "KubeRay"}
ANYBODY, EVERY_POD, NOBODY = "anybody", "every pod", "nobody"
NARROWED = "namespaces with labels"
"""Of clients or of Prometheus, where a stack names them."""


def listening(graph: Graph) -> Mapping[tuple[str, str], set[str]]:
    """Returns who may connect, by kind of pod (``VllmServer``, ``DisaggregatedPair router``) and port."""
    facts = GraphFacts(graph)
    policies = [one for one in kubernetes(graph) if kind(one) == "NetworkPolicy"]
    services = [one for one in kubernetes(graph) if kind(one) == "Service"]
    found: dict[tuple[str, str], set[str]] = defaultdict(set)
    for pod in (one for one in facts.pods if one.kind not in ("Job", "CronJob")):
        own = [one for one in policies if _selects(one, pod)]
        ports = {f"{port['containerPort']}" for container in pod.containers for port in container.document.get("ports", ())}
        names = {
            port["name"]: f"{port['containerPort']}"
            for each in pod.containers
            for port in each.document.get("ports", ())
            if "name" in port
        }
        for service in services:
            if service.inputs["metadata"]["namespace"] == pod.namespace and pod.has_labels(
                service.inputs["spec"].get("selector", {"": ""})
            ):
                wanted = {str(port.get("targetPort", port["port"])) for port in service.inputs["spec"].get("ports", ())}
                ports |= {names.get(port, port) for port in wanted}
        ports |= {str(port["port"]) for one in own for rule in _rules(one) for port in rule.get("ports", ())}
        for port in ports:
            found[_kind(pod), port] |= _reach(own, port) if not pod.spec.document.get("hostNetwork") else {ANYBODY}
    for chart in facts.charts:
        space = chart.namespace
        own = [one for one in policies if one.inputs["metadata"]["namespace"] == space and not one.inputs["spec"]["podSelector"]]
        found[f"chart {chart.name}", "*"] |= (
            {who for one in own for rule in _rules(one) for who in _who(rule)} if own else {ANYBODY}
        )
    return found


def _kind(pod: PodTemplate) -> str:
    component = re.findall(r"eks-inference:index:(\w+)\$", pod.urn)[-1]
    role = pod.labels.get(ROLE_LABEL) or pod.part.partition(" ")[0] or pod.labels.get(APP_LABEL, "")
    return f"{component} {role}".strip()


def _selects(policy: Resource, pod: PodTemplate) -> bool:
    spec = policy.inputs["spec"]
    there = policy.inputs["metadata"]["namespace"] == pod.namespace and "Ingress" in spec["policyTypes"]
    return there and pod.has_labels(spec["podSelector"].get("matchLabels", {}))


def _rules(policy: Resource) -> list[Any]:
    return policy.inputs["spec"].get("ingress", [])


def _reach(policies: list[Resource], port: str) -> set[str]:
    if not policies:
        return {ANYBODY}
    rules = [rule for one in policies for rule in _rules(one)]
    open_ = [rule for rule in rules if not rule.get("ports") or port in {str(each["port"]) for each in rule["ports"]}]
    return {who for rule in open_ for who in _who(rule)} or {NOBODY}


def _who(rule: Mapping[str, Any]) -> Iterator[str]:
    for peer in rule.get("from", ()):
        space = peer.get("namespaceSelector")
        if "ipBlock" in peer:
            yield "load balancers"
        elif "podSelector" in peer:
            yield "pods"
        elif not space:
            yield EVERY_POD
        else:
            yield _KNOWN.get(space["matchLabels"].get(NAMESPACE_LABEL), NARROWED)
    if "from" not in rule:
        yield ANYBODY
