"""Why the changes of a resource replace it, or may replace it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from stackgraph.diff import replacements
from stackgraph.diff.differences import Path, PropertyChange, alike, differences, path_text
from stackgraph.graph.document import STACK_TYPE, Graph, Resource, is_component, is_read
from stackgraph.graph.values import is_token

FOLLOWS = ("provider", "deletedWith", "replaceWith")
"""The first words of reasons for a replacement that lie in another resource."""

_PROVIDER = "pulumi:providers:kubernetes"
_SETTINGS = ("kubeconfig", "context", "cluster")


def goes_with(resource: Resource) -> Iterator[tuple[str, str]]:
    """The URNs of the resources that replace this one with them, each after its word of ``FOLLOWS``."""
    named = ([resource.provider], [resource.options.get("deletedWith", "")], resource.options.get("replaceWith", ()))
    yield from ((key, urn) for key, urns in zip(FOLLOWS, named, strict=True) for urn in urns)


def another_cluster(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Path]:
    """The settings that turn to another cluster: its entry in the kubeconfig differs, or nobody knows it before the update.

    Another cluster replaces the provider and every object of the old one. A ``clusterIdentifier`` that stays says that it is the
    same. Source: pulumi-kubernetes v4 ``provider/pkg/provider/provider.go`` (DiffConfig, getActiveClusterFromConfig).
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
    return next((entry.get(what) for entry in entries if entry.get("name") == name), None)


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


def would_replace(resource: Resource, old: Any, new: Any) -> bool:
    """Whether other inputs replace the resource, by the tables and its own ``replaceOnChanges``."""
    changed = [change.path for change in differences(old, new)]
    named = [replacements.pattern_of(text) for text in resource.options.get("replaceOnChanges", ())]
    paths = (*replacements.replacing(resource.type, old, new, {}), *named)
    return any(replacements.covers(path, one) for path in paths for one in changed)


def unsure(after: Resource, old: Any, new: Any, properties: Sequence[PropertyChange]) -> tuple[str, ...]:
    """The changed paths that may replace the resource."""
    if is_component(after) or after.type == STACK_TYPE or is_read(after):
        return ()
    if not replacements.is_known(after.type):
        return tuple(change.name for change in properties)
    changed = [change.path for change in properties]
    possible = replacements.possible(after.type, old, new)
    return tuple(path_text(path) for path in possible if any(replacements.covers(path, one) for one in changed))


def because(
    before: Resource, after: Resource, old: Any, new: Any, properties: Sequence[PropertyChange], head: Graph
) -> tuple[str, ...]:
    """The reasons for a replacement: changed paths of the table, then those that the resource's own options name.

    A type that moves by alias is none: the provider compares as ever (pulumi-kubernetes #798, aliases of API versions).
    """
    if is_read(after):
        return ()
    changed = [change.path for change in properties]
    paths = [*replacing(after, old, new, head)]
    for text in after.options.get("replaceOnChanges", ()):
        pattern = replacements.pattern_of(text)
        paths += [path for path in changed if text == "*" or replacements.covers(pattern, path)]
    found = [path_text(path) for path in paths if any(replacements.covers(path, one) for one in changed)]
    was, now = (resource.options.get("replacementTrigger") for resource in (before, after))
    # A first or last one replaces nothing (pulumi/pulumi, step_generator.go, shouldTriggerReplace).
    if was is not None and now is not None and not alike(was, now):
        found.append("replacementTrigger")
    return tuple(dict.fromkeys(found))


def replacing(resource: Resource, old: Any, new: Any, head: Graph) -> Iterator[Path]:
    provider = head.by_urn.get(resource.provider)
    yield from replacements.replacing(resource.type, old, new, provider.inputs if provider else {})
    if resource.type == _PROVIDER:
        yield from another_cluster(old, new)
