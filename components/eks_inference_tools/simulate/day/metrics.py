"""Lets autoscalers see metrics: a real Prometheus reads what the servers tell, by the stack's own monitors and rules. A stand-in
of prometheus-adapter hands it to the real controller by the stack's own rules; KEDA's operator and metrics server run in a
program of ours (control_plane/tools/keda) and ask for it themselves.

Triggers of Prometheus get their answers from the day's own, at whatever address they name. Schedules go by this machine's clock.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from eks_inference.place.nodes import amount
from eks_inference.scaling.keda import RELEASE
from eks_inference_tools.reading.live_objects import Object, condition_of, identity_of, name_of
from eks_inference_tools.simulate.control_plane.control_plane import ControlPlane
from eks_inference_tools.simulate.control_plane.processes import Answer, Request, plain, serving
from eks_inference_tools.simulate.day import custom_metrics, real_prometheus
from eks_inference_tools.simulate.day.custom_metrics import registration
from eks_inference_tools.simulate.day.real_prometheus import Prometheus
from eks_inference_tools.simulate.day.requests import Requests
from eks_inference_tools.simulate.day.subjects import Subject, sources_of
from eks_inference_tools.simulate.simulation import Simulation
from stackgraph.graph.document import Graph
from stackgraph.graph.values import at, items, text

TOOL = "keda-on-loopback"

_GROUP = "external.metrics.k8s.io"

HPA_TYPE = "kubernetes:autoscaling/v2:HorizontalPodAutoscaler"
SCALED_OBJECT_TYPE = "kubernetes:keda.sh/v1alpha1:ScaledObject"


def start(plane: ControlPlane, prometheus: Prometheus) -> None:
    """Starts KEDA among the control plane's processes, and waits until the API server has its metrics."""
    argv = [plane.toolchain.path(TOOL), plane.kubeconfig, prometheus.url, "--bind-address=127.0.0.1"]
    argv += ["--authentication-skip-lookup"]  # the API server has no certificate of a client here, and names no authority
    argv += [f"--tls-cert-file={plane.certificate}", f"--tls-private-key-file={plane.certificate.with_suffix('.key')}"]
    argv += [f"--{asked}-kubeconfig={plane.kubeconfig}" for asked in ("authentication", "authorization")]
    run = plane.processes
    port = run.start_on_a_port(TOOL, lambda port: [*argv, f"--secure-port={port}"], lambda _: "Serving securely" in run.log(TOOL))
    *_, service = items = registration(RELEASE, port, _GROUP)
    for item in (*items, *_for_everyone()):
        plane.api.apply(item)

    def available() -> bool:
        found = plane.api.get("apiservices.apiregistration.k8s.io", service["metadata"]["name"]) or {}
        return (condition_of(found, "Available") or {}).get("status") == "True"

    run.wait_until(available, seconds=60, what="KEDA's metrics server")


def _for_everyone() -> Iterator[dict[str, Any]]:
    """Lets in the API server, which is nobody without a certificate."""
    of, name = "rbac.authorization.k8s.io", f"simulated-{RELEASE}"
    role = {"apiGroup": of, "kind": "ClusterRole", "name": name}
    rules = [{"apiGroups": [_GROUP], "resources": ["*"], "verbs": ["get", "list"]}]
    rules += [{"nonResourceURLs": [f"/apis/{_GROUP}*"], "verbs": ["get"]}]
    who = [{"apiGroup": of, "kind": "Group", "name": "system:unauthenticated"}]
    about = {"apiVersion": f"{of}/v1", "metadata": {"name": name}}
    yield {**about, "kind": "ClusterRole", "rules": rules}
    yield {**about, "kind": "ClusterRoleBinding", "roleRef": role, "subjects": who}


@dataclass
class Pages:
    """The metrics of pods by their addresses: a proxy through which Prometheus reads them."""

    by_address: Mapping[str, str] = field(default_factory=dict[str, str])

    def write(self, pods: Sequence[tuple[Object, Requests]]) -> None:
        """Replaces all pages, which other threads read."""
        self.by_address = {text(at(pod, "status", "podIP")): flow.page(name_of(pod)) for pod, flow in pods}

    def answer(self, request: Request) -> Answer:
        asked = urlsplit(request.target)
        page = self.by_address.get(asked.hostname or "")
        return plain(502, "no pod listens at this address\n") if page is None else plain(200, page)


def tools_for(graph: Graph) -> tuple[str, ...]:
    """The programs that autoscalers of a stack need to see metrics."""
    sources, scaled = sources_of(graph), bool(graph.of_type(SCALED_OBJECT_TYPE))
    if not sources or not (scaled or (sources.rules and graph.of_type(HPA_TYPE))):
        return ()
    return (real_prometheus.TOOL, TOOL) if scaled else (real_prometheus.TOOL,)


def scalers_of(graph: Graph) -> int:
    """How many HorizontalPodAutoscalers there are once KEDA has made its own."""
    return len(graph.of_type(HPA_TYPE)) + len(graph.of_type(SCALED_OBJECT_TYPE)) * (TOOL in tools_for(graph))


@contextmanager
def seeing(simulated: Simulation) -> Iterator[Pages]:
    """Serves metrics to autoscalers while the context lasts."""
    pages, graph, plane = Pages(), simulated.graph, simulated.plane
    sources, tools = sources_of(graph), tools_for(graph)
    if not tools or sources is None:
        yield pages
        return
    with ExitStack() as stack:
        port = stack.enter_context(serving(pages.answer))
        server = real_prometheus.start(plane, sources, proxy=f"http://127.0.0.1:{port}")
        stack.callback(plane.processes.stop, real_prometheus.TOOL)
        if sources.rules:
            stack.enter_context(custom_metrics.registered(plane, sources, server))
        if TOOL in tools:
            start(plane, server)
            stack.callback(plane.processes.stop, TOOL)
        yield pages


def blind(graph: Graph) -> Iterator[str]:
    """Yields which autoscalers see nothing in a day, and why."""
    sources = sources_of(graph)
    if graph.of_type(HPA_TYPE) and not (sources and sources.rules):
        yield "HorizontalPodAutoscalers see no metrics: Prometheus or its adapter is not in the stack"
    if graph.of_type(SCALED_OBJECT_TYPE) and sources is None:
        yield "KEDA's ScaledObjects see no metrics: Prometheus is not in the stack"


def metric_of(subject: Subject, autoscalers: Sequence[Object]) -> float | None:
    """What the autoscaler of a server sees on average of a pod; of several metrics the one that asks for most pods."""
    asks = dict[float, float]()
    for one in autoscalers:
        target = at(one, "spec", "scaleTargetRef", "name")
        if (identity_of(one)[0], target) == (subject.template.namespace, subject.template.name):
            for wanted, found in zip(items(at(one, "spec", "metrics")), items(at(one, "status", "currentMetrics")), strict=False):
                kind = text(at(wanted, "type")).lower()
                each = (at(found, kind, "current", "averageValue"), at(wanted, kind, "target", "averageValue"))
                if all(each):
                    average, most = (float(amount(str(value))) for value in each)
                    asks[average / most] = average
    return asks[max(asks)] if asks else None
