"""Rules about what opens an engine to others. Ids OPN…"""

from collections.abc import Iterator

from eks_inference.catalog.features import openings
from eks_inference.rules import Judgement, rule
from eks_inference.serving.facts import ServingFacts, is_commit
from eks_inference.serving.features import fetches
from eks_inference.serving.flags import flag


@rule(
    "OPN001",
    "Flags and variables keep others out of the engine.",
    fix="leave it out",
    source="catalog/openings.toml; an error where a gateway leads to the server or code may change, elsewhere a warning",
)
def engines_stay_closed(server: ServingFacts) -> Iterator[Judgement]:
    known = openings("engine")
    for where, given in (("extra_args", server.extra_args), ("extra_env", server.extra_env)):
        for name, value in given.items():
            if row := known.get(name.replace("_", "-") if where == "extra_args" else name):
                pinned = row.pinned and (server.pinned or is_commit(flag(server.arguments, "code-revision")))
                yield Judgement(
                    holds=pinned or not row.by(value),
                    path=server.under(where, name),
                    working=(f"{name}: {value}: {'the code is that of a commit' if pinned else row.opens}; {row.source}",),
                    message=f"with {name}, {row.opens}",
                    given=str(value),
                    fix="give model.revision the hash of a commit" if row.pinned else "",
                    severity=None if server.led_out or row.pinned else "warning",
                )


@rule(
    "OPN002",
    "A model that sees fetches only from domains that the stack names.",
    fix="name them: allowed_media_domains: [images.example.com], or under extra_args where the server has no such key",
    source="vLLM 0.30.0, docs/usage/security.md: without them a request makes the engine fetch any address that the pod reaches; "
    "an error where a gateway leads to the server, elsewhere a warning",
)
def media_have_domains(server: ServingFacts) -> Iterator[Judgement]:
    if not fetches(server.engine, server.model):
        return
    domains = flag(server.arguments, "allowed-media-domains")
    yield Judgement(
        holds=bool(domains),
        path=server.at_flag("allowed-media-domains"),
        working=(f"{server.model_id} takes pictures; allowed-media-domains: {domains or 'none, so all'}",),
        message=f"a request makes {server.model_id} fetch any address that the pod reaches",
        given="any domain",
        severity=None if server.led_out else "warning",
    )
