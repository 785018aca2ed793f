"""Creates the exporters of accelerators."""

from __future__ import annotations

from collections.abc import Sequence

import pulumi
import pulumi_kubernetes as k8s

from eks_inference.accelerators.claims.component import DraDriver
from eks_inference.accelerators.neuron.component import NeuronPlugin
from eks_inference.accelerators.nvidia.component import NvidiaDevicePlugin
from eks_inference.catalog import versions
from eks_inference.cluster.objects import in_namespace, namespace_object, on_cluster
from eks_inference.component import Component
from eks_inference.kubernetes.network_policy import EVERY_NAMESPACE, allow_from, namespace, network_policy
from eks_inference.observability import device_exporters_plan as plan
from eks_inference.observability.handle import Metrics
from eks_inference.observability.prometheus_plan import pod_monitor
from eks_inference.observability.spec import DcgmExporterSpec, NeuronMonitorSpec
from eks_inference.specs.base import Given


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
        spec: Given[NeuronMonitorSpec],
        opts: pulumi.ResourceOptions | None = None,
        *,
        plugin: NeuronPlugin,
        metrics: Metrics | None = None,
    ) -> None:
        spec = NeuronMonitorSpec.of(spec)
        super().__init__("eks-inference:index:NeuronMonitor", name, spec.inputs(), opts)
        self.ready: Sequence[pulumi.Resource] = _created(
            name, plan.neuron_monitor(), spec.namespace, plugin, metrics, parent=self
        )
        self.register_outputs({"namespace": spec.namespace})


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
        self.ready: Sequence[pulumi.Resource] = _created(name, plan.dcgm_exporter(), spec.namespace, plugin, metrics, parent=self)
        self.register_outputs({"namespace": spec.namespace})


def _created(
    name: str,
    exporter: plan.Exporter,
    space: str,
    plugin: NeuronPlugin | NvidiaDevicePlugin | DraDriver,
    metrics: Metrics | None,
    *,
    parent: pulumi.Resource,
) -> Sequence[pulumi.Resource]:
    """Creates a privileged namespace, a NetworkPolicy, the DaemonSet and, with ``metrics``, a PodMonitor.

    All have the exporter's name. Without ``metrics``, any pod of the cluster may read its port. Returns the resources to depend
    on.
    """
    cluster, app = plugin.cluster, exporter.name
    daemon_set = exporter.daemon_set(space, cluster.settings.image(versions.image(app)))
    own_namespace = namespace_object(f"{name}-namespace", space, "privileged", cluster=cluster, parent=parent)
    inside = in_namespace(cluster, parent, own_namespace)
    reading = allow_from(namespace(metrics.namespace) if metrics else EVERY_NAMESPACE, tcp=[exporter.port])
    policy = k8s.networking.v1.NetworkPolicy(
        f"{name}-policy",
        **network_policy(app, space, selector={}, ingress=[reading], egress=exporter.egress),
        opts=inside,
    )
    before = [own_namespace, policy, *plugin.ready]
    if exporter.files:
        before.append(
            k8s.core.v1.ConfigMap(f"{name}-files", metadata={"name": app, "namespace": space}, data=exporter.files, opts=inside)
        )
    running = k8s.apps.v1.DaemonSet(f"{name}-daemonset", **daemon_set, opts=on_cluster(cluster, parent, *before))
    if metrics is None:
        return (running,)
    labels = daemon_set["metadata"]["labels"]
    monitor = k8s.apiextensions.CustomResource(
        f"{name}-podmonitor",
        **pod_monitor(app, space, labels=metrics.monitor_labels, selector=labels, endpoints=[exporter.endpoint], with_nodes=True),
        opts=on_cluster(cluster, parent, own_namespace, *metrics.ready),
    )
    return (running, monitor)
