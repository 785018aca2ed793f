"""Where a fault in a team's own Python program is: its file and line, the component or spec that it made, and the field."""

import sysconfig
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import eks_inference
from eks_inference.faults import SpecError, format_path
from stackgraph.problems import Problem
from stackgraph.recorder.yaml_file import shown_path

_LIBRARY = str(Path(eks_inference.__file__).parent)
_INSTALLED = tuple({sysconfig.get_path("purelib"), sysconfig.get_path("stdlib")})


def problems_of_program(error: SpecError, root: Path) -> list[Problem]:
    """The faults of a program, each at the line that called the library and with what it made: ``Vpc 'net': zone_ids``."""
    file, line, made = "", 0, ""
    for frame, number in _frames(error):
        path = frame.f_code.co_filename
        if path.startswith(_LIBRARY):
            made = made or _made(frame)
        elif not path.startswith((*_INSTALLED, "<")):
            file, line, made = shown_path(Path(path), root), number, ""
    return [
        Problem(
            fault.message,
            file=file,
            line=line,
            key=": ".join(filter(None, (made, format_path(fault.path) or fault.config_key))),
            given=fault.given,
            allowed=fault.allowed,
            hint=fault.hint,
            rule=fault.rule,
            working=fault.working,
        )
        for fault in error.faults
    ]


def _frames(error: BaseException) -> Iterator[tuple[FrameType, int]]:
    """The frames of an error, the outermost first. An error that was raised anew continues with the one it stands for."""
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and (cause is error or isinstance(cause, SpecError)) and id(cause) not in seen:
        seen.add(id(cause))
        yield from traceback.walk_tb(cause.__traceback__)
        cause = cause.__cause__


def _made(frame: FrameType) -> str:
    """What a call of the library makes: ``ManagedPool 'gpu'`` or ``ManagedPoolSpec``. Empty for a plain function."""
    known = frame.f_locals
    cls = known.get("cls", type(known["self"]) if "self" in known else None)
    if not isinstance(cls, type):
        return ""
    name = known.get("name", next(iter(known.get("given", ())), known.get("named", {}).get("name")))
    return f"{cls.__name__} '{name}'" if isinstance(name, str) else cls.__name__
