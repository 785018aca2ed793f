"""The settings of an endpoint: one address for the models of several servers, and which of them answer to a model's name."""

import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Self

from pydantic import Field, model_validator

from eks_inference.catalog.models import Task
from eks_inference.endpoints.proxy import Spread
from eks_inference.faults import Fault, did_you_mean
from eks_inference.images.spec import PinnedImage
from eks_inference.pools.spec import Distinct, LabelKey, LabelValue
from eks_inference.serving.traffic import TrafficSpec
from eks_inference.specs.base import Cpu, ExistingNamespace, Memory, Namespace, ResourceName, Spec, follows

LONGEST_SILENCE_SECONDS = 600
"""What an endpoint allows unless it says otherwise: a long prompt on a busy server takes minutes before its first token."""


class PickerSpec(Spec):
    """The pods that pick: one for each model of the endpoint (llm-d's endpoint picker)."""

    image: PinnedImage | None = Field(default=None, description="Image that replaces the pinned one.")
    cpu: Cpu = Field(default="500m", description="CPU request of a picker. There is no limit.")
    memory: Memory = Field(default="1Gi", description="Memory request and limit of a picker, which remembers prompts.")


class ModelEndpointSpec(Spec):
    """One address for several models: an Envoy proxy that knows clients by their keys and servers by the model they serve."""

    namespace: Namespace | None = Field(
        default=None, description="Namespace of the proxy. The component creates it. Absent: the name of the endpoint."
    )
    servers: Distinct[ResourceName] = Field(
        default=(),
        description="Servers behind the endpoint, by name; at most one with the KServe API. Absent: all with an OpenAI API.",
    )
    models: dict[str, dict[ResourceName, Annotated[int, Field(ge=0, le=100)]]] = Field(
        default_factory=dict,
        description="Percentages of the requests for a name that go to each of several servers: {chat: {blue: 90, green: 10}}. "
        "Every server answers to the name (served-model-name). With spread: prefixes or sessions a conversation keeps its side. "
        "Absent: a name leads to the servers of its model, which share its requests by their number.",
    )
    traffic: dict[str, TrafficSpec] = Field(
        default_factory=dict,
        description="What clients ask for each name at the busiest time, e.g. {chat: {rate: 5, input_tokens: 1000, "
        "output_tokens: 250}}. Servers behind the name get their percentages of models, or shares by their pods; each is judged "
        "by its objectives (TRF001). Autoscalers follow it, too, unless shares follow from pods. Default: nothing is judged.",
    )
    image: PinnedImage | None = Field(default=None, description="Image that replaces the pinned one; it needs /bin/bash.")
    replicas: int = Field(default=2, ge=1, le=50, description="Pods of the proxy, on different nodes where there are several.")
    keys: bool = Field(
        default=True,
        description="Whether a request needs the key of a client (Authorization: Bearer …). The secret endpointKeys has the "
        "keys. false: anyone who reaches the endpoint may ask.",
    )
    requests_per_minute: int | None = Field(
        default=None,
        ge=1,
        le=1_000_000,
        description="The most requests a minute from each client; further ones get status 429. Each pod of the proxy "
        "counts by itself and gets an equal share. Absent: no limit. Needs keys.",
    )
    requests_per_minute_by_model: dict[str, Annotated[int, Field(ge=1, le=1_000_000)]] = Field(
        default_factory=dict,
        description="The most requests a minute from each client to a model, by its name in requests; in addition to "
        "requests_per_minute, and counted in the same way. Needs keys.",
    )
    concurrent_requests: int | None = Field(
        default=None,
        ge=1,
        le=1_000_000,
        description="Most requests that the servers of a model work on at once; the others are answered with status 503. Every "
        "pod of the proxy counts for itself and gets an equal part. Absent: no limit, and servers queue.",
    )
    spread: Spread = Field(
        default="prefixes",
        description="Which pod of a model answers. prefixes: the pod of the X-Session-Id if a client sends one, else the pod "
        "that got the requests with the same first words of a user or prompt, because its cache holds the conversation. "
        "sessions: only by X-Session-Id. least_requests: the pod with the fewest requests. By prefixes and sessions, a pod "
        "with a quarter more than its part gives requests to the next one. Requests of the KServe API go by sessions or to the "
        "pod with the fewest. endpoint_picker: the pod that llm-d's endpoint picker names, by waiting requests, free memory "
        "and prompts already read; for servers of kind vllm.",
    )
    picker: PickerSpec | None = Field(
        default=None, description="The pods that pick. Needs spread: endpoint_picker. Absent: with its defaults."
    )
    longest_silence_seconds: int = Field(
        default=LONGEST_SILENCE_SECONDS,
        ge=10,
        le=4000,
        description="Seconds that an answer may stay silent before the proxy ends it: enough for the first token of the longest "
        "prompt on a busy server, and for a whole answer that does not stream. An answer that flows may take any time.",
    )
    drain_seconds: int = Field(
        default=900,
        ge=10,
        le=7200,
        description="How long a pod of the proxy that ends waits for answers in progress, in seconds.",
    )
    largest_request_mib: int = Field(
        default=16,
        ge=1,
        le=256,
        description="Largest request in MiB. The proxy reads a request whole to find its model, which takes up to 3 times its "
        "size of memory (END001).",
    )
    cpu: Cpu = Field(default="500m", description="CPU request of a pod of the proxy. There is no limit.")
    memory: Memory = Field(default="1Gi", description="Memory request and limit of a pod of the proxy.")
    behind_load_balancer: bool = Field(
        default=False,
        exclude_if=operator.not_,
        json_schema_extra=follows,
        description="Whether a load balancer sends requests to the pods: they are then ready only once it finds them healthy, "
        "and take requests for longer when they end. Absent: true where the gateway has a route to the endpoint.",
    )
    client_namespaces: dict[LabelKey, LabelValue] = Field(
        default_factory=dict, description="Labels of the namespaces that may connect. Absent: all namespaces of the cluster."
    )
    metrics_namespaces: tuple[ExistingNamespace, ...] = Field(
        default=("monitoring",), description="Namespaces whose pods may read metrics: those of Prometheus."
    )

    @model_validator(mode="after")
    def _clients_are_known(self) -> Self:
        if (self.requests_per_minute or self.requests_per_minute_by_model) and not self.keys:
            raise ValueError("requests_per_minute counts each client, and only keys tell clients apart: say keys: true")
        if self.picker and self.spread != "endpoint_picker":
            raise ValueError("picker is about the pods that pick, and there are none: say spread: endpoint_picker")
        for model, parts in self.models.items():
            if (total := sum(parts.values())) != 100:
                raise ValueError(f"models: the parts of {model} make {total} of 100")
        return self

    @property
    def weighed(self) -> frozenset[str]:
        """Servers that get percentages, so that they share no requests by their number."""
        return frozenset(server for parts in self.models.values() for server in parts)

    def group_of(self, server: str, model: str) -> str:
        """Returns what the servers that share requests with this one have in common."""
        return f"/{server}" if server in self.weighed or model in self.models else model

    def shares(self, name: str, pods: Mapping[str, int]) -> dict[str, float]:
        """Returns the share of the requests for a name that each of its servers gets. ``pods``: of those that answer to it."""
        parts = self.models.get(name, pods)
        return {server: part / sum(parts.values()) for server, part in parts.items() if part}

    @property
    def picks(self) -> PickerSpec:
        """The pods that pick, if there are any."""
        return self.picker or PickerSpec()

    def namespace_of(self, name: str) -> str:
        """Returns the namespace of the endpoint ``name``."""
        return self.namespace or name


def name_faults(spec: ModelEndpointSpec, names: Mapping[str, Sequence[str]], does: Mapping[str, Task]) -> Iterator[Fault]:
    """Yields what is wrong with the names that lead to servers: those that each answers to, and what it does."""
    known = dict.fromkeys(name for own in names.values() for name in own)
    for model, parts in spec.models.items():
        if len(tasks := {does[server] for server in parts if server in does}) > 1:
            yield Fault(("models", model), "its servers have several tasks", ", ".join(sorted(tasks)), "servers of one task")
        for server in parts:
            path = ("models", model, server)
            if server not in names:
                message, allowed = "the endpoint has no server of this name with an OpenAI API", ", ".join(names)
                yield Fault(path, message, server, allowed, did_you_mean(server, names))
            elif model not in names[server]:
                hint = f"give {server} both names: extra_args: {{served-model-name: [{', '.join((*names[server], model))}]}}"
                yield Fault(path, f"{server} does not answer to {model}", model, ", ".join(names[server]), hint)
    for model in (one for one in known if one not in spec.models):
        several = [server for server, own in names.items() if model in own]
        apart = len({spec.group_of(server, names[server][0]) for server in several}) > 1
        if len(tasks := {does[server] for server in several}) > 1:
            hint = f"say which it leads to: models: {{{model}: {{{several[0]}: 100}}}}; or make an endpoint for each"
            yield Fault(("servers",), f"{model} leads to servers of several tasks", ", ".join(sorted(tasks)), "one task", hint)
        elif apart or len({frozenset(names[server]) for server in several}) > 1:
            why = "do not share its requests by their number" if apart else "do not answer to the same names"
            shares = ", ".join(f"{server}: {100 * (server == several[0])}" for server in several)
            hint = f"say their parts: models: {{{model}: {{{shares}}}}}; or make an endpoint for each"
            yield Fault(("servers",), f"{model} leads to {' and '.join(several)}, which {why}", model, "parts", hint)
    hear = [server for server in names if does.get(server) == "transcribe"]
    heard = {
        model: spec.models.get(model) or [one for one in hear if model in names[one]] for one in hear for model in names[one]
    }
    if len({str(parts) for parts in heard.values()}) > 1:
        message, hint = "the path alone leads to what hears, as its requests are forms", "make an endpoint for each"
        yield Fault(("servers",), message, ", ".join(heard), "one model", hint)
    known = {model: None for model in known if model not in heard or model in (names[one][0] for one in hear)}
    for key in ("requests_per_minute_by_model", "traffic"):
        for model in sorted(getattr(spec, key).keys() - known):
            yield Fault((key, model), "requests name no such model", model, ", ".join(known))
