"""Renders the Mermaid diagrams of the README and the documents into docs/pictures, so that the site shows them without a script.

The name of a picture is the hash of its diagram (docs/conf.py looks for it), so a changed diagram asks for a new picture. Needs
``chromium`` on PATH and Mermaid's own script, of the npm package ``mermaid``:

    npm pack mermaid@11.16.0 && tar xzf mermaid-11.16.0.tgz package/dist/mermaid.min.js
    .venv/bin/python tests/support/mermaid_pictures.py package/dist/mermaid.min.js
"""

import hashlib
import json
import re
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import browser
from readme import README, blocks

DOCS = README.parent / "docs"
PICTURES = DOCS / "pictures"


def diagrams() -> Mapping[str, str]:
    """Every diagram by the name of its picture."""
    texts = [b.text.strip() for file in (README, *sorted(DOCS.rglob("*.md"))) for b in blocks(file) if b.language == "mermaid"]
    return {f"mermaid-{hashlib.sha256(text.encode()).hexdigest()[:12]}": text for text in texts}


def render(script: Path) -> None:
    """Writes the pictures that are missing, and removes those without a diagram."""
    PICTURES.mkdir(exist_ok=True)
    for old in PICTURES.glob("mermaid-*.svg"):
        if old.stem not in diagrams():
            old.unlink()
    with tempfile.TemporaryDirectory() as folder, browser.page() as page:
        empty = Path(folder) / "page.html"
        empty.write_text(f"<!DOCTYPE html><meta charset='utf-8'><body><script src='{script.resolve().as_uri()}'></script>")
        page.open(empty.as_uri())
        settings = {"startOnLoad": False, "theme": "neutral", "fontFamily": "sans-serif", "flowchart": {"htmlLabels": False}}
        page.run(f"mermaid.initialize({json.dumps(settings)})")
        for name, text in diagrams().items():
            if not (PICTURES / f"{name}.svg").exists():
                svg = page.run(f"mermaid.render({json.dumps(name)}, {json.dumps(text)}).then(made => made.svg)")
                (PICTURES / f"{name}.svg").write_text(re.sub(r"\s+$", "", svg) + "\n", "utf-8")


if __name__ == "__main__":
    render(Path(sys.argv[1]))
