"""Changes that a program asks not to show (``hide_diffs``) are named, and their values are not."""

from typing import Any

import pulumi
import pulumi_aws as aws

from stackgraph.diff.contents import Revision
from stackgraph.diff.markdown import render_markdown
from stackgraph.diff.report import Recorded, Report, StackReport
from stackgraph.diff.telling import contents
from stackgraph.diff.text import render_text
from stackgraph.recorder.recording import record


def test_a_hidden_change_counts_and_is_not_shown():
    def build(content: str, tag: str) -> Any:
        def program() -> None:
            hidden = pulumi.ResourceOptions(hide_diffs=["tags.content"])
            aws.sqs.Queue("q", tags={"content": content, "open": tag}, opts=hidden)

        return program

    base, head = record(build("first-text", "one")), record(build("second-text", "two"))
    report = Report("p", Revision("a"), Revision("b"), [StackReport("dev", Recorded(base), Recorded(head))])
    told = contents(report)
    assert told.count("update") == 1
    for shown in (render_text(told), render_markdown(told, 10_000)):
        assert "tags.content: hidden by hideDiffs" in shown
        assert "one" in shown
        assert "first-text" not in shown
        assert "second-text" not in shown
