"""Judges a comment as its readers do: GitHub, which renders it, and bots, which look for names and marks in its raw text."""

import html
import re
from collections.abc import Iterator

from markdown_it import MarkdownIt
from markdown_it.token import Token

_TAGS = re.compile(r"</?(details|summary|sub|span)>|<details open>")
_ADDRESSES_SOMEBODY = re.compile(r"@\w|#\d|GH-\d|://|\bwww\.")


def assert_inert(comment: str, *, marker: str, links: str) -> None:
    """Asserts that nothing in a comment is markup, a mention or a command of somebody else's.

    ``marker`` is its first line; ``links`` is what all of its links begin with. The report's last words have to be visible, which
    they are not behind an open fence or comment.
    """
    first, _, rest = comment.partition("\n")
    assert first == marker
    assert "<!--" not in rest
    assert not re.search(r"@(?!sha256:)\w", rest)
    assert not re.search(r"(?m)^\s*/", rest)
    assert rest.lstrip().startswith("### ")
    assert rest.split("\n\n")[1].startswith("**Unverified:**"), "the origin stands before all that the report says"

    tokens = list(_flat(MarkdownIt("commonmark").enable("table").parse(rest)))
    for token in tokens:
        assert token.type != "image"
        if token.type == "link_open":
            assert str(token.attrs["href"]).startswith(links)
    markup = [_TAGS.sub("", token.content) for token in tokens if token.type in ("html_block", "html_inline")]
    assert not [words for words in markup if "<" in words]
    visible = [*map(html.unescape, markup), *(token.content for token in tokens if token.type == "text")]
    assert not [words for words in visible if _ADDRESSES_SOMEBODY.search(words)]
    assert "".join(visible).count("$") == rest.count("<span>&#36;</span>"), "mathematics"
    assert any(words.startswith("This compares two programs") for words in visible)


def _flat(tokens: list[Token]) -> Iterator[Token]:
    for token in tokens:
        yield token
        yield from _flat(token.children or [])
