"""A whole stack from a ``StackSpec``: which component stands on which, read from top to bottom."""

from collections.abc import Iterator, Mapping
from typing import Any

import pulumi

from eks_inference.accelerators.component import NeuronPlugin, NeuronScheduler
from eks_inference.accelerators.efa import EfaDevices, EfaPlugin, ExistingEfaPlugin
from eks_inference.accelerators.nvidia import DcgmExporter, NvidiaDevicePlugin
from eks_inference.clients.component import OpenWebUI, SmokeTest
from eks_inference.cluster.component import ClusterAddons, EksCluster
from eks_inference.faults import Fault, SpecError, faults_under
from eks_inference.images.component import ImageBuild
from eks_inference.images.spec import InClusterImage
from eks_inference.loadtest.component import LoadTest
from eks_inference.network.component import Vpc
from eks_inference.observability.component import CloudWatchObservability
from eks_inference.observability.fluent_bit import FluentBit
from eks_inference.observability.neuron_monitor import NeuronMonitor
from eks_inference.observability.prometheus import PrometheusStack, ServerMetrics, VllmMetrics
from eks_inference.pools.karpenter import Karpenter
from eks_inference.pools.karpenter_pool import KarpenterPool
from eks_inference.pools.managed import ManagedPool
from eks_inference.pools.placement import Placement
from eks_inference.pools.spec import KarpenterPoolSpec, ManagedPoolSpec
from eks_inference.preflight.check import check_spec
from eks_inference.scaling.component import Autoscaler
from eks_inference.scaling.handle import Backend
from eks_inference.scaling.keda import Keda
from eks_inference.scaling.prometheus_adapter import PrometheusAdapter
from eks_inference.serving.disaggregated.component import DisaggregatedPair
from eks_inference.serving.disaggregated.controller import LeaderWorkerSetController, LeaderWorkerSets
from eks_inference.serving.disaggregated.spec import DisaggregatedPairSpec
from eks_inference.serving.kuberay.component import KubeRayOperator
from eks_inference.serving.ray_serve.component import RayServeVllm
from eks_inference.serving.ray_serve.plan import HEAD_PORTS
from eks_inference.serving.ray_serve.spec import RayServeVllmSpec
from eks_inference.serving.spec import HubModel
from eks_inference.serving.triton.client import TritonClient
from eks_inference.serving.triton.component import TritonServer
from eks_inference.serving.triton.plan import PORTS as TRITON_PORTS
from eks_inference.serving.triton.spec import TritonServerSpec
from eks_inference.serving.vllm.component import VllmServer
from eks_inference.serving.vllm.spec import VllmServerSpec
from eks_inference.stack import ServerSpec, StackSpec, parse_stack
from eks_inference.storage.component import FileSystemDriver, shared_store
from eks_inference.storage.spec import FileSystem

Server = RayServeVllm | VllmServer | TritonServer | DisaggregatedPair


class InferencePlatform(pulumi.ComponentResource):
    """VPC, cluster, pools, accelerator support, model servers and observability of one stack.

    ``cluster`` (runs pods), ``pools[name]`` and ``servers[name]`` are what further components of a program stand on; ``outputs``
    is what a stack exports: names, and the commands a person needs next.
    """

    def __init__(
        self,
        spec: StackSpec,
        *,
        region: str,
        profile: str | None = None,
        hugging_face_token: pulumi.Input[str] | None = None,
        grafana_admin_password: pulumi.Input[str] | None = None,
        open_webui_admin_password: pulumi.Input[str] | None = None,
        serving_api_key: pulumi.Input[str] | None = None,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """``profile`` is the AWS profile of kubectl; ``hugging_face_token`` is for models that are not public.

        With ``serving_api_key`` vLLM wants that key of whoever asks it, by itself or behind Ray Serve; web UI, smoke test and
        load test send it. Triton and a disaggregated pair have none. Pods read it when they start: a changed key needs new pods
        of servers and web UI.

        Raises ``SpecError`` before anything is registered when a rule says that the stack cannot run; logs what rules warn of.
        """
        verdict = check_spec(spec, region)
        if verdict.faults:
            raise SpecError(verdict.faults)
        name = spec.name
        super().__init__("eks-inference:index:InferencePlatform", name, {"name": name, "region": region}, opts)
        settings = spec.settings(region, profile)
        child = pulumi.ResourceOptions(parent=self)
        for finding in verdict.findings:
            if not finding.reason:
                pulumi.log.warn(finding.summary)

        with faults_under("network"):
            self.network = Vpc(
                f"{name}-net", spec.network, settings=settings, cluster_name=name, families=spec.families(), opts=child
            )
        control_plane = EksCluster(name, spec.cluster, network=self.network, settings=settings, opts=child)

        managed = {
            pool: ManagedPool(f"{name}-{pool}", pool_spec, cluster=control_plane, network=self.network, pool=pool, opts=child)
            for pool, pool_spec in spec.pools.items()
            if isinstance(pool_spec, ManagedPoolSpec)
        }
        core = managed[spec.core_pool].placement()
        self.cluster = ClusterAddons(f"{name}-addons", spec.addons, cluster=control_plane, core=core, opts=child)

        self.pools: dict[str, ManagedPool | KarpenterPool] = {**managed}
        filled = {pool: pool_spec for pool, pool_spec in spec.pools.items() if isinstance(pool_spec, KarpenterPoolSpec)}
        if filled:
            karpenter = Karpenter(f"{name}-karpenter", spec.karpenter, cluster=self.cluster, placement=core, opts=child)
            for pool, pool_spec in filled.items():
                self.pools[pool] = KarpenterPool(
                    f"{name}-{pool}",
                    pool_spec,
                    cluster=self.cluster,
                    network=self.network,
                    karpenter=karpenter,
                    pool=pool,
                    opts=child,
                )

        if spec.observability.cloudwatch:
            CloudWatchObservability(f"{name}-cloudwatch", spec.observability.cloudwatch, cluster=self.cluster, opts=child)
        if spec.observability.fluent_bit:
            FluentBit(f"{name}-fluent-bit", spec.observability.fluent_bit, cluster=self.cluster, opts=child)
        prometheus = None
        if spec.observability.prometheus:
            prometheus = PrometheusStack(
                f"{name}-prometheus",
                spec.observability.prometheus,
                cluster=self.cluster,
                placement=core,
                grafana_admin_password=grafana_admin_password,
                dashboards=[board for board, wanted in _dashboards(spec).items() if wanted],
                opts=child,
            )

        scheduler = None
        if spec.accelerators.neuron:
            plugin = NeuronPlugin(f"{name}-neuron", spec.accelerators.neuron, cluster=self.cluster, opts=child)
            if spec.accelerators.neuron.scheduler:
                scheduler = NeuronScheduler(f"{name}-neuron-scheduler", plugin=plugin, placement=core, opts=child)
            if spec.observability.neuron_monitor:
                NeuronMonitor(
                    f"{name}-neuron-monitor", spec.observability.neuron_monitor, plugin=plugin, metrics=prometheus, opts=child
                )

        gpus = None
        if spec.accelerators.nvidia:
            gpus = NvidiaDevicePlugin(f"{name}-nvidia", spec.accelerators.nvidia, cluster=self.cluster, opts=child)
            if spec.observability.dcgm_exporter:
                DcgmExporter(f"{name}-dcgm", spec.observability.dcgm_exporter, plugin=gpus, metrics=prometheus, opts=child)

        efa = None
        if spec.uses_efa:
            efa = EfaPlugin(f"{name}-efa", cluster=self.cluster, opts=child)

        scaling: dict[str, Backend] = {}
        if prometheus and spec.observability.prometheus:
            if spec.scaled_by("keda"):
                scaling["keda"] = Keda(
                    f"{name}-keda",
                    spec.scaling.keda,
                    cluster=self.cluster,
                    placement=core,
                    prometheus=prometheus,
                    opts=child,
                )
            if spec.scaled_by("hpa"):
                scaling["hpa"] = PrometheusAdapter(
                    f"{name}-prometheus-adapter",
                    spec.scaling.prometheus_adapter,
                    cluster=self.cluster,
                    placement=core,
                    metrics=prometheus,
                    scrape_interval_seconds=spec.observability.prometheus.scrape_interval_seconds,
                    opts=child,
                )

        operator = None
        if spec.uses_ray:
            operator = KubeRayOperator(f"{name}-kuberay", spec.kuberay, cluster=self.cluster, placement=core, opts=child)
        groups = None
        if any(pair.instances == 2 for pair in spec.pairs):
            groups = LeaderWorkerSetController(f"{name}-lws", cluster=self.cluster, placement=core, opts=child)
        drivers: dict[FileSystem, FileSystemDriver] = {}
        for pair in spec.pairs:
            if (kind := pair.store.file_system) not in drivers:
                driver_name = f"{name}-{kind.replace('_', '-')}-driver"
                drivers[kind] = FileSystemDriver(driver_name, kind, cluster=self.cluster, opts=child)

        self.servers: dict[str, Server] = {}
        placements: dict[str, Placement] = {}
        for server, server_spec in spec.servers.items():
            with faults_under("servers", server):
                image = None
                if isinstance(server_spec.image, InClusterImage):
                    image = ImageBuild(
                        f"{server}-image",
                        server_spec.image,
                        cluster=self.cluster,
                        placement=core,
                        defaults=_build_arguments(server_spec),
                        opts=child,
                    ).reference
                if isinstance(server_spec, RayServeVllmSpec):
                    placements[server] = self.pools[server_spec.worker.pool].placement(server_spec.worker.instance_type)
                    assert operator is not None
                    self.servers[server] = ray = RayServeVllm(
                        server,
                        server_spec,
                        cluster=self.cluster,
                        operator=operator,
                        head=self.pools[server_spec.head.pool].placement(server_spec.head.instance_type),
                        worker=placements[server],
                        scheduler=scheduler,
                        image=image,
                        hugging_face_token=hugging_face_token,
                        api_key=serving_api_key,
                        opts=child,
                    )
                    if prometheus:
                        ServerMetrics(f"{server}-metrics", server=ray, metrics=prometheus, opts=child)
                elif isinstance(server_spec, TritonServerSpec):
                    placements[server] = self.pools[server_spec.pool].placement(server_spec.instance_type)
                    self.servers[server] = TritonServer(
                        server,
                        server_spec,
                        cluster=self.cluster,
                        placement=placements[server],
                        plugin=gpus,
                        hugging_face_token=hugging_face_token,
                        opts=child,
                    )
                elif isinstance(server_spec, DisaggregatedPairSpec):
                    placements[server] = self.pools[server_spec.pool].placement(server_spec.instance_type)
                    self.servers[server] = self._pair(
                        server,
                        server_spec,
                        placements[server],
                        # No pool of ours with EFA, and the rule that says so silenced: then the plugin is somebody else's.
                        efa=efa or ExistingEfaPlugin(),
                        driver=drivers[server_spec.store.file_system],
                        controller=groups,
                        hugging_face_token=hugging_face_token,
                        opts=child,
                    )
                else:
                    placements[server] = self.pools[server_spec.pool].placement(server_spec.instance_type)
                    self.servers[server] = VllmServer(
                        server,
                        server_spec,
                        cluster=self.cluster,
                        placement=placements[server],
                        scheduler=scheduler,
                        image=image,
                        hugging_face_token=hugging_face_token,
                        api_key=serving_api_key,
                        opts=child,
                    )
                deployed = self.servers[server]
                if prometheus and not isinstance(deployed, RayServeVllm):
                    VllmMetrics(f"{server}-metrics", server=deployed, metrics=prometheus, opts=child)
                scaled = server_spec.autoscaling if isinstance(server_spec, VllmServerSpec | TritonServerSpec) else None
                if prometheus and scaled and isinstance(deployed, VllmServer | TritonServer):
                    Autoscaler(
                        f"{server}-autoscaler",
                        scaled,
                        cluster=self.cluster,
                        server=deployed,
                        metrics=prometheus,
                        backend=scaling[scaled.kind],
                        opts=child,
                    )

        # Triton speaks a protocol of its own.
        triton = {server: component for server, component in self.servers.items() if isinstance(component, TritonServer)}
        models = {server: component for server, component in self.servers.items() if not isinstance(component, TritonServer)}
        web_ui = None
        if spec.clients.open_webui:
            with faults_under("clients", "open_webui"):
                web_ui = OpenWebUI(
                    f"{name}-open-webui",
                    spec.clients.open_webui,
                    cluster=self.cluster,
                    placement=core,
                    servers=models,
                    admin_password=open_webui_admin_password,
                    api_key=serving_api_key,
                    opts=child,
                )
        if spec.clients.smoke_test:
            for server, component in models.items():
                SmokeTest(
                    f"{server}-smoke-test",
                    spec.clients.smoke_test,
                    cluster=self.cluster,
                    placement=core,
                    server=component,
                    api_key=serving_api_key,
                    opts=child,
                )
        triton_client = None
        if spec.clients.triton:
            with faults_under("clients", "triton"):
                triton_client = TritonClient(
                    "triton-client",
                    spec.clients.triton,
                    cluster=self.cluster,
                    placement=core,
                    server=triton[spec.clients.triton.server or next(iter(triton))],
                    hugging_face_token=hugging_face_token,
                    opts=child,
                )
        load_test = None
        if spec.load_test:
            with faults_under("load_test"):
                load_test = LoadTest(
                    f"{name}-load-test",
                    spec.load_test,
                    cluster=self.cluster,
                    placement=core,
                    servers=models,
                    hardware=placements,
                    hugging_face_token=hugging_face_token,
                    api_key=serving_api_key,
                    opts=child,
                )

        self.outputs: Mapping[str, Any] = {
            "clusterName": name,
            "kubeconfigCommand": control_plane.kubeconfig_command,
            "endpoints": {
                **{server: component.endpoint for server, component in models.items()},
                **{server: component.http_endpoint for server, component in triton.items()},
            },
            "next": [
                control_plane.kubeconfig_command,
                f"eks-inference verify {pulumi.get_stack()}",
                *_access(self.servers, with_key=serving_api_key is not None),
                *([web_ui.port_forward_command] if web_ui else []),
                *([triton_client.log_command, triton_client.again_command] if triton_client else []),
                *([load_test.log_command] if load_test and load_test.log_command else []),
            ],
        }
        self.register_outputs(self.outputs)

    def _pair(
        self,
        name: str,
        spec: DisaggregatedPairSpec,
        placement: Placement,
        *,
        efa: EfaDevices,
        driver: FileSystemDriver,
        controller: LeaderWorkerSets | None,
        hugging_face_token: pulumi.Input[str] | None,
        opts: pulumi.ResourceOptions,
    ) -> DisaggregatedPair:
        """A pair and its store; some of its parts may run in pools of their own."""
        with faults_under("store"):
            store = shared_store(
                f"{name}-store",
                spec.store,
                cluster=self.cluster,
                network=self.network,
                driver=driver,
                zone_id=next(iter(placement.zone_ids), None),
                opts=opts,
            )
        compiles, router = spec.compile_pool, spec.router
        return DisaggregatedPair(
            name,
            spec,
            cluster=self.cluster,
            store=store,
            placement=placement,
            efa=efa,
            compile_placement=self.pools[compiles].placement(spec.instance_type) if compiles else None,
            router_placement=self.pools[router.pool].placement(router.instance_type) if router.pool else None,
            controller=controller,
            hugging_face_token=hugging_face_token,
            opts=opts,
        )

    @classmethod
    def from_config(cls, opts: pulumi.ResourceOptions | None = None) -> "InferencePlatform":
        """The platform of the running stack's configuration: ``eks-inference:stack``, ``aws:region``, and secrets that are set.

        Raises ``pulumi.RunError`` with every fault, before any resource is registered, when it cannot be built.
        """
        config = pulumi.Config("eks-inference")
        aws = pulumi.Config("aws")
        try:
            region = aws.get("region")
            if not region:
                raise SpecError([Fault((), "this key is required and missing", allowed="an AWS region", config_key="aws:region")])
            spec = parse_stack(config.require("stack"))
            token = config.get_secret("huggingFaceToken")
            if token is None and (missing := list(_missing_token(spec))):
                raise SpecError(missing)
            return cls(
                spec,
                region=region,
                profile=aws.get("profile"),
                hugging_face_token=token,
                grafana_admin_password=config.get_secret("grafanaAdminPassword"),
                open_webui_admin_password=config.get_secret("openWebUiAdminPassword"),
                serving_api_key=config.get_secret("servingApiKey"),
                opts=opts,
            )
        except SpecError as error:
            faults = "\n".join(fault.render() for fault in error.faults)
            raise pulumi.RunError(f"stack {pulumi.get_stack()} cannot be built:\n{faults}") from error


def _missing_token(spec: StackSpec) -> Iterator[Fault]:
    for name, server in spec.servers.items():
        if isinstance(server.model, HubModel) and server.model.needs_token:
            key = "eks-inference:huggingFaceToken"
            message = f"this secret is needed and missing: model {server.model.id} of server '{name}' is not public"
            hint = f"accept its licence on the Hub, then: pulumi config set --secret {key}"
            yield Fault((), message, allowed="a Hugging Face token", hint=hint, config_key=key)


def _dashboards(spec: StackSpec) -> dict[str, bool]:
    """Every dashboard, and whether the stack has what it shows."""
    kinds = {server.kind for server in spec.servers.values()}
    return {
        "ray-vllm": "ray_serve_vllm" in kinds,
        "vllm": bool(kinds & {"vllm", "disaggregated"}),
        "triton": "triton" in kinds,
        "neuron": spec.accelerators.neuron is not None,
        "gpu": spec.observability.dcgm_exporter is not None,
    }


def _build_arguments(server: ServerSpec) -> dict[str, str]:
    """Build arguments of a server's image that follow from its engine profile."""
    ray = {"RAY_VERSION": server.ray} if isinstance(server, RayServeVllmSpec) else {}
    return {"ENGINE_IMAGE": server.profile.image, **ray}


def _access(servers: Mapping[str, Server], *, with_key: bool) -> list[str]:
    """The commands that take a person from a deployed stack to an answer of the model."""
    steps = []
    for server in servers.values():
        forward = f"kubectl -n {server.namespace} port-forward svc"
        steps.append(f"kubectl -n {server.namespace} get pods --watch")
        if isinstance(server, RayServeVllm):
            steps.append(f"{forward}/{server.serve_service_name} {HEAD_PORTS['serve']}")
            steps.append(f"{forward}/{server.head_service_name} {HEAD_PORTS['dashboard']}")
        elif isinstance(server, TritonServer):
            steps.append(f"{forward}/{server.service_name} {TRITON_PORTS['http']} {TRITON_PORTS['grpc']}")
        else:
            steps.append(f"{forward}/{server.service_name} {server.port}")
    can_chat = any(not isinstance(server, TritonServer) for server in servers.values())
    chat = f"{'OPENAI_API_KEY=KEY ' if with_key else ''}eks-inference chat"
    return [*steps, chat] if can_chat else steps
