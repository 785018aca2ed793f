"""One stack as plain data: the ``eks-inference:stack`` object of a stack file, assembled from the domains' specs."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from eks_inference.accelerators.neuron.spec import NeuronSpec
from eks_inference.accelerators.nvidia.spec import NvidiaSpec
from eks_inference.clients.spec import ClientsSpec
from eks_inference.cluster.spec import ClusterAddonsSpec, ClusterSpec
from eks_inference.faults import Fault, SpecError, format_path
from eks_inference.images import plan as images_plan
from eks_inference.images.spec import InClusterImage
from eks_inference.loadtest.spec import LoadTestSpec
from eks_inference.network.spec import NetworkSpec
from eks_inference.observability.spec import ObservabilitySpec
from eks_inference.pools import plan as pools_plan
from eks_inference.pools.spec import KarpenterSpec, ManagedPoolSpec, PoolSpec
from eks_inference.scaling.spec import ScalingSpec
from eks_inference.serving.disaggregated.spec import DisaggregatedPairSpec
from eks_inference.serving.kuberay.spec import KubeRayOperatorSpec
from eks_inference.serving.ray_serve.spec import RayServeVllmSpec
from eks_inference.serving.server_spec import ServerSpec
from eks_inference.serving.triton.spec import TritonServerSpec
from eks_inference.serving.vllm.spec import VllmServerSpec
from eks_inference.settings import StackSettings
from eks_inference.spec import RULE_ID, Arn, Reason, ResourceName, RuleId, Spec

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
    servers: dict[ResourceName, ServerSpec] = Field(default_factory=dict, description="Model servers by name.")
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
    def uses_ray(self) -> bool:
        """Whether a server needs the KubeRay operator."""
        return any(isinstance(server, RayServeVllmSpec) for server in self.servers.values())

    @property
    def uses_efa(self) -> bool:
        """Whether nodes have EFA interfaces."""
        return any(isinstance(pool, ManagedPoolSpec) and pool.efa is not None for pool in self.pools.values())

    @property
    def pairs(self) -> tuple[DisaggregatedPairSpec, ...]:
        """Servers of two halves, prefill and decode."""
        return tuple(server for server in self.servers.values() if isinstance(server, DisaggregatedPairSpec))

    @property
    def triton_servers(self) -> tuple[str, ...]:
        """Servers that speak Triton's protocol. All others have an OpenAI API."""
        return tuple(name for name, server in self.servers.items() if isinstance(server, TritonServerSpec))

    @property
    def dashboards(self) -> tuple[str, ...]:
        """Dashboards that have something to show."""
        kinds = {server.kind for server in self.servers.values()}
        shown = {
            "ray-vllm": "ray_serve_vllm" in kinds,
            "vllm": bool(kinds & {"vllm", "disaggregated"}),
            "triton": "triton" in kinds,
            "neuron": self.accelerators.neuron is not None,
            "gpu": self.observability.dcgm_exporter is not None,
        }
        return tuple(board for board, wanted in shown.items() if wanted)

    def scaled_by(self, kind: Literal["keda", "hpa"]) -> bool:
        """Whether an autoscaler of that kind owns the pods of a server."""
        scaled = (server for server in self.servers.values() if isinstance(server, VllmServerSpec | TritonServerSpec))
        return any(server.autoscaling is not None and server.autoscaling.kind == kind for server in scaled)

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


def parse_stack(text: str) -> StackSpec:
    """A stack object (JSON) as a spec; raises ``SpecError`` with every fault when it is not one.

    Strict: a number in quotes is not a number here, though Python would take it for one.
    """
    try:
        spec = StackSpec.model_validate_json(text, strict=True)
    except ValidationError as error:
        raise SpecError(_shape_faults(error, text)) from error
    faults = list(_reference_faults(spec))
    if faults:
        raise SpecError(faults)
    return spec


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


def _reference_faults(spec: StackSpec) -> Iterator[Fault]:
    """Names that lead nowhere, and pools that are not what the name's user needs."""
    core = spec.pools.get(spec.core_pool)
    if core is None:
        yield _no_such_pool(("core_pool",), spec.core_pool, spec)
    elif (
        not isinstance(core, ManagedPoolSpec) or core.taints or core.extra_taints or any(i.accelerator for i in core.instances())
    ):
        yield Fault(
            ("pools", spec.core_pool),
            "the core pool runs what must run before anything else",
            given=f"{core.kind} pool of {', '.join(i.name for i in core.instances()[:3])}",
            allowed="a managed pool without taints and accelerators",
        )
    taken: dict[str, tuple[str, ...]] = {}
    for path, namespace in _namespaces(spec):
        first = taken.setdefault(namespace, path)
        if first != path:
            hint = f"{format_path(first)} has it already; each makes a namespace of its own"
            yield Fault(path, "this namespace is taken", given=namespace, hint=hint)
    for name, server in spec.servers.items():
        if isinstance(server.image, InClusterImage) and isinstance(core, ManagedPoolSpec):
            given, needed = pools_plan.root_volume_gib(core), images_plan.smallest_root_volume_gib(server.image)
            if given < needed:
                path = ("pools", spec.core_pool, "root_volume_gib")
                hint = f"image of server '{name}'"
                yield Fault(path, "an image build does not fit the nodes' disk", str(given), f"at least {needed}", hint)
        for wish in _wishes(server):
            yield from _placement_faults(("servers", name), wish, spec)
    yield from _monitor_faults(spec)
    yield from _client_faults(spec)


@dataclass(frozen=True)
class _Wish:
    """Where some pods of a server want to run, and the keys that say so."""

    pool_key: tuple[str, ...]
    pool: str
    type_key: tuple[str, ...]
    instance_type: str | None
    accelerators: tuple[str, ...] = ()
    """One of these its nodes must have; none: it does without."""


def _wishes(server: ServerSpec) -> Iterator[_Wish]:
    if isinstance(server, RayServeVllmSpec):
        for role, wish in (("head", server.head), ("worker", server.worker)):
            yield _Wish((role, "pool"), wish.pool, (role, "instance_type"), wish.instance_type)
        return
    accelerators = ("nvidia",) if isinstance(server, TritonServerSpec) else ("neuron", "nvidia")
    yield _Wish(("pool",), server.pool, ("instance_type",), server.instance_type, accelerators)
    if isinstance(server, DisaggregatedPairSpec):
        if server.compile_pool:
            yield _Wish(("compile_pool",), server.compile_pool, ("instance_type",), server.instance_type)
        if server.router.pool:
            yield _Wish(("router", "pool"), server.router.pool, ("router", "instance_type"), server.router.instance_type)


def _namespaces(spec: StackSpec) -> Iterator[tuple[tuple[str, ...], str]]:
    """Every namespace the stack makes, with the key that names it."""
    for name, server in spec.servers.items():
        yield ("servers", name, "namespace"), server.namespace or name
    if spec.uses_ray:
        yield ("kuberay", "namespace"), spec.kuberay.namespace
    if spec.observability.prometheus:
        yield ("observability", "prometheus", "namespace"), spec.observability.prometheus.namespace
    if spec.observability.neuron_monitor:
        yield ("observability", "neuron_monitor", "namespace"), spec.observability.neuron_monitor.namespace
    if spec.observability.dcgm_exporter:
        yield ("observability", "dcgm_exporter", "namespace"), spec.observability.dcgm_exporter.namespace
    if spec.observability.fluent_bit:
        yield ("observability", "fluent_bit", "namespace"), spec.observability.fluent_bit.namespace
    if spec.scaled_by("keda"):
        yield ("scaling", "keda", "namespace"), spec.scaling.keda.namespace
    if spec.clients.open_webui:
        yield ("clients", "open_webui", "namespace"), spec.clients.open_webui.namespace
    if spec.clients.triton:
        yield ("clients", "triton", "namespace"), spec.clients.triton.namespace
    if spec.load_test:
        yield ("load_test", "namespace"), spec.load_test.namespace


def _monitor_faults(spec: StackSpec) -> Iterator[Fault]:
    """Monitors of devices that nothing offers."""
    observability, accelerators = spec.observability, spec.accelerators
    for key, monitor, plugin, offered in (
        ("neuron_monitor", observability.neuron_monitor, "neuron", accelerators.neuron),
        ("dcgm_exporter", observability.dcgm_exporter, "nvidia", accelerators.nvidia),
    ):
        if monitor and not offered:
            hint = f"add accelerators.{plugin}, or leave it out"
            yield Fault(
                ("observability", key), f"it stands on the device plugin of accelerators.{plugin}, which is absent", hint=hint
            )


def _client_faults(spec: StackSpec) -> Iterator[Fault]:
    """Clients of a protocol that none of the servers speaks, or not the one they name."""
    triton, clients = spec.triton_servers, spec.clients
    others = [name for name in spec.servers if name not in triton]
    hint = f"Triton speaks its own: clients.triton asks {', '.join(triton)}" if triton else ""
    for path, client in (
        (("clients", "open_webui"), clients.open_webui),
        (("clients", "smoke_test"), clients.smoke_test),
        (("load_test",), spec.load_test),
    ):
        if client and not others:
            yield Fault(path, "there is no model server with an OpenAI API", hint=hint)
    for position, name in enumerate(spec.load_test.servers if spec.load_test else ()):
        if name in triton:
            path = ("load_test", "servers", position)
            yield Fault(path, "this server has no OpenAI API", given=name, allowed=", ".join(others), hint=hint)
    if clients.triton and (asked := clients.triton.server) not in triton and (asked or len(triton) != 1):
        path, allowed = (
            ("clients", "triton", "server"),
            ", ".join(triton) or "none is there: add one, or leave clients.triton out",
        )
        message = "there is no Triton server of this name" if asked else f"there are {len(triton)} Triton servers: name one"
        yield Fault(path, message, given=asked or "", allowed=allowed)


def _placement_faults(path: tuple[str, ...], wish: _Wish, spec: StackSpec) -> Iterator[Fault]:
    """A workload asks for a pool, and maybe for one of its instance types."""
    pool = spec.pools.get(wish.pool)
    if pool is None:
        yield _no_such_pool((*path, *wish.pool_key), wish.pool, spec)
        return
    types = sorted(instance.name for instance in pool.instances())
    key, allowed = (*path, *wish.type_key), ", ".join(types)
    accelerator = pool.instances()[0].accelerator
    if wish.accelerators and accelerator not in wish.accelerators:
        fitting = [name for name, one in spec.pools.items() if one.instances()[0].accelerator in wish.accelerators]
        message = f"its nodes have {'devices of the wrong kind' if accelerator else 'no accelerator'} for this server"
        given, allowed = f"{wish.pool} ({types[0]})", ", ".join(fitting) or "none is there yet"
        yield Fault((*path, *wish.pool_key), message, given, allowed)
        return
    if wish.instance_type is None and len(types) > 1:
        yield Fault(key, f"pool '{wish.pool}' has several instance types: name one", allowed=allowed)
    elif wish.instance_type is not None and wish.instance_type not in types:
        nearest = get_close_matches(wish.instance_type, types, n=1)
        hint = f"did you mean '{nearest[0]}'?" if nearest else ""
        message = f"pool '{wish.pool}' has no such instance type"
        yield Fault(key, message, given=wish.instance_type, allowed=allowed, hint=hint)


def _no_such_pool(path: tuple[str | int, ...], given: str, spec: StackSpec) -> Fault:
    nearest = get_close_matches(given, spec.pools, n=1)
    hint = f"did you mean '{nearest[0]}'?" if nearest else ""
    return Fault(path, "there is no pool of this name", given=given, allowed=", ".join(sorted(spec.pools)), hint=hint)


@cache
def _schema() -> dict[str, Any]:
    return StackSpec.model_json_schema()


def _shape_faults(error: ValidationError, text: str) -> Iterator[Fault]:
    data, schema = json.loads(text), _schema()
    for problem in error.errors(include_url=False):
        yield _shape_fault(problem, data, schema)


def _shape_fault(problem: Any, data: Any, schema: dict[str, Any]) -> Fault:
    """A pydantic error as a fault: where in the user's own words, what was given, and what the schema allows there."""
    path, given, place = _locate(problem["loc"], data, schema)
    kind, context = problem["type"], problem.get("ctx", {})
    if kind == "extra_forbidden":
        allowed = sorted(_locate(problem["loc"][:-1], data, schema)[2].get("properties", {}))
        nearest = get_close_matches(str(path[-1]), allowed, n=1, cutoff=0.5)
        hint = f"did you mean '{nearest[0]}'?" if nearest else ""
        return Fault(path, "unknown key", allowed=", ".join(allowed), hint=hint)
    if kind == "missing":
        return Fault(path, "this key is required and missing", allowed=_allowed(place))
    if kind in ("union_tag_not_found", "union_tag_invalid"):
        key = context["discriminator"].strip("'")
        tags = context.get("expected_tags", "").replace("'", "") or ", ".join(place.get("discriminator", {}).get("mapping", ()))
        tag = given.get(key) if isinstance(given, dict) else given
        misspelt = get_close_matches(key, [str(name) for name in given], n=1) if isinstance(given, dict) and tag is None else []
        if misspelt:
            return Fault((*path, misspelt[0]), "unknown key", hint=f"did you mean '{key}'?")
        nearest = get_close_matches(str(tag), tags.split(", "), n=1)
        hint = f"did you mean '{nearest[0]}'?" if nearest else ""
        message = "unknown kind" if kind == "union_tag_invalid" else "this key is required and missing"
        # An absent tag is the fault of the key; a wrong one stands there to be pointed at.
        return Fault((*path, key), message, given=_shown(tag) if tag is not None else "", allowed=tags, hint=hint)
    message = problem["msg"].removeprefix("Value error, ").replace("Input should be", "should be")
    nearest = get_close_matches(given, _choices(place), n=1) if isinstance(given, str) else []
    hint = f"did you mean '{nearest[0]}'?" if nearest else ""
    # What our own validators say is complete; for the others the schema knows what is allowed.
    rule = kind if re.fullmatch(RULE_ID, kind) else ""
    allowed = "" if kind == "value_error" or rule else _allowed(place)
    return Fault(path, message, given=_shown(given), allowed=allowed, hint=hint, rule=rule)


def _locate(loc: tuple[str | int, ...], data: Any, schema: dict[str, Any]) -> tuple[tuple[str | int, ...], Any, dict[str, Any]]:
    """A pydantic location as key path, the value there, and the JSON schema of that value.

    Pydantic also names union members and validators on the way; the data tells them from keys.
    """
    path: list[str | int] = []
    place = _resolve(schema, data, schema)
    for index, part in enumerate(loc):
        if isinstance(data, list):
            if not isinstance(part, int):
                continue
            data = data[part]
        elif isinstance(data, dict) and (part in data or (index == len(loc) - 1 and part in place.get("properties", {}))):
            data = data.get(part)
        else:
            continue
        path.append(part)
        step = place.get("items", {}) if isinstance(part, int) else place.get("properties", {}).get(part)
        if step is None:
            extra = place.get("additionalProperties") or next(iter(place.get("patternProperties", {}).values()), {})
            step = extra if isinstance(extra, dict) else {}
        place = _resolve(step, data, schema)
    return tuple(path), data, place


def _resolve(place: dict[str, Any], data: Any, schema: dict[str, Any]) -> dict[str, Any]:
    """Follow references, and of alternatives take the one the data asks for."""
    while True:
        if "$ref" in place:
            place = schema["$defs"][place["$ref"].rpartition("/")[2]] | {k: v for k, v in place.items() if k != "$ref"}
        elif "discriminator" in place:
            mapping = place["discriminator"]["mapping"]
            tag = data.get(place["discriminator"]["propertyName"]) if isinstance(data, dict) else None
            if not isinstance(tag, str) or tag not in mapping:
                return place
            place = {"$ref": mapping[tag]}
        elif "anyOf" in place or "oneOf" in place:
            options = [option for option in place.get("anyOf", place.get("oneOf", ())) if option.get("type") != "null"]
            # A text or an object, say: the kind of the data tells which is meant.
            is_object = isinstance(data, dict)
            wanted = options if len(options) == 1 else [option for option in options if ("$ref" in option) == is_object]
            if len(wanted) != 1:
                return place
            place = wanted[0] | {k: v for k, v in place.items() if k not in ("anyOf", "oneOf", "default")}
        else:
            return place


_BOUNDS = {"minimum": "at least", "maximum": "at most", "minLength": "length at least", "maxLength": "length at most"}


def _choices(place: dict[str, Any]) -> list[str]:
    return [str(choice) for choice in place.get("enum", [place["const"]] if "const" in place else [])]


def _allowed(place: dict[str, Any]) -> str:
    """What a JSON schema allows, in words."""
    if choices := _choices(place):
        return ", ".join(choices)
    words = [str(place["type"])] if "type" in place else []
    words += [f"{label} {place[bound]}" for bound, label in _BOUNDS.items() if bound in place]
    words += [f"matching {place['pattern']}"] if "pattern" in place else []
    return ", ".join(words) + (f": {place['description']}" if words and "description" in place else "")


def _shown(given: Any) -> str:
    text = repr(given) if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
    return text if len(text) <= 80 else text[:77] + "..."
