"""``python -m eks_inference_tools``: the command, for environments without its script."""

import sys

from eks_inference_tools.cli import main

sys.exit(main())
