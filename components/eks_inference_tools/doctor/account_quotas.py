"""What the account may have of what the stack needs at its most. Quotas are found by their names. Pure."""

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from eks_inference.catalog.instances import instance_types
from eks_inference.catalog.quotas import Quota
from eks_inference_tools.cost.estimate import Estimate
from eks_inference_tools.cost.needed_quotas import Need, ample_needs, needs, needs_elsewhere
from eks_inference_tools.doctor.findings import Finding, error, ok, unknown, warning
from eks_inference_tools.doctor.questions import Call, Inquiry, call
from stackgraph.graph.document import Graph
from stackgraph.graph.values import at, items, text

TOPIC = "quotas"

Used = Callable[[Mapping[str, Any]], float]


def quotas(graph: Graph, found: Estimate, profile: str) -> Iterator[Inquiry]:
    """Yields an inquiry for each quota that the stack needs."""
    for need in (*needs(graph, found), *needs_elsewhere(graph), *ample_needs(graph, found)):
        service = need.quota.service if need.quota else "ec2"
        lists = (
            call("service-quotas.ListServiceQuotas", need.region, ServiceCode=service),
            call("service-quotas.ListAWSDefaultServiceQuotas", need.region, ServiceCode=service),
        )
        if need.quota is None:
            reserved = ", reserved:" in need.why
            yield Inquiry(TOPIC, need.why, () if reserved else lists, partial(_reserved if reserved else _nameless, need=need))
            continue
        pending = call(
            "service-quotas.ListRequestedServiceQuotaChangeHistory", need.region, ServiceCode=service, Status="PENDING"
        )
        asked, used = _in_use(need.quota, need.region)
        yield Inquiry(
            TOPIC,
            need.quota.title,
            lists,
            lambda applied, default, asked_for, *use, need=need, used=used: _judged(
                need, applied, default, asked_for, use, used, profile
            ),
            (pending, *asked),
        )


# -- what the account says -------------------------------------------------------------------------------------------------------


def _judged(
    need: Need, applied: Any, default: Any, requests: Any, use: Sequence[Any], used: Used | None, profile: str
) -> Iterator[Finding]:
    quota = need.quota
    assert quota is not None
    row = _row(quota, applied) or _row(quota, default)
    if row is None or not isinstance(row.get("Value"), int | float):
        yield unknown(
            f"{quota.title}: the stack needs {_amount(need.amount, quota)}; the account lists no quota of this name",
            f"look for it in the console of Service Quotas, service {quota.service}",
        )
        return
    value, code, title = float(row["Value"]), text(row.get("QuotaCode")), text(row.get("QuotaName"))
    taken = used(use[0]) if used and use and use[0] is not None else None
    facts = {"quota": title, "code": code, "value": value, "needed": need.amount, "used": taken, "region": need.region}
    needed = _amount(need.amount, quota) + (" at an alternative" if need.elsewhere else "")
    has = f"{title}: needs {needed}, the account may have {_amount(value, quota)}"
    has += "" if taken is None else f", in use {taken:,.12g}"
    if need.amount + (taken or 0) <= value:
        yield ok(has, **facts)
        return
    wanted = math.ceil(need.amount + (taken or 0))
    where = f" --region {need.region}" + (f" --profile {profile}" if profile else "")
    request = (
        "aws service-quotas request-service-quota-increase"
        f" --service-code {quota.service} --quota-code {code} --desired-value {wanted}{where}"
    )
    remedy = "request more, which takes from minutes to days"
    if row.get("Adjustable") is False:
        remedy, request = "AWS does not raise this quota: make the stack smaller, or use another account or region", ""
    asked = [float(one["DesiredValue"]) for one in items((requests or {}).get("RequestedQuotas")) if at(one, "QuotaCode") == code]
    if asked and max(asked) >= wanted:
        remedy, request = f"a request for {max(asked):,.12g} is pending: wait for it", ""
    if need.amount > value:
        yield (warning if need.elsewhere else error)(has, remedy, request, **facts)
    else:
        yield warning(f"{has}: together they are more, unless this stack is what is in use", remedy, request, **facts)


def _reserved(need: Need) -> Iterator[Finding]:
    type_ = need.why.partition(",")[0]
    yield ok(f"{type_}, reserved: no quota applies now; one applied when the capacity was reserved", needed=need.amount)


def _nameless(applied: Any, default: Any, need: Need) -> Iterator[Finding]:
    """A need for which the catalog has no quota: names the account's quotas that may be meant."""
    type_, _, capacity = need.why.partition(":")[0].partition(", ")
    word = capacity.replace("on demand", "on-demand")
    generation = re.match(r"[a-z]+\d*", type_)
    rows = {text(item.get("QuotaName")): item for listed in (default, applied) for item in items(listed.get("Quotas"))}
    like = {
        name: one
        for name, one in rows.items()
        if word in name.lower() and generation and re.search(rf"\b{generation[0]}\b", name.lower())
    }
    shown = "; ".join(f"{name} = {one.get('Value')}" for name, one in like.items())
    yield unknown(
        f"{need.why}; the stack needs {need.amount:,.12g}" + (f"; the account lists {shown}" if shown else ""),
        "compare it with the quotas of Service Quotas, service ec2",
    )


def _row(quota: Quota, answer: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The quota of this name, else the one of the code that the catalog has. Services count some quotas per resource, too."""
    listed = [item for item in items(answer.get("Quotas")) if text(item.get("QuotaAppliedAtLevel")) != "RESOURCE"]
    named = (one for one in listed if _plain(text(one.get("QuotaName"))) == _plain(quota.title))
    coded = (one for one in listed if text(one.get("QuotaCode")) == quota.code)
    return next(named, None) or next(coded, None)


def _plain(name: str) -> str:
    return " ".join(re.findall(r"[a-z0-9]+", name.lower()))


def _amount(amount: float, quota: Quota) -> str:
    """``96 vCPU``; what the quota's name tells has no unit."""
    return f"{amount:,.12g}" + (f" {quota.unit}" if quota.unit in ("vCPU", "GiB", "TiB") else "")


# -- what is in use --------------------------------------------------------------------------------------------------------------


def _counted(key: str) -> Used:
    return lambda answer: len(items(answer.get(key)))


def _balancers(kind: str) -> Used:
    return lambda answer: sum(text(item.get("Type")) == kind for item in items(answer.get("LoadBalancers")))


_IN_USE: Mapping[str, tuple[str, Mapping[str, Any], Used]] = {
    "elastic_ips": ("ec2.DescribeAddresses", {}, _counted("Addresses")),
    "vpcs": ("ec2.DescribeVpcs", {}, _counted("Vpcs")),
    "internet_gateways": ("ec2.DescribeInternetGateways", {}, _counted("InternetGateways")),
    "clusters": ("eks.ListClusters", {}, _counted("clusters")),
    "application_load_balancers": ("elbv2.DescribeLoadBalancers", {}, _balancers("application")),
    "network_load_balancers": ("elbv2.DescribeLoadBalancers", {}, _balancers("network")),
    "efs_file_systems": ("efs.DescribeFileSystems", {}, _counted("FileSystems")),
    "gp3_storage": (
        "ec2.DescribeVolumes",
        {"Filters": [{"Name": "volume-type", "Values": ["gp3"]}]},
        lambda answer: round(sum(item.get("Size") or 0 for item in items(answer.get("Volumes"))) / 1024, 2),
    ),
}
"""What counts towards a quota, by its name in the catalog."""

_RUNNING = {"Filters": [{"Name": "instance-state-name", "Values": ["pending", "running"]}]}


def _in_use(quota: Quota, region: str) -> tuple[tuple[Call, ...], Used | None]:
    """The question what counts towards a quota already, and how to read its answer."""
    if quota.of_instances:
        return (call("ec2.DescribeInstances", region, **_RUNNING),), lambda answer: _vcpus(quota, answer)
    if (row := _IN_USE.get(quota.name)) is None:
        return (), None
    operation, parameters, used = row
    return (call(operation, region, **parameters),), used


def _vcpus(quota: Quota, answer: Mapping[str, Any]) -> float:
    """The vCPUs of running instances of a quota's families, of those that the catalog has. Capacity blocks do not count."""
    spot, found = "Spot" in quota.title, defaultdict(int)
    for one in (item for reservation in items(answer.get("Reservations")) for item in items(reservation.get("Instances"))):
        known = instance_types().get(text(one.get("InstanceType")))
        lifecycle = text(one.get("InstanceLifecycle"))
        if known and quota.counts(known) and lifecycle != "capacity-block" and (lifecycle == "spot") == spot:
            found[known.name] += known.vcpus
    return sum(found.values())
