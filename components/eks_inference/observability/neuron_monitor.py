"""Creates the exporter of Neuron devices."""

from __future__ import annotations

from collections.abc import Sequence

import pulumi

from eks_inference.accelerators.neuron.component import NeuronPlugin
from eks_inference.catalog import versions
from eks_inference.component import Component
from eks_inference.kubernetes.network_policy import addresses, allow_to
from eks_inference.observability import neuron_monitor_plan as plan
from eks_inference.observability.device_exporter import device_exporter
from eks_inference.observability.handle import Metrics
from eks_inference.observability.spec import NeuronMonitorSpec


class NeuronMonitor(Component):
    """The Neuron monitor on every node with Neuron devices: core utilization, device memory, executions and errors, on port 8000.

    Creates a namespace, the DaemonSet ``neuron-monitor``, a NetworkPolicy and, with ``metrics``, a PodMonitor that adds the
    labels ``node`` and ``instance_type``. Unlike AWS's manifest, it also supports Trn2 and runs on tainted nodes. Without
    ``metrics``, any pod of the cluster may read it.

    The namespace's Pod Security is "privileged", and so is the container: it reads all Neuron devices of the node directly,
    because requesting devices from the plugin would take them from workloads. It depends on the plugin, because it does not see
    devices that the Neuron DRA driver allocated.

    The CloudWatch add-on has its own exporter, which feeds only CloudWatch. With both, each Neuron node runs two exporters, as in
    the source system; ``observability.cloudwatch.configuration: {neuronMonitor: {enabled: false}}`` keeps only this one and
    leaves CloudWatch without Neuron metrics.

    Sources: aws-neuron-sdk 81ce03ae, src/k8/k8s-neuron-monitor-daemonset.yml and "Neuron Monitor" of its Kubernetes guide.
    """

    def __init__(
        self,
        name: str,
        spec: NeuronMonitorSpec,
        *,
        plugin: NeuronPlugin,
        metrics: Metrics | None = None,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("eks-inference:index:NeuronMonitor", name, spec.model_dump(mode="json", exclude_none=True), opts)
        self.ready: Sequence[pulumi.Resource] = device_exporter(
            name,
            plan.daemon_set(spec.namespace, plugin.cluster.settings.image(versions.image(plan.NAME))),
            port=plan.PORT,
            endpoints=plan.ENDPOINTS,
            # The monitor reads instance labels from the metadata service; they stay empty if nodes block pods from it.
            egress=[allow_to(addresses("169.254.169.254/32"), tcp=[80])],
            plugin=plugin,
            metrics=metrics,
            parent=self,
        )
        self.register_outputs({"namespace": spec.namespace})
