"""Flags that a release of vLLM refuses together: loads ``vllm_combinations.toml``."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, Literal, cast

from eks_inference.catalog.tables import Row, arguments, rows, table
from eks_inference.catalog.vllm_arguments import vllm_releases

Test = Literal[
    "given", "is_in", "is_not_in", "is_not", "less_than", "no_less_than", "more_than", "no_multiple_of", "no_divisor_of"
]


_FILE = "vllm_combinations.toml"


@dataclass(frozen=True)
class Condition:
    """A statement about one setting of a server."""

    setting: str
    """A flag without dashes, a key inside a flag's object (``eplb-config.use_async``), or a fact (``model.kv_heads``)."""
    test: Test
    against: Any
    """What the setting is compared with: a value, several for ``is_in`` and ``is_not_in``, or the name of another setting."""


@dataclass(frozen=True)
class Combination(Row):
    """Settings that a release refuses when all conditions hold."""

    says: str
    """The refusal in a sentence, without its full stop."""
    conditions: tuple[Condition, ...]
    """The first is about the flag that a user would change."""
    releases: frozenset[str]

    @cached_property
    def flag(self) -> str:
        """The flag that a user would change."""
        return self.conditions[0].setting.partition(".")[0]


@cache
def combinations() -> tuple[Combination, ...]:
    """All known combinations."""
    return tuple(_combination(name, arguments(row)) for name, row in table(_FILE)["combinations"].items())


@cache
def combinations_of(release: str) -> tuple[Combination, ...]:
    """Returns what one release refuses."""
    return tuple(one for one in combinations() if release in one.releases)


def default_of(setting: str) -> Any:
    """Returns the engine's value of a flag that is not given; None if it has none, or chooses it."""
    return rows(table(_FILE)["defaults"]).get(setting)


def _combination(name: str, row: dict[str, Any]) -> Combination:
    known = list(vllm_releases())
    first, last = row.pop("since", known[0]), row.pop("until", known[-1])
    row["releases"] = frozenset(known[known.index(first) : known.index(last) + 1])
    row["conditions"] = tuple(map(_condition, row.pop("refused")))
    return Combination(name=name, read=table(_FILE)["read"], **row)


def _condition(row: Mapping[str, Any]) -> Condition:
    (test,) = row.keys() - {"flag"}
    return Condition(row["flag"], cast(Test, test), arguments(row)[test])
