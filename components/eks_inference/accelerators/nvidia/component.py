"""Support for NVIDIA GPUs as typed Kubernetes objects, so that a preview shows each of them."""

from collections.abc import Sequence

import pulumi
import pulumi_kubernetes as k8s

from eks_inference.accelerators.neuron.plan import NAMESPACE
from eks_inference.accelerators.nvidia import plan
from eks_inference.accelerators.nvidia.spec import DcgmExporterSpec, NvidiaSpec
from eks_inference.catalog import versions
from eks_inference.cluster.handle import Cluster
from eks_inference.kubernetes.network_policy import EVERY_NAMESPACE, allow_from, namespace, network_policy
from eks_inference.kubernetes.pod_security import enforce
from eks_inference.observability.handle import Metrics
from eks_inference.observability.prometheus_plan import pod_monitor


class NvidiaDevicePlugin(pulumi.ComponentResource):
    """The NVIDIA device plugin: makes ``nvidia.com/gpu`` a resource of every node with GPUs.

    Builds the DaemonSet ``nvidia-device-plugin`` in ``kube-system``, on every GPU instance type of the catalog whatever its
    taints. Never install it beside the GPU operator or NVIDIA's DRA driver: two of them on a node hand out the same GPU twice.

    Sources: NVIDIA/k8s-device-plugin v0.20.0, static manifest. Unlike it, the plugin names its instance types, so that it does
    not fail on nodes without GPUs, and runs whatever else a pool's taints are.
    """

    resource_name = plan.GPU_RESOURCE
    """What pods ask for."""

    def __init__(self, name: str, spec: NvidiaSpec, *, cluster: Cluster, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("eks-inference:index:NvidiaDevicePlugin", name, spec.model_dump(mode="json", exclude_none=True), opts)
        self.cluster = cluster
        daemon_set = k8s.apps.v1.DaemonSet(
            f"{name}-daemonset",
            **plan.plugin_daemon_set(NAMESPACE, cluster.settings.image(versions.image(plan.PLUGIN_NAME))),
            opts=pulumi.ResourceOptions(parent=self, provider=cluster.provider, depends_on=[*cluster.ready]),
        )
        self.ready: Sequence[pulumi.Resource] = (daemon_set,)
        self.register_outputs({"resourceName": plan.GPU_RESOURCE})


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
        cluster = plugin.cluster
        labels = {"app.kubernetes.io/name": plan.EXPORTER_NAME}

        def options(*depends_on: pulumi.Resource) -> pulumi.ResourceOptions:
            return pulumi.ResourceOptions(parent=self, provider=cluster.provider, depends_on=[*depends_on])

        # Privileged: see the docstring.
        own_namespace = k8s.core.v1.Namespace(
            f"{name}-namespace",
            metadata={"name": spec.namespace, "labels": enforce("privileged")},
            opts=options(*cluster.ready),
        )
        policy = k8s.networking.v1.NetworkPolicy(
            f"{name}-policy",
            **network_policy(
                plan.EXPORTER_NAME,
                spec.namespace,
                selector={},
                ingress=[allow_from(namespace(metrics.namespace) if metrics else EVERY_NAMESPACE, tcp=[plan.EXPORTER_PORT])],
                egress=[],
            ),
            opts=options(own_namespace),
        )
        daemon_set = k8s.apps.v1.DaemonSet(
            f"{name}-daemonset",
            **plan.exporter_daemon_set(spec.namespace, cluster.settings.image(versions.image(plan.EXPORTER_NAME))),
            opts=options(own_namespace, policy, *plugin.ready),
        )
        monitors: list[pulumi.Resource] = []
        if metrics:
            monitors.append(
                k8s.apiextensions.CustomResource(
                    f"{name}-podmonitor",
                    api_version="monitoring.coreos.com/v1",
                    kind="PodMonitor",
                    **pod_monitor(
                        plan.EXPORTER_NAME,
                        spec.namespace,
                        labels=metrics.monitor_labels,
                        selector=labels,
                        endpoints=plan.exporter_endpoints(),
                        with_nodes=True,
                    ),
                    opts=options(own_namespace, *metrics.ready),
                )
            )
        self.ready: Sequence[pulumi.Resource] = (daemon_set, *monitors)
        self.register_outputs({"namespace": spec.namespace})
