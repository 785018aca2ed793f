"""What KubeRay and Ray Serve call things: labels of pods, Services of a RayService, its Serve applications. Pure.

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
    """The Services that KubeRay makes for a RayService: its head, and the pods that serve."""
    return f"{name}-head-svc", f"{name}-serve-svc"


def serve_applications(ray_service: Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
    """Deployments by application as a RayService configures them; empty where that is not known or no YAML."""
    config = at(ray_service, "spec", "serveConfigV2")
    try:
        document = yaml.safe_load(config) if isinstance(config, str) else None
    except yaml.YAMLError:
        return {}
    return {
        text(at(application, "name")) or "default": tuple(items(at(application, "deployments")))
        for application in items(at(document, "applications"))
    }
