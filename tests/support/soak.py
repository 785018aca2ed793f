"""Repeats a tier of tests and tells which of them do not always pass: ``make soak TIER=router TIMES=5``.

With ``LOAD=1`` two busy loops and a busy disk run beside it; with ``CASES=40``, properties draw 40 new examples each.
``build/soak`` keeps what each run prints. Exit code 1: one failed.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

FOLDER = Path("build", "soak")
# Loops that end with this process, however it ends.
LOOP = "import os, sys\nwhile os.getppid() == int(sys.argv[1]):\n "
PROCESSOR = f"{LOOP}pass"
DISK = f"{LOOP}with open(sys.argv[2], 'wb') as file: file.write(bytes(1 << 26)), file.flush(), os.fsync(file.fileno())"


@contextmanager
def load() -> Iterator[None]:
    with tempfile.NamedTemporaryFile(dir=FOLDER) as file:
        arguments = (str(os.getpid()), file.name)
        loops = [subprocess.Popen([sys.executable, "-c", loop, *arguments]) for loop in (PROCESSOR, PROCESSOR, DISK)]
        try:
            yield
        finally:
            for loop in loops:
                loop.kill()
                loop.wait()


def failed(tier: str, log: Path) -> tuple[int, list[str]]:
    """Runs the tier; returns how many tests passed, and which failed."""
    with log.open("wb") as printed:
        code = subprocess.run(["make", tier], stdin=subprocess.DEVNULL, stdout=printed, stderr=printed).returncode
    said = log.read_text("utf-8", errors="replace")
    names = re.findall(r"^(?:FAILED|ERROR) (\S+)", said, re.MULTILINE)
    passed = sum(map(int, re.findall(r"^(?:\d+ failed, )?(\d+) passed", said, re.MULTILINE)))
    return passed, names or [f"exit code {code}: {log}"] * bool(code)


def main(tier: str, times: str, loaded: str = "") -> int:
    FOLDER.mkdir(parents=True, exist_ok=True)
    print(f"{'run':>3}  {'seconds':>7}  {'passed':>6}  failed", flush=True)
    bad = 0
    with load() if loaded == "1" else nullcontext():
        for number in range(1, int(times) + 1):
            began = time.monotonic()
            passed, names = failed(tier, FOLDER / f"{tier}-{number}.log")
            bad += bool(names)
            print(f"{number:>3}  {time.monotonic() - began:>7.0f}  {passed:>6}  {', '.join(names) or '-'}", flush=True)
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
