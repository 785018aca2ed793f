"""Whether names that the stack fixes are taken already. Pure."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from eks_inference_tools.doctor.findings import Finding, ok, warning
from eks_inference_tools.doctor.given import bucket_question
from eks_inference_tools.doctor.identity import first_region
from eks_inference_tools.doctor.questions import Call, Inquiry, arn, call
from eks_inference_tools.placing.placeholders import known_region
from eks_inference_tools.reading.clusters import CLUSTER_TYPE, REMOTE_CLUSTER_TYPE
from stackgraph.graph.document import Graph, is_read
from stackgraph.graph.values import is_token, items, text

TOPIC = "names"

Taken = Callable[[Mapping[str, Any], str], bool]
"""Whether an answer says that a name is taken."""


def names(graph: Graph) -> Iterator[Inquiry]:
    """Yields each name that a resource of the graph will have."""
    for resource in graph.resources:
        row = _NAMED.get(resource.type)
        name = text(resource.inputs.get(row[0])) if row else ""
        if row and name and not is_token(name) and "<" not in name and not is_read(resource):
            _, what, question, taken = row
            asked = question(name, known_region(graph, resource))
            yield Inquiry(TOPIC, f"{what} {name}", (asked,), partial(_judged, name=name, what=what, taken=taken))


def _judged(
    answer: Mapping[str, Any] | None, name: str, what: str, taken: Callable[[Mapping[str, Any], str], bool]
) -> Iterator[Finding]:
    if answer is None or not taken(answer, name):
        yield ok(f"{what} {name}: the name is free")
    elif what == "bucket":
        yield warning(f"bucket {name} exists: names are unique in all accounts", "if it is not this stack's, choose another name")
    else:
        yield warning(
            f"{what} {name} exists: creation fails, unless this stack has made it",
            "rename the stack (name), or delete what is left of an earlier one; if it is this stack, all is well",
        )


# -- what can be taken -----------------------------------------------------------------------------------------------------------


def _cluster(name: str, region: str) -> Call:
    return call("eks.DescribeCluster", region, arn("eks", region, f"cluster/{name}"), name=name)


def _log_group(name: str, region: str) -> Call:
    return call("logs.DescribeLogGroups", region, logGroupNamePrefix=name)


def _repository(name: str, region: str) -> Call:
    return call("ecr.DescribeRepositories", region, arn("ecr", region, f"repository/{name}"), repositoryNames=[name])


def _role(name: str, region: str) -> Call:
    return call("iam.GetRole", first_region(region), arn("iam", region, f"role/{name}"), RoleName=name)


def _always(answer: Mapping[str, Any], name: str) -> bool:
    return True


def _listed(answer: Mapping[str, Any], name: str) -> bool:
    return any(text(item.get("logGroupName")) == name for item in items(answer.get("logGroups")))


_NAMED: Mapping[str, tuple[str, str, Callable[[str, str], Call], Taken]] = {
    "aws:cloudwatch/logGroup:LogGroup": ("name", "log group", _log_group, _listed),
    "aws:ecr/repository:Repository": ("name", "ECR repository", _repository, _always),
    "aws:iam/role:Role": ("name", "IAM role", _role, _always),
    "aws:s3/bucket:Bucket": ("bucket", "bucket", bucket_question, _always),
    CLUSTER_TYPE: ("name", "cluster", _cluster, _always),
    REMOTE_CLUSTER_TYPE: ("name", "cluster", _cluster, _always),
}
"""By type: the input with the name, what it is, the question for it, and whether an answer says that it is taken."""
