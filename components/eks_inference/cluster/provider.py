"""Creates the explicit Kubernetes provider of a cluster."""

from __future__ import annotations

import pulumi
import pulumi_kubernetes as k8s

from eks_inference.cluster import plan
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
