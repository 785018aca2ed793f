"""Runs a Pulumi program against the recorder, and turns what it raises into a problem: its words, its line, a hint."""

import asyncio
import contextlib
import contextvars
import functools
import inspect
import logging
import os
import re
import runpy
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures.thread import _worker
from pathlib import Path
from types import FrameType
from typing import Any

import pulumi
import pulumi.runtime
from pulumi.config import ConfigTypeError
from pulumi.runtime import resource as sdk_resource
from pulumi.runtime._callbacks import _CallbackServicer
from pulumi.runtime.proto import source_pb2
from pulumi.runtime.settings import SETTINGS

from stackgraph.graph.document import Graph
from stackgraph.problems import Problem, ProgramError
from stackgraph.recorder import wire
from stackgraph.recorder.answers import NO_ANSWERS, Answers
from stackgraph.recorder.functions import FunctionError, observed
from stackgraph.recorder.monitor import SDK_FILE, Recorder, RegistrationError
from stackgraph.recorder.process import Ended, garbage_collection_off, process_kept, repetition_spared, replaced
from stackgraph.recorder.symbols import forgiving, taken_early

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


_OURS = str(Path(__file__).parents[1])


def record(
    program: Callable[[], Any] | Path,
    *,
    project: str = "project",
    stack: str = "stack",
    config: Mapping[str, str] | None = None,
    secret_keys: Iterable[str] = (),
    strict: bool = False,
    root: Path | None = None,
    progress: Callable[[int], None] | None = None,
    digest: Callable[[Any], str] | None = None,
    answers: Answers = NO_ANSWERS,
    needs_files: bool = False,
) -> Graph:
    """The graph that a program registers, as ``pulumi preview`` of a new stack would.

    ``program`` is a function that creates resources, or the folder or file of a program. ``config`` maps full keys
    (``aws:region``) to texts, as the CLI passes them; ``secret_keys`` are the secret ones. With ``strict``, outputs that only a
    deployment knows stay unknown, as in the engine; otherwise, strings among them read ``<name.property>``. With ``digest``,
    secrets carry the digest that it returns. ``answers`` are results of provider functions (``answers.py``). With
    ``needs_files``, a file of an asset or archive that does not exist is an error, as for the engine; otherwise a warning. Source
    files are recorded relative to ``root``.

    Raises ``ProgramError`` if the program fails or makes a registration that the engine would refuse.
    """
    root = (root or Path.cwd()).resolve()
    recorder = Recorder(
        project,
        stack,
        dict(config or {}),
        secret_keys=list(secret_keys),
        strict=strict,
        locate=lambda path: shown(path, root),
        progress=progress,
        digest=digest,
        answers=answers,
        needs_files=needs_files,
    )
    contextvars.copy_context().run(_run, program, recorder, root)
    return recorder.graph()


def _run(program: Callable[[], Any] | Path, recorder: Recorder, root: Path) -> None:
    pulumi.runtime.set_all_config(dict(recorder.config), list(recorder.secret_keys))
    settings = pulumi.runtime.Settings(
        project=recorder.project,
        stack=recorder.stack,
        monitor=recorder,
        engine=recorder,
        dry_run=True,
        organization="organization",
        root_directory=str(root),
    )
    pulumi.runtime.configure(settings)
    pulumi.runtime.settings.ROOT.set(None)
    # Like the language host: a failing resource leaves futures that nobody awaits, and asyncio would print each of them.
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    executor = _Executor(max_workers=8)
    loop.set_default_executor(executor)
    before, deepest = Path.cwd(), sys.getrecursionlimit()
    try:
        if isinstance(program, Path):
            folder = program if program.is_dir() else program.parent
            os.chdir(folder)
            program = functools.partial(runpy.run_path, str(program.resolve()), run_name="__main__")
        with contextlib.ExitStack() as around:
            for one in (garbage_collection_off(), _short_traces(), repetition_spared(), process_kept()):
                around.enter_context(one)
            with _forgiving(recorder, root), _observed(recorder), taken_early(recorder.is_made_up, recorder.take):
                loop.run_until_complete(_settled(program, recorder))
    except BaseException as error:
        sys.setrecursionlimit(deepest)
        if type(error) is KeyboardInterrupt:  # the user's
            raise
        raise ProgramError([problem(error, recorder, root)]) from error
    finally:
        sys.setrecursionlimit(deepest)
        os.chdir(before)
        executor.shutdown(wait=True)
        asyncio.set_event_loop(None)
        loop.close()


async def _settled(program: Callable[[], Any], recorder: Recorder) -> None:
    """Runs a program and lets its outputs resolve before the SDK waits for them.

    The SDK waits for all pending outputs again after each one that resolves, which takes minutes for a thousand resources.
    """

    async def run() -> None:
        try:
            result = program()
            if inspect.isawaitable(result):
                await result
        except SystemExit as error:
            if isinstance(error, Ended) or error.code:  # else it ends as it does for the engine
                raise
        # pyright does not understand how the SDK declares its settings.
        while pending := [output for output in SETTINGS.outputs if not output.done()]:  # pyright: ignore[reportAttributeAccessIssue]
            done, _ = await asyncio.wait(pending, return_when=asyncio.FIRST_EXCEPTION)
            if any(output.cancelled() or output.exception() for output in done):
                return

    loop: Any = asyncio.get_running_loop()
    threads, before = {*sys._current_frames()}, None
    running = asyncio.ensure_future(pulumi.runtime.run_in_stack(run))
    while not (await asyncio.wait([running], timeout=_IDLE_S))[0]:
        polls = bool(_CallbackServicer._servicers)  # what serves transforms has one thread and one socket
        asked = {**recorder.callbacks.asked}
        # In this order: a thread leaves a step.
        working, others = _busy_threads(loop._default_executor, threads)
        idle = working <= len(asked) and others <= polls and _is_idle(loop, 1 + polls)
        # What serves transforms, or what a transform is asked, may be on its way, but not for so long.
        if idle and asked == before:
            if asked:
                recorder.callbacks.close()  # fails their registrations, and so ends the program
                await asyncio.wait([running], timeout=_IDLE_S)
            await _CallbackServicer.shutdown()
            names = ", ".join(sorted({*asked.values()}))
            what = f"a transform or hook of {names} that will never return" if asked else "an Output that will never resolve"
            raise pulumi.RunError(f"the program waits for {what}")
        before = asked if idle else None
    await running


_IDLE_S = 2


def _is_idle(loop: Any, sockets: int) -> bool:
    """Whether an event loop has no step, timer, further socket, child process or signal, by which something could happen."""
    return not (loop._ready or loop._scheduled or loop._signal_handlers or len(loop._selector.get_map()) > sockets)


def _busy_threads(executor: Any, known: set[int]) -> tuple[int, int]:
    """How many steps an executor has begun or will, and how many further threads there are, also those that ``threading`` did not
    start. Its count of idle threads is too high once more steps waited than it has threads."""
    frames = sys._current_frames()
    own = [frames.pop(one.ident, None) for one in executor._threads]
    waiting = sum(frame is not None and frame.f_code is _worker.__code__ for frame in own)
    return executor._work_queue.qsize() + len(own) - waiting, len(frames.keys() - known)


def _short_traces() -> contextlib.AbstractContextManager[None]:
    """Registers resources with the one frame that graphs show. The SDK would read every file on the stack and send all frames."""
    return replaced([(sdk_resource, "_get_stack_trace", _program_frame)])


def _forgiving(recorder: Recorder, root: Path) -> contextlib.AbstractContextManager[None]:
    """Makes the result of an ``apply`` that fails on a placeholder unknown, with a warning."""

    def warn(error: BaseException, secret: bool) -> None:
        recorder.warn(failed_apply(error, recorder, root, secret=secret))

    return forgiving(recorder.is_made_up, warn, recorder.computed)


def _observed(recorder: Recorder) -> contextlib.AbstractContextManager[None]:
    """Notes the program's calls of functions for the recorder."""
    return observed(lambda args: wire.canonical(wire.decode(args), recorder.secrets), _calling_line)


def _calling_line() -> tuple[str, int] | None:
    """File and line of the program that calls a function of an SDK; None where the event loop does."""
    frame = sys._getframe(1)
    while not of_program(frame.f_code.co_filename):
        if frame.f_back is None or frame.f_code.co_filename == __file__:
            return None
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


def _program_frame() -> source_pb2.StackTrace:
    """The innermost frame of the program. Like the SDK, skips three constructors: Resource's, Custom- or ComponentResource's, and
    that of the resource type; also those of its subclasses, which the SDK takes for the program.
    """
    frame = inspect.currentframe()
    constructors = 0
    made = None
    while frame is not None and (constructors < 3 or _knows(frame, made)):
        if frame.f_code.co_name == "__init__":
            constructors += 1
            made = made or frame.f_locals["self"]
        frame = frame.f_back
    while frame is not None and _between(frame.f_code.co_filename):
        frame = frame.f_back
    if frame is None or frame.f_globals.get("__name__", "").startswith("asyncio."):  # an SDK goes on with what it waited for
        return source_pb2.StackTrace()
    position = source_pb2.SourcePosition(uri=Path(frame.f_code.co_filename).as_uri(), line=frame.f_lineno)
    return source_pb2.StackTrace(frames=[source_pb2.StackFrame(pc=position)])


def _between(file: str) -> bool:
    """Whether a source file is an SDK's, ours or none."""
    return file.startswith(_OURS) or not os.path.isabs(file) or SDK_FILE.search(file) is not None


def _knows(frame: FrameType, made: object) -> bool:
    """Whether a frame works on a resource that is being made: only its constructors can."""
    return any(value is made for value in frame.f_locals.values())


class _Executor(ThreadPoolExecutor):
    """Runs registrations in the calling thread: the recorder answers at once, so another thread would only cost time. What the
    program itself gives to threads (``asyncio.to_thread``) may wait for other parts of it, and gets one.

    Programs with transforms are the exception: transforms run on the program's event loop, which a registration must not block.
    The SDK starts its callback server before it registers the first resource that needs it.
    """

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        if _CallbackServicer._servicers or not getattr(fn, "__module__", "").startswith("pulumi."):
            return super().submit(fn, *args, **kwargs)
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except BaseException as error:
            future.set_exception(error)
        return future
