"""Fills in well-formed values for what is known only after deployment, so that an API server can judge an object before that.

A recorded graph holds ``<net-private-a.id>`` for the id of a subnet and ``[secret]`` for a secret. The values that replace them
are made up, the same in every run, and formatted as AWS formats them. Similar text (``<pod>`` in a configuration file) stays:
only what names a resource of the graph is a token.
"""

import base64
import hashlib
import re
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from eks_inference_tools.reading.clusters import CLUSTER_TYPE, REMOTE_CLUSTER_TYPE
from eks_inference_tools.reading.machines import known
from eks_inference_tools.reading.node_groups import NODE_GROUP_TYPE
from eks_inference_tools.reading.releases import ADDON_TYPE
from stackgraph.graph.document import Graph, Resource
from stackgraph.graph.values import SECRET, UNKNOWN, is_token, plain, text

ACCOUNT = "111122223333"
"""The account id in AWS's own examples."""

SECRET_TEXT = "made-up-secret-of-a-simulation"
UNKNOWN_TEXT = "unknown-before-deployment"

# Used if neither the graph nor a provider tells the region.
_REGION = "us-west-2"

# A cluster, and what belongs to one that is made elsewhere: all are in its region.
_IN_ITS_REGION = (CLUSTER_TYPE, REMOTE_CLUSTER_TYPE, NODE_GROUP_TYPE, ADDON_TYPE)
_TOKEN = re.compile(r"<([^<>]+\.\w+)>")

# The form of outputs by type of resource. Sources: the AWS references of the services (resource ids: a prefix and 17 hexadecimal
# digits; ECR: `account.dkr.ecr.region.amazonaws.com/name`; EKS endpoints; SQS queue URLs) and, for ids, the "Outputs" in the
# documentation of the providers. `name` is the resource's name or the one that Pulumi would generate.
_FORMS: Mapping[str, Mapping[str, str]] = {
    "aws:cloudwatch/logGroup:LogGroup": {"id": "{name}"},
    "aws:ec2/eip:Eip": {"id": "eipalloc-{digits}", "publicIp": "192.0.2.10"},
    "aws:ec2/internetGateway:InternetGateway": {"id": "igw-{digits}"},
    "aws:ec2/launchTemplate:LaunchTemplate": {"id": "lt-{digits}"},
    "aws:ec2/natGateway:NatGateway": {"id": "nat-{digits}", "publicIp": "192.0.2.10"},
    "aws:ec2/placementGroup:PlacementGroup": {"id": "{name}", "placementGroupId": "pg-{digits}"},
    "aws:ec2/routeTable:RouteTable": {"id": "rtb-{digits}"},
    "aws:ec2/securityGroup:SecurityGroup": {"id": "sg-{digits}"},
    "aws:ec2/subnet:Subnet": {"id": "subnet-{digits}", "availabilityZone": "{region}a"},
    "aws:ec2/vpc:Vpc": {"id": "vpc-{digits}", "defaultSecurityGroupId": "sg-{digits}", "mainRouteTableId": "rtb-{digits}"},
    "aws:ec2/vpcEndpoint:VpcEndpoint": {"id": "vpce-{digits}"},
    "aws:ecr/repository:Repository": {
        "id": "{name}",
        "registryId": "{account}",
        "repositoryUrl": "{account}.dkr.ecr.{region}.amazonaws.com/{name}",
    },
    "aws:efs/accessPoint:AccessPoint": {"id": "fsap-{digits}"},
    "aws:efs/fileSystem:FileSystem": {"id": "fs-{digits}", "dnsName": "fs-{digits}.efs.{region}.amazonaws.com"},
    "aws:efs/mountTarget:MountTarget": {"id": "fsmt-{digits}", "ipAddress": "10.0.0.10"},
    "aws:eks/cluster:Cluster": {
        "id": "{name}",
        "endpoint": "https://{key}.gr7.{region}.eks.amazonaws.com",
        "certificateAuthority.data": "bWFkZSB1cA==",
        "vpcConfig.clusterSecurityGroupId": "sg-{digits}",
    },
    "aws:eks/nodeGroup:NodeGroup": {"id": "{name}:{name}", "nodeGroupName": "{name}"},
    "aws:fsx/lustreFileSystem:LustreFileSystem": {
        "id": "fs-{digits}",
        "dnsName": "fs-{digits}.fsx.{region}.amazonaws.com",
        "mountName": "abcdefgh",
    },
    "aws:iam/role:Role": {"id": "{name}", "arn": "arn:aws:iam::{account}:role/{name}"},
    "aws:iam/instanceProfile:InstanceProfile": {"id": "{name}", "arn": "arn:aws:iam::{account}:instance-profile/{name}"},
    "aws:kms/key:Key": {"id": "{uuid}", "keyId": "{uuid}", "arn": "arn:aws:kms:{region}:{account}:key/{uuid}"},
    "aws:lb/loadBalancer:LoadBalancer": {"dnsName": "{name}-{short}.elb.{region}.amazonaws.com"},
    "aws:s3/bucket:Bucket": {
        "id": "{name}",
        "bucket": "{name}",
        "arn": "arn:aws:s3:::{name}",
        "bucketDomainName": "{name}.s3.amazonaws.com",
        "bucketRegionalDomainName": "{name}.s3.{region}.amazonaws.com",
    },
    "aws:secretsmanager/secret:Secret": {"id": "arn:aws:secretsmanager:{region}:{account}:secret:{name}-AbCdEf"},
    "aws:sqs/queue:Queue": {
        "id": "https://sqs.{region}.amazonaws.com/{account}/{name}",
        "url": "https://sqs.{region}.amazonaws.com/{account}/{name}",
    },
    "aws:ssm/parameter:Parameter": {"id": "{name}", "name": "{name}"},
    "eks:index:Cluster": {
        "clusterSecurityGroupId": "sg-{digits}",
        "nodeSecurityGroupId": "sg-{digits}",
        "eksCluster.id": "{name}",
        "eksCluster.name": "{name}",
        "eksCluster.endpoint": "https://{key}.gr7.{region}.eks.amazonaws.com",
        "eksCluster.certificateAuthority.data": "bWFkZSB1cA==",
        "eksCluster.vpcConfig.clusterSecurityGroupId": "sg-{digits}",
        "oidcIssuer": "oidc.eks.{region}.amazonaws.com/id/{key}",
        "oidcProviderUrl": "https://oidc.eks.{region}.amazonaws.com/id/{key}",
        "oidcProviderArn": "arn:aws:iam::{account}:oidc-provider/oidc.eks.{region}.amazonaws.com/id/{key}",
    },
    "kubernetes:helm.sh/v3:Release": {"id": "{name}", "name": "{name}", "status.name": "{name}"},
}

# The form of outputs of other resources, by the end of the output's name.
_ENDINGS: Mapping[str, str] = {
    "accountid": "{account}",
    "arn": "arn:aws:{service}:{region}:{account}:{name}",
    "dnsname": "{name}.example.com",
    "endpoint": "https://{name}.example.com",
    "hostname": "{name}.example.com",
    "keyid": "{uuid}",
    "name": "{name}",
    "ownerid": "{account}",
    "region": "{region}",
    "registryid": "{account}",
    "securitygroupid": "sg-{digits}",
    "subnetid": "subnet-{digits}",
    "url": "https://{name}.example.com",
    "vpcid": "vpc-{digits}",
}

# The input that holds the name of a resource, if not `name`.
_NAME_KEYS: Mapping[str, str] = {"aws:s3/bucket:Bucket": "bucket", "aws:eks/nodeGroup:NodeGroup": "nodeGroupName"}

# Keys of Kubernetes objects whose value is a string, and maps with string values: an unknown or secret value is a string, too.
_TEXT_KEYS = frozenset(
    (
        "clusterName",
        "host",
        "image",
        "key",
        "message",
        "name",
        "namespace",
        "path",
        "server",
        "serviceAccountName",
        "url",
        "value",
    )
)
_TEXT_TABLES = frozenset(
    ("annotations", "binaryData", "data", "labels", "matchLabels", "nodeSelector", "parameters", "stringData")
)

# Keys that an API server requires by type of Secret, and contents that it parses (Kubernetes, Secret types).
_SECRET_KEYS: Mapping[str, tuple[str, ...]] = {
    "kubernetes.io/basic-auth": ("username", "password"),
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
}
_SECRET_DOCUMENTS = {".dockercfg": "{}", ".dockerconfigjson": '{"auths": {}}'}

_DROPPED = object()


class Placeholders:
    """Fills in values for the objects of one graph."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._by_name: dict[str, list[Resource]] = {}
        for resource in graph.resources:
            self._by_name.setdefault(resource.name, []).append(resource)
        self._asked = {called.token.rpartition(":")[2] for called in graph.functions if called.answer == "placeholder"}

    def filled(self, value: Mapping[str, Any], owner: Resource) -> tuple[dict[str, Any], tuple[str, ...]]:
        """Returns the value without tokens, and the paths of values that are guessed or left out.

        A token that names a resource becomes a value in the form of that output. ``<unknown>``, results of provider functions and
        ``[secret]`` become made-up strings where a string is required, and are left out elsewhere.
        """
        unsure: list[str] = []
        found = self._fill(value, owner, (), unsure)
        return found, tuple(unsure)

    def _fill(self, value: Any, owner: Resource, path: tuple[str, ...], unsure: list[str]) -> Any:
        if isinstance(value, Mapping):
            inside = {str(key): self._fill(item, owner, (*path, str(key)), unsure) for key, item in value.items()}
            return {key: item for key, item in inside.items() if item is not _DROPPED}
        if isinstance(value, list | tuple):
            inside = [self._fill(item, owner, (*path, str(number)), unsure) for number, item in enumerate(value)]
            return [item for item in inside if item is not _DROPPED]
        if not isinstance(value, str):
            return plain(value)
        value = UNKNOWN if is_token(value) and self._is_asked(value[1:-1]) else value
        if value in (SECRET, UNKNOWN):
            wants_text = path[-1] in _TEXT_KEYS or (len(path) > 1 and path[-2] in _TEXT_TABLES)
            if value == UNKNOWN or not wants_text:
                unsure.append(".".join(path))
            return (SECRET_TEXT if value == SECRET else UNKNOWN_TEXT) if wants_text else _DROPPED
        return self.resolved(value, owner, unsure, ".".join(path))

    def resolved(self, value: str, owner: Resource, unsure: list[str] | None = None, path: str = "") -> str:
        """Returns the text with all its tokens replaced."""

        def stand_in(match: re.Match[str]) -> str:
            found = self._named(match[1], owner)
            if found is None and not self._is_asked(match[1]):
                return match[0]
            filled, sure = self._output(*found) if found else (UNKNOWN_TEXT, False)
            if not sure and unsure is not None:
                unsure.append(path)
            return filled

        return _TOKEN.sub(stand_in, value)

    def _is_asked(self, inside: str) -> bool:
        """Whether a token stands for the result of a provider function that nobody answered."""
        return inside.partition(".")[0] in self._asked

    def _named(self, inside: str, owner: Resource) -> tuple[Resource, str] | None:
        """Returns the resource and the output that a token names. The longest name wins, then a dependency of the owner."""
        for end in (at.start() for at in reversed(list(re.finditer(r"\.", inside)))):
            candidates = self._by_name.get(inside[:end], [])
            if candidates:
                needed = {*owner.dependencies, *(urn for urns in owner.property_dependencies.values() for urn in urns)}
                chosen = min(candidates, key=lambda r: (r.urn not in needed, not (r.custom or r.remote), r.urn))
                return chosen, inside[end + 1 :]
        return None

    def _output(self, resource: Resource, output: str) -> tuple[str, bool]:
        """Returns an output of a resource, and whether its form is known."""
        own = resource.inputs.get(output)
        if isinstance(own, str) and not is_token(own):
            return self.resolved(own, resource), True
        if resource.package == "kubernetes" and output in ("metadata.name", "metadata.namespace", "id"):
            return self._of_object(resource, output), True
        form = _FORMS.get(resource.type, {}).get(output)
        if form is None:
            last = output.rpartition(".")[2].lower()
            form = next((form for ending, form in _ENDINGS.items() if last.endswith(ending)), None)
        sure = form is not None
        digest = hashlib.sha256(resource.urn.encode()).hexdigest()
        values = {
            "account": ACCOUNT,
            "digits": f"0{digest[:16]}",
            "key": digest[:32].upper(),
            "name": self._name(resource, digest),
            "region": region_of(self._graph, resource),
            "service": resource.type.partition(":")[2].partition("/")[0],
            "short": digest[:10],
            "uuid": str(UUID(digest[:32])),
        }
        return (form or "{name}").format_map(values), sure

    def _name(self, resource: Resource, digest: str) -> str:
        given = resource.inputs.get(_NAME_KEYS.get(resource.type, "name"))
        if isinstance(given, str) and not is_token(given):
            return self.resolved(given, resource)
        # Pulumi's auto-naming: the logical name and seven hexadecimal digits.
        return resource.name if resource.package == "eks" else f"{resource.name}-{digest[:7]}"

    def _of_object(self, resource: Resource, output: str) -> str:
        metadata = resource.inputs.get("metadata")
        metadata = metadata if isinstance(metadata, Mapping) else {}
        name = object_name(self.filled(metadata, resource)[0], resource)
        namespace = text(metadata.get("namespace")) or "default"
        return {"metadata.name": name, "metadata.namespace": namespace}.get(output, f"{namespace}/{name}")


def region_of(graph: Graph, resource: Resource | None) -> str:
    """Returns the region of ``known_region``, else a made-up one."""
    return known_region(graph, resource) or _REGION


def known_region(graph: Graph, resource: Resource | None) -> str:
    """Returns the region of a resource or its provider, or for an object in a cluster that of the graph's cluster.

    Otherwise it is that of the AWS providers, or of the clusters that are looked up, where they agree. Empty if nothing tells.
    """
    if resource is None or resource.package == "kubernetes":
        near = (resource for type_ in _IN_ITS_REGION for resource in graph.of_type(type_))
    else:
        near = iter((resource,))
    if found := next((region for resource in near if (region := _own_region(graph, resource))), ""):
        return found
    providers = {known(resource.inputs.get("region")) for resource in graph.of_type("pulumi:providers:aws")} - {""}
    looked_up = {known(one.args.get("region")) for one in graph.functions if one.token.startswith("aws:eks/")} - {""}
    agreed, *others = providers or looked_up or {""}
    return "" if others else agreed


def _own_region(graph: Graph, resource: Resource) -> str:
    provider = graph.by_urn.get(resource.provider)
    return known(resource.inputs.get("region")) or (known(provider.inputs.get("region")) if provider else "")


def object_name(metadata: Mapping[str, Any], resource: Resource) -> str:
    """Returns an object's name: the given one, one with the given prefix, or the logical name (Pulumi adds random digits)."""
    if name := metadata.get("name"):
        return name
    prefix = metadata.get("generateName")
    return f"{prefix}x7k2p" if isinstance(prefix, str) else resource.name


def secret_data(manifest: dict[str, Any]) -> None:
    """Gives a Secret made-up contents in the encoding of the API: a graph keeps only the keys."""
    kind = text(manifest.get("type"))
    wanted = _SECRET_KEYS.get(kind, ())
    for key in ("data", "stringData"):
        held = manifest.pop(key, None)
        names = tuple(held) if isinstance(held, Mapping) else wanted if held is not None else ()
        contents = {name: _SECRET_DOCUMENTS.get(name, SECRET_TEXT) for name in names}
        if key == "data":
            contents = {name: base64.b64encode(value.encode()).decode() for name, value in contents.items()}
        if contents:
            manifest[key] = contents
