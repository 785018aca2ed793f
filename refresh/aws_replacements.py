"""Which changes of AWS resources replace them, from the source of the Terraform provider, which no package index has.

    make refresh TABLE=aws_replacements FROM='INDEX VERSION DATE'

INDEX is a checkout of lonegunmanb/terraform-provider-aws-index: hashicorp/terraform-provider-aws, each function in a file.
VERSION is the provider's, DATE the day of the checkout. ``ForceNew: true`` (SDK v2) and ``RequiresReplace()`` (framework)
become ``replace``, their conditional forms ``may``. pulumi-aws, as installed, has the names of types and properties. Prints
what found no place.
"""

import importlib
import inspect
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_origin

import pulumi_aws
from pulumi import _types

from refresh import ROOT

FILE = ROOT / "components" / "stackgraph" / "diff" / "replacements_aws.json"

# Modules of pulumi-aws with resources that hold data, serve, or carry those that do.
MODULES = frozenset(
    """
    acm alb appautoscaling athena autoscaling backup batch cfg cloudfront cloudtrail cloudwatch codebuild cognito dax docdb
    dynamodb ebs ec2 ecr ecs efs eks elasticache elasticsearch elb emr fsx glacier glue iam keyspaces kinesis kms lambda lb
    memorydb mq msk mwaa neptune networkfirewall opensearch rds redshift redshiftserverless route53 s3 s3tables sagemaker
    secretsmanager sfn sns sqs ssm timestreaminfluxdb timestreamwrite transfer vpc wafv2
    """.split()  # noqa: SIM905
)

# Where Terraform's name is not the module and the class.
RENAMED = {
    "aws:alb/loadBalancer:LoadBalancer": "alb",
    "aws:cloudtrail/trail:Trail": "cloudtrail",
    "aws:cognito/identityPoolRoleAttachment:IdentityPoolRoleAttachment": "cognito_identity_pool_roles_attachment",
    "aws:ec2/dedicatedHost:DedicatedHost": "ec2_host",
    "aws:ec2/peeringConnectionOptions:PeeringConnectionOptions": "vpc_peering_connection_options",
    "aws:elb/attachment:Attachment": "elb_attachment",
    "aws:elb/loadBalancer:LoadBalancer": "elb",
    "aws:fsx/openZfsFileSystem:OpenZfsFileSystem": "fsx_openzfs_file_system",
    "aws:fsx/openZfsSnapshot:OpenZfsSnapshot": "fsx_openzfs_snapshot",
    "aws:fsx/openZfsVolume:OpenZfsVolume": "fsx_openzfs_volume",
    "aws:iam/openIdConnectProvider:OpenIdConnectProvider": "iam_openid_connect_provider",
    "aws:lb/loadBalancer:LoadBalancer": "alb",
    "aws:rds/roleAssociation:RoleAssociation": "db_instance_role_association",
    "aws:route53/hostedZoneDnsSec:HostedZoneDnsSec": "route53_hosted_zone_dnssec",
    "aws:s3/bucketObjectv2:BucketObjectv2": "s3_object",
    "aws:s3/bucketReplicationConfig:BucketReplicationConfig": "s3_bucket_replication_configuration",
    "aws:s3/inventory:Inventory": "s3_bucket_inventory",
    "aws:s3/objectCopy:ObjectCopy": "s3_object_copy",
    "aws:sqs/redriveAllowPolicy:RedriveAllowPolicy": "sqs_queue_redrive_allow_policy",
    "aws:sqs/redrivePolicy:RedrivePolicy": "sqs_queue_redrive_policy",
}
PREFIXES = {"cfg": "config", "lb": "alb", "rds": "db"}
PROPERTIES = {
    "alarm_name": ("name",),
    "cloudwatch_log_group_arn": ("cloudwatchLogGroupArn",),
    "cloud_watch_log_group_arn": ("cloudwatchLogGroupArn",),
    "filename": ("code",),
    "function_name": ("function", "name"),
    "log_group_name": ("logGroup", "name"),
    "topic_arn": ("topic",),
}


@dataclass
class Node:
    """One attribute of a schema, with those inside it. ``forces`` is ``replace``, ``count``, ``may`` or empty."""

    forces: str = ""
    inside: dict[str, "Node"] = field(default_factory=dict)


class Source:
    """The functions of the provider, by package."""

    def __init__(self, index: Path) -> None:
        self._root = index / "index"
        self.resources = {
            (found := json.loads(path.read_text()))["terraform_type"]: found
            for path in sorted((self._root / "resources").glob("*.json"))
        }

    def schema(self, type_: str) -> Node:
        found = self.resources[type_]
        package = self._root / found["namespace"].partition("terraform-provider-aws/")[2]
        name = found["schema_index"]
        if found["sdk_type"] == "aws_sdk" and "create_index" in found:
            create = found["create_index"].split(".")[1]
            made = re.compile(rf"Create\w*:\s*{create}\b")
            name = next((path.name for path, text in _functions(package) if made.search(text)), name)
        text = (package / name).read_text()
        root = Node(inside=dict(_attributes(text.splitlines(), package)) or _called(text, package))
        for conditional in re.findall(r"ForceNew\w*\((?:\w+, )?(names\.Attr\w+|\"[\w.]+\")", _with_checks(text, package)):
            first = _name(conditional).split(".")[0]
            if first in root.inside and not root.inside[first].forces:
                root.inside[first].forces = "may"
        return root


@cache
def _functions(package: Path) -> list[tuple[Path, str]]:
    return [(path, path.read_text()) for path in sorted(package.glob("func.*"))]


def _with_checks(text: str, package: Path) -> str:
    """The schema's function with the functions of its package that its ``CustomizeDiff`` names."""
    checks = text.partition("CustomizeDiff")[2]
    named = set(re.findall(r"\b([a-z]\w+)\b", checks))
    return checks + "".join(path.read_text() for name in sorted(named) if (path := package / f"func.{name}.goindex").exists())


_KEY = re.compile(r'^(\t+)("\w+"|names\.Attr\w+|attr\w+|routeDestination\w+):\s*(.*)$')
_CALL = re.compile(r"(?:Schema|SchemaFunc|Elem|NestedObject|Attributes|Blocks):\s*(?:maps\.Clone\()?([a-z]\w*)[(),\n]")


def _attributes(lines: list[str], package: Path, depth: int = 0) -> Iterator[tuple[str, Node]]:
    """The outermost attributes in these lines: gofmt indents what is inside."""
    at = 0
    while at < len(lines):
        found = _KEY.match(lines[at])
        at += 1
        if not found:
            continue
        indent, name, rest = len(found[1]), found[2], found[3]
        body = []
        if rest.endswith(("{", "(")):
            while at < len(lines) and not re.match(rf"^\t{{0,{indent}}}[^\t\n]", lines[at]):
                body.append(lines[at])
                at += 1
        elif not (call := re.match(r"([a-z]\w*)\(", rest)):
            continue
        elif (path := package / f"func.{call[1]}.goindex").exists():
            body = path.read_text().splitlines()
        yield _name(name), _node(body, indent, package, depth)


def _node(body: list[str], indent: int, package: Path, depth: int) -> Node:
    own = "\n".join(line for line in body if not line.startswith("\t" * (indent + 2)))
    # A helper's body has an indent of its own.
    forces = "replace" if re.search(r"^\t+ForceNew:\s*true", own, re.M) else ""
    at = "\t" * (indent + 1)
    modifiers = re.search(rf"^{at}PlanModifiers:.*?(?=^{at}[^\t]|\Z)", "\n".join(body) + "\n", re.M | re.S)
    if modifiers and "RequiresReplace" in modifiers[0]:
        forces = "replace" if "RequiresReplace()" in modifiers[0] else "may"
    inside = dict(_attributes(body, package, depth))
    if not inside and depth < 4:
        inside = _called("\n".join(body), package, depth + 1)
    if forces == "replace" and inside and "schema.Type" in own:
        # SDK v2: of a list of blocks only their number, the attributes inside have a ForceNew of their own.
        forces = "count"
    return Node(forces, inside)


def _called(text: str, package: Path, depth: int = 0) -> dict[str, Node]:
    """The attributes of the function or variable that stands for a schema."""
    call = _CALL.search(text)
    found = [path for kind in ("func", "var") if call and (path := package / f"{kind}.{call[1]}.goindex").exists()]
    return dict(_attributes(found[0].read_text().splitlines(), package, depth)) if found else {}


def _name(go: str) -> str:
    """``names.AttrKMSKeyID`` is ``kms_key_id``."""
    if go.startswith('"'):
        return go.strip('"')
    word = re.sub(r"^(names\.Attr|attr|route(?=Destination))", "", go)
    for plural in ("ID", "ARN", "VPC", "AZ"):
        word = re.sub(rf"{plural}s(?=[A-Z]|$)", plural.capitalize() + "s", word)
    word = word.replace("IPv", "Ipv").replace("VPCID", "VpcID")
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", word).lower()


# -- the names of pulumi-aws ----------------------------------------------------------------------------------------------------


def tokens() -> Iterator[tuple[str, str, str, str]]:
    """Every type of the modules: token, Python package, module, class."""
    listed = Path(pulumi_aws.__file__).read_text()
    row = r'"fqn": "([\w.]+)",\s*"classes": \{\s*"(aws:(\w+)/\w+:(\w+))"'
    for package, token, module, class_ in re.findall(row, listed):
        if module in MODULES:
            yield token, package, module, class_


def terraform_type(token: str, module: str, class_: str, known: Mapping[str, Any]) -> str:
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", class_.removesuffix("V2")).lower()
    one_word = words.partition("_")
    names = [RENAMED.get(token, ""), f"{PREFIXES.get(module, module)}_{words}", f"{module}_{words}", words]
    names.append(f"{module}{one_word[0]}_{one_word[2]}")
    return next((f"aws_{name}" for name in names if f"aws_{name}" in known), "")


def paths(node: Node, args: Any, wanted: str, missing: list[str], above: str = "") -> Iterator[str]:
    """The pulumi paths of the attributes that replace; of one inside a replacing one only the outer."""
    types = _types.input_type_types(args) if args else {}
    for tf, child in sorted(node.inside.items()):
        forces = child.forces == wanted or (child.forces == "count" and wanted == "replace")
        if not forces and not child.inside:
            continue
        name = next((spelling for spelling in _spellings(tf) if spelling in types), "")
        if forces and name:
            yield f"{above}{name}{'.#' if child.forces == 'count' else ''}"
        elif forces and tf not in ("region", "timeouts"):
            missing.append(f"{above}{tf}")
        if name and child.inside and child.forces != "replace":
            inner, many = _inside(types[name])
            yield from paths(child, inner, wanted, missing, f"{above}{name}.{'*.' if many else ''}")


def _spellings(tf: str) -> Iterator[str]:
    head, *words = tf.split("_")
    camel = head + "".join(word.capitalize() for word in words)
    yield from (camel, f"{camel}s", f"{camel}es", re.sub("y$", "ies", camel), *PROPERTIES.get(tf, ()))


def _inside(type_: Any, many: bool = False) -> tuple[Any, bool]:
    """The class of a nested type, and whether it stands for a list of them."""
    if inspect.isclass(type_) and _types.is_input_type(type_):
        return type_, many
    many = many or get_origin(type_) is Sequence
    return next((found for get_arg in get_args(type_) if (found := _inside(get_arg, many))[0]), (None, many))


def table(index: str, version: str, date: str) -> str:
    """The rows. Prints what found no place."""
    source = Source(Path(index))
    rows, unplaced = {}, []
    for token, package, module, class_ in tokens():
        type_ = terraform_type(token, module, class_, source.resources)
        if not type_:
            unplaced.append(f"{token}: no resource of Terraform")
            continue
        module_of = importlib.import_module(getattr(importlib.import_module(package), class_).__module__)
        args = getattr(module_of, f"{class_}InitArgs", None) or getattr(module_of, f"{class_}Args")
        missing: list[str] = []
        try:
            schema = source.schema(type_)
        except FileNotFoundError:
            unplaced.append(f"{token}: no source of {type_}")
            continue
        if not schema.inside:
            unplaced.append(f"{token}: no schema of {type_}")
            continue
        row: dict[str, Any] = {"source": type_, "replace": list(paths(schema, args, "replace", missing))}
        if may := list(paths(schema, args, "may", missing)):
            row["may"] = may
        rows[token] = row
        unplaced += [f"{token}: no property {name}" for name in missing]
    head = {
        "source": f"hashicorp/terraform-provider-aws v{version.removeprefix('v')}, ForceNew and RequiresReplace",
        "date": date,
    }
    lines = ",\n".join(f"  {json.dumps(token)}: {json.dumps(row)}" for token, row in sorted(rows.items()))
    print(*unplaced, sep="\n")
    return f'{json.dumps(head)[:-1]}, "types": {{\n{lines}\n}}}}\n'
