"""Compares renderings with files in git, so that a review shows every change as a diff, and each change in one place.

Two ways keep a change in one place: ``by_name`` for files of ours, ``once`` for what several have in common.
"""

import difflib
import json
import os
import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden"
LIBRARY = ROOT / "components" / "eks_inference"

MOST_LINES = 60
"""Lines of one file's diff that an update prints."""

written: list[str] = []
"""Diffs of the files written since the last report. ``conftest.py`` prints them at the end of the run."""


def assert_golden(relative_path: str, text: str) -> None:
    """Asserts that the text equals the golden file; with ``UPDATE_GOLDEN=1`` writes the file and has the diff printed."""
    path = (GOLDEN / relative_path).resolve()
    name = path.relative_to(ROOT)
    text = text.rstrip("\n") + "\n"
    before = path.read_text("utf-8") if path.exists() else ""
    if before == text:
        return
    diff = [*difflib.unified_diff(before.splitlines(True), text.splitlines(True), f"{name}", "now")]
    if os.environ.get("UPDATE_GOLDEN"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
        more = f"{len(diff) - MOST_LINES} more lines: git diff {name}\n" if len(diff) > MOST_LINES else ""
        written.append("".join(diff[:MOST_LINES]) + more)
        return
    raise AssertionError(f"{name} changed; if that is intended, run with UPDATE_GOLDEN=1 and review:\n{''.join(diff)}")


class Readable(yaml.SafeDumper):
    """Without anchors, texts of several lines as blocks, and digests left out, which are not the subject of a manifest."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def text(self, text: str) -> yaml.Node:
        shown = "(sha256)" if re.fullmatch(r"[0-9a-f]{64}", text) else text
        return self.represent_scalar("tag:yaml.org,2002:str", shown, style="|" if "\n" in text else None)


Readable.add_representer(str, Readable.text)


# -- a change in one place -------------------------------------------------------------------------------------------------------


def by_name(value: Any) -> Any:
    """The value with the names of files of the library instead of their content: each text and object that equals a whole file.

    The file itself shows its changes. ``stacks/files.txt`` has a digest of each of these files.
    """
    if isinstance(value, str):
        name = _texts().get(value)
        return f"(file {name})" if name else value
    if isinstance(value, list):
        return [by_name(item) for item in value]
    if isinstance(value, dict):
        name = next((name for name, content in _contents().items() if content == value), None)
        return f"(file {name})" if name else {key: by_name(item) for key, item in value.items()}
    return value


def named(value: Any) -> set[str]:
    """The files of the library that a value has in it."""
    return {*_texts().values()} & set(re.findall(r"\(file ([\w./-]+)\)", json.dumps(by_name(value))))


@cache
def _texts() -> Mapping[str, str]:
    """Names of the library's files by their text. Shorter ones would be found where somebody wrote the same."""
    found = ((path.relative_to(LIBRARY).as_posix(), path) for path in sorted(LIBRARY.rglob("*")) if path.is_file())
    texts = {path.read_text("utf-8"): name for name, path in found if "__pycache__" not in name}
    return {text: name for text, name in texts.items() if text.count("\n") > 3}


@cache
def _contents() -> Mapping[str, Any]:
    """What the assets in YAML say, by name."""
    return {
        path.relative_to(LIBRARY).as_posix(): yaml.safe_load(path.read_text("utf-8")) for path in LIBRARY.rglob("assets/*.yaml")
    }


def once(texts: Mapping[str, Iterable[str]]) -> Mapping[str, str]:
    """Each text of several owners once, in the order in which they come, with its owners: ``all``, or their names."""
    found: dict[str, list[str]] = {}
    for owner, several in texts.items():
        for text in dict.fromkeys(several):
            found.setdefault(text, []).append(owner)
    return {text: "all" if len(owners) == len(texts) > 1 else " ".join(owners) for text, owners in found.items()}


def sections(texts: Mapping[str, Iterable[str]], head: str = "\n# ") -> str:
    """Each text of several owners once, below its owners. Its first line, which names it, gives the order."""
    found = once(texts)
    shown = sorted(found, key=lambda text: text.partition("\n")[0])
    return "".join(f"{head}{found[text]}\n{text.rstrip()}\n" for text in shown).lstrip("\n")
