"""A program may print, raise and end as it likes: a command writes its own output only, or says what the program did."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from eks_inference_tools.cli import main
from stackgraph.diff.recorded import read_answer
from stackgraph.presentation.output import on_terminal
from stackgraph.problems import Problem
from stackgraph.revisions.recorders import _Recorders

PRINTS = """
import atexit, os, subprocess, sys
subprocess.run(["echo", "printed by a child"])
os.write(1, b"printed by number")
print("printed")
print("printed past the redirection", file=sys.__stdout__)
atexit.register(os.write, 1, b"printed at the end")
"""
FAILING = {
    "os._exit(0)": "ended the process: os._exit(0)",
    "sys.exit(1)": "ended itself with exit code 1",
    "pulumi.Output.from_input(1).apply(lambda _: os._exit(0))": "ended the process: os._exit(0)",
    "posix._exit(3)": "ended the process: os._exit(3)",
    "os.execlp('true', 'true')": "the program ended the process: os.execv",
    "os.kill(os.getpid(), 9)": "the program ended the process: os.kill",
    "os.killpg(0, 15)": "the program ended the process: os.killpg(0, 15)",
    "signal.raise_signal(9)": "the program ended the process: signal.raise_signal(9)",
    "os.abort()": "the program ended the process: os.abort()",
    "os.closerange(0, 300); os.close(2); raise ValueError('closed')": "ValueError: closed",
    "os.close(os.dup(1)); os.dup2(os.open(os.devnull, os.O_WRONLY), 2); raise ValueError('moved')": "ValueError: moved",
    "sys.setrecursionlimit(60); (lambda f: f(f))(lambda f: f(f))": "RecursionError",
    "a, b = SpecError([Fault((), 'one')]), SpecError([]); a.__cause__, b.__cause__ = b, a; raise a": "__main__.py:3: one",
    "raise ValueError('x' * 3_000_000)": "x… (2996012 more characters)",
    "pulumi.export('a', {'b': [1, float('nan')]})": "output.a.b.1 is nan, a number that the engine cannot store",
    "CustomResource('c', 'a/v1', 'K', spec={'a': float('-inf')})": "c.spec.a is -inf, a number",
    "raise BaseException('why')": "BaseException: why",
    "pulumi.export('a', pulumi.Output.from_input(asyncio.get_event_loop().create_future()))": "that will never resolve",
    "pulumi.runtime.register_resource_transform(lambda given: None); CustomResource('c', 'a/v1', 'K', spec={}); "
    "pulumi.export('a', pulumi.Output.from_input(asyncio.get_event_loop().create_future()))": "that will never resolve",
    "never = lambda given: asyncio.get_running_loop().create_future(); pulumi.runtime.register_resource_transform(never); "
    "[CustomResource(name, 'a/v1', 'K', spec={}) for name in 'dc']": "a transform or hook of c, d that will never return",
    "raise GeneratorExit('why')": "GeneratorExit: why",
    "raise asyncio.CancelledError('why')": "CancelledError: why",
    "raise type('Mine', (KeyboardInterrupt,), {})('why')": "Mine: why",
    "raise type('Mine', (Exception,), {'__str__': lambda self: 1 / 0})": "Mine: (its text cannot be made: ZeroDivisionError)",
    "sys.stdout.close(); sys.stderr.close(); os.close(1); raise ValueError('why')": "ValueError: why",
    "sys.stdout = sys.stderr = None; raise ValueError('none')": "ValueError: none",
    "why = ValueError('why'); raise why from why": "ValueError: why",
    "CustomResource('c', 'a/v1', 'K', spec=functools.reduce(lambda v, _: {'a': v}, range(400), {}))": "RecursionError",
    "sys.exit('\\x1b]0;title\\x07\\u202eerror: \\nerror: forged')": "exit code  ]0;title  error: \n    error: forged",
}
IMPORTS = """\
import asyncio, functools, os, posix, signal, sys, pulumi; from eks_inference.faults import Fault, SpecError
from pulumi_kubernetes.apiextensions import CustomResource
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "Pulumi.yaml").write_text("name: odd\nruntime: python\n")
    (tmp_path / "Pulumi.dev.yaml").write_text("config: {}\n")
    (tmp_path / "__main__.py").write_text("import pulumi\npulumi.export('a', 'é→')\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs the command in a shell, which closes or redirects its streams. Leaves out how far it is, told on a busy machine."""
    command = f'"{sys.executable}" -m eks_inference_tools {arguments}'
    environment = {**os.environ, **environment}
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, env=environment)
    done.stderr = re.sub("^recording dev: .*\n", "", done.stderr, flags=re.M)
    return done


@pytest.mark.parametrize(("program", "said"), FAILING.items(), ids=[*FAILING.values()])
def test_what_a_program_raises_is_an_error_of_the_program(program, said, project, capsys):
    (project / "__main__.py").write_text(IMPORTS + program)
    assert main(["preview", "dev"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert said in captured.err
    assert captured.err.startswith("error: ")
    assert captured.err.count("\nerror:") == 0
    assert captured.err.replace("\n", "").isprintable()


WAITS = {
    "a timer": "loop.call_later(2.5, told.set)",
    "a thread": "_thread.start_new_thread(lambda: (time.sleep(2.5), loop.call_soon_threadsafe(told.set)), ())",
    "a signal": "loop.add_signal_handler(10, told.set); subprocess.Popen(['sh', '-c', 'sleep 2.5; kill -10 $PPID'])",
    "two threads of the loop": "both = threading.Barrier(2); [loop.run_in_executor(None, both.wait) for _ in 'ab']; told.set()",
}
LATER = """
import _thread, asyncio, subprocess, threading, time, pulumi
async def later():
    loop, told = asyncio.get_running_loop(), asyncio.Event()
    {}
    await told.wait()
    return 'in the end'
pulumi.export('a', later())
"""


@pytest.mark.parametrize("wait", WAITS.values(), ids=[*WAITS])
def test_a_program_that_still_waits_for_something_is_waited_for(wait: str, project, capsys):
    (project / "__main__.py").write_text(LATER.format(wait))
    assert main(["preview", "dev", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["outputs"] == {"a": "in the end"}


CALLED_BACK = {
    "pulumi.runtime.register_invoke_transform(slow); pulumi.export('a', Output.from_input(invoke_async('a:b:c', {})))": "a:b:c",
    "before = pulumi.ResourceHook('h', slow, pulumi.ResourceHookOptions(on_dry_run=True)); ComponentResource('a:b:C', 'c', "
    "opts=pulumi.ResourceOptions(hooks=pulumi.ResourceHookBinding(before_create=[before])))": "c",
}


@pytest.mark.thorough
@pytest.mark.parametrize(("program", "name"), CALLED_BACK.items(), ids=CALLED_BACK.values())
@pytest.mark.parametrize("slow", ["asyncio.sleep(4.5)", "asyncio.get_running_loop().create_future()"])
def test_what_takes_its_time_is_waited_for_and_what_never_returns_is_told(program: str, name: str, slow: str, project, capsys):
    more = "from pulumi import ComponentResource, Output\nfrom pulumi.runtime import invoke_async"
    (project / "__main__.py").write_text(f"{IMPORTS}{more}\nslow = lambda given: {slow}\n{program}\n")
    ends = "sleep" in slow
    assert main(["preview", "dev"]) == (0 if ends else 2)
    assert (f"hook of {name} that will never return" in capsys.readouterr().err) == (not ends)


def test_a_program_whose_threads_have_nothing_to_do_is_not_waited_for(project, capsys):
    (project / "__main__.py").write_text(LATER.format("await asyncio.to_thread(time.sleep, 0)"))
    assert main(["preview", "dev"]) == 2
    assert "that will never resolve" in capsys.readouterr().err


@pytest.mark.thorough
def test_a_crash_of_a_program_tells_its_line(project):
    (project / "__main__.py").write_text("import ctypes\nctypes.string_at(0)\n")
    done = run("preview dev")
    assert done.returncode in (-signal.SIGSEGV, 128 + signal.SIGSEGV)
    assert "Segmentation fault" in done.stderr
    assert f'"{project}/__main__.py", line 2' in done.stderr


def test_a_folder_that_is_gone_a_link_to_itself_and_a_pipe_are_told(project, monkeypatch, capsys):
    (project / "Pulumi.dev.yaml").unlink()
    (project / "Pulumi.dev.yaml").symlink_to("Pulumi.dev.yaml")
    assert main(["preview", "dev"]) == 2
    assert "Pulumi.dev.yaml: cannot be read: Too many levels" in capsys.readouterr().err
    (project / "Pulumi.dev.yaml").unlink()
    os.mkfifo(project / "Pulumi.dev.yaml")
    assert main(["preview", "dev"]) == 2
    assert "Pulumi.dev.yaml: this is a pipe, not a file" in capsys.readouterr().err
    (gone := project / "gone").mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert main(["preview"]) == 2
    assert "the working directory no longer exists" in capsys.readouterr().err


def test_a_folder_that_goes_while_a_command_runs_is_told(project):
    (project / "__main__.py").write_text("import os, shutil\nshutil.rmtree(os.getcwd())\n")
    done = run("preview dev")
    assert (done.returncode, done.stderr) == (2, "error: the working directory no longer exists: change to another\n")


@pytest.mark.thorough
def test_what_a_program_prints_stays_out_of_the_output_which_is_json_in_any_encoding(project):
    (project / "__main__.py").write_text(PRINTS + "import pulumi\npulumi.export('a', 'é→')\n")
    done = run("preview dev --format json", PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["outputs"] == {"a": "é→"}
    assert done.stdout.isascii()
    assert done.stderr.count("printed") == 4


@pytest.mark.thorough
@pytest.mark.parametrize(
    "left",
    [
        "import atexit; atexit.register(os._exit, 0)",
        "import threading, time; threading.Thread(target=time.sleep, args=(99,)).start()",
    ],
)
def test_what_a_program_leaves_to_the_end_changes_nothing(project, left: str):
    (project / "__main__.py").write_text(f"import os; {left}\nraise ValueError('mine')\n")
    done = run("preview dev")
    assert (done.returncode, "ValueError: mine" in done.stderr) == (2, True)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "program",
    [
        "os.close(1); os.close(2); os.closerange(0, 300)",
        "open(1, 'w').close(); open(2, 'w').close()",
        "sys.setrecursionlimit(60)",
        "os.fork() or os._exit(0); os.wait(); os.kill(os.getpid(), 0)",
    ],
)
def test_a_program_that_only_tidies_up_has_its_graph(program, project):
    (project / "__main__.py").write_text(f"{IMPORTS}{program}\npulumi.export('a', 1)\n")
    done = run("preview dev --format json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["outputs"] == {"a": 1}


def test_what_a_program_puts_in_the_place_of_json_ends_with_it(project, capsys):
    before = json.loads
    (project / "__main__.py").write_text(
        "import json\nfrom pulumi_kubernetes.core.v1 import ConfigMap\njson.loads = lambda *_: {}\nConfigMap('a')\n"
    )
    assert main(["check", "dev"]) == 0
    assert "Traceback" not in capsys.readouterr().out
    assert json.loads is before


@pytest.mark.thorough
def test_what_a_program_prints_stays_out_of_the_answer_of_a_recorder(project):
    (project / "__main__.py").write_text(PRINTS)
    asked = {
        "root": str(project),
        "tree": str(project),
        "folder": ".",
        "stacks": ["dev"],
        "own": False,
        "debug": False,
        "answers": [],
        "key": "00",
    }
    ((_, answer),) = _Recorders("eks_inference_tools.recorder", debug=False).ask(asked)
    assert "problems" not in answer
    assert read_answer(answer).graph is not None


@pytest.mark.parametrize(
    "answer",
    [
        *(None, 5, "text", [], [1], {}, {"graph": None}, {"graph": 1}, {"graph": {"resources": []}}, {"problems": 1}),
        *({"problems": [1]}, {"problems": [{"no": 1}]}, {"problems": [{"message": "m", "working": 1}]}),
        {"graph": {"schema": 1, "project": "p", "stack": "s", "resources": [{"urn": 5, "type": "t", "name": "n"}]}},
        {"graph": {"schema": 1, "project": "p", "stack": "s", "resources": [], "outputs": 5}},
        {"graph": {"schema": 1, "project": "p", "stack": "s", "resources": []}, "findings": [{"no": 1}]},
        {"graph": {"schema": 1, "project": "p", "stack": "s", "resources": []}, "places": 5},
    ],
    ids=json.dumps,
)
def test_an_answer_that_is_none_is_a_problem_of_its_stack(answer):
    (problem,) = read_answer(answer).problems
    assert problem.message.startswith("the recording process gave no valid answer: ")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("redirection", "code"),
    [("> /dev/full", 2), (">&-", 2), ("-o out.txt >&- 2>&- <&-", 0)],
)
def test_an_output_that_takes_nothing_is_an_error_without_a_traceback(redirection, code, project):
    done = run(f"preview dev {redirection}")
    assert done.returncode == code
    assert done.stderr.startswith("error: standard output: cannot write here") or "2>&-" in redirection
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
    assert (project / "out.txt").exists() == (code == 0)


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ("--help > /dev/full", 2),
        ("diff --help >&-", 2),
        ("--version > /dev/full", 2),
        ("check --program no 2> /dev/full", 2),
        ("--help 2>&-", 0),
    ],
)
def test_neither_help_nor_errors_need_a_stream_that_takes_them(arguments, code, unbuffered, project):
    done = run(arguments, PYTHONUNBUFFERED=unbuffered)
    assert done.returncode == code
    said = "error: standard output: cannot write here" if code and "2>" not in arguments else ""
    assert done.stderr.startswith(said)
    assert done.stderr.count("\n") == bool(said)


@pytest.mark.parametrize(("arguments", "code"), [("--help", 0), ("check --program no", 2)])
def test_a_reader_that_has_gone_changes_no_exit_code(arguments, code, project):
    done = run(f"{arguments} 2>&1 | true; exit ${{PIPESTATUS[0]}}", PYTHONUNBUFFERED="1")
    assert (done.returncode, done.stderr) == (code, "")


def test_a_file_that_is_written_again_keeps_its_link_and_its_mode(project):
    target = project / "target"
    target.write_text("old")
    target.chmod(0o600)
    (project / "link").symlink_to(target)
    assert main(["preview", "dev", "--format", "json", "-o", "link"]) == 0
    assert (project / "link").is_symlink()
    assert json.loads(target.read_text())["stack"] == "dev"
    assert target.stat().st_mode & 0o777 == 0o600


ODD = "\x1b]0;title\x07\x1b[2J\x9b31m\u202e\x7f"


@pytest.mark.thorough
@pytest.mark.parametrize(
    "arguments", ["check", "check --format json", "preview", "preview --format json", "preview --format manifests"]
)
def test_no_name_value_or_warning_controls_a_terminal(arguments, project, capsys, monkeypatch):
    (project / "__main__.py").write_text(
        f"import pulumi\nfrom pulumi_kubernetes.core.v1 import ConfigMap\nodd = {ODD!r}\n"
        "ConfigMap('a' + odd, metadata={'name': odd}, data={odd: odd}, opts=pulumi.ResourceOptions(protect=True))\n"
        "pulumi.export('b' + odd, {odd: [odd]})\npulumi.log.warn('c' + odd)\n"
    )
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    command, *others = arguments.split()
    # A name like this is refused by `check`.
    for silenced in ("", "config:\n  eks-inference:silenced: {K8S016: a test of odd names, K8S019: and of odd keys}\n"):
        (project / "Pulumi.dev.yaml").write_text(silenced or "config: {}\n")
        assert main([command, "dev", *others]) == (2 if command == "check" and not silenced else 0)
        said = capsys.readouterr()
        shown = said.out + said.err
        assert ODD[-2] not in shown
        assert on_terminal(shown) == shown
        assert "\x1b]" not in shown
        assert "\x1b[2J" not in shown


def test_no_key_of_a_stack_file_controls_a_terminal(project, capsys):
    (project / "Pulumi.dev.yaml").write_text('config: {}\n"a\\e]0;x\\a\\u202e\\nerror: b": 1\n')
    for command in ("check", "preview"):
        assert main([command, "dev"]) == 2
        said = capsys.readouterr()
        assert (said.out + said.err).startswith("error: Pulumi.dev.yaml:2: a ]0;x   error: b: unknown key")


def test_a_problem_keeps_the_lines_of_a_message_below_its_first():
    shown = Problem("one\nerror: two", given="a\x1b[1m\nb").render()
    assert shown == "one\n    error: two\n    given: a [1m\n             b"
