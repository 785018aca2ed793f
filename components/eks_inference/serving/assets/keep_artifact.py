"""Starts a server with the compiled model that an earlier start has kept, or keeps the one that this start makes.

    keep_artifact.py FOLDER PORT COMMAND...

The engine compiles into a folder of the pod's own, which gets the name FOLDER once the server answers: what stands under that
name is whole. Standard library only: it runs in the engine's image.
"""

import contextlib
import os
import shutil
import socket
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

VARIABLE = "NEURON_COMPILED_ARTIFACTS"

_PAUSE_S = 5.0
_ABANDONED_S = 24 * 3600
"""Folders of pods that ended while they compiled. No start takes so long."""

_LOOPBACK = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def own_folder(kept: Path) -> Path:
    """The folder that this pod compiles into; what an earlier start of its container left there is removed."""
    part = kept.with_name(f"{kept.name}.{socket.gethostname()}.part")
    for left in kept.parent.glob(f"{kept.name}.*.part"):
        if left == part or time.time() - left.stat().st_mtime > _ABANDONED_S:
            shutil.rmtree(left, ignore_errors=True)
    kept.parent.mkdir(parents=True, exist_ok=True)
    return part


def keep(part: Path, kept: Path, url: str) -> None:
    """Waits for the server, then gives its artifact the name. Where another pod came first, that one's stays."""
    while not answers(url):
        time.sleep(_PAUSE_S)
    try:
        part.rename(kept)
        print(f"kept {kept} for later starts", flush=True)
    except OSError as error:
        print(f"not kept: {error}", file=sys.stderr)
        shutil.rmtree(part, ignore_errors=True)


def answers(url: str) -> bool:
    with contextlib.suppress(urllib.error.URLError, OSError), _LOOPBACK.open(url, timeout=5) as answer:
        return answer.status == 200
    return False


def main(folder: str, port: str, *command: str) -> None:
    kept = Path(folder)
    used = kept if kept.is_dir() else own_folder(kept)
    if used != kept and os.fork() == 0:
        keep(used, kept, f"http://127.0.0.1:{port}/health")
        os._exit(0)
    os.environ[VARIABLE] = str(used)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(*sys.argv[1:])
