"""HTML and SVG in which a value cannot become markup: whatever is no ``Markup`` is escaped where it is put."""

import re

from markupsafe import Markup, escape

# What HTML has no character for: controls, halves of surrogate pairs, noncharacters.
_NO_CHARACTER = re.compile("[^\n\t\x20-\x7e\xa0-\ud7ff\ue000-\ufdcf\ufdf0-\ufffd\U00010000-\U0010ffff]")
_WITHOUT_END = frozenset(("input", "link", "meta"))


def element(tag: str, *children: str, **attributes: str | int | bool | None) -> Markup:
    """An element. ``class_`` and ``aria_label`` are the attributes ``class`` and ``aria-label``; None and False leave one out."""
    opened = f"<{tag}{''.join(_attribute(name, value) for name, value in attributes.items())}>"
    if tag in _WITHOUT_END:
        return Markup(opened)
    return Markup(f"{opened}{together(*children)}</{tag}>")


def together(*parts: str, by: str = "") -> Markup:
    """The parts one after the other."""
    return escaped(by).join(map(escaped, parts))


def escaped(value: str) -> Markup:
    """The value as text or as the value of an attribute in double quotes."""
    return value if isinstance(value, Markup) else escape(_NO_CHARACTER.sub("�", value))


def raw(tag: str, content: str) -> Markup:
    """A ``style`` or ``script`` with a content of ours."""
    if re.search(r"</|<!--", content):
        raise ValueError(f"this cannot stand in a {tag} element")
    return Markup(f"<{tag}>{content}</{tag}>")


def _attribute(name: str, value: str | int | bool | None) -> str:
    if value is None or value is False:
        return ""
    name = name.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{escaped(str(value))}"'
