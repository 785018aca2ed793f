"""Which keys of a stack's file differ between two revisions, and on which lines."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stackgraph.diff.comparing import Path, PropertyChange, differences, path_text

ENCRYPTED = "[secret]"
"""Stands for every encrypted value, so that none of them differs here."""


@dataclass(frozen=True)
class StackFile:
    """The configuration of a stack file. ``path`` is its place in the repository; ``lines`` has the line of every key."""

    path: str
    config: Mapping[str, Any]
    lines: Mapping[Path, int]

    def source(self, path: Path) -> str:
        """``file:line`` of a key, or of its nearest ancestor in the file."""
        while path and path not in self.lines:
            path = path[:-1]
        return f"{self.path}:{self.lines.get(path, 1)}"


def changed_keys(base: StackFile | None, head: StackFile | None) -> tuple[PropertyChange, ...]:
    """The innermost keys that differ. None where one of the files is not known."""
    return tuple(differences(base.config, head.config)) if base and head else ()


def key_text(path: Path) -> str:
    """A key as messages about stack files show it: ``eks-inference:stack.pools.core.size``."""
    inner = path_text(path[1:])
    return f"{path[0]}{'' if inner[:1] in ('', '[') else '.'}{inner}"
