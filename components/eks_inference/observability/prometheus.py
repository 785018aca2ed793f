"""Prometheus and Grafana as resources, and what makes them read a model server."""

from collections.abc import Mapping, Sequence

import pulumi
import pulumi_kubernetes as k8s

from eks_inference.cluster.handle import Cluster
from eks_inference.cluster.objects import chart_release, namespace_object, on_cluster
from eks_inference.kubernetes.network_policy import allow_from, namespace, network_policy, pods
from eks_inference.kubernetes.secret_object import secret_object
from eks_inference.kubernetes.secrets import SecretRef
from eks_inference.kubernetes.workloads import APP_LABEL
from eks_inference.observability import prometheus_plan as plan
from eks_inference.observability.handle import Metrics, RayPods, VllmPods
from eks_inference.observability.spec import PrometheusSpec
from eks_inference.placement import Placement


class PrometheusStack(pulumi.ComponentResource):
    """Prometheus with its operator, Grafana, kube-state-metrics and node exporters, from the chart kube-prometheus-stack.

    Prometheus reads every PodMonitor, ServiceMonitor and Probe of the cluster, whoever made them. Added to the chart: Grafana
    ``dashboards`` of Ray, vLLM and Neuron devices (all of ``prometheus_plan.DASHBOARDS`` unless told otherwise), recording and
    alerting rules, and a PodMonitor of the KubeRay operators in whatever namespace. All but the node exporters is on the nodes of
    ``placement`` (the core pool). ``cluster`` has to have the storage class gp3.

    Two namespaces: ``<namespace>`` with Pod Security "restricted", and ``<namespace>-nodes`` with "privileged", where the node
    exporters use the node's network, process ids and file system: what they measure is there. A NetworkPolicy closes the first
    to other namespaces, but for the port at which the API server asks the operator about rules; a person forwards a port.
    Prometheus itself may reach anything: it has to.

    ``grafana_admin_password`` is the password of ``admin``, or the Secret that holds it, in ``<namespace>``; Grafana reads it
    when it starts. Without it the chart makes one and keeps it: key ``admin-password`` of the Secret
    ``kube-prometheus-stack-grafana``.

    Helm installs the definitions (PodMonitor ...) once and neither updates nor deletes them: before a newer chart, apply those of
    its version by hand (kube-prometheus-stack, UPGRADE.md), or set ``crds.upgradeJob.enabled`` in ``values``.
    """

    grafana_service_name = plan.GRAFANA_SERVICE
    """Grafana's Service; port 80."""

    def __init__(
        self,
        name: str,
        spec: PrometheusSpec,
        *,
        cluster: Cluster,
        placement: Placement,
        grafana_admin_password: SecretRef | pulumi.Input[str] | None = None,
        dashboards: Sequence[str] = plan.DASHBOARDS,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("eks-inference:index:PrometheusStack", name, spec.model_dump(mode="json", exclude_none=True), opts)
        self.cluster = cluster
        self.namespace = spec.namespace
        self.monitor_labels: Mapping[str, str] = {}
        self.url = plan.prometheus_url(spec)
        own_namespace = namespace_object(f"{name}-namespace", spec.namespace, "restricted", cluster=cluster, parent=self)
        # Privileged: node exporters use the node's network, process ids and file system.
        nodes_namespace = namespace_object(
            f"{name}-nodes-namespace", plan.nodes_namespace(spec), "privileged", cluster=cluster, parent=self
        )
        inside = on_cluster(cluster, self, own_namespace)
        policy = k8s.networking.v1.NetworkPolicy(
            f"{name}-policy",
            **network_policy(
                "prometheus",
                spec.namespace,
                selector={},
                ingress=[allow_from(pods({})), allow_from(tcp=[plan.WEBHOOK_PORT])],
                egress=None,
            ),
            opts=inside,
        )
        password, secrets = secret_object(
            f"{name}-grafana-secret",
            grafana_admin_password,
            SecretRef(plan.GRAFANA_SECRET, plan.GRAFANA_PASSWORD_KEY),
            namespace=spec.namespace,
            opts=inside,
        )
        boards = [self._dashboard(name, dashboard, inside) for dashboard in dashboards]
        release = chart_release(
            f"{name}-release",
            plan.RELEASE,
            namespace=spec.namespace,
            values=plan.chart_values(
                spec,
                placement,
                cluster.settings,
                cluster=cluster.name,
                grafana_password=(password.name, password.key) if password else None,
            ),
            # Two volumes at most, half a dozen images, and a node exporter on nodes that may still be starting.
            timeout_seconds=900,
            cluster=cluster,
            opts=on_cluster(
                cluster,
                self,
                *(own_namespace, nodes_namespace, policy),
                *secrets,
                *boards,
                *cluster.ready,
                *placement.ready,
            ),
        )
        rules, kuberay = self._read_and_judged(name, spec, on_cluster(cluster, self, release))
        self.ready: Sequence[pulumi.Resource] = (release, rules, kuberay)
        self.register_outputs({"namespace": spec.namespace, "prometheus": self.url, "grafanaService": plan.GRAFANA_SERVICE})

    def _dashboard(self, name: str, dashboard: str, opts: pulumi.ResourceOptions) -> pulumi.Resource:
        return k8s.core.v1.ConfigMap(
            f"{name}-dashboard-{dashboard}",
            metadata={"name": f"dashboard-{dashboard}", "namespace": self.namespace, "labels": plan.DASHBOARD_LABELS},
            data={f"{dashboard}.json": plan.dashboard(dashboard)},
            opts=opts,
        )

    def _read_and_judged(
        self, name: str, spec: PrometheusSpec, opts: pulumi.ResourceOptions
    ) -> tuple[pulumi.Resource, pulumi.Resource]:
        """Our recording and alerting rules, and a PodMonitor of the KubeRay operators."""
        rules = k8s.apiextensions.CustomResource(
            f"{name}-rules",
            **plan.PROMETHEUS_RULE,
            metadata={"name": "eks-inference", "namespace": spec.namespace},
            spec=plan.rules(),
            opts=opts,
        )
        kuberay = k8s.apiextensions.CustomResource(
            f"{name}-kuberay",
            **plan.POD_MONITOR,
            **plan.pod_monitor(
                "kuberay-operator",
                spec.namespace,
                labels={},
                selector={APP_LABEL: "kuberay-operator"},
                endpoints=plan.kuberay_endpoints(),
                any_namespace=True,
            ),
            opts=opts,
        )
        return rules, kuberay


class ServerMetrics(pulumi.ComponentResource):
    """Makes Prometheus read a model server on Ray: PodMonitors of its head (with the autoscaler) and of its workers.

    They stand in the server's own namespace, which holds no other Ray pods, and add the labels ``server`` (the server's name),
    ``ray_io_cluster`` and ``ray_io_node_type``. A NetworkPolicy lets Prometheus in, beside those of the server.

    What is seen: Ray Serve (requests, errors, latencies, queues, healthy replicas) and Ray itself (nodes, resources, autoscaler).
    The vLLM engine is a child process of a replica and answers /metrics on the pod's loopback only; Prometheus sees what the
    replica hands on to Ray, under the names ``ray_vllm_...`` (``serving/assets/vllm_metrics.py``).

    Ray renews a value every 10 seconds and hands it out once (ray 2.52.1, tried): scrape every 15 seconds or less often, and from
    one Prometheus only.
    """

    def __init__(self, name: str, *, server: RayPods, metrics: Metrics, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("eks-inference:index:ServerMetrics", name, {"namespace": server.namespace}, opts)
        policy = _let_in(name, server.namespace, plan.RAY_PORTS, metrics=metrics, after=server.ready, parent=self)
        endpoints = {"head": plan.ray_head_endpoints(), "worker": plan.ray_worker_endpoints()}
        monitors = [
            k8s.apiextensions.CustomResource(
                f"{name}-{role}",
                **plan.POD_MONITOR,
                **plan.pod_monitor(
                    f"ray-{role}",
                    server.namespace,
                    labels=metrics.monitor_labels,
                    selector={"ray.io/node-type": role},
                    endpoints=endpoints[role],
                ),
                opts=on_cluster(metrics.cluster, self, *metrics.ready, *server.ready),
            )
            for role in endpoints
        ]
        self.ready: Sequence[pulumi.Resource] = (policy, *monitors)
        self.register_outputs({"namespace": server.namespace})


class VllmMetrics(pulumi.ComponentResource):
    """Makes Prometheus read a server that runs vLLM without Ray: a PodMonitor of its pods, and a NetworkPolicy that lets it in.

    They stand in the server's namespace and add the label ``server``; the label ``job`` is ``<namespace>/vllm`` or
    ``<namespace>/triton``. Where pods answer at several ports, as those of a prefill and decode pair do, each is a server of its
    own, ``<server>-<port name>``: added up, every request would count twice.

    vLLM answers /metrics at the port of its API, without a key even where the API wants one: under its own names (``vllm:...``),
    and of the HTTP server ``http_...``. Triton has a port of its own for its counters (``nv_...``) and those of vLLM.

    They do not wait for the model: a server that never comes up is what one wants to see.
    """

    def __init__(self, name: str, *, server: VllmPods, metrics: Metrics, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("eks-inference:index:VllmMetrics", name, {"namespace": server.namespace}, opts)
        ports = [*server.metrics_ports.values()]
        policy = _let_in(name, server.namespace, ports, metrics=metrics, after=server.foundation, parent=self)
        monitor = k8s.apiextensions.CustomResource(
            f"{name}-pods",
            **plan.POD_MONITOR,
            **plan.pod_monitor(
                server.metrics_job,
                server.namespace,
                labels=metrics.monitor_labels,
                selector=server.pod_labels,
                endpoints=plan.vllm_endpoints([*server.metrics_ports], server.metric_names),
            ),
            opts=on_cluster(metrics.cluster, self, *metrics.ready, *server.foundation),
        )
        self.ready: Sequence[pulumi.Resource] = (policy, monitor)
        self.register_outputs({"namespace": server.namespace})


def _let_in(
    name: str,
    space: str,
    ports: Sequence[int],
    *,
    metrics: Metrics,
    after: Sequence[pulumi.Resource],
    parent: pulumi.Resource,
) -> k8s.networking.v1.NetworkPolicy:
    """Opens these ports of all pods of a server's namespace to Prometheus."""
    return k8s.networking.v1.NetworkPolicy(
        f"{name}-policy",
        **network_policy(
            "metrics",
            space,
            selector={},
            ingress=[allow_from(namespace(metrics.namespace), tcp=ports)],
            egress=None,
        ),
        opts=on_cluster(metrics.cluster, parent, *after),
    )
