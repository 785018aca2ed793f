"""Logical names that still fit AWS limits after Pulumi has added its suffix."""

import hashlib

_PULUMI_SUFFIX = 8  # a hyphen and seven random characters; Pulumi fails when the result is too long
_DIGEST = 7  # a hyphen and six characters

IAM_ROLE = 64
NODE_GROUP = 63
EVENT_RULE = 64
"""Maximum length of a name, from the API reference of the service."""


def within(limit: int, name: str) -> str:
    """Returns a name that is at most ``limit`` characters long with Pulumi's suffix; see ``shortened``."""
    return shortened(limit - _PULUMI_SUFFIX, name)


def shortened(longest: int, name: str) -> str:
    """Returns the name. One that is too long is cut and gets a digest of the whole, so that different names stay different."""
    if len(name) <= longest:
        return name
    return f"{name[: longest - _DIGEST].rstrip('-')}-{hashlib.sha256(name.encode()).hexdigest()[: _DIGEST - 1]}"
