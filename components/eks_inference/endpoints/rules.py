"""Rules about endpoints. Ids END…"""

from collections.abc import Iterator

from eks_inference.endpoints.facts import EndpointFacts
from eks_inference.endpoints.picker import why_not
from eks_inference.endpoints.proxy import IDLE_MIB, PARSED, WORKERS, largest_request_mib, needed_mib
from eks_inference.quantity import amount
from eks_inference.rules import Judgement, rule


@rule(
    "END001",
    "A proxy has the memory to parse the largest requests.",
    fix="raise memory, or lower largest_request_mib or leave it out",
    source=f"measured with Envoy 1.40.0 (json_to_metadata): {IDLE_MIB} MiB, and on each of {WORKERS} threads up to {PARSED} "
    "times the request that it parses, for a list of numbers of one digit; a quarter of the memory is for connections and bodies "
    "that wait",
)
def parses_the_largest(endpoint: EndpointFacts) -> Iterator[Judgement]:
    spec, given = endpoint.spec, int(amount(endpoint.spec.memory))
    if not any(server.model for server in endpoint.servers.values()):
        return  # paths name the models of the KServe API, and nothing is parsed
    largest = spec.largest_mib
    needed, most = needed_mib(largest), largest_request_mib(given)
    asked = f"largest_request_mib: {largest}" if spec.largest_request_mib else "the smallest that there is, 1 MiB"
    lower = f", or largest_request_mib of at most {most}" if most < largest else ""
    yield Judgement(
        holds=given >= needed << 20,
        path=endpoint.at("memory"),
        working=(
            f"({IDLE_MIB} + {WORKERS} x {PARSED} x {largest} MiB) / 0.75 = {needed} MiB; memory: {given >> 20} MiB ({asked})",
        ),
        message="two of the largest requests at once get the pod killed, with the answers of all others",
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
