"""What the proxy of an endpoint does, as data: its servers, limits, ports and paths. Pure; no pulumi."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any, Literal

from eks_inference.serving.paths import ASKING_PATHS

Spread = Literal["endpoint_picker", "least_requests", "prefixes", "sessions"]
"""Which pod of a model answers: the one that a picker names, the one with the fewest requests, the one that knows how the
conversation begins, or the one that knows the session."""

ENDPOINT_LABEL = "eks-inference/endpoint"
"""Label of every pod of an endpoint. Its value is the endpoint's name."""
ENDPOINT_NAME = {
    "action": "replace",
    "sourceLabels": [f"__meta_kubernetes_pod_label_{ENDPOINT_LABEL.replace('-', '_').replace('/', '_')}"],
    "targetLabel": "endpoint_name",
}
"""The relabeling that makes it a label of metrics."""

API_PORT = 8080
HEALTH_PORT = 8081
"""Answers ``METRICS_PATH``, and like ``API_PORT`` ``HEALTH_PATH``."""
ADMIN_PORT = 9901
"""Open on the pod's loopback address only, because its clients may stop the proxy."""

WORKERS = 2
"""Threads of a proxy."""
IDLE_MIB = 96
HELD = 3
"""Memory of a proxy without requests, and of a request that is read and passed on, as a multiple of its size, whatever is in it.
Measured with Envoy 1.40.0: 69 MiB; 2.2 for one request of which a copy is kept in case a pod refuses it."""
_PASSING = 3 / 4
"""Part of the memory for idling, and for a request on each thread. The rest is for connections and for bodies that wait."""


def largest_request_mib(memory_bytes: int) -> int:
    """Returns the largest request for which a proxy with so much memory has room, in whole MiB."""
    return int(memory_bytes * _PASSING / (1 << 20) - IDLE_MIB) // (WORKERS * HELD)


def needed_mib(largest_mib: int) -> int:
    """Returns the memory, in MiB, for requests of up to this size."""
    return ceil((IDLE_MIB + WORKERS * HELD * largest_mib) / _PASSING)


HEALTH_PATH = "/ready"
METRICS_PATH = "/stats/prometheus"
SESSION_HEADER = "x-session-id"
"""By which a client tells that requests belong together, as vllm-router reads it, too."""
CLIENT_HEADER = "x-endpoint-client"
"""Tells servers which client asks. The proxy drops a client's own header of this name."""

PICKED_HEADER = "x-gateway-destination-endpoint"
"""By which a picker names pods, as address and port (Gateway API Inference Extension, endpoint picker protocol)."""
PICKED_BYTES = 1 << 19
"""The largest request that a picker reads, some 130,000 tokens of a text. It makes a tree of it."""
PICKER_PORT = 9002
"""At which a picker is asked."""
PICKER_SERVICE = "envoy.service.ext_proc.v3.ExternalProcessor"
"""The service of gRPC by which it is asked."""

KEYS_FILTER = "envoy.filters.http.api_key_auth"
BUFFER_FILTER = "envoy.filters.http.buffer"
PICKER_FILTER = "envoy.filters.http.ext_proc"
SERVER_KEY = "server-key"
"""Names of filters, and of what Envoy reads from the files ``plan.py`` writes."""

KSERVE_PATHS = (
    r"/v2(/health/(live|ready)|/models/stats)?",
    r"/v2/models/[^/]+(/versions/[^/]+)?(/(ready|config|stats))?",
    r"/v2/models/[^/]+(/versions/[^/]+)?/(infer|generate|generate_stream)",
)
KSERVE_METHODS = (
    r"/inference\.GRPCInferenceService/(ServerLive|ServerReady|ServerMetadata|ModelReady|ModelMetadata)",
    r"/inference\.GRPCInferenceService/(ModelConfig|ModelStatistics|ModelInfer|ModelStreamInfer)",
)
"""Paths of the KServe v2 API that are passed on, over HTTP and gRPC, in several patterns because Envoy bounds the size of each.
Triton serves others there, too, that change the server: it loads models, maps shared memory, and writes traces and logs."""

STATS = "endpoint"
"""Begins the names of metrics about requests."""
EXTENSIONS = "type.googleapis.com/envoy.extensions"
KEYS_TYPE = f"{EXTENSIONS}.filters.http.api_key_auth.v3.ApiKeyAuth"
METADATA = "openai"
"""Where filters leave the name of the model, by which routes are chosen, how a conversation begins, and what an answer took."""
PREFIX = "prefix"
TOKENS = ("prompt_tokens", "generation_tokens")
"""What is counted of answers, as metrics, and said in the log."""
CONNECT_SECONDS = 5
ADMIN_CLUSTER = "envoy/admin"
"""A name that no server can have."""


@dataclass(frozen=True)
class Upstream:
    """A server behind the endpoint."""

    name: str
    host: str
    """A name that resolves to its pods."""
    port: int
    model: str = ""
    """Name of the model in requests; empty for the KServe API, where paths name it. Servers of one model share its requests."""
    other_names: Sequence[str] = ()
    """Further names in requests, such as those of adapters: the same ones for all servers of a model."""
    grpc_port: int | None = None
    picker: str = ""
    """A name that resolves to the picker of the model's pods; empty: there is none."""
    paths: Sequence[str] = ASKING_PATHS
    """Where the model is asked, if it has a name."""
    group: str = ""
    """Servers of one group share requests; empty: that of its model."""

    @property
    def names(self) -> tuple[str, ...]:
        """All names that a request may have."""
        return (self.model, *self.other_names) if self.model else ()


@dataclass(frozen=True)
class Proxy:
    """What the configuration of one pod of the proxy depends on. Limits are those of this pod."""

    upstreams: Sequence[Upstream]
    keys_file: str | None = None
    """Where the clients' keys are; None: nobody needs one."""
    server_key_file: str | None = None
    """Where the key is that servers demand; None: they demand none."""
    requests_per_minute: int | None = None
    requests_per_model: Mapping[str, int] = field(default_factory=dict)
    """Requests a minute of each client, by the model's name."""
    concurrent_requests: int | None = None
    models: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Percentages of the requests for a name, by server."""
    spread: Spread = "least_requests"
    silence_seconds: int = 600
    largest_request_bytes: int = 16 << 20
    memory_bytes: int = 1 << 30
    """Memory limit of the pod."""
    address: str = "0.0.0.0"
    api_port: int = API_PORT
    health_port: int = HEALTH_PORT
    admin_port: int = ADMIN_PORT

    picks_at_once: int = 1
    """Requests that a picker may read at the same time; the others go to the pod with the fewest."""

    @property
    def picks(self) -> bool:
        """Whether a model has a picker."""
        return any(upstream.picker for upstream in self.upstreams)


def address(host: str, port: int) -> dict[str, Any]:
    """Returns an address as Envoy has it."""
    return {"socket_address": {"address": host, "port_value": port}}


def http_filter(name: str, type_: str, **fields: Any) -> dict[str, Any]:
    """Returns a filter of requests as Envoy has it."""
    full = name if "." in name else f"envoy.filters.http.{name}"
    return {"name": full, "typed_config": {"@type": f"{EXTENSIONS}.filters.http.{type_}", **fields}}


def says(key: str, value: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what has to have been read of a request, as Envoy has it."""
    return {"filter": METADATA, "path": [{"key": key}], "value": value}


def where_known(key: str) -> dict[str, Any]:
    """Returns the filter of what is logged or answered that leaves out requests of which this is not known."""
    return {"metadata_filter": {"matcher": says(key, {"present_match": True}), "match_if_key_not_found": False}}


def seconds(count: int) -> str:
    """Returns a duration as Envoy has it."""
    return f"{count}s"
