"""The component of an endpoint: one address for the models of several servers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pulumi
import pulumi_kubernetes as k8s

from eks_inference.catalog import versions
from eks_inference.catalog.models import APART
from eks_inference.cluster.handle import Cluster
from eks_inference.cluster.objects import on_cluster
from eks_inference.component import Component, carried
from eks_inference.endpoints import picker as picking
from eks_inference.endpoints import plan
from eks_inference.endpoints.picker import Picker
from eks_inference.endpoints.proxy import Upstream
from eks_inference.endpoints.spec import ModelEndpointSpec, name_faults
from eks_inference.faults import Fault, SpecError
from eks_inference.kubernetes.network_policy import Door
from eks_inference.kubernetes.secrets import SecretRef
from eks_inference.observability.handle import Metrics
from eks_inference.observability.prometheus_plan import pod_monitor
from eks_inference.place.placement import Placement
from eks_inference.serving.component import guards, own_namespace
from eks_inference.serving.handle import Server
from eks_inference.serving.paths import PATHS
from eks_inference.specs.base import Given, dns_label_faults

_MAX_NAME_LENGTH = 50


class ModelEndpoint(Component):
    """One address for the models of several servers, which asks clients for keys: an Envoy proxy of ``spec.replicas`` pods.

    ``name`` is a DNS label and also names Deployment, Service and, by default, the namespace. The component builds the namespace
    (Pod Security "restricted"), NetworkPolicies (in: clients and Prometheus; out: DNS and the servers), a ConfigMap with Envoy's
    configuration, a Secret with the keys, a disruption budget, the Service on port 80 and the Deployment on the nodes of
    ``placement``.

    ``servers`` have the OpenAI API; the field ``model`` of a request picks one, ``GET /v1/models`` lists them, and paths that
    change a server are closed. Servers of one model share its requests, or get percentages of them (``spec.models``). ``kserve``
    is a server with the KServe v2 API, over HTTP and gRPC at the same port. For each server there is a Service without an address
    in its namespace, by which the proxy finds pods that are ready, and a NetworkPolicy that lets the proxy in, besides
    the namespaces that the server admits.

    ``keys`` are the keys of clients, by client: 16 characters or more; a further key of a client has its name with a part after a
    slash (``team-a/next``), so two are valid while one replaces the other. A ``SecretRef`` names a Secret of the namespace that
    others maintain; its key ``clients.json`` is a file as ``eks_inference.endpoints.plan.clients_file`` writes. The
    proxy takes changed keys about a minute later, without a restart. Servers get the name of the client in the header
    x-endpoint-client, never its key, and ``server_key`` where they demand one.

    A request goes to the pod with the fewest requests, that of its session, or one that a picker names (``spec.spread``), and is
    sent again only where no pod has seen it. The pickers, a Deployment for each model, may watch the pods of the servers'
    namespace, and only that. An answer may take as long as it flows; ``longest_silence_seconds`` without a byte end it. A pod of
    the proxy that goes takes no new requests and waits ``drain_seconds`` for the answers that began. A server that dies breaks
    its answers off: the client sees the end of the connection. Each request leaves a line in the log with client, model and
    status, and nothing of prompts.

    ``url`` is the base of the API inside the cluster. Raises ``SpecError`` for names and keys that do not fit, and without a
    server.

    Sources: Envoy 1.40.0, against which tests/test_endpoint_proxy.py runs this configuration. Envoy marks its filter of API keys
    as work in progress: its interface may change with a release, and what it does is tested here.
    """

    def __init__(
        self,
        name: str,
        spec: Given[ModelEndpointSpec],
        opts: pulumi.ResourceOptions | None = None,
        *,
        cluster: Cluster,
        placement: Placement,
        servers: Mapping[str, Server],
        kserve: Mapping[str, Server] | None = None,
        keys: SecretRef | pulumi.Input[Mapping[str, str]] | None = None,
        server_key: pulumi.Input[str] | None = None,
    ) -> None:
        spec = ModelEndpointSpec.of(spec)
        pickers = _pickers(name, spec, servers)
        upstreams = _upstreams(name, spec, servers, kserve or {}, pickers)
        faults = [
            *dns_label_faults(name, "an endpoint's name is its namespace's", max_length=_MAX_NAME_LENGTH),
            *_server_faults(servers, kserve or {}),
            *_picker_faults(spec, servers),
            *name_faults(
                spec,
                {server: (one.model_id, *one.other_names) for server, one in servers.items()},
                {server: one.does for server, one in servers.items()},
            ),
            *_key_faults(spec, keys, server_key),
        ]
        if faults:
            raise SpecError(faults)
        super().__init__("eks-inference:index:ModelEndpoint", name, spec.inputs(), opts)
        self.namespace = spec.namespace_of(name)
        self.doors: Sequence[Door] = plan.doors(name, spec, upstreams)
        self.url = f"http://{name}.{self.namespace}.svc.cluster.local{self.doors[0].api}"
        self.models = tuple(dict.fromkeys(name for upstream in upstreams for name in upstream.names))
        self.authenticates = spec.keys
        self.pod_labels: Mapping[str, str] = plan.labels(name)
        self.picker_labels: Mapping[str, str] = picking.of_endpoint(name) if pickers else {}
        self._cluster = cluster
        namespace, inside = own_namespace(name, self.namespace, cluster, self, gated=spec.behind_load_balancer)
        self.foundation: Sequence[pulumi.Resource] = (namespace,)
        behind = {**servers, **(kserve or {})}
        planned = plan.proxy(spec, upstreams, server_key=server_key is not None)
        before = guards(
            name,
            policies={
                "endpoint": plan.policy(name, spec, _ports(behind.values()), [picking.way_to_pickers(name)] if pickers else [])
            },
            quota=None,
            budgets={"": plan.disruption_budget(name, spec)},
            options=inside,
        )
        before.append(k8s.core.v1.ConfigMap(f"{name}-config", **plan.config_map(name, spec, planned), opts=inside))
        secret, made = self._secret(name, keys if spec.keys else None, server_key, inside)
        service = k8s.core.v1.Service(
            f"{name}-service", **plan.service(name, spec), opts=on_cluster(cluster, self, *self.foundation)
        )
        pods = [made for server, one in behind.items() for made in self._pods_of(name, server, one, picked=server in pickers)]
        services, picked = self._pickers(spec, {picker.name: picker for picker in pickers.values()}.values(), placement, inside)
        image = cluster.settings.image(spec.image or versions.image("envoy"))
        timeout = f"{plan.PROGRESS_SECONDS + 60}s"
        deployment = k8s.apps.v1.Deployment(
            f"{name}-deployment",
            **plan.deployment(name, spec, planned, placement, image=image, secret=secret),
            opts=on_cluster(
                cluster,
                self,
                *(*before, *made, service, *services, *pods, *placement.ready),
                *(ready for server in behind.values() for ready in server.ready),
                timeouts=pulumi.CustomTimeouts(create=timeout, update=timeout),
            ),
        )
        self.ready: Sequence[pulumi.Resource] = (deployment, service, *picked)
        self.endpoint = carried(self.url, self.ready)
        self.register_outputs({"endpoint": self.endpoint, "models": list(self.models)})

    def _pickers(
        self, spec: ModelEndpointSpec, pickers: Iterable[Picker], placement: Placement, inside: pulumi.ResourceOptions
    ) -> tuple[list[pulumi.Resource], list[pulumi.Resource]]:
        """Creates the pickers. Returns their Services, by which proxies know them, and their Deployments."""
        services: list[pulumi.Resource] = []
        deployments: list[pulumi.Resource] = []
        wanted = spec.picks
        wait = f"{picking.PROGRESS_SECONDS + 60}s"
        for picker in pickers:
            name = picker.resource
            account = k8s.core.v1.ServiceAccount(
                f"{name}-account", metadata={"name": picker.name, "namespace": self.namespace}, opts=inside
            )
            role, binding = picking.permission(picker)
            policy = picking.policy(picker, self.pod_labels, spec.metrics_namespaces, self._cluster.api_cidrs)
            before = [
                account,
                k8s.rbac.v1.Role(f"{name}-role", **role, opts=inside),
                k8s.rbac.v1.RoleBinding(f"{name}-binding", **binding, opts=inside),
                k8s.networking.v1.NetworkPolicy(f"{name}-policy", **policy, opts=inside),
            ]
            services.append(k8s.core.v1.Service(f"{name}-service", **picking.service(picker), opts=inside))
            image = self._cluster.settings.image(wanted.image or versions.image("llm-d-endpoint-picker"))
            deployments.append(
                k8s.apps.v1.Deployment(
                    f"{name}-deployment",
                    **picking.deployment(picker, wanted, placement, image=image),
                    opts=on_cluster(
                        self._cluster,
                        self,
                        *(*before, services[-1], *placement.ready),
                        timeouts=pulumi.CustomTimeouts(create=wait, update=wait),
                    ),
                )
            )
        return services, deployments

    def _pods_of(self, name: str, server: str, one: Server, *, picked: bool) -> list[pulumi.Resource]:
        """Creates what lies in a server's namespace: the Service whose name resolves to its pods, and the way in."""
        front = one.fronts[0]
        ports = sorted({each.pod_port for each in one.fronts})
        options = on_cluster(self._cluster, self, *one.ready)
        # No name has a dot, so no other endpoint has a resource of this name.
        return [
            k8s.networking.v1.NetworkPolicy(
                f"{name}.{server}-policy",
                **plan.entrance(
                    name,
                    self.namespace,
                    front,
                    ports,
                    of=one.namespace,
                    also=[picking.of_endpoint(name)] if picked else [],
                ),
                opts=options,
            ),
            k8s.core.v1.Service(
                f"{name}.{server}-pods", **plan.pods_service(name, server, one.namespace, front, ports), opts=options
            ),
        ]

    def _secret(
        self,
        name: str,
        keys: SecretRef | pulumi.Input[Mapping[str, str]] | None,
        server_key: pulumi.Input[str] | None,
        inside: pulumi.ResourceOptions,
    ) -> tuple[pulumi.Input[str] | None, list[pulumi.Resource]]:
        """Returns the name of the Secret that the pods mount, and what must exist before them."""
        if isinstance(keys, SecretRef):
            return keys.name, []
        files: dict[str, pulumi.Input[str]] = {}
        if keys is not None:
            files[plan.KEYS_FILE] = pulumi.Output.secret(keys).apply(plan.clients_file)
        if server_key is not None:
            files[plan.SERVER_KEY_FILE] = pulumi.Output.secret(server_key).apply(plan.server_file)
        if not files:
            return None, []
        own = f"{name}-keys"
        made = k8s.core.v1.Secret(own, metadata={"name": own, "namespace": self.namespace}, string_data=files, opts=inside)
        return own, [made]

    def scraped_by(self, name: str, metrics: Metrics, opts: pulumi.ResourceOptions) -> EndpointMetrics:
        """Makes Prometheus scrape the proxy."""
        return EndpointMetrics(name, opts, endpoint=self, metrics=metrics)


class EndpointMetrics(Component):
    """Makes Prometheus scrape the proxy of an endpoint: a PodMonitor in its namespace.

    The metrics are Envoy's (``envoy_...``), and of pickers llm-d's (``llm_d_epp_...``). The label ``endpoint_name`` is the
    endpoint's name and ``envoy_cluster_name`` that of a server.
    """

    def __init__(
        self, name: str, opts: pulumi.ResourceOptions | None = None, *, endpoint: ModelEndpoint, metrics: Metrics
    ) -> None:
        super().__init__("eks-inference:index:EndpointMetrics", name, {"namespace": endpoint.namespace}, opts)
        scraped = {"pods": ("endpoint", endpoint.pod_labels, plan.metrics_endpoint())}
        if endpoint.picker_labels:
            scraped["pickers"] = ("endpoint-pickers", endpoint.picker_labels, picking.metrics_endpoint())
        self.ready: Sequence[pulumi.Resource] = tuple(
            k8s.apiextensions.CustomResource(
                f"{name}-{role}",
                **pod_monitor(
                    monitor, endpoint.namespace, labels=metrics.monitor_labels, selector=selector, endpoints=[scraped_at]
                ),
                opts=on_cluster(metrics.cluster, self, *metrics.ready, *endpoint.foundation),
            )
            for role, (monitor, selector, scraped_at) in scraped.items()
        )
        self.register_outputs({"namespace": endpoint.namespace})


def _picked(spec: ModelEndpointSpec, servers: Mapping[str, Server]) -> list[dict[str, Server]]:
    """The servers that share requests, of those that a picker is asked for.

    It is asked for none that write nothing, or hear: no parser of llm-d-router v0.10.0 (parsers/openai, parsers/anthropic) reads
    /v1/score, /v1/rerank, or embeddings of messages, and such requests get status 400.
    """
    found: dict[str, dict[str, Server]] = {}
    for name, server in servers.items() if spec.spread == "endpoint_picker" else ():
        if server.does not in APART:
            found.setdefault(spec.group_of(name, server.model_id), {})[name] = server
    return list(found.values())


def _pickers(name: str, spec: ModelEndpointSpec, servers: Mapping[str, Server]) -> dict[str, Picker]:
    """The picker of each server; servers of one model share it."""
    found: dict[str, Picker] = {}
    for group in _picked(spec, servers):
        first, fronts = next(iter(group)), tuple(server.fronts[0] for server in group.values())
        found |= dict.fromkeys(group, Picker(name, first, spec.namespace_of(name), group[first].namespace, fronts))
    return found


def _picker_faults(spec: ModelEndpointSpec, servers: Mapping[str, Server]) -> Iterator[Fault]:
    for group in _picked(spec, servers):
        places = {
            name: (f"{one.namespace}, port {one.fronts[0].pod_port}", one.fronts[0].tells_load) for name, one in group.items()
        }
        for message, given in picking.why_not(next(iter(group.values())).model_id, places):
            yield Fault(("spread",), message, given, hint="servers of kind vllm in one namespace, or another spread")


def _upstreams(
    name: str,
    spec: ModelEndpointSpec,
    servers: Mapping[str, Server],
    kserve: Mapping[str, Server],
    pickers: Mapping[str, Picker],
) -> list[Upstream]:
    """The servers as the proxy reaches them: past their Services, at their pods."""
    found: list[Upstream] = []
    for server, one in {**servers, **kserve}.items():
        host = f"{plan.pods_service_name(name, server)}.{one.namespace}.svc.cluster.local"
        http = next(front.pod_port for front in one.fronts if not front.grpc)
        grpc = next((front.pod_port for front in one.fronts if front.grpc), None)
        found.append(
            Upstream(
                server,
                host,
                http,
                one.model_id,
                tuple(one.other_names),
                picker=pickers[server].host if server in pickers else "",
                paths=PATHS[one.does],
                group=spec.group_of(server, one.model_id),
            )
            if server in servers
            else Upstream(server, host, http, grpc_port=grpc)
        )
    return found


def _ports(servers: Iterable[Server]) -> dict[str, list[int]]:
    """The ports of servers by their namespace."""
    found: dict[str, list[int]] = {}
    for server in servers:
        found.setdefault(server.namespace, []).extend(front.pod_port for front in server.fronts)
    return found


def _server_faults(servers: Mapping[str, Server], kserve: Mapping[str, Server]) -> Iterator[Fault]:
    if not servers and not kserve:
        yield Fault(("servers",), "an endpoint needs a model server", allowed="one or more servers")
    if len(kserve) > 1:
        message = "an endpoint has at most one server with the KServe API, because its paths name no server"
        yield Fault(("kserve",), message, ", ".join(kserve), "one of them", "make an endpoint for each")


def _key_faults(spec: ModelEndpointSpec, keys: Any, server_key: Any) -> Iterator[Fault]:
    if spec.keys and keys is None:
        hint = "give keys, or say keys: false: then anyone who reaches the endpoint may ask"
        yield Fault(("keys",), "an endpoint that asks for keys needs some", hint=hint)
    elif isinstance(keys, Mapping):
        known = {name: key for name, key in keys.items() if isinstance(key, str)}
        yield from (replace(fault, path=("keys", *fault.path)) for fault in plan.key_faults(known) if known or not keys)
    if isinstance(keys, SecretRef) and keys.key != plan.KEYS_FILE:
        yield Fault(("keys", "key"), "Envoy reads this key of the Secret", keys.key, plan.KEYS_FILE)
    if isinstance(keys, SecretRef) and server_key is not None:
        hint = f"put {plan.SERVER_KEY_FILE} into that Secret, too"
        yield Fault(("server_key",), "the pods mount one Secret, which others maintain", hint=hint)
