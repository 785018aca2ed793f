"""Where commands write to: a terminal or a file."""

import os
import shutil
import sys
import tempfile
from pathlib import Path


def colour() -> bool:
    """Whether standard output is a terminal that may be coloured (https://no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def width(otherwise: int = 110) -> int:
    """The columns of standard output; ``otherwise`` where it is no terminal."""
    return shutil.get_terminal_size((otherwise, 0)).columns if sys.stdout.isatty() else otherwise


def write(text: str, output: Path | None) -> None:
    """To standard output, or to a file that is complete or not there at all."""
    if output is None:
        sys.stdout.write(text)
        return
    from stackgraph.problems import Problem, ProblemsFound

    try:
        if output.exists() and not output.is_file():
            # A device or a pipe, such as /dev/null: nothing may take its place.
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
