"""Logical names that AWS can still take once Pulumi has added its suffix."""

import hashlib

_PULUMI_SUFFIX = 8  # a hyphen and seven random characters; Pulumi fails, it does not shorten
_DIGEST = 7  # a hyphen and six characters

IAM_ROLE = 64
NODE_GROUP = 63
EVENT_RULE = 64
"""Most characters of a name, by the service's API reference."""


def within(limit: int, name: str) -> str:
    """The name, or where it is too long its beginning and a digest of the whole, so that different names stay different."""
    return shortened(limit - _PULUMI_SUFFIX, name)


def shortened(longest: int, name: str) -> str:
    """The same where Pulumi adds nothing."""
    if len(name) <= longest:
        return name
    return f"{name[: longest - _DIGEST].rstrip('-')}-{hashlib.sha256(name.encode()).hexdigest()[: _DIGEST - 1]}"
