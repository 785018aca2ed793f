"""The explicit Kubernetes provider of a cluster that pulumi-eks made."""

import pulumi
import pulumi_eks as eks
import pulumi_kubernetes as k8s

from eks_inference.cluster import plan
from eks_inference.settings import StackSettings


def kubernetes_provider(
    resource_name: str,
    control_plane: eks.Cluster,
    *,
    name: str,
    settings: StackSettings,
    opts: pulumi.ResourceOptions | None = None,
) -> k8s.Provider:
    """A provider on our own kubeconfig; pulumi-eks leaves the AWS profile out of the one it exports.

    ``delete_unreachable`` stays off: with it a lost VPN would drop every Kubernetes object from the state and leave load
    balancers and volumes behind. ConfigMaps and Secrets are updated in place because ours have fixed names: a replacement would
    take the old one away before the new one exists.
    """
    cluster = control_plane.eks_cluster
    return k8s.Provider(
        resource_name,
        kubeconfig=pulumi.Output.all(cluster.endpoint, cluster.certificate_authority.data).apply(
            lambda known: plan.kubeconfig(name, known[0], known[1], settings.region, settings.profile)
        ),
        cluster_identifier=name,
        enable_server_side_apply=True,
        enable_config_map_mutable=True,
        enable_secret_mutable=True,
        opts=opts,
    )
