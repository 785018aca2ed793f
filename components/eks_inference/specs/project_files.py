"""What the project of the running program gives to specs: files, by paths relative to the folder that has the ``Pulumi.yaml``,
and the configuration. Loads pulumi when asked, for specs that read stack files without it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from eks_inference.faults import Fault, SpecError

_folder: ContextVar[Path | None] = ContextVar("folder", default=None)


@contextmanager
def files_below(folder: Path | None) -> Iterator[None]:
    """Reads files of specs below ``folder`` inside. Outside, and with None, that is the working directory."""
    token = _folder.set(folder)
    try:
        yield
    finally:
        _folder.reset(token)


def read_file(path: str, limit: int) -> bytes:
    """Returns at most ``limit`` bytes of a file, and one more where there are more.

    Raises ``SpecError`` for a file that cannot be read or is outside of the folder, also by a link.
    """
    allowed = "a file below the project's folder, by its path from there: ./model/config.json"
    folder = (_folder.get() or Path.cwd()).resolve()
    try:
        place = (folder / path).resolve()
        if not place.is_relative_to(folder):
            raise SpecError([Fault((), "this file is not below the project's folder", path[:200], allowed)])
        with place.open("rb") as file:
            return file.read(limit + 1)
    except (OSError, RuntimeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "a link that leads to itself"
        raise SpecError([Fault((), f"this file cannot be read: {reason}", path[:200], allowed)]) from None
    except ValueError as error:
        if isinstance(error, SpecError):
            raise
        raise SpecError([Fault((), "this is not a path", path[:200], allowed)]) from None


def project_folder() -> Path | None:
    """Returns the folder of the project that runs; None where nothing says it."""
    import pulumi

    folder = pulumi.get_root_directory()
    return Path(folder) if folder else None


def aws_setting(key: str) -> str | None:
    """Returns the value of ``aws:<key>``, which the default AWS provider of the program has as well."""
    import pulumi

    return pulumi.Config("aws").get(key)
