"""Reads security groups of a graph and their rules, which may be inside the group or separate resources. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from eks_inference_tools.reading.scalars import is_true, whole
from stackgraph.graph.document import Graph, Resource, is_read
from stackgraph.graph.values import SECRET, UNKNOWN, items, table, text, texts

_GROUP_TYPES = ("aws:ec2/securityGroup:SecurityGroup", "aws:ec2/defaultSecurityGroup:DefaultSecurityGroup")
_INGRESS_TYPE = "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule"
_RULE_TYPES = frozenset(
    ("aws:ec2/securityGroupRule:SecurityGroupRule", _INGRESS_TYPE, "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule")
)


EVERYWHERE = frozenset(("0.0.0.0/0", "::/0"))


@dataclass(frozen=True)
class GroupRule:
    """One rule of a security group. ``group`` is the group's URN, or its id when it is outside the graph."""

    urn: str
    group: str
    ingress: bool
    protocol: str
    ports: tuple[int | None, int | None]
    sources: tuple[str, ...]
    itself: bool

    @property
    def everything(self) -> bool:
        return self.protocol in ("-1", "all")

    def opens(self, port: int) -> bool:
        """Whether the rule covers TCP traffic to a port. False when its ports are unknown."""
        low, high = self.ports
        if self.everything:
            return True
        return self.protocol in ("tcp", "6") and low is not None and high is not None and low <= port <= high


@dataclass(frozen=True, eq=False)
class SecurityGroups:
    graph: Graph

    @cached_property
    def made(self) -> Mapping[str, Resource]:
        """The security groups of the graph, by URN. Leaves out groups that it only reads."""
        return {r.urn: r for type_ in _GROUP_TYPES for r in self.graph.of_type(type_) if not is_read(r)}

    @cached_property
    def rules(self) -> tuple[GroupRule, ...]:
        found: list[GroupRule] = []
        for group in self.made.values():
            for key in ("ingress", "egress"):
                found += (_rule(group, table(item), group.urn, key == "ingress") for item in items(group.inputs.get(key)))
        for resource in self.graph.resources:
            if resource.type in _RULE_TYPES and not is_read(resource):
                inputs = resource.inputs
                group = next(iter(self.named_by(resource, "securityGroupId", inputs.get("securityGroupId"))), "")
                ingress = inputs.get("type") == "ingress" or resource.type == _INGRESS_TYPE
                peer = "referencedSecurityGroupId" if "referencedSecurityGroupId" in inputs else "sourceSecurityGroupId"
                itself = group not in ("", SECRET, UNKNOWN) and group in self.named_by(resource, peer, inputs.get(peer))
                found.append(_rule(resource, inputs, group, ingress, itself=itself))
        return tuple(found)

    def named_by(self, resource: Resource, key: str, value: Any) -> tuple[str, ...]:
        """The security groups in a property: URNs of groups in the graph, else ids as given."""
        urns = [urn for urn in resource.property_dependencies.get(key, ()) if urn in self.made]
        by_token = {f"<{self.made[urn].name}.id>": urn for urn in urns}
        return tuple(by_token.get(one, one) for one in texts(value))


def _rule(resource: Resource, inputs: Mapping[str, Any], group: str, ingress: bool, *, itself: bool = False) -> GroupRule:
    source_keys = ("cidrBlocks", "ipv6CidrBlocks", "cidrIpv4", "cidrIpv6")
    return GroupRule(
        urn=resource.urn,
        group=group,
        ingress=ingress,
        protocol=text(inputs.get("ipProtocol") or inputs.get("protocol")).lower(),
        ports=(whole(inputs.get("fromPort")), whole(inputs.get("toPort"))),
        sources=tuple(value for key in source_keys for value in texts(inputs.get(key))),
        itself=itself or is_true(inputs.get("self")),
    )
