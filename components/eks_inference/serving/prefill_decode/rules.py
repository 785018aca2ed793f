"""Rules about how prefill and decode servers of a group fit each other, and the facts that they judge: both kinds of servers as
started, and how they pair. Ids DI030 to DI036.

Those about each server alone: ``serving/rules/nixl.py``; about place, stops and routers: ``operation_rules``.

Sources: vLLM 0.30.0 (wheel), ``distributed/kv_transfer/kv_connector/v1/nixl``, and its documentation (NixlConnector Compatibility
Matrix); Neuron documentation, disaggregated inference of the vLLM plugin.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from eks_inference.catalog.architectures import architectures
from eks_inference.catalog.engines import EngineProfile
from eks_inference.catalog.nixl import nixl_profile
from eks_inference.place.placement import Placement
from eks_inference.pools.spec import PoolSpec
from eks_inference.rules import Judgement, Path, Rule, Severity, not_judged, rule
from eks_inference.serving.facts import ServingFacts
from eks_inference.serving.flags import flag, object_flag
from eks_inference.serving.prefill_decode.plan import Group, RoleServers, extra_args, extra_env
from eks_inference.serving.prefill_decode.spec import ROLES, PrefillDecodeSpec, Role
from eks_inference.serving.vllm.facts import serving_facts

_LAYOUT, _SPLIT = "VLLM_KV_CACHE_LAYOUT", "HND"
"""The variable that says how blocks are laid out, and the layout by heads, which connectors choose."""

_MATRIX = "vLLM documentation, NixlConnector Compatibility Matrix"

_VARIABLES = ("VLLM_ATTENTION_BACKEND", _LAYOUT)
_COMPARED = ("dtype", "kv-cache-dtype", "attention-backend", "quantization", "hf-overrides", "revision")
"""Flags that change what the handshake compares: release, model, data types, attention backend, form of blocks."""

_SPECULATION = "speculative-config"
_MAY_DIFFER = "num_speculative_tokens"


@dataclass(frozen=True)
class RoleFacts:
    """The servers of one role."""

    role: Role
    server: ServingFacts
    """One pod: its flags, variables, devices and interfaces. Its ``path`` is the server's key, ``at`` finds the role's."""
    transfer: Mapping[str, Any]
    """``--kv-transfer-config`` as the engine reads it; empty where there is none, or it is no object."""
    pool: PoolSpec | None
    """None when only the placement is known."""

    @property
    def placement(self) -> Placement:
        return self.server.placement

    @property
    def connector_settings(self) -> Mapping[str, Any]:
        """``kv_connector_extra_config`` of the transfer."""
        found = self.transfer.get("kv_connector_extra_config", {})
        return found if isinstance(found, Mapping) else {}


@dataclass(frozen=True)
class PrefillDecodeFacts:
    """A group of prefill and decode servers. ``path`` is its key in the stack; empty when a component judges itself."""

    about: ClassVar[str] = "prefill and decode servers"

    path: Path
    spec: PrefillDecodeSpec
    engine: EngineProfile
    revision: str
    prefill: RoleFacts
    decode: RoleFacts

    @property
    def roles(self) -> tuple[RoleFacts, RoleFacts]:
        return self.prefill, self.decode

    def at(self, *keys: str) -> Path:
        """Returns the path of a setting in the stack."""
        return (*self.path, *keys)


def role_servers_facts(spec: PrefillDecodeSpec, one: RoleServers, *, scheduler: bool, path: Path = ()) -> ServingFacts:
    """Returns what the rules about all servers judge in the servers of one role. Settings are found at the role's keys."""
    interfaces = one.engine.efa_interfaces
    plain = serving_facts(one.spec, one.placement, scheduler=scheduler, path=path, efa_interfaces=interfaces)
    tuned: Role = one.role if spec.serving == "disaggregated" else "decode"
    own = spec.role(tuned)
    given: Mapping[str, Mapping[str, Any]] = {"extra_args": own.extra_args, "extra_env": own.extra_env}
    keys = {
        **{
            key: (one.role, key)
            for key in (
                *("devices", "tensor_parallel", "disk_gib", "pool", "instance_type", "cpu", "memory", "shared_memory_gib"),
                "efa_interfaces",
            )
        },
        "lease": ("kv_transfer", "lease_seconds"),
        "max_num_seqs": (tuned, "max_num_seqs"),
        **({"max_num_batched_tokens": (tuned, "max_num_batched_tokens")} if own.max_num_batched_tokens else {}),
        "startup_timeout": (one.role, "startup_timeout_seconds"),
        "pods_max": (one.role, "autoscaling", "max") if one.spec.autoscaling else (one.role, "replicas"),
        **{f"{setting}.{key}": (tuned, setting, key) for setting, values in given.items() for key in values},
    }
    return replace(
        plain,
        kind=spec.kind,
        part=one.role,
        has_task=False,
        features=spec,
        pods_beside=plain.pods_max if spec.rollout == "second_group" else 0,
        extra_args=extra_args(spec, one.role),
        extra_env=extra_env(spec, one.role),
        keys=keys,
    )


def group_facts(
    group: Group, *, scheduler: bool, pools: Mapping[Role, PoolSpec] | None = None, path: Path = ()
) -> PrefillDecodeFacts:
    """Returns the facts of a group."""
    prefill, decode = (_role(group, role, scheduler=scheduler, pool=pools[role] if pools else None, path=path) for role in ROLES)
    return PrefillDecodeFacts(
        path=path,
        spec=group.spec,
        engine=group.spec.profile,
        revision=group.revision,
        prefill=prefill,
        decode=decode,
    )


def _role(group: Group, role: Role, *, scheduler: bool, pool: PoolSpec | None, path: Path) -> RoleFacts:
    server = role_servers_facts(group.spec, group.roles[role], scheduler=scheduler, path=path)
    return RoleFacts(role, server, object_flag(server.arguments, "kv-transfer-config"), pool)


def group_rule(
    id_: str, meaning: str, *, fix: str, source: str, severity: Severity = "error"
) -> Callable[[Callable[[PrefillDecodeFacts], Iterable[Judgement]]], Rule[PrefillDecodeFacts]]:
    """Declares a rule that does not apply to a baseline, which hands nothing over."""

    def declare(judge: Callable[[PrefillDecodeFacts], Iterable[Judgement]]) -> Rule[PrefillDecodeFacts]:
        def judge_if_disaggregated(group: PrefillDecodeFacts) -> Iterable[Judgement]:
            return judge(group) if group.spec.serving == "disaggregated" else ()

        return rule(id_, meaning, fix=fix, source=source, severity=severity)(judge_if_disaggregated)

    return declare


@group_rule(
    "DI030",
    "Servers run on chips whose memory EFA interfaces read and write, in a pool with EFA.",
    fix="use Trn2, or GPUs of p4d, p4de, p5 or p6, in a managed pool with efa: {}",
    source="aws-ofi-nccl#547 (GPUDirect RDMA); ai-dynamo/nixl#784, #901; Neuron documentation: Trn2 and Trn3",
)
def chips_and_interfaces(group: PrefillDecodeFacts) -> Iterator[Judgement]:
    for role in group.roles:
        shape, profile = role.server.instance, nixl_profile(group.engine.accelerator)
        reason = profile.reason_against(shape)
        yield Judgement(
            holds=not reason,
            path=role.server.at("instance_type"),
            working=(f"{role.role}: {shape.name} with {shape.chip or 'no accelerator'}; supported: {', '.join(profile.chips)}",),
            message=f"KV caches do not cross EFA on {shape.name}: {reason}",
            given=shape.name,
            allowed=", ".join(profile.chips),
        )
        there = role.placement.efa_interfaces
        yield Judgement(
            holds=there > 0,
            path=role.server.at("pool"),
            working=(f"{role.role}: EFA interfaces of a node of pool '{role.placement.pool}': {there}",),
            message=f"the nodes of pool '{role.placement.pool}' have no EFA, which carries KV caches even on one node",
            given=role.placement.pool,
            allowed=f"a managed pool with efa: {{}} ({shape.name} has {shape.efa_interfaces} interfaces)",
        )


@group_rule(
    "DI031",
    "Each pod has the EFA interfaces of its devices.",
    fix="leave efa_interfaces out",
    source="aws-neuron-eks-samples b67a4f6: one interface for each chip; GPUs: the share of a node, as llm-d has it on p5en",
)
def interfaces_match_devices(group: PrefillDecodeFacts) -> Iterator[Judgement]:
    for role in group.roles:
        asked, there, shape = role.server.efa_interfaces, role.placement.efa_interfaces, role.server.instance
        if not there or not shape.devices:
            continue
        each = nixl_profile(group.engine.accelerator).interfaces_per_device
        wanted = min(each * role.server.devices, there) or max(1, there * role.server.devices // shape.devices)
        yield Judgement(
            holds=asked == wanted,
            path=role.server.at("efa_interfaces"),
            working=(
                f"{role.role}: {role.server.devices} of {shape.devices} devices, {there} interfaces on a node: {wanted}",
                f"asked: {asked}",
            ),
            message=f"{role.role} asks for {asked} of {there} interfaces: "
            + ("other pods of the node get too few" if asked > wanted else "some devices have none nearby"),
            given=str(asked),
            allowed=str(wanted),
            severity="error" if asked > there or not asked or (each and asked < wanted) else "warning",
        )


@group_rule(
    "DI032",
    "Pods that share a node claim their devices.",
    fix="set devices: claims on the pool, or give each pod all devices of its node",
    source="EKS user guide, Manage Neuron devices and EFA devices: only claims put devices and the interfaces near them together",
)
def shares_are_claimed(group: PrefillDecodeFacts) -> Iterator[Judgement]:
    for role in group.roles:
        asked, there = role.server.devices, role.server.instance.devices
        yield Judgement(
            holds=asked >= there or role.placement.claimed,
            path=role.server.at("devices"),
            working=(
                f"{role.role}: {asked} of {there} devices of a node",
                f"pool '{role.placement.pool}' offers devices by {role.placement.devices}",
            ),
            message=f"{role.role} takes a part of a node, and a device plugin chooses devices apart from interfaces",
            given=str(asked),
            allowed=f"{there}, or a pool with devices: claims",
        )


@group_rule(
    "DI033",
    "The parts that decode reads fit those that prefill wrote.",
    fix="give both the same tensor_parallel, or one a multiple of the other",
    source=f"{_MATRIX}: different degrees; vllm-project/vllm#45330, #45879: more cores than KV heads on one side",
)
def degrees_fit(group: PrefillDecodeFacts) -> Iterator[Judgement]:
    low, high = sorted(role.server.tensor_parallel for role in group.roles)
    working = f"tensor_parallel: prefill {group.prefill.server.tensor_parallel}, decode {group.decode.server.tensor_parallel}"
    path = group.decode.server.at("tensor_parallel")
    yield Judgement(
        holds=high % low == 0,
        path=path,
        working=(f"{working}; {high} mod {low} = {high % low}",),
        message=f"each part of a KV cache would be spread over parts of {high} and {low} that do not divide",
        given=f"{low} and {high}",
        allowed="equal, or one a multiple of the other",
    )
    model = group.decode.server.model
    if high == low or high % low:
        return
    profile, name = nixl_profile(group.engine.accelerator), group.decode.transfer.get("kv_connector")
    published = profile.connector_of_windows in (profile.connector, name)
    yield Judgement(
        holds=published,
        path=path,
        working=(f"{working}; published with {profile.connector_of_windows}, used: {name}",),
        message=f"different degrees are published for {profile.connector_of_windows} only",
        given=f"{low} and {high}",
        allowed="equal",
        severity="warning",
    )
    layouts = {role.server.environment.get(_LAYOUT, _SPLIT) for role in group.roles}
    yield Judgement(
        holds=layouts == {_SPLIT},
        path=group.decode.server.under("extra_env", _LAYOUT),
        working=(f"{working}; {_LAYOUT}: {', '.join(sorted(layouts))}",),
        message="only blocks that are laid out by heads can be split over other degrees",
        given=", ".join(sorted(layouts)),
        allowed=_SPLIT,
    )
    if model is None:
        yield group.decode.server.unknown_model("KV heads")
        return
    kind = architectures().get(model.architecture)
    if kind and kind.latent:
        return  # every part holds the whole KV cache
    yield Judgement(
        holds=high <= model.kv_heads,
        path=path,
        working=(f"{working}; KV heads of {model.name}: {model.kv_heads}",),
        message=f"{model.kv_heads} KV heads over {high} are held more than once, which vLLM 0.21 refused in the handshake; "
        "no source says which release accepts it",
        given=f"{low} and {high}",
        allowed=f"equal, or both at most {model.kv_heads}",
        severity="warning",
    )


@group_rule(
    "DI034",
    "Blocks of decode hold whole blocks of prefill.",
    fix="give both the same block-size",
    source=f"{_MATRIX}: prefill's may be smaller, without sliding windows; Neuron plugin: block lengths must divide",
)
def blocks_fit(group: PrefillDecodeFacts) -> Iterator[Judgement]:
    texts = [flag(role.server.arguments, "block-size") for role in group.roles]
    path = group.decode.server.at_flag("block-size")
    if any(text is not None and not (text.isdecimal() and int(text)) for text in texts):
        return  # the engine refuses it by itself
    mine, theirs = (int(text) if text else 0 for text in texts)
    model = group.decode.server.model
    working = f"block-size: prefill {mine or 'default'}, decode {theirs or 'default'}"
    if mine != theirs and not (mine and theirs):
        fix = "give both a block-size, or none"
        yield not_judged("blocks", "the group", path, why=f"{working}, which the engine chooses", fix=fix)
        return
    windows = bool(model and model.window)
    yield Judgement(
        holds=mine == theirs or (mine < theirs and theirs % mine == 0 and not windows),
        path=path,
        working=(f"{working}{'; sliding windows: equal only' if windows else ''}",),
        message="decode cannot put prefill's blocks into its own",
        given=f"prefill {mine}, decode {theirs}",
        allowed="equal" if windows else "equal, or decode's a multiple of prefill's",
    )


@group_rule(
    "DI035",
    "Both kinds of servers pass the handshake.",
    fix="set these flags for the whole group (extra_args of the server), and leave enforce_handshake_compat on",
    source=f"{_MATRIX}: what must match; vLLM 0.30.0, nixl/metadata.py",
)
def handshake_passes(group: PrefillDecodeFacts) -> Iterator[Judgement]:
    for name in _COMPARED:
        mine, theirs = (flag(role.server.arguments, name) for role in group.roles)
        if mine is None and theirs is None:
            continue
        yield Judgement(
            holds=mine == theirs,
            path=group.decode.server.at_flag(name),
            working=(f"--{name}: prefill {mine or 'default'}, decode {theirs or 'default'}",),
            message=f"--{name} differs: decode refuses the handshake, and every request fails",
            given=f"prefill {mine or 'default'}, decode {theirs or 'default'}",
            allowed="equal",
        )
    for name in _VARIABLES:
        mine, theirs = (role.server.environment.get(name) for role in group.roles)
        if mine is None and theirs is None:
            continue
        yield Judgement(
            holds=mine == theirs,
            path=group.decode.server.under("extra_env", name),
            working=(f"{name}: prefill {mine or 'not set'}, decode {theirs or 'not set'}",),
            message=f"{name} differs: decode refuses the handshake, or cannot place what it reads",
            given=f"prefill {mine or 'not set'}, decode {theirs or 'not set'}",
            allowed="equal",
        )
    for role in group.roles:
        enforced = role.connector_settings.get("enforce_handshake_compat", True)
        yield Judgement(
            holds=enforced in (True, "true", "True"),
            path=role.server.at_flag("kv-transfer-config"),
            working=(f"{role.role}: enforce_handshake_compat {enforced}",),
            message="without the comparison, servers that differ read each other's blocks and answer nonsense",
            given=str(enforced),
            allowed="true",
        )


@group_rule(
    "DI036",
    "Both kinds of servers propose tokens in the same way, or neither does.",
    fix="set speculation for the whole group",
    source=f"{_MATRIX}: method, draft model and its settings must match; the number of tokens may differ",
)
def speculation_matches(group: PrefillDecodeFacts) -> Iterator[Judgement]:
    mine, theirs = (
        {key: value for key, value in object_flag(role.server.arguments, _SPECULATION).items() if key != _MAY_DIFFER}
        for role in group.roles
    )
    differing = sorted(key for key in mine.keys() | theirs.keys() if mine.get(key) != theirs.get(key))
    yield Judgement(
        holds=not differing,
        path=group.decode.server.at_flag(_SPECULATION),
        working=(f"prefill: {mine.get('method', 'no speculation')}; decode: {theirs.get('method', 'no speculation')}",),
        message=f"speculation differs in {', '.join(differing)}: the KV caches have other layers",
        given=", ".join(f"{key}: {mine.get(key)}, {theirs.get(key)}" for key in differing),
        allowed="equal",
    )
