"""Imports modules whose dependencies are not installed: a mock stands for each package that is missing.

What is declared in Python alone (parsers, dataclasses, Literals) can then be read; what a mock decides cannot be trusted.
"""

import importlib.metadata
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from typing import Any, Union, cast
from unittest import mock

from pydantic_core import core_schema

_NEWEST = "999"
"""The version of what is not installed: newer than any that somebody asks for."""


class _Base:
    """What a stand-in is as a base class."""

    def __init_subclass__(cls, **_: Any) -> None:
        pass

    def __class_getitem__(cls, _: Any) -> Any:
        return cls


class _StandIn(mock.MagicMock):
    """A module, and everything in it: base class, decorator, annotation or object."""

    __path__ = ()  # a package, so that it has modules

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        # In an annotation. A mock sets its own operators when it is made.
        self.__or__ = lambda one, other: Union[one, other]  # noqa: UP007
        self.__ror__ = lambda one, other: Union[other, one]  # noqa: UP007

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        there = any(isinstance(base, type) and issubclass(base, _Base) for base in bases)
        return () if there or next(base for base in bases if isinstance(base, _StandIn)) is not self else (_Base,)

    def __get_pydantic_core_schema__(self, *_: Any) -> Any:
        return core_schema.any_schema()


class _Missing(MetaPathFinder, Loader):
    def __init__(self, package: str, without: str) -> None:
        self._there, self._without = {package, *sys.stdlib_module_names}, f"{without}."

    def find_spec(self, name: str, *_: Any) -> ModuleSpec | None:
        there = name.partition(".")[0] in self._there and not name.startswith(self._without)
        return None if there else ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> Any:
        return _StandIn(name=spec.name)

    def exec_module(self, module: Any) -> None:
        pass


@contextmanager
def stand_ins(folder: str, package: str, without: str) -> Iterator[None]:
    """Makes ``package``, which is in ``folder``, importable without what it requires, and without one module of its own."""
    installed = importlib.metadata.version

    def version(name: str) -> str:
        try:
            return installed(name)
        except importlib.metadata.PackageNotFoundError:
            return _NEWEST

    found = _Missing(package, without)
    with mock.patch.object(importlib.metadata, "version", version), mock.patch.dict(sys.modules):
        sys.path.insert(0, folder)
        sys.meta_path.append(found)  # asked last
        sys.modules[without] = cast(Any, _StandIn(name=without))
        try:
            yield
        finally:
            sys.path.remove(folder)
            sys.meta_path.remove(found)
