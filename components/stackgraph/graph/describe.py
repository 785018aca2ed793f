"""What a resource is called and what a person looks for in it, in a few words."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from stackgraph.graph.document import CHART_TYPE, PROVIDER_PREFIX, Resource
from stackgraph.graph.tokens import is_token
from stackgraph.graph.values import at, items, joined, table, text, texts, unique

Words = Mapping[str, Callable[[Mapping[str, Any]], str]]
"""By resource type: what makes of a resource's inputs the words that tell it from others of its type."""


def short_type(type_: str) -> str:
    """A type token as people say it: ``ec2.Subnet``, ``Deployment``, ``NodePool``, ``helm.v3.Release``, ``random.RandomId``."""
    if type_ == CHART_TYPE:
        return "helm.v3.Release"
    if type_.startswith(PROVIDER_PREFIX):
        return f"provider {text(type_.removeprefix(PROVIDER_PREFIX))}"
    package, _, rest = text(type_).partition(":")
    module, _, name = rest.rpartition(":")
    module = module.split("/")[0]
    if package == "kubernetes" or package == "pulumi":
        return name or package
    if package == "aws":
        return f"{module}.{name}" if module and module != "index" else name
    return ".".join(part for part in (package, module if module != "index" else "", name) if part)


def short_component_type(type_: str) -> str:
    """The class of a component: ``Vpc`` for ``acme:index:Vpc``."""
    return text(type_).rpartition(":")[2] or text(type_)


def is_kubernetes_object(resource: Resource) -> bool:
    """An object of a cluster that the graph knows in full: no chart, no remote component, none that is only read."""
    return (
        resource.package == "kubernetes"
        and resource.custom
        and not resource.remote
        and resource.type != CHART_TYPE
        and "read" not in resource.options
    )


def identity(resource: Resource) -> str:
    """``namespace/name`` of a Kubernetes object, else the resource's logical name."""
    if not is_kubernetes_object(resource):
        return text(resource.name)
    metadata = resource.inputs.get("metadata")
    return joined(at(metadata, "namespace"), at(metadata, "name") or resource.name, by="/")


def protection(resource: Resource) -> tuple[str, ...]:
    """What the resource's options say about its life, for people who are about to deploy or destroy."""
    words = {"read": "read, not created", "import": "imported", "protect": "protected", "retainOnDelete": "kept on destroy"}
    return tuple(word for option, word in words.items() if resource.options.get(option))


def describe(resource: Resource, words: Words) -> str:
    """The facts that tell a resource from others of its type; ``""`` when nothing is known to be worth a word.

    ``words`` are those of a domain. They go before what is known here of the types of providers.
    """
    if "read" in resource.options:
        return text(resource.options["read"])
    words_of = words.get(resource.type) or _WORDS.get(resource.type)
    if words_of:
        return words_of(resource.inputs)
    paths = _PATHS.get(resource.type)
    if paths:
        return joined(*(at(resource.inputs, *path.split(".")) for path in paths))
    if is_kubernetes_object(resource):
        return _KINDS.get(resource.type.rpartition(":")[2], lambda inputs: "")(resource.inputs)
    name = resource.inputs.get("name")
    return text(name) if isinstance(name, str) and name != resource.name and resource.package == "aws" else ""


def tells_all(resource: Resource) -> bool:
    """Whether ``describe`` says everything that the resource's name could."""
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
    """Who may take on a role."""
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
    first, until = text(inputs.get("fromPort")), text(inputs.get("toPort"))
    span = "" if protocol == "-1" else "–".join(unique((first, until)))
    return joined("all" if protocol == "-1" else protocol, span, inputs.get("type"), source)


def _peer(inputs: Mapping[str, Any]) -> Any:
    keys = ("cidrIpv4", "cidrIpv6", "referencedSecurityGroupId", "prefixListId", "sourceSecurityGroupId", "self")
    found = [text(inputs.get(key)) for key in keys] + list(texts(inputs.get("cidrBlocks")))
    return ", ".join(unique("itself" if peer == "true" else peer for peer in found if peer != "false"))


def _launch_template(inputs: Mapping[str, Any]) -> str:
    return joined(inputs.get("imageId"), root_disk(inputs), efa_interfaces(inputs), by=", ")


def root_disk(template: Any) -> str:
    """Size and type of the first disk of a launch template."""
    disks = items(at(template, "blockDeviceMappings"))
    ebs = at(disks[0], "ebs") if disks else None
    size = text(at(ebs, "volumeSize"))
    # EC2 counts GiB; what is made after its template may have a quantity with a unit.
    return joined(f"{size} GiB" if size.isdecimal() else size, at(ebs, "volumeType"), "root disk") if size else ""


def efa_interfaces(template: Any) -> str:
    """How many of a launch template's interfaces are EFA."""
    kinds = [text(at(interface, "interfaceType")) for interface in items(at(template, "networkInterfaces"))]
    count = sum(kind.startswith("efa") for kind in kinds)
    return f"{count} EFA {'interface' if count == 1 else 'interfaces'}" if count else ""


def _chart(inputs: Mapping[str, Any]) -> str:
    return joined(last(inputs.get("chart")), inputs.get("version"))


def _span(low: Any, high: Any) -> str:
    return "–".join(unique((text(low), text(high))))


def _repository(inputs: Mapping[str, Any]) -> str:
    immutable = text(inputs.get("imageTagMutability")).startswith("IMMUTABLE")
    return joined(inputs.get("name"), "immutable tags" if immutable else "")


def _lustre(inputs: Mapping[str, Any]) -> str:
    size = text(inputs.get("storageCapacity"))
    return joined(inputs.get("deploymentType"), f"{size} GiB" if size else "", by=", ")


def _days(inputs: Mapping[str, Any]) -> str:
    days = text(inputs.get("retentionInDays"))
    kept = f"{days} day{'' if days == '1' else 's'}" if days and days != "0" else "kept for ever"
    return joined(inputs.get("name"), kept, by=", ")


_WORDS: Words = {
    CHART_TYPE: _chart,
    "aws:cloudwatch/logGroup:LogGroup": _days,
    "aws:ec2/launchTemplate:LaunchTemplate": _launch_template,
    "aws:ec2/securityGroupRule:SecurityGroupRule": lambda inputs: _ports_of_rule(inputs, _peer(inputs)),
    "aws:ec2/vpcEndpoint:VpcEndpoint": lambda inputs: (
        last(inputs.get("serviceName"), by="amazonaws.").partition(".")[2] or text(inputs.get("serviceName"))
    ),
    "aws:ecr/repository:Repository": _repository,
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
}

_PATHS: Mapping[str, tuple[str, ...]] = {
    "aws:ec2/placementGroup:PlacementGroup": ("strategy",),
    "aws:ec2/route:Route": ("destinationCidrBlock", "destinationIpv6CidrBlock", "destinationPrefixListId"),
    "aws:ec2/securityGroup:SecurityGroup": ("description",),
    "aws:ec2/subnet:Subnet": ("cidrBlock", "availabilityZoneId", "availabilityZone"),
    "aws:ec2/vpc:Vpc": ("cidrBlock",),
    "aws:efs/fileSystem:FileSystem": ("throughputMode",),
    "aws:eks/addon:Addon": ("addonName", "addonVersion"),
    "aws:eks/cluster:Cluster": ("name", "version"),
    "aws:eks/fargateProfile:FargateProfile": ("fargateProfileName",),
    "aws:lb/loadBalancer:LoadBalancer": ("loadBalancerType", "name"),
    "aws:s3/bucket:Bucket": ("bucket",),
    "aws:sqs/queue:Queue": ("name",),
    "aws:ssm/parameter:Parameter": ("name",),
    "eks:index:Cluster": ("name", "version"),
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

_KINDS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "HorizontalPodAutoscaler": lambda inputs: joined(
        _span(at(inputs, "spec", "minReplicas"), at(inputs, "spec", "maxReplicas")),
        at(inputs, "spec", "scaleTargetRef", "name"),
        by=" × ",
    ),
    "PersistentVolumeClaim": lambda inputs: joined(
        at(inputs, "spec", "resources", "requests", "storage"), at(inputs, "spec", "storageClassName")
    ),
    "Service": lambda inputs: joined(
        "headless" if at(inputs, "spec", "clusterIP") == "None" else at(inputs, "spec", "type"),
        ", ".join(ports(inputs.get("spec"))),
    ),
    "StorageClass": lambda inputs: joined(inputs.get("provisioner"), at(inputs, "parameters", "type")),
}
