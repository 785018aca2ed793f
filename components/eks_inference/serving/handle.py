"""What others need to know about a model server, and what a server of any kind depends on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pulumi

from eks_inference.accelerators.claims.component import DeviceDriver
from eks_inference.accelerators.efa.component import EfaDevices
from eks_inference.accelerators.neuron.component import DeviceScheduler
from eks_inference.accelerators.nvidia.component import GpuPlugin
from eks_inference.catalog.models import Task
from eks_inference.cluster.handle import Cluster
from eks_inference.kubernetes.network_policy import Front
from eks_inference.network.handle import Network
from eks_inference.observability.handle import Metrics
from eks_inference.place.placement import Placement, Pool
from eks_inference.serving.kuberay.component import RayOperator
from eks_inference.serving.leader_worker_sets.component import LeaderWorkerSets
from eks_inference.serving.pod_parts import Hardware
from eks_inference.storage.component import FileSystemDriver
from eks_inference.storage.handle import Store
from eks_inference.storage.spec import FileSystem


class ModelServer(Protocol):
    """A model server as its clients see it. Names are plain strings that a preview already knows."""

    @property
    def namespace(self) -> str: ...
    @property
    def url(self) -> str:
        """Base URL of the API inside the cluster; ends in ``/v1`` for the OpenAI API.

        A plain string, which NetworkPolicies of clients are made of. Programs use ``endpoint``, which carries ``ready``.
        """
        ...

    @property
    def model_id(self) -> str:
        """Name of the model in requests."""
        ...

    @property
    def ready(self) -> Sequence[pulumi.Resource]:
        """Resources that must exist before a client. The model may not be loaded yet, which takes ``startup_seconds``."""
        ...

    @property
    def startup_seconds(self) -> int:
        """Upper bound of a cold start (node, image, download, compilation, load). It is a timeout, not an estimate."""
        ...


class Server(ModelServer, Protocol):
    """A model server of any kind, as a stack sees it."""

    @property
    def forwards(self) -> Mapping[str, Sequence[int]]:
        """Ports, by Service, that a person forwards to try the server."""
        ...

    @property
    def does(self) -> Task:
        """What clients ask it for: chats, embeddings, scores."""
        ...

    @property
    def fronts(self) -> Sequence[Front]:
        """Where an endpoint sends requests: to pods, past Services. Nothing else leads a server out of the cluster."""
        ...

    @property
    def endpoint(self) -> pulumi.Output[str]:
        """``url``, known to a preview, for what has to come after the server."""
        ...

    @property
    def other_names(self) -> Sequence[str]:
        """Names in requests beside ``model_id``: further ones of the model, and those of adapters."""
        ...

    @property
    def hardware(self) -> Hardware: ...
    def scraped_by(self, name: str, metrics: Metrics, opts: pulumi.ResourceOptions) -> pulumi.Resource:
        """Makes Prometheus scrape the server."""
        ...


@dataclass(frozen=True)
class Dependencies:
    """What the servers of a stack depend on. What no server needs may be absent."""

    cluster: Cluster
    network: Network
    core: Placement
    """Where image builds run."""
    pools: Mapping[str, Pool]
    scheduler: DeviceScheduler | None = None
    """The scheduler for Neuron devices."""
    gpu_plugin: GpuPlugin | None = None
    efa: EfaDevices | None = None
    drivers: Mapping[str, DeviceDriver] = field(default_factory=dict)
    """Drivers that offer devices for claims, by kind of device."""
    ray_operator: RayOperator | None = None
    leader_worker_sets: LeaderWorkerSets | None = None
    file_system_drivers: Mapping[FileSystem, FileSystemDriver] = field(default_factory=dict)
    stores: Mapping[str, Store] = field(default_factory=dict)
    """File systems that several servers use, by their name in the stack."""
    hugging_face_token: pulumi.Input[str] | None = None
    api_key: pulumi.Input[str] | None = None

    def driver_on(self, placement: Placement) -> DeviceDriver | None:
        """Returns the driver of the devices of these nodes; None where a device plugin offers them."""
        return self.drivers.get(placement.instance_type.accelerator or "") if placement.claimed else None


@dataclass(frozen=True)
class ServerSite:
    """What a single server depends on."""

    placement: Placement
    """The placement on its ``main_pool``."""
    image: pulumi.Input[str] | None = None
    """Reference of the image that was built for the server; None when it runs a published image."""
