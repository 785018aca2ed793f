"""The least IAM policy with which the doctor can ask everything about a stack. Pure."""

from collections.abc import Iterable
from typing import Any

from eks_inference_tools.doctor.questions import Call, Inquiry


def policy(inquiries: Iterable[Inquiry]) -> dict[str, Any]:
    """The policy's document. Actions that share their resources share a statement."""
    resources: dict[str, set[str]] = {}
    for asked in (question for one in inquiries for question in one.questions):
        if isinstance(asked, Call) and asked.permission:
            resources.setdefault(asked.permission, set()).add(asked.resource)
    actions: dict[tuple[str, ...], list[str]] = {}
    for permission, on in sorted(resources.items()):
        actions.setdefault(("*",) if "*" in on else tuple(sorted(on)), []).append(permission)
    return {
        "Version": "2012-10-17",
        "Statement": [
            {"Effect": "Allow", "Action": allowed, "Resource": "*" if on == ("*",) else list(on)}
            for on, allowed in sorted(actions.items())
        ],
    }
