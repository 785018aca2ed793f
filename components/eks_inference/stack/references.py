"""Names in a stack that lead nowhere, or not to what their user needs. Pure; no pulumi."""

from collections.abc import Iterator
from difflib import get_close_matches

from eks_inference.faults import Fault, format_path
from eks_inference.images import plan as images_plan
from eks_inference.images.spec import InClusterImage
from eks_inference.pools import plan as pools_plan
from eks_inference.pools.spec import ManagedPoolSpec
from eks_inference.serving.shape import PoolChoice
from eks_inference.stack.spec import StackSpec


def reference_faults(spec: StackSpec) -> Iterator[Fault]:
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
    else:
        yield from _core_faults(("pools", spec.core_pool), core)
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
        for choice in server.pools():
            yield from _pool_faults(("servers", name), choice, spec)
    yield from _monitor_faults(spec)
    yield from _client_faults(spec)


def _core_faults(path: tuple[str, ...], core: ManagedPoolSpec) -> Iterator[Fault]:
    """What a core pool cannot do, although other pools can."""
    if len(core.instance_types) > 1:
        message = "the core pool has one instance type: what runs on it is sized for that"
        hint = "give the others a pool of their own"
        yield Fault((*path, "instance_types"), message, ", ".join(core.instance_types), "one instance type", hint)
    if core.size == 0:
        message = "without a node of the core pool no DNS and no controller runs"
        yield Fault((*path, "size"), message, given="0", allowed="at least 1")


def _namespaces(spec: StackSpec) -> Iterator[tuple[tuple[str, ...], str]]:
    """Every namespace the stack makes, with the key that names it."""
    for name, server in spec.servers.items():
        yield ("servers", name, "namespace"), server.namespace_of(name)
    if "kuberay" in spec.operators:
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
    triton, others, clients = spec.servers_with("kserve"), spec.servers_with("openai"), spec.clients
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


def _pool_faults(path: tuple[str, ...], choice: PoolChoice, spec: StackSpec) -> Iterator[Fault]:
    """A workload asks for a pool, and maybe for one of its instance types."""
    pool = spec.pools.get(choice.pool)
    if pool is None:
        yield _no_such_pool((*path, *choice.pool_path), choice.pool, spec)
        return
    types = sorted(instance.name for instance in pool.instances())
    key, allowed = (*path, *choice.type_path), ", ".join(types)
    accelerator = pool.instances()[0].accelerator
    if choice.accelerators and accelerator not in choice.accelerators:
        fitting = [name for name, one in spec.pools.items() if one.instances()[0].accelerator in choice.accelerators]
        message = f"its nodes have {'devices of the wrong kind' if accelerator else 'no accelerator'} for this server"
        given, allowed = f"{choice.pool} ({types[0]})", ", ".join(fitting) or "none is there yet"
        yield Fault((*path, *choice.pool_path), message, given, allowed)
        return
    if choice.instance_type is None and len(types) > 1:
        yield Fault(key, f"pool '{choice.pool}' has several instance types: name one", allowed=allowed)
    elif choice.instance_type is not None and choice.instance_type not in types:
        nearest = get_close_matches(choice.instance_type, types, n=1)
        hint = f"did you mean '{nearest[0]}'?" if nearest else ""
        message = f"pool '{choice.pool}' has no such instance type"
        yield Fault(key, message, given=choice.instance_type, allowed=allowed, hint=hint)


def _no_such_pool(path: tuple[str | int, ...], given: str, spec: StackSpec) -> Fault:
    nearest = get_close_matches(given, spec.pools, n=1)
    hint = f"did you mean '{nearest[0]}'?" if nearest else ""
    return Fault(path, "there is no pool of this name", given=given, allowed=", ".join(sorted(spec.pools)), hint=hint)
