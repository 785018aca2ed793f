"""The Pulumi CLI as a child process that a signal or a deadline ends, and nothing else does.

The Automation API starts the CLI in the group of its own process, where Ctrl-C of a terminal reaches both, and knows no deadline.
Here the CLI has a session of its own, and gets the signals that are meant for it.
"""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, Literal

from pulumi.automation import CommandResult, PulumiCommand
from pulumi.automation.errors import create_command_error

LETS_GO_S = 300
"""How long the CLI may take to end what is under way. Then a second signal ends it at once, which may leave resources behind that
its state does not have."""

_LOOKS_S = 0.1

WATCHES_S = 30.0
"""How often an update is asked whether it is hopeless."""

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

Reason = Literal["interrupted", "cap", "failed"]


class Engine(PulumiCommand):
    """Runs the ``pulumi`` on PATH. ``stopped`` says why the last ``bounded`` block ended early.

    ``pid_file`` names the process of the CLI while it runs: after this process was killed, the next one finds it there.
    """

    def __init__(self, pid_file: Path) -> None:
        super().__init__()
        self._pid_file = pid_file
        self._process: subprocess.Popen[bytes] | None = None
        self.stopped: Reason | None = None

    def run(
        self,
        args: list[str],
        cwd: str,
        additional_env: Mapping[str, str],
        on_output: Callable[[str], Any] | None = None,
        on_error: Callable[[str], Any] | None = None,
    ) -> CommandResult:
        if self.stopped:
            raise create_command_error(CommandResult("", f"not begun: {self.stopped}", 1))
        # Files, not pipes: when this process is killed, the CLI ends what it has begun, and the next command waits for it.
        files = {stream: self._pid_file.with_name(f"engine.{stream}") for stream in ("stdout", "stderr")}
        with files["stdout"].open("wb") as out, files["stderr"].open("wb") as err:
            process = subprocess.Popen(
                [self.command, "--non-interactive", *args],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                cwd=cwd,
                env={**os.environ, **additional_env, "PULUMI_AUTOMATION_API": "true"},
                start_new_session=True,
            )
        self._process = process
        self._pid_file.write_text(str(process.pid), encoding="utf-8")
        texts: dict[str, list[str]] = {"stdout": [], "stderr": []}
        readers = [
            threading.Thread(target=_follow, args=(process, files[stream], texts[stream], told), daemon=True)
            for stream, told in (("stdout", on_output), ("stderr", on_error))
        ]
        for reader in readers:
            reader.start()
        if self.stopped:  # a signal came while the process was started
            self._signal()
        for reader in readers:
            reader.join()
        process.wait()
        self._process = None
        self._pid_file.unlink(missing_ok=True)
        result = CommandResult("\n".join(texts["stdout"]), "\n".join(texts["stderr"]), process.returncode)
        if process.returncode:
            raise create_command_error(result)
        return result

    @contextmanager
    def bounded(self, seconds: float, hopeless: Callable[[], bool] = lambda: False) -> Iterator[None]:
        """Ends commands inside after ``seconds``, once they are ``hopeless``, and at the signals that end a process, which do not
        end this one here.

        Every signal after the first makes the CLI end at once. Signals work in the main thread only.
        """
        self.stopped = None
        timers: list[threading.Timer] = []
        over = threading.Event()

        def stop(reason: Reason) -> None:
            self.stopped = self.stopped or reason
            self._signal()

        def later(seconds: float, action: Callable[[], object]) -> None:
            timer = threading.Timer(max(seconds, 0), action)
            timer.daemon = True
            timers.append(timer)
            timer.start()

        def ended(reason: Reason) -> None:
            stop(reason)
            later(LETS_GO_S, lambda: over.is_set() or self._signal())

        def watch() -> None:
            while not over.wait(WATCHES_S):
                if hopeless() and not over.is_set():
                    return ended("failed")

        def handle(number: int, frame: FrameType | None) -> None:
            stop("interrupted")

        taken = threading.current_thread() is threading.main_thread()
        numbers = [one for one in _ENDING if taken and signal.getsignal(one) is not signal.SIG_IGN]
        before = {number: signal.signal(number, handle) for number in numbers}
        if seconds < threading.TIMEOUT_MAX:
            later(seconds, lambda: ended("cap"))
        threading.Thread(target=watch, daemon=True).start()
        try:
            yield
        finally:
            over.set()
            for timer in timers:
                timer.cancel()
            for number, handler in before.items():
                signal.signal(number, handler)

    def other(self) -> int | None:
        """The process of a CLI that an earlier process left running; None without one."""
        with suppress(OSError, ValueError):
            pid = int(self._pid_file.read_text("utf-8"))
            os.kill(pid, 0)
            return pid
        return None

    def _signal(self) -> None:
        process = self._process
        if process is not None:
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGINT)


def _follow(process: "subprocess.Popen[bytes]", file: Path, lines: list[str], told: Callable[[str], Any] | None) -> None:
    """Reads a file that a process writes, until the process has ended."""
    with file.open(encoding="utf-8", errors="replace", newline="\n") as opened:
        rest = ""
        while True:
            ended = process.poll() is not None
            *whole, rest = (rest + opened.read()).split("\n")
            for line in (*whole, *([rest] if ended and rest else [])):
                lines.append(line.rstrip())
                if told:
                    told(lines[-1])
            if ended:
                return
            time.sleep(_LOOKS_S)
