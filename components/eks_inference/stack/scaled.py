"""What an autoscaler of a stack file leaves open, where the server's traffic is given: numbers of pods and requests. Pure."""

import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from eks_inference.faults import Fault, SpecError
from eks_inference.scaling.spec import KedaSpec
from eks_inference.serving.facts import ServingFacts
from eks_inference.serving.kind import Kind
from eks_inference.serving.traffic import TrafficSpec
from eks_inference.specs.base import MOST_PODS
from eks_inference.speed.takes import Takes, amount, takes
from eks_inference.stack.nested import Resolved, at, put
from eks_inference.stack.open_servers import Surroundings, facts_of

_SHARE = 0.8
"""The share of a pod's capacity at which the next pod starts, which takes minutes."""


def asked(stack: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Returns a server, which says no traffic, with that of endpoints, unless its part follows from its pods."""
    server = stack["servers"][name]
    if at(server, ("traffic",)) or not isinstance(server, Mapping):
        return server
    parts: list[TrafficSpec] = []
    with suppress(SpecError, TypeError, ValueError, ArithmeticError, AttributeError):  # validation reports it
        for endpoint in at(stack, ("endpoints",)).values():
            alone = {name: 1} if (at(endpoint, ("servers",)) or list(stack["servers"])) == [name] else {}
            for model, traffic in at(endpoint, ("traffic",)).items():
                weights = at(endpoint, ("models", model)) or alone
                if share := weights.get(name):
                    parts.append(TrafficSpec.model_validate(traffic).part(share / sum(weights.values())))
        if len({part.users is None for part in parts}) == 1:
            return {**server, "traffic": TrafficSpec.together(parts).model_dump()}
    return server


def scaled(name: str, server: Mapping[str, Any], kind: Kind, around: Surroundings) -> tuple[Resolved, ...]:
    """Returns the keys that follow from what one pod takes. Raises ``SpecError`` where nobody can tell that, and ``max`` is
    not given."""
    scaler = at(server, ("autoscaling",))
    try:
        spec = kind.spec.of(with_some_room(server))
        (facts,) = (one for one in facts_of(name, spec, kind, around) if isinstance(one, ServingFacts))
    except (SpecError, TypeError, ValueError):  # validation reports it
        return ()
    if not spec.traffic:
        return ()
    found = takes(replace(facts, pods_max=1), spec.traffic, spec.objectives, "random")
    path = ("servers", name, "autoscaling")
    if isinstance(found, str) or not found.most:
        why = found if isinstance(found, str) else f"a lone request is not answered{found.within}"
        fault = Fault((*path, "max"), f"does not follow from the traffic: {why}", hint="write max, or change what is asked")
        raise SpecError([] if "max" in scaler else [fault])
    keda = scales if isinstance(scales := spec.scalers.get(""), KedaSpec) else None
    return tuple(Resolved((*path, key), value, why) for key, value, why in _numbers(found, keda) if key not in scaler)


def with_some_room(server: Mapping[str, Any]) -> Mapping[str, Any]:
    """A server with some number for the most pods, where that follows from its traffic: it is valid before that is known."""
    scaler = at(server, ("autoscaling",))
    follows = scaler and isinstance(scaler, Mapping) and at(server, ("traffic",)) and "max" not in scaler
    return put(server, ("autoscaling", "max"), MOST_PODS) if follows else server


def _numbers(one: Takes, keda: KedaSpec | None) -> Iterator[tuple[str, Any, str]]:
    """Yields keys with their values and the reasons. ``one`` is what one pod takes."""
    low, quietest = one.range[0] or one.most, min(one.traffic.hours, default=1.0)
    asked = f"{amount(one.asked)} {one.unit}"
    most, scheduled = _pods(one.asked / low), max((hours.pods for hours in keda.schedule), default=0) if keda else 0
    why = f"{asked} at the busiest time / {amount(low)} that a pod takes to be sure{one.within}"
    yield "max", max(most, scheduled), why if most >= scheduled else f"the pods of schedule; {most} for {why}"
    if quietest < 1:
        load = quietest * one.asked
        yield "min", _pods(load / one.most), f"{amount(load)} {one.unit} in the quietest hour / {amount(one.most)} of a pod"
    if keda:
        why = f"{_SHARE:.0%} of what a pod works on at the {amount(one.most)} {one.unit} that it takes{one.within}"
        working_on = min(one.at(one.most).active, one.limits.max_num_seqs) * one.replicas  # the copies of a pod
        yield "concurrent_requests", max(1, math.floor(_SHARE * working_on)), why


def _pods(number: float) -> int:
    return min(MOST_PODS, max(1, math.ceil(number)))
