"""What a shell offers at the cursor. argcomplete reads commands, options and choices from argparse's own tree.

Each press of TAB starts this, so nothing here loads the SDK, pydantic or rich.
"""

import argparse
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from argcomplete import autocomplete
from argcomplete.completers import DirectoriesCompleter, FilesCompleter, SuppressCompleter

Given = argparse.Namespace
Offered = Mapping[str, str]
"""Values with what they are."""


def complete(parser_for: Callable[[str], argparse.ArgumentParser]) -> None:
    """Writes what may stand at the cursor of the shell that asks, and ends the process."""
    found = parser_for(_named(os.environ.get("COMP_LINE", ""), int(os.environ.get("COMP_POINT", "0"))))
    for action in _actions(found):
        if action.choices is None:
            vars(action)["completer"] = _completer(str(action.metavar))
    autocomplete(found, always_complete_options=False, default_completer=SuppressCompleter())


def _named(line: str, point: int) -> str:
    """The command of the line, if it is finished."""
    before = line[:point].split()
    return before[1] if len(before) > 2 or (len(before) == 2 and line[:point][-1:].isspace()) else ""


def _actions(of: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in of._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for each in action.choices.values():
                yield from _actions(each)


def _completer(metavar: str) -> Any:
    if values := VALUES.get(metavar):
        return lambda parsed_args, **_: values(parsed_args)
    return FILES.get(metavar, _nothing)


def _nothing(**_: Any) -> tuple[str, ...]:
    """What may stand for a metavar that nobody can list. argcomplete's ``SuppressCompleter`` would hide the option, too."""
    return ()


def _extended(given: Given) -> None:
    """Takes the rows of files that stand on the line before the cursor."""
    from eks_inference_tools.commands.wishes import extended

    if files := getattr(given, "catalog", None):
        extended(files)


def _lines(of: str) -> Callable[[Given], Offered]:
    """Rows of the catalog, by the function of ``described`` that tells them."""

    def values(given: Given) -> Offered:
        from eks_inference.catalog import described

        _extended(given)
        return getattr(described, of)()

    return values


def _models(given: Given) -> Offered:
    from eks_inference.catalog import described

    _extended(given)
    return {**described.model_lines(), **described.repository_lines()}


def _stacks(given: Given) -> Offered:
    from stackgraph.recorder.project import find_project

    project = find_project(getattr(given, "program", None) or Path())
    return dict.fromkeys(project.stacks(), f"stack of {project.name}")


VALUES: Mapping[str, Callable[[Given], Offered]] = {
    "ARCHITECTURE": _lines("architecture_lines"),
    "CHIP": _lines("chip_lines"),
    "FAMILY": _lines("family_lines"),
    "MODEL": _models,
    "PROFILE": _lines("engine_lines"),
    "REGION": _lines("region_lines"),
    "STACK": _stacks,
    "TYPE": _lines("instance_lines"),
}
"""What may stand for a metavar."""

FILES: Mapping[str, Any] = {
    "FILE": FilesCompleter(),
    "FILE.svg": FilesCompleter(["svg"]),
    "BUNDLE": FilesCompleter(["json"]),
    "DIR": DirectoriesCompleter(),
}
