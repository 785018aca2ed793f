"""Prometheus and Grafana as resources, and what makes them read a model server."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import pulumi
import pulumi_kubernetes as k8s

from eks_inference.catalog import versions
from eks_inference.cluster.handle import Cluster
from eks_inference.kubernetes.network_policy import allow_from, namespace, network_policy, pods
from eks_inference.kubernetes.pod_security import enforce
from eks_inference.kubernetes.secrets import SecretRef
from eks_inference.observability import prometheus_plan as plan
from eks_inference.observability.handle import Metrics
from eks_inference.observability.spec import PrometheusSpec
from eks_inference.placement import Placement
from eks_inference.serving.handle import ModelServer

_MONITOR = {"api_version": "monitoring.coreos.com/v1", "kind": "PodMonitor"}


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
        settings = cluster.settings

        def options(*depends_on: pulumi.Resource) -> pulumi.ResourceOptions:
            return pulumi.ResourceOptions(parent=self, provider=cluster.provider, depends_on=[*depends_on])

        own_namespace = k8s.core.v1.Namespace(
            f"{name}-namespace",
            metadata={"name": spec.namespace, "labels": enforce("restricted")},
            opts=options(*cluster.ready),
        )
        # Node exporters use the node's network, process ids and file system.
        nodes_namespace = k8s.core.v1.Namespace(
            f"{name}-nodes-namespace",
            metadata={"name": plan.nodes_namespace(spec), "labels": enforce("privileged")},
            opts=options(*cluster.ready),
        )
        policy = k8s.networking.v1.NetworkPolicy(
            f"{name}-policy",
            **network_policy(
                "prometheus",
                spec.namespace,
                selector={},
                ingress=[allow_from(pods({})), allow_from(tcp=[plan.WEBHOOK_PORT])],
                egress=None,
            ),
            opts=options(own_namespace),
        )
        before: list[pulumi.Resource] = [own_namespace, nodes_namespace, policy]
        password = grafana_admin_password
        if password is not None and not isinstance(password, SecretRef):
            secret = k8s.core.v1.Secret(
                f"{name}-grafana-secret",
                metadata={"name": plan.GRAFANA_SECRET, "namespace": spec.namespace},
                string_data={plan.GRAFANA_PASSWORD_KEY: pulumi.Output.secret(password)},
                opts=options(own_namespace),
            )
            before.append(secret)
            password = SecretRef(plan.GRAFANA_SECRET, plan.GRAFANA_PASSWORD_KEY)
        boards = [
            k8s.core.v1.ConfigMap(
                f"{name}-dashboard-{dashboard}",
                metadata={
                    "name": f"dashboard-{dashboard}",
                    "namespace": spec.namespace,
                    "labels": plan.DASHBOARD_LABELS,
                },
                data={f"{dashboard}.json": plan.dashboard(dashboard)},
                opts=options(own_namespace),
            )
            for dashboard in dashboards
        ]
        chart = versions.chart("kube-prometheus-stack")
        location, repository = chart.location(settings.chart(chart.reference))
        release = k8s.helm.v3.Release(
            f"{name}-release",
            name=plan.RELEASE,
            namespace=spec.namespace,
            chart=location,
            version=chart.version,
            repository_opts=k8s.helm.v3.RepositoryOptsArgs(repo=repository) if repository else None,
            values=plan.chart_values(
                spec,
                placement,
                settings,
                cluster=cluster.name,
                grafana_password=(password.name, password.key) if password else None,
            ),
            # Two volumes at most, half a dozen images, and a node exporter on nodes that may still be starting.
            timeout=900,
            opts=options(*before, *boards, *cluster.ready, *placement.ready),
        )
        rules = k8s.apiextensions.CustomResource(
            f"{name}-rules",
            api_version="monitoring.coreos.com/v1",
            kind="PrometheusRule",
            metadata={"name": "eks-inference", "namespace": spec.namespace},
            spec=plan.rules(),
            opts=options(release),
        )
        kuberay = k8s.apiextensions.CustomResource(
            f"{name}-kuberay",
            **_MONITOR,
            **plan.pod_monitor(
                "kuberay-operator",
                spec.namespace,
                labels={},
                selector={"app.kubernetes.io/name": "kuberay-operator"},
                endpoints=plan.kuberay_endpoints(),
                any_namespace=True,
            ),
            opts=options(release),
        )
        self.ready: Sequence[pulumi.Resource] = (release, rules, kuberay)
        self.register_outputs({"namespace": spec.namespace, "prometheus": self.url, "grafanaService": plan.GRAFANA_SERVICE})


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

    def __init__(self, name: str, *, server: ModelServer, metrics: Metrics, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("eks-inference:index:ServerMetrics", name, {"namespace": server.namespace}, opts)
        provider = metrics.cluster.provider
        policy = _let_in(name, server.namespace, plan.RAY_PORTS, metrics=metrics, after=server.ready, parent=self)
        endpoints = {"head": plan.ray_head_endpoints(), "worker": plan.ray_worker_endpoints()}
        monitors = [
            k8s.apiextensions.CustomResource(
                f"{name}-{role}",
                **_MONITOR,
                **plan.pod_monitor(
                    f"ray-{role}",
                    server.namespace,
                    labels=metrics.monitor_labels,
                    selector={"ray.io/node-type": role},
                    endpoints=endpoints[role],
                ),
                opts=pulumi.ResourceOptions(parent=self, provider=provider, depends_on=[*metrics.ready, *server.ready]),
            )
            for role in endpoints
        ]
        self.ready: Sequence[pulumi.Resource] = (policy, *monitors)
        self.register_outputs({"namespace": server.namespace})


class VllmPods(Protocol):
    """A server whose pods hand on what vLLM counts: ``VllmServer``, ``TritonServer``, ``DisaggregatedPair``.

    It is alone in its namespace.
    """

    @property
    def metrics_job(self) -> str:
        """Whose metrics they are, as dashboards ask: ``vllm``, or ``triton`` around it."""
        ...

    @property
    def metrics_ports(self) -> Mapping[str, int]:
        """Where they answer, by the names of the ports in the pods."""
        ...

    @property
    def metric_names(self) -> Mapping[str, str]:
        """Metrics that dashboards know by another name: theirs → the dashboards'."""
        ...

    @property
    def namespace(self) -> str: ...
    @property
    def pod_labels(self) -> Mapping[str, str]: ...
    @property
    def foundation(self) -> Sequence[pulumi.Resource]:
        """What must exist before anything in the namespace."""
        ...


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
            **_MONITOR,
            **plan.pod_monitor(
                server.metrics_job,
                server.namespace,
                labels=metrics.monitor_labels,
                selector=server.pod_labels,
                endpoints=plan.vllm_endpoints([*server.metrics_ports], server.metric_names),
            ),
            opts=pulumi.ResourceOptions(
                parent=self, provider=metrics.cluster.provider, depends_on=[*metrics.ready, *server.foundation]
            ),
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
        opts=pulumi.ResourceOptions(parent=parent, provider=metrics.cluster.provider, depends_on=[*after]),
    )
