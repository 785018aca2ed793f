"""Short texts: counts with their plural, shortened lines, lengths, unique identifiers."""

from collections.abc import Iterable, Sequence

ELLIPSIS = "…"
GAP = "  "
"""Between parts of a line."""


def counted(number: int, one: str, many: str = "") -> str:
    """``1 resource``, ``2 resources``. ``many`` is the plural where adding an s does not make it."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def first_of(names: Sequence[str], most: int) -> str:
    """``a, b and 3 more``."""
    left = len(names) - most
    return ", ".join(names[:most]) + (f" and {left} more" if left > 0 else "")


def shorten(line: str, width: int) -> str:
    """The line, cut in the middle if it is longer than ``width``: both ends of an ARN or an image name carry information."""
    if len(line) <= width:
        return line
    if width < 1:
        return ""
    tail = (width - 1) // 2
    return line[: width - 1 - tail] + ELLIPSIS + line[len(line) - tail :]


def utf16_length(text: str) -> int:
    """The number of UTF-16 code units. However GitHub counts characters, it never counts more."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def numbered(slugs: Iterable[tuple[str, str]], by: str) -> dict[str, str]:
    """Unique identifiers by key: the slug of each key, with ``by`` and a number where an earlier key has it already."""
    ids: dict[str, str] = {}
    taken: set[str] = set()
    for key, slug in slugs:
        found, number = slug, 2
        while found in taken:
            found, number = f"{slug}{by}{number}", number + 1
        taken.add(found)
        ids[key] = found
    return ids
