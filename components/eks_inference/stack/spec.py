"""A whole stack as plain data: the ``eks-inference:stack`` object of a stack file, composed of the domains' specs."""

from collections.abc import Callable, Mapping
from typing import Any, Literal, Self

from pydantic import Field, PrivateAttr, field_validator

from eks_inference.accelerators.neuron.plan import NeuronSpec
from eks_inference.accelerators.nvidia.plan import NvidiaSpec
from eks_inference.catalog.instances import Accelerator
from eks_inference.catalog.own import LARGEST, rows_of
from eks_inference.catalog.tables import use
from eks_inference.catalog.zones import sold_as
from eks_inference.clients.spec import ClientsSpec
from eks_inference.cluster.spec import ClusterAddonsSpec, ClusterSpec
from eks_inference.endpoints.spec import ModelEndpointSpec
from eks_inference.faults import Fault, SpecError
from eks_inference.gateway.plan import Route, routes
from eks_inference.gateway.spec import WEB_UI, GatewayApiSpec, GatewaySpec, LoadBalancerControllerSpec
from eks_inference.loadtest.plan import REQUESTS
from eks_inference.loadtest.spec import LoadTestSpec
from eks_inference.network.spec import NetworkSpec
from eks_inference.observability.spec import ObservabilitySpec
from eks_inference.place.placement import OfferedBy
from eks_inference.pools.spec import KarpenterSpec, ManagedPoolSpec, PoolSpec
from eks_inference.scaling.spec import ScalingSpec
from eks_inference.serving.flag_values import other_names
from eks_inference.serving.kind import Kind
from eks_inference.serving.kinds import KINDS, AnyServerSpec, kind_of
from eks_inference.serving.kuberay.spec import KubeRayOperatorSpec
from eks_inference.serving.paths import PATHS
from eks_inference.serving.shape import Operator
from eks_inference.specs.base import MOST_ENTRIES, ResourceName, Spec, follows
from eks_inference.specs.project_files import read_file
from eks_inference.specs.settings import SharedSettings, StackSettings
from eks_inference.specs.validation import schema_of
from eks_inference.stack.nested import Resolved
from eks_inference.stack.own_rows import OwnPrice, PricedName, use_catalog
from eks_inference.storage.spec import EfsStoreSpec, FileSystem


class AcceleratorsSpec(Spec):
    """Cluster-wide support for accelerators."""

    neuron: NeuronSpec | Literal[False] | None = Field(
        default=False,
        json_schema_extra=follows,
        description="Neuron device plugin and scheduler. Absent: installed when a pool has such devices, with the scheduler "
        "where a pod takes a part of a node's. false: not installed. Pools with devices: claims need neither.",
    )
    nvidia: NvidiaSpec | Literal[False] | None = Field(
        default=False,
        json_schema_extra=follows,
        description="NVIDIA device plugin. Absent: installed when a pool has such devices. false: not installed.",
    )


class StackSpec(SharedSettings):
    """All parts of a stack. An optional section that is absent creates nothing."""

    _resolved: tuple[Resolved, ...] = PrivateAttr(default=())

    catalog: tuple[str, ...] = Field(
        default=(),
        validate_default=True,
        description="TOML files with models, engines and instance types that the catalog lacks, by their paths from the "
        "project's folder: ./ours.toml. Their rows have the columns of the catalog's.",
    )
    name: ResourceName = Field(description="Name of the cluster and prefix of every other name.")
    network: NetworkSpec = Field(default_factory=lambda: NetworkSpec(), description="The VPC.")
    cluster: ClusterSpec = Field(default_factory=lambda: ClusterSpec(), description="The control plane.")
    addons: ClusterAddonsSpec = Field(
        default_factory=lambda: ClusterAddonsSpec(), description="Add-ons that run on the core pool."
    )
    core_pool: ResourceName = Field(default="core", description="The managed, untainted pool that controllers run on.")
    pools: dict[ResourceName, PoolSpec] = Field(
        min_length=1, max_length=MOST_ENTRIES, description="Node pools by name, e.g. gpu: {instance_types: [g6.xlarge], size: 1}."
    )
    karpenter: KarpenterSpec = Field(
        default_factory=lambda: KarpenterSpec(),
        description="The Karpenter controller, installed when a pool needs it.",
    )
    accelerators: AcceleratorsSpec = Field(default_factory=lambda: AcceleratorsSpec(), description="Accelerator support.")
    kuberay: KubeRayOperatorSpec = Field(
        default_factory=lambda: KubeRayOperatorSpec(), description="The KubeRay operator, installed when a server needs it."
    )
    scaling: ScalingSpec = Field(default_factory=lambda: ScalingSpec(), description="Controllers that server autoscalers need.")
    stores: dict[ResourceName, EfsStoreSpec] = Field(
        default_factory=dict,
        max_length=MOST_ENTRIES,
        description="File systems that several servers use (shared_store), by name.",
    )
    servers: dict[ResourceName, AnyServerSpec] = Field(
        default_factory=dict, max_length=MOST_ENTRIES, description="Model servers by name."
    )
    observability: ObservabilitySpec = Field(default_factory=lambda: ObservabilitySpec(), description="Metrics and logs.")
    clients: ClientsSpec = Field(default_factory=lambda: ClientsSpec(), description="Clients of the model servers.")
    endpoints: dict[ResourceName, ModelEndpointSpec] = Field(
        default_factory=dict,
        max_length=MOST_ENTRIES,
        description="Endpoints by name: each is one address for the models of several servers, and asks clients for keys.",
    )
    gateway: GatewaySpec | None = Field(
        default=None, description="One address with HTTPS for servers and web UI, from outside the cluster. Absent: none."
    )
    gateway_api: GatewayApiSpec | None = Field(
        default=None,
        description="Routes of a Gateway (Gateway API) that the cluster has, to servers and web UI. Absent: none.",
    )
    load_balancer_controller: LoadBalancerControllerSpec = Field(
        default_factory=lambda: LoadBalancerControllerSpec(),
        description="AWS Load Balancer Controller, installed when the gateway needs it.",
    )
    load_test: LoadTestSpec | None = Field(
        default=None, description="A load test of model servers with an OpenAI API. Absent: none."
    )
    prices: dict[PricedName, OwnPrice] = Field(
        default_factory=dict,
        max_length=MOST_ENTRIES,
        description="Your own prices in the stack's region, by instance type or service. Others: the list prices of the catalog.",
    )

    budget_usd_per_month: float | None = Field(
        default=None,
        gt=0,
        le=100_000_000,
        allow_inf_nan=False,
        description="The most that the stack may cost a month by these prices (COST001). With Prometheus, an alert compares it "
        "with the cost of the nodes that run.",
    )

    @field_validator("catalog")
    @classmethod
    def _catalog_is_extended(cls, files: tuple[str, ...]) -> tuple[str, ...]:
        """Before names of engines and instance types are looked up, which stand in later keys."""
        try:
            use_catalog(files)
        except SpecError as error:
            raise ValueError("; ".join(str(fault) for fault in error.faults)) from None
        return files

    @classmethod
    def _made(cls, data: Any, validate: Callable[[Any], Any]) -> Self:
        """Writes the keys that the mapping leaves open before they are validated."""
        from eks_inference.stack.defaults import completed

        if not isinstance(data, Mapping):
            return super()._made(data, validate)
        found = completed(data)
        try:
            spec = super()._made(found.stack, validate)
        except SpecError as error:
            raise SpecError(found.told(error.faults)) from None
        if found.faults:
            raise SpecError(found.faults)
        # Type checkers take a private attribute for a field, which would be frozen.
        spec._resolved = found.resolved  # pyright: ignore[reportAttributeAccessIssue]
        return spec

    @property
    def resolved(self) -> tuple[Resolved, ...]:
        """What whoever wrote the stack left open, and what followed from the rest of it."""
        return self._resolved

    @property
    def has_neuron_scheduler(self) -> bool:
        """Whether the Neuron scheduler extension is installed: the scheduler itself allocates devices that are claimed."""
        neuron = self.accelerators.neuron
        return isinstance(neuron, NeuronSpec) and neuron.scheduler and self.has_plugin("neuron")

    def has_plugin(self, devices: Accelerator) -> bool:
        """Returns whether the device plugin is installed: it is wanted, and not all devices of its kind are claimed."""
        wanted = isinstance(getattr(self.accelerators, devices), Spec)
        return wanted and (self.offers("plugin", devices) or not self.offers("claims", devices))

    @property
    def operators(self) -> frozenset[Operator]:
        """Controllers that servers need."""
        return frozenset(operator for server in self.servers.values() for operator in server.operators)

    @property
    def file_systems(self) -> tuple[FileSystem, ...]:
        """File systems whose CSI drivers servers and stores need."""
        found: set[FileSystem] = {store.file_system for store in self.stores.values()}
        return tuple(sorted(found.union(*(server.file_systems for server in self.servers.values()))))

    def offers(self, by: OfferedBy, devices: Accelerator | Literal["efa"]) -> bool:
        """Returns whether a device plugin, or a driver for claims, has devices of this kind to offer on nodes of any pool."""
        pools = [pool for pool in self.pools.values() if pool.devices == by]
        if devices == "efa":
            return any(isinstance(pool, ManagedPoolSpec) and pool.efa is not None for pool in pools)
        return any(pool.instances()[0].accelerator == devices for pool in pools)

    @property
    def repairs_nodes(self) -> bool:
        """Whether EKS or Karpenter replaces unhealthy nodes of any pool."""
        managed = [pool.node_repair for pool in self.pools.values() if isinstance(pool, ManagedPoolSpec)]
        return any(managed) or (self.karpenter.node_repair and len(managed) < len(self.pools))

    def servers_with(self, api: Literal["openai", "kserve"]) -> tuple[str, ...]:
        """Returns the names of the servers with that API."""
        return tuple(name for name, server in self.servers.items() if kind_of(server).api == api)

    @property
    def measurable(self) -> tuple[str, ...]:
        """Names of the servers whose task the load test has requests for."""
        return tuple(name for name in self.servers_with("openai") if self.servers[name].does in REQUESTS)

    def names_of(self, server: str) -> tuple[str, ...]:
        """Returns the names of a model that a server answers to."""
        one = self.servers[server]
        return one.model.id, *getattr(one, "adapters", ()), *other_names(one.model.id, getattr(one, "extra_args", {}))

    def behind(self, endpoint: str) -> tuple[str, ...]:
        """Returns the names of the servers behind an endpoint."""
        return self.endpoints[endpoint].servers or tuple(
            name for name in self.servers_with("openai") if PATHS[self.servers[name].does]
        )

    @property
    def tested(self) -> tuple[str, ...]:
        """Names of the servers that the load test measures."""
        asked = (self.load_test.servers or sorted(self.servers)) if self.load_test else ()
        return tuple(name for name in asked if name in self.measurable)

    @property
    def tested_by_triton_client(self) -> tuple[str, ...]:
        """The name of the server that the Triton client measures, if any."""
        servers, client = self.servers_with("kserve"), self.clients.triton
        asked = ((client.server,) if client.server else servers[:1]) if client else ()
        return tuple(name for name in asked if name in servers)

    @property
    def dashboards(self) -> tuple[str, ...]:
        """Dashboards that have data to show."""
        of_servers = [board for server in self.servers.values() for board in kind_of(server).dashboards]
        others = {"endpoint": self.endpoints, "neuron": self.accelerators.neuron, "gpu": self.observability.dcgm_exporter}
        return (*dict.fromkeys(of_servers), *(board for board, wanted in others.items() if wanted))

    @property
    def routable(self) -> tuple[str, ...]:
        """Names of what a gateway can have routes to."""
        return (*self.servers, *self.endpoints, *([WEB_UI] if self.clients.open_webui else []))

    @property
    def routes(self) -> tuple[Route, ...]:
        """The routes of the gateway, if there is one: of a load balancer, or of a Gateway that the cluster has."""
        front = self.gateway or self.gateway_api
        return routes(front, tuple(self.endpoints)) if front else ()

    def leading_to(self, target: str) -> str | None:
        """Returns the name of the endpoint of a route: the target, or the one that leads to this server alone.

        Where the load balancer asks people who they are, that is one without keys; elsewhere it is one with keys.
        """
        routes = self.gateway.routes if self.gateway else {}
        keys = not (target in routes and routes[target].login)
        alone = (name for name, one in self.endpoints.items() if one.servers == (target,) and one.keys == keys)
        return target if target in self.endpoints else next(alone, None)

    def scaled_by(self, kind: Literal["keda", "hpa"]) -> bool:
        """Returns whether any server has an autoscaler of that kind."""
        return any(scaler.kind == kind for server in self.servers.values() for scaler in server.scalers.values())

    def families(self) -> list[str]:
        """Returns the instance families of all pools, or types with zones of their own, which decide the zones of the network."""
        return sorted({name for pool in self.pools.values() for name in sold_as(pool.instances())})

    def settings(self, region: str | None = None, profile: str | None = None) -> StackSettings:
        """Returns the settings that all components of the stack share. Raises ``SpecError`` when the region is none."""
        shared = {name: getattr(self, name) for name in SharedSettings.model_fields}
        shared |= {key: value for key, value in (("region", region), ("profile", profile)) if value is not None}
        return StackSettings(**shared)


def extend_catalog(*files: str) -> None:
    """Adds the rows of TOML files to the catalog of the running program, beside those that a stack names in ``catalog``.

    A program calls this before it makes specs. Paths are relative to the working directory. Raises ``SpecError`` with every
    fault.
    """
    use(rows_of({file: read_file(file, LARGEST) for file in files}), of_stack=False)


def register_kind(kind: Kind) -> None:
    """Registers a kind of model server, so that stacks may have servers of it.

    A program calls this before it reads its stack. Raises ``SpecError`` when the name is taken.
    """
    if not isinstance(kind, Kind):
        raise SpecError([Fault(("kind",), "should be a Kind", type(kind).__name__)])
    if kind.name in KINDS:
        hint = "give yours another name"
        raise SpecError([Fault(("kind",), f"a kind of server named {kind.name} already exists", hint=hint)])
    KINDS[kind.name] = kind
    StackSpec.model_rebuild(force=True)
    schema_of.cache_clear()
