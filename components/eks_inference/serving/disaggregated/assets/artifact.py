"""Compiles the model into the store, or checks that what stands there is what the servers were planned for.

    artifact.py verify PLAN     exit code 1, and the reason, when the artifact may not be used
    artifact.py compile PLAN    does nothing when it may

PLAN is the JSON document of the pair. A folder gets its name only once it is whole: what stands under the name was finished.
Standard library only: it runs in the engine's image.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

MANIFEST = "manifest.json"
RECORD = "revision.json"
OUTPUT = "@OUTPUT@"


class UnusableError(Exception):
    """The artifact is not there, or not the one that was planned."""


def commit_of(model: Path) -> str | None:
    """The commit that was downloaded as the model; None where nobody recorded it."""
    record = model / RECORD
    return json.loads(record.read_text("utf-8"))["commit"] if record.is_file() else None


def verify(folder: Path, inputs: dict[str, Any], files: list[str], commit: str | None) -> None:
    """The manifest says what was planned, and every file is there at the size it was written with."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text("utf-8"))
    except FileNotFoundError:
        raise UnusableError(f"there is no {folder / MANIFEST}: it was never compiled, or not to the end") from None
    except ValueError as error:
        raise UnusableError(f"{folder / MANIFEST} is not JSON: {error}") from None
    made_from = manifest.get("inputs", {})
    differing = sorted(key for key in {*inputs, *made_from} if inputs.get(key) != made_from.get(key))
    if differing:
        shown = "; ".join(f"{key}: {made_from.get(key)!r}, planned: {inputs.get(key)!r}" for key in differing)
        raise UnusableError(f"{folder} was compiled from something else ({shown})")
    compiled = manifest.get("commit")
    if compiled and commit and compiled != commit:
        raise UnusableError(f"{folder} was compiled from commit {compiled} of the model, and the store has {commit}")
    sizes = manifest.get("files", {})
    for name in files:
        path = folder / name
        if not path.is_file():
            raise UnusableError(f"{path} is missing")
        if path.stat().st_size != sizes.get(name):
            raise UnusableError(f"{path} has {path.stat().st_size} bytes, and was written with {sizes.get(name)}")


def compile_into(folder: Path, inputs: dict[str, Any], files: list[str], command: list[str], commit: str | None) -> None:
    """Beside the folder first; the manifest last, then the name. What earlier tries left is removed."""
    for left in folder.parent.glob(f"{folder.name}.part*"):
        shutil.rmtree(left)
    part = folder.with_name(f"{folder.name}.part")
    part.mkdir(parents=True)
    subprocess.run([str(part) if word == OUTPUT else word for word in command], check=True)
    sizes = {str(path.relative_to(part)): path.stat().st_size for path in sorted(part.rglob("*")) if path.is_file()}
    missing = [name for name in files if name not in sizes]
    if missing:
        raise UnusableError(f"the compiler ended well, but made no {', '.join(missing[:3])}")
    (part / MANIFEST).write_text(json.dumps({"inputs": inputs, "files": sizes, "commit": commit}, indent=1), "utf-8")
    if folder.exists():
        shutil.rmtree(folder)  # it is not usable, or we would not be here
    part.rename(folder)


def main(task: str, plan: str) -> int:
    artifact = json.loads(Path(plan).read_text("utf-8"))["artifact"]
    folder, inputs, files = Path(artifact["folder"]), artifact["inputs"], artifact["files"]
    commit = commit_of(Path(artifact["model"]))
    try:
        try:
            verify(folder, inputs, files, commit)
            print(f"artifact {folder} is whole, and what was planned", flush=True)
            return 0
        except UnusableError as reason:
            if task == "verify":
                raise
            print(f"compiling: {reason}", flush=True)
        compile_into(folder, inputs, files, artifact["command"], commit)
        verify(folder, inputs, files, commit)
        print(f"compiled {folder}", flush=True)
        return 0
    except UnusableError as error:
        print(f"error: {error}", file=sys.stderr)
    except subprocess.CalledProcessError as error:
        print(f"error: the compiler ended with {error.returncode}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
