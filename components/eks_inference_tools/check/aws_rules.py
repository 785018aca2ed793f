"""What the AWS resources of a graph must keep closed, whoever made them. Numbers AWS…"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from eks_inference.rules import Judgement, rule
from eks_inference_tools.reading.clusters import CLUSTER_TYPE
from eks_inference_tools.reading.graph_facts import GraphFacts, name_of, title_of
from eks_inference_tools.reading.machines import Machine
from eks_inference_tools.reading.scalars import is_true
from eks_inference_tools.reading.security_groups import GroupRule
from stackgraph.graph.describe import short_type
from stackgraph.graph.document import Resource, is_read
from stackgraph.graph.tokens import is_token
from stackgraph.graph.values import at, items, text, texts, unique

_EVERYWHERE = frozenset(("0.0.0.0/0", "::/0"))


@rule(
    "AWS001",
    "The API of the cluster is not open to the whole internet.",
    severity="warning",
    fix="set public_access_cidrs to your networks, or use the private endpoint only",
    source="EKS best practices, Security: cluster endpoint",
)
def api_not_public(facts: GraphFacts) -> Iterator[Judgement]:
    for cluster in facts.clusters:
        network = cluster.inputs.get("vpcConfig") if cluster.type == CLUSTER_TYPE else cluster.inputs
        public, cidrs = at(network, "endpointPublicAccess"), at(network, "publicAccessCidrs")
        if is_token(network) or is_token(public) or is_token(cidrs):
            continue
        # EKS: public unless told otherwise, to everybody unless told otherwise.
        reach = () if public is False or public == "false" else texts(cidrs) or ("0.0.0.0/0",)
        name = text(cluster.inputs.get("name")) or cluster.name
        networks = ", ".join(reach)
        yield Judgement(
            holds=not _EVERYWHERE & set(reach),
            path=(),
            working=(f"cluster {name}: API {f'public to {networks}' if reach else 'private'}",),
            message=f"the API of cluster {name} is open to the whole internet",
            given=networks,
            allowed="networks of your own",
            resource=cluster.urn,
        )


@rule(
    "AWS002",
    "Security groups let nobody in from the whole internet.",
    severity="warning",
    fix="name the networks that need it; for shells use Session Manager",
    source="AWS Foundational Security Best Practices, EC2.18 and EC2.19",
)
def groups_closed(facts: GraphFacts) -> Iterator[Judgement]:
    for one in facts.security_groups.rules:
        if not one.ingress or not one.sources:
            continue
        resource = facts.graph.by_urn[one.urn]
        wide = sorted(_EVERYWHERE & set(one.sources))
        shells = [port for port in _SHELLS if one.opens(port)]
        what = _span(one)
        yield Judgement(
            holds=not wide,
            path=(),
            working=(f"{short_type(resource.type)} {resource.name}: {what} from {', '.join(one.sources)}",),
            message=f"{resource.name} lets the whole internet in: {what}",
            given=", ".join(wide),
            allowed="networks of your own",
            severity="error" if shells else None,
            resource=one.urn,
        )


_SHELLS = (22, 3389)


def _span(one: GroupRule) -> str:
    if one.everything:
        return "every protocol and port"
    ports = "-".join(unique(text(port) for port in one.ports))
    return f"{one.protocol} {ports or '(unknown ports)'}"


@rule(
    "AWS003",
    "Buckets are closed to the public, and say so.",
    fix="add a BucketPublicAccessBlock with all four settings on",
    source="Amazon S3, Blocking public access: the default of new buckets since April 2023, which can be lifted",
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
            # Without a block the default of S3 still closes the bucket.
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
    for template in facts.launch_templates.values():
        if template.resource:
            yield from _disks(f"launch template {template.resource.name}", template.resource, template)
    for node_class in facts.node_classes:
        yield from _disks(title_of(node_class.resource), node_class.resource, node_class)
    for storage in facts.objects.get("StorageClass", ()):
        if storage.inputs.get("provisioner") in ("ebs.csi.aws.com", "ebs.csi.eks.amazonaws.com", "kubernetes.io/aws-ebs"):
            yield from _encrypted(f"StorageClass {name_of(storage)}", storage, at(storage.inputs, "parameters", "encrypted"))
    for type_ in ("aws:ebs/volume:Volume", "aws:efs/fileSystem:FileSystem"):
        for volume in facts.graph.of_type(type_):
            if not is_read(volume):
                yield from _encrypted(f"{short_type(type_)} {volume.name}", volume, volume.inputs.get("encrypted"))


def _disks(title: str, resource: Resource, machine: Machine) -> Iterator[Judgement]:
    for disk in machine.disks:
        if disk.ebs:
            yield from _encrypted(f"{title}, {disk.device}", resource, disk.encrypted)


def _encrypted(title: str, resource: Resource, value: Any) -> Iterator[Judgement]:
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


@rule(
    "AWS006",
    "Nobody gets static keys.",
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
            message=f"{key.name} is a static access key, and its secret stands in the state",
            resource=key.urn,
        )


@rule(
    "AWS007",
    "No policy allows everything.",
    fix="name the actions and resources that are needed",
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
        allowed="the actions that are needed, on the resources they are for",
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
