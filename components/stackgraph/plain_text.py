"""Makes text of others safe to print: no value, key, message or answer can control a terminal or pass for a line of ours."""


def printable(text: str, keep: str = "") -> str:
    """The text with a space for each letter that is not printable, such as controls and marks of direction, except ``keep``."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() or letter in keep else " " for letter in text)
