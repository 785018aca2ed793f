"""How long a simulation takes and what it needs: ``python bench/simulate.py [STACK ...]``; part of ``make bench``.

Machines are noisy, so the figures that count are ratios within one run: every part of a simulation over the time that its control
plane took to start. Seconds stand beside them for a feeling. Memory is the resident set of the command and of everything it
started, together, sampled; pages that they share count once for each.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent
_SAMPLE_SECONDS = 0.2


@dataclass(frozen=True)
class Figures:
    seconds: dict[str, float]
    objects: int
    peak_mib: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    stacks = (_ROOT / "tests" / "stacks.txt").read_text().split()
    parser.add_argument("stacks", nargs="*", default=stacks, metavar="STACK", help="default: all that are shipped")
    options = parser.parse_args()
    os.chdir(_ROOT)
    print(f"{'simulate --rollout':<20}{'objects':>8}{'start':>9}{'admit':>9}{'create':>9}{'update':>9}{'delete':>9}{'peak':>10}")
    for stack in options.stacks:
        found = _figures(stack)
        start = found.seconds["start"]
        parts = "".join(f"{found.seconds[part] / start:>8.2f}x" for part in ("admit", "create", "update", "delete"))
        print(f"{stack:<20}{found.objects:>8}{start:>7.1f} s{parts}{found.peak_mib:>6} MiB")


def _figures(stack: str) -> Figures:
    with tempfile.NamedTemporaryFile() as report:
        command = subprocess.Popen(
            [sys.executable, "-m", "eks_inference_tools", "simulate", stack, "--rollout", "--format", "json"],
            stdout=report,
            stderr=subprocess.PIPE,
            text=True,
        )
        peak = _Peak(command.pid)
        _, said = command.communicate()
        peak_bytes = peak.end()
        if command.returncode != 0:
            sys.exit(f"simulate {stack} ended with {command.returncode}:\n{said}{Path(report.name).read_text()}")
        document = json.loads(Path(report.name).read_text())
    return Figures(document["seconds"], document["admission"]["objects"], peak_bytes // 2**20)


class _Peak:
    """The most memory that a process and all it started hold together, sampled in a thread."""

    def __init__(self, pid: int) -> None:
        self._root, self._most, self._done = pid, 0, threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def end(self) -> int:
        self._done.set()
        self._thread.join()
        return self._most

    def _run(self) -> None:
        while not self._done.wait(_SAMPLE_SECONDS):
            self._most = max(self._most, sum(_resident(pid) for pid in _family(self._root)))


def _family(root: int) -> set[int]:
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
    found = {root}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


if __name__ == "__main__":
    main()
