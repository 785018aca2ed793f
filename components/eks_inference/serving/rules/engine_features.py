"""Rules about features of engines that a user turns on by a key of the server. Ids SRV…"""

from collections.abc import Iterator

from eks_inference.catalog.features import Choice, documented, engines_with
from eks_inference.catalog.tables import nearest
from eks_inference.catalog.vllm_arguments import vllm_releases
from eks_inference.rules import Judgement, Path, not_judged, rule
from eks_inference.serving.facts import ServingFacts
from eks_inference.serving.flags import flag

_SOURCE = "the documents of each engine, as catalog/features.toml keeps them"
_SWITCHES = ("on", "off")


@rule(
    "SRV012",
    "The documents of the engine have the feature.",
    fix="choose another value or another engine, or leave it out",
    source=_SOURCE,
)
def features_are_documented(server: ServingFacts) -> Iterator[Judgement]:
    if server.features is None:
        return
    known = documented(server.engine.name)
    for feature, choice in server.features.chosen.items():
        values = known.get(feature, {})
        what = feature if choice in _SWITCHES else f"{feature} {choice}"
        others = [one for one in engines_with(feature, choice) if one != server.engine.name]
        yield Judgement(
            holds=choice in values,
            path=_path(server, feature),
            working=(f"{server.engine.name} documents {feature}: {', '.join(values) or 'no'}; given: {choice}",),
            message=f"the documents of engine {server.engine.name} have no {what}",
            given=choice,
            allowed=", ".join(values) or "nothing",
            fix=f"leave it out, or choose an engine that has it: {', '.join(others)}" if others else "leave it out",
        )
        if choice in values:
            yield from _has_what_it_needs(server, feature, choice, values[choice])


def _has_what_it_needs(server: ServingFacts, feature: str, value: str, choice: Choice) -> Iterator[Judgement]:
    if choice.needs:
        given = getattr(server.features, choice.needs)
        yield Judgement(
            holds=given is not None,
            path=server.at(choice.needs),
            working=(f"{feature} {value} with engine {server.engine.name} needs {choice.needs}: {given or 'none'}",),
            message=f"{feature} {value} with engine {server.engine.name} needs {choice.needs}",
            given="none",
            fix=f"give {choice.needs}",
        )
    has = server.instance.compute_capability
    if has is None:
        return
    text = f"{has[0]}.{has[1]}"
    if (least := choice.minimum_compute_capability) is not None:
        yield Judgement(
            holds=has >= least,
            path=_path(server, feature),
            working=(f"{feature} {value}: compute capability {least[0]}.{least[1]}; {server.instance.name}: {text}",),
            message=f"the GPUs of {server.instance.name} are too old for {feature} {value}",
            given=text,
            allowed=f"{least[0]}.{least[1]} or later",
        )
    if (sure := choice.certain_compute_capability) is not None and has < sure:
        yield not_judged(
            feature,
            f"{value} on {server.instance.name}",
            _path(server, feature),
            why=f"below compute capability {sure[0]}.{sure[1]} it depends on the attention backend that vLLM finds",
            fix="look at the log of vLLM when it starts",
        )


def _path(server: ServingFacts, feature: str) -> Path:
    return (*server.path, *feature.split("."))


@rule(
    "SRV013",
    "The engine knows the parser of tool calls.",
    fix="name a parser of this release, the one for the calls of this model",
    source="vllm/tool_parsers/__init__.py of each release: catalog/vllm_arguments.toml",
)
def tool_parser_is_known(server: ServingFacts) -> Iterator[Judgement]:
    given, release = flag(server.arguments, "tool-call-parser"), vllm_releases().get(server.engine.vllm)
    if not given or release is None:
        return
    path = server.at_flag("tool-call-parser")
    if flag(server.arguments, "tool-parser-plugin"):
        yield not_judged(
            "tool calls", given, path, why="a plugin may add parsers of its own", fix="look it up in the plugin's documentation"
        )
        return
    yield Judgement(
        holds=given in release.tool_parsers,
        path=path,
        working=(f"vLLM {release.name}: {', '.join(release.tool_parsers)}",),
        message=f"vLLM {release.name} has no parser '{given}' for tool calls: the server does not start",
        given=given,
        allowed=", ".join(nearest(given, release.tool_parsers) or release.tool_parsers),
    )
