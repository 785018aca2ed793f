"""How components put Kubernetes objects into a cluster: what the resources of all of them say in the same way."""

from collections.abc import Mapping
from typing import Any

import pulumi
import pulumi_kubernetes as k8s

from eks_inference.catalog import versions
from eks_inference.cluster.handle import Cluster
from eks_inference.kubernetes.pod_security import Level, enforce


def on_cluster(
    cluster: Cluster,
    parent: pulumi.Resource,
    *after: pulumi.Resource,
    protect: bool = False,
    delete_before_replace: bool | None = None,
    timeouts: pulumi.CustomTimeouts | None = None,
) -> pulumi.ResourceOptions:
    """The options of a Kubernetes object: a child of ``parent`` on the cluster's own provider, made after ``after``.

    The first object of a component comes after ``*cluster.ready``; the others come after that object.
    """
    return pulumi.ResourceOptions(
        parent=parent,
        provider=cluster.provider,
        depends_on=[*after],
        protect=protect or None,
        delete_before_replace=delete_before_replace,
        custom_timeouts=timeouts,
    )


def namespace_object(
    resource_name: str, namespace: str, level: Level, *, cluster: Cluster, parent: pulumi.Resource
) -> k8s.core.v1.Namespace:
    """A namespace that refuses pods below a level of the Pod Security Standards.

    A level other than "restricted" needs a reason where it is given.
    """
    return k8s.core.v1.Namespace(
        resource_name,
        metadata={"name": namespace, "labels": enforce(level)},
        opts=on_cluster(cluster, parent, *cluster.ready),
    )


def chart_release(
    resource_name: str,
    chart: str,
    *,
    namespace: str,
    values: Mapping[str, Any],
    cluster: Cluster,
    opts: pulumi.ResourceOptions,
    timeout_seconds: int | None = None,
    skip_crds: bool | None = None,
) -> k8s.helm.v3.Release:
    """The release of a chart of the catalog, at its pinned version and from its mirror; the release has the chart's name.

    ``timeout_seconds`` and ``skip_crds`` are Helm's own (300 and false) when left out. Raises ``KeyError`` when the catalog has
    no such chart.
    """
    pinned = versions.chart(chart)
    location, repository = pinned.location(cluster.settings.chart(pinned.reference))
    return k8s.helm.v3.Release(
        resource_name,
        name=chart,
        chart=location,
        version=pinned.version,
        repository_opts=k8s.helm.v3.RepositoryOptsArgs(repo=repository) if repository else None,
        namespace=namespace,
        values=values,
        timeout=timeout_seconds,
        skip_crds=skip_crds,
        opts=opts,
    )
