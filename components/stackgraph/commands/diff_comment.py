"""``diff-comment``: posts the diff of a finished workflow run as a comment on its pull request.

For a workflow on ``workflow_run``, which may write comments. It runs no code of the pull request and needs only Python, the
variables that GitHub sets in every job, and ``GITHUB_TOKEN``. The comment is rendered here, from data: the pull request's run
decides what the figures are, but neither the markup around them nor which comment they are in.
"""

import argparse
import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stackgraph.diff.contents import Contents
    from stackgraph.diff.titles import Titles
    from stackgraph.github.report import Run

HELP = "in a GitHub workflow: post a diff on its pull request"
EXAMPLES = ("diff-comment --project shop",)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "In a GitHub workflow on `workflow_run`: takes the report from an artifact of the finished run, and creates, updates or "
        "removes the comment on its pull request. Reads GITHUB_TOKEN, GITHUB_API_URL, GITHUB_REPOSITORY and GITHUB_EVENT_PATH."
    )
    parser.add_argument(
        "--project", metavar="NAME", required=True, type=_project, help="the project's name in its Pulumi.yaml; marks the comment"
    )
    parser.add_argument("--artifact", metavar="NAME", default="stack-diff", help="the artifact's name (default: %(default)s)")
    parser.add_argument(
        "--author",
        metavar="LOGIN",
        default="github-actions[bot]",
        help="author of the comments that the token writes; others are never changed (default: %(default)s)",
    )


def run(options: argparse.Namespace) -> int:
    from stackgraph.diff.titles import NO_TITLES

    return post(options, "stackgraph", NO_TITLES)


def post(options: argparse.Namespace, command: str, titles: "Titles") -> int:
    """Posts the report of the run, whose figures have these titles, in the name of a command. Returns the exit code."""
    from stackgraph.diff.markdown import marker
    from stackgraph.diff.saved import read_contents
    from stackgraph.github import rest_api
    from stackgraph.github.report import Run, check_pull_request, left_by
    from stackgraph.github.rest_api import GitHub

    github = GitHub(_variable("GITHUB_API_URL"), _variable("GITHUB_REPOSITORY"), _variable("GITHUB_TOKEN"))
    finished = Run.of(_event())
    if finished.event != "pull_request":
        print(f"nothing to post: run {finished.id} was for '{finished.event}', not for a pull request")
        return 0
    report = left_by(github, finished, options.artifact)
    if report is None:
        print(f"nothing to post: run {finished.id} left no report in an artifact '{options.artifact}'")
        return 0
    if not check_pull_request(github, finished, report.pull_request):
        print(f"nothing to post: pull request {report.pull_request} has moved on from {finished.head_sha}")
        return 0
    told = read_contents(
        report.diff,
        shown="diff.json",
        project=options.project,
        tool=command,
        link=finished.files,
        titles=titles,
    )
    if told.changed or told.failed:
        outcome = rest_api.put(github, report.pull_request, body(told, finished), author=options.author)
    else:
        outcome = rest_api.remove(github, report.pull_request, marker(told), author=options.author)
    print(f"pull request {report.pull_request}: comment {outcome.done} {outcome.url}".rstrip())
    return 0


def body(told: "Contents", run: "Run") -> str:
    """The text of the comment, within GitHub's limit."""
    from stackgraph.diff.markdown import render_markdown
    from stackgraph.github import LONGEST_BODY

    origin = (
        "**Unverified:** the code of this pull request made these figures, and `fail-on` in its run is advisory. "
        f"[Run and full report]({run.url}) of {run.head_sha}."
    )
    return render_markdown(told, LONGEST_BODY, origin)


def _project(given: str) -> str:
    from stackgraph.diff.saved import NAME

    if re.fullmatch(NAME.pattern, given):
        return given
    raise argparse.ArgumentTypeError(f"not a name of {NAME.words}: {given}")


def _event() -> Any:
    from stackgraph.problems import Problem, ProblemsFound

    path = Path(_variable("GITHUB_EVENT_PATH"))
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ProblemsFound([Problem(f"cannot be read: {error}", file=str(path), key="GITHUB_EVENT_PATH")]) from error


def _variable(name: str) -> str:
    from stackgraph.problems import Problem, ProblemsFound

    # A pasted secret often ends with a newline.
    value = os.environ.get(name, "").strip()
    if not value:
        hint = "env: GITHUB_TOKEN: ${{ github.token }}" if name == "GITHUB_TOKEN" else "GitHub sets it in every job"
        raise ProblemsFound([Problem("not set", key=name, hint=hint)])
    return value
