"""What cost and time add to a preview: ``python bench/cost_and_time.py [STACK …] [--pairs N]``.

CPU time (user and system) of a whole process with them over that of one whose domain has neither, so that it does not import them
either. Machines are noisy, so both run in turns and the median of the ratios counts. The goal is 5 % more.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent

_WITHOUT = """
import sys, types
from eks_inference_tools.reading.stack_sections import sections
from eks_inference_tools.reading.cluster_words import WORDS
from stackgraph.domain import Domain
domain = types.ModuleType("eks_inference_tools.domain")
domain.eks = lambda *_: Domain(words=WORDS, sections=sections)
sys.modules[domain.__name__] = domain
from eks_inference_tools.cli import main
sys.exit(main())
"""
_WITH = "import sys; from eks_inference_tools.cli import main; sys.exit(main())"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    stacks = (_ROOT / "tests" / "stacks.txt").read_text().split()
    parser.add_argument("stacks", nargs="*", default=stacks, help="default: all that are shipped")
    parser.add_argument("--pairs", type=int, default=9, help="how often each stack runs (default: %(default)s)")
    options = parser.parse_args()
    os.chdir(_ROOT)
    print(f"{'cost and time':<16}{'format':>8}{'without ms':>12}{'with ms':>10}{'more':>8}   goal: 5 %")
    for stack in options.stacks:
        for format_ in ("tree", "html"):
            arguments = ("preview", stack, "--format", format_)
            runs = [(_cpu_s(_WITHOUT, *arguments), _cpu_s(_WITH, *arguments)) for _ in range(options.pairs)]
            without, with_ = (1000 * statistics.median(run[place] for run in runs) for place in (0, 1))
            more = statistics.median(run[1] / run[0] for run in runs) - 1
            print(f"{stack:<16}{format_:>8}{without:>12.0f}{with_:>10.0f}{more:>8.1%}")


def _cpu_s(program: str, *arguments: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", program, *arguments], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    main()
