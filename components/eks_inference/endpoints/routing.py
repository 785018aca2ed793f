"""Plans which pod answers a request: Envoy's routes and clusters. Pure functions; no pulumi.

Sources: Envoy 1.40.0, API reference v3; run by tests/test_endpoint_proxy.py.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from eks_inference.endpoints.proxy import (
    BUFFER_FILTER,
    CONNECT_SECONDS,
    EXTENSIONS,
    KSERVE_METHODS,
    KSERVE_PATHS,
    PICKED_BYTES,
    PICKED_HEADER,
    PICKER_FILTER,
    PICKER_PORT,
    PICKER_SERVICE,
    PREFIX,
    SESSION_HEADER,
    Proxy,
    Upstream,
    address,
    says,
    seconds,
)
from eks_inference.endpoints.refusals import error
from eks_inference.serving.paths import ASKING_PATHS, FORM_PATHS, MESSAGES_PATH, MODELS_PATH

_LEAST_REQUESTS = {
    "name": "envoy.load_balancing_policies.least_request",
    "typed_config": {
        "@type": f"{EXTENSIONS}.load_balancing_policies.least_request.v3.LeastRequest",
        # Of all pods, not of two by chance: there are few of them, and each request is long.
        "selection_method": "FULL_SCAN",
    },
}


def _policies(policy: Mapping[str, Any]) -> dict[str, Any]:
    return {"policies": [{"typed_extension_config": policy}]}


_PICKED = _policies(
    {
        "name": "envoy.load_balancing_policies.override_host",
        "typed_config": {
            "@type": f"{EXTENSIONS}.load_balancing_policies.override_host.v3.OverrideHost",
            "override_host_sources": [{"header": PICKED_HEADER}],
            # Where no picker answers, or the pod that it named is gone.
            "fallback_policy": _policies(_LEAST_REQUESTS),
        },
    }
)
_PREVIOUS_HOSTS = {
    "name": "envoy.retry_host_predicates.previous_hosts",
    "typed_config": {"@type": f"{EXTENSIONS}.retry.host.previous_hosts.v3.PreviousHostsPredicate"},
}
_COMMON = {
    # Pods that rest are asked only when all do; by default, when half of them do.
    "healthy_panic_threshold": {"value": 1},
    # A pod rests at once. By default, the second one rests up to a second later than the first, and retries may end before.
    "update_merge_window": "0s",
}
_HTTP1: Mapping[str, Any] = {"http_protocol_options": {}}
_HTTP2: Mapping[str, Any] = {"http2_protocol_options": {}}
_TO_SERVERS = {
    # So much at once, and so much a second: otherwise a large body goes to a server that keeps up in one turn of a thread, for
    # which all answers of that thread wait. The numbers are Linux's: SOL_SOCKET, SO_SNDBUF, SO_MAX_PACING_RATE.
    "socket_options": [
        {"level": 1, "name": name, "int_value": most, "state": "STATE_PREBIND"}
        for name, most in ((7, 128 << 10), (47, 256 << 20))
    ]
}
RETRIES, REST_SECONDS = 6, 10
"""Of a request whose connection fails, and how long a pod rests that took none: each time so much longer."""
_DNS_SECONDS = 5
_PICK_SECONDS = 5
"""Within which a picker reads a request and names a pod."""
_UNLIMITED = 1_000_000
_BY_DNS = {
    "name": "envoy.cluster.dns",
    "typed_config": {
        "@type": f"{EXTENSIONS}.clusters.dns.v3.DnsCluster",
        "dns_lookup_family": "V4_ONLY",
        "dns_refresh_rate": seconds(_DNS_SECONDS),
    },
}


def routes(proxy: Proxy) -> Iterator[dict[str, Any]]:
    models = _models(proxy)
    if models:
        # Clients demand a time; nobody knows when a model was made.
        listed = [{"id": model, "object": "model", "created": 0, "owned_by": "endpoint"} for model in models]
        yield {"match": {"path": MODELS_PATH}, **_answer(200, {"object": "list", "data": listed})}
        # Also what a later release answers there by other methods stays closed.
        method = {"name": ":method", "string_match": {"exact": "POST"}, "invert_match": True}
        for path in ASKING_PATHS:
            told = error(path, "a model is asked by POST", "method_not_allowed")
            yield {"match": {"path": path, "headers": [method]}, **_answer(405, told)}
    for model, parts in models.items():
        first = parts[0][0][0]
        named = [says("model", {"string_match": {"exact": model}})]
        ways = [(named, _to(parts, proxy))]
        if first.picker:
            small = says("bytes", {"double_match": {"range": {"start": 0, "end": PICKED_BYTES}}})
            ways.insert(0, ([*named, small], _to(parts, proxy, picked=True)))
        asked = [path for path in first.paths if path not in FORM_PATHS]
        yield from ({"match": {"path": path, "dynamic_metadata": said}, **way} for said, way in ways for path in asked)
        # A form may name its model behind what it brings, however it spells that: the path leads to the one model that hears.
        heard = {**_to(parts, proxy), **_whole(proxy, model)}
        yield from ({"match": {"path": path}, **heard} for path in first.paths if path in FORM_PATHS)
    for upstream in proxy.upstreams:
        if not upstream.model:
            ways = [(pattern, upstream.name) for pattern in KSERVE_PATHS]
            ways += [(pattern, _grpc(upstream)) for pattern in KSERVE_METHODS if upstream.grpc_port]
            yield from (
                {"match": {"safe_regex": {"regex": pattern}}, **_through({"cluster": cluster}, proxy)}
                for pattern, cluster in ways
            )
    for path in ASKING_PATHS if models else ():
        here = ", ".join(name for name, parts in models.items() if path in parts[0][0][0].paths) or "none"
        told = f"the field model of the request names no model that is asked at {path}; those that are: {here}"
        named = {} if path in FORM_PATHS else {"dynamic_metadata": [says("model", {"present_match": True})]}
        yield {"match": {"path": path, **named}, **_answer(404, error(path, told, "model_not_found"))}
        told = "the body is no JSON object with a text in the field model and without those of servers (kv_transfer_params), "
        told += "or Content-Type is not application/json"
        yield {"match": {"path": path}, **_answer(400, error(path, told, "invalid_request")), **_whole(proxy)}
    for path in (MESSAGES_PATH, "/"):
        yield {"match": {"prefix": path}, **_answer(404, error(path, "there is nothing at this path", "not_found"))}


def _answer(status: int, body: Mapping[str, Any]) -> dict[str, Any]:
    header = {"header": {"key": "content-type", "value": "application/json"}, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"}
    return {
        "direct_response": {"status": status, "body": {"inline_string": json.dumps(body)}},
        "response_headers_to_add": [header],
    }


def _to(parts: Sequence[tuple[Sequence[Upstream], int]], proxy: Proxy, *, picked: bool = False) -> dict[str, Any]:
    """Leads to servers, to each with its part of a hundred requests."""
    asked = [_for_pickers(overrides={"grpc_service": asked_over(group)}) if picked else {} for group, _ in parts]
    if len(parts) == 1:
        return {**_through({"cluster": _name(parts[0][0])}, proxy), **asked[0]}
    ways = [{"name": _name(group), "weight": part, **asks} for (group, part), asks in zip(parts, asked, strict=True)]
    # What keeps to a pod keeps to its server: the same hash chooses both.
    hashed = {"use_hash_policy": True} if _hashed(proxy) else {}
    return _through({"weighted_clusters": {"clusters": ways, **hashed}}, proxy)


def _through(way: Mapping[str, Any], proxy: Proxy) -> dict[str, Any]:
    return {
        "route": {
            **way,
            "timeout": "0s",  # an answer may take as long as it flows
            "idle_timeout": seconds(proxy.silence_seconds),
            **_hashed(proxy),
            "retry_policy": {
                # Only what no server has seen: an answer is never begun twice.
                "retry_on": "connect-failure,refused-stream,reset-before-request",
                "num_retries": RETRIES,
                "retry_host_predicate": [_PREVIOUS_HOSTS],
                "host_selection_retry_max_attempts": 5,
                "retry_back_off": {"base_interval": "0.2s", "max_interval": "2s"},
            },
        }
    }


def asked_over(group: Sequence[Upstream]) -> dict[str, Any]:
    """Returns how the picker of a model is asked."""
    return {"envoy_grpc": {"cluster_name": f"{_name(group)}/picker"}}


def _whole(proxy: Proxy, model: str = "") -> dict[str, Any]:
    """Waits for the whole body. It is the route of each request until its model is known, or of all requests for one."""
    buffered = {
        "@type": f"{EXTENSIONS}.filters.http.buffer.v3.BufferPerRoute",
        "buffer": {"max_request_bytes": proxy.largest_request_bytes},
    }
    told = {"@type": f"{EXTENSIONS}.filters.http.lua.v3.LuaPerRoute", "filter_context": {"model": model}}
    return {"typed_per_filter_config": {BUFFER_FILTER: buffered, **({"envoy.filters.http.lua": told} if model else {})}}


def unpicked(proxy: Proxy) -> dict[str, Any]:
    """Asks no picker on the other routes. Envoy leaves a filter out before it knows the model, so it cannot be off by default."""
    return _for_pickers(disabled=True) if proxy.picks else {}


def _for_pickers(**fields: Any) -> dict[str, Any]:
    per_route = {"@type": f"{EXTENSIONS}.filters.http.ext_proc.v3.ExtProcPerRoute", **fields}
    return {"typed_per_filter_config": {PICKER_FILTER: per_route}}


def _hashed(proxy: Proxy) -> dict[str, Any]:
    """Returns what decides which pod answers; empty: the number of requests. A client that names its session knows best."""
    session = {"header": {"header_name": SESSION_HEADER}, "terminal": True}
    policies = {
        "endpoint_picker": [],
        "least_requests": [],
        "prefixes": [session, {"filter_state": {"key": PREFIX}}],
        "sessions": [session],
    }[proxy.spread]
    return {"hash_policy": policies} if policies else {}


def groups(upstreams: Sequence[Upstream]) -> list[list[Upstream]]:
    """Returns servers that share requests: those of one model, unless each has a part of its own."""
    found: dict[str, list[Upstream]] = {}
    for upstream in upstreams:
        found.setdefault(upstream.group or upstream.model or f"/{upstream.name}", []).append(upstream)
    return list(found.values())


def _models(proxy: Proxy) -> dict[str, list[tuple[list[Upstream], int]]]:
    """What names lead to: servers that share requests, and their part of a hundred. All of a name do the same."""
    found = groups(proxy.upstreams)
    alone = {upstream.name: group for group in found for upstream in group}
    shared = {name: [(group, 100)] for group in found for name in group[0].names}
    return shared | {name: [(alone[server], part) for server, part in parts.items()] for name, parts in proxy.models.items()}


def _name(group: Sequence[Upstream]) -> str:
    return "+".join(upstream.name for upstream in group)


def _grpc(one: Upstream) -> str:
    return f"{one.name}/grpc"


def clusters(proxy: Proxy) -> Iterator[dict[str, Any]]:
    for group in groups(proxy.upstreams):
        # Nobody sees how a request of the KServe API begins, and sounds have no prefix that a cache keeps.
        begins = bool(group[0].model) and group[0].paths != FORM_PATHS
        hashed = proxy.spread == "sessions" or (proxy.spread == "prefixes" and begins)
        places = [(upstream.host, upstream.port) for upstream in group]
        yield _cluster(_name(group), places, proxy, hashed=hashed, picked=bool(group[0].picker), protocol=_HTTP1)
        if group[0].picker:
            yield _picker(group, proxy.picks_at_once)
        for upstream in group:
            if upstream.grpc_port:
                there = [(upstream.host, upstream.grpc_port)]
                yield _cluster(_grpc(upstream), there, proxy, hashed=hashed, protocol=_HTTP2)


def _cluster(
    name: str,
    places: Sequence[tuple[str, int]],
    proxy: Proxy,
    *,
    hashed: bool,
    picked: bool = False,
    protocol: Mapping[str, Any],
) -> dict[str, Any]:
    # Envoy's own limits (1024) would refuse requests that a server could queue.
    most = proxy.concurrent_requests or _UNLIMITED
    limits = {"max_connections": _UNLIMITED, "max_pending_requests": _UNLIMITED, "max_requests": most, "max_retries": _UNLIMITED}
    spread = (
        # A pod with a quarter more than its part gives requests to the next one.
        {"lb_policy": "RING_HASH", "common_lb_config": {**_COMMON, "consistent_hashing_lb_config": {"hash_balance_factor": 125}}}
        if hashed
        else {"load_balancing_policy": _PICKED if picked else _policies(_LEAST_REQUESTS), "common_lb_config": _COMMON}
    )
    return {
        "name": name,
        "cluster_type": _BY_DNS,
        **spread,
        "connect_timeout": seconds(CONNECT_SECONDS),
        "upstream_bind_config": _TO_SERVERS,
        "circuit_breakers": {"thresholds": [limits]},
        # A pod that refuses one connection rests, or with no request it would be chosen again and again. What a server answers,
        # also with 500, says nothing about the pod.
        "outlier_detection": {
            "split_external_local_origin_errors": True,
            "consecutive_local_origin_failure": 1,
            "enforcing_consecutive_local_origin_failure": 100,
            "enforcing_local_origin_success_rate": 0,
            "enforcing_consecutive_5xx": 0,
            "enforcing_consecutive_gateway_failure": 0,
            "enforcing_success_rate": 0,
            "base_ejection_time": seconds(REST_SECONDS),
            "max_ejection_percent": 100,
        },
        "load_assignment": _at(name, places),
        "typed_extension_protocol_options": _speaking(protocol, common_http_protocol_options={"max_requests_per_connection": 1}),
    }


def _picker(group: Sequence[Upstream], most: int) -> dict[str, Any]:
    name = asked_over(group)["envoy_grpc"]["cluster_name"]
    return {
        "name": name,
        "cluster_type": _BY_DNS,
        "connect_timeout": "1s",
        # As many as it has memory for. One that waits for a connection could no longer do without a pick, so others do not wait.
        "circuit_breakers": {"thresholds": [{"max_requests": most, "max_pending_requests": 1}]},
        # Nothing is asked of a picker that is known to be away: requests go on without a pick. One that Envoy asks has to answer,
        # as the request is then on its way to it.
        "health_checks": [
            {
                "timeout": "1s",
                "interval": "1s",
                "no_traffic_interval": "1s",
                "unhealthy_threshold": 1,
                "healthy_threshold": 1,
                "grpc_health_check": {"service_name": PICKER_SERVICE},
            }
        ],
        # A pod that goes leaves DNS first, and is healthy for some seconds more.
        "ignore_health_on_host_removal": True,
        "common_lb_config": {**_COMMON, "healthy_panic_threshold": {"value": 0}},
        "load_assignment": _at(name, [(group[0].picker, PICKER_PORT)]),
        "typed_extension_protocol_options": _speaking(
            _HTTP2, common_http_protocol_options={"max_stream_duration": seconds(_PICK_SECONDS)}
        ),
    }


def _at(name: str, places: Sequence[tuple[str, int]]) -> dict[str, Any]:
    return {
        "cluster_name": name,
        "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address(*place)}} for place in places]}],
    }


def _speaking(protocol: Mapping[str, Any], **common: Any) -> dict[str, Any]:
    return {
        "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
            "@type": f"{EXTENSIONS}.upstreams.http.v3.HttpProtocolOptions",
            **common,
            "explicit_http_config": protocol,
        }
    }
