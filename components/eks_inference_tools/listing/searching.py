"""Free text that a row has to say."""

from collections.abc import Iterable


def says(texts: Iterable[str], told: Iterable[str]) -> bool:
    """Whether each of the texts is a part of something that a row tells. Case does not count."""
    lines = [one.casefold() for one in told]
    return all(any(text.casefold() in line for line in lines) for text in texts)
