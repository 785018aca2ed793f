"""Renders the HTML page that all reports share: head, content security policy, palette, navigation and sections.

A page is one file and loads nothing from the network.
"""

from base64 import b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files

from stackgraph.presentation.markup import Markup, element, escaped, raw, together


@dataclass(frozen=True)
class Section:
    """A section of a page. One without content is not shown."""

    id: str
    title: str
    content: Sequence[Markup]
    count: int | None = None


def asset(package: str, name: str) -> str:
    """The text of a style sheet or script of a package."""
    return files(package).joinpath("assets", name).read_text(encoding="utf-8")


def render_page(
    *,
    title: str,
    header: Sequence[Markup],
    skip: str,
    first: str,
    sections: Iterable[Section],
    footer: Sequence[Markup],
    style: str = "",
    script: str = "",
) -> str:
    """The page. ``skip`` is the text of the skip link, ``first`` the id of its target; ``style`` is added to the common style.

    Strings that are not ``Markup`` are escaped. Equal arguments give equal bytes.
    """
    style = "\n".join(filter(None, (asset("stackgraph.presentation", "base.css"), style)))
    shown = [section for section in sections if section.content]
    # Defence in depth: even if a value became markup, a browser would run and load nothing but these two.
    allowed = f"style-src '{_digest(style)}'" + (f"; script-src '{_digest(script)}'" if script else "")
    return Markup(asset("stackgraph.presentation", "base.html")).format(
        policy=f"default-src 'none'; img-src data:; {allowed}; base-uri 'none'; form-action 'none'",
        title=escaped(title),
        style=raw("style", style),
        first=first,
        skip=escaped(skip),
        header=together(*header),
        contents=together(*map(_entry, shown)),
        sections=together(*map(_section, shown)),
        footer=together(*footer),
        script=raw("script", script) if script else "",
    )


def _entry(section: Section) -> Markup:
    count = element("span", str(section.count), class_="quiet") if section.count else ""
    return element("li", element("a", section.title, href=f"#{section.id}"), " ", count)


def _section(section: Section) -> Markup:
    heading = f"{section.id}-title"
    title = element("h2", section.title, id=heading)
    return element("section", title, *section.content, "\n", id=section.id, aria_labelledby=heading)


def _digest(content: str) -> str:
    return f"sha256-{b64encode(sha256(content.encode()).digest()).decode()}"
