"""What a simulation does when something is wrong with its machine: a clear word, no process and no file left."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Timer

import pytest

from conftest import ROOT
from eks_inference_tools.simulate.control_plane import control_plane as module
from eks_inference_tools.simulate.control_plane.control_plane import control_plane
from eks_inference_tools.simulate.control_plane.processes import ComponentError
from eks_inference_tools.simulate.control_plane.toolchain import Toolchain
from waiting import is_running, until, until_ended

pytestmark = pytest.mark.cluster

COMMAND = (sys.executable, "-m", "eks_inference_tools", "simulate", "inf2-llama2")


def test_every_process_and_the_folder_go_with_the_context(toolchain: Toolchain):
    with control_plane(toolchain) as plane:
        pids, folder = plane.processes.pids(), plane.processes.folder
        assert len(pids) == 6  # five components and the supervisor
        assert all(is_running(pid) for pid in pids)
        assert folder.stat().st_mode & 0o077 == 0  # tokens are in it
    until_ended(*pids)
    assert not folder.exists()


def test_a_component_that_crashes_is_told_with_its_last_words(toolchain: Toolchain):
    with control_plane(toolchain) as plane:
        os.kill(plane.processes.pid("kube-scheduler"), signal.SIGSEGV)
        with pytest.raises(ComponentError) as error:
            plane.processes.wait_until(lambda: False, seconds=60, what="never")
    assert "kube-scheduler ended with exit code 2 while the simulation needed it" in str(error.value)
    assert "SIGSEGV" in str(error.value)


def test_a_component_that_the_machine_gives_no_time_is_waited_for(toolchain: Toolchain):
    """It would look like one that has nothing to do, and a rollout like one that hangs."""
    with control_plane(toolchain) as plane:
        for name in ("kube-controller-manager", "kube-scheduler", "kwok"):
            goes_on = Event()

            def go_on(pid: int, goes_on: Event) -> None:
                goes_on.set()
                os.kill(pid, signal.SIGCONT)

            os.kill(plane.processes.pid(name), signal.SIGSTOP)
            Timer(0.5, go_on, (plane.processes.pid(name), goes_on)).start()
            plane.await_answers()
            assert goes_on.is_set(), name


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield taken.getsockname()[1]


def test_a_port_that_is_taken_is_not_the_end(toolchain: Toolchain, taken_port: int, monkeypatch: pytest.MonkeyPatch):
    """The third port asked for is the API server's."""
    asked: list[int] = []

    def port() -> int:
        asked.append(taken_port if len(asked) == 2 else free_port())
        return asked[-1]

    free_port = module.free_port
    monkeypatch.setattr(module, "free_port", port)
    with control_plane(toolchain) as plane:
        assert taken_port in asked[:-3], "it was tried, and then others"
        assert plane.api.raw("GET", "/readyz") == "ok"


def test_ports_that_are_always_taken_are_told(toolchain: Toolchain, taken_port: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "free_port", lambda: taken_port)
    with (
        pytest.raises(ComponentError, match=rf"127\.0\.0\.1:{taken_port}: bind: address already in use"),
        control_plane(toolchain),
    ):
        pass


# -- the command -----------------------------------------------------------------------------------------------------------------


def processes_that_name(folder: Path) -> list[str]:
    """Command lines of processes that work in a folder, wherever they hang."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if str(folder) in words:
                found.append(words)
    return found


def ended(tmp_path: Path, control_plane: int, program: str, number: signal.Signals) -> tuple[int, str]:
    """The exit code and the words of the command that got a signal when it had started a program of one of its control planes."""
    folders: list[Path] = []
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        COMMAND, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as command:

        def has_begun() -> bool:
            assert command.poll() is None, "the command ended before it was interrupted"
            folders.extend(one for one in tmp_path.glob("eks-inference-*") if one not in folders)
            return len(folders) >= control_plane and any(folders[control_plane - 1].glob(f"{program}.log"))

        until(has_begun, within_s=180)
        command.send_signal(number)
        _, said = command.communicate(timeout=60)
    until(lambda: (*processes_that_name(tmp_path), *tmp_path.iterdir()), lambda left: not left)
    return command.returncode, said


ADMITS, RUNS = 1, 2


@pytest.mark.parametrize(
    ("control_plane", "program"),
    [(ADMITS, "etcd"), (ADMITS, "kwok"), (RUNS, "kwok"), (RUNS, "my-scheduler-*")],
)
def test_ctrl_c_ends_everything(tmp_path: Path, toolchain: Toolchain, control_plane: int, program: str):
    code, said = ended(tmp_path, control_plane, program, signal.SIGINT)
    assert code == 130
    assert "Traceback" not in said
    assert "ended by Ctrl-C" in said


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_whatever_ends_the_command_ends_everything(tmp_path: Path, toolchain: Toolchain, number: signal.Signals):
    code, _ = ended(tmp_path, RUNS, "kube-apiserver", number)
    assert code in (130, -number)
