"""What open keys of stack files resolved to in the last release: a value that changes needs a line in the changelog.

``tests/released/resolved.txt`` has a line for each model, instance type and kind of server of a set, below a line that says which
release. ``make release`` writes it anew. Until the first release with open keys, ``UPDATE_GOLDEN=1`` does.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import groupby, product
from pathlib import Path
from typing import Any
from zlib import crc32

from eks_inference.catalog.instances import InstanceType, instance_types
from eks_inference.catalog.models import models
from eks_inference.serving.kinds import KINDS
from eks_inference.stack.defaults import CORE_POOL, LARGER_CORE_POOL, completed
from eks_inference.stack.nested import open_keys
from open_stacks import minimal

FILE = Path(__file__).parents[1] / "released" / "resolved.txt"
UNRELEASED = "unreleased"
_SMALLEST = "OPT-350M"
Rows = Mapping[str, Mapping[str, Any]]
"""``MODEL on TYPE as KIND`` → open key → value. Empty where nothing fits."""


def rows() -> Rows:
    """What a stack with one server resolves to."""
    found: dict[str, Mapping[str, Any]] = {"core pool": CORE_POOL, "core pool with Ray": LARGER_CORE_POOL}
    for kind, name, instance in _set():
        stack = completed(minimal(instance.name, models()[name].repositories[0], kind))
        prefix = ("servers", "m")
        resolved = () if stack.faults else stack.resolved
        values = {".".join(one.path[2:]): one.value for one in resolved if one.path[:2] == prefix}
        column = KINDS[kind].spec.model_fields["engine"]
        usual = {} if column.is_required() or stack.faults else {"engine": column.default}
        found[f"{name} on {instance.name} as {kind}"] = {
            key: one for key, one in (usual | values).items() if key not in ("pool", "kind")
        }
    return found


def _set() -> Iterator[tuple[str, str, InstanceType]]:
    """Every model once on each family, on a size that follows from its name: all sizes take seven seconds. A small model on every
    type.
    """
    types = [instance_type for instance_type in instance_types().values() if instance_type.accelerator]
    for kind, row in sorted(KINDS.items()):
        followed = {path[0] for path in open_keys(row.spec, {})} - {"model", "pool"}
        for _, of in groupby(types, key=lambda instance_type: instance_type.family):
            sizes = [instance_type for instance_type in of if instance_type.accelerator in row.spec.accelerators]
            for name, (place, instance) in product(models(), enumerate(sizes)):
                if row.sketched and (name == _SMALLEST or (followed and place == crc32(name.encode()) % len(sizes))):
                    yield kind, name, instance


def written(found: Rows, release: str) -> str:
    lines = (f"{row}: {json.dumps(values, sort_keys=True)}" for row, values in sorted(found.items()))
    return "\n".join((release, *lines)) + "\n"


def read() -> tuple[str, Rows]:
    release, *lines = FILE.read_text("utf-8").splitlines()
    return release, {row: json.loads(values) for row, _, values in (line.partition(": ") for line in lines)}


@dataclass(frozen=True)
class Change:
    """A key that resolves to another value, or that nothing fits any more."""

    key: str
    row: str
    old: Any
    new: Any

    def __str__(self) -> str:
        return f"{self.key} of {self.row}: {json.dumps(self.old)} → {json.dumps(self.new)}"


def changes(before: Rows, after: Rows) -> Iterator[Change]:
    """Yields what resolves otherwise. A row that is new changes nothing for anybody."""
    for row, old in before.items():
        now = after.get(row, {})
        yield from (Change(key, row, value, now.get(key)) for key, value in old.items() if now.get(key) != value)


@dataclass(frozen=True)
class Resolution:
    """A line of the changelog: ``- Resolves `KEY` of `MODEL on TYPE as KIND`: why``. ``*`` stands for any part of either."""

    key: str
    row: str

    def covers(self, change: Change) -> bool:
        return fnmatchcase(change.key, self.key) and fnmatchcase(change.row, self.row)


def resolutions(changelog: str, section: str = "Unreleased") -> Sequence[Resolution]:
    """What a section announces."""
    section = changelog.partition(f"## {section}\n")[2].partition("\n## ")[0]
    return [Resolution(*found) for found in re.findall(r"^- Resolves `([^`]+)` of `([^`]+)`: \S", section, re.MULTILINE)]


def unannounced(found: Iterator[Change], announced: Sequence[Resolution]) -> list[Change]:
    return [change for change in found if not any(resolution.covers(change) for resolution in announced)]
