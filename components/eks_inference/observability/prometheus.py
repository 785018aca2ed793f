"""Creates Prometheus and Grafana, and the resources through which Prometheus scrapes a model server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pulumi
import pulumi_kubernetes as k8s

from eks_inference.aws import iam
from eks_inference.cluster.handle import Cluster
from eks_inference.cluster.objects import EBS_CSI_DRIVER, chart_release, in_namespace, namespace_object, on_cluster, require_addon
from eks_inference.cluster.plan import STORAGE_CLASS
from eks_inference.cluster.pod_identity import pod_identity
from eks_inference.component import Component, carried, rendered
from eks_inference.faults import SpecError
from eks_inference.kubernetes.network_policy import allow_from, namespace, network_policy, pods
from eks_inference.kubernetes.secrets import SecretRef, secret_object
from eks_inference.kubernetes.workloads import APP_LABEL
from eks_inference.observability import prometheus_plan as plan
from eks_inference.observability.handle import Budget, Expected, Metrics, RayPods, VllmPods
from eks_inference.observability.prometheus_plan import expectations
from eks_inference.observability.spec import PrometheusSpec, Receiver, SnsReceiver
from eks_inference.place.placement import Placement
from eks_inference.specs.base import Given


class PrometheusStack(Component):
    """Prometheus with its operator, Grafana, kube-state-metrics and node exporters, from the chart kube-prometheus-stack.

    Prometheus selects every PodMonitor, ServiceMonitor and Probe of the cluster. The component adds to the chart: Grafana
    ``dashboards`` (default: all of ``prometheus_plan.DASHBOARDS``), recording and alerting rules, and PodMonitors for KubeRay
    operators and Karpenter in any namespace. Everything except the node exporters runs on the nodes of ``placement`` (the core
    pool). ``cluster`` must have the storage class gp3.

    There are two namespaces: ``<namespace>`` with Pod Security "restricted", and ``<namespace>-nodes`` with "privileged", because
    node exporters measure the node's network, processes and file system. A NetworkPolicy closes the first to other namespaces,
    except for the webhook port at which the API server validates rules; people use port forwarding. Egress of Prometheus is open,
    because it must reach every target.

    ``grafana_admin_password`` is the password of ``admin``, or the Secret in ``<namespace>`` that holds it; Grafana reads it at
    start. Without it, the chart generates a password and keeps it in the key ``admin-password`` of the Secret
    ``kube-prometheus-stack-grafana``.

    With ``spec.receiver``, Alertmanager sends alerts to it. ``alert_receiver_url`` is the URL of a receiver of kind slack or
    webhook, or the Secret in ``<namespace>`` that holds it. For an SNS topic, Alertmanager gets a role through EKS Pod Identity.

    Helm installs the CustomResourceDefinitions once and neither updates nor deletes them. Before a chart upgrade, apply the new
    ones by hand (kube-prometheus-stack, UPGRADE.md), or set ``crds.upgradeJob.enabled`` in ``values``.

    With ``budget``, kube-state-metrics reports the types of nodes, and the alert OverBudget knows their prices.

    Raises ``SpecError`` when a receiver lacks its URL, or a URL its receiver.
    """

    grafana_service_name = plan.GRAFANA_SERVICE
    """Grafana's Service; port 80."""

    def __init__(
        self,
        name: str,
        spec: Given[PrometheusSpec],
        opts: pulumi.ResourceOptions | None = None,
        *,
        cluster: Cluster,
        placement: Placement,
        grafana_admin_password: SecretRef | pulumi.Input[str] | None = None,
        alert_receiver_url: SecretRef | pulumi.Input[str] | None = None,
        dashboards: Sequence[str] = plan.DASHBOARDS,
        budget: Budget | None = None,
    ) -> None:
        spec = PrometheusSpec.of(spec)
        if faults := plan.url_faults(spec, given=alert_receiver_url is not None):
            raise SpecError(faults)
        require_addon(cluster, EBS_CSI_DRIVER, f"a volume of the storage class {STORAGE_CLASS}")
        super().__init__("eks-inference:index:PrometheusStack", name, spec.inputs(), opts)
        self.cluster = cluster
        self.namespace = spec.namespace
        self.monitor_labels: Mapping[str, str] = {}
        self.url = plan.prometheus_url(spec)
        own_namespace = namespace_object(f"{name}-namespace", spec.namespace, "restricted", cluster=cluster, parent=self)
        # Node exporters need "privileged": they use the node's network, process ids and file system.
        nodes_namespace = namespace_object(
            f"{name}-nodes-namespace", plan.nodes_namespace(spec), "privileged", cluster=cluster, parent=self
        )
        inside = in_namespace(cluster, self, own_namespace)
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
        url, url_secret = secret_object(
            f"{name}-receiver-secret", alert_receiver_url, plan.URL_SECRET, namespace=spec.namespace, opts=inside
        )
        boards = [
            k8s.core.v1.ConfigMap(
                f"{name}-dashboard-{dashboard}",
                metadata={"name": f"dashboard-{dashboard}", "namespace": self.namespace, "labels": plan.DASHBOARD_LABELS},
                data={f"{dashboard}.json": plan.dashboard(dashboard)},
                # Thousands of lines of JSON, which reviewers read in the repository.
                opts=pulumi.ResourceOptions.merge(inside, pulumi.ResourceOptions(hide_diffs=["data"])),
            )
            for dashboard in dashboards
        ]
        release = chart_release(
            f"{name}-release",
            plan.RELEASE,
            namespace=spec.namespace,
            values=plan.chart_values(
                spec,
                placement,
                cluster.settings,
                cluster=cluster.name,
                grafana_password=password,
                receiver=plan.receiver_values(spec.receiver, region=cluster.settings.region, url=url) if spec.receiver else None,
                has_budget=budget is not None,
            ),
            # The release waits for up to two volumes, six images, and node exporters on nodes that may still be starting.
            timeout_seconds=900,
            cluster=cluster,
            opts=on_cluster(
                cluster,
                self,
                *(own_namespace, nodes_namespace, policy),
                *secrets,
                *url_secret,
                *self._publisher(name, spec.receiver),
                *boards,
                *cluster.ready,
                *placement.ready,
            ),
        )
        custom_resources = self._rules_and_monitors(name, spec, budget, on_cluster(cluster, self, release))
        self.ready: Sequence[pulumi.Resource] = (release, *custom_resources)
        self.endpoint = carried(self.url, self.ready)
        self.register_outputs({"namespace": spec.namespace, "prometheus": self.endpoint, "grafanaService": plan.GRAFANA_SERVICE})

    def _publisher(self, name: str, receiver: Receiver | None) -> list[pulumi.Resource]:
        """Creates the role by which Alertmanager publishes to an SNS topic; nothing for other receivers."""
        if not isinstance(receiver, SnsReceiver):
            return []
        return pod_identity(
            f"{name}-alerts",
            cluster=self.cluster,
            namespace=self.namespace,
            service_account=plan.SERVICE_ACCOUNT,
            description=f"Alertmanager of the EKS cluster {self.cluster.name}",
            policies={"publish": rendered(iam.policy_json, plan.publisher(receiver))},
            parent=self,
        )

    def _rules_and_monitors(
        self, name: str, spec: PrometheusSpec, budget: Budget | None, opts: pulumi.ResourceOptions
    ) -> tuple[pulumi.Resource, ...]:
        """Creates the library's recording and alerting rules, and PodMonitors for KubeRay operators and Karpenter."""
        files = {"rules": ("eks-inference", plan.rules(spec.runbooks))}
        if budget:
            files["budget"] = ("eks-inference-budget", plan.budget_series(budget))
        rules = [
            k8s.apiextensions.CustomResource(
                f"{name}-{what}",
                **plan.PROMETHEUS_RULE,
                metadata={"name": called, "namespace": spec.namespace},
                spec=content,
                opts=opts,
            )
            for what, (called, content) in files.items()
        ]
        # The operator exports the state of each RayService, labelled with the name and namespace of that RayService.
        ports = {"kuberay-operator": {"port": "http", "honorLabels": True}, "karpenter": {"port": "http-metrics"}}
        monitors = [
            k8s.apiextensions.CustomResource(
                f"{name}-{controller.removesuffix('-operator')}",
                **plan.pod_monitor(
                    controller, spec.namespace, labels={}, selector={APP_LABEL: controller}, endpoints=[port], any_namespace=True
                ),
                opts=opts,
            )
            for controller, port in ports.items()
        ]
        return *rules, *monitors


class ServerMetrics(Component):
    """Makes Prometheus scrape a model server on Ray: PodMonitors for its head (with the autoscaler) and its workers.

    A PrometheusRule records what alerts expect of the server (``Expected``).

    They are in the server's namespace, which has no other Ray pods, and add the labels ``server`` (the server's name),
    ``ray_io_cluster`` and ``ray_io_node_type``. An additional NetworkPolicy admits Prometheus.

    The metrics cover Ray Serve (requests, errors, latencies, queues, healthy replicas) and Ray (nodes, resources, autoscaler).
    The vLLM engine is a child process of a replica and serves /metrics only on the pod's loopback address. The replica forwards
    these metrics to Ray as ``ray_vllm_...`` (``serving/assets/vllm_metrics.py``).

    Ray updates a value every 10 seconds and exports it once (tested with ray 2.52.1): scrape at intervals of at least 15 seconds,
    and from one Prometheus only.
    """

    def __init__(
        self,
        name: str,
        opts: pulumi.ResourceOptions | None = None,
        *,
        server: RayPods,
        metrics: Metrics,
    ) -> None:
        super().__init__("eks-inference:index:ServerMetrics", name, {"namespace": server.namespace}, opts)
        policy = _let_in(name, server.namespace, plan.RAY_PORTS, metrics=metrics, after=server.ready, parent=self)
        monitors = [
            k8s.apiextensions.CustomResource(
                f"{name}-{role}",
                **plan.pod_monitor(
                    f"ray-{role}",
                    server.namespace,
                    labels=metrics.monitor_labels,
                    selector={"ray.io/node-type": role},
                    endpoints=endpoints,
                ),
                opts=on_cluster(metrics.cluster, self, *metrics.ready, *server.ready),
            )
            for role, endpoints in plan.ray_endpoints().items()
        ]
        rules = _expectations(name, server.expected, server.namespace, metrics=metrics, after=server.ready, parent=self)
        self.ready: Sequence[pulumi.Resource] = (policy, *monitors, rules)
        self.register_outputs({"namespace": server.namespace})


class VllmMetrics(Component):
    """Makes Prometheus scrape a server that runs vLLM without Ray: a PodMonitor for its pods, and a NetworkPolicy for access.

    They are in the server's namespace and add the label ``server``; the label ``job`` is ``<namespace>/vllm`` or
    ``<namespace>/triton``. If pods have several metrics ports, as in a prefill and decode pair, each port becomes a separate
    server, ``<server>-<port name>``: in a sum, every request would otherwise count twice.

    vLLM serves /metrics at its API port, without a key even if the API needs one: its own metrics (``vllm:...``) and those of the
    HTTP server (``http_...``). Triton has a separate port for its counters (``nv_...``) and those of vLLM.

    A PrometheusRule records what alerts expect of the server (``Expected``).

    They do not wait for the model, so that Prometheus also sees a server that never becomes ready.
    """

    def __init__(
        self,
        name: str,
        opts: pulumi.ResourceOptions | None = None,
        *,
        server: VllmPods,
        metrics: Metrics,
    ) -> None:
        super().__init__("eks-inference:index:VllmMetrics", name, {"namespace": server.namespace}, opts)
        ports = server.metrics_ports
        policy = _let_in(name, server.namespace, [*ports.values()], metrics=metrics, after=server.foundation, parent=self)
        monitor = k8s.apiextensions.CustomResource(
            f"{name}-pods",
            **plan.pod_monitor(
                server.metrics_job,
                server.namespace,
                labels=metrics.monitor_labels,
                selector=server.pod_labels,
                endpoints=plan.vllm_endpoints([*ports], server.metric_names),
            ),
            opts=on_cluster(metrics.cluster, self, *metrics.ready, *server.foundation),
        )
        rules = _expectations(
            name,
            server.expected,
            server.namespace,
            # As ``vllm_endpoints`` labels them.
            ports=[*ports] if len(ports) > 1 else (),
            metrics=metrics,
            after=server.foundation,
            parent=self,
        )
        self.ready: Sequence[pulumi.Resource] = (policy, monitor, rules)
        self.register_outputs({"namespace": server.namespace})


class RouterMetrics(Component):
    """Makes Prometheus scrape the router of prefill and decode servers, at the port ``port_name`` of pods with ``pod_labels``.

    The metrics of a static pair (``pair_router_...``) count requests and the slots of the servers, those of vllm-router
    (``vllm_router_...``) requests and servers; the label ``server`` is the name of pair or group.
    """

    def __init__(
        self,
        name: str,
        opts: pulumi.ResourceOptions | None = None,
        *,
        namespace: str,
        pod_labels: Mapping[str, str],
        port: int,
        port_name: str = "http",
        metrics: Metrics,
        after: Sequence[pulumi.Resource],
    ) -> None:
        super().__init__("eks-inference:index:RouterMetrics", name, {"namespace": namespace}, opts)
        policy = _let_in(
            name, namespace, [port], metrics=metrics, after=after, parent=self, policy="router-metrics", selector=pod_labels
        )
        monitor = k8s.apiextensions.CustomResource(
            f"{name}-pods",
            **plan.pod_monitor(
                "router",
                namespace,
                labels=metrics.monitor_labels,
                selector=pod_labels,
                endpoints=[plan.router_endpoint(port_name)],
            ),
            opts=on_cluster(metrics.cluster, self, *metrics.ready, *after),
        )
        self.ready: Sequence[pulumi.Resource] = (policy, monitor)
        self.register_outputs({"namespace": namespace})


def _expectations(
    name: str,
    expected: Expected,
    space: str,
    *,
    ports: Sequence[str] = (),
    metrics: Metrics,
    after: Sequence[pulumi.Resource],
    parent: pulumi.Resource,
) -> pulumi.Resource:
    """Creates the PrometheusRule with what alerts expect of a server, or of each of its ``ports`` as a server."""
    servers = [f"{expected.server}-{port}" for port in ports] or [expected.server]
    labels = metrics.monitor_labels
    return k8s.apiextensions.CustomResource(
        f"{name}-expectations",
        **plan.PROMETHEUS_RULE,
        # The API server drops an empty map, and every later preview would show it as new.
        metadata={"name": "expectations", "namespace": space, **({"labels": dict(labels)} if labels else {})},
        spec=expectations(expected, space, servers),
        opts=on_cluster(metrics.cluster, parent, *metrics.ready, *after),
    )


def _let_in(
    name: str,
    space: str,
    ports: Sequence[int],
    *,
    policy: str = "metrics",
    selector: Mapping[str, str] | None = None,
    metrics: Metrics,
    after: Sequence[pulumi.Resource],
    parent: pulumi.Resource,
) -> k8s.networking.v1.NetworkPolicy:
    """Creates a NetworkPolicy that opens these ports in a server's namespace to Prometheus; without ``selector`` of all pods."""
    return k8s.networking.v1.NetworkPolicy(
        f"{name}-policy",
        **network_policy(
            policy,
            space,
            selector=selector or {},
            ingress=[allow_from(namespace(metrics.namespace), tcp=ports)],
            egress=None,
        ),
        opts=on_cluster(metrics.cluster, parent, *after),
    )
