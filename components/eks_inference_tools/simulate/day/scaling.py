"""Lets autoscalers see metrics: a real Prometheus reads what the servers tell, by the stack's own monitors and rules, and a
stand-in of prometheus-adapter hands it to the real controller by the stack's own rules.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from eks_inference.place.quantity import amount
from eks_inference_tools.reading.live_objects import Object, identity_of, name_of
from eks_inference_tools.simulate.control_plane.processes import Answer, Request, plain, serving
from eks_inference_tools.simulate.day import custom_metrics, prometheus
from eks_inference_tools.simulate.day.requests import Requests
from eks_inference_tools.simulate.day.sources import sources_of
from eks_inference_tools.simulate.day.subjects import Subject
from eks_inference_tools.simulate.simulation import Simulation
from stackgraph.graph.document import Graph
from stackgraph.graph.values import at, items, text

HPA_TYPE = "kubernetes:autoscaling/v2:HorizontalPodAutoscaler"
SCALED_OBJECT_TYPE = "kubernetes:keda.sh/v1alpha1:ScaledObject"


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
    return (prometheus.TOOL,) if graph.of_type(HPA_TYPE) and sources_of(graph) else ()


@contextmanager
def seeing(simulated: Simulation) -> Iterator[Pages]:
    """Serves metrics to autoscalers while the context lasts."""
    pages, graph, plane = Pages(), simulated.graph, simulated.plane
    sources = sources_of(graph)
    if not tools_for(graph) or sources is None:
        yield pages
        return
    with ExitStack() as stack:
        port = stack.enter_context(serving(pages.answer))
        server = prometheus.start(plane, sources, proxy=f"http://127.0.0.1:{port}")
        stack.callback(plane.processes.stop, prometheus.TOOL)
        stack.enter_context(custom_metrics.registered(plane, sources, server))
        yield pages


def blind(graph: Graph) -> Iterator[str]:
    """Yields which autoscalers see nothing in a day, and why."""
    if graph.of_type(HPA_TYPE) and sources_of(graph) is None:
        yield "HorizontalPodAutoscalers see no metrics: Prometheus or its adapter is not in the stack"
    for one in graph.of_type(SCALED_OBJECT_TYPE):
        yield f"KEDA's ScaledObject {'/'.join(identity_of(one.inputs))} adds no pods: its operator does not run here"


def metric_of(subject: Subject, autoscalers: Sequence[Object]) -> float | None:
    """What the autoscaler of a server sees on average."""
    for one in autoscalers:
        target = at(one, "spec", "scaleTargetRef", "name")
        if (identity_of(one)[0], target) == (subject.template.namespace, subject.template.name):
            for metric in items(at(one, "status", "currentMetrics")):
                if average := at(metric, "pods", "current", "averageValue"):
                    return float(amount(str(average)))
    return None
