"""What components of every kind of server share, and the base component of servers with equal pods."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pulumi
import pulumi_kubernetes as k8s

from eks_inference.catalog.models import Task
from eks_inference.cluster.handle import Cluster
from eks_inference.cluster.objects import in_namespace, namespace_object, on_cluster
from eks_inference.component import Component, carried
from eks_inference.faults import Fault, SpecError
from eks_inference.images.spec import InClusterImage
from eks_inference.kubernetes.network_policy import GATED, Front
from eks_inference.kubernetes.secrets import SecretRef, secret_env, secret_object
from eks_inference.kubernetes.workloads import Level
from eks_inference.observability.handle import Expected, Metrics
from eks_inference.observability.prometheus import VllmMetrics
from eks_inference.place.placement import Placement
from eks_inference.rules import Rule
from eks_inference.serving import deployment, pod_parts
from eks_inference.serving.flags import switched
from eks_inference.serving.pod_parts import TERMINATION_SECONDS
from eks_inference.serving.rules.every_server import server_rules
from eks_inference.serving.shape import ReplicatedServerSpec, ServerSpec
from eks_inference.serving.storage import Account
from eks_inference.serving.storage_plan import PodStorage
from eks_inference.specs.base import dns_label_faults

REPORT_SECONDS = 300
"""Pulumi waits this much longer than Kubernetes, because the reason that Kubernetes reports is the better error message."""

METRICS_PORT = "metrics"
"""Name of the port that only Prometheus reads. Without such a port, the engine serves metrics on ``http``."""

Secret = SecretRef | pulumi.Input[str] | None


def name_faults(name: str, longest: int) -> list[Fault]:
    """Returns what is wrong with a server's name, which is also the start of its objects' names."""
    return dns_label_faults(name, "Kubernetes refuses this name", max_length=longest)


def placement_faults(spec: ServerSpec, **placed: Placement | None) -> list[Fault]:
    """Returns what the spec says otherwise than the placements (by key of their pool, ``_`` for a dot), or why nodes misfit."""
    found = [(choice, place) for choice in spec.pools() if (place := placed.get("_".join(choice.pool_path)))]
    keys = [
        (path, said, there)
        for choice, place in found
        for path, said, there in (
            (choice.pool_path, choice.pool, place.pool),
            (choice.type_path, choice.instance_type, place.instance_type.name),
        )
    ]
    message = "the server is placed elsewhere"
    elsewhere = [Fault(path, message, given=said, allowed=there) for path, said, there in keys if said and said != there]
    return elsewhere or [
        Fault(choice.pool_path, why, given=f"{place.pool} ({place.instance_type.name})")
        for choice, place in found
        if (why := choice.misfit(place.instance_type))
    ]


def image_faults(spec: ServerSpec, image: pulumi.Input[str] | None) -> list[Fault]:
    """Returns a fault unless the caller passes an image exactly when the spec says to build one."""
    built, given = isinstance(spec.image, InClusterImage), image is not None
    if built and not given:
        hint = "build it with ImageBuild and pass its reference as image="
        return [Fault(("image",), "is built in the cluster, but the server did not receive its reference", hint=hint)]
    if given and not built:
        hint = "leave image= out, or let the spec say kind: in_cluster"
        return [Fault(("image",), "is given twice", given=str(spec.image_reference), hint=hint)]
    return []


def engine_image(spec: ServerSpec, image: pulumi.Input[str] | None, cluster: Cluster) -> Any:
    """Returns the image of the engine: the one built in the cluster, or the one of the spec, from its mirror."""
    reference = spec.image_reference
    return image if isinstance(reference, InClusterImage) else cluster.settings.image(reference)


def formerly(opts: pulumi.ResourceOptions | None, spec: ServerSpec, suffix: str = "") -> pulumi.ResourceOptions:
    """Returns options under which the engine knows a part of a renamed server: the one of its old name with the suffix."""
    aliases = [pulumi.Alias(name=f"{spec.renamed_from}{suffix}")] if spec.renamed_from else None
    return pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(aliases=aliases))


def own_namespace(
    name: str,
    namespace: str,
    cluster: Cluster,
    parent: pulumi.Resource,
    level: Level = "restricted",
    *,
    delete_before_replace: bool | None = None,
    gated: bool = False,
) -> tuple[k8s.core.v1.Namespace, pulumi.ResourceOptions]:
    """Creates the namespace of a server or client, and returns it with the resource options of objects that go with it.

    A server wants ``delete_before_replace``: its pods go with the old namespace and leave their devices to the new ones, which
    would wait for ever on a full node. In a ``gated`` namespace, pods wait for the load balancer in front of them.
    """
    made = namespace_object(
        f"{name}-namespace",
        namespace,
        level,
        cluster=cluster,
        parent=parent,
        delete_before_replace=delete_before_replace,
        labels=GATED if gated else {},
    )
    return made, in_namespace(cluster, parent, made)


def service_account(resource: str, account: str, namespace: str, options: pulumi.ResourceOptions) -> k8s.core.v1.ServiceAccount:
    """Creates a service account without a token: pods that run downloaded models must not call the API server."""
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
    """Creates the NetworkPolicies, the quota and the disruption budgets, which must exist before the first pod.

    ``policies`` and ``budgets`` have roles as keys. The only disruption budget of a server has the role "".
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
    """Returns ``env`` entries with the Hugging Face token (HF_TOKEN), and what must exist before the pods."""
    ours = SecretRef(f"{name}-hugging-face", "token")
    secret, made = secret_object(f"{name}-{resource}", given, ours, namespace=namespace, opts=options)
    return secret_env("HF_TOKEN", secret), made


def vllm_api_key(
    name: str, given: Secret, namespace: str, options: pulumi.ResourceOptions
) -> tuple[list[dict[str, Any]], list[pulumi.Resource]]:
    """Returns ``env`` entries with the key that vLLM demands of clients (VLLM_API_KEY), and what must exist before the pods."""
    ours = SecretRef(f"{name}-api-key", "key")
    secret, made = secret_object(f"{name}-api-key", given, ours, namespace=namespace, opts=options)
    return secret_env("VLLM_API_KEY", secret), made


class ReplicatedServer(Component):
    """Everything about a server of equal pods that does not depend on its engine.

    The constructor checks name, image and rules, creates the namespace and the service account, and sets the attributes that
    clients, metrics and autoscalers read. The subclass then creates what its engine needs and calls ``_serve``.

    The rules about servers and ``rules`` judge ``subjects``. ``ports`` are those of container and Service by name. ``level`` is
    the Pod Security level of the namespace.
    """

    url: str
    """See ``ModelServer``; set before ``_serve``."""
    fronts: Sequence[Front]
    """See ``Server``; set by ``_serve``."""

    def __init__(
        self,
        type_token: str,
        name: str,
        spec: ReplicatedServerSpec,
        *,
        cluster: Cluster,
        placement: Placement,
        image: pulumi.Input[str] | None,
        subjects: Iterable[object],
        rules: Sequence[Rule[Any]] = (),
        labels: Mapping[str, str],
        ports: Mapping[str, int],
        level: Level = "restricted",
        opts: pulumi.ResourceOptions | None,
    ) -> None:
        others = {f"alternatives_{number}_pool": one for number, one in enumerate(placement.others)}
        faults = [*name_faults(name, deployment.MAX_NAME_LENGTH), *placement_faults(spec, pool=placement, **others)]
        if (places := len(spec.other_pools())) != len(others):
            hint = "give them to the placement, too: dataclasses.replace(first, others=(second, ...))"
            faults.append(Fault(("alternatives",), "are those of the placement", str(places), str(len(others)), hint))
        if faults := [*faults, *image_faults(spec, image)]:
            raise SpecError(faults)
        for subject in subjects:
            self._judge(name, [*server_rules(), *rules], subject, cluster.settings.silenced)
        super().__init__(type_token, name, spec.inputs(), formerly(opts, spec))
        self.namespace = spec.namespace_of(name)
        self.service_name = self.deployment_name = name
        self.pod_labels = labels
        self.model_id = spec.model.id
        self.does: Task = spec.does
        self.other_names: Sequence[str] = ()
        self.host = f"{name}.{self.namespace}.svc.cluster.local"
        """Name of the Service inside the cluster."""
        metrics = METRICS_PORT if METRICS_PORT in ports else "http"
        self.metrics_job: str = spec.kind
        self.metrics_ports = {metrics: ports[metrics]}
        self.metric_names = spec.profile.metric_names
        self.expected = Expected(name, spec.fewest, spec.objectives)
        self.forwards: Mapping[str, Sequence[int]] = {name: [port for key, port in ports.items() if key != METRICS_PORT]}
        self.startup_seconds = deployment.cold_start_seconds(spec, placement)
        self.hardware = deployment.hardware(spec, placement.instance_type)
        self._cluster, self._placement = cluster, placement
        self._image = engine_image(spec, image, cluster)
        namespace, self._inside = own_namespace(name, self.namespace, cluster, self, level, delete_before_replace=True)
        self.foundation: Sequence[pulumi.Resource] = (namespace,)
        account = deployment.account_name(name)
        self._identity = Account(self.namespace, account, f"Model server {name} in the EKS cluster {cluster.name}")
        self._account = service_account(f"{name}-account", account, self.namespace, self._inside)

    def _serve(
        self,
        name: str,
        spec: ReplicatedServerSpec,
        engine: deployment.Engine,
        *,
        storage: PodStorage,
        hugging_face_token: Secret,
        secret_env: Sequence[Mapping[str, Any]] = (),
        scheduler_name: str | None = None,
        after: Iterable[pulumi.Resource],
    ) -> None:
        """Creates the guards, the Service and the Deployment, which comes after ``after`` and may take as long as its pods do."""
        cluster, placement, labels, inside = self._cluster, self._placement, self.pod_labels, self._inside
        token_env, token = hub_token(name, hugging_face_token, self.namespace, inside)
        (metrics_port,) = self.metrics_ports.values()
        http = engine.ports["http"]
        self.fronts = (
            Front(labels, http, tells_load=metrics_port == http and not switched(engine.arguments, "disable-log-stats", False)),
            *(Front(labels, port, grpc=True) for role, port in engine.ports.items() if role == "grpc"),
        )
        before = guards(
            name,
            policies=pod_parts.server_policies(name, spec, labels, api=self.forwards[name], metrics=metrics_port),
            quota=deployment.quota(name, spec, placement),
            budgets={"": deployment.disruption_budget(name, spec, labels)},
            options=inside,
        )
        templates = [
            k8s.resource.v1.ResourceClaimTemplate(f"{name}-{claim}", **manifest, opts=inside)
            for claim, manifest in deployment.claims(spec, placement).manifests(name, self.namespace).items()
        ]
        service = k8s.core.v1.Service(
            f"{name}-service",
            **deployment.service(name, spec, labels, engine.ports),
            opts=on_cluster(cluster, self, *self.foundation),
        )
        manifest = deployment.deployment(
            name,
            spec,
            placement,
            engine,
            labels=labels,
            image=self._image,
            storage=storage,
            secret_env=[*token_env, *secret_env],
            scheduler_name=scheduler_name,
        )
        timeouts = pulumi.CustomTimeouts(
            create=f"{deployment.progress_seconds(spec, placement) + REPORT_SECONDS}s",
            update=f"{deployment.rollout_seconds(spec, placement) + REPORT_SECONDS}s",
            delete=f"{TERMINATION_SECONDS + REPORT_SECONDS}s",
        )
        pools = [ready for place in placement.places for ready in place.ready]
        before += [*templates, self._account, service, *token, *pools, *after]
        self.deployment = k8s.apps.v1.Deployment(
            f"{name}-deployment",
            **manifest,
            opts=on_cluster(cluster, self, *before, timeouts=timeouts, delete_before_replace=True),
        )
        self.ready: Sequence[pulumi.Resource] = (self.deployment, service)
        self.endpoint = carried(self.url, self.ready)
        self.scaled = {"": self}

    def scraped_by(self, name: str, metrics: Metrics, opts: pulumi.ResourceOptions) -> VllmMetrics:
        """Makes Prometheus scrape the server."""
        return VllmMetrics(name, server=self, metrics=metrics, opts=opts)
