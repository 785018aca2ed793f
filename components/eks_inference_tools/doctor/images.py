"""Whether registries have the stack's images and charts. Pure."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from eks_inference_tools.doctor.findings import Finding, error, ok, unknown
from eks_inference_tools.doctor.questions import Inquiry, Manifest, Question, arn, call
from eks_inference_tools.reading.graph_facts import GraphFacts, walk
from eks_inference_tools.reading.releases import charts
from stackgraph.graph.document import Graph
from stackgraph.graph.values import at, items, text

TOPIC = "images and charts"

_ECR = re.compile(r"(\d{12})\.dkr\.ecr\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?")
_ACCEPTED = [
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.docker.distribution.manifest.v2+json",
]


@dataclass(frozen=True)
class Reference:
    """``host/repository:tag`` or ``host/repository@digest``, in its parts. ``tag`` is empty where none is given."""

    host: str
    repository: str
    tag: str

    @property
    def shown(self) -> str:
        return f"{self.host}/{self.repository}{'@' if ':' in self.tag else ':'}{self.tag}"


def reference(given: str) -> Reference:
    """Reads an image. Without a host it is on docker.io, there without a path in ``library`` (distribution/reference)."""
    name, at_, digest = given.partition("@")
    head, colon, tag = name.rpartition(":")
    if not colon or "/" in tag:
        head, tag = name, ""
    first, slash, rest = head.partition("/")
    if not slash or not ("." in first or ":" in first or first == "localhost"):
        first, rest = "docker.io", head
    if first == "docker.io" and "/" not in rest:
        rest = f"library/{rest}"
    return Reference(first, rest, digest if at_ else tag or "latest")


def images(graph: Graph, *, public: bool) -> Iterator[Inquiry]:
    """Yields the images of pods, those that values of charts name with a tag, and charts in registries.

    ``public``: whether registries other than private ones of ECR are asked.
    """
    left_out = 0
    for one in sorted(set(_references(graph)), key=lambda one: one.shown):
        if found := _ECR.fullmatch(one.host):
            yield _private(one, found[1], found[2])
        elif public:
            yield Inquiry(TOPIC, one.shown, (Manifest(one.host, one.repository, one.tag),), partial(_public, one=one))
        else:
            left_out += 1
    if left_out:
        said = f"{left_out} images and charts in public registries were not asked for"
        yield Inquiry(TOPIC, "public registries", (), partial(_not_asked, said, "leave --no-web out"))
    for chart in charts(graph):
        repository = at(chart.resource.inputs, "repositoryOpts", "repo")
        if repository:
            said = f"chart {chart.name} {chart.version}: repositories that are not registries are not asked"
            yield Inquiry(TOPIC, chart.name, (), partial(_not_asked, said))


def _not_asked(said: str, remedy: str = "") -> Iterator[Finding]:
    yield unknown(said, remedy)


def _references(graph: Graph) -> Iterator[Reference]:
    facts = GraphFacts(graph)
    for _, container, _ in facts.containers:
        if _is_known(container.image):
            yield reference(container.image)
    for chart in facts.charts:
        if chart.reference.startswith("oci://") and _is_known(chart.version):
            host, _, repository = chart.reference.removeprefix("oci://").partition("/")
            yield Reference(host, repository, chart.version)
        for path, value in walk(chart.values):
            around = at(chart.values, *path[:-1])
            tag, registry = text(at(around, "tag")), text(at(around, "registry"))
            if path[-1] == "repository" and tag and _is_known(image := f"{registry}/{text(value)}:{tag}".lstrip("/")):
                yield reference(image)


def _is_known(value: str) -> bool:
    """Whether it names something that exists before the stack: no placeholder stands anywhere in it."""
    return bool(value) and not re.search(r"[<>\s\[\]]", value)


def _public(answer: Mapping[str, Any] | None, one: Reference) -> Iterator[Finding]:
    if answer is None:
        yield error(f"{one.shown}: the registry has no such image or chart", "choose another tag, or name a mirror in mirrors")
    else:
        yield ok(f"{one.shown}: there", image=one.shown, digest=text(answer.get("digest")))


# -- private registries of ECR ---------------------------------------------------------------------------------------------------


def _private(one: Reference, account: str, region: str) -> Inquiry:
    named = {"imageDigest": one.tag} if ":" in one.tag else {"imageTag": one.tag}
    asked = call(
        "ecr.BatchGetImage",
        region,
        arn("ecr", region, f"repository/{one.repository}", account=account),
        registryId=account,
        repositoryName=one.repository,
        imageIds=[named],
        acceptedMediaTypes=_ACCEPTED,
    )
    rules: tuple[Question, ...] = (call("ecr.DescribePullThroughCacheRules", region, registryId=account),)
    from_aws = account == EKS_ACCOUNT
    return Inquiry(TOPIC, one.shown, (asked,), partial(_in_ecr, one=one), () if from_aws else rules)


EKS_ACCOUNT = "602401143452"
"""EKS's own registries (EKS user guide, "View Amazon container image registries"), whose rules are nobody else's."""


def _in_ecr(answer: Mapping[str, Any] | None, rules: Mapping[str, Any] | None = None, *, one: Reference) -> Iterator[Finding]:
    found = items((answer or {}).get("images"))
    if found:
        yield ok(f"{one.shown}: there", image=one.shown, digest=text(at(found[0], "imageId", "imageDigest")))
        return
    failures = items((answer or {}).get("failures"))
    why = next((f"{text(row.get('failureCode'))}: {text(row.get('failureReason'))}" for row in failures), "no such repository")
    for rule in items((rules or {}).get("pullThroughCacheRules")):
        prefix = text(rule.get("ecrRepositoryPrefix"))
        if prefix == "ROOT" or one.repository.startswith(f"{prefix}/"):
            upstream = text(rule.get("upstreamRegistryUrl"))
            yield unknown(
                f"{one.shown}: not cached yet; the rule for {prefix} fetches it from {upstream} at the first pull",
                "allow the nodes' roles ecr:CreateRepository and ecr:BatchImportUpstreamImage, or pull it once by hand",
            )
            return
    yield error(f"{one.shown}: {why}", "push it there, or make a pull-through cache rule, or choose another image")
