"""Whether tests notice a small fault: ``make mutants``, or ``python bench/mutants.py --help``.

Modules are drawn at random, and one operator, bound or constant of each is changed in a copy of the tree. The tests nearest to
the module run first, then what they leave to ``make thorough``, and at last all of ``make test``. A test that kills a mutant has
to pass without it. A mutant that lives means the same as the code, or a test is missing; only a reader can say which.
"""

import argparse
import ast
import copy
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import venv
from collections import defaultdict
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parent.parent
_NEAR = 10
"""Test files that run before all of them do."""
_PAIRS = (ast.Lt, ast.LtE), (ast.Gt, ast.GtE), (ast.Eq, ast.NotEq), (ast.In, ast.NotIn), (ast.Is, ast.IsNot), (ast.And, ast.Or)
_OPPOSITE: dict[type[ast.AST], Any] = {one: other for a, b in (*_PAIRS, (ast.Add, ast.Sub)) for one, other in ((a, b), (b, a))}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1, help="of the draw (default: %(default)s)")
    parser.add_argument("--count", type=int, default=24, help="modules, each with one mutant (default: %(default)s)")
    parser.add_argument("--near", action="store_true", help="without the last word of all tests")
    options = parser.parse_args()
    # Ends tests that run, and removes the copy.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    draw = random.Random(options.seed)
    modules = sorted((_ROOT / "components").rglob("*.py"))
    # One by one: the mutants of all modules take minutes.
    drawn = ((m, draw.choice(points)) for m in draw.sample(modules, len(modules)) if (points := list(mutants(m.read_text()))))
    alive = 0
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        tree = Tree(Path(folder).resolve())
        for number, (module, (line, what, text)) in enumerate(islice(drawn, options.count), 1):
            killer = tree.killer(module, text, last_word=not options.near)
            alive += killer is None
            print(f"{number} | {module.relative_to(_ROOT / 'components')}:{line} | {what} | {killer or 'SURVIVED'}", flush=True)
    print(f"{alive} survived")
    return int(alive > 0)


def mutants(text: str) -> Iterator[tuple[int, str, str]]:
    """Each mutant of a module: line, what changes, and the module's text with it."""
    source = text.encode()
    starts = [0, *(match.end() for match in re.finditer(rb"\n", source))]
    for node in _mutable(ast.parse(text)):
        start, end = starts[node.lineno - 1] + node.col_offset, starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
        lines = source.count(b"\n", start, end)
        for after in _changed(node):
            # Lines that follow keep their numbers.
            put = "(" + after + "\n" * lines + ")" if lines else after
            yield node.lineno, f"{ast.unparse(node)} → {after}", (source[:start] + put.encode() + source[end:]).decode()


def _mutable(node: ast.AST) -> Iterator[ast.expr]:
    """The expressions below a node, without types, texts and what decorates classes."""
    match node:
        case ast.JoinedStr():
            return
        case ast.ClassDef():
            below = [*node.bases, *node.body]
        case ast.AnnAssign() | ast.arg() | ast.FunctionDef():
            annotation = node.returns if isinstance(node, ast.FunctionDef) else node.annotation
            calls = (each for each in ast.walk(annotation) if isinstance(each, ast.Call)) if annotation else ()
            below = [*calls, *(each for each in ast.iter_child_nodes(node) if each is not annotation)]
        case _:
            below = list(ast.iter_child_nodes(node))
    if isinstance(node, ast.Compare | ast.BoolOp | ast.BinOp | ast.UnaryOp | ast.Constant):
        yield node
    for each in below:
        yield from _mutable(each)


def _changed(node: ast.expr) -> Iterator[str]:
    changed = copy.deepcopy(node)
    match changed:
        case ast.Compare():
            for position, operator in enumerate(changed.ops):
                changed.ops[position] = _OPPOSITE[type(operator)]()
                yield ast.unparse(changed)
                changed.ops[position] = operator
        case ast.BoolOp() | ast.BinOp() if type(changed.op) in _OPPOSITE:
            changed.op = _OPPOSITE[type(changed.op)]()
            yield ast.unparse(changed)
        case ast.UnaryOp(ast.Not(), operand):
            yield f"({ast.unparse(operand)})"
        case ast.Constant(bool(value)):
            yield str(not value)
        case ast.Constant(int(value)):
            yield from (str(value + 1), str(value - 1))


class Tree:
    """A clone, with what is not committed. Its environment has the packages of ours, and of our modules only its own."""

    def __init__(self, root: Path) -> None:
        self._root = root
        subprocess.run(("git", "clone", "-q", _ROOT, root), check=True)
        listed = ("git", "-C", _ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
        for name in subprocess.run(listed, check=True, stdout=subprocess.PIPE, text=True).stdout.split("\0"):
            if name and (_ROOT / name).is_file():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(_ROOT / name, root / name)
        venv.create(root / ".venv", symlinks=True)
        self._python = root / ".venv" / "bin" / "python"
        packages = Path(sysconfig.get_path("purelib"))
        site = root / ".venv" / packages.relative_to(sys.prefix)
        # Links, not a path to the folder: what is in an environment's own folder is no code of the program that is previewed.
        for package in packages.iterdir():
            if not package.name.startswith("__editable__"):
                (site / package.name).symlink_to(package)
        (site / "copy.pth").write_text(f"{root / 'components'}\n")
        ask = "import eks_inference, eks_inference_tools, stackgraph as s; print(s.__file__)"
        where = subprocess.run((self._python, "-Ic", ask), check=True, stdout=subprocess.PIPE, text=True, cwd="/").stdout
        assert Path(where).is_relative_to(root), where
        tests = (root / "tests").rglob("test_*.py")
        self._tests = {file: file.read_text("utf-8") for file in tests if file.parent.name != "cluster"}
        self._importers: dict[str, set[Path]] = defaultdict(set)
        for file in (*(root / "components").rglob("*.py"), *(root / "tests").rglob("*.py")):
            for name in _imported(file):
                self._importers[name].add(file)
        self._broken: list[str] = []

    def killer(self, module: Path, text: str, *, last_word: bool) -> str | None:
        """The first test that fails because of a mutant, or what else ends it."""
        file = self._root / module.relative_to(_ROOT)
        before, times = file.read_bytes(), file.stat()
        near = [*self._nearest(file)[:_NEAR], self._root / "tests" / "test_golden.py"]
        rounds = (near, 600), (["-m", "thorough", *near[:4]], 1200), (["-n", "2", "--dist", "worksteal"], 1800)
        for tests, seconds in rounds if last_word else rounds[:2]:
            while True:
                try:
                    file.write_text(text, "utf-8")
                    failed = self._failed(*tests, seconds=seconds)
                finally:
                    file.write_bytes(before)
                    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
                if failed is None:
                    break
                if "::" not in failed or not self._failed("-m", "not cluster", failed, seconds=seconds):
                    return failed
                self._broken += ["--deselect", failed]
        return None

    def _failed(self, *tests: str | Path, seconds: int) -> str | None:
        """The first test that fails, or why there is none to name; None where all pass."""
        command = (self._python, "-m", "pytest", "-x", "-p", "cacheprovider", "--cache-clear", *self._broken, *tests)
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYTEST"))}
        pytest = subprocess.Popen(
            command, cwd=self._root, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        try:
            code = pytest.wait(seconds)
        except subprocess.TimeoutExpired:
            _end(pytest)
            return f"no end within {seconds} s"
        except KeyboardInterrupt:
            _end(pytest)
            raise
        # 5: the mark of each of the tests leaves it to others.
        if code in (0, 5):
            return None
        failed = self._root / ".pytest_cache" / "v" / "cache" / "lastfailed"
        return next(iter(json.loads(failed.read_text())), None) if failed.exists() else f"pytest ends with {code}"

    def _nearest(self, module: Path) -> list[Path]:
        """All test files: first those that import the module, then those that import what imports it, and so on."""
        distances, reached = {module: 0}, [module]
        for file in reached:
            for other in self._importers.get(_dotted(file, self._root), ()):
                if other not in distances:
                    distances[other] = distances[file] + 1
                    reached.append(other)
        words = _words(module)

        def order(test: Path) -> tuple[int, int, str]:
            named = f'"{module.stem}"' in self._tests[test]
            return distances.get(test, len(distances)), -len(words & _words(test)) - named, test.name

        return sorted(self._tests, key=order)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Lets tests that still run clean up, or ends them and all that they started."""
    process.send_signal(signal.SIGINT)
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _dotted(file: Path, root: Path) -> str:
    """The name by which a file is imported."""
    below = next(path for path in (root / "components", root / "tests" / "support", root / "tests") if file.is_relative_to(path))
    return ".".join(file.relative_to(below).with_suffix("").parts).removesuffix(".__init__")


def _imported(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and re.fullmatch(r"\w+(\.\w+)+", node.value):
            yield node.value


def _words(file: Path) -> set[str]:
    return set(re.findall(r"[a-z0-9]+", f"{file.parts[-3:-1]} {file.stem}"))


if __name__ == "__main__":
    sys.exit(main())
