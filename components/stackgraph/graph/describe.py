"""Describes resources in a few words: short type names, identities, and the facts that set a resource apart."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from stackgraph.graph.document import CHART_TYPE, PROVIDER_PREFIX, Resource, is_component, is_read
from stackgraph.graph.values import at, is_token, items, joined, table, text, texts, unique
from stackgraph.graph.wording import counted

Words = Mapping[str, Callable[[Mapping[str, Any]], str]]
"""By resource type, a function from a resource's inputs to the words that tell it from others of its type."""


def short_type(type_: str) -> str:
    """A type token in short form: ``ec2.Subnet``, ``Deployment``, ``NodePool``, ``helm.v3.Release``, ``random.RandomId``."""
    if type_ == CHART_TYPE:
        return "helm.v3.Release"
    if type_.startswith(PROVIDER_PREFIX):
        return f"provider {text(type_.removeprefix(PROVIDER_PREFIX))}"
    package, _, rest = text(type_).partition(":")
    module, _, name = rest.rpartition(":")
    module = module.split("/")[0]
    if package in ("kubernetes", "pulumi"):
        return name or package
    return ".".join(filter(None, ("" if package == "aws" else package, "" if module == "index" else module, name)))


def short_component_type(type_: str) -> str:
    """The class of a component: ``Vpc`` for ``acme:index:Vpc``."""
    return text(type_).rpartition(":")[2] or text(type_)


def kind(resource: Resource) -> str:
    """The short type of a resource, or the class of a component."""
    return short_component_type(resource.type) if is_component(resource) else short_type(resource.type)


def is_kubernetes_object(resource: Resource) -> bool:
    """Whether the resource is a Kubernetes object that the graph knows in full: no chart, no remote component, not only read."""
    return (
        resource.package == "kubernetes"
        and resource.custom
        and not resource.remote
        and resource.type != CHART_TYPE
        and not is_read(resource)
    )


def identity(resource: Resource) -> str:
    """``namespace/name`` of a Kubernetes object; the logical name of any other resource."""
    if not is_kubernetes_object(resource):
        return text(resource.name)
    metadata = resource.inputs.get("metadata")
    return joined(at(metadata, "namespace"), at(metadata, "name") or resource.name, by="/")


def name_within(resource: Resource, owner: Resource | None, instead: str = "") -> str:
    """The identity of a resource inside ``owner``. If it begins with the owner's name, ``instead`` replaces that."""
    name = identity(resource)
    repeated = f"{text(owner.name)}-" if owner and owner.name and name == text(resource.name) else ""
    return instead + name.removeprefix(repeated) if repeated and name.startswith(repeated) else name


def protection(resource: Resource) -> tuple[str, ...]:
    """Words for options that protect the resource or take it over: ``protected``, ``imported``."""
    words = {"read": "read, not created", "import": "imported", "protect": "protected", "retainOnDelete": "kept on destroy"}
    return tuple(word for option, word in words.items() if resource.options.get(option))


def describe(resource: Resource, words: Words) -> str:
    """The facts that tell a resource from others of its type; ``""`` when none is known.

    ``words`` are those of a domain, and take precedence over the tables below.
    """
    if is_read(resource):
        return text(resource.options["read"])
    words_of = words.get(resource.type) or _WORDS.get(resource.type)
    if not words_of and is_kubernetes_object(resource):
        words_of = _KINDS.get(resource.type.rpartition(":")[2])
    if words_of:
        return words_of(resource.inputs)
    name = resource.inputs.get("name")
    return text(name) if isinstance(name, str) and name != resource.name and resource.package == "aws" else ""


def tells_all(resource: Resource) -> bool:
    """Whether ``describe`` makes the resource's name redundant."""
    return resource.type in _TELLING


def ports(service: Any) -> tuple[str, ...]:
    """The ports of a Service: ``80 → 8000 http``, ``9100/UDP``."""
    found = []
    for port in items(at(service, "ports")):
        number, target, protocol = (text(at(port, key)) for key in ("port", "targetPort", "protocol"))
        name = text(at(port, "name"))
        shown = number + (f"/{protocol}" if protocol not in ("", "TCP") and protocol != number else "")
        moved = target and target not in (number, name)
        found.append(joined(f"{shown}→{target}" if moved else shown, name if name != number else ""))
    return unique(found)


def last(value: Any, by: str = "/") -> str:
    """The last part of a path or an ARN."""
    return text(value) if is_token(value) else text(value).rpartition(by)[2]


def _principals(inputs: Mapping[str, Any]) -> str:
    """The principals that may assume a role."""
    document = inputs.get("assumeRolePolicy")
    if isinstance(document, str) and not is_token(document):
        try:
            document = json.loads(document)
        except ValueError:
            return ""
    statements = at(document, "Statement")
    found = [
        who
        for statement in (statements if isinstance(statements, list) else [statements])
        for value in table(at(statement, "Principal")).values()
        for who in texts(value)
    ]
    return f"for {', '.join(unique(found))}" if found else ""


def _ports_of_rule(inputs: Mapping[str, Any], source: Any) -> str:
    protocol = text(inputs.get("ipProtocol") or inputs.get("protocol"))
    if protocol == "-1":
        return joined("all", inputs.get("type"), source)
    return joined(protocol, span(inputs.get("fromPort"), inputs.get("toPort")), inputs.get("type"), source)


def _peer(inputs: Mapping[str, Any]) -> Any:
    keys = ("cidrIpv4", "cidrIpv6", "referencedSecurityGroupId", "prefixListId", "sourceSecurityGroupId", "self")
    found = [text(inputs.get(key)) for key in keys] + list(texts(inputs.get("cidrBlocks")))
    return ", ".join(unique("itself" if peer == "true" else peer for peer in found if peer != "false"))


def root_disk(template: Any) -> str:
    """Size and type of the first disk of a launch template."""
    disks = items(at(template, "blockDeviceMappings"))
    ebs = at(disks[0], "ebs") if disks else None
    size = text(at(ebs, "volumeSize"))
    # EC2 counts in GiB. A resource that follows the shape of a launch template may give a quantity with a unit.
    return joined(f"{size} GiB" if size.isdecimal() else size, at(ebs, "volumeType"), "root disk") if size else ""


def efa_interfaces(template: Any) -> str:
    """The number of EFA interfaces in a launch template: ``1 EFA interface``; ``""`` for none."""
    kinds = [text(at(interface, "interfaceType")) for interface in items(at(template, "networkInterfaces"))]
    count = sum(kind.startswith("efa") for kind in kinds)
    return counted(count, "EFA interface") if count else ""


def span(low: Any, high: Any) -> str:
    """``1–4``, or ``4`` when both are the same or one is missing."""
    return "–".join(unique((text(low), text(high))))


def _lustre(inputs: Mapping[str, Any]) -> str:
    size = text(inputs.get("storageCapacity"))
    return joined(inputs.get("deploymentType"), f"{size} GiB" if size else "", by=", ")


def _days(inputs: Mapping[str, Any]) -> str:
    days = text(inputs.get("retentionInDays"))
    kept = f"{days} day{'' if days == '1' else 's'}" if days and days != "0" else "kept for ever"
    return joined(inputs.get("name"), kept, by=", ")


def _values(*paths: str) -> Callable[[Mapping[str, Any]], str]:
    """Words that are the values at some paths."""
    return lambda inputs: joined(*(at(inputs, *path.split(".")) for path in paths))


_WORDS: Words = {
    CHART_TYPE: lambda inputs: joined(last(inputs.get("chart")), inputs.get("version")),
    "aws:cloudwatch/logGroup:LogGroup": _days,
    "aws:ec2/launchTemplate:LaunchTemplate": lambda inputs: joined(
        inputs.get("imageId"), root_disk(inputs), efa_interfaces(inputs), by=", "
    ),
    "aws:ec2/securityGroupRule:SecurityGroupRule": lambda inputs: _ports_of_rule(inputs, _peer(inputs)),
    "aws:ec2/vpcEndpoint:VpcEndpoint": lambda inputs: (
        last(inputs.get("serviceName"), by="amazonaws.").partition(".")[2] or text(inputs.get("serviceName"))
    ),
    "aws:ecr/repository:Repository": lambda inputs: joined(
        inputs.get("name"), "immutable tags" if text(inputs.get("imageTagMutability")).startswith("IMMUTABLE") else ""
    ),
    "aws:eks/accessEntry:AccessEntry": lambda inputs: last(inputs.get("principalArn"), by=":"),
    "aws:eks/accessPolicyAssociation:AccessPolicyAssociation": lambda inputs: last(inputs.get("policyArn")),
    "aws:eks/podIdentityAssociation:PodIdentityAssociation": lambda inputs: joined(
        inputs.get("namespace"), inputs.get("serviceAccount"), by="/"
    ),
    "aws:fsx/lustreFileSystem:LustreFileSystem": _lustre,
    "aws:iam/role:Role": _principals,
    "aws:iam/rolePolicyAttachment:RolePolicyAttachment": lambda inputs: last(inputs.get("policyArn")),
    "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule": lambda inputs: _ports_of_rule(inputs, f"to {_peer(inputs)}"),
    "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule": lambda inputs: _ports_of_rule(inputs, f"from {_peer(inputs)}"),
    "aws:ec2/placementGroup:PlacementGroup": _values("strategy"),
    "aws:ec2/route:Route": _values("destinationCidrBlock", "destinationIpv6CidrBlock", "destinationPrefixListId"),
    "aws:ec2/securityGroup:SecurityGroup": _values("description"),
    "aws:ec2/subnet:Subnet": _values("cidrBlock", "availabilityZoneId", "availabilityZone"),
    "aws:ec2/vpc:Vpc": _values("cidrBlock"),
    "aws:efs/fileSystem:FileSystem": _values("throughputMode"),
    "aws:eks/addon:Addon": _values("addonName", "addonVersion"),
    "aws:eks/cluster:Cluster": _values("name", "version"),
    "aws:eks/fargateProfile:FargateProfile": _values("fargateProfileName"),
    "aws:lb/loadBalancer:LoadBalancer": _values("loadBalancerType", "name"),
    "aws:s3/bucket:Bucket": _values("bucket"),
    "aws:sqs/queue:Queue": _values("name"),
    "aws:ssm/parameter:Parameter": _values("name"),
    "eks:index:Cluster": _values("name", "version"),
}

_TELLING = frozenset(
    (
        "aws:ec2/route:Route",
        "aws:ec2/securityGroupRule:SecurityGroupRule",
        "aws:ec2/subnet:Subnet",
        "aws:ec2/vpcEndpoint:VpcEndpoint",
        "aws:eks/accessEntry:AccessEntry",
        "aws:eks/accessPolicyAssociation:AccessPolicyAssociation",
        "aws:eks/addon:Addon",
        "aws:eks/podIdentityAssociation:PodIdentityAssociation",
        "aws:iam/rolePolicyAttachment:RolePolicyAttachment",
        "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule",
        "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule",
    )
)

# By kind of Kubernetes object.
_KINDS: Words = {
    "HorizontalPodAutoscaler": lambda inputs: joined(
        span(at(inputs, "spec", "minReplicas"), at(inputs, "spec", "maxReplicas")),
        at(inputs, "spec", "scaleTargetRef", "name"),
        by=" × ",
    ),
    "PersistentVolumeClaim": _values("spec.resources.requests.storage", "spec.storageClassName"),
    "Service": lambda inputs: joined(
        "headless" if at(inputs, "spec", "clusterIP") == "None" else at(inputs, "spec", "type"),
        ", ".join(ports(inputs.get("spec"))),
    ),
    "StorageClass": _values("provisioner", "parameters.type"),
}
