"""vLLM engine arguments by release: loads ``vllm_arguments.toml``."""

from collections.abc import Mapping
from functools import cache

from eks_inference.catalog.tables import rows, table


@cache
def known_arguments() -> Mapping[str, frozenset[str]]:
    """Engine argument names in Python spelling, by vLLM release (``"0.27.1"``). Releases without a list are absent."""
    return {release: frozenset(row["keys"]) for release, row in table("vllm_arguments.toml")["releases"].items()}


@cache
def successors() -> Mapping[str, str]:
    """What replaces a removed argument in newer releases: a name, or a sentence that begins with "nothing"."""
    return rows(table("vllm_arguments.toml")["successors"])
