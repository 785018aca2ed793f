"""What the components of all kinds of servers build in the same way: namespace, guards, secrets, Deployment."""

from collections.abc import Iterable, Mapping
from typing import Any

import pulumi
import pulumi_kubernetes as k8s

from eks_inference.cluster.handle import Cluster
from eks_inference.cluster.objects import namespace_object, on_cluster
from eks_inference.faults import Fault
from eks_inference.images.spec import InClusterImage
from eks_inference.kubernetes.pod_security import Level
from eks_inference.kubernetes.secret_object import secret_object
from eks_inference.kubernetes.secrets import SecretRef, secret_env
from eks_inference.serving.deployment import progress_seconds, rollout_seconds
from eks_inference.serving.pods import TERMINATION_SECONDS
from eks_inference.serving.shape import ReplicatedServerSpec, ServerSpec
from eks_inference.spec import dns_label_faults

LAST_WORDS_SECONDS = 300
"""Pulumi waits a little longer than Kubernetes itself: the reason that Kubernetes gives is the better message."""

Secret = SecretRef | pulumi.Input[str] | None


def name_faults(name: str, longest: int) -> list[Fault]:
    """What is wrong with the name of a server, from which the names of its objects are made."""
    return dns_label_faults(name, "Kubernetes refuses this name", max_length=longest)


def image_faults(spec: ServerSpec, image: pulumi.Input[str] | None) -> list[Fault]:
    """An image that the spec says to build has to be handed over, and no other may be."""
    built, given = isinstance(spec.image, InClusterImage), image is not None
    if built and not given:
        hint = "build it with ImageBuild and pass its reference as image="
        return [Fault(("image",), "is built in the cluster, and the server was not given what was built", hint=hint)]
    if given and not built:
        hint = "leave image= out, or let the spec say kind: in_cluster"
        return [Fault(("image",), "is given twice", given=str(spec.image_reference), hint=hint)]
    return []


def engine_image(spec: ServerSpec, image: pulumi.Input[str] | None, cluster: Cluster) -> Any:
    """The image that the engine runs in: the one that was built, or the spec's by its mirror."""
    reference = spec.image_reference
    return image if isinstance(reference, InClusterImage) else cluster.settings.image(reference)


def own_namespace(
    name: str, namespace: str, cluster: Cluster, parent: pulumi.Resource, level: Level = "restricted"
) -> tuple[k8s.core.v1.Namespace, pulumi.ResourceOptions]:
    """The server's namespace with its level of Pod Security, and the options of what stands in it."""
    made = namespace_object(f"{name}-namespace", namespace, level, cluster=cluster, parent=parent)
    return made, on_cluster(cluster, parent, made)


def service_account(resource: str, account: str, namespace: str, options: pulumi.ResourceOptions) -> k8s.core.v1.ServiceAccount:
    """The service account of pods that run downloaded models and have no business with the API server."""
    return k8s.core.v1.ServiceAccount(
        resource, metadata={"name": account, "namespace": namespace}, automount_service_account_token=False, opts=options
    )


def guards(
    name: str,
    *,
    policies: Mapping[str, Mapping[str, Any]],
    quota: Mapping[str, Any] | None,
    budgets: Mapping[str, Mapping[str, Any]],
    options: pulumi.ResourceOptions,
) -> list[pulumi.Resource]:
    """What must be there before the first pod: who may reach it, how much it may take, which pods a drain may take.

    ``policies`` and ``budgets`` are by role. The only disruption budget of a server has the role "".
    """
    return [
        *(
            k8s.networking.v1.NetworkPolicy(f"{name}-network-{role}", **manifest, opts=options)
            for role, manifest in policies.items()
        ),
        *([k8s.core.v1.ResourceQuota(f"{name}-quota", **quota, opts=options)] if quota else []),
        *(
            k8s.policy.v1.PodDisruptionBudget("-".join(filter(None, (name, role, "budget"))), **manifest, opts=options)
            for role, manifest in budgets.items()
        ),
    ]


def hub_token(
    name: str, given: Secret, namespace: str, options: pulumi.ResourceOptions, *, resource: str = "hugging-face"
) -> tuple[list[dict[str, Any]], list[pulumi.Resource]]:
    """``env`` entries with the Hugging Face token (HF_TOKEN), and what must be there before pods that read it."""
    ours = SecretRef(f"{name}-hugging-face", "token")
    secret, made = secret_object(f"{name}-{resource}", given, ours, namespace=namespace, opts=options)
    return secret_env("HF_TOKEN", secret), made


def vllm_api_key(
    name: str, given: Secret, namespace: str, options: pulumi.ResourceOptions
) -> tuple[list[dict[str, Any]], list[pulumi.Resource]]:
    """``env`` entries with the key that vLLM wants of whoever asks it (VLLM_API_KEY), and what must be there before."""
    ours = SecretRef(f"{name}-api-key", "key")
    secret, made = secret_object(f"{name}-api-key", given, ours, namespace=namespace, opts=options)
    return secret_env("VLLM_API_KEY", secret), made


def server_deployment(
    name: str,
    spec: ReplicatedServerSpec,
    manifest: Mapping[str, Any],
    *,
    after: Iterable[pulumi.Resource],
    cluster: Cluster,
    parent: pulumi.Resource,
) -> k8s.apps.v1.Deployment:
    """The Deployment of a server of equal pods, waited for as long as their start may take."""
    timeouts = pulumi.CustomTimeouts(
        create=f"{progress_seconds(spec) + LAST_WORDS_SECONDS}s",
        update=f"{rollout_seconds(spec) + LAST_WORDS_SECONDS}s",
        delete=f"{TERMINATION_SECONDS + LAST_WORDS_SECONDS}s",
    )
    return k8s.apps.v1.Deployment(f"{name}-deployment", **manifest, opts=on_cluster(cluster, parent, *after, timeouts=timeouts))
