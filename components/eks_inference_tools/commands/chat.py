"""``eks-inference chat``: queries a model server with the library's own client.

The client defines its options itself, because pods run the same file without this command.
"""

from eks_inference.clients.chat import configure, run

__all__ = ["EXAMPLES", "HELP", "configure", "run"]

HELP = "send a prompt to a model server, e.g. through a port forward"
EXAMPLES = (
    "chat --prompt 'Who are you?'",
    "chat --wait 1800",
)
