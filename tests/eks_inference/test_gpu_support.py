"""The device plugin of NVIDIA GPUs, and the exporter that tells Prometheus about them."""

from typing import Any

from eks_inference.accelerators.nvidia.component import NvidiaDevicePlugin
from eks_inference.accelerators.nvidia.plan import NvidiaSpec
from eks_inference.observability.device_exporters import DcgmExporter
from eks_inference.observability.handle import ExistingPrometheus
from eks_inference.observability.spec import DcgmExporterSpec
from graphs import stands_on
from handles import existing_cluster
from stackgraph.graph.document import Graph
from stackgraph.recorder.recording import record
from traffic import Pod, passes, policies_of

CLIENT = Pod("triton-client")
PROMETHEUS = Pod("monitoring")


def gpu_support(monitored: bool = True, **settings: Any) -> Graph:
    def build() -> None:
        cluster = existing_cluster(**settings)
        plugin = NvidiaDevicePlugin("nvidia", NvidiaSpec(), cluster=cluster)
        metrics = ExistingPrometheus(cluster, "monitoring", {"release": "prometheus"}) if monitored else None
        DcgmExporter("dcgm", DcgmExporterSpec(), plugin=plugin, metrics=metrics)

    return record(build)


def test_the_exporter_stands_on_the_plugin_and_only_prometheus_reads_it() -> None:
    graph = gpu_support()
    assert stands_on(graph, graph.named("dcgm-daemonset"), graph.named("nvidia-daemonset"))
    exporter = Pod("dcgm-exporter", {"app.kubernetes.io/name": "dcgm-exporter"})
    assert passes(policies_of(graph), PROMETHEUS, exporter, 9400)
    assert not passes(policies_of(graph), CLIENT, exporter, 9400)
    assert passes(policies_of(gpu_support(monitored=False)), CLIENT, exporter, 9400)
    assert not [resource for resource in gpu_support(monitored=False).resources if resource.inputs.get("kind") == "PodMonitor"]
