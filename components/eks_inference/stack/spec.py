"""One stack as plain data: the ``eks-inference:stack`` object of a stack file, assembled from the domains' specs."""

from functools import cache
from typing import Annotated, Any, Literal

from pydantic import Field

from eks_inference.accelerators.neuron.spec import NeuronSpec
from eks_inference.accelerators.nvidia.spec import NvidiaSpec
from eks_inference.clients.spec import ClientsSpec
from eks_inference.cluster.spec import ClusterAddonsSpec, ClusterSpec
from eks_inference.loadtest.spec import LoadTestSpec
from eks_inference.network.spec import NetworkSpec
from eks_inference.observability.spec import ObservabilitySpec
from eks_inference.pools.spec import KarpenterSpec, ManagedPoolSpec, PoolSpec
from eks_inference.scaling.spec import ScalingSpec
from eks_inference.serving.kinds import KINDS, AnyServerSpec, Kind, kind_of
from eks_inference.serving.kuberay.spec import KubeRayOperatorSpec
from eks_inference.serving.shape import Operator
from eks_inference.settings import StackSettings
from eks_inference.spec import Arn, Reason, ResourceName, RuleId, Spec
from eks_inference.storage.spec import FileSystem

PoolName = Annotated[str, Field(pattern=r"^[a-z]([-a-z0-9]{0,38}[a-z0-9])?$")]


class AcceleratorsSpec(Spec):
    """Support for accelerators beyond what their pools bring."""

    neuron: NeuronSpec | None = Field(default=None, description="Neuron device plugin and scheduler. Absent: not installed.")
    nvidia: NvidiaSpec | None = Field(default=None, description="NVIDIA device plugin. Absent: not installed.")


class StackSpec(Spec):
    """Everything a stack is made of. Sections that are absent make nothing."""

    name: ResourceName = Field(description="Name of the cluster and beginning of every other name.")
    tags: dict[str, str] = Field(default_factory=dict, description="Tags of every AWS resource, also those that nodes make.")
    permissions_boundary_arn: Arn | None = Field(default=None, description="Permissions boundary of every IAM role.")
    kms_key_arn: Arn | None = Field(default=None, description="KMS key for cluster secrets and volumes; AWS's own when absent.")
    mirrors: dict[str, str] = Field(
        default_factory=dict,
        description="Registry or chart repository → what replaces it, e.g. public.ecr.aws: registry.corp.example/ecr-public.",
    )
    protect: bool = Field(default=False, description="Refuse deletion of the cluster, the VPC and whatever holds data.")
    silenced: dict[RuleId, Reason] = Field(
        default_factory=dict, description="Rules that do not stop this stack: id → why, as the report then shows."
    )
    network: NetworkSpec = Field(default_factory=lambda: NetworkSpec(), description="The VPC.")
    cluster: ClusterSpec = Field(default_factory=lambda: ClusterSpec(), description="The control plane.")
    addons: ClusterAddonsSpec = Field(
        default_factory=lambda: ClusterAddonsSpec(), description="Add-ons that run on the core pool."
    )
    core_pool: PoolName = Field(default="core", description="The managed, untainted pool that controllers run on.")
    pools: dict[PoolName, PoolSpec] = Field(description="Node pools by name.")
    karpenter: KarpenterSpec = Field(
        default_factory=lambda: KarpenterSpec(), description="The Karpenter controller, installed when a pool is of its kind."
    )
    accelerators: AcceleratorsSpec = Field(default_factory=lambda: AcceleratorsSpec(), description="Accelerator support.")
    kuberay: KubeRayOperatorSpec = Field(
        default_factory=lambda: KubeRayOperatorSpec(), description="The KubeRay operator, installed when a server needs it."
    )
    scaling: ScalingSpec = Field(default_factory=lambda: ScalingSpec(), description="What autoscalers of servers stand on.")
    servers: dict[ResourceName, AnyServerSpec] = Field(default_factory=dict, description="Model servers by name.")
    observability: ObservabilitySpec = Field(default_factory=lambda: ObservabilitySpec(), description="Metrics and logs.")
    clients: ClientsSpec = Field(default_factory=lambda: ClientsSpec(), description="Clients of the model servers.")
    load_test: LoadTestSpec | None = Field(
        default=None, description="A load test of model servers with an OpenAI API. Absent: none."
    )

    @property
    def has_neuron_scheduler(self) -> bool:
        """Whether the Neuron scheduler extension is installed."""
        return self.accelerators.neuron is not None and self.accelerators.neuron.scheduler

    @property
    def operators(self) -> frozenset[Operator]:
        """Controllers that servers stand on."""
        return frozenset(operator for server in self.servers.values() for operator in server.operators)

    @property
    def file_systems(self) -> tuple[FileSystem, ...]:
        """File systems whose drivers servers need."""
        return tuple(sorted({kind for server in self.servers.values() for kind in server.file_systems}))

    @property
    def uses_efa(self) -> bool:
        """Whether nodes have EFA interfaces."""
        return any(isinstance(pool, ManagedPoolSpec) and pool.efa is not None for pool in self.pools.values())

    def servers_with(self, api: Literal["openai", "kserve"]) -> tuple[str, ...]:
        """Servers whose clients speak that API."""
        return tuple(name for name, server in self.servers.items() if kind_of(server).api == api)

    @property
    def dashboards(self) -> tuple[str, ...]:
        """Dashboards that have something to show."""
        of_servers = [board for server in self.servers.values() for board in kind_of(server).dashboards]
        of_devices = {"neuron": self.accelerators.neuron, "gpu": self.observability.dcgm_exporter}
        return (*dict.fromkeys(of_servers), *(board for board, wanted in of_devices.items() if wanted))

    def scaled_by(self, kind: Literal["keda", "hpa"]) -> bool:
        """Whether an autoscaler of that kind owns the pods of a server."""
        return any(server.scaler is not None and server.scaler.kind == kind for server in self.servers.values())

    def families(self) -> list[str]:
        """Instance families of all pools: they decide which zones serve."""
        return sorted({instance.family for pool in self.pools.values() for instance in pool.instances()})

    def settings(self, region: str, profile: str | None = None) -> StackSettings:
        """What every component of the stack shares."""
        return StackSettings(
            region=region,
            profile=profile,
            tags=self.tags,
            permissions_boundary_arn=self.permissions_boundary_arn,
            kms_key_arn=self.kms_key_arn,
            mirrors=self.mirrors,
            protect=self.protect,
            silenced=self.silenced,
        )


@cache
def stack_schema() -> dict[str, Any]:
    """JSON schema of a stack object."""
    return StackSpec.model_json_schema()


def stack_file_schema() -> dict[str, Any]:
    """JSON schema of a whole stack file (``stacks/Pulumi.<stack>.yaml``)."""
    stack = StackSpec.model_json_schema()
    definitions = stack.pop("$defs", {})
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


def register_kind(kind: Kind) -> None:
    """Makes a kind of model server known: from now on stacks may have servers of it.

    A program calls this before it reads its stack. Raises ``ValueError`` for the name of a kind that there is already.
    """
    if kind.name in KINDS:
        raise ValueError(f"there is a kind of server named {kind.name} already; give yours another name")
    KINDS[kind.name] = kind
    StackSpec.model_rebuild(force=True)
    stack_schema.cache_clear()
