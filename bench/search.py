"""What a search for places costs: ``make bench``, or ``python bench/search.py [MODEL …] [--runs N]``.

CPU time (user and system) of a whole process of ``plan --model``, the smallest of some runs. The models fit most places of the
catalog, so that nothing takes longer. The goal is 5 seconds.
"""

import argparse
import os
import resource
import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent
_SEARCH = "import sys; from eks_inference_tools.cli import main; sys.exit(main())"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=["Llama-3.2-1B", "Llama-2-13B", "Llama-3.1-8B"], help="default: %(default)s")
    parser.add_argument("--runs", type=int, default=5, help="how often each model is searched (default: %(default)s)")
    options = parser.parse_args()
    os.chdir(_ROOT)
    print(f"{'search':<16}{'CPU ms':>8}   goal: 5000")
    for model in options.models:
        print(f"{model:<16}{1000 * min(_cpu_s(model) for _ in range(options.runs)):>8.0f}")


def _cpu_s(model: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-c", _SEARCH, "plan", "--model", model, "--region", "us-west-2"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    main()
