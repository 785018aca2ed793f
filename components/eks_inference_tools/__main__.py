"""The command: its console script, and ``python -m eks_inference_tools`` for environments without it."""

import sys

from stackgraph.interrupts import EXIT_CODE, ending_at_once


def main() -> int:
    """Runs the command. Ctrl-C before it handles signals ends it like later."""
    with ending_at_once():
        from eks_inference_tools.cli import main as command
    try:
        return command()
    except KeyboardInterrupt:
        print("\nended by Ctrl-C", file=sys.stderr)
        return EXIT_CODE


if __name__ == "__main__":
    sys.exit(main())
