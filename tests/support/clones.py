"""Copies of what a clone has that a preview needs."""

import shutil
from pathlib import Path

from conftest import ROOT, STACKS


def copy_project(folder: Path) -> Path:
    """Copies the project with the shipped stacks, and without a user's own, into a folder; returns the folder."""
    shutil.copy(ROOT / "Pulumi.yaml", folder)
    shutil.copytree(ROOT / "infra", folder / "infra")
    (folder / "stacks").mkdir()
    for file in ("schema.json", *(f"Pulumi.{stack}.yaml" for stack in STACKS)):
        shutil.copy(ROOT / "stacks" / file, folder / "stacks")
    return folder
