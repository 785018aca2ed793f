"""A whole stack as plain data: the ``eks-inference:stack`` object of a stack file, composed of the domains' specs."""

from typing import Any, Literal

from pydantic import Field, field_validator

from eks_inference.accelerators.neuron.spec import NeuronSpec
from eks_inference.accelerators.nvidia.spec import NvidiaSpec
from eks_inference.catalog.own import LARGEST, rows_of
from eks_inference.catalog.tables import Own, use
from eks_inference.clients.spec import ClientsSpec
from eks_inference.cluster.spec import ClusterAddonsSpec, ClusterSpec
from eks_inference.faults import Fault, SpecError
from eks_inference.loadtest.spec import LoadTestSpec
from eks_inference.network.spec import NetworkSpec
from eks_inference.observability.spec import ObservabilitySpec
from eks_inference.pools.karpenter_spec import KarpenterSpec
from eks_inference.pools.spec import ManagedPoolSpec, PoolSpec
from eks_inference.project_files import read_file
from eks_inference.scaling.spec import ScalingSpec
from eks_inference.serving.kind import Kind
from eks_inference.serving.kinds import KINDS, AnyServerSpec, kind_of
from eks_inference.serving.kuberay.spec import KubeRayOperatorSpec
from eks_inference.serving.shape import Operator
from eks_inference.settings import SharedSettings, StackSettings
from eks_inference.spec import MOST_ENTRIES, ResourceName, Spec
from eks_inference.stack.prices import OwnPrice
from eks_inference.storage.spec import EfsStoreSpec, FileSystem
from eks_inference.validation import schema_of


class AcceleratorsSpec(Spec):
    """Cluster-wide support for accelerators."""

    neuron: NeuronSpec | None = Field(default=None, description="Neuron device plugin and scheduler. Absent: not installed.")
    nvidia: NvidiaSpec | None = Field(default=None, description="NVIDIA device plugin. Absent: not installed.")


class StackSpec(SharedSettings):
    """All parts of a stack. An optional section that is absent creates nothing."""

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
    pools: dict[ResourceName, PoolSpec] = Field(max_length=MOST_ENTRIES, description="Node pools by name.")
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
    load_test: LoadTestSpec | None = Field(
        default=None, description="A load test of model servers with an OpenAI API. Absent: none."
    )
    prices: dict[str, OwnPrice] = Field(
        default_factory=dict,
        max_length=MOST_ENTRIES,
        description="Your own prices in the stack's region, by instance type or service. Others: the list prices of the catalog.",
    )

    @field_validator("catalog")
    @classmethod
    def _catalog_is_extended(cls, files: tuple[str, ...]) -> tuple[str, ...]:
        """Before names of engines and instance types are looked up, which stand in later keys."""
        use(Own(), of_stack=True)
        try:
            use(rows_of({file: read_file(file, LARGEST) for file in files}), of_stack=True)
        except SpecError as error:
            raise ValueError("; ".join(str(fault) for fault in error.faults)) from None
        return files

    @property
    def has_neuron_scheduler(self) -> bool:
        """Whether the Neuron scheduler extension is installed."""
        return self.accelerators.neuron is not None and self.accelerators.neuron.scheduler

    @property
    def operators(self) -> frozenset[Operator]:
        """Controllers that servers need."""
        return frozenset(operator for server in self.servers.values() for operator in server.operators)

    @property
    def file_systems(self) -> tuple[FileSystem, ...]:
        """File systems whose CSI drivers servers and stores need."""
        found: set[FileSystem] = {store.file_system for store in self.stores.values()}
        return tuple(sorted(found.union(*(server.file_systems for server in self.servers.values()))))

    @property
    def uses_efa(self) -> bool:
        """Whether any nodes have EFA interfaces."""
        return any(isinstance(pool, ManagedPoolSpec) and pool.efa is not None for pool in self.pools.values())

    @property
    def repairs_nodes(self) -> bool:
        """Whether EKS or Karpenter replaces unhealthy nodes of any pool."""
        managed = [pool.node_repair for pool in self.pools.values() if isinstance(pool, ManagedPoolSpec)]
        return any(managed) or (self.karpenter.node_repair and len(managed) < len(self.pools))

    def servers_with(self, api: Literal["openai", "kserve"]) -> tuple[str, ...]:
        """Returns the names of the servers with that API."""
        return tuple(name for name, server in self.servers.items() if kind_of(server).api == api)

    @property
    def tested(self) -> tuple[str, ...]:
        """Names of the servers that the load test measures."""
        asked = (self.load_test.servers or self.servers) if self.load_test else ()
        return tuple(name for name in asked if name in self.servers_with("openai"))

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
        of_devices = {"neuron": self.accelerators.neuron, "gpu": self.observability.dcgm_exporter}
        return (*dict.fromkeys(of_servers), *(board for board, wanted in of_devices.items() if wanted))

    def scaled_by(self, kind: Literal["keda", "hpa"]) -> bool:
        """Returns whether any server has an autoscaler of that kind."""
        return any(server.scaler is not None and server.scaler.kind == kind for server in self.servers.values())

    def families(self) -> list[str]:
        """Returns the instance families of all pools, which decide the zones of the network."""
        return sorted({instance.family for pool in self.pools.values() for instance in pool.instances()})

    def settings(self, region: str | None = None, profile: str | None = None) -> StackSettings:
        """Returns the settings that all components of the stack share. Raises ``SpecError`` when the region is none."""
        shared = {name: getattr(self, name) for name in SharedSettings.model_fields}
        shared |= {key: value for key, value in (("region", region), ("profile", profile)) if value is not None}
        return StackSettings(**shared)


def stack_schema() -> dict[str, Any]:
    """Returns the JSON schema of a stack object."""
    # pyright takes the hash of a class for that of its instances.
    return schema_of(StackSpec)  # pyright: ignore[reportArgumentType]


def stack_file_schema() -> dict[str, Any]:
    """Returns the JSON schema of a whole stack file (``stacks/Pulumi.<stack>.yaml``)."""
    stack = dict(stack_schema())
    definitions = stack.pop("$defs")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Stack file of eks-inference",
        "type": "object",
        "properties": {
            "config": {
                "type": "object",
                "properties": {
                    "aws:region": {"type": "string", "description": "AWS region, e.g. us-west-2."},
                    "eks-inference:stack": stack,
                },
                "required": ["aws:region", "eks-inference:stack"],
            }
        },
        "required": ["config"],
        "$defs": definitions,
    }


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
