"""Asks the engine in an environment of its own (``make engine``), from any other: where releases have what moves between them,
and which paths they register with FastAPI or Starlette.
"""

import ast
import json
import os
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from refresh import ROOT


def answers(cases: Iterable[dict[str, Any]], python: Path) -> Iterator[dict[str, Any]]:
    """Yields the engine's answers as they come. ``judge.py`` has what a case and an answer are."""
    with tempfile.TemporaryDirectory() as home, tempfile.TemporaryFile("w+") as asked, tempfile.TemporaryFile("w+") as log:
        asked.write("\n".join(map(json.dumps, cases)))
        asked.seek(0)
        with subprocess.Popen(
            [python, "-m", "refresh.engine.judge", python.parents[1] / "libcuda.so.1"],
            stdin=asked,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            cwd=ROOT,
            env={**os.environ, "HOME": home, "VLLM_CACHE_ROOT": home},
        ) as process:
            assert process.stdout
            for line in process.stdout:
                yield json.loads(line)
        if process.returncode:
            log.seek(0)
            raise RuntimeError(f"the engine cannot be asked:\n{log.read()[-4000:]}")


PARSERS = tuple(f"vllm.entrypoints.{place}.cli_args" for place in ("common", "launchers", "openai"))
"""Where the parser of `vllm serve` is."""


def moved(name: str, *modules: str) -> Any:
    """What is in different modules of different releases: that of the first that has it; None where none does."""
    for module in modules:
        with suppress(ImportError, AttributeError):
            return getattr(import_module(module), name)
    return None


_REGISTERING = {"Mount", "add_api_route", "api_route", "delete", "get", "head", "mount", "patch", "post", "put", "websocket"}


def paths_in(text: str) -> Iterator[str]:
    for call in ast.walk(ast.parse(text)):
        if isinstance(call, ast.Call) and call.args and isinstance(call.args[0], ast.Constant):
            called = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
            path = call.args[0].value
            if called in _REGISTERING and isinstance(path, str) and path.startswith("/"):
                yield path
