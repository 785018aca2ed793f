"""Downloads a model from the Hugging Face Hub into the store, once.

    download.py REPOSITORY REVISION FOLDER

The folder gets its name once everything is in it; what an interrupted try has left is gone on with. It runs in the engine's
image, which has huggingface_hub; a token is read from HF_TOKEN.
"""

import sys
from pathlib import Path

# Weights as safetensors, tokenizer and configuration. Not the second copy of the weights, original/ in Meta's repositories.
WANTED = ["*.safetensors", "*.json", "*.model", "*.txt"]
UNWANTED = ["original/*"]


def main(repository: str, revision: str, folder: str) -> int:
    from huggingface_hub import snapshot_download  # pyright: ignore[reportMissingImports]

    target = Path(folder)
    if target.exists():
        print(f"{target} is there already", flush=True)
        return 0
    part = target.with_name(f"{target.name}.part")
    part.mkdir(parents=True, exist_ok=True)
    snapshot_download(
        repository, revision=revision, local_dir=str(part), allow_patterns=WANTED, ignore_patterns=UNWANTED, max_workers=16
    )
    if not (part / "config.json").is_file() or not list(part.glob("*.safetensors")):
        print(f"error: {repository} at {revision} has no config.json or no weights as safetensors", file=sys.stderr)
        return 1
    part.rename(target)
    print(f"downloaded {repository} at {revision} to {target}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
