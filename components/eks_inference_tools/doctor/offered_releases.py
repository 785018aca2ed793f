"""Whether EKS has the stack's Kubernetes version, add-ons and machine images in its region. Pure."""

from collections.abc import Iterator, Mapping
from datetime import date, datetime, timedelta
from typing import Any

from eks_inference.catalog import versions
from eks_inference.catalog.instances import AmiType, ami_type_for, ami_types
from eks_inference_tools.doctor.findings import Finding, error, ok, unknown, warning
from eks_inference_tools.doctor.questions import Inquiry, arn, call
from eks_inference_tools.placing.placeholders import known_region
from eks_inference_tools.reading.clusters import cluster_resources
from eks_inference_tools.reading.node_groups import node_groups
from eks_inference_tools.reading.node_pools import node_pools
from eks_inference_tools.reading.node_shapes import shapes_of_node_pool
from eks_inference_tools.reading.releases import addons
from stackgraph.graph.document import Graph, Resource
from stackgraph.graph.values import is_token, items, text, unique

TOPIC = "releases"

_SOON = timedelta(days=60)

_NEWEST_SHOWN = 3


def releases(graph: Graph, today: date) -> Iterator[Inquiry]:
    """Yields the versions, add-ons and images of all clusters."""
    of_cluster: dict[str, str] = {}
    for cluster in cluster_resources(graph):
        region, version = known_region(graph, cluster), text(cluster.inputs.get("version"))
        of_cluster[region] = version
        if not version or is_token(version):
            yield Inquiry(TOPIC, "Kubernetes", (), lambda: [unknown("the cluster names no Kubernetes version: EKS chooses one")])
            continue
        asked = call("eks.DescribeClusterVersions", region, clusterVersions=[version])
        yield Inquiry(TOPIC, f"Kubernetes {version}", (asked,), lambda answer, version=version: _version(answer, version, today))
    for region, name, pin, version in dict.fromkeys(_addons(graph, of_cluster)):
        given = {"kubernetesVersion": version} if version else {}
        asked = call("eks.DescribeAddonVersions", region, addonName=name, **given)
        yield Inquiry(
            TOPIC,
            f"add-on {name}",
            (asked,),
            lambda answer, name=name, pin=pin, version=version: _addon(answer, name, pin, version),
        )
    for region, type_, version, release in dict.fromkeys(_images(graph, of_cluster)):
        pinned, newest = _parameters(ami_types()[type_], version, release)
        asked = call(
            "ssm.GetParameters", region, arn("ssm", region, "parameter/aws/service/*", account=""), Names=[pinned, newest]
        )
        yield Inquiry(
            TOPIC,
            f"{type_} {release}",
            (asked,),
            lambda answer, type_=type_, release=release, pinned=pinned, newest=newest: _image(
                answer, type_, release, pinned, newest
            ),
        )


# -- what the stack has ----------------------------------------------------------------------------------------------------------


def _addons(graph: Graph, of_cluster: Mapping[str, str]) -> Iterator[tuple[str, str, str, str]]:
    for addon in addons(graph):
        region = known_region(graph, addon.resource)
        version = of_cluster.get(region, "")
        if addon.name and not is_token(addon.name):
            yield region, addon.name, "" if is_token(addon.version) else addon.version, "" if is_token(version) else version


def _images(graph: Graph, of_cluster: Mapping[str, str]) -> Iterator[tuple[str, str, str, str]]:
    """Region, AMI type, Kubernetes version and release of each image of EKS that a pool pins."""

    def version_in(region: str, given: str = "") -> str:
        return given or of_cluster.get(region, "")

    for group in node_groups(graph):
        region = known_region(graph, group.resource)
        version = version_in(region, group.version)
        if group.ami_type in ami_types() and group.release and not group.own_image and not _any_token(version, group.release):
            yield region, group.ami_type, version, group.release
    for pool in node_pools(graph):
        region = known_region(graph, pool.resource)
        version = version_in(region)
        for alias in _aliases(pool.node_class.resource if pool.node_class else None):
            family, _, release = alias.partition("@")
            for shape in shapes_of_node_pool(pool):
                if shape.instance and family == "al2023" and release not in ("", "latest") and version and not is_token(version):
                    yield region, ami_type_for(shape.instance).name, version, release


def _aliases(node_class: Resource | None) -> tuple[str, ...]:
    terms = items((node_class.inputs.get("spec") or {}).get("amiSelectorTerms")) if node_class else ()
    return unique(text(term.get("alias")) for term in terms if isinstance(term, Mapping) and not is_token(term.get("alias")))


def _any_token(*values: str) -> bool:
    return any(not value or is_token(value) for value in values)


def _parameters(row: AmiType, version: str, release: str) -> tuple[str, str]:
    """The public parameters of SSM with the image of a release and with the newest release.

    Source: Karpenter 1.14.1, pkg/providers/amifamily/al2023.go and bottlerocket.go.
    """
    image = row.image_parameter.format(kubernetes_version=version)
    newest = row.release_parameter.format(kubernetes_version=version)
    if "/latest/" in image:
        return image.replace("/latest/", f"/{release.removeprefix('v')}/"), newest
    *_, architecture, variant, _, _ = image.split("/")
    day = release.rpartition("-")[2].removeprefix("v")
    return image.replace("/recommended/", f"/amazon-eks-node-al2023-{architecture}-{variant}-{version}-v{day}/"), newest


# -- what the account says -------------------------------------------------------------------------------------------------------


def _version(answer: Mapping[str, Any], version: str, today: date) -> Iterator[Finding]:
    row = next((item for item in items(answer.get("clusterVersions")) if text(item.get("clusterVersion")) == version), None)
    if row is None:
        yield error(f"EKS has no Kubernetes {version} here", "set cluster.version")
        return
    state = text(row.get("versionStatus") or row.get("status")).lower().replace("_", " ").replace("-", " ")
    standard, extended = _day(row.get("endOfStandardSupportDate")), _day(row.get("endOfExtendedSupportDate"))
    shown = f"Kubernetes {version}: {state or 'support not known'}"
    shown += f", standard support until {standard}" if standard else ""
    shown += f", extended until {extended}" if extended else ""
    facts = {"version": version, "status": state, "standard": str(standard or ""), "extended": str(extended or "")}
    try:
        ours = versions.support(version).standard
        shown += f"; the catalog has {ours}" if standard and abs(standard - ours) > timedelta(days=1) else ""
    except KeyError:
        pass
    if state == "unsupported":
        yield error(shown, "set cluster.version to a supported one", **facts)
    elif state == "extended support":
        yield warning(f"{shown}: the control plane costs six times as much", "set cluster.version to a newer one", **facts)
    elif standard and standard - today < _SOON:
        yield warning(f"{shown}: then the control plane costs six times as much", "plan to update cluster.version", **facts)
    else:
        yield ok(shown, **facts)


def _addon(answer: Mapping[str, Any] | None, name: str, pin: str, version: str) -> Iterator[Finding]:
    rows = [row for item in items((answer or {}).get("addons")) for row in items(item.get("addonVersions"))]
    there = [text(row.get("addonVersion")) for row in rows]
    default = next((text(row.get("addonVersion")) for row in rows if _is_default(row, version)), "")
    facts = {"addon": name, "pinned": pin, "default": default, "versions": there[:_NEWEST_SHOWN]}
    suits = f" for Kubernetes {version}" if version else ""
    if not there:
        yield error(f"add-on {name}: EKS has none{suits} here", "omit it, or set cluster.version", **facts)
    elif not pin:
        yield ok(f"add-on {name}: EKS chooses {default or 'a version'}{suits}", **facts)
    elif pin in there:
        yield ok(f"add-on {name} {pin}: suits{suits or ' here'}" + (f"; EKS's default is {default}" if default else ""), **facts)
    else:
        newest = ", ".join(there[:_NEWEST_SHOWN])
        yield error(
            f"add-on {name} {pin}: EKS has no such version{suits}; it has {newest}", "name another in addon_versions", **facts
        )


def _is_default(row: Mapping[str, Any], version: str) -> bool:
    return any(
        item.get("defaultVersion") and text(item.get("clusterVersion")) == version for item in items(row.get("compatibilities"))
    )


def _image(answer: Mapping[str, Any], type_: str, release: str, pinned: str, newest: str) -> Iterator[Finding]:
    found = {text(item.get("Name")): text(item.get("Value")) for item in items(answer.get("Parameters"))}
    image, latest = found.get(pinned, ""), found.get(newest, "")
    facts = {"type": type_, "release": release, "image": image, "newest": latest}
    if image:
        yield ok(f"{type_} {release}: {image}" + (f"; the newest is {latest}" if latest else ""), **facts)
    elif latest and latest == release:
        yield ok(f"{type_} {release}: it is the newest", **facts)
    else:
        remedy = f"set ami.release_version of its pools{' to ' + latest if latest else ''}"
        yield error(f"{type_} {release}: EKS has no such image here; the newest is {latest or 'not known'}", remedy, **facts)


def _day(value: Any) -> date | None:
    return value.date() if isinstance(value, datetime) else None
