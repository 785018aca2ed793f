"""The Kubernetes versions that the catalog supports, instance types that it leaves out, and copies of it with further rows."""

import shutil
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from eks_inference.catalog import tables
from eks_inference.catalog.instances import instance_types

VERSIONS: tuple[str, ...] = tuple(tables.rows(tables.table("versions.toml")["kubernetes"]))


def left_out() -> dict[str, str]:
    """The reasons why the catalog leaves out instance types, by type or family."""
    return tomllib.loads(Path(__file__).with_name("instance_types_left_out.toml").read_text("utf-8"))


def unknown(sold: Iterable[str]) -> set[str]:
    """The types that neither the catalog has nor a reason leaves out."""
    known = instance_types().keys() | left_out().keys()
    return {name for name in sold if not {name, name.partition(".")[0]} & known}


def _forget() -> None:
    for name, module in list(sys.modules.items()):
        if name.startswith("eks_inference.catalog."):
            for value in vars(module).values():
                if hasattr(value, "cache_clear"):
                    value.cache_clear()


@contextmanager
def catalog_copy(folder: Path) -> Iterator[Callable[..., None]]:
    """Uses a copy of the catalog in ``folder``; yields a function that adds text to a file, at its end or below a line."""
    shipped = tables.FOLDER
    for file in (*shipped.glob("*.toml"), *shipped.glob("*.json")):
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
