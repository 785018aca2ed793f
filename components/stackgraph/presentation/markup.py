"""Builds HTML and SVG. Every string that is not ``Markup`` is escaped, so a value cannot become markup."""

import re

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
