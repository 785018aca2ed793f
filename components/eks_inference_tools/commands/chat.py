"""``eks-inference chat``: queries a model server with the library's own client.

The client defines its options itself, because pods run the same file without this command.
"""

import argparse

from eks_inference.clients import chat
from stackgraph.cli import refused

HELP = "send a prompt to a model server, e.g. through a port forward"
EXAMPLES = (
    "chat --prompt 'Who are you?'",
    "chat --wait 1800",
)

configure = chat.configure


def run(options: argparse.Namespace) -> int:
    try:
        return chat.run(options)
    except chat.ChatError as error:
        from stackgraph.problems import Problem

        refused([Problem(**error.fields)], options.format == "json")
        return error.code
