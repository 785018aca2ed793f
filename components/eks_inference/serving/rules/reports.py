"""The rule about failures that users report. What they report is data: ``catalog/reported.toml``."""

from collections.abc import Iterator

from eks_inference.catalog.reported import reports
from eks_inference.rules import Judgement, rule
from eks_inference.serving.facts import ServingFacts


@rule(
    "SRV017",
    "Nobody reports that the engine fails with the model on such instances.",
    severity="warning",
    fix="choose another engine or other instances, or try it and see",
    source="reports of users, each with its place: catalog/reported.toml",
)
def nobody_reports_a_failure(server: ServingFacts) -> Iterator[Judgement]:
    found = [one for one in reports() if one.about(server.engine, server.instance, server.model_id, server.model)]
    if not found:
        model = server.model.name if server.model else server.model_id
        where = f"{server.engine.name} with {model} on {server.instance.family}: none of {len(reports())} reports"
        yield Judgement(True, server.at("engine"), (where,))
    for one in found:
        yield Judgement(
            holds=False,
            path=server.at("engine"),
            working=(f"{one.source}: {one.says}",),
            message=f"{one.who} report: {one.says}",
            given=server.engine.name,
        )
