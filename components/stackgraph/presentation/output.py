"""Writes the output of commands to standard output or to a file."""

import codecs
import contextlib
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from io import TextIOWrapper
from pathlib import Path
from typing import Any, TypedDict

from stackgraph.problems import printable


class _Unclosable:
    """A stream that its program cannot close."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def close(self) -> None:
        self._stream.flush()


@contextlib.contextmanager
def stdout_kept() -> Iterator[None]:
    """Sends what a program prints to standard error, also what it or its child processes write to file descriptor 1.

    Afterwards both descriptors are what they were, whatever the program did to them.
    """
    sys.stdout.flush()
    kept = os.dup(1), os.dup(2)
    os.dup2(2, 1)
    try:
        stream: Any = _Unclosable(sys.stderr)
        with contextlib.redirect_stdout(stream), contextlib.redirect_stderr(stream):
            yield
    finally:
        with contextlib.suppress(OSError, ValueError, AttributeError):
            sys.__stdout__.flush()  # pyright: ignore[reportOptionalMemberAccess]
        for number, file in enumerate(kept, start=1):
            os.dup2(file, number)
            os.close(file)


class Drawing(TypedDict, total=False):
    """What a text is drawn for: without a width, for no terminal."""

    colour: bool
    width: int


def drawing(output: Path | None) -> Drawing:
    """Drawing for ``output``: with colour on a terminal only (https://no-color.org), as wide as that is."""
    colour = output is None and sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    columns = _columns(sys.stdout) if output is None else 0
    return {"colour": colour, "width": columns} if columns else {"colour": colour}


def tell(text: str) -> None:
    """Prints lines on standard error, with words that a terminal leaves whole."""
    if columns := _columns(sys.stderr):
        from stackgraph.presentation.terminal import drawn

        text = drawn(text.split("\n"), width=columns).rstrip("\n")
    print(text, file=sys.stderr)


def _columns(stream: Any) -> int:
    """How wide a terminal is, or COLUMNS says that it is; 0 for what is none.

    There COLUMNS says nothing: a Python parent that has loaded readline hands on one that nobody set.
    """
    columns = shutil.get_terminal_size((0, 0)).columns if stream.isatty() else 0
    return max(columns, 60) if columns else 0


def json_text(document: Any) -> str:
    """A document as indented JSON with a final newline."""
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def sorted_json(document: Any) -> str:
    """A graph's document as JSON, whose keys have one order however it was made."""
    return json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def write(text: str, output: Path | None) -> None:
    """Writes to standard output, or to a file that is replaced as a whole. Raises ``ProblemsFound`` when that fails."""
    from stackgraph.problems import Problem, ProblemsFound, real

    try:
        if output is None:
            sys.stdout.write(on_terminal(text) if sys.stdout.isatty() else text)
            sys.stdout.flush()
        elif output.exists() and not output.is_file():
            # A device or a pipe, such as /dev/null, must not be replaced by a file.
            output.write_text(text, encoding="utf-8")
        else:
            _replace(real(output), text)
    except BrokenPipeError:
        raise
    except OSError as error:
        if output is None:
            drop_stdout()
        shown = "standard output" if output is None else str(output)
        raise ProblemsFound([Problem(f"cannot write here: {error.strerror}", file=shown)]) from error


def on_terminal(text: str) -> str:
    """The text without anything that controls a terminal, except colours."""
    parts = re.split(r"(\x1b\[[\d;]*m)", text)
    return "".join(part if number % 2 else printable(part, keep="\n\t") for number, part in enumerate(parts))


def _replace(file: Path, text: str) -> None:
    """Writes a file as a whole: it has its old text or the new one. It keeps its permissions."""
    mode = file.stat().st_mode & 0o7777 if file.exists() else 0o644
    with tempfile.NamedTemporaryFile("w", dir=file.parent, prefix=f".{file.name}.", delete=False, encoding="utf-8") as new:
        try:
            new.write(text)
            new.close()
            os.chmod(new.name, mode)
            os.replace(new.name, file)
        except BaseException:
            os.unlink(new.name)
            raise


def usable_streams() -> None:
    """Makes standard streams that are closed or take only some letters take whatever a command writes.

    Writing to a closed standard output is an error that ``write`` reports. Letters that the encoding lacks are escaped as in
    JSON, which keeps JSON right.
    """
    for number, name, access in ((0, "stdin", os.O_RDONLY), (1, "stdout", os.O_RDONLY), (2, "stderr", os.O_WRONLY)):
        if getattr(sys, name) is None:
            # Otherwise the next file that is opened would get the number, and what is printed.
            opened = os.open(os.devnull, access)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            setattr(sys, name, os.fdopen(number, "w" if number else "r", encoding="utf-8"))
    codecs.register_error("as in JSON", _as_in_json)
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="as in JSON")


def _as_in_json(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end


def drop_stdout() -> None:
    """Drops what cannot be written to standard output. Python would report it again when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
