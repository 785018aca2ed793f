"""Builds one model server of a stack, of any kind, with its image build, metrics and autoscaler."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import pulumi

from eks_inference.images.component import ImageBuild
from eks_inference.images.spec import InClusterImage
from eks_inference.scaling.component import Autoscaler
from eks_inference.scaling.handle import Backend, QueriedMetrics, ScaledParts
from eks_inference.serving.component import formerly
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
    """Builds a server. All of its parts are siblings and get ``opts``.

    Without ``prometheus`` the server has neither metrics nor an autoscaler. The keys of ``backends`` are kinds of autoscaler.
    Raises ``SpecError`` as the components do, with paths relative to the server's key.
    """
    choice = spec.main_pool()
    placement = dependencies.pools[choice.pool].placement(choice.instance_type)
    image = None
    if isinstance(spec.image, InClusterImage):
        image = ImageBuild(
            f"{name}-image",
            spec.image,
            cluster=dependencies.cluster,
            placement=dependencies.core,
            defaults=spec.image_arguments,
            opts=formerly(opts, spec, "-image"),
        ).reference
    site = ServerSite(placement=placement, image=image)
    server = kind_of(spec).build(name, spec, dependencies, site, opts)
    if prometheus:
        server.scraped_by(f"{name}-metrics", prometheus, formerly(opts, spec, "-metrics"))
        for part, scaler in spec.scalers.items():
            suffix = f"-{part}-autoscaler" if part else "-autoscaler"
            Autoscaler(
                f"{name}{suffix}",
                scaler,
                cluster=dependencies.cluster,
                # Only kinds whose pods belong to Deployments have autoscalers.
                server=cast(ScaledParts, server).scaled[part],
                metrics=prometheus,
                backend=backends[scaler.kind],
                opts=formerly(opts, spec, suffix),
            )
    return server
