"""Speed and memory of the offline preview, as ratios: ``make bench``, or ``python bench/preview.py [STACK] [--pairs N]``.

Machines are noisy, so what is compared runs in turns and the medians of the ratios count. Each figure is CPU time (user and
system) of a process, or of a run inside one.

- The floor is a fresh process that imports the SDK classes of the recorded types and ends.
- A bare program makes the same graph with the SDKs' constructors only, under the same recorder (``bare.py``).
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

_ROOT = Path(__file__).resolve().parent.parent
_STACK = "inf2-llama3"
_MANY = 1000

_ALL_NAMES = """
import eks_inference
for name in eks_inference.__all__:
    getattr(eks_inference, name)
"""
_WITHOUT_LAZY_SDKS = """
import contextlib, sys
from stackgraph.recorder import lazy_sdk
lazy_sdk.lazy_sdks = contextlib.nullcontext
from eks_inference_tools.cli import main
sys.exit(main())
"""


@dataclass(frozen=True)
class Cost:
    """What a process took."""

    cpu_s: float
    wall_s: float
    peak_mb: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stack", nargs="?", default=_STACK, help="default: %(default)s")
    parser.add_argument("--pairs", type=int, default=9, help="how often each thing runs (default: %(default)s)")
    parser.add_argument("--scale", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    os.chdir(_ROOT)
    if options.scale:
        # In a process of its own, with nothing else in memory.
        print(json.dumps(list(_scale(options.stack, options.pairs))))
        return
    _print_cold(options.stack, options.pairs)
    print()
    _print_scale(options.stack, options.pairs)


# -- whole processes ------------------------------------------------------------------------------------------------------------


def _print_cold(stack: str, pairs: int) -> None:
    preview = [sys.executable, "-m", "eks_inference_tools", "preview", stack]
    graph = json.loads(subprocess.run([*preview, "--format", "json"], check=True, stdout=subprocess.PIPE).stdout)
    imports = _imports({resource["type"] for resource in graph["resources"]})
    costs = _in_turns(
        pairs,
        {
            "floor": lambda: _cost([sys.executable, "-c", imports]),
            "preview": lambda: _cost(preview),
            "preview, SDKs loaded whole": lambda: _cost([sys.executable, "-c", _WITHOUT_LAZY_SDKS, *preview[3:]]),
            "import of all names": lambda: _cost([sys.executable, "-c", _ALL_NAMES]),
        },
    )
    rows = [
        (
            name,
            f"{statistics.median(cost.cpu_s for cost in found):.2f}",
            f"{statistics.median(cost.wall_s for cost in found):.2f}",
            f"{statistics.median(cost.peak_mb for cost in found):.0f}",
            f"{_ratio([cost.cpu_s for cost in found], [cost.cpu_s for cost in costs['floor']]):.2f}",
        )
        for name, found in costs.items()
    ]
    print(f"cold, {stack}: {len(graph['resources'])} resources; goals: 1.25 of the floor, 200 MB")
    _print_table(("", "cpu s", "wall s", "peak MB", "of floor"), rows)


def _imports(types: set[str]) -> str:
    """Source text that imports the SDK class of each type."""
    import pulumi_aws  # noqa: F401
    import pulumi_eks  # noqa: F401
    import pulumi_kubernetes  # noqa: F401
    from bare import owner

    found = sorted({place for type_ in types if (place := owner(type_))})
    return "\n".join(f"from {module} import {cls}" for module, cls in found)


def _cost(command: Sequence[str]) -> Cost:
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - start
    if status:
        raise SystemExit(f"failed: {command}")
    per_mb = 1024 * 1024 if sys.platform == "darwin" else 1024
    return Cost(usage.ru_utime + usage.ru_stime, wall, usage.ru_maxrss / per_mb)


# -- runs inside one process ----------------------------------------------------------------------------------------------------


def _print_scale(stack: str, pairs: int) -> None:
    child = [sys.executable, __file__, stack, "--pairs", str(pairs), "--scale"]
    found = json.loads(subprocess.run(child, check=True, stdout=subprocess.PIPE).stdout)
    rows = []
    before = {"resources": 0, "ours_s": 0.0}
    for size in found:
        count, ours_s, bare_s = size["resources"], size["ours_s"], size["bare_s"]
        further_s = (ours_s - before["ours_s"]) / (count - before["resources"])
        times = (1000 * seconds for seconds in (ours_s / count, bare_s / count, further_s))
        rows.append((str(count), *(f"{ms:.2f}" for ms in times), f"{size['ratio']:.2f}"))
        before = size
    print("warm, per resource; goals: 1.3 of bare, no growth with size")
    _print_table(("resources", "ours ms", "bare ms", "each further ms", "of bare"), rows)


def _scale(stack: str, pairs: int) -> Iterator[dict[str, Any]]:
    """Costs of the stack as it is (about 100 resources), and with copies of its server and pool up to 1,000 resources."""
    import yaml
    from bare import bare_program

    from eks_inference import InferencePlatform
    from stackgraph.recorder.recording import record

    config = yaml.safe_load(Path(f"stacks/Pulumi.{stack}.yaml").read_text(encoding="utf-8"))["config"]

    def program() -> None:
        InferencePlatform.from_config()

    def recorder(copies: int) -> Callable[[Callable[[], None]], Any]:
        texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in _grown(config, copies).items()}
        return lambda build: record(build, project="eks-inference", stack=stack, config=texts)

    first, second = (len(recorder(copies)(program).resources) for copies in (0, 1))
    most = (_MANY - first) // (second - first)
    for copies in (0, most // 2, most):
        run = recorder(copies)
        graph = run(program)
        bare = bare_program(graph)
        if differs := _difference(graph, run(bare)):
            print(f"the bare program makes another graph: {differs}", file=sys.stderr)
        costs = _in_turns(pairs, {"ours": lambda run=run: _cpu(run, program), "bare": lambda run=run, bare=bare: _cpu(run, bare)})
        yield {
            "resources": len(graph.resources),
            "ours_s": statistics.median(costs["ours"]),
            "bare_s": statistics.median(costs["bare"]),
            "ratio": _ratio(costs["ours"], costs["bare"]),
        }


def _grown(config: dict[str, Any], copies: int) -> dict[str, Any]:
    """The configuration with further copies of its first server, each with a namespace and a pool of its own."""
    stack = config["eks-inference:stack"]
    server = next(iter(stack["servers"].values()))
    pool = stack["pools"][server["worker"]["pool"]]
    names = [f"more-{number}" for number in range(copies)]
    servers = {name: {**server, "namespace": name, "worker": {**server["worker"], "pool": name}} for name in names}
    # The heads of Ray run on the core pool.
    core = {**stack["pools"]["core"], "size": stack["pools"]["core"]["size"] + copies}
    pools = {**stack["pools"], **dict.fromkeys(names, pool), "core": core}
    stack = {**stack, "pools": pools, "servers": stack["servers"] | servers}
    return {**config, "eks-inference:stack": stack}


def _difference(graph: Any, other: Any) -> str | None:
    """The first resource that is not the same in both, but for the place in the program that makes it."""
    for urn in sorted({*graph.by_urn, *other.by_urn}):
        ours, theirs = (found.by_urn[urn].document() if urn in found.by_urn else {} for found in (graph, other))
        if {**ours, "source": ""} != {**theirs, "source": ""}:
            return urn
    return None


def _cpu(run: Callable[[Callable[[], None]], Any], build: Callable[[], None]) -> float:
    start = time.process_time()
    run(build)
    return time.process_time() - start


# -- figures --------------------------------------------------------------------------------------------------------------------


def _in_turns(pairs: int, runs: Mapping[str, Callable[[], T]]) -> dict[str, list[T]]:
    found: dict[str, list[T]] = {name: [] for name in runs}
    for _ in range(pairs):
        for name, run in runs.items():
            found[name].append(run())
    return found


def _ratio(these: Sequence[float], those: Sequence[float]) -> float:
    return statistics.median(this / that for this, that in zip(these, those, strict=True))


def _print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    for first, *rest in (head, *rows):
        print("  ".join([first.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True))]))


if __name__ == "__main__":
    main()
