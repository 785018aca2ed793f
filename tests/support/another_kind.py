"""A kind of model server that only tests have: what somebody writes who adds a kind. No other kind and no platform file knows it.

It starts the engine profile's own image with nothing but the flags that the model needs: no drain, no compile cache.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import pulumi
import pulumi_kubernetes as k8s
from pydantic import Field

from eks_inference.faults import SpecError
from eks_inference.observability.handle import Metrics
from eks_inference.observability.prometheus import VllmMetrics
from eks_inference.placement import Placement
from eks_inference.rules import refuse
from eks_inference.serving import component, deployment, pods, protection
from eks_inference.serving.facts import ServingFacts, replicated_facts
from eks_inference.serving.handle import Dependencies, ServerSite
from eks_inference.serving.kinds import Kind, Site
from eks_inference.serving.rules.servers import server_rules
from eks_inference.serving.shape import ReplicatedServerSpec
from eks_inference.serving.storage_plan import PodStorage

PORT = 8100


class PlainServerSpec(ReplicatedServerSpec):
    """vLLM as its image starts it, on GPUs."""

    kind: Literal["plain"]
    max_model_len: int = Field(ge=1, description="Longest sequence, in tokens.")
    max_num_seqs: int = Field(default=256, ge=1, description="Sequences one pod works on at once.")


def arguments(spec: PlainServerSpec) -> list[str]:
    wanted = {"model": spec.model.id, "port": PORT, "max-model-len": spec.max_model_len, "max-num-seqs": spec.max_num_seqs}
    return pods.flags(wanted | dict(spec.extra_args))


def engine(spec: PlainServerSpec) -> deployment.Engine:
    return deployment.Engine(
        name="plain",
        command=["python3", "-m", "vllm.entrypoints.openai.api_server"],
        arguments=arguments(spec),
        home="/home/plain",
        environment={"HOME": "/home/plain", **spec.extra_env},
        ports={"http": PORT},
        health=("/health", "/health"),
        disk_gib=100,
        stop=["sleep", str(pods.SETTLE_SECONDS)],
        mounts=[{"name": "home", "mountPath": "/home/plain"}],
        volumes=[{"name": "home", "emptyDir": {}}],
    )


def serving_facts(spec: PlainServerSpec, site: Site) -> ServingFacts:
    return replicated_facts(
        spec,
        site.placement,
        path=site.path,
        scheduler=site.scheduler,
        tensor_parallel=1,
        max_num_seqs=spec.max_num_seqs,
        max_model_len=spec.max_model_len,
        arguments=tuple(arguments(spec)),
        environment=spec.extra_env,
        container_port=PORT,
        service_port=PORT,
    )


class PlainServer(pulumi.ComponentResource):
    """One Deployment, its Service and its guards."""

    def __init__(
        self, name: str, spec: PlainServerSpec, on: Dependencies, site: ServerSite, opts: pulumi.ResourceOptions
    ) -> None:
        if faults := [*component.name_faults(name, deployment.MAX_NAME_LENGTH), *component.image_faults(spec, site.image)]:
            raise SpecError(faults)
        cluster, placement, shape = on.cluster, site.placement, site.placement.instance_type
        refuse(server_rules(), serving_facts(spec, _alone(placement)), cluster.settings.silenced)
        super().__init__("tests:index:PlainServer", name, spec.model_dump(mode="json", exclude_none=True), opts)
        self.namespace, self.deployment_name = spec.namespace_of(name), name
        self.pod_labels: Mapping[str, str] = {pods.SERVER_LABEL: name}
        self.metrics_job, self.metrics_ports, self.metric_names = spec.kind, {"http": PORT}, spec.profile.metric_names
        self.model_id = spec.model.id
        self.endpoint = f"http://{name}.{self.namespace}.svc.cluster.local:{PORT}/v1"
        self.forwards: Mapping[str, Sequence[int]] = {name: [PORT]}
        self.startup_seconds = deployment.cold_start_seconds(spec)
        self.hardware = deployment.hardware(spec, shape)

        namespace, inside = component.own_namespace(name, self.namespace, cluster, self)
        self.foundation: Sequence[pulumi.Resource] = (namespace,)
        account = component.service_account(f"{name}-account", deployment.account(name), self.namespace, inside)
        token_env, token = component.hub_token(name, on.hugging_face_token, self.namespace, inside)
        guards = component.guards(
            name,
            policies=protection.server_policies(name, spec, self.pod_labels, api=[PORT], metrics=PORT),
            quota=deployment.quota(name, spec, shape),
            budgets={"": deployment.disruption_budget(name, spec, self.pod_labels)},
            options=inside,
        )
        service = k8s.core.v1.Service(
            f"{name}-service", **deployment.service(name, spec, self.pod_labels, self.metrics_ports), opts=inside
        )
        image = component.engine_image(spec, site.image, cluster)
        manifest = deployment.deployment(
            name,
            spec,
            placement,
            engine(spec),
            labels=self.pod_labels,
            image=image,
            storage=PodStorage(),
            secret_env=token_env,
        )
        before = [account, service, *token, *guards, *placement.ready, *(on.gpu_plugin.ready if on.gpu_plugin else ())]
        made = component.server_deployment(name, spec, manifest, after=before, cluster=cluster, parent=self)
        self.ready: Sequence[pulumi.Resource] = (made, service)
        self.register_outputs({"endpoint": self.endpoint})

    def scraped_by(self, name: str, metrics: Metrics, opts: pulumi.ResourceOptions) -> VllmMetrics:
        return VllmMetrics(name, server=self, metrics=metrics, opts=opts)


def _alone(placement: Placement) -> Site:
    return Site((), placement, pools={}, zone_ids=(), pool_zones=lambda pool: (), scheduler=False)


def _facts(name: str, spec: PlainServerSpec, site: Site) -> Iterator[object]:
    yield serving_facts(spec, site)


def _build(name: str, spec: Any, on: Dependencies, site: ServerSite, opts: pulumi.ResourceOptions) -> PlainServer:
    return PlainServer(name, spec, on, site, opts)


KIND = Kind(PlainServerSpec, _facts, _build, api="openai", dashboards=("vllm",))
