"""What managed node groups and node classes of a graph must keep to, whoever made them. Numbers AWS…"""

from collections.abc import Iterator

from eks_inference.catalog.amis import AmiType, ami_types
from eks_inference.catalog.instances import instance_types
from eks_inference.rules import Judgement, rule
from eks_inference_tools.reading.graph_facts import GraphFacts, title_of
from eks_inference_tools.reading.node_groups import NodeGroup
from eks_inference_tools.reading.scalars import whole
from stackgraph.graph.document import Resource
from stackgraph.graph.tokens import is_token
from stackgraph.graph.values import at, text


@rule(
    "AWS004",
    "Node groups run the cluster's Kubernetes version, from an image that exists for it.",
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
                message=f"{title}: the AMI release {release} is of another Kubernetes version than {_dotted(version)}",
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
    parts = version.split(".")
    numbers = [whole(part) for part in parts[:2]]
    return (numbers[0], numbers[1]) if len(numbers) == 2 and numbers[0] is not None and numbers[1] is not None else None


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


@rule(
    "AWS008",
    "Node groups can have the size they ask for.",
    fix="keep min <= desired <= max, and max at 1 at least",
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
    "Reserved capacity is named in the way that EKS takes.",
    fix="put instance type, market type capacity-block and the reservation into the launch template, and no placement group",
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
            + ("; ".join(what) if wrong else "a placement group beside a reservation that was not made in it finds no capacity"),
            given=template.placement_group,
            severity=None if wrong else "warning",
            resource=group.urn,
        )


@rule(
    "AWS010",
    "The machine image of a node group is for its instance types.",
    fix="choose the AMI type of the instance type's architecture and accelerator",
    source="EKS user guide, EKS optimized accelerated AMIs",
)
def image_for_instance(facts: GraphFacts) -> Iterator[Judgement]:
    for group in facts.node_groups:
        ami = ami_types().get(group.ami_type)
        for name in group.own_instance_types if ami else ():
            instance = instance_types().get(name)
            if ami and instance:
                driver = instance.accelerator is None or instance.accelerator in ami.accelerators
                yield _image(group, ami, name, instance.architecture, instance.accelerator or "no accelerator", driver=driver)


def _image(group: NodeGroup, ami: AmiType, name: str, architecture: str, accelerator: str, *, driver: bool) -> Judgement:
    drivers = ", ".join(ami.accelerators) or "none"
    return Judgement(
        holds=driver and architecture == ami.architecture,
        path=(),
        working=(
            f"{group.title}: {name} is {architecture} with {accelerator}; {ami.name} is {ami.architecture}, drivers: {drivers}",
        ),
        message=f"{group.title}: {ami.name} is "
        + (
            f"for {ami.architecture}, {name} is {architecture}"
            if driver
            else f"without the {accelerator} driver that {name} needs"
        ),
        given=ami.name,
        resource=group.urn,
    )


@rule(
    "AWS011",
    "Machine images are pinned.",
    severity="warning",
    fix="name a release: releaseVersion of a node group, al2023@v<date> of a node class",
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
        message=f"{title} takes the newest image of the day ({given})",
        given=given,
        allowed="a release",
        resource=resource.urn,
    )
