"""Scripts that run in the pods of servers: those of one kind, and those that kinds share."""

from importlib.resources import files

DOWNLOAD = "download.py"
"""Downloads a model from the Hub into a folder, once: ``download.py REPOSITORY REVISION FOLDER``."""
DRAIN = "drain.py"
KEEP_ARTIFACT = "keep_artifact.py"
"""Starts a server and keeps the compiled model: ``keep_artifact.py FOLDER PORT COMMAND...``."""


def texts(kind: str, *names: str) -> dict[str, str]:
    """Returns the texts of scripts by file name. ``kind`` is the folder of a kind of server."""
    serving = files("eks_inference.serving")
    places = (serving.joinpath(kind, "assets"), serving.joinpath("assets"))
    found = {name: next(path for place in places if (path := place.joinpath(name)).is_file()) for name in names}
    return {name: path.read_text("utf-8") for name, path in found.items()}
