"""Serve LLMs on Amazon EKS with AWS Neuron chips or NVIDIA GPUs: Pulumi components, and an offline preview of them.

Everything a program needs is importable from here; each name is loaded when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from eks_inference.accelerators.efa.component import EfaPlugin, ExistingEfaPlugin
    from eks_inference.accelerators.neuron.component import NeuronPlugin, NeuronScheduler
    from eks_inference.accelerators.neuron.handle import ExistingNeuronScheduler
    from eks_inference.accelerators.neuron.spec import NeuronSpec
    from eks_inference.accelerators.nvidia.component import DcgmExporter, NvidiaDevicePlugin
    from eks_inference.accelerators.nvidia.spec import DcgmExporterSpec, NvidiaSpec
    from eks_inference.clients.component import OpenWebUI, SmokeTest
    from eks_inference.clients.spec import ClientsSpec, OpenWebUISpec, SmokeTestSpec
    from eks_inference.clients.triton_client import TritonClient
    from eks_inference.clients.triton_client_spec import TritonClientSpec
    from eks_inference.cluster.component import ClusterAddons, EksCluster
    from eks_inference.cluster.existing import ExistingCluster
    from eks_inference.cluster.spec import ClusterAddonsSpec, ClusterSpec, EndpointAccess
    from eks_inference.faults import Fault, SpecError
    from eks_inference.images.component import ImageBuild
    from eks_inference.images.spec import InClusterImage
    from eks_inference.kubernetes.secrets import SecretRef
    from eks_inference.loadtest.component import LoadTest
    from eks_inference.loadtest.spec import HubTokenizer, LoadTestSpec, TokenCounts
    from eks_inference.network.component import Vpc
    from eks_inference.network.handle import ExistingVpc, Subnet
    from eks_inference.network.spec import NetworkSpec
    from eks_inference.observability.component import CloudWatchObservability
    from eks_inference.observability.fluent_bit import FluentBit
    from eks_inference.observability.handle import ExistingPrometheus
    from eks_inference.observability.neuron_monitor import NeuronMonitor
    from eks_inference.observability.prometheus import PrometheusStack, ServerMetrics, VllmMetrics
    from eks_inference.observability.spec import (
        CloudWatchSpec,
        FluentBitSpec,
        NeuronMonitorSpec,
        ObservabilitySpec,
        PrometheusSpec,
    )
    from eks_inference.placement import Placement, Taint
    from eks_inference.platform import InferencePlatform
    from eks_inference.pools.existing import ExistingPool
    from eks_inference.pools.karpenter import ExistingKarpenter, Karpenter
    from eks_inference.pools.karpenter_pool import KarpenterPool
    from eks_inference.pools.managed import ManagedPool
    from eks_inference.pools.spec import EfaSpec, ExistingPlacementGroup, KarpenterPoolSpec, KarpenterSpec, ManagedPoolSpec
    from eks_inference.scaling.component import Autoscaler
    from eks_inference.scaling.handle import ExistingKeda, ExistingPrometheusAdapter
    from eks_inference.scaling.keda import Keda
    from eks_inference.scaling.prometheus_adapter import PrometheusAdapter
    from eks_inference.scaling.spec import HpaSpec, KedaOperatorSpec, KedaSpec, PrometheusAdapterSpec
    from eks_inference.serving.disaggregated.component import DisaggregatedPair
    from eks_inference.serving.disaggregated.spec import CompileOptions, DisaggregatedPairSpec, RoleSpec, RouterSpec
    from eks_inference.serving.kuberay.component import KubeRayOperator
    from eks_inference.serving.kuberay.handle import ExistingKubeRayOperator
    from eks_inference.serving.kuberay.spec import KubeRayOperatorSpec
    from eks_inference.serving.leader_worker_sets.component import LeaderWorkerSetController
    from eks_inference.serving.leader_worker_sets.handle import ExistingLeaderWorkerSets
    from eks_inference.serving.ray_serve.component import RayServeVllm
    from eks_inference.serving.ray_serve.spec import RayHeadSpec, RayServeVllmSpec, RayWorkerSpec, ServeReplicasSpec
    from eks_inference.serving.spec import HubModel, NoCompileCache, S3CompileCache, S3Model, VolumeCompileCache, VolumeModel
    from eks_inference.serving.triton.component import TritonServer
    from eks_inference.serving.triton.spec import TritonServerSpec
    from eks_inference.serving.vllm.component import VllmServer
    from eks_inference.serving.vllm.spec import VllmServerSpec
    from eks_inference.settings import StackSettings
    from eks_inference.stack.spec import StackSpec
    from eks_inference.storage.component import FileSystemDriver, SharedStore
    from eks_inference.storage.handle import ExistingStore
    from eks_inference.storage.spec import EfsStoreSpec, ExistingStoreSpec, LustreStoreSpec

_MODULES = {
    "accelerators.neuron.component": ("NeuronPlugin", "NeuronScheduler"),
    "accelerators.efa.component": ("EfaPlugin", "ExistingEfaPlugin"),
    "accelerators.neuron.handle": ("ExistingNeuronScheduler",),
    "accelerators.nvidia.component": ("DcgmExporter", "NvidiaDevicePlugin"),
    "accelerators.nvidia.spec": ("DcgmExporterSpec", "NvidiaSpec"),
    "accelerators.neuron.spec": ("NeuronSpec",),
    "clients.component": ("OpenWebUI", "SmokeTest"),
    "clients.spec": ("ClientsSpec", "OpenWebUISpec", "SmokeTestSpec"),
    "cluster.component": ("ClusterAddons", "EksCluster"),
    "cluster.existing": ("ExistingCluster",),
    "cluster.spec": ("ClusterAddonsSpec", "ClusterSpec", "EndpointAccess"),
    "faults": ("Fault", "SpecError"),
    "images.component": ("ImageBuild",),
    "images.spec": ("InClusterImage",),
    "loadtest.component": ("LoadTest",),
    "loadtest.spec": ("HubTokenizer", "LoadTestSpec", "TokenCounts"),
    "network.component": ("Vpc",),
    "network.handle": ("ExistingVpc", "Subnet"),
    "network.spec": ("NetworkSpec",),
    "observability.component": ("CloudWatchObservability",),
    "observability.fluent_bit": ("FluentBit",),
    "observability.handle": ("ExistingPrometheus",),
    "observability.neuron_monitor": ("NeuronMonitor",),
    "observability.prometheus": ("PrometheusStack", "ServerMetrics", "VllmMetrics"),
    "observability.spec": ("CloudWatchSpec", "FluentBitSpec", "NeuronMonitorSpec", "ObservabilitySpec", "PrometheusSpec"),
    "platform": ("InferencePlatform",),
    "pools.existing": ("ExistingPool",),
    "pools.karpenter": ("ExistingKarpenter", "Karpenter"),
    "pools.karpenter_pool": ("KarpenterPool",),
    "pools.managed": ("ManagedPool",),
    "placement": ("Placement", "Taint"),
    "pools.spec": ("EfaSpec", "ExistingPlacementGroup", "KarpenterPoolSpec", "KarpenterSpec", "ManagedPoolSpec"),
    "scaling.component": ("Autoscaler",),
    "scaling.handle": ("ExistingKeda", "ExistingPrometheusAdapter"),
    "scaling.keda": ("Keda",),
    "scaling.prometheus_adapter": ("PrometheusAdapter",),
    "scaling.spec": ("HpaSpec", "KedaOperatorSpec", "KedaSpec", "PrometheusAdapterSpec"),
    "kubernetes.secrets": ("SecretRef",),
    "serving.disaggregated.component": ("DisaggregatedPair",),
    "serving.leader_worker_sets.component": ("LeaderWorkerSetController",),
    "serving.leader_worker_sets.handle": ("ExistingLeaderWorkerSets",),
    "serving.disaggregated.spec": ("CompileOptions", "DisaggregatedPairSpec", "RoleSpec", "RouterSpec"),
    "serving.kuberay.component": ("KubeRayOperator",),
    "serving.kuberay.handle": ("ExistingKubeRayOperator",),
    "serving.kuberay.spec": ("KubeRayOperatorSpec",),
    "serving.ray_serve.component": ("RayServeVllm",),
    "serving.ray_serve.spec": ("RayHeadSpec", "RayServeVllmSpec", "RayWorkerSpec", "ServeReplicasSpec"),
    "serving.spec": ("HubModel", "NoCompileCache", "S3CompileCache", "S3Model", "VolumeCompileCache", "VolumeModel"),
    "clients.triton_client": ("TritonClient",),
    "clients.triton_client_spec": ("TritonClientSpec",),
    "serving.triton.component": ("TritonServer",),
    "serving.triton.spec": ("TritonServerSpec",),
    "serving.vllm.component": ("VllmServer",),
    "serving.vllm.spec": ("VllmServerSpec",),
    "settings": ("StackSettings",),
    "stack.spec": ("StackSpec",),
    "storage.component": ("FileSystemDriver", "SharedStore"),
    "storage.handle": ("ExistingStore",),
    "storage.spec": ("EfsStoreSpec", "ExistingStoreSpec", "LustreStoreSpec"),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}

__all__ = sorted(_HOME)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *_HOME]
