"""Vectors of the rules about endpoints."""

from typing import Any

from eks_inference.endpoints.rules import EndpointFacts, ServerBehind
from eks_inference.endpoints.spec import ModelEndpointSpec
from vectors import Vector


def endpoint(*, limited: bool = True, tells_load: bool = True, **keys: Any) -> EndpointFacts:
    """Returns an endpoint with these keys and one server."""
    behind = {"a": ServerBehind(limited=limited, answer_seconds=180, model="m", namespace="a", tells_load=tells_load)}
    return EndpointFacts("chat", ModelEndpointSpec.model_validate(keys), behind)


def picked(**keys: Any) -> EndpointFacts:
    return endpoint(spread="endpoint_picker", **keys)


VECTORS = {
    "END001": Vector(endpoint, lambda: endpoint(largest_request_mib=256), "two of the largest requests at once"),
    "END002": Vector(endpoint, lambda: endpoint(longest_silence_seconds=60), "longer than 60 s are cut"),
    "END003": Vector(endpoint, lambda: endpoint(limited=False), "any pod of the cluster reaches a"),
    "END004": Vector(picked, lambda: picked(tells_load=False), "a shows clients none"),
    "END005": Vector(picked, lambda: picked(picker={"memory": "256Mi"}, replicas=4), "gets the picker killed"),
}
