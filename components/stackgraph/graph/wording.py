"""Numbers in words, and lines that are kept short."""

ELLIPSIS = "…"


def counted(number: int, one: str, many: str = "") -> str:
    """``1 resource``, ``2 resources``; ``many`` is the plural where it is not just an s more."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def shorten(line: str, width: int) -> str:
    """The line, cut in the middle when it is longer than ``width``: both ends of an ARN or an image tell something."""
    if len(line) <= width:
        return line
    if width <= 1:
        return ELLIPSIS[:width]
    tail = (width - 1) // 2
    return line[: width - 1 - tail] + ELLIPSIS + (line[-tail:] if tail else "")
