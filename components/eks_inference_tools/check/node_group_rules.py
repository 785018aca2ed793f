"""Rules AWS… about managed node groups and EC2NodeClasses."""

from collections.abc import Iterator
from typing import cast

from eks_inference.catalog.instances import ami_types, instance_types
from eks_inference.rules import Judgement, rule
from eks_inference_tools.reading.graph_facts import GraphFacts
from eks_inference_tools.reading.kinds import title_of
from eks_inference_tools.reading.scalars import whole
from stackgraph.graph.document import Resource
from stackgraph.graph.values import at, is_token, text


@rule(
    "AWS004",
    "Node groups run a Kubernetes version that suits the cluster, from an image that exists for it.",
    fix="change version, release version and AMI type together with the cluster's version",
    source="EKS user guide, managed node groups and AL2 end of support; Kubernetes, Version skew policy (kubelet n-3)",
)
def images_of_cluster_version(facts: GraphFacts) -> Iterator[Judgement]:
    for group in facts.node_groups:
        cluster = _minor(facts.kubernetes_version)
        version = _minor(group.version) or cluster
        release, type_name, title = group.release, group.ami_type, group.title
        if version and cluster:
            yield Judgement(
                holds=version[0] == cluster[0] and 0 <= cluster[1] - version[1] <= _OLDEST_KUBELET,
                path=(),
                working=(f"{title}: Kubernetes {_dotted(version)}, cluster {_dotted(cluster)}",),
                message=f"{title} runs Kubernetes {_dotted(version)}, the cluster {_dotted(cluster)}",
                given=_dotted(version),
                allowed=f"{_dotted(cluster)}, or up to {_OLDEST_KUBELET} minor versions older",
                resource=group.urn,
            )
        if version and _minor(release) and type_name.startswith("AL2"):
            yield Judgement(
                holds=_minor(release) == version,
                path=(),
                working=(f"{title}: release {release}, Kubernetes {_dotted(version)}",),
                message=f"{title}: the AMI release {release} is not for Kubernetes {_dotted(version)}",
                given=release,
                allowed=f"{_dotted(version)}.<patch>-<date>",
                resource=group.urn,
            )
        ami = ami_types().get(type_name)
        if version and ami:
            covered = ami.covers(_dotted(version))
            until = ami.last_kubernetes or "today"
            yield Judgement(
                holds=covered and not ami.ended,
                path=(),
                working=(f"{title}: {type_name} up to {until}, Kubernetes {_dotted(version)}; ended: {ami.ended or 'no'}",),
                message=f"{title}: "
                + (
                    f"AWS published its last {type_name} image on {ami.ended}"
                    if covered
                    else f"there is no {type_name} image for it"
                ),
                given=type_name,
                allowed=ami.note,
                severity="warning" if covered else None,
                resource=group.urn,
            )


_OLDEST_KUBELET = 3


def _minor(version: str) -> tuple[int, int] | None:
    major, _, rest = version.partition(".")
    found = whole(major), whole(rest.partition(".")[0])
    return None if None in found else cast(tuple[int, int], found)


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


@rule(
    "AWS008",
    "The desired size of a node group is within its bounds.",
    fix="keep min <= desired <= max, and max at least 1",
    source="EKS API, NodegroupScalingConfig; a peer's file with desired 2 below min 4",
)
def sizes_possible(facts: GraphFacts) -> Iterator[Judgement]:
    for group in facts.node_groups:
        low, size, high = group.sizes
        if low is not None and size is not None and high is not None:
            yield Judgement(
                holds=low <= size <= high and high >= 1,
                path=(),
                working=(f"{group.title}: min {low} <= desired {size} <= max {high}",),
                message=f"{group.title} cannot have {size} nodes between {low} and {high}",
                given=f"min {low}, desired {size}, max {high}",
                resource=group.urn,
            )


@rule(
    "AWS009",
    "Node groups refer to reserved capacity in the form that EKS accepts.",
    fix="set instance type, market type capacity-block and the reservation in the launch template, without a placement group",
    source="EKS user guide, Capacity Blocks for ML with managed node groups; terraform-aws-eks issues 3661, 3730",
)
def reservations_as_eks_takes_them(facts: GraphFacts) -> Iterator[Judgement]:
    for group in facts.node_groups:
        template, block = group.template, group.is_capacity_block
        if template is None or not (block or template.names_reservation):
            continue
        lacking = [
            *([] if template.names_reservation else ["the reservation"]),
            *([] if template.instance_type else ["the instance type"]),
            *([] if template.market_type == "capacity-block" else ["market type capacity-block"]),
        ]
        twice = bool(group.own_instance_types)
        wrong = block and (bool(lacking) or twice)
        kind = "capacity block" if block else "reservation"
        what = [*(f"the template lacks {one}" for one in lacking), *(["the group names instance types"] if twice else [])]
        yield Judgement(
            holds=not wrong and not template.placement_group,
            path=(),
            working=(f"{group.title}: {kind}, placement group {template.placement_group or 'none'}",),
            message=f"{group.title}: "
            + ("; ".join(what) if wrong else "with a placement group, a reservation made outside it provides no capacity"),
            given=template.placement_group,
            severity=None if wrong else "warning",
            resource=group.urn,
        )


@rule(
    "AWS010",
    "The AMI type of a node group supports its instance types.",
    fix="choose the AMI type for the instance type's architecture and accelerator",
    source="EKS user guide, EKS optimized accelerated AMIs",
)
def image_for_instance(facts: GraphFacts) -> Iterator[Judgement]:
    for group in facts.node_groups:
        ami = ami_types().get(group.ami_type)
        for name in group.own_instance_types if ami else ():
            instance = instance_types().get(name)
            if not ami or not instance:
                continue
            architecture, accelerator = instance.architecture, instance.accelerator
            driver = accelerator is None or accelerator in ami.accelerators
            drivers = ", ".join(ami.accelerators) or "none"
            needed = f"{name} is {architecture} with {accelerator or 'no accelerator'}"
            yield Judgement(
                holds=driver and architecture == ami.architecture,
                path=(),
                working=(f"{group.title}: {needed}; {ami.name} is {ami.architecture}, drivers: {drivers}",),
                message=f"{group.title}: {ami.name} "
                + (
                    f"is for {ami.architecture}, {name} is {architecture}"
                    if driver
                    else f"lacks the {accelerator} driver that {name} needs"
                ),
                given=ami.name,
                resource=group.urn,
            )


@rule(
    "AWS011",
    "Machine images are pinned.",
    severity="warning",
    fix="set a release: releaseVersion of a node group, al2023@v<date> of a node class",
    source="EKS and Karpenter guides; awslabs/amazon-eks-ami issue 2417: the driver comes with the release",
)
def machine_images_pinned(facts: GraphFacts) -> Iterator[Judgement]:
    for group in facts.node_groups:
        release = group.release
        if group.template is not None and not group.template.image:
            yield _image_pinned(group.title, group.resource, pinned=bool(release), given=release or "no releaseVersion")
    for node_class in facts.node_classes:
        for term in node_class.images:
            alias, resource = text(at(term, "alias")), node_class.resource
            if alias and not is_token(alias):
                yield _image_pinned(title_of(resource), resource, pinned=not alias.endswith("@latest"), given=alias)


def _image_pinned(title: str, resource: Resource, *, pinned: bool, given: str) -> Judgement:
    return Judgement(
        holds=pinned,
        path=(),
        working=(f"{title}: {given}",),
        message=f"{title} uses the newest image instead of a fixed release ({given})",
        given=given,
        allowed="a release",
        resource=resource.urn,
    )
