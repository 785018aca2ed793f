"""``eks-inference cluster-tools``: builds the programs that ``simulate`` and ``replay`` run. Ctrl-C keeps what is finished."""

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from eks_inference_tools.interrupts import EXIT_CODE, ending_cleanly

if TYPE_CHECKING:
    from eks_inference_tools.simulate.control_plane.tool_build import Step
    from eks_inference_tools.simulate.control_plane.toolchain import Toolchain

HELP = "build the programs that `simulate` and `replay` run"
EXAMPLES = ("cluster-tools",)


_CPU_MINUTES = 25
"""Of a build of everything by a Go that has built nothing before, measured on two cores in November 2026."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Builds etcd, Kubernetes, kwok and Prometheus from Go modules that are pinned by their hashes, and fetches the "
        "definitions of custom resources in the same way. A program on PATH with a suitable version is used instead. Everything "
        "goes into the user's cache, so a second run builds nothing."
    )


def run(options: argparse.Namespace) -> int:
    from eks_inference_tools.presentation.progress import Progress
    from eks_inference_tools.simulate.control_plane.tool_build import build
    from eks_inference_tools.simulate.control_plane.toolchain import installed

    try:
        with Progress() as progress, ending_cleanly():
            if absent := installed().absent:
                progress.keep(_outlook(len(absent)))

            def tell(step: "Step") -> None:
                (progress.keep if step.done else progress.show)(_state(step))

            build(tell, lambda: progress.keep("another build is in progress; waiting for it"))
    except KeyboardInterrupt:
        print("ended; finished programs are kept", file=sys.stderr)
        return EXIT_CODE
    sys.stdout.write(_table(installed()))
    return 0


def _outlook(items: int) -> str:
    cores = os.cpu_count() or 1
    most = (
        f"at most about {_CPU_MINUTES / cores:.0f} min on {cores} core{'s' * (cores != 1)}, less where Go has built some before"
    )
    return f"{items} item{'s' * (items != 1)} to make, once: {most}"


def _state(step: "Step") -> str:
    counts = ((step.modules, "module"), (step.packages, "package"))
    told = [f"{count} {what}{'s' * (count != 1)}" for count, what in counts if count]
    return ", ".join(
        [f"{step.number} of {step.total}, {step.name}: {'done' if step.done else 'building'}", *told, f"{step.seconds:.0f} s"]
    )


def _table(found: "Toolchain") -> str:
    """The programs in use with versions and paths, and the rejected programs on PATH with reasons."""
    from eks_inference_tools.simulate.control_plane.toolchain import tools
    from stackgraph.presentation.terminal import UNBOUND, Columns, drawn

    home = str(Path.home())
    rows: list[tuple[str, str, str]] = []
    for name in found.asked:
        rows.append((name, found.versions.get(name, ""), str(found.paths[name]).replace(home, "~", 1)))
        for other in found.passed.get(name, ()):
            version = other.version or "reports no version"
            rows.append(("", "", f"{other.path} is not used: {version}; required is {tools()[name].range}"))
    return drawn([Columns(rows)], width=UNBOUND)
