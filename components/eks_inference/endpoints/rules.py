"""Rules about endpoints. Ids END…"""

from collections.abc import Iterator

from eks_inference.endpoints.facts import EndpointFacts
from eks_inference.endpoints.picker import why_not
from eks_inference.endpoints.proxy import WORKERS
from eks_inference.quantity import amount
from eks_inference.rules import Judgement, rule

_IDLE_MIB = 96
_COPIES = 7
"""Memory of a proxy without requests, and of a request that is parsed, as a multiple of its size. Measured with Envoy 1.40.0:
75 MiB, and 6.6 for requests of 32 and 64 MiB."""


@rule(
    "END001",
    "A proxy has the memory to parse the largest requests.",
    fix="raise memory, or lower largest_request_mib",
    source=f"measured with Envoy 1.40.0 (json_to_metadata): {_IDLE_MIB} MiB, and on each of {WORKERS} threads {_COPIES} times "
    "the request that it parses",
)
def parses_the_largest(endpoint: EndpointFacts) -> Iterator[Judgement]:
    spec, given = endpoint.spec, int(amount(endpoint.spec.memory)) >> 20
    needed = _IDLE_MIB + WORKERS * _COPIES * spec.largest_request_mib
    yield Judgement(
        holds=given >= needed,
        path=endpoint.at("memory"),
        working=(f"{_IDLE_MIB} + {WORKERS} x {_COPIES} x {spec.largest_request_mib} MiB = {needed} MiB; memory: {given} MiB",),
        message="two of the largest requests at once get the pod killed, with the answers of all others",
        given=spec.memory,
        allowed=f"at least {needed}Mi, or largest_request_mib of at most {max((given - _IDLE_MIB) // (WORKERS * _COPIES), 0)}",
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
    "Nobody gets past an endpoint that asks for keys.",
    severity="warning",
    fix="set client_namespaces of the server to labels of the namespaces that may call it without a key; the endpoint always may",
    source="Kubernetes, NetworkPolicy; without client_namespaces a server admits every pod of the cluster",
)
def nobody_gets_past(endpoint: EndpointFacts) -> Iterator[Judgement]:
    for name, server in endpoint.servers.items() if endpoint.spec.keys else ():
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
    fix="put servers of kind vllm into one namespace, or choose another spread: prefixes, least_requests or sessions",
    source="llm-d-router v0.10.0, pkg/epp/server/options.go (--pool-namespace, one; the metrics that it reads); Ray Serve's and "
    "routers' pods show clients none of an engine",
)
def a_picker_can_watch(endpoint: EndpointFacts) -> Iterator[Judgement]:
    models: dict[str, dict[str, tuple[str, bool]]] = {}
    for name, server in endpoint.servers.items() if endpoint.spec.spread == "endpoint_picker" else ():
        if server.model:
            models.setdefault(server.model, {})[name] = (server.namespace, server.tells_load)
    for model, servers in models.items():
        found = list(why_not(model, servers))
        yield Judgement(
            holds=not found,
            path=endpoint.at("spread"),
            working=tuple(
                f"{name} in {namespace}: {'pods tell' if tells else 'no pod tells'} vLLM's metrics to clients"
                for name, (namespace, tells) in servers.items()
            ),
            message="; ".join(message for message, _ in found),
            given="endpoint_picker",
            allowed="prefixes, least_requests, sessions",
        )
