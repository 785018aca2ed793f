"""Builds HTML and SVG: the page that all reports share, lengths, lines and paths of plots. Every string that is not ``Markup`` is
escaped, so a value cannot become markup.
"""

import math
import re
from base64 import b64encode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files

from markupsafe import Markup, escape

# Code points that HTML does not allow: controls, surrogates, noncharacters.
_NO_CHARACTER = re.compile("[^\n\t\x20-\x7e\xa0-\ud7ff\ue000-\ufdcf\ufdf0-\ufffd\U00010000-\U0010ffff]")
_WITHOUT_END = frozenset(("input", "link", "meta"))


def element(tag: str, *children: str, **attributes: str | int | bool | None) -> Markup:
    """An element. ``class_`` and ``aria_label`` set ``class`` and ``aria-label``. None and False omit an attribute."""
    opened = f"<{tag}{''.join(_attribute(name, value) for name, value in attributes.items())}>"
    return Markup(opened if tag in _WITHOUT_END else f"{opened}{together(*children)}</{tag}>")


def together(*parts: str, by: str = "") -> Markup:
    """The parts joined by ``by``."""
    return escaped(by).join(map(escaped, parts))


def escaped(value: str) -> Markup:
    """The value, safe as text and inside an attribute in double quotes."""
    return value if isinstance(value, Markup) else escape(_NO_CHARACTER.sub("�", value))


def raw(tag: str, content: str) -> Markup:
    """A ``style`` or ``script`` element with trusted content. Raises ``ValueError`` if the content could end the element."""
    if re.search(r"</|<!--", content):
        raise ValueError(f"this content would end the {tag} element")
    return Markup(f"<{tag}>{content}</{tag}>")


def _attribute(name: str, value: str | int | bool | None) -> str:
    if value is None or value is False:
        return ""
    name = name.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{escaped(str(value))}"'


_LEAST = 1e-9  # smaller values count as 0


def length(value: float) -> str:
    """A length in pixels, to one decimal place."""
    return f"{round(value, 1) + 0:.1f}".removesuffix(".0")


def line(class_: str, x1: float, y1: float, x2: float, y2: float) -> Markup:
    return element("line", class_=class_, x1=length(x1), y1=length(y1), x2=length(x2), y2=length(y2))


def rect(class_: str, x: float, y: float, width: float, height: float) -> Markup:
    return element("rect", class_=class_, x=length(x), y=length(y), width=length(width), height=length(height))


def label(class_: str, x: float, y: float, text: str) -> Markup:
    return element("text", text, class_=class_ or None, x=length(x), y=length(y))


def path(class_: str, points: Iterable[tuple[float, float | None]]) -> Markup:
    """A line through the points, with a gap where a value is missing. Empty if all are."""
    drawn, pen = [], "M"
    for x, y in points:
        if y is None or not math.isfinite(y):
            pen = "M"
        else:
            drawn.append(f"{pen}{length(x)},{length(y)}")
            pen = "L"
    return element("path", class_=class_, d=" ".join(drawn)) if drawn else Markup()


def round_steps(largest: float) -> list[float]:
    """Three to six round numbers, from 0 to the first one at or above ``largest``."""
    if largest < _LEAST:
        return [0.0, 1.0]
    power = 10.0 ** math.floor(math.log10(largest / 4))
    step = next(step for step in (power * factor for factor in (1, 2, 2.5, 5, 10)) if largest / step <= 5)
    return [number * step for number in range(math.ceil(round(largest / step, 9)) + 1)]


def picture(
    name: str, title: str, in_words: str, size: tuple[float, float], drawn: Sequence[Markup], **attributes: str | None
) -> Markup:
    """An ``svg`` with a title and a description. ``name`` prefixes its ids; ``size`` is width and height in pixels."""
    width, height = map(length, size)
    prefix = f"{name}-" if name else ""
    return element(
        "svg",
        element("title", title, id=f"{prefix}title"),
        element("desc", f"{in_words}.", id=f"{prefix}words"),
        *drawn,
        **attributes,
        viewBox=f"0 0 {width} {height}",
        width=width,
        height=height,
        role="img",
        aria_labelledby=f"{prefix}title {prefix}words",
    )


# A page is one file and loads nothing from the network.


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
