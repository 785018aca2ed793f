"""Plans what the proxy of an endpoint refuses by itself, and what it says then. Pure functions; no pulumi.

Sources: Envoy 1.40.0, API reference v3 (local rate limit, local reply modification); OpenAI API reference, error object;
Anthropic API reference, errors.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from eks_inference.endpoints.proxy import CLIENT_HEADER, METADATA, STATS, http_filter, where_known
from eks_inference.serving.paths import MESSAGES_PATH

_MOST_CLIENTS = 100_000
"""More than a Secret has keys of."""
_UNLIMITED = 1_000_000
_CLIENT = {"request_headers": {"header_name": CLIENT_HEADER, "descriptor_key": "client"}}
_MODEL = {
    "metadata": {"descriptor_key": "model", "metadata_key": {"key": METADATA, "path": [{"key": "model"}]}, "source": "DYNAMIC"}
}


def _limit(told: Sequence[Any], limits: Sequence[tuple[Sequence[Any], int]]) -> dict[str, Any]:
    """Limits requests a minute by what is told of them."""
    everyone = {"default_value": {"numerator": 100, "denominator": "HUNDRED"}}
    return http_filter(
        "local_ratelimit",
        "local_ratelimit.v3.LocalRateLimit",
        stat_prefix=STATS,
        rate_limits=[{"actions": told}],
        descriptors=[
            {"entries": entries, "token_bucket": {"max_tokens": most, "tokens_per_fill": most, "fill_interval": "60s"}}
            for entries, most in limits
        ],
        token_bucket={"max_tokens": _UNLIMITED, "tokens_per_fill": _UNLIMITED, "fill_interval": "1s"},
        # By default the buckets of the last 20 clients are kept, and one that is made anew is full.
        max_dynamic_descriptors=_MOST_CLIENTS,
        always_consume_default_token_bucket=False,
        enable_retry_after_header=True,
        filter_enabled=everyone,
        filter_enforced=everyone,
    )


def by_client(most: int) -> dict[str, Any]:
    """Limits the requests a minute of each client, whose name is no value here: a bucket for every value that comes."""
    return _limit([_CLIENT], [([{"key": "client"}], most)])


def by_model(limits: Mapping[str, int]) -> dict[str, Any]:
    """Limits the requests a minute of each client for a model."""
    each = [([{"key": "client"}, {"key": "model", "value": name}], most) for name, most in limits.items()]
    return _limit([_CLIENT, _MODEL], each)


def error(path: str, message: str, code: str, type_: str = "invalid_request_error") -> dict[str, Any]:
    """An error as clients of the API at this path read it."""
    if path.startswith(MESSAGES_PATH):
        return {"type": "error", "error": {"type": _OF_ANTHROPIC.get(code, type_), "message": message}}
    return {"error": {"message": message, "type": type_, "param": None, "code": code}}


def replies() -> dict[str, Any]:
    """Has the proxy's own refusals be errors of the API that is asked. gRPC's refusals stay unchanged."""
    return {"mappers": [_reply(path, *one) for path in (MESSAGES_PATH, "/") for one in _REPLIES]}


_OF_ANTHROPIC = {
    "model_not_found": "not_found_error",
    "not_found": "not_found_error",
    "overloaded": "overloaded_error",
    "request_too_large": "request_too_large",
    "timeout": "timeout_error",
    "unavailable": "overloaded_error",
}
"""Types of the Messages API where they differ, by the code of the OpenAI API."""
_REPLIES = (
    # Of a picker, about what it cannot read. Those of routes are of requests that name no model.
    (400, "%LOCAL_REPLY_BODY%", "invalid_request", "invalid_request_error"),
    (401, "no valid key in the header Authorization: Bearer …", "invalid_api_key", "authentication_error"),
    (413, "the request is larger than the endpoint takes (largest_request_mib)", "request_too_large", "invalid_request_error"),
    (429, "more requests a minute than the endpoint allows", "rate_limit_exceeded", "rate_limit_error"),
    (500, "the endpoint is short of memory; try again", "overloaded", "server_error"),
    (503, "no server of the model takes the request now; try again", "unavailable", "server_error"),
    (504, "no byte of an answer for too long", "timeout", "server_error"),
)


def _reply(path: str, status: int, message: str, code: str, type_: str) -> dict[str, Any]:
    refused = {"comparison": {"op": "EQ", "value": {"default_value": status, "runtime_key": f"endpoint.{status}"}}}
    grpc = {"name": "content-type", "string_match": {"prefix": "application/grpc"}, "treat_missing_header_as_empty": True}
    headers = ({**grpc, "invert_match": True}, {"name": ":path", "string_match": {"prefix": path}})
    filters = [{"status_code_filter": refused}, *({"header_filter": {"header": header}} for header in headers)]
    if status == 400:
        filters.append(where_known("model"))
    told = error(path, message, code, type_)
    return {"filter": {"and_filter": {"filters": filters}}, "body_format_override": {"json_format": told}}
