"""Rules about who hears of what goes wrong. Ids OBS…"""

from collections.abc import Iterator

from eks_inference.observability.spec import MILLISECONDS_ABOVE
from eks_inference.rules import Judgement, rule
from eks_inference.specs.base import scalars
from eks_inference.stack.facts import StackFacts


@rule(
    "OBS010",
    "Alerts about servers reach a receiver.",
    severity="warning",
    fix="set observability.prometheus.receiver: an SNS topic, a Slack channel or a webhook",
    source="Prometheus documentation, Alerting overview: Prometheus evaluates alerts, and only Alertmanager notifies",
)
def alerts_reach_somebody(stack: StackFacts) -> Iterator[Judgement]:
    prometheus = stack.spec.observability.prometheus
    if not (prometheus and stack.spec.servers):
        return
    # What these values say is not judged: that they are there shows that somebody thought of it.
    by_values = prometheus.alertmanager and "alertmanager" in prometheus.values
    holds = prometheus.receiver is not None or by_values
    given = prometheus.receiver.kind if prometheus.receiver else "values.alertmanager" if by_values else "none"
    yield Judgement(
        holds=holds,
        path=("observability", "prometheus", "receiver"),
        working=(f"receiver: {given}",),
        message="alerts show in Prometheus and Grafana only and reach no receiver",
        given=given,
        allowed="sns, slack, webhook",
    )


@rule(
    "OBS012",
    "Something watches the objectives of servers that say no traffic.",
    severity="warning",
    fix="add observability.prometheus, or leave the objectives out",
    source="the alert FirstTokenLate of observability/assets/rules.yaml, which Prometheus evaluates",
)
def objectives_are_watched(stack: StackFacts) -> Iterator[Judgement]:
    watched = stack.spec.observability.prometheus is not None
    for name, server in stack.spec.servers.items():
        seconds = server.objectives.time_to_first_token_seconds
        if seconds is not None and server.traffic is None:  # TRF001 reads it too
            yield Judgement(
                holds=watched,
                path=("servers", name, "objectives"),
                working=(f"first token within {seconds:g} s; prometheus: {'on' if watched else 'off'}",),
                message="nothing in this stack collects the metrics that tell whether the objective is met",
                given=f"{seconds:g} s",
            )


@rule(
    "OBS013",
    "Objectives and thresholds of latency are in seconds.",
    severity="warning",
    fix="divide it by 1000 if it is in milliseconds",
    source="catalog/measured.csv: no published server is so slow (MILLISECONDS_ABOVE in observability/spec.py)",
)
def latencies_are_in_seconds(stack: StackFacts) -> Iterator[Judgement]:
    for path, seconds in scalars(stack.spec.inputs()):
        most = MILLISECONDS_ABOVE.get(str(path[-1]))
        if most and isinstance(seconds, int | float):
            yield Judgement(
                holds=seconds <= most,
                path=path,
                working=(f"{seconds:g} s; above {most:g} s it is probably in milliseconds",),
                message=f"{seconds:g} s: no published server is so slow, so nothing would ever be late",
                given=f"{seconds:g}",
                allowed=f"at most {most:g}; {seconds:g} ms is {seconds / 1000:g}",
            )
