"""Plans the configuration of Envoy for an endpoint. Pure functions; no pulumi.

What it does, in the order of its filters: it asks the client for a key and names the client to what follows; limits the requests
of each client; reads the model's name from the body and picks a pod of the servers that serve it; gives the server its own key.

It never cuts an answer that flows. It sends each request over a connection of its own: one that is kept may be closed by a pod
that goes just as the next request is on its way, and nobody knows then whether the pod has begun to answer. Names of servers
resolve to pods that are ready, so the proxy counts the requests of each pod.

Sources: Envoy 1.40.0, API reference v3 and "Configuring Envoy as an edge proxy"; every part was run against that version
(tests/test_endpoint_proxy.py). vLLM 0.30.0, api_server.py (paths); Open Inference Protocol v2 (KServe).
"""

from collections.abc import Iterator, Sequence
from importlib.resources import files
from typing import Any

from eks_inference.endpoints.proxy import (
    ADMIN_CLUSTER,
    BUFFER_FILTER,
    CLIENT_HEADER,
    CONNECT_SECONDS,
    EXTENSIONS,
    HEALTH_PATH,
    KEYS_FILTER,
    KEYS_TYPE,
    METADATA,
    METRICS_PATH,
    PICKER_FILTER,
    PREFIX,
    SERVER_KEY,
    STATS,
    TOKENS,
    Proxy,
    address,
    http_filter,
    seconds,
    where_known,
)
from eks_inference.endpoints.refusals import by_client, by_model, replies
from eks_inference.endpoints.routing import asked_over, clusters, groups, routes, unpicked

_HEAP = "envoy.resource_monitors.fixed_heap"
_UPLOAD_SECONDS = 300
_MOST_CONNECTIONS = 10_000
_READ = 1 << 16
_READING = 0.5
"""Part of the heap for bodies that arrive."""
_KEPT = 4 << 20
"""The largest request of which a copy is kept in case a pod refuses it. A copy of 16 MiB holds up the answers of others."""
_LONGEST_LOGGED = 200
_ORDERS = ("data-parallel", "encoder", "envoy", "gateway", "kv-cache", "llm-d", "prefiller", "slo", "vllm")
"""Headers x-…-… that Envoy, llm-d's picker and its sidecar, or vLLM obey (llm-d-router v0.10.0, pkg/; vLLM 0.30.0)."""
_LONGEST_ANSWER = 1 << 20
"""The longest answer that the proxy gives itself. Envoy's own limit (4096 bytes) refuses the list of some fifty models."""


def configuration(proxy: Proxy) -> dict[str, Any]:
    """Returns the bootstrap configuration of Envoy."""
    heap = proxy.memory_bytes * 3 // 4  # the rest is for what no allocator counts: binary, stacks of threads
    return {
        "node": {"id": "endpoint", "cluster": "endpoint"},
        "admin": {"address": address("127.0.0.1", proxy.admin_port), "ignore_global_conn_limit": True},
        "overload_manager": {
            "resource_monitors": [
                {
                    "name": "envoy.resource_monitors.global_downstream_max_connections",
                    "typed_config": {
                        "@type": f"{EXTENSIONS}.resource_monitors.downstream_connections.v3.DownstreamConnectionsConfig",
                        "max_active_downstream_connections": _MOST_CONNECTIONS,
                    },
                },
                {
                    "name": _HEAP,
                    "typed_config": {
                        "@type": f"{EXTENSIONS}.resource_monitors.fixed_heap.v3.FixedHeapConfig",
                        "max_heap_size_bytes": heap,
                    },
                },
            ],
            "refresh_interval": "0.05s",
            "buffer_factory_config": {"minimum_account_to_track_power_of_two": 20},
            # Whoever sends many large bodies at once would get the pod killed, with the streams of all others.
            "actions": [
                _from_heap("overload_actions.stop_accepting_requests", 0.85),
                {
                    # Over HTTP/2, bodies that wait are dropped. What is kept of an answer that flows is less than each of them.
                    "name": "envoy.overload_actions.reset_high_memory_stream",
                    "triggers": [
                        {"name": _HEAP, "scaled": {"scaling_threshold": _READING, "saturation_threshold": _READING + 0.01}}
                    ],
                },
            ],
            # Nothing more is read over HTTP/1 then, so answers flow on. The rest is for bodies that are passed on.
            "loadshed_points": [_from_heap("load_shed_points.http1_server_abort_dispatch", _READING)],
        },
        # Of each connection one request in a turn. Over HTTP/2, hundreds that come at once kept a thread from all others for a
        # second; those that their client resets meanwhile now cost nothing.
        "layered_runtime": {"layers": [{"name": "static", "static_layer": {"http": {"max_requests_per_io_cycle": 1}}}]},
        "static_resources": {"listeners": [_api(proxy), _health(proxy)], "clusters": [*clusters(proxy), _admin(proxy)]},
    }


def _from_heap(action: str, part: float) -> dict[str, Any]:
    return {
        "name": f"envoy.{action}",
        "triggers": [{"name": _HEAP, "threshold": {"value": part}}],
    }


# -- where requests come in ------------------------------------------------------------------------------------------------------


def _api(proxy: Proxy) -> dict[str, Any]:
    # Without keys nobody has a name, whatever a client calls itself.
    nobody: dict[str, Any] = {} if proxy.keys_file else {"request_headers_to_remove": [CLIENT_HEADER]}
    host = {"name": "api", "domains": ["*"], "routes": list(routes(proxy)), **unpicked(proxy), **nobody}
    host["request_body_buffer_limit"] = _KEPT
    return {
        "name": "api",
        "address": address(proxy.address, proxy.api_port),
        # So much is read at once, so a large body holds up nobody's answer.
        "per_connection_buffer_limit_bytes": _READ,
        "filter_chains": [
            _http(
                STATS,
                virtual_hosts=[host],
                longest_answer=_LONGEST_ANSWER,
                filters=list(_filters(proxy)),
                stream_idle_timeout=seconds(proxy.silence_seconds),
                request_timeout=seconds(_UPLOAD_SECONDS),
                request_headers_timeout="30s",
                # Longer than load balancers keep a silent connection: they, and not the proxy, decide when one ends.
                common_http_protocol_options={
                    "idle_timeout": seconds(proxy.silence_seconds + 3600),
                    # Some servers take x_endpoint_client for x-endpoint-client.
                    "headers_with_underscores_action": "DROP_HEADER",
                },
                normalize_path=True,
                merge_slashes=True,
                path_with_escaped_slashes_action="REJECT_REQUEST",
                early_header_mutation_extensions=[_without_orders()],
                # The address of the client as the load balancer saw it.
                use_remote_address=True,
                xff_num_trusted_hops=1,
                access_log=[_access_log(), _token_counts()],
                local_reply_config=replies(),
            )
        ],
    }


def _http(
    name: str, *, virtual_hosts: Sequence[Any], filters: Sequence[Any], longest_answer: int = 0, **fields: Any
) -> dict[str, Any]:
    return {
        "filters": [
            {
                "name": "envoy.filters.network.http_connection_manager",
                "typed_config": {
                    "@type": f"{EXTENSIONS}.filters.network.http_connection_manager.v3.HttpConnectionManager",
                    "stat_prefix": name,
                    "codec_type": "AUTO",
                    "route_config": {
                        "name": name,
                        "virtual_hosts": virtual_hosts,
                        **({"max_direct_response_body_size_bytes": longest_answer} if longest_answer else {}),
                    },
                    "http_filters": [*filters, http_filter("router", "router.v3.Router")],
                    **fields,
                },
            }
        ]
    }


def _filters(proxy: Proxy) -> Iterator[dict[str, Any]]:
    # A load balancer asks at the port of requests, and has no key.
    yield _health_check()
    if proxy.keys_file:
        yield _lua("bearer")
        yield {"name": KEYS_FILTER, "config_discovery": _watched(proxy.keys_file) | {"type_urls": [KEYS_TYPE]}}
    if proxy.requests_per_minute and proxy.keys_file:
        yield by_client(proxy.requests_per_minute)
    if any(upstream.model for upstream in proxy.upstreams):
        yield _lua("request")
        # The model decides where a request goes, so it waits until its body is whole.
        yield {**http_filter(BUFFER_FILTER, "buffer.v3.Buffer", max_request_bytes=proxy.largest_request_bytes), "disabled": True}
        if proxy.spread == "prefixes":
            yield _beginning()
        if proxy.requests_per_model and proxy.keys_file:
            yield by_model(proxy.requests_per_model)
        yield from _pickers(proxy)
    if proxy.server_key_file:
        config = {"name": SERVER_KEY, "sds_config": _watched(proxy.server_key_file)["config_source"]}
        yield http_filter(
            "credential_injector",
            "credential_injector.v3.CredentialInjector",
            overwrite=True,
            credential={
                "name": "envoy.http.injected_credentials.generic",
                "typed_config": {
                    "@type": f"{EXTENSIONS}.http.injected_credentials.generic.v3.Generic",
                    "credential": config,
                },
            },
        )


def _lua(script: str) -> dict[str, Any]:
    code = files("eks_inference.endpoints").joinpath("assets", f"{script}.lua").read_text("utf-8")
    return http_filter("lua", "lua.v3.Lua", default_source_code={"inline_string": code})


def _beginning() -> dict[str, Any]:
    """Has routes choose a pod by how a conversation begins, in a form that no server sees."""
    value = {"text_format_source": {"inline_string": f"%DYNAMIC_METADATA({METADATA}:{PREFIX})%"}, "omit_empty_values": True}
    state = {"object_key": PREFIX, "factory_key": "envoy.hashable_string", "format_string": value, "skip_if_empty": True}
    return http_filter("set_filter_state", "set_filter_state.v3.Config", on_request_headers=[state])


def _without_orders() -> dict[str, Any]:
    """Removes what a client would have Envoy, a picker or an engine do: name a pod or another model, jump the queue, retry."""
    return {
        "name": "envoy.http.early_header_mutation.header_mutation",
        "typed_config": {
            "@type": f"{EXTENSIONS}.http.early_header_mutation.header_mutation.v3.HeaderMutation",
            "mutations": [{"remove_on_match": {"key_matcher": {"prefix": f"x-{one}-"}}} for one in _ORDERS],
        },
    }


def _pickers(proxy: Proxy) -> Iterator[dict[str, Any]]:
    """Asks the picker of a model, which reads the request and names a pod. Routes say which; it takes no part in the answer.

    One that is known to be away costs nothing but its choice; one that goes while it is asked, an error that clients try again.
    """
    first = next((group for group in groups(proxy.upstreams) if group[0].picker), None)
    if not first:
        return
    yield http_filter(
        PICKER_FILTER,
        "ext_proc.v3.ExternalProcessor",
        grpc_service=asked_over(first),
        failure_mode_allow=True,
        status_on_error={"code": "ServiceUnavailable"},
        processing_mode={
            "request_header_mode": "SEND",
            # The endpoint picker protocol demands it.
            "request_body_mode": "FULL_DUPLEX_STREAMED",
            "request_trailer_mode": "SEND",
            "response_header_mode": "SKIP",
            "response_body_mode": "NONE",
            "response_trailer_mode": "SKIP",
        },
        # It has no use for others, such as the key, and sets each again: Envoy refuses more than a hundred of that.
        forward_rules={"allowed_headers": {"patterns": [{"exact": name} for name in (":path", "x-request-id")]}},
    )


def _watched(file: str) -> dict[str, Any]:
    """A file of a mounted Secret. The kubelet replaces a link in the folder, which is what has to be watched."""
    folder = file.rpartition("/")[0]
    return {
        "config_source": {
            "path_config_source": {"path": file, "watched_directory": {"path": folder}},
            "resource_api_version": "V3",
        }
    }


def _access_log() -> dict[str, Any]:
    """One line of JSON for each request: who asked which model, and what came of it. Nothing of prompts and answers."""
    fields = {
        "time": "%START_TIME%",
        "client": f"%REQ({CLIENT_HEADER}):{_LONGEST_LOGGED}%",
        "model": f"%DYNAMIC_METADATA({METADATA}:model):{_LONGEST_LOGGED}%",
        "path": "%PATH(NQ)%",
        "status": "%RESPONSE_CODE%",
        "reason": "%RESPONSE_CODE_DETAILS%",
        "server": "%UPSTREAM_CLUSTER%",
        "milliseconds": "%DURATION%",
        "first_byte_milliseconds": "%RESPONSE_DURATION%",
        "bytes": "%BYTES_SENT%",
        **{name: f"%DYNAMIC_METADATA({METADATA}:{name})%" for name in TOKENS},
        "request": f"%REQ(X-REQUEST-ID):{_LONGEST_LOGGED}%",
    }
    return {
        "name": "envoy.access_loggers.stdout",
        "typed_config": {
            "@type": f"{EXTENSIONS}.access_loggers.stream.v3.StdoutAccessLog",
            "log_format": {"json_format": fields},
        },
    }


def _token_counts() -> dict[str, Any]:
    """Counts the tokens that answers tell, by client and model. Both are few: others get no answer that tells any."""
    tags = [
        {"name": "client", "value_format": f"%REQ({CLIENT_HEADER})%"},
        {"name": "model", "value_format": f"%DYNAMIC_METADATA({METADATA}:model)%"},
    ]
    counters = [
        {"stat": {"name": name, "tags": tags}, "value_format": f"%DYNAMIC_METADATA({METADATA}:{name})%"} for name in TOKENS
    ]
    config = {"@type": f"{EXTENSIONS}.access_loggers.stats.v3.Config", "stats_scope": {"prefix": STATS}, "counters": counters}
    return {"name": "envoy.access_loggers.stats", "filter": where_known(TOKENS[0]), "typed_config": config}


# -- what Kubernetes and Prometheus ask ------------------------------------------------------------------------------------------


def _health(proxy: Proxy) -> dict[str, Any]:
    routes = [
        {"match": {"path": METRICS_PATH}, "route": {"cluster": ADMIN_CLUSTER}},
        {"match": {"prefix": "/"}, "direct_response": {"status": 404}},
    ]
    return {
        "name": "health",
        "address": address(proxy.address, proxy.health_port),
        # However many clients there are, the kubelet learns that the pod is well.
        "ignore_global_conn_limit": True,
        "filter_chains": [
            _http("health", virtual_hosts=[{"name": "health", "domains": ["*"], "routes": routes}], filters=[_health_check()])
        ],
    }


def _health_check() -> dict[str, Any]:
    """Answers whether the pod takes requests: it does until it goes."""
    path = {"name": ":path", "string_match": {"exact": HEALTH_PATH}}
    return http_filter("health_check", "health_check.v3.HealthCheck", pass_through_mode=False, headers=[path])


def _admin(proxy: Proxy) -> dict[str, Any]:
    return {
        "name": ADMIN_CLUSTER,
        "type": "STATIC",
        "connect_timeout": seconds(CONNECT_SECONDS),
        "load_assignment": {
            "cluster_name": ADMIN_CLUSTER,
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address("127.0.0.1", proxy.admin_port)}}]}],
        },
    }
