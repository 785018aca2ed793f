"""Rules about endpoints. Ids END…"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import ceil
from typing import ClassVar

from eks_inference.endpoints import picker
from eks_inference.endpoints.proxy import HELD, IDLE_MIB, PICKED_BYTES, WORKERS, largest_request_mib, needed_mib
from eks_inference.endpoints.spec import ModelEndpointSpec
from eks_inference.place.nodes import amount
from eks_inference.rules import Judgement, rule


@dataclass(frozen=True)
class ServerBehind:
    """A server behind an endpoint."""

    limited: bool
    """Whether only some namespaces may call it past the endpoint."""
    answer_seconds: int
    """How long a terminating pod goes on with the requests it has: the longest answer that the library expects."""
    model: str = ""
    """Name of the model in requests; empty for the KServe API."""
    namespace: str = ""
    tells_load: bool = False
    """Whether clients reach pods that tell vLLM's metrics of their load."""
    writes: bool = True
    """Whether a picker is asked for it: for one that writes."""


@dataclass(frozen=True)
class EndpointFacts:
    """An endpoint in its stack, with its servers by name."""

    about: ClassVar[str] = "endpoints"

    name: str
    spec: ModelEndpointSpec
    servers: Mapping[str, ServerBehind]
    written: bool = True
    """Whether the stack has it. One that a route makes guards the way in from outside, and nobody asked for more."""

    def at(self, key: str) -> tuple[str, ...]:
        """Returns the path of a key of the endpoint in the stack."""
        return ("endpoints", self.name, key)


@rule(
    "END001",
    "A proxy has the memory for the largest requests.",
    fix="raise memory, or lower largest_request_mib",
    source=f"measured with Envoy 1.40.0: {IDLE_MIB} MiB, and on each of {WORKERS} threads {HELD} times the request that it "
    "passes on, whatever is in it; a quarter of the memory is for connections and bodies that wait",
)
def holds_the_largest(endpoint: EndpointFacts) -> Iterator[Judgement]:
    spec, given = endpoint.spec, int(amount(endpoint.spec.memory))
    held = any(server.model for server in endpoint.servers.values())  # paths name the models of the KServe API
    largest, most = spec.largest_request_mib if held else 0, largest_request_mib(given) if held else 0
    needed = needed_mib(largest)
    lower = f", or largest_request_mib of at most {most}" if most > 0 else ""
    yield Judgement(
        holds=given >= needed << 20,
        path=endpoint.at("memory"),
        working=(f"({IDLE_MIB} + {WORKERS} x {HELD} x {largest} MiB) / 0.75 = {needed} MiB; memory: {given >> 20} MiB",),
        message="two of the largest requests at once get the pod killed, with the answers of all others"
        if held
        else "a pod of the proxy is killed for memory before it has a request",
        given=spec.memory,
        allowed=f"at least {needed}Mi{lower}",
    )


@rule(
    "END002",
    "An endpoint waits for as long as an answer may take.",
    severity="warning",
    fix="raise longest_silence_seconds: an answer that is not streamed sends nothing until it is whole",
    source="Envoy 1.40.0, stream_idle_timeout: a stream without a byte for so long is ended, with 504 for the client",
)
def waits_for_answers(endpoint: EndpointFacts) -> Iterator[Judgement]:
    given = endpoint.spec.longest_silence_seconds
    for name, server in endpoint.servers.items():
        yield Judgement(
            holds=given >= server.answer_seconds,
            path=endpoint.at("longest_silence_seconds"),
            working=(f"silent for {given} s at most; {name} is given {server.answer_seconds} s for an answer",),
            message=f"answers of {name} that take longer than {given} s are cut",
            given=str(given),
            allowed=f"at least {server.answer_seconds}",
        )


@rule(
    "END003",
    "Clients cannot bypass an endpoint that asks for keys.",
    severity="warning",
    fix="set client_namespaces of the server to labels of the namespaces that may call it without a key; the endpoint always may",
    source="Kubernetes, NetworkPolicy; without client_namespaces a server admits every pod of the cluster",
)
def nobody_gets_past(endpoint: EndpointFacts) -> Iterator[Judgement]:
    for name, server in endpoint.servers.items() if endpoint.spec.keys and endpoint.written else ():
        yield Judgement(
            holds=server.limited,
            path=("servers", name, "client_namespaces"),
            working=(
                f"{name} admits {'some namespaces' if server.limited else 'every pod of the cluster'} past {endpoint.name}",
            ),
            message=f"any pod of the cluster reaches {name} without the key that endpoint {endpoint.name} asks for",
            given="none",
            allowed="labels of namespaces",
        )


@rule(
    "END004",
    "An endpoint picker can watch the pods of each model.",
    fix="put servers of kind vllm into one namespace, leave disable-log-stats out, or choose another spread: prefixes, "
    "least_requests or sessions",
    source="llm-d-router v0.10.0, pkg/epp/server/options.go (--pool-namespace, one; the metrics that it reads); Ray Serve's and "
    "routers' pods show clients no metrics of an engine",
)
def a_picker_can_watch(endpoint: EndpointFacts) -> Iterator[Judgement]:
    models: dict[str, dict[str, tuple[str, bool]]] = {}
    for name, server in endpoint.servers.items() if endpoint.spec.spread == "endpoint_picker" else ():
        if server.model and server.writes:
            models.setdefault(endpoint.spec.group_of(name, server.model), {})[name] = (server.namespace, server.tells_load)
    for model, servers in models.items():
        found = list(picker.why_not(model, servers))
        yield Judgement(
            holds=not found,
            path=endpoint.at("spread"),
            working=tuple(
                f"{name} in {namespace}: {'pods show' if tells else 'no pod shows'} vLLM's metrics to clients"
                for name, (namespace, tells) in servers.items()
            ),
            message="; ".join(message for message, _ in found),
            given="endpoint_picker",
            allowed="prefixes, least_requests, sessions",
        )


@rule(
    "END005",
    "An endpoint picker has the memory to parse what the proxies send it.",
    fix="raise memory of the picker, or lower replicas of the endpoint",
    source=f"measured with Go 1.26: {picker.IDLE_MIB} MiB, and {picker.PARSED} times each request, which has at most "
    f"{PICKED_BYTES >> 10} KiB; a quarter of the memory is for garbage and what it remembers",
)
def a_picker_has_memory(endpoint: EndpointFacts) -> Iterator[Judgement]:
    spec = endpoint.spec
    if spec.spread != "endpoint_picker":
        return
    most = picker.picks_at_once(int(amount(spec.picks.memory)), spec.replicas)
    needed = ceil((picker.IDLE_MIB + picker.PARSED * spec.replicas * PICKED_BYTES / (1 << 20)) * 4 / 3)
    yield Judgement(
        holds=most >= 1,
        path=(*endpoint.at("picker"), "memory"),
        working=(f"{spec.picks.memory}: each of {spec.replicas} proxies may have it read {most} requests at once",),
        message="a request from each proxy at once gets the picker killed",
        given=spec.picks.memory,
        allowed=f"at least {needed}Mi",
    )
