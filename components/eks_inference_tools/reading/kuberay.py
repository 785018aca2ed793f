"""Names that KubeRay generates and the Serve configuration of a RayService: pod labels, Services, applications. Pure.

Sources: KubeRay 1.7.0 (labels and names it generates); Ray 2.52.1, ``serve.schema``.
"""

from collections.abc import Mapping
from typing import Any

import yaml

from stackgraph.graph.values import at, items, text

CLUSTER_LABEL = "ray.io/cluster"
GROUP_LABEL = "ray.io/group"
SERVE_LABEL = "ray.io/serve"

HEAD_GROUP = "headgroup"


def generated_services(name: str) -> tuple[str, ...]:
    """The Services that KubeRay creates for a RayService: for its head, and for the pods that serve."""
    return f"{name}-head-svc", f"{name}-serve-svc"


def serve_applications(ray_service: Mapping[str, Any]) -> tuple[Any, ...]:
    """The Serve applications of a RayService. Empty when its configuration is unknown or not YAML."""
    config = at(ray_service, "spec", "serveConfigV2")
    try:
        document = yaml.safe_load(config) if isinstance(config, str) else None
    except yaml.YAMLError:
        return ()
    return tuple(items(at(document, "applications")))


def serve_deployments(ray_service: Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
    """The deployments of each Serve application of a RayService, as ``serve_applications``."""
    return {
        text(at(application, "name")) or "default": tuple(items(at(application, "deployments")))
        for application in serve_applications(ray_service)
    }
