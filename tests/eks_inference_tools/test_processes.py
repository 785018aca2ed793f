"""Processes of a simulation: watched while it runs, and gone with it, however it ends. No program of Kubernetes is needed."""

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

from eks_inference_tools.simulate.control_plane.processes import ComponentError, Processes, free_port
from waiting import PATIENCE_S, is_running, until, until_ended

SECONDS = PATIENCE_S

FOREVER = ("sleep", "3600")
PARENT = ("sh", "-c", "sleep 3600 & echo $!; wait")
"""Starts a process of its own and prints its pid."""
STUBBORN = ("sh", "-c", "trap '' TERM INT HUP; echo up; while :; do sleep 1; done")


@pytest.fixture
def processes() -> Iterator[Processes]:
    with Processes() as running:
        yield running


def printed(processes: Processes, name: str) -> str:
    """The first whole line of a log, once there is one. The process may have ended by then."""
    return until(lambda: processes.log(name), lambda log: "\n" in log).partition("\n")[0]


def ended(processes: Processes) -> str:
    """What is said of the process that ends by itself."""
    with pytest.raises(ComponentError) as error:
        processes.wait_until(lambda: False, seconds=SECONDS, what="the end of a process")
    return str(error.value)


# -- the end ---------------------------------------------------------------------------------------------------------------------


def test_processes_their_children_and_the_folder_go_with_the_context():
    with Processes() as processes:
        processes.start("parent", PARENT)
        processes.start("other", FOREVER)
        child, pids, folder = int(printed(processes, "parent")), processes.pids(), processes.folder
        assert len(pids) == 3  # two and the supervisor
        assert all(is_running(pid) for pid in (*pids, child))
    until_ended(*pids, child)
    assert not folder.exists()


def test_one_is_started_again_with_other_words():
    with Processes() as processes:
        processes.start("one", ("sh", "-c", "echo first; sleep 3600"))
        assert printed(processes, "one") == "first"
        pid = processes.pid("one")
        processes.restart("one", lambda argv: [word.replace("first", "second") for word in argv])
        assert printed(processes, "one") == "second"
        until_ended(pid)
        processes.ensure_alive()


def test_an_error_in_the_context_ends_them_too():
    pids: list[int] = []

    def interrupted() -> None:
        with Processes() as processes:
            processes.start("one", FOREVER)
            pids.extend(processes.pids())
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert len(pids) == 2
    until_ended(*pids)


def test_a_process_that_will_not_end_is_ended():
    with Processes() as processes:
        processes.start("stubborn", STUBBORN)
        printed(processes, "stubborn")
        pid = processes.pid("stubborn")
        os.kill(pid, signal.SIGTERM)
        time.sleep(0.1)
        assert is_running(pid)
    until_ended(pid)


def test_a_child_of_a_process_that_ended_by_itself_ends_as_well(processes: Processes):
    processes.start("parent", ("sh", "-c", "sleep 3600 & echo $!"))
    child = int(printed(processes, "parent"))
    until_ended(child)


# Prints what must not outlive it, and waits.
PROGRAM = f"""
import json, time
from eks_inference_tools.simulate.control_plane.processes import Processes

with Processes() as processes:
    processes.start("parent", {PARENT!r})
    processes.start("stubborn", {STUBBORN!r})
    processes.wait_until(lambda: processes.log("parent") and processes.log("stubborn"), seconds={SECONDS}, what="the logs")
    pids = [*processes.pids(), int(processes.log("parent"))]
    print(json.dumps([str(processes.folder), pids]), flush=True)
    time.sleep(3600)
"""


@contextmanager
def program() -> Iterator[tuple[subprocess.Popen[str], Path, list[int]]]:
    """It runs as a process group of its own, with its folder and the pids of the supervisor, two processes and a child."""
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
    ) as running:
        try:
            assert running.stdout is not None
            folder, pids = json.loads(running.stdout.readline())
            yield running, Path(folder), pids
        finally:
            running.kill()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGSEGV])
def test_whatever_ends_the_program_ends_its_processes(number: signal.Signals):
    """Even what no program can see coming."""
    with program() as (running, folder, pids):
        assert len(pids) == 4
        assert all(is_running(pid) for pid in pids)
        running.send_signal(number)
        assert running.wait(SECONDS) != 0
    until_ended(*pids)
    until(lambda: not folder.exists())


def test_ctrl_c_in_a_terminal_reaches_the_program_alone():
    """A terminal interrupts the whole process group; the processes end when the program says so."""
    with program() as (running, _, pids):
        supervisor, parent, stubborn, child = (os.getpgid(pid) for pid in pids)
        assert len({running.pid, supervisor, parent, stubborn}) == 4
        assert child == parent
        os.killpg(running.pid, signal.SIGINT)
        running.wait(SECONDS)
    until_ended(*pids)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_supervisor_is_not_interrupted(processes: Processes, number: signal.Signals):
    """Whoever ends all processes of a session, as systems of CI do, leaves it the time to clean up."""
    processes.start("one", FOREVER)
    os.kill(processes.pids()[0], number)
    processes.start("two", FOREVER)
    assert is_running(processes.pid("one"))
    assert is_running(processes.pid("two"))


def test_a_supervisor_that_is_gone_is_told_and_leaves_nothing():
    with Processes() as processes:
        processes.start("parent", PARENT)
        child, pids, folder = int(printed(processes, "parent")), processes.pids(), processes.folder
        os.kill(pids[0], signal.SIGKILL)
        assert "the supervisor of the simulation's processes is gone" in ended(processes)
        with pytest.raises(ComponentError, match="supervisor of the simulation's processes is gone"):
            processes.start("two", FOREVER)
    until_ended(*pids, child)
    assert not folder.exists()


def test_a_name_is_one_process(processes: Processes):
    """Nobody would end the first one."""
    processes.start("one", FOREVER)
    first = processes.pid("one")
    with pytest.raises(ComponentError, match="one cannot be started: it is already running"):
        processes.start("one", FOREVER)
    assert processes.pid("one") == first


# -- one process -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("exit 3", ("one ended with exit code 3 while the simulation needed it", "it printed nothing")),
        ("exit 0", ("one ended with exit code 0", "it printed nothing")),
        ("kill -SEGV $$", ("one was ended by signal 11",)),
        ("kill -KILL $$", ("one was ended by signal 9",)),
        ("echo first; echo why >&2; exit 1", ("exit code 1", "first", "why")),
    ],
)
def test_a_process_that_ends_is_told_with_its_code_and_its_words(processes: Processes, script: str, words: tuple[str, ...]):
    processes.start("one", ("sh", "-c", script))
    said = ended(processes)
    assert all(word in said for word in words), said


def test_only_the_last_words_are_told(processes: Processes):
    processes.start("one", ("sh", "-c", "seq 100 120; exit 1"))
    said = ended(processes)
    assert "112" not in said
    assert all(str(number) in said for number in range(113, 121))


def test_everyone_who_ended_is_told(processes: Processes):
    for name in ("one", "two"):
        processes.start(name, ("sh", "-c", "exit 1"))
    processes.start("three", FOREVER)
    until(lambda: len(list(processes.folder.glob("*.exit"))) == 2)
    with pytest.raises(ComponentError) as error:
        processes.ensure_alive()
    assert [problem.message.split()[0] for problem in error.value.problems] == ["one", "two"]


def test_all_is_well_while_they_run(processes: Processes):
    processes.start("one", FOREVER)
    processes.ensure_alive()
    assert processes.log("one") == ""
    assert processes.log("nobody") == ""


def test_a_log_has_both_outputs_and_may_be_anything(processes: Processes):
    processes.start("one", ("sh", "-c", r"printf 'out\n'; printf 'err \377\n' >&2; exec sleep 3600"))
    until(lambda: processes.log("one").count("\n") == 2)
    assert processes.log("one") == "out\nerr \ufffd\n"
    assert (processes.folder / "one.log").exists()


def test_one_can_be_stopped_and_started_again(processes: Processes):
    processes.start("parent", PARENT)
    processes.start("other", FOREVER)
    first, child, other = processes.pid("parent"), int(printed(processes, "parent")), processes.pid("other")
    processes.stop("parent")
    until_ended(first, child)
    processes.ensure_alive()  # a process that was stopped is not missed
    assert is_running(other)
    assert processes.pids()[1:] == (other,)
    processes.stop("parent")
    processes.stop("nobody")
    processes.start("parent", ("sh", "-c", "echo again; exec sleep 3600"))
    assert printed(processes, "parent") == "again"
    assert processes.log("parent") == "again\n"
    assert is_running(processes.pid("parent"))
    assert processes.pid("parent") != first
    processes.ensure_alive()


def test_one_that_ended_by_itself_can_be_started_again(processes: Processes):
    processes.start("one", ("sh", "-c", "exit 1"))
    assert "exit code 1" in ended(processes)
    processes.stop("one")
    processes.ensure_alive()
    processes.start("one", FOREVER)
    processes.ensure_alive()
    os.kill(processes.pid("one"), signal.SIGKILL)
    assert "one was ended by signal 9" in ended(processes)


def test_a_program_that_is_not_there_is_told_and_others_can_be_started(processes: Processes, tmp_path: Path):
    with pytest.raises(ComponentError, match="one cannot be started: No such file or directory") as error:
        processes.start("one", [tmp_path / "missing"])
    assert error.value.problems[0].given == str(tmp_path / "missing")
    (tmp_path / "closed").write_text("#!/bin/sh\n")
    with pytest.raises(ComponentError, match="two cannot be started: Permission denied"):
        processes.start("two", [tmp_path / "closed"])
    processes.ensure_alive()
    processes.start("one", FOREVER)
    assert is_running(processes.pid("one"))


def test_several_threads_may_start_processes_at_once(processes: Processes, monkeypatch: pytest.MonkeyPatch):
    """Each gets the answer to its own order, also when the first to ask is the last to read."""
    delays = iter((0.2, 0.1, 0.0, 0.0))
    read = processes._answers.readline

    def slowly() -> str:
        time.sleep(next(delays))
        return read()

    names = ("one", "two", "three", "four")
    with monkeypatch.context() as slow, ThreadPoolExecutor(len(names)) as pool:
        slow.setattr(processes, "_answers", SimpleNamespace(readline=slowly))
        list(pool.map(lambda name: processes.start(name, ("sh", "-c", "echo $$; exec sleep 3600")), names))
    for name in names:
        assert printed(processes, name) == str(processes.pid(name))


# -- what a process gets ---------------------------------------------------------------------------------------------------------


def environment_of(processes: Processes, name: str) -> dict[str, str]:
    script = "import os, json; print(json.dumps(dict(os.environ)), flush=True); import time; time.sleep(3600)"
    processes.start(name, [sys.executable, "-I", "-c", script])
    return json.loads(printed(processes, name))


def test_no_credential_goes_along(monkeypatch: pytest.MonkeyPatch):
    for name in ("AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "KUBECONFIG", "PULUMI_ACCESS_TOKEN", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "secret")
    with Processes() as processes:
        given = environment_of(processes, "one")
    given.pop("LC_CTYPE", None)  # Python's own
    of_ours = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    assert given == {**of_ours, "GOGC": "300"}


def test_a_process_works_in_the_folder_and_reads_nothing(processes: Processes):
    processes.start("one", ("sh", "-c", "pwd -P; cat; echo end; exec sleep 3600"))
    until(lambda: processes.log("one"), lambda log: log.endswith("end\n"))
    assert processes.log("one").splitlines() == [str(processes.folder.resolve()), "end"]


def test_the_folder_is_this_users_alone(processes: Processes):
    """Tokens and keys lie in it."""
    assert stat.S_IMODE(processes.folder.stat().st_mode) == 0o700
    assert processes.folder.stat().st_uid == os.getuid()


def test_two_simulations_share_nothing():
    with Processes() as one, Processes() as other:
        assert one.folder != other.folder
        one.start("same", FOREVER)
        other.start("same", FOREVER)
        kept = other.pid("same")
        one.close()
        assert is_running(kept)
        other.ensure_alive()


# -- waiting ---------------------------------------------------------------------------------------------------------------------


def test_waiting_ends_with_the_answer(processes: Processes):
    answers = iter(("", None, 0, "found"))
    assert processes.wait_until(lambda: next(answers), seconds=SECONDS, what="an answer") == "found"


def test_waiting_has_an_end(processes: Processes):
    began = time.monotonic()
    with pytest.raises(ComponentError, match="timed out after 0 s: the impossible"):
        processes.wait_until(lambda: False, seconds=0.2, what="the impossible")
    assert 0.2 <= time.monotonic() - began < SECONDS


def test_nobody_waits_for_what_a_dead_process_would_have_done(processes: Processes):
    processes.start("one", ("sh", "-c", "exit 1"))
    began = time.monotonic()
    with pytest.raises(ComponentError, match="one ended with exit code 1"):
        processes.wait_until(lambda: False, seconds=3600, what="the impossible")
    assert time.monotonic() - began < SECONDS


def test_a_free_port_is_one_that_can_be_used():
    """Unless another program is faster: of several, one nobody takes meanwhile."""

    def is_used() -> bool:
        port = free_port()
        with socket.socket() as server, suppress(OSError):
            server.bind(("127.0.0.1", port))
            return True
        return False

    until(is_used)


def test_a_supervisor_needs_no_packages():
    """It starts in a few milliseconds, and in any environment."""
    from eks_inference_tools.simulate.control_plane import supervisor

    done = subprocess.run([sys.executable, "-I", "-S", supervisor.__file__, "/nowhere"], stdin=subprocess.DEVNULL, env={})
    assert done.returncode == 0


def test_closing_while_another_thread_waits_leaves_nothing():
    processes = Processes()
    processes.start("one", FOREVER)
    pids = processes.pids()
    said: list[str] = []
    waits = threading.Event()

    def wait() -> None:
        try:
            processes.wait_until(waits.set, seconds=SECONDS, what="the end")
        except ComponentError as error:
            said.append(str(error))

    waiting = threading.Thread(target=wait)
    waiting.start()
    assert waits.wait(SECONDS)
    processes.close()
    waiting.join(SECONDS)
    assert "supervisor" in said[0]
    until_ended(*pids)
