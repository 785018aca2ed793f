"""Speed of ``eks-inference diff``, as ratios: ``python bench/diff.py [--pairs N]``.

All stacks of two revisions, in a clone made here. What it is compared with are the previews of the same stacks, one after the
other, divided by the cores: goals 0.8 of both revisions' previews, and 1.0 of the head's alone when the base is recorded already.
Machines are noisy, so what is compared runs in turns and the medians of the ratios count. CPU time (user and system, with all
processes) tells the same where other work is under way.
"""

import argparse
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent
_CORES = os.cpu_count() or 1

Cost = tuple[float, float]
"""Wall and CPU seconds."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=3, help="how often each thing runs (default: %(default)s)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        clone, cache = Path(folder) / "clone", Path(folder) / "cache"
        _run(["git", "clone", "--quiet", str(_ROOT), str(clone)], Path(folder))
        stacks = _change(clone)
        command = [sys.executable, "-m", "eks_inference_tools"]
        # In CI the command keeps no cache.
        environment = {**os.environ, "CI": "", "XDG_CACHE_HOME": str(cache), "PYTHONPATH": str(clone / "components")}

        def previews() -> Cost:
            return _cost(lambda: [_run([*command, "preview", stack, "--format", "json"], clone, environment) for stack in stacks])

        def diff(*, recorded: bool) -> Cost:
            if not recorded:
                shutil.rmtree(cache, ignore_errors=True)
            return _cost(lambda: _run([*command, "diff", *stacks, "--base", "HEAD~1"], clone, environment))

        found = [(previews(), diff(recorded=False), diff(recorded=True)) for _ in range(options.pairs)]
    print(f"{len(stacks)} stacks, two revisions, {_CORES} cores; medians of {options.pairs}")
    _print("", "wall s", "cpu s", "of previews", "cpu of previews", "goal")
    rows = (("previews of the head", 0, 1, ""), ("diff", 1, 2, "0.8"), ("diff, base recorded", 2, 1, "1.0"))
    for name, place, revisions, goal in rows:
        wall, cpu = (statistics.median(costs[place][kind] for costs in found) for kind in (0, 1))
        # The previews ran one after the other: what they would take on all cores is their sum divided by these.
        of_wall = statistics.median(costs[place][0] / (revisions * costs[0][0] / _CORES) for costs in found)
        of_cpu = statistics.median(costs[place][1] / (revisions * costs[0][1]) for costs in found)
        _print(name, f"{wall:.2f}", f"{cpu:.2f}", f"{of_wall:.2f}" if place else "", f"{of_cpu:.2f}" if place else "", goal)


def _change(clone: Path) -> list[str]:
    """A second revision in which every shipped stack has other tags; the names of the stacks."""
    stacks = (clone / "tests" / "stacks.txt").read_text().split()
    for file in (clone / "stacks" / f"Pulumi.{stack}.yaml" for stack in stacks):
        file.write_text(file.read_text().replace("project: eks-inference", "project: changed", 1))
    identity = ("-c", "user.name=Bench", "-c", "user.email=bench@example.com")
    _run(["git", *identity, "commit", "--quiet", "--all", "--message", "other tags"], clone)
    return stacks


def _cost(run: Callable[[], object]) -> Cost:
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    run()
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _run(command: list[str], folder: Path, environment: dict[str, str] | None = None) -> None:
    subprocess.run(command, cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL)


def _print(first: str, *cells: str) -> None:
    print("  ".join([first.ljust(22), *(cell.rjust(15) for cell in cells)]))


if __name__ == "__main__":
    main()
