"""Forked processes that run a function side by side. Each test has a process of its own, as this one may have threads."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from waiting import until

HEAD = """
import os, signal, sys, threading, time
import stackgraph.side_by_side as used
from stackgraph.side_by_side import Ended, can_fork, side_by_side
used.MOST = 2  # also where there is one processor
def shown(answers): print(*(f"ended: {one}" if isinstance(one, Ended) else one for one in answers), sep=", ")
"""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other systems have no safe fork")


def printed(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", HEAD + program], capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.strip()


def test_answers_come_in_the_order_of_the_items() -> None:
    assert printed("shown(side_by_side(lambda n: (time.sleep(0.2 / n), n * n)[1], range(1, 9)))") == "1, 4, 9, 16, 25, 36, 49, 64"


def test_an_answer_may_be_larger_than_a_pipe() -> None:
    assert printed("shown(len(one) for one in side_by_side(lambda n: 'x' * n, [10**7, 0, 3 * 10**6]))") == "10000000, 0, 3000000"


def test_a_process_without_an_answer_is_told_and_the_others_go_on() -> None:
    program = """
def function(item):
    if item == "kill": os.kill(os.getpid(), signal.SIGKILL)
    if item == "exit": os._exit(7)
    if item == "object": return object()
    return 1 / item
shown(side_by_side(function, ["kill", 1, "exit", 0, "object", 2]))
"""
    assert printed(program) == "ended: signal 9, 1.0, ended: exit code 7, ended: exit code 1, ended: exit code 1, 0.5"


def test_processes_end_with_the_iterator(tmp_path: Path) -> None:
    program = f"""
def function(number):
    if number:
        open({str(tmp_path)!r} + f"/{{os.getpid()}}", "w").close()
        time.sleep(600)
    while not os.listdir({str(tmp_path)!r}): time.sleep(0.01)
answers = side_by_side(function, [0, 1])
next(answers)
answers.close()
"""
    printed(program)
    (pid,) = (int(file.name) for file in tmp_path.iterdir())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_process_with_threads_is_not_forked() -> None:
    waiting = "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()"
    assert printed(f"print(can_fork()); {waiting}; print(can_fork())").split() == ["True", "False"]


def test_a_parent_that_ignores_its_children_gets_their_answers() -> None:
    program = "signal.signal(signal.SIGCHLD, signal.SIG_IGN); shown(side_by_side(lambda n: n or 1 / n, [1, 0, 2]))"
    assert printed(program) == "1, ended: exit code 0, 2"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_all_processes_and_is_told_once(tmp_path: Path, number: signal.Signals) -> None:
    """A terminal sends Ctrl-C to all of them; a cancelled job ends the first only."""
    program = f"""
from stackgraph.interrupts import ending_at_once
def function(number):
    with ending_at_once():
        os._exit = None  # as while a program is recorded
        open({str(tmp_path)!r} + f"/{{os.getpid()}}", "w").close()
        time.sleep(600)
try: shown(side_by_side(function, [0, 1]))
except KeyboardInterrupt: print("interrupted")
"""
    command = [sys.executable, "-c", HEAD + program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        pids = until(
            lambda: [int(file.name) for file in tmp_path.iterdir()],
            lambda found: len(found) == 2 or process.poll() is not None,
        )
        (os.killpg if number is signal.SIGINT else os.kill)(process.pid, number)
        assert process.communicate(timeout=60) == ("interrupted\n", "")
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
