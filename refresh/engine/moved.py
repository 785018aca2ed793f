"""Where releases of vLLM have what moves between them."""

from contextlib import suppress
from importlib import import_module
from typing import Any

PARSERS = tuple(f"vllm.entrypoints.{place}.cli_args" for place in ("common", "launchers", "openai"))
"""Where the parser of `vllm serve` is."""


def moved(name: str, *modules: str) -> Any:
    """What is in different modules of different releases: that of the first that has it; None where none does."""
    for module in modules:
        with suppress(ImportError, AttributeError):
            return getattr(import_module(module), name)
    return None
