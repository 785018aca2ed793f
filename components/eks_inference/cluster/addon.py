"""One pinned EKS add-on, as every domain makes it."""

import pulumi
import pulumi_aws as aws

from eks_inference.cluster.plan import Addon
from eks_inference.settings import StackSettings


def eks_addon(
    resource_name: str,
    addon: Addon,
    *,
    cluster_name: str,
    settings: StackSettings,
    opts: pulumi.ResourceOptions,
    pod_identity_associations: list[aws.eks.AddonPodIdentityAssociationArgs] | None = None,
) -> aws.eks.Addon:
    """The add-on at exactly this version and configuration. ``opts`` must name what its pods need before they can start."""
    return aws.eks.Addon(
        resource_name,
        cluster_name=cluster_name,
        addon_name=addon.name,
        addon_version=addon.version,
        configuration_values=addon.configuration_values,
        pod_identity_associations=pod_identity_associations,
        # What is declared here wins over what was there before and over edits by hand.
        resolve_conflicts_on_create="OVERWRITE",
        resolve_conflicts_on_update="OVERWRITE",
        # Deleting the add-on deletes its pods: nothing of ours outlives the stack.
        preserve=False,
        tags={**settings.tags, "Name": f"{cluster_name}-{addon.name}"},
        opts=opts,
    )
