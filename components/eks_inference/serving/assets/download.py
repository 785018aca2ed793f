"""Downloads models and adapters from the Hugging Face Hub into folders, once.

    download.py REPOSITORY REVISION FOLDER [REPOSITORY REVISION FOLDER …]

A folder gets its name once everything is in it; what an interrupted try has left is gone on with. Where several start at once,
one downloads, and the others find the folder. A branch or tag moves, so its commit is looked up first and recorded in
revision.json, which the artifact's manifest quotes. It runs in the engine's image, which has huggingface_hub, and reads a token
from HF_TOKEN.
"""

import fcntl
import json
import sys
from pathlib import Path

# Weights as safetensors, tokenizer with its chat template, and configuration. Not the second copy of the weights, original/ in
# Meta's repositories.
WANTED = ["*.safetensors", "*.jinja", "*.json", "*.model", "*.txt"]
UNWANTED = ["original/*"]
RECORD = "revision.json"


def commit_of(repository: str, revision: str, part: Path) -> str:
    """The commit that an interrupted try began with, or else the revision's of now."""
    from huggingface_hub import HfApi  # pyright: ignore[reportMissingImports]

    record = part / RECORD
    if record.is_file():
        return json.loads(record.read_text("utf-8"))["commit"]
    commit = HfApi().model_info(repository, revision=revision).sha
    part.mkdir(parents=True, exist_ok=True)
    record.write_text(json.dumps({"repository": repository, "revision": revision, "commit": commit}), "utf-8")
    return commit


def main(*wanted: str) -> int:
    return max(fetch(*wanted[first : first + 3]) for first in range(0, len(wanted), 3))


def fetch(repository: str, revision: str, folder: str) -> int:
    target = Path(folder)
    target.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{target}.lock", "w", encoding="utf-8") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        return download(repository, revision, target)


def download(repository: str, revision: str, target: Path) -> int:
    from huggingface_hub import snapshot_download  # pyright: ignore[reportMissingImports]

    if target.exists():
        record = target / RECORD
        print(f"{target} is there already: {record.read_text('utf-8') if record.is_file() else 'no commit recorded'}", flush=True)
        return 0
    part = target.with_name(f"{target.name}.part")
    commit = commit_of(repository, revision, part)
    snapshot_download(
        repository, revision=commit, local_dir=str(part), allow_patterns=WANTED, ignore_patterns=UNWANTED, max_workers=16
    )
    described = any((part / name).is_file() for name in ("config.json", "adapter_config.json"))
    if not described or not list(part.glob("*.safetensors")):
        print(
            f"error: {repository} at {revision} has no config.json or adapter_config.json, or no weights as safetensors",
            file=sys.stderr,
        )
        return 1
    part.rename(target)
    print(f"downloaded {repository} at {revision}, commit {commit}, to {target}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
