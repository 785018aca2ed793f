"""Writes the output of commands to standard output or to a file."""

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any


def colour(output: Path | None) -> bool:
    """Whether text that ``write`` puts into ``output`` may have colour: on a terminal only (https://no-color.org)."""
    return output is None and sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def width(output: Path | None) -> int:
    """The columns that text in ``output`` may have: those of the terminal, else 110."""
    return shutil.get_terminal_size((110, 0)).columns if output is None and sys.stdout.isatty() else 110


def json_text(document: Any) -> str:
    """A document as indented JSON with a final newline."""
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def write(text: str, output: Path | None) -> None:
    """Writes to standard output, or to a file that is replaced as a whole. Raises ``ProblemsFound`` when that fails."""
    if output is None:
        sys.stdout.write(text)
        return
    from stackgraph.problems import Problem, ProblemsFound

    try:
        if output.exists() and not output.is_file():
            # A device or a pipe, such as /dev/null, must not be replaced by a file.
            output.write_text(text, encoding="utf-8")
            return
        with tempfile.NamedTemporaryFile(
            "w", dir=output.parent, prefix=f".{output.name}.", delete=False, encoding="utf-8"
        ) as file:
            try:
                file.write(text)
                file.close()
                os.chmod(file.name, 0o644)
                os.replace(file.name, output)
            except BaseException:
                os.unlink(file.name)
                raise
    except OSError as error:
        raise ProblemsFound([Problem(f"cannot write here: {error.strerror}", file=str(output))]) from error
