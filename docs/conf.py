"""Settings of the documentation site, which ``make docs`` builds from this folder into build/site."""

import hashlib
import tomllib
from pathlib import Path

from docutils import nodes
from docutils.parsers.rst import Directive
from sphinx.application import Sphinx
from sphinx.util import logging

HERE = Path(__file__).parent
PROJECT = tomllib.loads((HERE.parent / "pyproject.toml").read_text("utf-8"))["project"]

project = PROJECT["name"]
version = release = PROJECT["version"]
copyright = f"the authors of {project}, {PROJECT['license']}"

extensions = ["myst_parser", "sphinx_copybutton"]
# The documents of Pulumi's registry are for that.
exclude_patterns = ["theme", "workflows", "_index.md", "installation-configuration.md"]
myst_heading_anchors = 4
myst_fence_as_directive = ["mermaid"]
myst_enable_extensions = ["attrs_inline"]
# The pages of components have headings of specs below those of arguments.
suppress_warnings = ["myst.header", "misc.highlighting_failure"]

html_theme = "furo"
html_title = f"{project} {version}"
html_static_path = ["theme"]
html_css_files = ["site.css"]
# The site must read the same from a disk as from a server, and never ask another machine.
html_use_index = False
# Its excerpts are fetched, which browsers refuse to pages from a disk.
html_show_search_summary = False
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {"top_of_page_buttons": []}
pygments_dark_style = "github-dark"


class Mermaid(Directive):
    """Shows the picture of a Mermaid diagram, which tests/support/mermaid_pictures.py rendered: readers need no script.

    The name of a picture is the hash of its diagram, so that no picture outlives its text.
    """

    has_content = True

    def run(self) -> list[nodes.Node]:
        text = "\n".join(self.content).strip()
        picture = HERE / "pictures" / f"mermaid-{hashlib.sha256(text.encode()).hexdigest()[:12]}.svg"
        if not picture.is_file():
            where = (self.state.document.current_source, self.lineno)
            logging.getLogger(__name__).warning(
                "no picture %s: run tests/support/mermaid_pictures.py", picture.name, location=where
            )
            return [nodes.literal_block(text, text)]
        return [nodes.raw("", f'<figure class="diagram">{picture.read_text("utf-8")}</figure>', format="html")]


CONTENTS = {"components/README": "*", "diff": "diff/*", "runbook/README": "*"}
"""Pages below which others are listed, which need no list of contents where they are read on GitHub."""


def with_contents(app: Sphinx, page: str, source: list[str]) -> None:
    if page in CONTENTS:
        source[0] += f"\n```{{toctree}}\n:hidden:\n:glob:\n\n{CONTENTS[page]}\n```\n"


def setup(app: Sphinx) -> None:
    app.connect("source-read", with_contents)
    app.add_directive("mermaid", Mermaid)
