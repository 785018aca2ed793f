"""A fake kubectl that tests put on PATH. It answers from files, so that tests run a real process.

It talks to no cluster. ``STAND_IN_CLUSTER`` is a folder with one JSON file per state of the cluster (``0.json``, ``1.json``, …):
each request for the version moves on to the next state, and the last one stays. The objects of a state are in one file per kind
(``0.pods``, …), because reading all of them for each request would take most of the time. Every request is appended to ``calls``.
Errors are texts that kubectl 1.32 printed in the same situation (data/verify/kubectl-errors.json).
"""

import json
import os
import sys
import time


def main(arguments: list[str], folder: str, out=sys.stdout, err=sys.stderr) -> int:
    with open(f"{folder}/calls", "a") as calls:
        calls.write(json.dumps(arguments) + "\n")
    words = [word for word in arguments if not word.startswith("--request-timeout")]
    for option in ("--kubeconfig", "--context"):
        if option in words:
            del words[words.index(option) : words.index(option) + 2]
    number = number_of_state(folder, moving=words == ["get", "--raw", "/version"])
    with open(f"{folder}/{number}.json") as file:
        state = json.load(file)
    time.sleep(state.get("seconds", 0))
    asked = " ".join(words[:2])
    error = state.get("errors", {}).get(asked) or state.get("errors", {}).get("*" if words[0] == "get" else "")
    if error:
        err.write(error)
        return 1
    if words == ["config", "view", "-o", "json"]:
        json.dump(state["config"], out)
    elif words == ["get", "--raw", "/version"]:
        json.dump({"major": "1", "minor": "35", "gitVersion": state["server_version"], **state.get("emulates", {})}, out)
    elif words[:2] == ["get", "secrets"]:
        assert words[2:] == ["--all-namespaces", "-l", "owner=helm", "-L", "status", "--no-headers"]
        out.writelines(f"{line}\n" for line in state["releases"])
    elif words[0] == "-n" and words[2] in ("logs", "exec"):
        # By what the pod or the Job is called; a former container has nothing to say here.
        out.write("" if "--previous" in words else state.get(words[2], {}).get(words[3], ""))
    elif words[0] == "get" and words[2:] == ["--all-namespaces", "-o", "json"]:
        found = f"{folder}/{number}.{words[1]}"
        if os.path.exists(found):
            with open(found) as file:
                out.write(file.read())
        else:
            json.dump({"apiVersion": "v1", "kind": "List", "items": []}, out)
    else:
        err.write(f"fake kubectl: unknown request: {arguments}\n")
        return 64
    return 0


def number_of_state(folder: str, *, moving: bool) -> int:
    with open(f"{folder}/count", "a+") as count:
        count.seek(0)
        number = int(count.read() or -1)
        if moving:
            number += 1
            count.truncate(0)
            count.write(str(number))
    last = sum(name.endswith(".json") for name in os.listdir(folder)) - 1
    return min(max(number, 0), last)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ["STAND_IN_CLUSTER"]))
