"""A stand-in for kubectl, put on PATH by tests: answers from files, so that the real way through a process is taken.

It is not kubectl and talks to no cluster. ``STAND_IN_CLUSTER`` is a folder with one JSON file a state of the cluster (``0.json``,
``1.json``, …): each question for the version moves on to the next one, and the last one stays. What was asked is appended to
``calls``. Errors are texts that kubectl 1.32 printed in the same situation (data/verify/kubectl-errors.json).
"""

import json
import os
import sys
import time
from pathlib import Path


def main(arguments: list[str]) -> int:
    folder = Path(os.environ["STAND_IN_CLUSTER"])
    with (folder / "calls").open("a") as calls:
        calls.write(json.dumps(arguments) + "\n")
    words = [word for word in arguments if not word.startswith("--request-timeout")]
    for option in ("--kubeconfig", "--context"):
        if option in words:
            del words[words.index(option) : words.index(option) + 2]
    state = state_of(folder, moving=words == ["get", "--raw", "/version"])
    time.sleep(state.get("seconds", 0))
    asked = " ".join(words[:2])
    error = state.get("errors", {}).get(asked) or state.get("errors", {}).get("*" if words[0] == "get" else "")
    if error:
        sys.stderr.write(error)
        return 1
    if words == ["config", "view", "-o", "json"]:
        json.dump(state["config"], sys.stdout)
    elif words == ["get", "--raw", "/version"]:
        json.dump({"major": "1", "minor": "35", "gitVersion": state["server_version"], **state.get("emulates", {})}, sys.stdout)
    elif words[:2] == ["get", "secrets"]:
        assert words[2:] == ["--all-namespaces", "-l", "owner=helm", "-L", "status", "--no-headers"]
        sys.stdout.writelines(f"{line}\n" for line in state["releases"])
    elif words[0] == "get" and words[2:] == ["--all-namespaces", "-o", "json"]:
        json.dump({"apiVersion": "v1", "kind": "List", "items": state["objects"].get(words[1], [])}, sys.stdout)
    else:
        sys.stderr.write(f"stand-in kubectl: not a question it was made for: {arguments}\n")
        return 64
    return 0


def state_of(folder: Path, *, moving: bool) -> dict:
    count = folder / "count"
    number = int(count.read_text()) if count.exists() else -1
    if moving:
        number += 1
        count.write_text(str(number))
    last = len(list(folder.glob("*.json"))) - 1
    return json.loads((folder / f"{min(max(number, 0), last)}.json").read_text())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
