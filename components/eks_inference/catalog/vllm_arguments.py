"""Arguments of vLLM by release: loads ``vllm_arguments.toml``."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from eks_inference.catalog.tables import Row, arguments, rows, table


@dataclass(frozen=True)
class VllmRelease(Row):
    """What the parsers of one release take."""

    quantizations: tuple[str, ...]
    """Values of ``--quantization``."""
    keys: tuple[str, ...] = ()
    """Engine arguments in Python spelling. Empty: no engine profile of this release takes settings as keys."""
    flags: tuple[str, ...] = ()
    """Flags of ``vllm serve`` without dashes in front. Empty: no engine profile of this release starts ``vllm serve``."""


@cache
def vllm_releases() -> Mapping[str, VllmRelease]:
    """All known releases by version (``"0.27.1"``), oldest first."""
    return {name: VllmRelease(name=name, **arguments(row)) for name, row in table("vllm_arguments.toml")["releases"].items()}


@cache
def known_arguments() -> Mapping[str, frozenset[str]]:
    """The ``keys`` by release, without releases that have none."""
    return {name: frozenset(release.keys) for name, release in vllm_releases().items() if release.keys}


@cache
def successors() -> Mapping[str, str]:
    """What replaces a removed argument in newer releases: a name, or a sentence that begins with "nothing"."""
    return rows(table("vllm_arguments.toml")["successors"])
