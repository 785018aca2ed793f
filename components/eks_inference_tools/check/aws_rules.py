"""Rules AWS… about AWS resources: public access, encryption, permissions, managed node groups and EC2NodeClasses; and KEP001:
what a stack leaves in the account is said before it is left.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, cast

from eks_inference.catalog.instances import ami_types, instance_types
from eks_inference.rules import Judgement, rule
from eks_inference_tools.reading.clusters import public_networks
from eks_inference_tools.reading.graph_facts import GraphFacts
from eks_inference_tools.reading.machines import Machine
from eks_inference_tools.reading.object_kinds import EBS_DRIVERS, name_of, title_of
from eks_inference_tools.reading.scalars import is_true, whole
from eks_inference_tools.reading.security_groups import EVERYWHERE, GroupRule
from stackgraph.graph.describe import short_type
from stackgraph.graph.document import Resource, is_read
from stackgraph.graph.values import at, is_token, items, text, texts, unique


@rule(
    "AWS001",
    "The API of the cluster is not open to the whole internet.",
    severity="warning",
    fix="set public_access_cidrs to your networks, or use the private endpoint only",
    source="EKS best practices, Security: cluster endpoint",
)
def api_not_public(facts: GraphFacts) -> Iterator[Judgement]:
    for cluster in facts.clusters:
        reach = public_networks(cluster)
        if reach is None:
            continue
        name = text(cluster.inputs.get("name")) or cluster.name
        networks = ", ".join(reach)
        yield Judgement(
            holds=not EVERYWHERE & set(reach),
            path=(),
            working=(f"cluster {name}: API {f'public to {networks}' if reach else 'private'}",),
            message=f"the API of cluster {name} is open to the whole internet",
            given=networks,
            allowed="your own networks",
            resource=cluster.urn,
        )


@rule(
    "AWS002",
    "Security groups do not admit the whole internet.",
    severity="warning",
    fix="admit only the networks that need access; use Session Manager for shells",
    source="AWS Foundational Security Best Practices, EC2.18 and EC2.19",
)
def groups_closed(facts: GraphFacts) -> Iterator[Judgement]:
    for group_rule in facts.security_groups.rules:
        if not group_rule.ingress or not group_rule.sources:
            continue
        resource = facts.graph.by_urn[group_rule.urn]
        wide = sorted(EVERYWHERE & set(group_rule.sources))
        what = _span(group_rule)
        yield Judgement(
            holds=not wide,
            path=(),
            working=(f"{short_type(resource.type)} {resource.name}: {what} from {', '.join(group_rule.sources)}",),
            message=f"{resource.name} admits the whole internet: {what}",
            given=", ".join(wide),
            allowed="your own networks",
            severity="error" if any(map(group_rule.opens, _SHELL_PORTS)) else None,
            resource=group_rule.urn,
        )


_SHELL_PORTS = (22, 3389)


def _span(one: GroupRule) -> str:
    if one.everything:
        return "every protocol and port"
    ports = "-".join(unique(text(port) for port in one.ports))
    return f"{one.protocol} {ports or '(unknown ports)'}"


@rule(
    "AWS003",
    "Buckets block public access explicitly.",
    fix="add a BucketPublicAccessBlock with all four settings on",
    source="Amazon S3, Blocking public access: the default for new buckets since April 2023, which can be turned off",
)
def buckets_closed(facts: GraphFacts) -> Iterator[Judgement]:
    blocks: dict[str, Mapping[str, Any]] = {}
    for block in facts.graph.of_type("aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock"):
        names = (*block.property_dependencies.get("bucket", ()), text(block.inputs.get("bucket")))
        blocks |= dict.fromkeys(names, block.inputs)
    for bucket in (*facts.graph.of_type("aws:s3/bucket:Bucket"), *facts.graph.of_type("aws:s3/bucketV2:BucketV2")):
        if is_read(bucket):
            continue
        block = blocks.get(bucket.urn) or blocks.get(text(bucket.inputs.get("bucket")) or bucket.urn)
        off = [key for key in _BLOCKS if block is not None and not is_true(block.get(key)) and not is_token(block.get(key))]
        acl = text(bucket.inputs.get("acl"))
        public = acl.startswith("public-")
        said = f"{', '.join(off)} off" if off else "all four settings on" if block is not None else "no public access block"
        yield Judgement(
            holds=block is not None and not off and not public,
            path=(),
            working=(f"bucket {bucket.name}: {said}{f', ACL {acl}' if acl else ''}",),
            message=f"bucket {bucket.name} {'is' if public else 'can be'} open to the public: {f'ACL {acl}' if public else said}",
            given=said,
            allowed="blockPublicAcls, blockPublicPolicy, ignorePublicAcls, restrictPublicBuckets: true",
            # Without a block, the default of S3 still blocks public access.
            severity="error" if off or public else "warning",
            resource=bucket.urn,
        )


_BLOCKS = ("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets")


@rule(
    "AWS005",
    "Volumes are encrypted.",
    severity="warning",
    fix="set encrypted, unless the account encrypts by default",
    source="AWS Foundational Security Best Practices, EC2.3 and EC2.7",
)
def volumes_encrypted(facts: GraphFacts) -> Iterator[Judgement]:
    for title, resource, value in _volumes(facts):
        if not is_token(value):
            yield Judgement(
                holds=is_true(value),
                path=(),
                working=(f"{title}: encrypted {text(value) or 'not set'}",),
                message=f"{title} is not encrypted",
                given=f"encrypted: {text(value) or 'not set'}",
                allowed="true",
                resource=resource.urn,
            )


def _volumes(facts: GraphFacts) -> Iterator[tuple[str, Resource, Any]]:
    """Titles, resources and the ``encrypted`` values of volumes and of what creates volumes."""
    templates = [(one, one.resource) for one in facts.launch_templates.values() if one.resource]
    machines: list[tuple[str, Resource, Machine]] = [(f"launch template {made.name}", made, one) for one, made in templates]
    machines += [(title_of(node_class.resource), node_class.resource, node_class) for node_class in facts.node_classes]
    for title, resource, machine in machines:
        yield from ((f"{title}, {disk.device}", resource, disk.encrypted) for disk in machine.disks if disk.ebs)
    for storage in facts.objects.get("StorageClass", ()):
        if storage.inputs.get("provisioner") in (*EBS_DRIVERS, "kubernetes.io/aws-ebs"):
            yield f"StorageClass {name_of(storage)}", storage, at(storage.inputs, "parameters", "encrypted")
    for type_ in ("aws:ebs/volume:Volume", "aws:efs/fileSystem:FileSystem"):
        for volume in facts.graph.of_type(type_):
            if not is_read(volume):
                yield f"{short_type(type_)} {volume.name}", volume, volume.inputs.get("encrypted")


@rule(
    "AWS006",
    "There are no static access keys.",
    severity="warning",
    fix="use roles: Pod Identity for pods, IAM Identity Center or OIDC for people and pipelines",
    source="AWS IAM, Security best practices: temporary credentials",
)
def no_static_keys(facts: GraphFacts) -> Iterator[Judgement]:
    keys = [key for key in facts.graph.of_type("aws:iam/accessKey:AccessKey") if not is_read(key)]
    owners = {urn for key in keys for urn in key.property_dependencies.get("user", ())}
    for user in facts.graph.of_type("aws:iam/user:User"):
        if not is_read(user) and user.urn not in owners:
            yield Judgement(True, (), (f"user {user.name}: no access key",), resource=user.urn)
    for key in keys:
        yield Judgement(
            holds=False,
            path=(),
            working=(f"access key {key.name} of user {text(key.inputs.get('user'))}",),
            message=f"{key.name} is a static access key, and the state holds its secret",
            resource=key.urn,
        )


@rule(
    "AWS007",
    "No policy allows every action on every resource.",
    fix="allow only the actions and resources that are needed",
    source="AWS IAM, Security best practices: least privilege",
)
def no_policy_allows_everything(facts: GraphFacts) -> Iterator[Judgement]:
    for resource in facts.graph.resources:
        if resource.type in _POLICY_TYPES and not is_read(resource):
            wide = [statement for statement in _statements(resource.inputs.get("policy")) if _allows_everything(statement)]
            yield _policy(resource, wide=bool(wide), what="every action on every resource" if wide else "limited")
        elif resource.type.startswith("aws:iam/") and resource.type.endswith("PolicyAttachment") and not is_read(resource):
            arn = text(resource.inputs.get("policyArn"))
            if not is_token(arn):
                yield _policy(resource, wide=arn.endswith(":policy/AdministratorAccess"), what=arn)


_POLICY_TYPES = frozenset(
    ("aws:iam/groupPolicy:GroupPolicy", "aws:iam/policy:Policy", "aws:iam/rolePolicy:RolePolicy", "aws:iam/userPolicy:UserPolicy")
)


def _policy(resource: Resource, *, wide: bool, what: str) -> Judgement:
    return Judgement(
        holds=not wide,
        path=(),
        working=(f"{short_type(resource.type)} {resource.name}: {what}",),
        message=f"{short_type(resource.type)} {resource.name} allows every action on every resource",
        given=what,
        allowed="the needed actions on the needed resources",
        resource=resource.urn,
    )


def _statements(document: Any) -> Iterator[Any]:
    if isinstance(document, str) and '"*"' in document:
        try:
            document = json.loads(document)
        except (ValueError, RecursionError):
            return
    statements = at(document, "Statement")
    yield from [statements] if isinstance(statements, Mapping) else items(statements)


def _allows_everything(statement: Any) -> bool:
    actions, resources = texts(at(statement, "Action")), texts(at(statement, "Resource"))
    return at(statement, "Effect") == "Allow" and bool({"*", "*:*"} & set(actions)) and "*" in resources


_STORES = ("aws:s3/bucket:Bucket", "aws:s3/bucketV2:BucketV2", "aws:efs/fileSystem:FileSystem")
"""Stores. What belongs to one, such as its policy, costs nothing."""


@rule(
    "KEP001",
    "Nothing outlives the stack unnoticed.",
    severity="warning",
    fix="note where to find it and who pays for it, or turn retain off and run `pulumi up` before `pulumi destroy`",
    source="Pulumi, resource option retainOnDelete: the engine forgets the resource and leaves it where it is",
)
def kept_is_known(facts: GraphFacts) -> Iterator[Judgement]:
    for resource in facts.graph.resources:
        if resource.type in _STORES and not is_read(resource):
            what = f"{short_type(resource.type)} {resource.name}"
            retained = bool(resource.options.get("retainOnDelete"))
            yield Judgement(
                holds=not retained,
                path=(),
                working=(f"{what}: {'retained' if retained else 'goes with the stack'}",),
                message=f"`pulumi destroy` leaves {what} with its contents, and it goes on costing",
                given="retained",
                resource=resource.urn,
            )


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
