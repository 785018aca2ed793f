"""Which servers answer to the name of a model in a request. Pure; no pulumi."""

from collections.abc import Iterator, Mapping, Sequence

from eks_inference.catalog.models import Task
from eks_inference.endpoints.spec import ModelEndpointSpec
from eks_inference.faults import Fault, did_you_mean


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
