"""Gives inputs of AWS what the provider writes into them from its own settings: the region, and all tags.

Only where the state has them: older versions of the provider wrote neither. A region that nobody knows here, such as that of the
environment, stays. Sources: pulumi-aws ``provider/region.go`` (applyRegion) and ``provider/tags.go`` (applyTags).
"""

from collections.abc import Mapping
from typing import Any

from stackgraph.diff.comparing import opened
from stackgraph.graph.tokens import UNKNOWN
from stackgraph.graph.values import items, leaves, table, text
from stackgraph.state.known import unknown


def from_provider(
    type_: str, inputs: Mapping[str, Any], deployed: Mapping[str, Any], provider: Mapping[str, Any]
) -> dict[str, Any]:
    """The inputs of a program with what its provider adds. ``deployed`` are those of the state, ``provider`` the provider's."""
    made = dict(inputs)
    if not type_.startswith("aws:"):
        return made
    if "region" in deployed and made.get("region") is None:
        made["region"] = provider.get("region") or deployed["region"]
    if "tagsAll" in deployed:
        made["tagsAll"] = _all_tags(made.get("tags"), opened(dict(provider)))
    return made


def _all_tags(tags: Any, provider: Mapping[str, Any]) -> Any:
    default, ignored = (_plain(provider.get(key)) for key in ("defaultTags", "ignoreTags"))
    if any(unknown(leaf) for leaf in leaves([tags, default, ignored])):
        return UNKNOWN
    found = {**table(_plain(table(default).get("tags"))), **table(tags)}
    keys, prefixes = ({text(item) for item in items(table(ignored).get(key))} for key in ("keys", "keyPrefixes"))
    return {key: value for key, value in found.items() if key not in keys and not key.startswith(tuple(prefixes))}


def _plain(setting: Any) -> Any:
    """A setting of a provider, which may be a JSON text: ``opened`` keeps its content under an empty name."""
    return setting[""] if isinstance(setting, Mapping) and setting.keys() == {""} else setting
