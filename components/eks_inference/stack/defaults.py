"""Fills what a stack object leaves open and what follows from the rest of it: kinds, pools of servers, the core pool, device
plugins, what a gateway asks of servers and network, and each server's engine, split and batch. Pure.

It works on the mapping, before validation: a spec has every value, and what consumes specs knows nothing of open keys.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from eks_inference.accelerators.neuron.plan import needs_scheduler
from eks_inference.aws.naming import shortened
from eks_inference.catalog.instances import Accelerator, InstanceType, instance_types
from eks_inference.cluster.spec import ClusterSpec
from eks_inference.endpoints.spec import ModelEndpointSpec
from eks_inference.faults import Fault, SpecError
from eks_inference.gateway.spec import GatewayApiSpec, GatewaySpec, RouteSpec
from eks_inference.images.plan import smallest_root_volume_gib
from eks_inference.images.spec import InClusterImage
from eks_inference.kubernetes.network_policy import NAMESPACE_LABEL
from eks_inference.network.plan import has_room_for_load_balancers
from eks_inference.network.spec import NetworkSpec
from eks_inference.place.placement import CLAIMS
from eks_inference.pools.node_plan import root_volume_gib
from eks_inference.pools.spec import KarpenterPoolSpec, ManagedPoolSpec, PoolSpec
from eks_inference.serving.kind import Kind
from eks_inference.serving.kinds import KINDS, USUAL
from eks_inference.serving.shape import ServerSpec
from eks_inference.specs.base import Spec, one_of
from eks_inference.stack.nested import Path, Resolved, at, open_keys, put
from eks_inference.stack.own_rows import use_catalog

if TYPE_CHECKING:
    from eks_inference.stack.open_servers import Surroundings

CORE = "core"
"""The usual name of the core pool."""
CORE_POOL: Mapping[str, Any] = {"kind": "managed", "instance_types": ["m5.xlarge"], "size": 2}
"""Nodes for DNS and controllers. tests/eks_inference_tools/test_core_pool.py places all that a stack can have on them."""
LARGER_CORE_POOL: Mapping[str, Any] = {**CORE_POOL, "instance_types": ["m5.2xlarge"]}
"""Nodes that also build images and run the heads of Ray clusters, beside every controller (the same test)."""

POOLS: Mapping[str, type[Spec]] = {"managed": ManagedPoolSpec, "karpenter": KarpenterPoolSpec}
USUAL_POOL = "managed"
_OF_SCHEMA = "the usual kind"
_NAME = 40
"""Characters of a name in a stack."""


@dataclass(frozen=True)
class Completed:
    """A stack object with its open keys filled, and what was filled. ``waiting`` are keys about which nothing is decided."""

    stack: Mapping[str, Any]
    resolved: tuple[Resolved, ...]
    faults: tuple[Fault, ...]
    waiting: frozenset[Path]

    def told(self, faults: Sequence[Fault]) -> tuple[Fault, ...]:
        """Returns the faults of a validation with ours, without open keys that wait for other faults."""
        others = [fault for fault in faults if fault.path not in self.waiting]
        ours = {other.path for other in others}
        found = [*others, *(fault for fault in self.faults if fault.path not in ours)]
        return tuple(found or faults)


def completed(given: Mapping[str, Any]) -> Completed:
    """Returns a stack object with every key that follows from others. What cannot be read stays as it is."""
    filling = _Filling(dict(given))
    try:
        use_catalog(given.get("catalog", ()))
    except (SpecError, TypeError):  # validation reports it
        filling.kinds()
    else:
        filling.all()
    return Completed(
        filling.stack if filling.resolved else given, tuple(filling.resolved), tuple(filling.faults), frozenset(filling.waiting)
    )


def usual_kind(given: Mapping[str, Any], kinds: Mapping[str, type[Spec]], usual: str) -> str | None:
    """The kind of an object that does not say it; None where its keys are those of another kind only."""
    fits = {kind for kind, spec in kinds.items() if given.keys() <= spec.model_fields.keys()}
    return usual if usual in fits or not fits else None


@dataclass
class _Filling:
    stack: dict[str, Any]
    resolved: list[Resolved] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    waiting: set[Path] = field(default_factory=set)

    def kinds(self) -> None:
        """Fills the kinds alone. Whatever else is open waits."""
        self._kinds("pools", POOLS, USUAL_POOL)
        self._kinds("servers", {kind.name: kind.spec for kind in KINDS.values()}, USUAL)
        for name, server, kind in self._servers():
            if isinstance(server, Mapping) and kind.sketched:
                self._wait(name, open_keys(kind.spec, server))

    def all(self) -> None:
        self.kinds()
        if not isinstance(self.stack.get("pools"), Mapping) or not self.stack["pools"]:
            return
        self.waiting.clear()
        self._core()
        for name, server, kind in self._servers():
            if isinstance(server, Mapping):
                self._pool_of(name, server, kind)
        for name, server, kind in self._servers():
            if isinstance(server, Mapping) and kind.sketched:
                self._server(name, server, kind)
        for name, server, kind in self._servers():
            if at(server, ("autoscaling",)) and (at(server, ("traffic",)) or self.stack.get("endpoints")):
                from eks_inference.stack.scaled import asked, scaled

                try:
                    for resolved in scaled(name, asked(self.stack, name), kind, self._around):
                        self._put(resolved.path, resolved.value, resolved.why)
                except SpecError as error:
                    self.faults += error.faults
                    self.waiting |= {tuple(map(str, fault.path)) for fault in error.faults}
        self._work_of_core()
        self._accelerators()
        self._existing_vpc()
        self._gateway()

    def _put(self, path: Path, value: Any, why: str) -> None:
        self.stack = put(self.stack, path, value)
        self.resolved.append(Resolved(path, value, why))

    def _kinds(self, section: str, kinds: Mapping[str, type[Spec]], usual: str) -> None:
        for name, one in at(self.stack, (section,)).items() if isinstance(at(self.stack, (section,)), Mapping) else ():
            if isinstance(one, Mapping) and "kind" not in one and (kind := usual_kind(one, kinds, usual)):
                self._put((section, name, "kind"), kind, _OF_SCHEMA)

    def _servers(self) -> Iterator[tuple[str, Any, Kind]]:
        """Yields the servers whose kind is known, by name."""
        servers = self.stack.get("servers")
        for name, server in servers.items() if isinstance(servers, Mapping) else ():
            named = server.kind if isinstance(server, ServerSpec) else at(server, ("kind",), "")
            if isinstance(named, str) and named in KINDS:
                yield name, server, KINDS[named]

    def _core(self) -> None:
        pools = self.stack["pools"]
        instances = {name: _instances(pool) for name, pool in pools.items()}
        if "core_pool" in self.stack or CORE in pools or not all(instances.values()):
            return
        able = [
            name
            for name, pool in pools.items()
            if _runs_controllers(pool) and not any(instance_type.accelerator for instance_type in instances[name])
        ]
        if len(able) == 1:
            self._put(("core_pool",), able[0], "the only managed pool without accelerators and taints")
        elif not able:
            # First, as a file would have it.
            self.stack["pools"] = {CORE: dict(CORE_POOL), **pools}
            why = "no managed pool of the stack is without accelerators and taints; nodes for DNS and every controller"
            self.resolved.append(Resolved(("pools", CORE), dict(CORE_POOL), why))

    def _work_of_core(self) -> None:
        """Gives a core pool that follows the size for what servers run there: image builds, heads of Ray clusters."""
        place = next((number for number, one in enumerate(self.resolved) if one.path == ("pools", CORE)), None)
        if place is None:
            return
        servers = dict[str, ServerSpec]()
        for name, server, kind in self._servers():
            with suppress(SpecError):  # validation reports it
                servers[name] = kind.spec.of(server)
        images = [server.image for server in servers.values() if isinstance(server.image, InClusterImage)]
        there = [
            name for name, one in servers.items() if one.image in images or any(pod.place.pool == CORE for pod in one.helpers)
        ]
        if not there:
            return
        disk = max(map(smallest_root_volume_gib, images), default=0)
        larger = dict(LARGER_CORE_POOL)
        if disk > root_volume_gib(ManagedPoolSpec.of(larger)):
            larger["root_volume_gib"] = disk
        self.stack = put(self.stack, ("pools", CORE), larger)
        why = f"{self.resolved[place].why}, and for image builds and other pods of {', '.join(there)}"
        self.resolved[place] = Resolved(("pools", CORE), larger, why)

    def _pool_of(self, name: str, server: Mapping[str, Any], kind: Kind) -> None:
        under = kind.spec.placed_under
        if at(server, (*under, "pool"), None) is not None or not isinstance(at(server, under), Mapping):
            return
        fitting = [
            pool
            for pool, one in self.stack["pools"].items()
            if any(instance.accelerator in kind.spec.accelerators for instance in _instances(one))
        ]
        if len(fitting) == 1:
            self._put(("servers", name, *under, "pool"), fitting[0], "the only pool with accelerators for it")

    @cached_property
    def _around(self) -> "Surroundings":
        # Here and below: a stack that says everything does not pay for a search.
        from eks_inference.stack.open_servers import Surroundings

        silenced, pools = self.stack.get("silenced"), dict[str, PoolSpec]()
        for name, pool in self.stack["pools"].items():
            with suppress(SpecError):  # validation reports it
                if isinstance(pool, Mapping | ManagedPoolSpec | KarpenterPoolSpec):
                    pools[name] = one_of(PoolSpec, pool)
        return Surroundings(
            pools=pools,
            core_pool=self.stack.get("core_pool", CORE),
            kubernetes=str(at(self.stack, ("cluster", "version"), ClusterSpec.model_fields["version"].default)),
            silenced=frozenset(silenced) if isinstance(silenced, Mapping) else frozenset(),
        )

    def _server(self, name: str, server: Mapping[str, Any], kind: Kind) -> None:
        if not (missing := [*open_keys(kind.spec, server)]):
            return
        from eks_inference.stack.open_servers import chosen
        from eks_inference.stack.scaled import asked, with_some_room

        pool = at(server, (*kind.spec.placed_under, "pool"), None)
        unread = pool not in self._around.pools and len(self._around.pools) < len(self.stack["pools"])
        found = chosen(name, with_some_room(asked(self.stack, name)), kind, self._around) if not unread else None
        self.faults += found.faults if found else ()
        for resolved in found.resolved if found else ():
            self._put(resolved.path, resolved.value, resolved.why)
        if not (found and found.resolved):
            self._wait(name, missing)

    def _wait(self, name: str, missing: Iterable[Path]) -> None:
        self.waiting |= {("servers", name, *path) for path in missing if path != ("model",)}

    def _accelerators(self) -> None:
        given = self.stack.get("accelerators", {})
        if not isinstance(given, Mapping):
            return
        # Devices that are claimed have a driver, and no plugin.
        offering = {name: pool for name, pool in self.stack["pools"].items() if not _claimed(pool)}
        there: set[Accelerator] = {one.accelerator for pool in offering.values() for one in _instances(pool) if one.accelerator}
        for accelerator in sorted(there - given.keys()):
            pools = ", ".join(
                name for name, pool in offering.items() if any(one.accelerator == accelerator for one in _instances(pool))
            )
            settings, why = self._plugin(accelerator)
            self._put(("accelerators", accelerator), settings, f"pools with such devices: {pools}{why}")

    def _plugin(self, accelerator: Accelerator) -> tuple[dict[str, Any], str]:
        """The settings of a device plugin, and why."""
        if accelerator != "neuron":
            return {}, ""
        from eks_inference.stack.open_servers import devices_asked

        asked = [(name, devices_asked(name, server, kind, self._around)) for name, server, kind in self._servers()]
        parts = [name for name, pods in asked if not pods or any(needs_scheduler(*pod) for pod in pods)]
        if parts or not asked:
            of = f"pods of {', '.join(parts)} take parts of a node" if parts else "no server of the stack says what pods take"
            return {"scheduler": True}, f"; {of}"
        return {"scheduler": False}, "; every pod takes one device or all of a node"

    def _existing_vpc(self) -> None:
        """Fills what rules ask of a network from the subnets of one that is there."""
        existing = at(self.stack, ("network", "existing"), None)
        if not isinstance(existing, Mapping) or not isinstance(private := existing.get("private_subnets"), Mapping):
            return
        for key, value in {"zone_ids": [*private], "public_subnets": bool(existing.get("public_subnets"))}.items():
            if key not in self.stack["network"]:
                self._put(("network", key), value, "the subnets of network.existing")

    def _gateway(self) -> None:
        """Fills what a gateway needs: endpoints before the servers that it leads to, and what they and the network do for it."""
        for key in ("gateway", "gateway_api"):
            given = self.stack.get(key)
            routes = given.routes if isinstance(given, GatewaySpec | GatewayApiSpec) else at(given, ("routes",), {})
            if isinstance(given, Mapping | GatewaySpec | GatewayApiSpec) and isinstance(routes, Mapping):
                self._endpoints(key, given, routes)
        gateway, network = self.stack.get("gateway"), self.stack.get("network", {})
        public = gateway.public if isinstance(gateway, GatewaySpec) else at(gateway, ("public",), False)
        if not gateway or public or not isinstance(network, Mapping) or {"existing", "load_balancer_subnets"} & network.keys():
            return
        cidr = network.get("cidr", NetworkSpec.model_fields["cidr"].default)
        with suppress(ValueError, TypeError):  # validation reports it
            if has_room_for_load_balancers(cidr):
                self._put(("network", "load_balancer_subnets"), True, "the gateway is internal")

    def _endpoints(self, key: str, given: Mapping[str, Any] | GatewaySpec | GatewayApiSpec, routes: Mapping[str, Any]) -> None:
        """Makes an endpoint for each server of a route, unless one leads to it alone."""
        endpoints, servers = self.stack.get("endpoints", {}), {name: server for name, server, _ in self._servers()}
        if not isinstance(endpoints, Mapping):
            return
        if not routes and not endpoints and servers:
            routes = {name: {} for name in servers}
            made = (
                {**given, "routes": routes}
                if isinstance(given, Mapping)
                else type(given).of({**given.inputs(), "routes": routes})
            )
            self.stack = {**self.stack, key: made}
            self.resolved.append(Resolved((key, "routes"), routes, "every server, where no endpoint is named"))
        alone: dict[tuple[str, bool], str] = {}
        for name, one in endpoints.items():
            of = one.inputs() if isinstance(one, ModelEndpointSpec) else one
            if len(names := _texts(at(of, ("servers",), ()))) == 1:
                alone.setdefault((names[0], at(of, ("keys",), True) is False), name)
        balanced = {"behind_load_balancer": True} if key == "gateway" else {}
        for target in routes or endpoints:
            if target in endpoints:
                name = target
            else:
                # Where the load balancer asks people, nobody has a key; elsewhere everybody needs one.
                made = _before(target) if target in servers else target
                name = alone.get((target, _login(at(routes, (target,), {}))), made)
            if name not in endpoints and target in servers:
                wanted = {"servers": [target], **balanced, **_for_route(at(routes, (target,), {}), servers[target], name)}
                why = f"{key} has a route to {target}, and of a server an endpoint leads out what asks for a key"
                self._put(("endpoints", name), wanted, why)
            elif balanced and isinstance(own := endpoints.get(name), Mapping) and "behind_load_balancer" not in own:
                self._put(("endpoints", name, "behind_load_balancer"), True, "the gateway has a route to it")


def _before(server: str) -> str:
    """The name of an endpoint that a route makes."""
    return shortened(_NAME, f"{server}-endpoint")


def _login(route: Any) -> bool:
    return (route.login if isinstance(route, RouteSpec) else at(route, ("login",), False)) is True


def _for_route(route: Any, server: Any, name: str) -> dict[str, Any]:
    """What the endpoint of this name takes from its only server and from its route."""
    if _login(route):
        # The load balancer asks people, who have no key; nobody else gets in.
        return {"keys": False, "client_namespaces": {NAMESPACE_LABEL: name}}
    clients = server.client_namespaces if isinstance(server, ServerSpec) else at(server, ("client_namespaces",), {})
    return {"client_namespaces": clients} if clients else {}


def _instances(pool: Any) -> tuple[InstanceType, ...]:
    """The instance types of a pool that may not be valid yet."""
    if isinstance(pool, ManagedPoolSpec | KarpenterPoolSpec):
        return pool.instances()
    types, families = (_texts(at(pool, (key,))) for key in ("instance_types", "instance_families"))
    named = [instance_types()[one] for one in types if one in instance_types()]
    return (*named, *(one for one in instance_types().values() if families and one.family in families))


def _runs_controllers(pool: Any) -> bool:
    """Whether a pool that may not be valid yet is managed and has no taints: controllers could run on its nodes."""
    if isinstance(pool, ManagedPoolSpec | KarpenterPoolSpec):
        return isinstance(pool, ManagedPoolSpec) and not (pool.taints or pool.extra_taints)
    return at(pool, ("kind",)) == "managed" and not (at(pool, ("taints",)) or at(pool, ("extra_taints",)))


def _claimed(pool: Any) -> bool:
    """Whether the devices of a pool that may not be valid yet are claimed."""
    return pool.claimed if isinstance(pool, ManagedPoolSpec | KarpenterPoolSpec) else at(pool, ("devices",)) == CLAIMS


def _texts(value: Any) -> list[str]:
    return [one for one in value if isinstance(one, str)] if isinstance(value, list | tuple) else []
