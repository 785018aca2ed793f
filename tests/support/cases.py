"""Cases of a parametrized test: a few for `make test`, and all of them for `make thorough`."""

from collections.abc import Container, Iterable
from typing import Any

import pytest


def thorough_but(few: Container[Any], cases: Iterable[Any]) -> list[Any]:
    """Each case, with the mark ``thorough`` unless it is one of ``few``."""
    return [case if case in few else pytest.param(case, marks=pytest.mark.thorough) for case in cases]
