"""The exporter of NVIDIA GPUs as resources."""

from collections.abc import Sequence

import pulumi

from eks_inference.accelerators.nvidia.component import NvidiaDevicePlugin
from eks_inference.catalog import versions
from eks_inference.observability import dcgm_exporter_plan as plan
from eks_inference.observability.device_exporter import device_exporter
from eks_inference.observability.handle import Metrics
from eks_inference.observability.spec import DcgmExporterSpec


class DcgmExporter(pulumi.ComponentResource):
    """NVIDIA's DCGM exporter on every node with GPUs: what they do, in Prometheus' format on port 9400.

    Builds a namespace, the DaemonSet ``dcgm-exporter``, a NetworkPolicy and, with ``metrics``, a PodMonitor that adds the labels
    ``node`` and ``instance_type``. Without ``metrics`` any pod of the cluster may read it.

    The namespace's Pod Security is "privileged": the exporter asks a socket of the node's kubelet which pod has which GPU, and
    runs as root with SYS_ADMIN, without which the GPUs give no profiling counters. It asks the plugin for no GPU, which would
    take one from the workloads: NVIDIA's runtime shows it all of them.

    Sources: NVIDIA/dcgm-exporter 4.5.3-4.8.2, manifest and chart.
    """

    def __init__(
        self,
        name: str,
        spec: DcgmExporterSpec,
        *,
        plugin: NvidiaDevicePlugin,
        metrics: Metrics | None = None,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("eks-inference:index:DcgmExporter", name, spec.model_dump(mode="json", exclude_none=True), opts)
        self.ready: Sequence[pulumi.Resource] = device_exporter(
            name,
            plan.daemon_set(spec.namespace, plugin.cluster.settings.image(versions.image(plan.NAME))),
            port=plan.PORT,
            endpoints=plan.endpoints(),
            egress=[],
            plugin=plugin,
            metrics=metrics,
            parent=self,
        )
        self.register_outputs({"namespace": spec.namespace})
