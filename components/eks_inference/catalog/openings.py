"""What lets others into an engine, an interface or a chart: loads ``openings.toml``."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Literal

from eks_inference.catalog.tables import Row, load

_OFF = ("", "0", "false", "none", "null")


@dataclass(frozen=True)
class Opening(Row):
    """A flag, a variable or a value of a chart, by name. The name of a value is the end of its path."""

    of: Literal["engine", "interface", "chart"]
    """Where it counts: flags and variables of an engine, variables of any container, values of charts."""
    opens: str
    """What it does, as a part of a sentence."""
    values: tuple[str, ...] = ()
    """Values that do, in lower case. Empty: all that are not off."""
    beside: str = ""
    """Another variable that has to be on as well."""
    pinned: bool = False
    """Whether a revision of the model makes it safe."""

    def by(self, value: object) -> bool:
        """Returns whether a value opens it."""
        text = "true" if value is None else str(value).strip().lower()  # a flag without a value is a switch
        return text in self.values if self.values else text not in _OFF


@cache
def openings(of: str) -> Mapping[str, Opening]:
    """What counts there, by name."""
    return {name: row for name, row in load(Opening, "openings.toml").items() if row.of == of}
