"""One way to end by Ctrl-C, a cancelled job and a closed terminal."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from eks_inference_tools import cli
from eks_inference_tools.__main__ import main
from stackgraph.interrupts import EXIT_CODE, ending_at_once, ending_cleanly

HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture(autouse=True)
def harmless() -> Iterator[list[int]]:
    """Signals that nobody else takes are noted; they would end the tests otherwise."""
    noted: list[int] = []
    before = {number: signal.signal(number, lambda got, frame: noted.append(got)) for number in (signal.SIGTERM, signal.SIGHUP)}
    yield noted
    for number, handler in before.items():
        signal.signal(number, handler)


def handlers() -> dict[signal.Signals, object]:
    return {number: signal.getsignal(number) for number in HANDLED}


def interrupted(number: signal.Signals) -> list[str]:
    """What happens in order when a signal comes."""
    said = []
    with ending_cleanly():
        try:
            os.kill(os.getpid(), number)
            said.append("went on")
        except KeyboardInterrupt:
            said.append("interrupted")
        finally:
            said.append("cleaned up")
    return said


@pytest.mark.parametrize("number", HANDLED)
def test_each_signal_is_an_interrupt_and_lets_clean_up(number: signal.Signals):
    assert interrupted(number) == ["interrupted", "cleaned up"]


def test_the_handlers_before_are_there_again():
    before = handlers()
    with ending_cleanly():
        assert handlers()[signal.SIGINT] is before[signal.SIGINT]
        assert all(handlers()[number] is not before[number] for number in (signal.SIGTERM, signal.SIGHUP))
    assert handlers() == before


def test_they_are_there_again_after_an_interrupt(harmless: list[int]):
    before = handlers()
    with pytest.raises(KeyboardInterrupt), ending_cleanly():
        os.kill(os.getpid(), signal.SIGTERM)
    assert handlers() == before
    assert harmless == []
    os.kill(os.getpid(), signal.SIGTERM)
    assert harmless == [signal.SIGTERM]


def test_what_is_ignored_stays_ignored():
    """``nohup`` has a program ignore the end of its terminal."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with ending_cleanly():
            os.kill(os.getpid(), signal.SIGHUP)
        assert handlers()[signal.SIGHUP] is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


# -- at once ---------------------------------------------------------------------------------------------------------------------


def test_ctrl_c_before_the_command_handles_it_has_its_code(monkeypatch, capsys):
    def interrupted() -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "main", interrupted)
    assert main() == EXIT_CODE
    assert capsys.readouterr().err == "\nended by Ctrl-C\n"


SWALLOWING = """
import os, signal, time
from stackgraph.interrupts import ending_at_once

with ending_at_once():
    try:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(60)
    except BaseException:
        print("caught")
    finally:
        print("cleaned up")
print("went on")
"""


def test_ctrl_c_is_the_end_wherever_it_comes():
    """Also in code that would take a ``KeyboardInterrupt`` for its own business."""
    done = subprocess.run([sys.executable, "-c", SWALLOWING], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (EXIT_CODE, "")
    assert done.stderr == "\nended by Ctrl-C\n"


def test_nothing_is_different_afterwards():
    before = handlers()
    with ending_at_once():
        assert handlers()[signal.SIGINT] != before[signal.SIGINT]
        assert handlers()[signal.SIGTERM] == before[signal.SIGTERM]
    assert handlers() == before
    with pytest.raises(ValueError, match="its own"), ending_at_once():
        raise ValueError("its own")
    assert handlers() == before


def test_a_thread_beside_the_main_one_may_use_it():
    """Python sets handlers in the main thread only."""
    seen: list[object] = []

    def inside() -> None:
        with ending_at_once():
            seen.append(signal.getsignal(signal.SIGINT))

    before = signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=inside)
    thread.start()
    thread.join()
    assert seen == [before]


def test_the_exit_code_is_that_of_shells():
    assert EXIT_CODE == 128 + signal.SIGINT


def test_ctrl_c_ends_the_command_at_once_while_a_program_is_recorded():
    code = """
import os, signal
from stackgraph.interrupts import ending_at_once
from stackgraph.recorder.process import process_kept
kill = os.kill
with ending_at_once(), process_kept():
    try:
        kill(os.getpid(), signal.SIGINT)
    except BaseException:
        print("caught")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr.strip()) == (EXIT_CODE, "", "ended by Ctrl-C")


def test_a_program_closes_the_files_of_a_range_that_it_opened_itself():
    code = """
import os
from stackgraph.recorder.process import process_kept
kept, own = (201, 204), (200, 202, 203, 205)
for number in kept:
    os.dup2(0, number)
with process_kept():
    for low, high in ((200, 206), (201, 205), (203, 204)):
        for number in own:
            os.dup2(0, number)
        os.closerange(low, high)
        print(*sorted({*range(200, 206)} - {*map(int, os.listdir("/dev/fd"))}))
"""
    done = subprocess.run([sys.executable, "-c", code], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("200 202 203 205\n202 203\n203\n", "")


AT_AN_IMPORT = """
import os, signal, sys

class At:
    def find_spec(self, name, *_):
        if name == os.environ["AT"]:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, At())
"""


@pytest.mark.parametrize("module", ["argparse", "eks_inference_tools.commands.list", "eks_inference.catalog.models"])
def test_ctrl_c_during_an_import_ends_the_command_with_its_words(module: str, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(AT_AN_IMPORT)
    command = [sys.executable, "-m", "eks_inference_tools", "list", "models"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "AT": module}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
    assert (done.returncode, done.stdout, done.stderr.strip()) == (EXIT_CODE, "", "ended by Ctrl-C")
