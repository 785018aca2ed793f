"""Whether what the stack names and does not make exists: roles, keys, certificates, zones, subnets, file systems. Pure.

It finds ARNs and ids anywhere in the graph, so a new key of a spec needs no line here.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from eks_inference.stack.rules import disks_are_decrypted
from eks_inference_tools.doctor.findings import Finding, error, ok, unknown, warning
from eks_inference_tools.doctor.identity import first_region, who
from eks_inference_tools.doctor.questions import Call, Inquiry, arn, call
from eks_inference_tools.reading.node_groups import LAUNCH_TEMPLATE_TYPE
from stackgraph.graph.document import Graph
from stackgraph.graph.values import at, is_token, items, leaves, text, unique

TOPIC = "given by the stack"

_ARN = re.compile(r"arn:(aws[a-z-]*):([a-z0-9-]+):([a-z0-9-]*):(\d{12}|aws|):([A-Za-z0-9_./:+=@-]*[A-Za-z0-9_/+=@-])")
_ID = re.compile(r"(?<![\w-])(vpc|subnet|sg|ami|fs)-([0-9a-f]{8}|[0-9a-f]{17})(?![\w-])")


@dataclass(frozen=True)
class Arn:
    """The parts of an ARN (AWS General Reference, "ARN format")."""

    whole: str
    service: str
    region: str
    account: str
    resource: str

    @property
    def name(self) -> str:
        """What follows the kind of resource, without a path: the name of a role or policy."""
        return self.resource.rpartition("/")[2]

    @property
    def kind(self) -> str:
        return re.split(r"[:/]", self.resource, maxsplit=1)[0]


def given(graph: Graph, regions: tuple[str, ...]) -> Iterator[Inquiry]:
    """Yields each thing that the graph names and does not make."""
    made = {text(resource.inputs.get("bucket")) for resource in graph.resources}
    texts_ = sorted({leaf for resource in graph.resources for leaf in leaves(resource.inputs) if isinstance(leaf, str)})
    for arn_ in sorted({arn_ for one in texts_ for arn_ in _arns(one)}, key=lambda one: one.whole):
        if arn_.service == "s3":
            if (bucket := arn_.resource.partition("/")[0]) not in made:
                yield _bucket(bucket, regions)
        elif asked := _of_arn(arn_, regions[0]):
            yield Inquiry(TOPIC, arn_.whole, (asked, who(regions[0])), partial(_exists, arn_=arn_, regions=regions))
    of_disks = {leaf for one in graph.of_type(LAUNCH_TEMPLATE_TYPE) for leaf in leaves(one.inputs.get("blockDeviceMappings"))}
    for key in sorted(one for one in of_disks if isinstance(one, str) and ":kms:" in one):
        place = key.split(":")[3]
        policy = call("kms.GetKeyPolicy", place, key, KeyId=key, PolicyName="default")
        grants = call("kms.ListGrants", place, key, KeyId=key)
        yield Inquiry(TOPIC, f"{key} for disks", (policy, grants), partial(_for_disks, key=key))
    for kind, id_ in sorted({(found[1], found[0]) for one in texts_ for found in _ID.finditer(one)}):
        yield _of_id(kind, id_, regions[0])
    zones = {text(resource.inputs.get("zoneId")) for resource in graph.resources if resource.type.startswith("aws:route53/")}
    for zone in sorted(zone for zone in zones if zone and not is_token(zone)):
        place = first_region(regions[0])
        asked = call("route53.GetHostedZone", place, arn("route53", place, f"hostedzone/{zone}"), Id=zone)
        yield Inquiry(TOPIC, f"hosted zone {zone}", (asked,), partial(_zone, zone=zone))


def _arns(value: str) -> Iterator[Arn]:
    """The ARNs in a text, without those of which a part stands for many, or is known only after deployment."""
    for found in _ARN.finditer(value):
        of_many = value[found.end() : found.end() + 1] in ("*", "?", "<", "$")
        if not of_many or (found[2] == "s3" and "/" in found[5]):
            yield Arn(found[0], *found.groups()[1:])


# -- by ARN ----------------------------------------------------------------------------------------------------------------------


_ASKED: Mapping[tuple[str, str], tuple[str, str, bool]] = {
    ("acm", "certificate"): ("acm.DescribeCertificate", "CertificateArn", False),
    ("iam", "policy"): ("iam.GetPolicy", "PolicyArn", False),
    ("iam", "role"): ("iam.GetRole", "RoleName", True),
    ("iam", "user"): ("iam.GetUser", "UserName", True),
    ("kms", "key"): ("kms.DescribeKey", "KeyId", False),
    ("sns", ""): ("sns.GetTopicAttributes", "TopicArn", False),
    ("wafv2", "regional"): ("wafv2.GetWebACL", "ARN", False),
}
"""By service and kind of resource: the operation, its parameter, and whether that is the name in place of the ARN."""


def _of_arn(arn_: Arn, region: str) -> Call | None:
    """The question whether it exists; None for what has none here."""
    kind = "" if arn_.service == "sns" else arn_.kind
    row = _ASKED.get((arn_.service, kind))
    # Policies of AWS are in account `aws`. Roles of AWS are in accounts that tell nobody.
    if row is None or not (arn_.account.isdecimal() or (arn_.account, kind) == ("aws", "policy")):
        return None
    operation, parameter, by_name = row
    place = arn_.region or first_region(region)
    return call(operation, place, arn_.whole, **{parameter: arn_.name if by_name else arn_.whole})


def _exists(
    answer: Mapping[str, Any] | None, caller: Mapping[str, Any], arn_: Arn, regions: tuple[str, ...]
) -> Iterator[Finding]:
    mine = text(caller.get("Account"))
    if arn_.service == "iam" and arn_.account not in ("aws", mine):
        yield unknown(f"{arn_.whole} is in another account than {mine} and cannot be looked up", "ask the owner of that account")
    elif answer is None:
        yield error(f"{arn_.whole} does not exist", "correct it in the stack file, or make it first")
    elif arn_.service in ("acm", "kms", "wafv2") and arn_.region not in regions:
        yield error(f"{arn_.whole} is in {arn_.region}, the stack in {regions[0]}", "name one of the stack's region")
    elif arn_.service == "kms":
        yield from _key(answer, arn_)
    elif arn_.service == "acm":
        yield from _certificate(answer, arn_)
    else:
        yield ok(f"{arn_.whole} exists")


def _key(answer: Mapping[str, Any], arn_: Arn) -> Iterator[Finding]:
    state = text(at(answer, "KeyMetadata", "KeyState"))
    if at(answer, "KeyMetadata", "Enabled") is False or state not in ("", "Enabled"):
        yield error(f"{arn_.whole} is {state or 'not enabled'}", "enable it, or name another key")
    else:
        yield ok(f"{arn_.whole} is enabled; who may use it is not judged here")


def _for_disks(policy: Mapping[str, Any] | None, grants: Mapping[str, Any] | None, key: str) -> Iterator[Finding]:
    """Whether Auto Scaling may use a key: EC2 Auto Scaling user guide, Required AWS KMS key policy. Conditions are not judged."""
    if policy is None or grants is None:  # told of the key itself
        return
    statements = [text(policy.get("Policy")), *(text(item.get("GranteePrincipal")) for item in items(grants.get("Grants")))]
    if any(_AUTO_SCALING in statement for statement in statements):
        yield ok(f"{key} names {_AUTO_SCALING}")
    elif re.search(r'"AWS"\s*:\s*"\*"|"Principal"\s*:\s*"\*"', statements[0]):
        yield unknown(
            f"{key} allows every principal on conditions, which are not judged", f"see that they let {_AUTO_SCALING} in"
        )
    else:
        yield warning(f"neither policy nor grants of {key} name {_AUTO_SCALING}: no managed node starts", disks_are_decrypted.fix)


_AUTO_SCALING = "AWSServiceRoleForAutoScaling"


def _certificate(answer: Mapping[str, Any], arn_: Arn) -> Iterator[Finding]:
    status = text(at(answer, "Certificate", "Status"))
    names = ", ".join(unique(map(text, items(at(answer, "Certificate", "SubjectAlternativeNames")))))
    if status != "ISSUED":
        yield error(f"{arn_.whole} is {status or 'without a status'}", "validate it, or name an issued one")
    else:
        yield ok(f"{arn_.whole} is issued for {names or text(at(answer, 'Certificate', 'DomainName'))}")


# -- by id -----------------------------------------------------------------------------------------------------------------------


def _of_id(kind: str, id_: str, region: str) -> Inquiry:
    operation, parameter, key = {
        "ami": ("ec2.DescribeImages", "ImageIds", "Images"),
        "fs": ("efs.DescribeFileSystems", "FileSystemId", "FileSystems"),
        "sg": ("ec2.DescribeSecurityGroups", "GroupIds", "SecurityGroups"),
        "subnet": ("ec2.DescribeSubnets", "SubnetIds", "Subnets"),
        "vpc": ("ec2.DescribeVpcs", "VpcIds", "Vpcs"),
    }[kind]
    if kind != "fs":
        asked = call(operation, region, "*", **{parameter: [id_]})
        return Inquiry(TOPIC, id_, (asked,), partial(_listed, key=key, id_=id_, region=region))
    # The ids of EFS and of FSx look alike.
    efs = call(operation, region, arn("elasticfilesystem", region, f"file-system/{id_}"), **{parameter: id_})
    fsx = call("fsx.DescribeFileSystems", region, arn("fsx", region, f"file-system/{id_}"), FileSystemIds=[id_])
    return Inquiry(TOPIC, id_, (efs, fsx), partial(_file_system, id_=id_, region=region))


def _listed(answer: Mapping[str, Any] | None, key: str, id_: str, region: str) -> Iterator[Finding]:
    row = next(iter(items((answer or {}).get(key))), None)
    if row is None:
        yield error(f"{region} has no {id_} that this account sees", "correct it in the stack file")
        return
    free, zone = row.get("AvailableIpAddressCount"), text(row.get("AvailabilityZoneId"))
    about = (f" in {zone}" if zone else "") + (f", {free} addresses free" if isinstance(free, int) else "")
    yield ok(f"{id_} exists{about}")


def _file_system(efs: Mapping[str, Any] | None, fsx: Mapping[str, Any] | None, id_: str, region: str) -> Iterator[Finding]:
    row = next((item for answer in (efs, fsx) for item in items((answer or {}).get("FileSystems"))), None)
    if row is None:
        yield error(f"{region} has no file system {id_} that this account sees", "correct it in the stack file")
        return
    state = text(row.get("LifeCycleState") or row.get("Lifecycle"))
    if state.lower() == "available":
        yield ok(f"{id_} is available")
    else:
        yield warning(f"{id_} is {state or 'in an unknown state'}", "wait until it is available")


# -- buckets and zones -----------------------------------------------------------------------------------------------------------


def bucket_question(bucket: str, region: str) -> Call:
    """Whether a bucket exists, in whatever account."""
    return call("s3.HeadBucket", region, arn("s3", region, bucket), Bucket=bucket)


def _bucket(bucket: str, regions: tuple[str, ...]) -> Inquiry:
    def judged(answer: Mapping[str, Any] | None) -> Iterator[Finding]:
        home = text((answer or {}).get("BucketRegion"))
        if answer is None:
            yield error(f"bucket {bucket} does not exist", "correct its name in the stack file, or make it first")
        elif home and home not in regions:
            yield unknown(f"bucket {bucket} is in {home}: traffic between regions costs, and gateway endpoints do not serve it")
        else:
            yield ok(f"bucket {bucket} exists")

    return Inquiry(TOPIC, f"bucket {bucket}", (bucket_question(bucket, regions[0]),), judged)


def _zone(answer: Mapping[str, Any] | None, zone: str) -> Iterator[Finding]:
    if answer is None:
        yield error(f"hosted zone {zone} does not exist", "correct gateway.hosted_zone_id")
        return
    private = bool(at(answer, "HostedZone", "Config", "PrivateZone"))
    yield ok(f"hosted zone {zone} is {text(at(answer, 'HostedZone', 'Name'))} ({'private' if private else 'public'})")
