"""A whole stack from a ``StackSpec``: which component stands on which, read from top to bottom."""

from collections.abc import Mapping
from typing import Any

import pulumi

from eks_inference.accelerators.component import NeuronPlugin, NeuronScheduler
from eks_inference.cluster.component import ClusterAddons, EksCluster
from eks_inference.faults import Fault, SpecError, faults_under
from eks_inference.network.component import Vpc
from eks_inference.observability.component import CloudWatchObservability
from eks_inference.pools.karpenter import Karpenter
from eks_inference.pools.karpenter_pool import KarpenterPool
from eks_inference.pools.managed import ManagedPool
from eks_inference.pools.spec import KarpenterPoolSpec, ManagedPoolSpec
from eks_inference.serving.kuberay.component import KubeRayOperator
from eks_inference.serving.ray_serve.component import RayServeVllm
from eks_inference.serving.ray_serve.plan import HEAD_PORTS
from eks_inference.stack import StackSpec, parse_stack


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
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """``profile`` is the AWS profile of kubectl; ``hugging_face_token`` is for models that are not public."""
        name = spec.name
        super().__init__("eks-inference:index:InferencePlatform", name, {"name": name, "region": region}, opts)
        settings = spec.settings(region, profile)
        child = pulumi.ResourceOptions(parent=self)

        with faults_under("network"):
            self.network = Vpc(
                f"{name}-net", spec.network, settings=settings, cluster_name=name, families=_families(spec), opts=child
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

        scheduler = None
        if spec.accelerators.neuron:
            plugin = NeuronPlugin(f"{name}-neuron", spec.accelerators.neuron, cluster=self.cluster, opts=child)
            if spec.accelerators.neuron.scheduler:
                scheduler = NeuronScheduler(f"{name}-neuron-scheduler", plugin=plugin, placement=core, opts=child)

        if spec.observability.cloudwatch:
            CloudWatchObservability(f"{name}-cloudwatch", spec.observability.cloudwatch, cluster=self.cluster, opts=child)

        self.servers: dict[str, RayServeVllm] = {}
        if spec.servers:
            operator = KubeRayOperator(f"{name}-kuberay", spec.kuberay, cluster=self.cluster, placement=core, opts=child)
            for server, server_spec in spec.servers.items():
                with faults_under("servers", server):
                    self.servers[server] = RayServeVllm(
                        server,
                        server_spec,
                        cluster=self.cluster,
                        operator=operator,
                        head=self.pools[server_spec.head.pool].placement(server_spec.head.instance_type),
                        worker=self.pools[server_spec.worker.pool].placement(server_spec.worker.instance_type),
                        scheduler=scheduler,
                        hugging_face_token=hugging_face_token,
                        opts=child,
                    )

        self.outputs: Mapping[str, Any] = {
            "clusterName": name,
            "kubeconfigCommand": control_plane.kubeconfig_command,
            "endpoints": {server: component.endpoint for server, component in self.servers.items()},
            "next": _next_steps(control_plane.kubeconfig_command, self.servers),
        }
        self.register_outputs(self.outputs)

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
            return cls(
                spec,
                region=region,
                profile=aws.get("profile"),
                hugging_face_token=config.get_secret("huggingFaceToken"),
                opts=opts,
            )
        except SpecError as error:
            raise pulumi.RunError(f"stack {pulumi.get_stack()} cannot be built:\n{error}") from error


def _families(spec: StackSpec) -> list[str]:
    """Instance families of all pools: they decide which zones serve."""
    return sorted({instance.family for pool in spec.pools.values() for instance in pool.instances()})


def _next_steps(kubeconfig_command: str, servers: Mapping[str, RayServeVllm]) -> list[str]:
    """The commands that take a person from a deployed stack to an answer of the model."""
    steps = [kubeconfig_command, "kubectl get nodes"]
    for server in servers.values():
        forward = f"kubectl -n {server.namespace} port-forward svc"
        steps += [
            f"kubectl -n {server.namespace} get pods --watch",
            f"{forward}/{server.serve_service_name} {HEAD_PORTS['serve']}",
            f"{forward}/{server.head_service_name} {HEAD_PORTS['dashboard']}",
        ]
    return steps
