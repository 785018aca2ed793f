"""A kind of model server that only tests have, as an example of a new kind. No other kind and no platform file knows it.

It runs the image of the engine profile with only the flags that the model needs: no drain, no compile cache.
"""

from collections.abc import Iterator
from typing import Any, Literal

import pulumi
from pydantic import Field

from eks_inference.place.placement import Placement
from eks_inference.serving import deployment, flags, pod_parts
from eks_inference.serving.component import ReplicatedServer
from eks_inference.serving.facts import ServingFacts, replicated_facts
from eks_inference.serving.handle import Dependencies, ServerSite
from eks_inference.serving.kind import Kind, Site
from eks_inference.serving.shape import ReplicatedServerSpec
from eks_inference.serving.storage_plan import PodStorage

PORT = 8100


class PlainServerSpec(ReplicatedServerSpec):
    """vLLM on GPUs with the start command of its image."""

    kind: Literal["plain"]
    max_model_len: int = Field(ge=1, description="Longest sequence, in tokens.")
    max_num_seqs: int = Field(default=256, ge=1, description="Sequences one pod works on at once.")


def arguments(spec: PlainServerSpec) -> list[str]:
    wanted = {"model": spec.model.id, "port": PORT, "max-model-len": spec.max_model_len, "max-num-seqs": spec.max_num_seqs}
    return flags.flags(wanted | dict(spec.extra_args))


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
        stop=["sleep", str(pod_parts.SETTLE_SECONDS)],
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


class PlainServer(ReplicatedServer):
    """One Deployment, its Service and its guards."""

    def __init__(
        self, name: str, spec: PlainServerSpec, on: Dependencies, site: ServerSite, opts: pulumi.ResourceOptions
    ) -> None:
        super().__init__(
            "tests:index:PlainServer",
            name,
            spec,
            cluster=on.cluster,
            placement=site.placement,
            image=site.image,
            subjects=[serving_facts(spec, _alone(site.placement))],
            labels={pod_parts.SERVER_LABEL: name},
            ports={"http": PORT},
            opts=opts,
        )
        self.url = f"http://{self.host}:{PORT}/v1"
        plugin = on.gpu_plugin.ready if on.gpu_plugin else ()
        self._serve(name, spec, engine(spec), storage=PodStorage(), hugging_face_token=on.hugging_face_token, after=plugin)
        self.register_outputs({"endpoint": self.endpoint})


def _alone(placement: Placement) -> Site:
    return Site((), placement, pools={}, place=lambda choice: placement, zone_ids=(), pool_zones=lambda pool: (), scheduler=False)


def _facts(name: str, spec: PlainServerSpec, site: Site) -> Iterator[object]:
    yield serving_facts(spec, site)


def _build(name: str, spec: Any, on: Dependencies, site: ServerSite, opts: pulumi.ResourceOptions) -> PlainServer:
    return PlainServer(name, spec, on, site, opts)


KIND = Kind(PlainServerSpec, _facts, _build, api="openai", dashboards=("vllm",))
