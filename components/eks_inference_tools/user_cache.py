"""The user's cache folder of this command. It holds only what the command can make again, so it is safe to delete."""

import os
from pathlib import Path

from eks_inference_tools import COMMAND


def user_cache(name: str) -> Path:
    """The folder ``name`` of the cache, below ``XDG_CACHE_HOME`` or ``~/.cache``. It may not exist yet."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return (Path(base) / COMMAND / name).absolute()
