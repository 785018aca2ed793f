"""One model server of a stack, of any kind, with what belongs to it: image build, metrics, autoscaler."""

from collections.abc import Mapping
from typing import cast

import pulumi

from eks_inference.images.component import ImageBuild
from eks_inference.images.spec import InClusterImage
from eks_inference.scaling.component import Autoscaler
from eks_inference.scaling.handle import Backend, QueriedMetrics, ScaledServer
from eks_inference.serving.handle import Dependencies, Server, ServerSite
from eks_inference.serving.kinds import kind_of
from eks_inference.serving.shape import ServerSpec


def deploy_server(
    name: str,
    spec: ServerSpec,
    dependencies: Dependencies,
    *,
    prometheus: QueriedMetrics | None,
    backends: Mapping[str, Backend],
    opts: pulumi.ResourceOptions,
) -> Server:
    """Builds a server; all of its parts are siblings and take ``opts``.

    Without ``prometheus`` it has neither metrics nor an autoscaler. ``backends`` are by the kind of the autoscalers they serve.
    Raises ``SpecError`` as the components do, with paths below the server's own key.
    """
    choice = spec.main_pool()
    site = ServerSite(
        placement=dependencies.pools[choice.pool].placement(choice.instance_type),
        image=_image(name, spec, dependencies, opts),
    )
    server = kind_of(spec).build(name, spec, dependencies, site, opts)
    if prometheus:
        server.scraped_by(f"{name}-metrics", prometheus, opts)
        if scaler := spec.scaler:
            Autoscaler(
                f"{name}-autoscaler",
                scaler,
                cluster=dependencies.cluster,
                # A spec that has an autoscaler is of a kind whose pods are those of one Deployment.
                server=cast(ScaledServer, server),
                metrics=prometheus,
                backend=backends[scaler.kind],
                opts=opts,
            )
    return server


def _image(name: str, spec: ServerSpec, dependencies: Dependencies, opts: pulumi.ResourceOptions) -> pulumi.Input[str] | None:
    """The image that is built for the server; none when it runs one that is published."""
    if not isinstance(spec.image, InClusterImage):
        return None
    return ImageBuild(
        f"{name}-image",
        spec.image,
        cluster=dependencies.cluster,
        placement=dependencies.core,
        defaults=spec.image_arguments,
        opts=opts,
    ).reference
