"""Compares renderings with files in git, so that a review shows every change as a diff."""

import difflib
import os
from pathlib import Path

GOLDEN = Path(__file__).parents[1] / "golden"


def assert_golden(relative_path: str, text: str) -> None:
    """Asserts that the text equals the golden file; with ``UPDATE_GOLDEN=1`` writes the file and prints the diff."""
    path = GOLDEN / relative_path
    text = text.rstrip("\n") + "\n"
    before = path.read_text() if path.exists() else ""
    if before == text:
        return
    diff = "".join(difflib.unified_diff(before.splitlines(True), text.splitlines(True), f"golden/{relative_path}", "now"))
    if os.environ.get("UPDATE_GOLDEN"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        print(diff)
        return
    raise AssertionError(f"{relative_path} changed; if that is intended, run with UPDATE_GOLDEN=1 and review:\n{diff}")
