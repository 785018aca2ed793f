"""Renders findings for a terminal and as JSON."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Unpack

from rich.console import RenderableType

from eks_inference_tools.doctor.findings import Finding, Verdict, counted, overall
from stackgraph.graph.values import plain, text
from stackgraph.presentation.output import Drawing, json_text
from stackgraph.presentation.terminal import Paragraph, drawn, words

SCHEMA = 1
SHAPE = {"stack": str, "verdict": Verdict, "findings": [Finding]}
_STYLES = {"ok": "green", "warning": "yellow", "unknown": "magenta", "error": "red"}
_NAMES = {"unknown": "not known"}
_WIDTH = max(map(len, (*_STYLES, *_NAMES.values())))


def document(stack: str, findings: Sequence[Finding]) -> str:
    """The findings of one stack as JSON, with what was read."""
    return json_text(
        {
            "schema": SCHEMA,
            "stack": stack,
            "verdict": overall(findings),
            "findings": [
                {key: getattr(finding, key) for key in ("topic", "verdict", "text", "remedy", "request")}
                | {"facts": plain(finding.facts)}
                for finding in findings
            ],
        }
    )


def shown(stack: str, findings: Sequence[Finding], **drawing: Unpack[Drawing]) -> str:
    """One line or paragraph for each verdict, below its topic. Commands are never wrapped, so that users can copy them."""
    lines: list[RenderableType] = [words(text(stack), "bold").append(f"  {counted(findings)}")]
    topics = tuple(dict.fromkeys(finding.topic for finding in findings))
    for topic, members in groupby(sorted(findings, key=lambda finding: topics.index(finding.topic)), key=lambda one: one.topic):
        lines += ["", words(topic, "bold underline"), *(line for member in members for line in _lines(member))]
    return drawn(lines, **drawing)


def _lines(finding: Finding) -> Iterator[RenderableType]:
    name = _NAMES.get(finding.verdict, finding.verdict)
    yield Paragraph(words(finding.text), words("  ").append(f"{name:{_WIDTH}}", _STYLES[finding.verdict]).append("  "))
    margin = " " * (_WIDTH + 4)
    if finding.remedy:
        yield Paragraph(words(finding.remedy), f"{margin}→ ")
    if finding.request:
        yield words(f"{margin}$ {finding.request}")
