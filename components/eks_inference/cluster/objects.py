"""The Kubernetes provider of a cluster, and helpers for objects in it: resource options, namespaces and chart releases."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pulumi
import pulumi_kubernetes as k8s

from eks_inference.catalog import versions
from eks_inference.cluster import plan
from eks_inference.cluster.handle import Cluster, ControlPlane
from eks_inference.kubernetes.workloads import Level, enforce
from eks_inference.specs.settings import StackSettings


def kubernetes_provider(
    resource_name: str,
    endpoint: pulumi.Input[str],
    certificate_authority: pulumi.Input[str],
    *,
    name: str,
    settings: StackSettings,
    opts: pulumi.ResourceOptions | None = None,
) -> k8s.Provider:
    """Creates a provider with our own kubeconfig, because the one that pulumi-eks exports omits the AWS profile.

    The program owns its objects: a field that ``kubectl`` has set goes back to the program's value at the next ``pulumi up``,
    instead of a conflict in every preview. ConfigMaps and Secrets have fixed names and are therefore updated in place: a
    replacement would delete the old object before the new one exists.

    ``delete_unreachable`` stays off: with it, a lost VPN connection would remove every Kubernetes object from the state and leave
    load balancers and volumes behind. When the cluster is gone for good, ``PULUMI_K8S_DELETE_UNREACHABLE=true pulumi destroy``
    does so once. Releases of charts ignore it (pulumi/pulumi-kubernetes#2675): remove them by ``pulumi state delete`` first.
    """
    return k8s.Provider(
        resource_name,
        kubeconfig=pulumi.Output.all(endpoint, certificate_authority).apply(
            lambda known: plan.kubeconfig(name, known[0], known[1], settings.region, settings.profile)
        ),
        cluster_identifier=name,
        enable_server_side_apply=True,
        enable_patch_force=True,
        enable_config_map_mutable=True,
        enable_secret_mutable=True,
        opts=opts,
    )


_NONE: Mapping[str, str] = MappingProxyType({})


def on_cluster(
    cluster: ControlPlane,
    parent: pulumi.Resource,
    *after: pulumi.Resource,
    protect: bool = False,
    delete_before_replace: bool | None = None,
    timeouts: pulumi.CustomTimeouts | None = None,
) -> pulumi.ResourceOptions:
    """Returns options for a Kubernetes object: a child of ``parent`` on the cluster's provider that depends on ``after``.

    The first object of a component depends on ``*cluster.pods_ready``, the others on that object; claims of volumes on
    ``*cluster.ready``.
    """
    return pulumi.ResourceOptions(
        parent=parent,
        provider=cluster.provider,
        depends_on=[*after],
        protect=protect or None,
        delete_before_replace=delete_before_replace,
        custom_timeouts=timeouts,
    )


def in_namespace(cluster: Cluster, parent: pulumi.Resource, namespace: k8s.core.v1.Namespace) -> pulumi.ResourceOptions:
    """Returns options for an object that goes with its namespace: Pulumi does not ask for its deletion where it deletes that.

    For ConfigMaps, Secrets, service accounts, NetworkPolicies, quotas and disruption budgets. Whatever must be gone before
    something else (pods before their nodes) or has effects outside the cluster (volumes, load balancers, custom resources) takes
    ``on_cluster``.
    """
    own = pulumi.ResourceOptions(deleted_with=namespace)
    return pulumi.ResourceOptions.merge(on_cluster(cluster, parent, namespace), own)


def namespace_object(
    resource_name: str,
    namespace: str,
    level: Level,
    *,
    cluster: Cluster,
    parent: pulumi.Resource,
    delete_before_replace: bool | None = None,
    labels: Mapping[str, str] = _NONE,
) -> k8s.core.v1.Namespace:
    """Creates a namespace that enforces a level of the Pod Security Standards. Callers justify any level but "restricted"."""
    return k8s.core.v1.Namespace(
        resource_name,
        metadata={"name": namespace, "labels": {**enforce(level), **labels}},
        opts=on_cluster(cluster, parent, *cluster.pods_ready, delete_before_replace=delete_before_replace),
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
    """Releases a chart of the catalog under the chart's name, at the pinned version and from its mirror.

    Helm's defaults for ``timeout_seconds`` and ``skip_crds`` are 300 and false. Raises ``KeyError`` for a chart that is not in
    the catalog.
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
