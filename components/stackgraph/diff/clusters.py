"""Whether the provider of Kubernetes objects turns to another cluster, which replaces it and every object of the old one.

Source: pulumi-kubernetes v4 ``provider/pkg/provider/provider.go`` (DiffConfig, getActiveClusterFromConfig).
"""

from collections.abc import Iterator, Mapping
from typing import Any

from stackgraph.diff.comparing import Path, alike
from stackgraph.graph.tokens import is_token

PROVIDER = "pulumi:providers:kubernetes"
_SETTINGS = ("kubeconfig", "context", "cluster")


def another_cluster(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Path]:
    """The settings that turn to another cluster: its entry in the kubeconfig differs, or nobody knows it before the update.

    A ``clusterIdentifier`` that stays says that it is the same.
    """
    if new.get("clusterIdentifier") and old.get("clusterIdentifier") == new["clusterIdentifier"]:
        return
    changed = [key for key in _SETTINGS if not alike(old.get(key), new.get(key))]
    if unknown := [key for key in changed if is_token(new.get(key))]:
        yield from ((key,) for key in unknown[:1])
        return
    before, after = _active(old), _active(new)
    if before is not None and after is not None and not alike(before, after):
        yield from ((key,) for key in changed)


def _active(settings: Mapping[str, Any]) -> Any:
    """The entry of the cluster that the provider talks to; None if the kubeconfig has none."""
    config = _parsed(settings.get("kubeconfig"))
    context = _entry(config, "contexts", settings.get("context") or config.get("current-context"), "context")
    return _entry(config, "clusters", settings.get("cluster") or (context or {}).get("cluster"), "cluster")


def _entry(config: Mapping[str, Any], names: str, name: Any, what: str) -> Any:
    found = config.get(names)
    entries = [one for one in found if isinstance(one, Mapping)] if isinstance(found, list) else []
    return next((one.get(what) for one in entries if one.get("name") == name), None)


def _parsed(config: Any) -> Mapping[str, Any]:
    if isinstance(config, str):
        import yaml

        try:
            config = yaml.safe_load(config)
        except yaml.YAMLError:
            return {}
    elif isinstance(config, Mapping):
        config = config.get("", config)  # a text that is JSON, after ``opened``
    return config if isinstance(config, Mapping) else {}
