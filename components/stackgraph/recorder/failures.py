"""Turns what a program raises into a problem: its words, its line, a hint."""

import os
import re
import sys
import sysconfig
import traceback
from pathlib import Path

import pulumi
from pulumi.config import ConfigTypeError

from stackgraph.problems import Problem
from stackgraph.recorder.functions import FunctionError
from stackgraph.recorder.monitor import Recorder, RegistrationError
from stackgraph.recorder.process import Ended

_LONGEST_MESSAGE = 4000
_INSTALLED = tuple({sysconfig.get_path("purelib"), sysconfig.get_path("stdlib"), str(Path(__file__).parents[1])})


def problem(error: BaseException, recorder: Recorder, root: Path) -> Problem:
    """The failure as a problem, located at the innermost line of the program's own code."""
    told = isinstance(error, pulumi.RunError | FunctionError | RegistrationError)
    message = _said(error) if told else f"{type(error).__name__}: {_said(error)}"
    if isinstance(error, Ended):
        message = f"the program ended the process: {_said(error)}"
    elif isinstance(error, SystemExit):
        message = f"the program ended itself with exit code {_said(error)}"
    file, line = _place(error, root)
    if isinstance(error, FunctionError):  # the SDK drops the frames of the program
        file, _, number = error.source.rpartition(":")
        line = int(number or 0)
    return Problem(_bounded(recorder.secrets.scrub(message)), file, line, hint=_hint(error, recorder))


def failed_apply(error: BaseException, recorder: Recorder, root: Path, *, secret: bool) -> str:
    """The warning about an ``apply`` that failed on a placeholder. Where a ``secret`` went in, its words may hold that."""
    file, line = _place(error, root)
    words = type(error).__name__ + ("" if secret else f": {_bounded(recorder.secrets.scrub(_said(error)))}")
    told = f"an apply failed on a value that only a deployment knows; its result is unknown here ({words})"
    return f"{file}:{line}: {told}" if file else told


def _hint(error: BaseException, recorder: Recorder) -> str:
    if isinstance(error, ModuleNotFoundError):
        return (
            "the program runs in the Python of this command: install the program's requirements there, or this command in the "
            "program's own environment (`virtualenv` in Pulumi.yaml)"
        )
    if isinstance(error, FileNotFoundError) and error.filename == "pulumi":
        return "a program of the Automation API runs the pulumi command itself: record the function that it passes as `program`"
    if isinstance(error, ConfigTypeError) and recorder.is_made_up(error.value):
        return f"the value is encrypted, and read in plain: -c '{error.key}=VALUE' gives one"
    if missed := recorder.missed():
        rows = (f"{{stack: {stack}, outputs: {{{', '.join(f'{one}: …' for one in names)}}}}}" for stack, names in missed.items())
        return f"--answers FILE gives outputs of other stacks that the program takes at once, as rows: - {'; - '.join(rows)}"
    if isinstance(error, KeyError) and (stacks := recorder.lacking(_said(error).strip("'"))):
        without = f"{', '.join(stacks)} has no output {error} in the answers"
        return f"{without}: add it to the `outputs` of its row, with any value"
    asked = {called.token for called in recorder.graph().functions if called.answer == "placeholder"}
    misspelt = isinstance(error, NameError | SyntaxError | ImportError | OSError | RegistrationError)
    misspelt |= isinstance(error, TypeError | AttributeError) and bool(
        re.search("argument|required property|^module", str(error))
    )
    if asked and not misspelt and not isinstance(error, FunctionError):
        return f"placeholders stand for the results of {', '.join(sorted(asked))}: an answers file gives them (--answers FILE)"
    return ""


def _place(error: BaseException, root: Path) -> tuple[str, int]:
    """The innermost line of the program's own code in an error's traceback."""
    if isinstance(error, SyntaxError) and error.filename:
        return shown(error.filename, root), error.lineno or 0
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if of_program(frame.filename)]
    return (shown(frames[-1].filename, root), frames[-1].lineno or 0) if frames else ("", 0)


def of_program(file: str) -> bool:
    """Whether a source file is neither Python's, nor an installed package's, nor ours."""
    return not file.startswith(("<", *_INSTALLED)) and os.path.isabs(file)


def _bounded(message: str) -> str:
    """The message without what is beyond its first thousands of characters. Secrets must be scrubbed before."""
    left_out = len(message) - _LONGEST_MESSAGE
    return message if left_out <= 0 else f"{message[:_LONGEST_MESSAGE]}… ({left_out} more characters)"


def _said(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException as another:
        return f"(its text cannot be made: {type(another).__name__})"


def shown(path: str, root: Path) -> str:
    """A source file, relative to the project or to the folder it was imported from, so that graphs hold no machine's paths."""
    for base in (str(root), *sys.path):
        if base and os.path.isabs(base) and path.startswith(base + os.sep):
            return os.path.relpath(path, base)
    return os.path.basename(path)
