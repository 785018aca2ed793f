"""One model server of a stack, of any kind, with what belongs to it: image build, store, metrics, autoscaler."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import pulumi

from eks_inference.accelerators.efa.component import EfaDevices, ExistingEfaPlugin
from eks_inference.accelerators.neuron.handle import DeviceScheduler
from eks_inference.accelerators.nvidia.handle import GpuPlugin
from eks_inference.cluster.handle import Cluster
from eks_inference.faults import faults_under
from eks_inference.images.component import ImageBuild
from eks_inference.images.spec import InClusterImage
from eks_inference.network.handle import Network
from eks_inference.observability.prometheus import ServerMetrics, VllmMetrics
from eks_inference.placement import Placement, Pool
from eks_inference.scaling.component import Autoscaler
from eks_inference.scaling.handle import Backend, QueriedMetrics
from eks_inference.serving.disaggregated.component import DisaggregatedPair
from eks_inference.serving.disaggregated.controller import LeaderWorkerSets
from eks_inference.serving.disaggregated.spec import DisaggregatedPairSpec
from eks_inference.serving.kuberay.handle import RayOperator
from eks_inference.serving.ray_serve.component import RayServeVllm
from eks_inference.serving.ray_serve.spec import RayServeVllmSpec
from eks_inference.serving.server_spec import ServerSpec
from eks_inference.serving.triton.component import TritonServer
from eks_inference.serving.triton.spec import TritonServerSpec
from eks_inference.serving.vllm.component import VllmServer
from eks_inference.serving.vllm.spec import VllmServerSpec
from eks_inference.storage.component import FileSystemDriver, shared_store
from eks_inference.storage.spec import FileSystem

Server = RayServeVllm | VllmServer | TritonServer | DisaggregatedPair


@dataclass(frozen=True)
class ServerDependencies:
    """What the servers of a stack stand on. What no server of the stack needs may be absent."""

    cluster: Cluster
    network: Network
    core: Placement
    """Where image builds run."""
    pools: Mapping[str, Pool]
    scheduler: DeviceScheduler | None = None
    """Of Neuron devices."""
    gpu_plugin: GpuPlugin | None = None
    efa: EfaDevices | None = None
    ray_operator: RayOperator | None = None
    leader_worker_sets: LeaderWorkerSets | None = None
    file_system_drivers: Mapping[FileSystem, FileSystemDriver] = field(default_factory=dict)
    prometheus: QueriedMetrics | None = None
    """Without one, servers have neither metrics nor an autoscaler."""
    scaling_backends: Mapping[str, Backend] = field(default_factory=dict)
    """By the kind of the autoscalers they serve."""
    hugging_face_token: pulumi.Input[str] | None = None
    api_key: pulumi.Input[str] | None = None


def deploy_server(name: str, spec: ServerSpec, dependencies: ServerDependencies, *, opts: pulumi.ResourceOptions) -> Server:
    """Build a server; all of its parts are siblings and take ``opts``.

    Raises ``SpecError`` as the components do, with paths below the server's own key.
    """
    image = _image(name, spec, dependencies, opts)
    wish = spec.worker if isinstance(spec, RayServeVllmSpec) else spec
    placement = dependencies.pools[wish.pool].placement(wish.instance_type)
    server = _server(name, spec, placement, image, dependencies, opts)
    if prometheus := dependencies.prometheus:
        if isinstance(server, RayServeVllm):
            ServerMetrics(f"{name}-metrics", server=server, metrics=prometheus, opts=opts)
        else:
            VllmMetrics(f"{name}-metrics", server=server, metrics=prometheus, opts=opts)
        # Ray scales its own workers, and a pair is one of each half.
        scaled = spec.autoscaling if isinstance(spec, VllmServerSpec | TritonServerSpec) else None
        if scaled and isinstance(server, VllmServer | TritonServer):
            Autoscaler(
                f"{name}-autoscaler",
                scaled,
                cluster=dependencies.cluster,
                server=server,
                metrics=prometheus,
                backend=dependencies.scaling_backends[scaled.kind],
                opts=opts,
            )
    return server


def _image(
    name: str, spec: ServerSpec, dependencies: ServerDependencies, opts: pulumi.ResourceOptions
) -> pulumi.Input[str] | None:
    """The image that is built for the server; none when it runs one that is published."""
    if not isinstance(spec.image, InClusterImage):
        return None
    # What follows from the engine profile; the spec may say otherwise.
    ray = {"RAY_VERSION": spec.ray} if isinstance(spec, RayServeVllmSpec) else {}
    return ImageBuild(
        f"{name}-image",
        spec.image,
        cluster=dependencies.cluster,
        placement=dependencies.core,
        defaults={"ENGINE_IMAGE": spec.profile.image, **ray},
        opts=opts,
    ).reference


def _server(
    name: str,
    spec: ServerSpec,
    placement: Placement,
    image: pulumi.Input[str] | None,
    dependencies: ServerDependencies,
    opts: pulumi.ResourceOptions,
) -> Server:
    cluster, token = dependencies.cluster, dependencies.hugging_face_token
    if isinstance(spec, RayServeVllmSpec):
        assert dependencies.ray_operator is not None, "a stack with a Ray server has the operator (StackSpec.uses_ray)"
        return RayServeVllm(
            name,
            spec,
            cluster=cluster,
            operator=dependencies.ray_operator,
            head=dependencies.pools[spec.head.pool].placement(spec.head.instance_type),
            worker=placement,
            scheduler=dependencies.scheduler,
            image=image,
            hugging_face_token=token,
            api_key=dependencies.api_key,
            opts=opts,
        )
    if isinstance(spec, TritonServerSpec):
        plugin = dependencies.gpu_plugin
        return TritonServer(name, spec, cluster=cluster, placement=placement, plugin=plugin, hugging_face_token=token, opts=opts)
    if isinstance(spec, DisaggregatedPairSpec):
        return _pair(name, spec, placement, dependencies, opts)
    return VllmServer(
        name,
        spec,
        cluster=cluster,
        placement=placement,
        scheduler=dependencies.scheduler,
        image=image,
        hugging_face_token=token,
        api_key=dependencies.api_key,
        opts=opts,
    )


def _pair(
    name: str,
    spec: DisaggregatedPairSpec,
    placement: Placement,
    dependencies: ServerDependencies,
    opts: pulumi.ResourceOptions,
) -> DisaggregatedPair:
    """A pair and its store; some of its parts may run in pools of their own."""
    cluster, pools = dependencies.cluster, dependencies.pools
    with faults_under("store"):
        store = shared_store(
            f"{name}-store",
            spec.store,
            cluster=cluster,
            network=dependencies.network,
            driver=dependencies.file_system_drivers[spec.store.file_system],
            zone_id=next(iter(placement.zone_ids), None),
            opts=opts,
        )
    compiles, router = spec.compile_pool, spec.router
    return DisaggregatedPair(
        name,
        spec,
        cluster=cluster,
        store=store,
        placement=placement,
        # No pool of ours with EFA, and the rule that says so silenced: then the plugin is somebody else's.
        efa=dependencies.efa or ExistingEfaPlugin(),
        compile_placement=pools[compiles].placement(spec.instance_type) if compiles else None,
        router_placement=pools[router.pool].placement(router.instance_type) if router.pool else None,
        controller=dependencies.leader_worker_sets,
        hugging_face_token=dependencies.hugging_face_token,
        opts=opts,
    )
