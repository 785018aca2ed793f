"""Checks references between the parts of a stack: unknown names, targets of the wrong kind, and a server's choice of pool and
instance type. Pure; no pulumi.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from eks_inference.catalog.models import is_gated
from eks_inference.endpoints.spec import name_faults
from eks_inference.faults import Fault, did_you_mean, format_path
from eks_inference.gateway.spec import WEB_UI
from eks_inference.images import plan as images_plan
from eks_inference.images.spec import InClusterImage
from eks_inference.loadtest.plan import REQUESTS
from eks_inference.observability.cloudwatch_plan import CLOUDWATCH_NAMESPACE
from eks_inference.observability.prometheus_plan import nodes_namespace
from eks_inference.observability.spec import MONITORS
from eks_inference.pools.node_plan import root_volume_gib
from eks_inference.pools.spec import ManagedPoolSpec, PoolSpec
from eks_inference.serving.features import EngineFeatures
from eks_inference.serving.shape import PoolChoice
from eks_inference.serving.spec import HubModel
from eks_inference.specs.base import namespace_fault
from eks_inference.stack.own_rows import price_faults
from eks_inference.stack.spec import StackSpec


def pool_faults(path: tuple[str, ...], choice: PoolChoice, pools: Mapping[str, PoolSpec]) -> Iterator[Fault]:
    """Yields what is wrong with a server's choice of pool and instance type."""
    pool = pools.get(choice.pool)
    fitting = ", ".join(name for name, one in sorted(pools.items()) if not choice.misfit(one.instances()[0]))
    if not choice.pool:
        yield Fault((*path, *choice.pool_path), "this key is required and missing", allowed=fitting or "there is none yet")
        return
    if pool is None:
        yield no_such_pool((*path, *choice.pool_path), choice.pool, pools)
        return
    types = sorted(instance.name for instance in pool.instances())
    key, allowed = (*path, *choice.type_path), ", ".join(types)
    if message := choice.misfit(pool.instances()[0]):
        given = f"{choice.pool} ({types[0]})"
        yield Fault((*path, *choice.pool_path), message, given, fitting or "there is none yet")
        return
    if choice.instance_type is None and len(types) > 1:
        yield Fault(key, f"pool '{choice.pool}' has several instance types: name one", allowed=allowed)
    elif choice.instance_type is not None and choice.instance_type not in types:
        hint = did_you_mean(choice.instance_type, types)
        message = f"pool '{choice.pool}' has no such instance type"
        yield Fault(key, message, given=choice.instance_type, allowed=allowed, hint=hint)


def alternative_faults(path: tuple[str, ...], places: Sequence[PoolChoice], pools: Mapping[str, PoolSpec]) -> Iterator[Fault]:
    """Yields what is wrong with places beside each other, the server's own first: each alone is right."""
    accelerator = pools[places[0].pool].instances()[0].accelerator
    before: set[tuple[str, str]] = set()
    for pool_choice in places:
        first, key = pools[pool_choice.pool].instances()[0], (*path, *pool_choice.pool_path)
        place = pool_choice.pool, pool_choice.instance_type or first.name
        given = f"{pool_choice.pool} ({place[1]})"
        if first.accelerator != accelerator:
            hint = "make another server of this model there: an endpoint leads the model's name to both"
            yield Fault(key, f"its nodes have no {accelerator} devices, which the other places have", given, hint=hint)
        elif place in before:
            yield Fault(key, "the pods run there already", given, hint="leave it out, or name another pool or instance_type")
        before.add(place)


def no_such_pool(path: tuple[str | int, ...], given: str, pools: Mapping[str, PoolSpec]) -> Fault:
    """Names the pools that there are."""
    allowed = ", ".join(sorted(pools))
    return Fault(path, "there is no pool of this name", given, allowed, hint=did_you_mean(given, pools))


def missing_secrets(spec: StackSpec, given: Collection[str]) -> Iterator[Fault]:
    """Yields a fault for each secret that the stack needs and that is not among the ``given`` ones."""
    for name, server in spec.servers.items():
        draft = server.draft if isinstance(server, EngineFeatures) else None
        gated = [("model", model.id) for model in server.models if isinstance(model, HubModel) and model.needs_token]
        gated += [("draft", draft)] if draft and is_gated(draft) else []
        for what, repository in () if "huggingFaceToken" in given else gated:
            message = f"{what} {repository} of server '{name}' is not public"
            hint = f"accept the {what}'s licence on the Hub, then run"
            yield _missing("huggingFaceToken", message, allowed="a Hugging Face token", hint=hint)
    prometheus = spec.observability.prometheus
    if "alertReceiverUrl" not in given and prometheus and prometheus.receiver_has_url:
        message = "observability.prometheus.receiver posts to a URL"
        yield _missing("alertReceiverUrl", message, allowed="the URL of the receiver of alerts", hint="run")
    if "gatewayClientSecret" not in given and any(route.login for route in spec.routes):
        yield _missing("gatewayClientSecret", "a route of the gateway has a login", allowed="the client's secret", hint="run")
    asking = [name for name, endpoint in spec.endpoints.items() if endpoint.keys]
    if asking and not {"endpointKeys", "servingApiKey"} & {*given}:
        message = f"endpoint '{asking[0]}' asks its clients for keys"
        allowed = 'a JSON object of keys by client, such as {"team-a": "…"}, each of 16 characters or more'
        servers = ", ".join(spec.behind(asking[0]))
        hint = f"give keys, or say endpoints: {{{asking[0]}: {{servers: [{servers}], keys: false}}}}"
        yield _missing("endpointKeys", message, allowed=allowed, hint=hint)


def _missing(secret: str, why: str, *, allowed: str, hint: str) -> Fault:
    key = f"eks-inference:{secret}"
    message, hint = f"this secret is required and missing: {why}", f"{hint}: pulumi config set --secret {key}"
    return Fault((), message, allowed=allowed, hint=hint, config_key=key)


def reference_faults(spec: StackSpec) -> Iterator[Fault]:
    """Yields unknown names, and pools that do not suit what refers to them."""
    core = spec.pools.get(spec.core_pool)
    if core is None and "core_pool" not in spec.model_fields_set:
        message = "several pools could run DNS and the controllers: name one"
        able = sorted(name for name, pool in spec.pools.items() if _runs_controllers(pool))
        yield Fault(("core_pool",), message, allowed=", ".join(able))
    elif core is None:
        yield no_such_pool(("core_pool",), spec.core_pool, spec.pools)
    elif not _runs_controllers(core):
        yield Fault(
            ("pools", spec.core_pool),
            "the core pool runs what every other part of the stack needs first",
            given=f"{core.kind} pool of {', '.join(i.name for i in core.instances()[:3])}",
            allowed="a managed pool without accelerators, and without taints that keep pods away",
        )
    elif isinstance(core, ManagedPoolSpec):
        if len(core.instance_types) > 1:
            path, given = ("pools", spec.core_pool, "instance_types"), ", ".join(core.instance_types)
            message = "the core pool must have one instance type: its workloads are sized for it"
            yield Fault(path, message, given, "one instance type", "put the others into a pool of their own")
        if core.size == 0:
            message = "without a node in the core pool, neither DNS nor any controller runs"
            yield Fault(("pools", spec.core_pool, "size"), message, given="0", allowed="at least 1")
        if core.autoscaled and core.autoscaled.min == 0:
            message = "an autoscaler could remove the last node of the core pool: neither DNS nor any controller would run"
            yield Fault(("pools", spec.core_pool, "autoscaled", "min"), message, given="0", allowed="at least 1")
    yield from price_faults(spec.prices, ("prices",), catalog_only=True)
    taken: dict[str, tuple[str, ...]] = {}
    for path, namespace in _namespaces(spec):
        if fault := namespace_fault(namespace):
            # Keys refuse such a name themselves, so it is the name of what has no namespace of its own.
            yield Fault(path, fault, given=namespace)
        first = taken.setdefault(namespace, path)
        if first != path:
            hint = f"{format_path(first)} already uses it; each needs a namespace of its own"
            yield Fault(path, "this namespace is taken", given=namespace, hint=hint)
    for name, server in spec.servers.items():
        if server.renamed_from in spec.servers:
            path, given = ("servers", name, "renamed_from"), f"{server.renamed_from}"
            yield Fault(path, "this server is still in the stack", given, hint="a server that is renamed leaves its old name")
        twins = [other for other, one in spec.servers.items() if one.renamed_from and one.renamed_from == server.renamed_from]
        if twins[1:] and name == twins[1]:
            path, hint = ("servers", name, "renamed_from"), f"'{twins[0]}' has this former name, too"
            yield Fault(path, "only one server can have had this name", f"{server.renamed_from}", hint=hint)
        for store in server.stores_of_the_stack - spec.stores.keys():
            path, known = ("servers", name, "shared_store"), ", ".join(spec.stores) or "a name among the stack's stores"
            yield Fault(path, "there is no store of this name", store, known, hint=did_you_mean(store, spec.stores))
        if isinstance(server.image, InClusterImage) and isinstance(core, ManagedPoolSpec):
            given, needed = root_volume_gib(core), images_plan.smallest_root_volume_gib(server.image)
            if given < needed:
                path = ("pools", spec.core_pool, "root_volume_gib")
                hint = f"image of server '{name}'"
                yield Fault(path, "an image build does not fit on the disk of a node", str(given), f"at least {needed}", hint)
        wrong = [fault for choice in server.pools() for fault in pool_faults(("servers", name), choice, spec.pools)]
        yield from wrong or alternative_faults(("servers", name), (server.main_pool(), *server.other_pools()), spec.pools)
    yield from _monitor_faults(spec)
    yield from _client_faults(spec)
    for endpoint in spec.endpoints:
        yield from _endpoint_faults(spec, endpoint)
    yield from _route_faults(spec)


def _runs_controllers(pool: PoolSpec) -> bool:
    return isinstance(pool, ManagedPoolSpec) and not (
        any(taint_spec.effect != "PreferNoSchedule" for taint_spec in (*(pool.taints or ()), *pool.extra_taints))
        or any(instance.accelerator for instance in pool.instances())
    )


def _namespaces(spec: StackSpec) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yields the namespaces of the stack, with the key that names each; first those whose names nobody chooses."""
    if spec.observability.cloudwatch:
        yield ("observability", "cloudwatch"), CLOUDWATCH_NAMESPACE
    for name, endpoint in spec.endpoints.items():
        yield ("endpoints", name, "namespace"), endpoint.namespace_of(name)
    for name, server in spec.servers.items():
        yield ("servers", name, "namespace"), server.namespace_of(name)
        if isinstance(server.image, InClusterImage) and server.image.namespace:
            yield ("servers", name, "image", "namespace"), server.image.namespace
    observability, clients = spec.observability, spec.clients
    if observability.prometheus:
        yield ("observability", "prometheus", "namespace"), nodes_namespace(observability.prometheus)
    for path, section in (
        (("kuberay",), spec.kuberay if "kuberay" in spec.operators else None),
        (("observability", "prometheus"), observability.prometheus),
        (("observability", "neuron_monitor"), observability.neuron_monitor),
        (("observability", "dcgm_exporter"), observability.dcgm_exporter),
        (("observability", "fluent_bit"), observability.fluent_bit),
        (
            ("load_balancer_controller",),
            spec.load_balancer_controller if spec.gateway and not spec.gateway.ingress_class else None,
        ),
        (("scaling", "keda"), spec.scaling.keda if spec.scaled_by("keda") else None),
        (("clients", "open_webui"), clients.open_webui),
        (("clients", "triton"), clients.triton),
        (("load_test",), spec.load_test),
    ):
        if section:
            yield (*path, "namespace"), section.namespace


def _monitor_faults(spec: StackSpec) -> Iterator[Fault]:
    """Yields device monitors whose device plugin is absent."""
    for key, plugin in MONITORS.items():
        claimed = spec.offers("claims", plugin)
        if getattr(spec.observability, key) and not getattr(spec.accelerators, plugin) and not claimed:
            message = f"it needs the device plugin of accelerators.{plugin}, which is absent"
            yield Fault(("observability", key), message, hint=f"add accelerators.{plugin}, or remove observability.{key}")


def _client_faults(spec: StackSpec) -> Iterator[Fault]:
    """Yields clients of an API that no server has, or that the server they name lacks."""
    triton, others, clients = spec.servers_with("kserve"), spec.servers_with("openai"), spec.clients
    hint = f"Triton has an API of its own: use clients.triton for {', '.join(triton)}" if triton else ""
    tasks = dict.fromkeys(spec.servers[other].does for other in others)
    for path, client, asks in (
        (("clients", "open_webui"), clients.open_webui, {"chat"}),
        (("clients", "smoke_test"), clients.smoke_test, tasks),
        (("load_test",), spec.load_test, REQUESTS),
    ):
        if client and not others:
            yield Fault(path, "no model server has an OpenAI API", hint=hint)
        elif client and tasks.keys().isdisjoint(asks):
            yield Fault(path, f"no model server does what it asks for: tasks are {', '.join(tasks)}", hint="remove it")
    for position, name in enumerate(spec.load_test.servers if spec.load_test else ()):
        if name in triton:
            path = ("load_test", "servers", position)
            yield Fault(path, "this server has no OpenAI API", given=name, allowed=", ".join(others), hint=hint)
        elif name in others and name not in spec.measurable:
            message = f"the load test has no requests for the task of this server, {spec.servers[name].does}"
            yield Fault(("load_test", "servers", position), message, name, ", ".join(spec.measurable))
    if clients.triton and (asked := clients.triton.server) not in triton and (asked or len(triton) != 1):
        allowed = ", ".join(triton) or "add one, or remove clients.triton"
        several = f"there are {len(triton)} Triton servers: name one" if triton else "no server is Triton"
        message = "there is no Triton server of this name" if asked else several
        yield Fault(("clients", "triton", "server"), message, given=asked or "", allowed=allowed)


def _endpoint_faults(spec: StackSpec, name: str) -> Iterator[Fault]:
    """Yields servers that cannot stand behind an endpoint together, and an endpoint of the name of a server."""
    path, behind, tensors = ("endpoints", name, "servers"), spec.behind(name), spec.servers_with("kserve")
    for server in behind:
        if server not in spec.servers:
            known = ", ".join(spec.servers) or "there is no server"
            yield Fault(path, "there is no server of this name", server, known, did_you_mean(server, spec.servers))
    if not behind:
        yield Fault(path, "no server has an OpenAI API", allowed="one or more servers", hint="name a server with another API")
    if len(several := [server for server in behind if server in tensors]) > 1:
        message = "an endpoint has at most one server with the KServe API, because its paths name no server"
        yield Fault(path, message, ", ".join(several), "one of them", "make an endpoint for each")
    servers = {server: spec.servers[server] for server in behind if server in spec.servers and server not in tensors}
    names = {server: spec.names_of(server) for server in servers}
    found = name_faults(spec.endpoints[name], names, {server: one.does for server, one in servers.items()})
    yield from (replace(fault, path=("endpoints", name, *fault.path)) for fault in found)
    for model in spec.endpoints[name].traffic:
        for server in (server for server, own in names.items() if model in own):
            path = ("endpoints", name, "traffic", model)
            told = [one.traffic for other, one in spec.endpoints.items() if server in spec.behind(other)]
            loads = {asked.users is None for traffic in told for one, asked in traffic.items() if one in names[server]}
            if spec.servers[server].traffic:
                yield Fault(path, f"the traffic of server '{server}' is said elsewhere, too", hint="say it in one place")
            elif len(loads) > 1:
                yield Fault(path, f"server '{server}' has traffic by rate and by users", allowed="rate alone, or users alone")
    taken = "a server has this name" if name in spec.servers else "the web UI has this name" if name == WEB_UI else ""
    if taken:
        yield Fault(("endpoints", name), taken, name, hint="give the endpoint another name")


def _route_faults(spec: StackSpec) -> Iterator[Fault]:
    """Yields routes that lead nowhere."""
    front, key = (spec.gateway, "gateway") if spec.gateway else (spec.gateway_api, "gateway_api")
    if spec.gateway and spec.gateway_api:
        hint = "remove one of them"
        yield Fault(("gateway_api",), "the stack has a gateway of its own", allowed="gateway or gateway_api", hint=hint)
    for name in front.routes if front else ():
        if name not in spec.routable:
            hint = did_you_mean(name, spec.routable)
            if name == WEB_UI:
                hint = "add clients.open_webui"
            allowed = ", ".join(spec.routable) or "no target to route to"
            yield Fault((key, "routes", name), "there is no server of this name", name, allowed, hint)
    led: dict[str, str] = {}
    for target in (route.target for route in spec.routes):
        leading = spec.leading_to(target)
        if leading is None and target in spec.servers:
            hint = f"add one: endpoints: {{NAME: {{servers: [{target}]}}}}"
            yield Fault((key, "routes", target), f"no endpoint leads to {target} alone", hint=hint)
        elif leading and (first := led.setdefault(leading, target)) != target:
            yield Fault(
                (key, "routes", target), f"{first} has a route to the same endpoint, {leading}", hint="remove one of both"
            )
    if front and not spec.routes:
        yield Fault((key,), "a gateway needs a model server or the web UI", allowed="a server, or a route to the web UI")
    if WEB_UI in spec.servers and spec.clients.open_webui and front:
        yield Fault(("servers", WEB_UI), "a route of this name leads to the web UI", WEB_UI, hint="give the server another name")
