"""Service-linked roles that the stack needs: Spot's above all, which nothing in the stack may make. Pure."""

import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from eks_inference.place.placement import CAPACITY_TYPE_LABEL
from eks_inference_tools.doctor.findings import Finding, ok, warning
from eks_inference_tools.doctor.identity import first_region
from eks_inference_tools.doctor.questions import Call, Inquiry, arn, call
from eks_inference_tools.reading.node_groups import node_groups
from eks_inference_tools.reading.node_pools import node_pools
from stackgraph.graph.document import Graph, is_read

TOPIC = "service-linked roles"

SPOT, SPOT_SERVICE = "AWSServiceRoleForEC2Spot", "spot.amazonaws.com"


def linked_roles(graph: Graph, region: str) -> Iterator[Inquiry]:
    """Yields the roles that resources of the graph need."""
    if pools := tuple(_spot_pools(graph)):
        yield Inquiry(TOPIC, SPOT, (_role(SPOT, SPOT_SERVICE, region),), lambda answer: _spot(answer, pools))
    for name, row in _rows().items():
        if any(not is_read(resource) for type_ in row["types"] for resource in graph.of_type(type_)):
            asked = _role(name, row["service"], region)
            yield Inquiry(TOPIC, name, (asked,), lambda answer, name=name, row=row: _judged(answer, name, row))


def _role(name: str, service: str, region: str) -> Call:
    resource = arn("iam", region, f"role/aws-service-role/{service}/{name}")
    return call("iam.GetRole", first_region(region), resource, RoleName=name)


def _spot_pools(graph: Graph) -> Iterator[str]:
    """The pools whose nodes may be spot instances."""
    yield from (group.pool for group in node_groups(graph) if group.capacity_type == "SPOT")
    yield from (pool.name for pool in node_pools(graph) if "spot" in pool.chosen(CAPACITY_TYPE_LABEL))


def _spot(answer: Mapping[str, Any] | None, pools: tuple[str, ...]) -> Iterator[Finding]:
    if answer is not None:
        yield ok(f"{SPOT} exists")
        return
    yield warning(
        f"{SPOT} is missing: {', '.join(pools)} may have spot instances, and get none; Karpenter takes others without a word",
        "make it once for the account",
        f"aws iam create-service-linked-role --aws-service-name {SPOT_SERVICE}",
    )


def _judged(answer: Mapping[str, Any] | None, name: str, row: Mapping[str, Any]) -> Iterator[Finding]:
    if answer is not None:
        yield ok(f"{name} exists")
        return
    yield warning(
        f"{name} is missing: {row['missing']}",
        "make it, or allow iam:CreateServiceLinkedRole",
        f"aws iam create-service-linked-role --aws-service-name {row['service']}",
    )


@cache
def _rows() -> Mapping[str, Mapping[str, Any]]:
    return tomllib.loads(files("eks_inference_tools.doctor").joinpath("linked_roles.toml").read_text("utf-8"))
