"""``eks-inference chat``: the library's client of model servers.

Pods run the same file without the command, so it brings its options along.
"""

from eks_inference.clients.chat import configure, run

__all__ = ["HELP", "configure", "run"]

HELP = "ask a model server, e.g. through a port forward"
