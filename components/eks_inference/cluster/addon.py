"""Creates a pinned EKS add-on, and misses those that an existing cluster lacks; used by every domain."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial

import pulumi
import pulumi_aws as aws

from eks_inference.cluster.handle import ControlPlane
from eks_inference.cluster.plan import Addon
from eks_inference.component import rendered
from eks_inference.faults import Fault, SpecError
from eks_inference.rules import NotJudged

POD_IDENTITY_AGENT = "eks-pod-identity-agent"
EBS_CSI_DRIVER = "aws-ebs-csi-driver"


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
