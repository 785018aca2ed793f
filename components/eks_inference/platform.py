"""Builds a whole stack from a ``StackSpec``, in the order in which components depend on each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, cast, get_args

import pulumi

from eks_inference.accelerators.claims.component import DraDriver
from eks_inference.accelerators.claims.plan import DeviceKind
from eks_inference.accelerators.efa.component import EfaPlugin
from eks_inference.accelerators.neuron.component import NeuronPlugin, NeuronScheduler
from eks_inference.accelerators.nvidia.component import NvidiaDevicePlugin
from eks_inference.assembly import OnCorePool, build_endpoints, build_gateway, deploy_server
from eks_inference.aws import naming
from eks_inference.clients.component import OpenWebUI, SmokeTest, TritonClient
from eks_inference.cluster.component import ClusterAddons, EksCluster
from eks_inference.component import Component
from eks_inference.faults import Fault, SpecError, faults_under, format_path
from eks_inference.gateway.spec import WEB_UI
from eks_inference.kubernetes.secrets import CONFIG_SECRETS
from eks_inference.loadtest.component import MAX_NAME_LENGTH as LOAD_TEST_NAME
from eks_inference.loadtest.component import LoadTest
from eks_inference.network.component import Vpc
from eks_inference.network.handle import Network, existing_vpc
from eks_inference.observability.cloudwatch import CloudWatchObservability, FluentBit
from eks_inference.observability.device_exporters import DcgmExporter, NeuronMonitor
from eks_inference.observability.handle import Budget
from eks_inference.observability.prometheus import PrometheusStack
from eks_inference.pools.karpenter import Karpenter
from eks_inference.pools.karpenter_pool import KarpenterPool
from eks_inference.pools.managed import ManagedPool
from eks_inference.pools.node_monitoring import NodeMonitoringAgent
from eks_inference.pools.spec import KarpenterPoolSpec, ManagedPoolSpec
from eks_inference.scaling.component import Backend
from eks_inference.scaling.keda import Keda
from eks_inference.scaling.prometheus_adapter import PrometheusAdapter
from eks_inference.serving.handle import Dependencies, Server
from eks_inference.serving.kuberay.component import KubeRayOperator
from eks_inference.serving.leader_worker_sets.component import LeaderWorkerSetController
from eks_inference.serving.triton.component import TritonServer
from eks_inference.specs.base import Given
from eks_inference.specs.project_files import project_folder
from eks_inference.specs.settings import StackSettings
from eks_inference.speed.rules import TrafficFacts
from eks_inference.stack.outputs import stack_outputs
from eks_inference.stack.own_rows import node_prices
from eks_inference.stack.reading import parse_stack
from eks_inference.stack.references import missing_secrets
from eks_inference.stack.registry import check_spec
from eks_inference.stack.spec import StackSpec
from eks_inference.storage.component import FileSystemDriver, shared_store

_DEVICE_KINDS: tuple[DeviceKind, ...] = get_args(DeviceKind)


class InferencePlatform(Component):
    """VPC, cluster, pools, accelerator support, model servers and observability of one stack.

    Other components of a program build on ``cluster`` (which can run pods), ``pools[name]`` and ``servers[name]``. ``outputs``
    are the outputs of a stack: names, and the commands to run next.
    """

    judges_parts = True

    def __init__(
        self,
        spec: Given[StackSpec],
        opts: pulumi.ResourceOptions | None = None,
        *,
        region: str | None = None,
        profile: str | None = None,
        hugging_face_token: pulumi.Input[str] | None = None,
        grafana_admin_password: pulumi.Input[str] | None = None,
        alert_receiver_url: pulumi.Input[str] | None = None,
        open_webui_admin_password: pulumi.Input[str] | None = None,
        serving_api_key: pulumi.Input[str] | None = None,
        gateway_client_secret: pulumi.Input[str] | None = None,
        endpoint_keys: pulumi.Input[str] | None = None,
    ) -> None:
        """``region`` and ``profile``, which kubectl uses too, default to ``aws:region`` and ``aws:profile`` of the stack.

        ``hugging_face_token`` is for models that are not public.

        With ``serving_api_key``, vLLM requires that key of every client, also behind Ray Serve; web UI, smoke test and load test
        send it. Triton and disaggregated pairs have no API key. Without ``endpoint_keys``, clients of endpoints use it, too. Pods
        read the key when they start, so after a change servers and web UI need new pods.

        Raises ``SpecError`` before anything is registered when a rule finds that the stack cannot run. Logs warnings of rules
        and what they could not judge.
        """
        spec = StackSpec.of(spec)
        verdict = check_spec(spec, region or spec.settings().region)
        if verdict.faults:
            raise SpecError(verdict.faults)
        settings = spec.settings(region, profile)
        inputs = {"name": spec.name, "region": settings.region} | ({"prices": spec.inputs()["prices"]} if spec.prices else {})
        if spec.budget_usd_per_month:
            inputs["budgetUsdPerMonth"] = spec.budget_usd_per_month
        if spec.resolved:
            # What is open may resolve otherwise with the next release: a preview shows that it does, and why.
            inputs["resolved"] = {format_path(one.path): {"value": one.value, "why": one.why} for one in spec.resolved}
        if verdict.not_judged:
            # `check` of a program without a stack object has only the graph to tell by.
            inputs["notJudged"] = [asdict(not_judged) for not_judged in verdict.not_judged]
        if takes := {str(one.server.path[1]): one.document for one in verdict.subjects if isinstance(one, TrafficFacts)}:
            inputs["takes"] = takes
        super().__init__("eks-inference:index:InferencePlatform", spec.name, inputs, opts)
        for finding in verdict.findings:
            if not finding.reason:
                pulumi.log.warn(finding.summary)
        for each in verdict.not_judged:
            pulumi.log.warn(each.summary)
        self._spec, self._child = spec, pulumi.ResourceOptions(parent=self)

        self.control_plane = control_plane = self._foundation(settings)
        prometheus = self._observability(grafana_admin_password, alert_receiver_url)
        devices = self._accelerators(prometheus)
        dependencies = Dependencies(
            cluster=self.cluster,
            network=self.network,
            core=self._core,
            pools=self.pools,
            hugging_face_token=hugging_face_token,
            api_key=serving_api_key,
            **devices,
            **self._operators(),
        )
        backends = self._scaling(prometheus) if prometheus else {}
        self.servers: dict[str, Server] = {}
        for server, server_spec in spec.servers.items():
            with faults_under("servers", server):
                self.servers[server] = deploy_server(
                    server, server_spec, dependencies, prometheus=prometheus, backends=backends, opts=self._child
                )
        self.endpoints = build_endpoints(
            spec, self.servers, prometheus=prometheus, keys=endpoint_keys, server_key=serving_api_key, on_core=self._on_core
        )
        clients = self._clients(open_webui_admin_password, hugging_face_token, serving_api_key)
        web_ui: OpenWebUI | None = clients["web_ui"]
        self.gateway = build_gateway(
            spec,
            {**self.endpoints, **({WEB_UI: web_ui} if web_ui else {})},
            network=self.network,
            client_secret=gateway_client_secret,
            on_core=self._on_core,
        )
        self.outputs: Mapping[str, Any] = stack_outputs(
            control_plane,
            self.servers,
            **clients,
            endpoints=self.endpoints,
            gateway=self.gateway,
            has_chat=any(spec.servers[one].does in ("chat", "complete") for one in spec.servers_with("openai")),
            with_key=serving_api_key is not None,
        )
        self.register_outputs(self.outputs)

    def _foundation(self, settings: StackSettings) -> EksCluster:
        """Creates VPC, control plane, node pools, and the add-ons that pods need."""
        spec, name, child = self._spec, self._spec.name, self._child
        with faults_under("network"):
            self.network: Network = (
                existing_vpc(existing, isolated=spec.network.nat == "none")
                if (existing := spec.network.existing)
                else Vpc(f"{name}-net", spec.network, settings=settings, cluster_name=name, families=spec.families(), opts=child)
            )
        with faults_under("cluster"):
            control_plane = EksCluster(name, spec.cluster, network=self.network, settings=settings, opts=child)
        managed: dict[str, ManagedPool] = {}
        for pool, pool_spec in spec.pools.items():
            if isinstance(pool_spec, ManagedPoolSpec):
                with faults_under("pools", pool):
                    managed[pool] = ManagedPool(
                        f"{name}-{pool}", pool_spec, cluster=control_plane, network=self.network, pool=pool, opts=child
                    )
        self._core = managed[spec.core_pool].placement()
        with faults_under("addons"):
            self.cluster = ClusterAddons(f"{name}-addons", spec.addons, cluster=control_plane, core=self._core, opts=child)
        self._on_core: OnCorePool = {"cluster": self.cluster, "placement": self._core, "opts": child}
        self.pools: dict[str, ManagedPool | KarpenterPool] = {**managed}
        filled = {pool: pool_spec for pool, pool_spec in spec.pools.items() if isinstance(pool_spec, KarpenterPoolSpec)}
        if filled:
            with faults_under("karpenter"):
                karpenter = Karpenter(f"{name}-karpenter", spec.karpenter, network=self.network, **self._on_core)
            for pool, pool_spec in filled.items():
                with faults_under("pools", pool):
                    self.pools[pool] = KarpenterPool(
                        f"{name}-{pool}",
                        pool_spec,
                        cluster=self.cluster,
                        network=self.network,
                        karpenter=karpenter,
                        pool=pool,
                        opts=child,
                    )
        return control_plane

    def _observability(
        self, grafana_admin_password: pulumi.Input[str] | None, alert_receiver_url: pulumi.Input[str] | None
    ) -> PrometheusStack | None:
        """Creates CloudWatch, Fluent Bit and Prometheus; returns Prometheus."""
        wanted, name, child = self._spec.observability, self._spec.name, self._child
        if wanted.cloudwatch:
            with faults_under("observability", "cloudwatch"):
                CloudWatchObservability(f"{name}-cloudwatch", wanted.cloudwatch, cluster=self.cluster, opts=child)
        if wanted.fluent_bit:
            FluentBit(f"{name}-fluent-bit", wanted.fluent_bit, cluster=self.cluster, opts=child)
        if not wanted.prometheus:
            return None
        with faults_under("observability", "prometheus"):
            return PrometheusStack(
                f"{name}-prometheus",
                wanted.prometheus,
                grafana_admin_password=grafana_admin_password,
                # A URL that stays in the configuration after its receiver is gone does no harm.
                alert_receiver_url=alert_receiver_url if wanted.prometheus.receiver_has_url else None,
                dashboards=self._spec.dashboards,
                budget=self._budget(),
                **self._on_core,
            )

    def _budget(self) -> Budget | None:
        spec = self._spec
        if spec.budget_usd_per_month is None:
            return None
        types = {instance.name for pool in spec.pools.values() for instance in pool.instances()}
        return Budget(spec.budget_usd_per_month, node_prices(types, spec.prices, self.cluster.settings.region))

    def _accelerators(self, prometheus: PrometheusStack | None) -> dict[str, Any]:
        """Creates device plugins, the EFA plugin and device monitors; returns what servers depend on."""
        spec, name, child = self._spec, self._spec.name, self._child
        scheduler = gpu_plugin = efa = None
        drivers = {
            kind: DraDriver(f"{name}-{kind}-claims", devices=kind, cluster=self.cluster, opts=child)
            for kind in _DEVICE_KINDS
            if spec.offers("claims", kind)
        }
        if spec.accelerators.neuron and spec.has_plugin("neuron"):
            neuron = NeuronPlugin(f"{name}-neuron", spec.accelerators.neuron, cluster=self.cluster, opts=child)
            if spec.has_neuron_scheduler:
                scheduler = NeuronScheduler(f"{name}-neuron-scheduler", plugin=neuron, placement=self._core, opts=child)
            if monitor := spec.observability.neuron_monitor:
                NeuronMonitor(f"{name}-neuron-monitor", monitor, plugin=neuron, metrics=prometheus, opts=child)
        if spec.accelerators.nvidia and spec.has_plugin("nvidia"):
            gpu_plugin = NvidiaDevicePlugin(
                f"{name}-nvidia",
                spec.accelerators.nvidia,
                cluster=self.cluster,
                beside_efa=spec.offers("plugin", "efa"),
                opts=child,
            )
        if (exporter := spec.observability.dcgm_exporter) and (gpus := gpu_plugin or drivers.get("nvidia")):
            DcgmExporter(f"{name}-dcgm", exporter, plugin=gpus, metrics=prometheus, opts=child)
        if spec.repairs_nodes:
            NodeMonitoringAgent(f"{name}-node-monitoring", cluster=self.cluster, opts=child)
        if spec.offers("plugin", "efa"):
            efa = EfaPlugin(f"{name}-efa", cluster=self.cluster, opts=child)
        return {"scheduler": scheduler, "gpu_plugin": gpu_plugin, "efa": efa, "drivers": drivers}

    def _operators(self) -> dict[str, Any]:
        """Creates the operators, CSI drivers and shared stores that servers need."""
        spec, name, child = self._spec, self._spec.name, self._child
        ray = groups = None
        if "kuberay" in spec.operators:
            with faults_under("kuberay"):
                ray = KubeRayOperator(f"{name}-kuberay", spec.kuberay, **self._on_core)
        if "leader_worker_set" in spec.operators:
            groups = LeaderWorkerSetController(f"{name}-lws", **self._on_core)
        drivers = {
            kind: FileSystemDriver(f"{name}-{kind.replace('_', '-')}-driver", kind, cluster=self.cluster, opts=child)
            for kind in spec.file_systems
        }
        stores = {
            store: shared_store(
                f"{name}-{store}-store",
                wanted,
                cluster=self.cluster,
                network=self.network,
                driver=drivers[wanted.file_system],
                opts=child,
            )
            for store, wanted in spec.stores.items()
        }
        return {"ray_operator": ray, "leader_worker_sets": groups, "file_system_drivers": drivers, "stores": stores}

    def _scaling(self, prometheus: PrometheusStack) -> dict[str, Backend]:
        """Creates the backends that server autoscalers need; returns them by kind of autoscaler."""
        spec, name = self._spec, self._spec.name
        found: dict[str, Backend] = {}
        if spec.scaled_by("keda"):
            with faults_under("scaling", "keda"):
                found["keda"] = Keda(f"{name}-keda", spec.scaling.keda, prometheus=prometheus, **self._on_core)
        if spec.scaled_by("hpa") and spec.observability.prometheus:
            with faults_under("scaling", "prometheus_adapter"):
                found["hpa"] = PrometheusAdapter(
                    f"{name}-prometheus-adapter",
                    spec.scaling.prometheus_adapter,
                    metrics=prometheus,
                    scrape_interval_seconds=spec.observability.prometheus.scrape_interval_seconds,
                    **self._on_core,
                )
        return found

    def _clients(
        self,
        open_webui_admin_password: pulumi.Input[str] | None,
        hugging_face_token: pulumi.Input[str] | None,
        api_key: pulumi.Input[str] | None,
    ) -> dict[str, Any]:
        """Creates web UI, smoke tests, Triton client and load test, each for the servers with its API."""
        spec, name = self._spec, self._spec.name
        models = {server: self.servers[server] for server in spec.servers_with("openai")}
        web_ui = triton_client = load_test = None
        if spec.clients.open_webui:
            with faults_under("clients", "open_webui"):
                web_ui = OpenWebUI(
                    f"{name}-open-webui",
                    spec.clients.open_webui,
                    servers={server: one for server, one in models.items() if one.does == "chat"},
                    admin_password=open_webui_admin_password,
                    api_key=api_key,
                    **self._on_core,
                )
        if spec.clients.smoke_test:
            for server, component in models.items():
                SmokeTest(
                    f"{server}-smoke-test",
                    spec.clients.smoke_test,
                    server=component,
                    task=component.does,
                    api_key=api_key,
                    **self._on_core,
                )
        if spec.clients.triton:
            asked = spec.clients.triton.server or spec.servers_with("kserve")[0]
            with faults_under("clients", "triton"):
                triton_client = TritonClient(
                    "triton-client",
                    spec.clients.triton,
                    server=cast(TritonServer, self.servers[asked]),
                    hugging_face_token=hugging_face_token,
                    **self._on_core,
                )
        if spec.load_test:
            with faults_under("load_test"):
                measured = {server: models[server] for server in sorted(spec.measurable)}  # the file's order changes no test
                load_test = LoadTest(
                    naming.shortened(LOAD_TEST_NAME, f"{name}-load-test"),
                    spec.load_test,
                    servers=measured,
                    hardware={server: component.hardware for server, component in measured.items()},
                    hugging_face_token=hugging_face_token,
                    api_key=api_key,
                    **self._on_core,
                )
        return {"web_ui": web_ui, "triton_client": triton_client, "load_test": load_test}

    @classmethod
    def from_config(cls, opts: pulumi.ResourceOptions | None = None) -> InferencePlatform:
        """Builds the platform of the running stack from ``eks-inference:stack``, ``aws:region`` and the configured secrets.

        Raises ``pulumi.RunError`` with every fault, before any resource is registered, when the platform cannot be built.
        """
        config = pulumi.Config("eks-inference")
        aws = pulumi.Config("aws")
        try:
            region = aws.get("region")
            if not region:
                raise SpecError([Fault((), "this key is required and missing", allowed="an AWS region", config_key="aws:region")])
            spec = parse_stack(config.require("stack"), project_folder())
            secrets = {key: value for key in CONFIG_SECRETS if (value := config.get_secret(key)) is not None}
            if missing := list(missing_secrets(spec, secrets)):
                raise SpecError(missing)
            return cls(
                spec,
                region=region,
                profile=aws.get("profile"),
                hugging_face_token=secrets.get("huggingFaceToken"),
                grafana_admin_password=secrets.get("grafanaAdminPassword"),
                alert_receiver_url=secrets.get("alertReceiverUrl"),
                open_webui_admin_password=secrets.get("openWebUiAdminPassword"),
                serving_api_key=secrets.get("servingApiKey"),
                gateway_client_secret=secrets.get("gatewayClientSecret"),
                endpoint_keys=secrets.get("endpointKeys"),
                opts=opts,
            )
        except SpecError as error:
            faults = "\n".join(fault.render() for fault in error.faults)
            raise pulumi.RunError(f"stack {pulumi.get_stack()} cannot be built:\n{faults}") from error
