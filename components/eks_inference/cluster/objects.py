"""The Kubernetes provider of a cluster, and helpers for what is in it: resource options, namespaces, chart releases, and pinned
EKS add-ons, of which those that an existing cluster lacks are missed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

import pulumi
import pulumi_aws as aws
import pulumi_kubernetes as k8s

from eks_inference.catalog import versions
from eks_inference.cluster import plan
from eks_inference.cluster.handle import Cluster, ControlPlane
from eks_inference.cluster.plan import Addon
from eks_inference.component import rendered
from eks_inference.faults import Fault, SpecError
from eks_inference.kubernetes.workloads import Level, enforce
from eks_inference.rules import NotJudged
from eks_inference.specs.settings import StackSettings

POD_IDENTITY_AGENT = "eks-pod-identity-agent"
EBS_CSI_DRIVER = "aws-ebs-csi-driver"


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


def require_addon(cluster: ControlPlane, addon: str, why: str) -> None:
    """Raises ``SpecError`` when an existing cluster says which add-ons it has, and this is none of them.

    Warns when it does not say which.
    """
    known = getattr(cluster, "addons", (addon,))
    if known is None:
        why = "the addons of ExistingCluster do not say whether it is there"
        fix = f"ask `aws eks list-addons --cluster-name {cluster.name}`, and give its answer as addons"
        pulumi.log.warn(NotJudged(("cluster", "addons"), ("the add-on",), f"{cluster.name} {addon}", why, fix).summary)
    elif addon not in known:
        hint = f"install {addon} on {cluster.name}, and name it in the addons of ExistingCluster"
        raise SpecError([Fault(("cluster", "addons"), f"{why} needs {addon}", ", ".join(known) or "none", addon, hint)])


def eks_addon(
    resource_name: str,
    addon: Addon,
    *,
    cluster: ControlPlane,
    opts: pulumi.ResourceOptions,
    pod_identity_associations: Sequence[aws.eks.AddonPodIdentityAssociationArgsDict] = (),
) -> aws.eks.Addon:
    """Creates the add-on at exactly this version. ``opts`` must include dependencies on what its pods need to start."""
    return aws.eks.Addon(
        resource_name,
        cluster_name=cluster.name,
        addon_name=addon.name,
        addon_version=addon.version,
        # Equal configurations give equal text.
        configuration_values=rendered(partial(json.dumps, sort_keys=True), addon.configuration) if addon.configuration else None,
        pod_identity_associations=pod_identity_associations or None,
        # The declared configuration overrides earlier settings and manual edits.
        resolve_conflicts_on_create="OVERWRITE",
        resolve_conflicts_on_update="OVERWRITE",
        # Deleting the add-on deletes its pods, so nothing of ours outlives the stack.
        preserve=False,
        tags={**cluster.settings.tags, "Name": f"{cluster.name}-{addon.name}"},
        opts=opts,
    )
