"""Creates the resources that all accelerator exporters share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pulumi
import pulumi_kubernetes as k8s

from eks_inference.accelerators.claims.component import DraDriver
from eks_inference.accelerators.neuron.component import NeuronPlugin
from eks_inference.accelerators.nvidia.component import NvidiaDevicePlugin
from eks_inference.cluster.objects import in_namespace, namespace_object, on_cluster
from eks_inference.kubernetes.network_policy import EVERY_NAMESPACE, Rule, allow_from, namespace, network_policy
from eks_inference.observability.handle import Metrics
from eks_inference.observability.prometheus_plan import pod_monitor


def device_exporter(
    name: str,
    daemon_set: Mapping[str, Any],
    *,
    port: int,
    endpoints: Sequence[Mapping[str, Any]],
    egress: Sequence[Rule],
    files: Mapping[str, str] | None = None,
    plugin: NeuronPlugin | NvidiaDevicePlugin | DraDriver,
    metrics: Metrics | None,
    parent: pulumi.Resource,
) -> Sequence[pulumi.Resource]:
    """Creates a privileged namespace, a NetworkPolicy, the exporter's DaemonSet and, with ``metrics``, a PodMonitor.

    ``files`` are in a ConfigMap. All have the DaemonSet's name and namespace. Without ``metrics``, any pod of the cluster may
    read ``port``. Returns the resources to depend on.
    """
    cluster = plugin.cluster
    app, space, labels = (daemon_set["metadata"][key] for key in ("name", "namespace", "labels"))
    own_namespace = namespace_object(f"{name}-namespace", space, "privileged", cluster=cluster, parent=parent)
    readers = namespace(metrics.namespace) if metrics else EVERY_NAMESPACE
    policy = k8s.networking.v1.NetworkPolicy(
        f"{name}-policy",
        **network_policy(app, space, selector={}, ingress=[allow_from(readers, tcp=[port])], egress=egress),
        opts=in_namespace(cluster, parent, own_namespace),
    )
    before = [own_namespace, policy, *plugin.ready]
    if files:
        before.append(
            k8s.core.v1.ConfigMap(
                f"{name}-files",
                metadata={"name": app, "namespace": space},
                data=files,
                opts=in_namespace(cluster, parent, own_namespace),
            )
        )
    exporter = k8s.apps.v1.DaemonSet(f"{name}-daemonset", **daemon_set, opts=on_cluster(cluster, parent, *before))
    if metrics is None:
        return (exporter,)
    monitor = k8s.apiextensions.CustomResource(
        f"{name}-podmonitor",
        **pod_monitor(app, space, labels=metrics.monitor_labels, selector=labels, endpoints=endpoints, with_nodes=True),
        opts=on_cluster(cluster, parent, own_namespace, *metrics.ready),
    )
    return (exporter, monitor)
