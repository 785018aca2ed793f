"""The command: its console script, and ``python -m eks_inference_tools`` for environments without it."""

import sys

from stackgraph.interrupts import ending_at_once


def main() -> int:
    """Runs the command. Ctrl-C during the imports ends it like later."""
    with ending_at_once():
        from eks_inference_tools.cli import main as command
    return command()


if __name__ == "__main__":
    sys.exit(main())
