"""What the rules cost of a preview: ``make bench``, or ``python bench/rules.py [STACK …] [--runs N]``.

Each figure is CPU time inside one fresh process that previews a stack: of the rules (reading their modules, finding their
subjects, judging spec and graph) and of the whole process. The goal is 5 % for the largest stack.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent

_CHILD = """
import contextlib, io, json, sys, time
from eks_inference.stack import check
from eks_inference_tools.check import registry
spent = {}
def timed(module, name):
    judge = getattr(module, name)
    def run(*arguments):
        before = time.process_time()
        try:
            return judge(*arguments)
        finally:
            spent[name] = spent.get(name, 0) + time.process_time() - before
    setattr(module, name, run)
timed(check, "check_spec")
timed(registry, "check_graph")
from eks_inference_tools.cli import main
shown = io.StringIO()
with contextlib.redirect_stdout(shown):
    assert main(["preview", sys.argv[1], "--format", "json"]) == 0
print(json.dumps({**spent, "whole": time.process_time(), "resources": len(json.loads(shown.getvalue())["resources"])}))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    stacks = (_ROOT / "tests" / "stacks.txt").read_text().split()
    parser.add_argument("stacks", nargs="*", default=stacks, help="default: all that are shipped")
    parser.add_argument("--runs", type=int, default=9, help="how often each stack runs (default: %(default)s)")
    options = parser.parse_args()
    os.chdir(_ROOT)
    print(f"{'rules':<16}{'resources':>10}{'spec ms':>10}{'graph ms':>10}{'preview ms':>12}{'share':>8}   goal: 5 %")
    for stack in options.stacks:
        runs = [_run(stack) for _ in range(options.runs)]
        spec, graph, whole = (
            1000 * statistics.median(run[key] for run in runs) for key in ("check_spec", "check_graph", "whole")
        )
        share = statistics.median((run["check_spec"] + run["check_graph"]) / run["whole"] for run in runs)
        print(f"{stack:<16}{runs[0]['resources']:>10}{spec:>10.1f}{graph:>10.1f}{whole:>12.0f}{share:>8.1%}")


def _run(stack: str) -> dict[str, float]:
    done = subprocess.run([sys.executable, "-c", _CHILD, stack], check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout)


if __name__ == "__main__":
    main()
