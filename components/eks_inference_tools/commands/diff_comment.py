"""``eks-inference diff-comment``: posts what a run for a pull request found, from a run that may write comments.

For a workflow on ``workflow_run``. It runs no code of the pull request, and needs nothing but Python: all it knows comes from the
variables that GitHub sets in every job, plus ``GITHUB_TOKEN``.
"""

import argparse
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eks_inference_tools import COMMAND

# The parser is built for every command; HTTP is imported when something is posted.
if TYPE_CHECKING:
    from stackgraph.github.report import Report, Run

HELP = "in a GitHub workflow: post a diff on its pull request"


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the command."""
    parser.description = (
        "In a GitHub workflow on `workflow_run`: takes the report that the finished run left as an artifact, and creates, "
        "updates or removes the one comment on its pull request. Reads GITHUB_TOKEN, GITHUB_API_URL, GITHUB_REPOSITORY and "
        "GITHUB_EVENT_PATH."
    )
    parser.add_argument("--artifact", metavar="NAME", default="stack-diff", help="the artifact's name (default: %(default)s)")
    parser.add_argument(
        "--author",
        metavar="LOGIN",
        default="github-actions[bot]",
        help="whose comments the token writes; others are never touched (default: %(default)s)",
    )


def run(options: argparse.Namespace) -> int:
    """Runs the command and returns its exit code; raises ``ProblemsFound`` where that is 2."""
    from stackgraph.github import comment
    from stackgraph.github.api import GitHub
    from stackgraph.github.report import Run, check_pull_request, left_by

    github = GitHub(_variable("GITHUB_API_URL"), _variable("GITHUB_REPOSITORY"), _variable("GITHUB_TOKEN"))
    finished = Run.of(_event())
    if finished.event != "pull_request":
        print(f"nothing to post: run {finished.id} was for '{finished.event}', not for a pull request")
        return 0
    report = left_by(github, finished, options.artifact, COMMAND)
    if report is None:
        print(f"nothing to post: run {finished.id} left no report in an artifact '{options.artifact}'")
        return 0
    if not check_pull_request(github, finished, report.pull_request):
        print(f"nothing to post: pull request {report.pull_request} has moved on from {finished.head_sha}")
        return 0
    if report.worth_posting:
        outcome = comment.put(github, report.pull_request, body(report, finished), author=options.author)
    else:
        outcome = comment.remove(github, report.pull_request, report.marker, author=options.author)
    print(f"pull request {report.pull_request}: comment {outcome.done} {outcome.url}".rstrip())
    return 0


def body(report: "Report", run: "Run") -> str:
    """The comment as it is posted, never longer than GitHub takes."""
    from stackgraph.github.comment import LONGEST_BODY, length

    origin = f"<sub>[Full report]({run.url}) · {run.head_sha} · made by the code of that commit</sub>"
    text = f"{report.text.rstrip()}\n\n{origin}\n"
    if length(text) > LONGEST_BODY:
        return f"{report.marker}\nThe report is too long for a comment.\n\n{origin}\n"
    return text


def _event() -> Any:
    from stackgraph.problems import Problem, ProblemsFound

    path = Path(_variable("GITHUB_EVENT_PATH"))
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ProblemsFound([Problem(f"cannot be read: {error}", file=str(path), key="GITHUB_EVENT_PATH")]) from error


def _variable(name: str) -> str:
    from stackgraph.problems import Problem, ProblemsFound

    # A secret that was pasted often ends with a newline.
    value = os.environ.get(name, "").strip()
    if not value:
        hint = "env: GITHUB_TOKEN: ${{ github.token }}" if name == "GITHUB_TOKEN" else "GitHub sets it in every job"
        raise ProblemsFound([Problem("not set", key=name, hint=hint)])
    return value
