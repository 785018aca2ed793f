"""Rules about model servers whose devices are claimed. Ids DRA…"""

from collections.abc import Iterator

from eks_inference.catalog.claim_drivers import most_devices_per_claim
from eks_inference.faults import SpecError
from eks_inference.place.claimed_devices import asked_by, device_claims
from eks_inference.rules import Judgement, rule
from eks_inference.serving.facts import ServingFacts


@rule(
    "DRA005",
    "Pods of this kind of server can claim devices.",
    fix="serve the model with a kind that can (vllm, triton), or move the server to a pool with devices: plugin",
    source="Ray counts extended resources of its workers; prefill and decode in one pod name the cores of a whole node",
    about="model servers whose devices are claimed",
)
def kind_claims(server: ServingFacts) -> Iterator[Judgement]:
    if server.placement.claimed:
        yield Judgement(
            holds=server.claims,
            path=server.at("pool"),
            working=(f"kind {server.kind}: {'claims devices' if server.claims else 'requests devices as resources'}",),
            message=f"servers of kind {server.kind} need a device plugin, which does not run on pool '{server.placement.pool}'",
            given=server.placement.pool,
        )


@rule(
    "DRA006",
    "A scheduler can allocate what a pod claims on an empty node.",
    fix="change devices to a number that the driver publishes sets of and leave efa_interfaces out, or let the device plugin "
    "offer them (devices: plugin)",
    source="Neuron documentation, DRA: sets of 1, 4, 8 or 16 connected devices; Kubernetes API, ResourceClaim: at most 32 "
    "devices are allocated to one claim",
    about="model servers whose devices are claimed",
)
def claims_are_possible(server: ServingFacts) -> Iterator[Judgement]:
    if not server.placement.claimed or not server.claims:
        return
    type_name, most = server.instance.name, most_devices_per_claim()
    try:
        claims = device_claims(server.placement, server.devices, efa_interfaces=server.efa_interfaces)
    except SpecError as error:
        found = error.faults[0]
        yield Judgement(
            holds=False,
            path=server.at(str(found.path[-1])),
            working=(
                f"{server.devices} of {server.instance.devices} devices of {type_name}",
                f"interfaces: {server.efa_interfaces}",
            ),
            message=found.message,
            given=found.given,
            allowed=found.allowed,
        )
        return
    sums = {claim: sum(count for _, count in asked_by(spec)) for claim, spec in claims.templates.items()}
    yield Judgement(
        holds=all(total <= most for total in sums.values()),
        path=server.at("devices"),
        working=tuple(f"claim {claim}: {total} devices of at most {most}" for claim, total in sums.items()),
        message=f"a claim asks for more than {most} devices",
    )
