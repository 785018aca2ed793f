"""Reads Dockerfiles: the library's own, and what one declares without a build. No pulumi.

Source: Dockerfile reference, "ARG" and "Escape".
"""

import re
import shlex
from collections.abc import Iterable
from importlib.resources import files
from typing import NamedTuple

NAME = "Dockerfile"

_ARG = re.compile(r"^\s*ARG\s+(?P<rest>.+)$", re.IGNORECASE | re.MULTILINE)
_FROM = re.compile(r"^\s*FROM\s+\S", re.IGNORECASE | re.MULTILINE)
_CONTINUATION = re.compile(r"\\[ \t]*\n")
_PRIVATE_REPOSITORY = re.compile(
    r"(?<![\w.-])(?P<registry>(?P<account>\d{12})\.dkr\.ecr\.(?P<region>[a-z0-9-]+)\.amazonaws\.com(?:\.cn)?)"
    r"/(?P<repository>[a-z0-9]+(?:[._/-]+[a-z0-9]+)*)"
)


class PrivateRepository(NamedTuple):
    """A private ECR repository."""

    registry: str
    """Host name of the registry."""
    account: str
    region: str
    repository: str

    def arn(self, partition: str) -> str:
        return f"arn:{partition}:ecr:{self.region}:{self.account}:repository/{self.repository}"


def own_dockerfile() -> str:
    """Returns the library's Dockerfile of the Ray Serve image."""
    return files("eks_inference.images").joinpath("assets", NAME).read_text("utf-8")


def has_stage(dockerfile: str) -> bool:
    """Returns whether the text has a FROM instruction."""
    return bool(_FROM.search(dockerfile))


def arguments(dockerfile: str) -> dict[str, str | None]:
    """Returns the build arguments that a Dockerfile declares, in its order, with their defaults.

    A default is None when there is none, when only the build can expand it (``${OTHER}``), or when stages give different ones.
    """
    defaults: dict[str, set[str]] = {}
    for match in _ARG.finditer(_CONTINUATION.sub(" ", dockerfile)):
        for word in _words(match["rest"]):
            name, given, default = word.partition("=")
            if re.fullmatch(r"[A-Za-z_]\w*", name):
                defaults.setdefault(name, set()).update([default] if given else [])
    return {name: _only(values) for name, values in defaults.items()}


def private_repositories(texts: Iterable[str]) -> list[PrivateRepository]:
    """Returns the distinct private ECR repositories that the texts name, sorted."""
    return sorted({PrivateRepository(**match.groupdict()) for text in texts for match in _PRIVATE_REPOSITORY.finditer(text)})


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:  # unbalanced quotes, which BuildKit will report with the line
        return text.split()


def _only(values: set[str]) -> str | None:
    literal = [value for value in values if "$" not in value]
    return literal[0] if len(values) == len(literal) == 1 else None
