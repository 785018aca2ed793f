"""Security groups of a graph and their rules, written inside the group or beside it. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from eks_inference_tools.reading.scalars import is_true, whole
from stackgraph.graph.document import Graph, Resource, is_read
from stackgraph.graph.values import items, table, text, texts

_GROUP_TYPES = ("aws:ec2/securityGroup:SecurityGroup", "aws:ec2/defaultSecurityGroup:DefaultSecurityGroup")
_INGRESS_TYPE = "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule"
_RULE_TYPES = frozenset(
    ("aws:ec2/securityGroupRule:SecurityGroupRule", _INGRESS_TYPE, "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule")
)


@dataclass(frozen=True)
class GroupRule:
    """One rule of a security group. ``group`` is the group's URN, or its id where the graph does not make it."""

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
        """Whether TCP traffic to a port is in it; False where its ports are not known."""
        low, high = self.ports
        if self.everything:
            return True
        return self.protocol in ("tcp", "6") and low is not None and high is not None and low <= port <= high


@dataclass(frozen=True, eq=False)
class SecurityGroups:
    """The security groups of a graph."""

    graph: Graph

    @cached_property
    def made(self) -> Mapping[str, Resource]:
        """Security groups that the graph makes, by URN."""
        return {r.urn: r for type_ in _GROUP_TYPES for r in self.graph.of_type(type_) if not is_read(r)}

    @cached_property
    def rules(self) -> tuple[GroupRule, ...]:
        found: list[GroupRule] = []
        for group in self.made.values():
            for key in ("ingress", "egress"):
                found += (_inline_rule(group, rule, key == "ingress") for rule in items(group.inputs.get(key)))
        for resource in self.graph.resources:
            if resource.type in _RULE_TYPES and not is_read(resource):
                found.append(self._separate_rule(resource))
        return tuple(found)

    def named_by(self, resource: Resource, key: str, value: Any) -> tuple[str, ...]:
        """Groups that a property names: URNs of those the graph makes, else their ids as the program gives them."""
        urns = [urn for urn in resource.property_dependencies.get(key, ()) if urn in self.made]
        by_token = {f"<{self.made[urn].name}.id>": urn for urn in urns}
        return tuple(by_token.get(one, one) for one in texts(value))

    def _separate_rule(self, resource: Resource) -> GroupRule:
        inputs = resource.inputs
        group = next(iter(self.named_by(resource, "securityGroupId", inputs.get("securityGroupId"))), "")
        peer = "referencedSecurityGroupId" if "referencedSecurityGroupId" in inputs else "sourceSecurityGroupId"
        peers = self.named_by(resource, peer, inputs.get(peer))
        return GroupRule(
            urn=resource.urn,
            group=group,
            ingress=inputs.get("type") == "ingress" or resource.type == _INGRESS_TYPE,
            protocol=text(inputs.get("ipProtocol") or inputs.get("protocol")).lower(),
            ports=(whole(inputs.get("fromPort")), whole(inputs.get("toPort"))),
            sources=_sources(inputs),
            itself=is_true(inputs.get("self")) or (group in peers and group not in ("", "<unknown>", "[secret]")),
        )


def _inline_rule(group: Resource, rule: Any, ingress: bool) -> GroupRule:
    inputs = table(rule)
    return GroupRule(
        urn=group.urn,
        group=group.urn,
        ingress=ingress,
        protocol=text(inputs.get("protocol")).lower(),
        ports=(whole(inputs.get("fromPort")), whole(inputs.get("toPort"))),
        sources=_sources(inputs),
        itself=is_true(inputs.get("self")),
    )


def _sources(inputs: Mapping[str, Any]) -> tuple[str, ...]:
    keys = ("cidrBlocks", "ipv6CidrBlocks", "cidrIpv4", "cidrIpv6")
    return tuple(value for key in keys for value in texts(inputs.get(key)))
