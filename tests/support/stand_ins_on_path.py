"""Answers of the stand-in for kubectl (``stand_in_kubectl.py``), as files."""

import json
from pathlib import Path
from typing import Any


def answer(folder: Path, *states: dict[str, Any]) -> None:
    """Writes the states of a cluster, one after the other."""
    for number, state in enumerate(states):
        (folder / f"{number}.json").write_text(json.dumps({key: state[key] for key in state if key != "objects"}))
        for kind, items in state.get("objects", {}).items():
            (folder / f"{number}.{kind}").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
