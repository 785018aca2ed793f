"""Creates the exporter of NVIDIA GPUs."""

from __future__ import annotations

from collections.abc import Sequence

import pulumi

from eks_inference.accelerators.claims.component import DraDriver
from eks_inference.accelerators.nvidia.component import NvidiaDevicePlugin
from eks_inference.catalog import versions
from eks_inference.component import Component
from eks_inference.observability import dcgm_exporter_plan as plan
from eks_inference.observability.device_exporter import device_exporter
from eks_inference.observability.handle import Metrics
from eks_inference.observability.spec import DcgmExporterSpec
from eks_inference.spec import Given


class DcgmExporter(Component):
    """NVIDIA's DCGM exporter on every node with GPUs: GPU metrics on port 9400.

    Creates a namespace, the DaemonSet ``dcgm-exporter``, the ConfigMap with its counters (``assets/gpu-counters.csv``), a
    NetworkPolicy and, with ``metrics``, a PodMonitor that adds the labels ``node`` and ``instance_type``. Without ``metrics``,
    any pod of the cluster may read it.

    The namespace's Pod Security is "privileged": the exporter reads the assignment of GPUs to pods from a kubelet socket, and
    runs as root with SYS_ADMIN, which GPU profiling counters require. It requests no GPU from the plugin, because that would take
    one from workloads: NVIDIA's runtime exposes all GPUs to it.

    Sources: NVIDIA/dcgm-exporter 4.5.3-4.8.2, manifest and chart.
    """

    def __init__(
        self,
        name: str,
        spec: Given[DcgmExporterSpec],
        opts: pulumi.ResourceOptions | None = None,
        *,
        plugin: NvidiaDevicePlugin | DraDriver,
        metrics: Metrics | None = None,
    ) -> None:
        spec = DcgmExporterSpec.of(spec)
        super().__init__("eks-inference:index:DcgmExporter", name, spec.inputs(), opts)
        self.ready: Sequence[pulumi.Resource] = device_exporter(
            name,
            plan.daemon_set(spec.namespace, plugin.cluster.settings.image(versions.image(plan.NAME))),
            port=plan.PORT,
            endpoints=plan.ENDPOINTS,
            egress=[],
            files={plan.COUNTERS_FILE: plan.counters()},
            plugin=plugin,
            metrics=metrics,
            parent=self,
        )
        self.register_outputs({"namespace": spec.namespace})
