"""Registers prefill and decode servers as a kind."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from eks_inference.place.placement import Placement
from eks_inference.serving.kind import Kind, Site
from eks_inference.serving.prefill_decode.plan import group
from eks_inference.serving.prefill_decode.rules import group_facts
from eks_inference.serving.prefill_decode.spec import ROLES, PrefillDecodeSpec, Role

if TYPE_CHECKING:
    import pulumi

    from eks_inference.serving.handle import Dependencies, Server, ServerSite


def _facts(name: str, spec: PrefillDecodeSpec, site: Site) -> Iterator[object]:
    placements: dict[Role, Placement] = {role: site.place(spec.pool_of(role)) for role in ROLES}
    servers = group(name, spec, placements)
    found = group_facts(
        servers,
        scheduler=site.scheduler,
        pools={role: site.pools[spec.role(role).pool] for role in ROLES},
        path=site.path,
    )
    yield found
    # Decode answers clients, so load tests are judged by it.
    yield found.decode.server
    yield found.prefill.server


def _build(
    name: str, spec: PrefillDecodeSpec, on: "Dependencies", site: "ServerSite", opts: "pulumi.ResourceOptions"
) -> "Server":
    from eks_inference.serving.prefill_decode.component import PrefillDecodeServers

    own = spec.router
    placements = {role: on.pools[spec.role(role).pool].placement(spec.role(role).instance_type) for role in ROLES}
    return PrefillDecodeServers(
        name,
        spec,
        cluster=on.cluster,
        prefill_placement=placements["prefill"],
        decode_placement=placements["decode"],
        router_placement=on.pools[own.pool].placement(own.instance_type) if own.pool else on.core,
        efa=on.efa,
        scheduler=on.scheduler,
        prefill_driver=on.driver_on(placements["prefill"]),
        decode_driver=on.driver_on(placements["decode"]),
        efa_driver=on.drivers.get("efa"),
        hugging_face_token=on.hugging_face_token,
        api_key=on.api_key,
        opts=opts,
    )


KIND = Kind(
    PrefillDecodeSpec,
    _facts,
    _build,
    api="openai",
    dashboards=("vllm",),
    rules=("eks_inference.serving.prefill_decode.rules", "eks_inference.serving.prefill_decode.operation_rules"),
)
