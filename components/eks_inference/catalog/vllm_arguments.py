"""What engines of vLLM can be told, by release: ``vllm_arguments.toml`` and its loader."""

from collections.abc import Mapping
from functools import cache

from eks_inference.catalog.tables import rows, table


@cache
def known_arguments() -> Mapping[str, frozenset[str]]:
    """Names of engine arguments by vLLM release (``"0.27.1"``), in Python's spelling. Releases without a list are absent."""
    return {release: frozenset(row["keys"]) for release, row in table("vllm_arguments.toml")["releases"].items()}


@cache
def successors() -> Mapping[str, str]:
    """What is said in newer releases instead of an argument that went; a name, or a sentence that begins with "nothing"."""
    return rows(table("vllm_arguments.toml")["successors"])
