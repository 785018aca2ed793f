"""What Neuron support must keep to. Numbers NEU…"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from eks_inference.catalog import versions
from eks_inference.rules import Judgement, Path, rule


@dataclass(frozen=True)
class SchedulerFacts:
    """The second scheduler, where the Neuron scheduler extension is installed. ``path`` is its key in the stack."""

    path: Path
    kubernetes_version: str
    image: str


def scheduler_facts(kubernetes_version: str, path: Path = ()) -> SchedulerFacts:
    """The scheduler as it is installed beside a control plane."""
    return SchedulerFacts(path, kubernetes_version, versions.image("kube-scheduler", kubernetes_version))


@rule(
    "NEU017",
    "The second scheduler is of the cluster's Kubernetes version.",
    severity="warning",
    fix="pin an image of this minor version in catalog/versions.toml",
    source="Kubernetes version skew policy: a kube-scheduler is not newer than the API server; aws-neuron-sdk, my-scheduler",
)
def scheduler_is_of_the_clusters_version(scheduler: SchedulerFacts) -> Iterator[Judgement]:
    found = re.search(r":v?(\d+\.\d+)\.", scheduler.image)
    minor = found.group(1) if found else "unknown"
    yield Judgement(
        holds=minor == scheduler.kubernetes_version,
        path=scheduler.path,
        working=(f"{scheduler.image}: {minor}; cluster: {scheduler.kubernetes_version}",),
        message=f"my-scheduler is of Kubernetes {minor}, and the cluster of {scheduler.kubernetes_version}",
        given=scheduler.image,
        allowed=scheduler.kubernetes_version,
    )
