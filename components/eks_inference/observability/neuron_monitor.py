"""The exporter of Neuron devices as resources."""

from collections.abc import Sequence

import pulumi
import pulumi_kubernetes as k8s

from eks_inference.accelerators.neuron.component import NeuronPlugin
from eks_inference.accelerators.neuron.plan import neuron_instance_types
from eks_inference.catalog import versions
from eks_inference.kubernetes.network_policy import (
    EVERY_NAMESPACE,
    addresses,
    allow_from,
    allow_to,
    namespace,
    network_policy,
)
from eks_inference.kubernetes.pod_security import enforce
from eks_inference.observability.handle import Metrics
from eks_inference.observability.prometheus_plan import neuron_monitor_endpoints, pod_monitor
from eks_inference.observability.spec import NeuronMonitorSpec
from eks_inference.placement import INSTANCE_TYPE_LABEL

_NAME = "neuron-monitor"
_PORT = 8000


class NeuronMonitor(pulumi.ComponentResource):
    """The Neuron monitor on every node with Neuron devices: use of cores, device memory, executions and errors, on port 8000.

    Builds a namespace, the DaemonSet ``neuron-monitor``, a NetworkPolicy and, with ``metrics``, a PodMonitor that adds the
    labels ``node`` and ``instance_type``. Unlike AWS's manifest it also knows Trn2 and runs on tainted nodes. Without ``metrics``
    any pod of the cluster may read it.

    The namespace's Pod Security is "privileged", and so is the container: it reads all Neuron devices of the node without asking
    the plugin for one, which would take them from the workloads. It stands on the plugin, because it does not know devices that
    the Neuron DRA driver handed out.

    The CloudWatch add-on brings an exporter of its own, which feeds CloudWatch and nothing else. With both there are two on each
    Neuron node, as in the source system; ``observability.cloudwatch.configuration: {neuronMonitor: {enabled: false}}`` leaves
    ours, and CloudWatch without Neuron metrics.

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
        cluster = plugin.cluster
        labels = {"app.kubernetes.io/name": _NAME}

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
                _NAME,
                spec.namespace,
                selector={},
                ingress=[allow_from(namespace(metrics.namespace) if metrics else EVERY_NAMESPACE, tcp=[_PORT])],
                # It asks the metadata service what instance it is on; nodes that keep that from pods leave these labels empty.
                egress=[allow_to(addresses("169.254.169.254/32"), tcp=[80])],
            ),
            opts=options(own_namespace),
        )
        daemon_set = k8s.apps.v1.DaemonSet(
            f"{name}-daemonset",
            metadata={"name": _NAME, "namespace": spec.namespace, "labels": labels},
            spec={
                "selector": {"match_labels": labels},
                "update_strategy": {"type": "RollingUpdate"},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {
                        "automount_service_account_token": False,
                        "affinity": {
                            "node_affinity": {
                                "required_during_scheduling_ignored_during_execution": {
                                    "node_selector_terms": [
                                        {
                                            "match_expressions": [
                                                {"key": INSTANCE_TYPE_LABEL, "operator": "In", "values": neuron_instance_types()}
                                            ]
                                        }
                                    ]
                                }
                            }
                        },
                        # aws.amazon.com/neuron and whatever else a pool adds.
                        "tolerations": [{"operator": "Exists"}],
                        "containers": [
                            {
                                "name": _NAME,
                                "image": cluster.settings.image(versions.image(_NAME)),
                                "image_pull_policy": "IfNotPresent",
                                "command": ["/opt/bin/entrypoint.sh"],
                                "args": [
                                    "--port",
                                    str(_PORT),
                                    "--neuron-monitor-config",
                                    "/opt/aws/neuron/bin/neuron-monitor.conf",
                                ],
                                # What AWS gives it; the Go runtime collects garbage before the limit is reached.
                                "env": [{"name": "GOMEMLIMIT", "value": "160MiB"}],
                                "ports": [{"name": "metrics", "container_port": _PORT}],
                                "readiness_probe": {"tcp_socket": {"port": "metrics"}, "period_seconds": 15},
                                # AWS asks for 256m; less leaves more of a small node to its worker, and it may use as much.
                                "resources": {
                                    "requests": {"cpu": "100m", "memory": "128Mi"},
                                    "limits": {"cpu": "500m", "memory": "256Mi"},
                                },
                                "security_context": {"privileged": True},
                            }
                        ],
                    },
                },
            },
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
                        _NAME,
                        spec.namespace,
                        labels=metrics.monitor_labels,
                        selector=labels,
                        endpoints=neuron_monitor_endpoints(),
                        with_nodes=True,
                    ),
                    opts=options(own_namespace, *metrics.ready),
                )
            )
        self.ready: Sequence[pulumi.Resource] = (daemon_set, *monitors)
        self.register_outputs({"namespace": spec.namespace})
