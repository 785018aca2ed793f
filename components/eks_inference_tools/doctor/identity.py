"""Who asks, and whether their account has the stack's regions: what everything else depends on. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from eks_inference_tools.doctor.findings import Finding, error, ok, unknown, warning
from eks_inference_tools.doctor.questions import Call, Inquiry, call
from stackgraph.graph.document import Graph
from stackgraph.graph.values import items, text, texts, unique

TOPIC = "credentials"

_FIRST_REGIONS = {"cn-": "cn-north-1", "us-gov-": "us-gov-west-1"}
"""A region of each partition that every account has; of all others us-east-1."""


def first_region(region: str) -> str:
    """A region that every account of the partition has, also one that has not enabled ``region``."""
    return next((first for prefix, first in _FIRST_REGIONS.items() if region.startswith(prefix)), "us-east-1")


def who(region: str) -> Call:
    """The question who holds the credentials, which nobody can be denied."""
    return call("sts.GetCallerIdentity", first_region(region))


def identity(graph: Graph, regions: tuple[str, ...], *, own_region: str, profile: str) -> Iterator[Inquiry]:
    """Yields who asks; whether the stack may be deployed with these credentials; whether `aws` uses another region."""
    first = first_region(regions[0])

    def judge_who(answer: Mapping[str, Any], aliases: Mapping[str, Any] | None) -> Iterator[Finding]:
        alias = ", ".join(texts((aliases or {}).get("AccountAliases")))
        shown = f"{text(answer.get('Arn'))}, account {text(answer.get('Account'))}" + (f" ({alias})" if alias else "")
        yield ok(shown + (f", profile {profile}" if profile else ""))
        yield from _allowed(graph, text(answer.get("Account")))

    yield Inquiry(TOPIC, "account", (who(regions[0]),), judge_who, (call("iam.ListAccountAliases", first),))
    for region in regions:
        yield Inquiry(
            TOPIC,
            f"region {region}",
            (call("ec2.DescribeRegions", first, AllRegions=True, RegionNames=[region]),),
            lambda answer, region=region: _enabled(answer, region),
        )
    if own_region and own_region not in regions:
        yield Inquiry(TOPIC, "region", (), lambda: _another_region(regions[0], own_region, profile))


def disabled(answer: Any) -> str:
    """Why nothing can be asked of a region, from the answer about it. Empty if it can."""
    found = items(answer.get("Regions")) if isinstance(answer, Mapping) else ()
    return next((text(one.get("RegionName")) for one in found if text(one.get("OptInStatus")) == "not-opted-in"), "")


def _enabled(answer: Mapping[str, Any], region: str) -> Iterator[Finding]:
    if disabled(answer):
        request = f"aws account enable-region --region-name {region}"
        yield error(
            f"region {region} is not enabled in this account",
            "enable it, which takes minutes to hours, or set another region",
            request,
        )
    elif items(answer.get("Regions")):
        yield ok(f"region {region} is enabled")
    else:
        yield error(f"region {region} is not in this account's partition", "set aws:region of the stack, or another profile")


def _another_region(region: str, own: str, profile: str) -> Iterable[Finding]:
    whose = f"profile {profile}" if profile else "the environment or the default profile"
    text_ = f"the stack is in {region}, and {whose} in {own}: pulumi uses the stack's region, commands of aws the other"
    return [warning(text_, "give aws commands --region, or set AWS_REGION", f"export AWS_REGION={region}")]


def _allowed(graph: Graph, account: str) -> Iterator[Finding]:
    """What the AWS providers of the program say of accounts and roles."""
    for provider in graph.of_type("pulumi:providers:aws"):
        allowed, forbidden = texts(provider.inputs.get("allowedAccountIds")), texts(provider.inputs.get("forbiddenAccountIds"))
        if account and ((allowed and account not in allowed) or account in forbidden):
            yield error(f"provider {text(provider.name)} refuses account {account}", "use credentials of another account")
        roles = [text(role.get("roleArn")) for role in _roles(provider.inputs)]
        for role in unique(roles):
            yield unknown(
                f"provider {text(provider.name)} assumes {role}: everything here was asked without it",
                "run this with credentials of the role",
            )


def _roles(inputs: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    found = [*items(inputs.get("assumeRoles")), inputs.get("assumeRole")]
    return [one for one in found if isinstance(one, Mapping)]
