"""Asks the engine in an environment of its own (``make engine``), from any other."""

import json
import os
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
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
