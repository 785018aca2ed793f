"""Renders findings as JSON."""

from collections.abc import Sequence

from eks_inference_tools.doctor.findings import Finding, overall
from stackgraph.graph.values import plain
from stackgraph.presentation.output import json_text

SCHEMA = 1


def render(stack: str, findings: Sequence[Finding]) -> str:
    """The findings of one stack, with what was read."""
    return json_text(
        {
            "schema": SCHEMA,
            "stack": stack,
            "verdict": overall(findings),
            "findings": [
                {key: getattr(one, key) for key in ("topic", "verdict", "text", "remedy", "request")}
                | {"facts": plain(one.facts)}
                for one in findings
            ],
        }
    )
