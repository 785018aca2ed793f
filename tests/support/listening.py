"""What listens in the pods of a graph, and whom NetworkPolicies let in: an entry for each port of each kind of pod."""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from eks_inference.kubernetes.workloads import APP_LABEL
from eks_inference.serving.pod_parts import ROLE_LABEL
from eks_inference.serving.ray_serve.plan import NODE_TYPE_LABEL
from eks_inference_tools.reading.graph_facts import GraphFacts
from eks_inference_tools.reading.pod_templates import PodTemplate
from graphs import kind, kubernetes
from stackgraph.graph.document import Graph
from traffic import Manifest, Outside, Pod, passes, policies_of

KNOWN: Mapping[str, Pod] = {"Prometheus": Pod("monitoring"), "KubeRay": Pod("kuberay-operator")}
EVERY_POD = Pod("elsewhere")
ANYBODY, OF_ITS_NAMESPACE, NOBODY = "anybody", "its namespace", "nobody"


def listening(graph: Graph) -> Mapping[tuple[str, str], set[str]]:
    """Returns who may connect, by kind of pod (``VllmServer``, ``DisaggregatedPair router``) and port: each is tried."""
    facts = GraphFacts(graph)
    policies = [
        {**one, "spec": {**one["spec"], "policyTypes": ["Ingress"]}}
        for one in policies_of(graph)
        if "Ingress" in one["spec"]["policyTypes"]
    ]
    services = [resource for resource in kubernetes(graph) if kind(resource) == "Service"]
    pods = {_kind(pod): _pod(pod) for pod in facts.pods}
    found: dict[tuple[str, str], set[str]] = defaultdict(set)
    for pod in (pod for pod in facts.pods if pod.kind not in ("Job", "CronJob")):
        own = _pod(pod)
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
        ports |= {str(port) for port in _ports(policies, own)}
        for port in ports:
            tried = {ANYBODY} if pod.spec.document.get("hostNetwork") else {*_admitted(policies, own, int(port), pods)}
            found[_kind(pod), port] |= tried or {NOBODY}
    for chart in facts.charts:
        own = Pod(chart.namespace)
        for port in {*_ports(policies, own), 1}:
            found[f"chart {chart.name}", "*"] |= {*_admitted(policies, own, port, {})}
    return found


def _pod(pod: PodTemplate) -> Pod:
    # KubeRay sets this one.
    role = {NODE_TYPE_LABEL: pod.part if pod.part == "head" else "worker"} if pod.kind.startswith("Ray") else {}
    return Pod(pod.namespace, {**pod.labels, **role})


def _kind(pod: PodTemplate) -> str:
    component = re.findall(r"eks-inference:index:(\w+)\$", pod.urn)[-1]
    role = pod.labels.get(ROLE_LABEL) or pod.part.partition(" ")[0] or pod.labels.get(APP_LABEL, "")
    return f"{component} {role}".strip()


def _rules(policies: Sequence[Manifest], pod: Pod) -> Iterator[Manifest]:
    for policy in policies:
        wanted = policy["spec"]["podSelector"].get("matchLabels", {})
        if policy["metadata"]["namespace"] == pod.namespace and wanted.items() <= pod.labels.items():
            yield from policy["spec"].get("ingress", ())


def _ports(policies: Sequence[Manifest], pod: Pod) -> set[int]:
    return {port["port"] for rule in _rules(policies, pod) for port in rule.get("ports", ())}


def _admitted(policies: Sequence[Manifest], target: Pod, port: int, pods: Mapping[str, Pod]) -> Iterator[str]:
    """Yields who gets in: the widest of them, and load balancers. A pod of neither the server nor an endpoint is named."""

    def enters(source: Pod | Outside) -> bool:
        return passes(policies, source, target, port)

    if enters(Outside("198.51.100.7")):
        yield ANYBODY
        return
    blocks = {peer["ipBlock"]["cidr"] for rule in _rules(policies, target) for peer in rule.get("from", ()) if "ipBlock" in peer}
    if any(enters(Outside(block.partition("/")[0])) for block in blocks):
        yield "load balancers"
    if enters(EVERY_POD):
        yield "every pod"
        return
    yield from (name for name, pod in KNOWN.items() if enters(pod))
    if enters(Pod(target.namespace)):
        yield OF_ITS_NAMESPACE
        return
    own = next((name.partition(" ")[0] for name, pod in pods.items() if pod == target), "")
    for name, pod in pods.items():
        if enters(pod):
            yield "pods" if name.partition(" ")[0] in (own, "ModelEndpoint") else name
