"""The rungs of a flight: what is deployed at each. A rung is the user's stack, reduced; the next grows it in place. Pure."""

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal, get_args

from eks_inference.catalog.instances import InstanceType
from eks_inference.network.plan import network_zones
from eks_inference.pools.spec import ManagedPoolSpec
from eks_inference.specs.settings import SharedSettings
from eks_inference.stack.spec import StackSpec
from eks_inference_tools.resolution.origins import Section, values_of

_NAMES = ("smoke", "first-flight", "smoke-of-first-flight")
"""What pool and server are called: the first that the stack has not taken."""


@dataclass(frozen=True)
class Smoke:
    """One accelerator node and one server on it, as keys of a stack object.

    ``own`` says whether the node is the first of a pool of the stack, which then stays.
    """

    pool: str
    node: Mapping[str, Any]
    server: str
    serving: Mapping[str, Any]
    own: bool


def smoke_of(spec: StackSpec, written: Mapping[str, Any]) -> Smoke | None:
    """Returns the smoke test for the first accelerator of a stack; None without one, or without a row for its chip.

    ``written`` is the stack object with all its values. The node is that of the row, the cheapest with the chip, unless the
    stack's own pool is of that type anyway, or its type is sold in reservations only: those are for one type.
    """
    for pool, its in spec.pools.items():
        row = _row(its.instances()[0])
        if row is None:
            continue
        own = isinstance(its, ManagedPoolSpec) and bool(
            its.reserved or its.instances()[0].needs_reservation or its.instance_types == (row["instance"],)
        )
        server = _free(spec.servers)
        if own:
            first = {key: value for key, value in written["pools"][pool].items() if key != "autoscaled"} | {"size": 1}
            return Smoke(pool, first, server, _serving(row, pool), own)
        node = {"kind": "managed", "instance_types": [row["instance"]], "size": 1, "root_volume_gib": 100}
        name = _free(spec.pools)
        return Smoke(name, node, server, _serving(row, name), own)
    return None


def _row(instance: InstanceType) -> Mapping[str, Any] | None:
    if instance.accelerator is None:
        return None
    return rows().get(instance.chip) or rows().get(instance.accelerator)


def _serving(row: Mapping[str, Any], pool: str) -> Mapping[str, Any]:
    return {"kind": "vllm", **row["server"], "pool": pool, "devices": 1}


def _free(taken: Iterable[str]) -> str:
    return next((name for name in _NAMES if name not in taken), _NAMES[0])


@cache
def rows() -> Mapping[str, Mapping[str, Any]]:
    """The rows by chip; ``nvidia`` is for all chips of NVIDIA."""
    return tomllib.loads(files("eks_inference_tools.flight").joinpath("smoke.toml").read_text(encoding="utf-8"))


RungName = Literal["doctor", "control-plane", "core", "node", "token", "stack", "load-test"]
RUNGS: tuple[RungName, ...] = get_args(RungName)
"""In the order of the ladder."""

TITLES: Mapping[RungName, str] = {
    "doctor": "the account is asked",
    "control-plane": "VPC and control plane",
    "core": "core nodes and add-ons",
    "node": "one accelerator node",
    "token": "a small server answers",
    "stack": "the stack itself",
    "load-test": "its load test",
}

FOUNDATION = ("Vpc", "EksCluster")
"""The components of the first deployment, by class: nothing in them stands on nodes."""

_ALWAYS = (*SharedSettings.model_fields, "catalog", "name", "prices")
_FOUNDATION_KEYS = ("network", "cluster", "addons", "core_pool")


@dataclass(frozen=True)
class Stage:
    """One deployment: a stack object, and the only components that are deployed of it (none: all)."""

    stack: Mapping[str, Any]
    only: tuple[str, ...] = ()


@dataclass(frozen=True)
class Rung:
    """A rung is reached when its last stage is deployed and verified. The first rung deploys nothing."""

    name: RungName
    stages: tuple[Stage, ...] = ()
    at_most: bool = False
    """Whether autoscalers may start what they can, so that it counts at the most that it may cost."""

    @property
    def title(self) -> str:
        return TITLES[self.name]


def rungs_of(spec: StackSpec, given: Mapping[str, Any], region: str) -> tuple[Rung, ...]:
    """Returns the rungs of a stack. ``given`` is the stack object as its file has it.

    A stack without accelerators has no rungs ``node`` and ``token``, one without a load test no ``load-test``. Everything can be
    deleted at every rung: ``protect`` and ``retain`` are off.
    """
    return tuple(_rungs(spec, given, region))


def _rungs(spec: StackSpec, given: Mapping[str, Any], region: str) -> Iterator[Rung]:
    written = _plain(values_of(spec, given).without("schema"))
    core = _core(spec, written, region)
    yield Rung("doctor")
    yield Rung("control-plane", (Stage(core, FOUNDATION),))
    yield Rung("core", (Stage(core),))
    smoke = smoke_of(spec, written)
    before: tuple[Stage, ...] = ()
    if smoke:
        node = _with_node(core, smoke, written)
        yield Rung("node", (Stage(node),))
        server = {smoke.server: smoke.serving}
        yield Rung("token", (Stage({**node, "servers": server, "clients": {"smoke_test": {"wait": True}}}),))
        # Pulumi creates before it deletes. A quota or a reservation for the stack alone would not do for both.
        before = (Stage(node if smoke.own else core),)
    whole = _deletable({**given, "network": core["network"]})
    clients = {key: value for key, value in (given.get("clients") or {}).items() if key != "triton"}
    quiet = {key: value for key, value in whole.items() if key != "load_test"} | ({"clients": clients} if clients else {})
    if not clients:
        quiet.pop("clients", None)
    yield Rung("stack", (*before, Stage(quiet)))
    if quiet != whole:
        yield Rung("load-test", (Stage(whole),), at_most=True)


def _core(spec: StackSpec, written: Mapping[str, Any], region: str) -> dict[str, Any]:
    """The stack without all that stands on core nodes and add-ons.

    Zones follow from all pools of a stack, and the subnets of load balancers from its gateway: here both stand for themselves.
    """
    zones = network_zones(region, spec.families(), wanted=spec.network.zone_ids, count=spec.network.zones)
    network = {key: value for key, value in written.get("network", {}).items() if key != "zones"} | {"zone_ids": list(zones)}
    if spec.network.load_balancer_subnets:
        network["load_balancer_subnets"] = True
    kept = {key: written[key] for key in (*_ALWAYS, *_FOUNDATION_KEYS) if key in written}
    return _deletable({**kept, "network": network, "pools": {spec.core_pool: written["pools"][spec.core_pool]}})


def _with_node(core: Mapping[str, Any], smoke: Smoke, written: Mapping[str, Any]) -> dict[str, Any]:
    plugins = {"accelerators": written["accelerators"]} if "accelerators" in written else {}
    return {**core, **plugins, "pools": {**core["pools"], smoke.pool: smoke.node}}


def _deletable(stack: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in stack.items() if key not in ("protect", "retain")}


def _plain(section: Section) -> dict[str, Any]:
    return {key: _plain(one) if isinstance(one, Section) else one.value for key, one in section.entries.items()}
