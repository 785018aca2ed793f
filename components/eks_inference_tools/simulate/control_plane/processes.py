"""Starts the processes of a simulation and small HTTP servers beside them, watches them, and ends them however the simulation
ends.
"""

import contextlib
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from eks_inference_tools.simulate.control_plane import supervisor
from stackgraph.problems import Problem, ProblemsFound

Found = TypeVar("Found")

_PORT_TAKEN = "address already in use"
_LAST_LINES = 8
_CRASHES = ("panic: ", "fatal error: ", "SIG")
_POLL_SECONDS = 0.05
_START_SECONDS = 120
_END_SECONDS = 60
# By share, and seldom: collections took a third of the start of a control plane. At a limit of memory an API server that has come
# near it would collect all the time.
_GO = {"GOGC": "300"}
_NO_SUPERVISOR = Problem("the supervisor of the simulation's processes is gone", hint="start it again")


class ComponentError(ProblemsFound):
    """A process of the simulation did not start, or exited on its own."""


class Processes(contextlib.AbstractContextManager["Processes"]):
    """A context that runs processes. Threads may share it.

    Each process has its own session, so Ctrl-C reaches this program alone. Their ``supervisor`` kills them when this program
    ends. ``folder`` is a temporary folder that only this user can read; it holds the logs (``<name>.log``) and goes with the
    context.
    """

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="eks-inference-"))
        self._started: dict[str, int] = {}
        self._argv: dict[str, Sequence[str | Path]] = {}
        self._lock = threading.Lock()
        try:
            self._supervisor = subprocess.Popen(
                [sys.executable, "-I", "-S", supervisor.__file__, str(self.folder)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
        except BaseException:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise
        assert self._supervisor.stdin is not None
        assert self._supervisor.stdout is not None
        self._orders, self._answers = self._supervisor.stdin, self._supervisor.stdout

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Kills every process and removes the folder. The supervisor finishes this even if Ctrl-C interrupts the wait."""
        with contextlib.suppress(BrokenPipeError):
            self._orders.close()
        code = self._supervisor.wait(_END_SECONDS)
        self._answers.close()
        if code < 0:  # the supervisor was killed and left its work undone
            for pid in self._started.values():
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(pid, signal.SIGKILL)
            shutil.rmtree(self.folder, ignore_errors=True)

    def start(self, name: str, argv: Sequence[str | Path]) -> None:
        """Starts a process. It inherits PATH and HOME alone, and thus no credentials."""
        environment = {key: os.environ[key] for key in ("PATH", "HOME") if key in os.environ} | _GO
        self._exit_file(name).unlink(missing_ok=True)
        answer = self._order({"name": name, "argv": [str(word) for word in argv], "env": environment})
        if "error" in answer:
            raise ComponentError([Problem(f"{name} cannot be started: {answer['error']}", given=str(argv[0]))])
        self._started[name], self._argv[name] = answer["pid"], argv

    def start_on_a_port(
        self, name: str, argv: Callable[[int], Sequence[str | Path]], is_ready: Callable[[int], bool], attempts: int = 3
    ) -> int:
        """Starts a process that listens on a free port, on another where a program has just taken one, and returns it."""
        port = free_port()
        self.start(name, argv(port))
        try:
            self.wait_until(lambda: is_ready(port), seconds=_START_SECONDS, what=name)
        except ComponentError:
            if attempts == 1 or _PORT_TAKEN not in self.log(name):
                raise
            return self.start_on_a_port(name, argv, is_ready, attempts - 1)
        return port

    def restart(self, name: str, changed: Callable[[Sequence[str]], Sequence[str]]) -> None:
        """Starts a process again, with other words on its command line."""
        self.stop(name)
        self.start(name, changed([str(word) for word in self._argv[name]]))

    def stop(self, name: str) -> None:
        """Kills a process if it is running."""
        self._started.pop(name, None)
        self._order({"stop": name})

    def pid(self, name: str) -> int:
        return self._started[name]

    def pids(self) -> tuple[int, ...]:
        """The process ids of the supervisor and of every process that was started and not stopped."""
        return (self._supervisor.pid, *self._started.values())

    def log(self, name: str) -> str:
        """What the process has printed so far."""
        path = self.folder / f"{name}{supervisor.LOG_SUFFIX}"
        return path.read_text(errors="replace") if path.exists() else ""

    def ensure_alive(self) -> None:
        """Raises ``ComponentError`` with the last output of every process that exited on its own."""
        problems = []
        for name in tuple(self._started):
            if self._exit_file(name).exists():
                code = int(self._exit_file(name).read_text())
                how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
                last = "\n             ".join(_last_words(self.log(name)))
                problems.append(Problem(f"{name} {how} while the simulation needed it", given=last or "it printed nothing"))
        if not problems and self._supervisor.poll() is not None:
            problems.append(_NO_SUPERVISOR)
        if problems:
            raise ComponentError(problems)

    def wait_until(self, check: Callable[[], Found], *, seconds: float, what: str) -> Found:
        """Returns the first true result of ``check``. Raises ``ComponentError`` if a process exits first or time runs out."""
        end = time.monotonic() + seconds
        while not (found := check()):
            self.ensure_alive()
            if time.monotonic() > end:
                raise ComponentError([Problem(f"timed out after {seconds:.0f} s: {what}", hint="is the machine very busy?")])
            time.sleep(_POLL_SECONDS)
        return found

    def _order(self, order: Mapping[str, object]) -> dict:
        try:
            with self._lock:
                self._orders.write(json.dumps(order) + "\n")
                self._orders.flush()
                answer = self._answers.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            raise ComponentError([_NO_SUPERVISOR])
        return json.loads(answer)

    def _exit_file(self, name: str) -> Path:
        return self.folder / f"{name}{supervisor.EXIT_SUFFIX}"


def _last_words(log: str) -> list[str]:
    """The last lines of a log. If a Go program crashed: the first lines of its report, which give the cause."""
    lines = log.strip().splitlines()
    crash = next((number for number, line in enumerate(lines) if line.startswith(_CRASHES)), None)
    return lines[-_LAST_LINES:] if crash is None else lines[crash : crash + _LAST_LINES]


def free_port() -> int:
    """A loopback TCP port that is free now. Another program may take it before it is used: see ``control_plane``."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Request(NamedTuple):
    """A ``GET`` or ``POST``. ``target`` is as the client sent it: a path, or a URL if the client uses a proxy."""

    method: str
    target: str
    body: bytes = b""


class Answer(NamedTuple):
    status: int
    kind: str
    body: bytes


def plain(status: int, text: str) -> Answer:
    return Answer(status, "text/plain; version=0.0.4", text.encode())


def document(status: int, content: Any) -> Answer:
    return Answer(status, "application/json", json.dumps(content).encode())


@contextmanager
def serving(answer: Callable[[Request], Answer], *, certificate: Path | None = None) -> Iterator[int]:
    """Answers every GET and POST with ``answer``, which threads call concurrently, and yields the port.

    Serves TLS if there is a ``certificate``, whose key lies beside it as ``.key``.
    """
    try:
        server = _Server(("127.0.0.1", 0), _handler(answer))
    except OSError as error:
        raise ComponentError([Problem(f"cannot listen on a loopback port: {error.strerror}")]) from error
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, certificate.with_suffix(".key"))
        # The thread of each connection does its handshake.
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignores clients that disconnect: the programs of a simulation are killed without notice."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


def _handler(answer: Callable[[Request], Answer]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 60

        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            found = answer(Request(self.command, self.path, body))
            self.send_response(found.status)
            self.send_header("Content-Type", found.kind)
            self.send_header("Content-Length", str(len(found.body)))
            self.end_headers()
            self.wfile.write(found.body)

        do_POST = do_GET

        def log_message(self, format: str, *args: Any) -> None:
            """Prints nothing: the client reports what went wrong."""

    return Handler
