"""``eks-inference diff-comment``: posts the diff of a finished workflow run as a comment on its pull request."""

import argparse

from eks_inference_tools import COMMAND
from stackgraph.commands import diff_comment
from stackgraph.commands.diff_comment import HELP as HELP
from stackgraph.commands.diff_comment import configure as configure

EXAMPLES = ("diff-comment --project eks-inference",)


def run(options: argparse.Namespace) -> int:
    from eks_inference_tools.reading.titles import TITLES

    return diff_comment.post(options, COMMAND, TITLES)
