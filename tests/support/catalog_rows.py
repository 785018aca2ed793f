"""The catalog with rows of a test's own: on a copy of its files, and gone afterwards."""

import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from eks_inference.catalog import tables


def _forget() -> None:
    for name, module in list(sys.modules.items()):
        if name.startswith("eks_inference.catalog."):
            for value in vars(module).values():
                if hasattr(value, "cache_clear"):
                    value.cache_clear()


@contextmanager
def catalog_copy(folder: Path) -> Iterator[Callable[..., None]]:
    """The catalog is a copy in ``folder`` here. Yields what adds a text to one of its files: at the end, or below a line."""
    shipped = tables.FOLDER
    for file in shipped.glob("*.toml"):
        shutil.copy(file, folder)

    def add(file: str, text: str, *, below: str = "") -> None:
        content = (folder / file).read_text()
        assert below in content
        before, line, after = content.partition(below) if below else (content, "", "")
        (folder / file).write_text(f"{before}{line}\n{text}{after}")
        _forget()

    tables.FOLDER = folder
    _forget()
    try:
        yield add
    finally:
        tables.FOLDER = shipped
        _forget()
