"""Where this command keeps what it need not make again: one folder of the user's, safe to delete."""

import os
from pathlib import Path

from eks_inference_tools import COMMAND


def user_cache(name: str) -> Path:
    """The folder ``name`` of the cache, below ``XDG_CACHE_HOME`` or ``~/.cache``. It may not be there yet."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return (Path(base) / COMMAND / name).absolute()
