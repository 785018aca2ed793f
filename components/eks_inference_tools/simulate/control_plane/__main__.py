"""Builds every program that ``simulate`` runs (``make cluster-tools``); a simulation builds those that it needs."""

import sys

from eks_inference_tools.simulate.control_plane.tool_build import provided
from stackgraph.problems import ProblemsFound

if __name__ == "__main__":
    try:
        found = provided()
    except ProblemsFound as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
    for name in found.asked:
        print(name, found.versions.get(name, ""), found.paths[name])
