"""What messages of AWS, the kubelet and pods mean, and which page of docs/runbook says what to do."""

import re
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files


def meaning(message: str) -> str:
    """What a message means; empty where nobody wrote it down."""
    return _cause(message).get("means", "")


def runbook(*messages: str) -> tuple[str, ...]:
    """The pages about messages, as paths in the repository; the list of all pages where none is about any of them."""
    found = dict.fromkeys(cause["page"] for message in messages if (cause := _cause(message)))
    return tuple(f"docs/runbook/{page}.md" for page in found or ("README",))


def _cause(message: str) -> Mapping[str, str]:
    return next((row for row in causes() if re.search(row["pattern"], message)), {})


@cache
def causes() -> Sequence[Mapping[str, str]]:
    """The rows of ``causes.toml``, in order: the first that fits counts."""
    found = tomllib.loads(files("eks_inference_tools.reading").joinpath("causes.toml").read_text(encoding="utf-8"))
    return (*found["cause"], *({"pattern": pattern, "page": page} for page, pattern in found["words"].items()))
