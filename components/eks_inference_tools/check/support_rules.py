"""Rule EKS004 about the end of support of Kubernetes versions."""

from collections.abc import Iterator

from eks_inference.catalog import versions
from eks_inference.rules import Judgement, rule
from eks_inference_tools.reading.calendar import today
from eks_inference_tools.reading.graph_facts import GraphFacts

_NOTICE_DAYS = 60
_PER_HOUR = "0.10 USD an hour in standard support, 0.60 in extended support (Amazon EKS, Pricing)"


@rule(
    "EKS004",
    f"The Kubernetes version is in standard support for the next {_NOTICE_DAYS} days.",
    severity="warning",
    fix="update the cluster one minor version at a time; then the node groups, add-ons and schedulers",
    source="EKS user guide, Kubernetes versions; Amazon EKS pricing",
)
def version_is_supported(facts: GraphFacts) -> Iterator[Judgement]:
    version = facts.kubernetes_version
    try:
        support = versions.support(version)
    except KeyError:
        return
    days = (support.standard - today()).days
    message = f"standard support of Kubernetes {version} {'ended' if days < 0 else 'ends'} on {support.standard}"
    yield Judgement(
        holds=days >= _NOTICE_DAYS,
        path=(),
        working=(f"{message}, extended support on {support.extended}; the control plane costs {_PER_HOUR}",),
        message=f"{message}; from then on the control plane costs six times as much",
        given=version,
        resource=facts.clusters[0].urn,
    )
