"""Secrets of the configuration that a stack needs. Pure; no pulumi."""

from collections.abc import Collection, Iterator

from eks_inference.catalog.models import is_gated
from eks_inference.faults import Fault
from eks_inference.serving.features import EngineFeatures
from eks_inference.serving.spec import HubModel
from eks_inference.stack.spec import StackSpec


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
