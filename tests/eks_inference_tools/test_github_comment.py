"""``eks-inference diff-comment`` against GitHub's API on loopback: what is posted, what is left alone, what is refused."""

import json
import re
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from comparisons import comparison, planted
from eks_inference_tools import COMMAND
from eks_inference_tools.cli import main
from eks_inference_tools.reading.titles import TITLES
from github_api import BOT, REPOSITORY, GitHubApi, zipped
from hostile_artifacts import ARTIFACTS, FORGED, SPEECH
from inert import assert_inert
from stackgraph.diff.markdown import render_markdown
from stackgraph.diff.saved import read_contents
from stackgraph.github import LONGEST_BODY
from stackgraph.github.report import Report, read
from stackgraph.github.rest_api import GitHub, GitHubError, Outcome, put, remove
from stackgraph.graph.wording import utf16_length
from stackgraph.problems import ProblemsFound

MARKER = "<!-- eks-inference diff -->"
BODY = f"{MARKER}\n1 stack: +1\n"
PULL, RUN, SHA, FORK = 12, 77, "a" * 40, "contributor/stacks"
LINKS = f"https://github.example/{REPOSITORY}"
RUN_URL = f"{LINKS}/actions/runs/{RUN}"


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[GitHubApi]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with GitHubApi() as running:
        running.pull_request(PULL, sha=SHA, repository=FORK)
        yield running


@pytest.fixture
def waits() -> list[float]:
    return []


@pytest.fixture
def github(api: GitHubApi, waits: list[float]) -> GitHub:
    return GitHub(api.url, REPOSITORY, api.token, sleep=waits.append, clock=lambda: 1_800_000_000)


class Job:
    """Runs the command as a job on ``workflow_run`` does."""

    def __init__(self, api: GitHubApi, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.api, self._capsys = api, capsys
        self.run_of_event: dict[str, Any] = {
            "id": RUN,
            "event": "pull_request",
            "head_sha": SHA,
            "head_repository": {"full_name": FORK},
            "html_url": RUN_URL,
        }
        self._event = folder / "event.json"
        monkeypatch.setenv("GITHUB_API_URL", api.url)
        monkeypatch.setenv("GITHUB_REPOSITORY", REPOSITORY)
        monkeypatch.setenv("GITHUB_TOKEN", api.token)
        monkeypatch.setenv("GITHUB_EVENT_PATH", str(self._event))

    def left(self, owner: str = "team-b", **what: Any) -> None:
        """An artifact of the run with a comparison. ``what`` goes to ``comparison``."""
        self.left_files({"diff.json": json.dumps(comparison(owner, **what))})

    def left_files(self, files: Mapping[str, str | bytes]) -> None:
        """An artifact of these files, and of the number of the pull request where they have none."""
        self.api.artifact(RUN, "stack-diff", {"pull-request": f"{PULL}\n", **files})

    def run(self, *arguments: str, project: str = COMMAND) -> tuple[int, str]:
        self._event.write_text(json.dumps({"workflow_run": self.run_of_event}))
        code = main(["diff-comment", "--project", project, *arguments])
        printed = self._capsys.readouterr()
        assert self.api.token not in printed.out + printed.err
        return code, printed.out + printed.err

    def refused(self, *words: str) -> None:
        """The command ends with 2, says this, and has changed nothing."""
        code, said = self.run()
        assert code == 2
        assert all(word in said for word in words), said
        assert not self.api.writes


@pytest.fixture
def job(api: GitHubApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Job:
    return Job(api, tmp_path, monkeypatch, capsys)


def bodies(api: GitHubApi) -> list[str]:
    return [one["body"] for one in api.comments[PULL]]


# -- the comment's life ----------------------------------------------------------------------------------------------------------


def test_the_first_report_becomes_a_comment_that_says_where_it_comes_from(api, job):
    job.left()
    code, said = job.run()
    assert code == 0
    (body,) = bodies(api)
    assert_inert(body, marker=MARKER, links=LINKS)
    assert "+ tags.owner: team-b" in body
    assert "**Unverified:** the code of this pull request made these figures, and `fail-on` in its run is advisory." in body
    assert f"[Run and full report]({RUN_URL}) of {SHA}." in body
    assert f"({LINKS}/blob/{SHA}/infra/buckets.py#L7)" in body, "files of the commit that GitHub names"
    assert f"pull request {PULL}: comment created https://github.example/" in said


def test_the_next_report_replaces_it(api, job):
    job.left()
    job.run()
    job.left("team-c")
    _, said = job.run()
    (body,) = bodies(api)
    assert "+ tags.owner: team-c" in body
    assert [method for method, _ in api.writes] == ["POST", "PATCH"]
    assert "comment updated" in said


def test_the_same_report_changes_nothing(api, job):
    job.left()
    job.run()
    # The web page writes lines this way when somebody edits a comment.
    api.comments[PULL][0]["body"] = api.comments[PULL][0]["body"].replace("\n", "\r\n")
    api.requests.clear()
    _, said = job.run()
    assert not api.writes
    assert "comment unchanged" in said


def test_a_report_of_no_change_removes_it(api, job):
    job.left()
    job.run()
    job.left("team-a")
    _, said = job.run()
    assert not bodies(api)
    assert "comment removed" in said
    _, said = job.run()
    assert "comment absent" in said


def test_a_stack_that_failed_is_posted_though_nothing_changes(api, job):
    job.left("team-a", failed=True)
    job.run()
    (body,) = bodies(api)
    assert "a.py:3: it broke" in body


def test_it_is_found_among_hundreds_of_comments(api, job):
    for number in range(230):
        api.comment(PULL, f"comment {number}", "somebody")
    mine = api.comment(PULL, BODY)
    for number in range(30):
        api.comment(PULL, f"later {number}", "somebody")
    job.left("new")
    job.run()
    assert "tags.owner: new" in mine["body"]
    assert len(bodies(api)) == 261
    assert [request.query["page"] for request in api.requests if request.path.endswith("/comments")] == ["1", "2", "3"]


@pytest.mark.parametrize(
    ("body", "author"),
    [
        (BODY, "contributor"),
        (BODY, "another[bot]"),
        (BODY, None),
        ("<!-- coverage -->\n90 %", BOT),
        (f"Look:\n{MARKER}\n", BOT),
        ("<!-- eks-inference diff: other -->\n1 stack: +1", BOT),
        (f"{MARKER} and more", BOT),
    ],
)
def test_what_others_wrote_is_not_touched(api, job, body, author):
    api.comment(PULL, body, author)
    job.left()
    job.run()
    assert bodies(api)[0] == body
    assert len(bodies(api)) == 2
    job.left("team-a")
    job.run()
    assert bodies(api) == [body]


def test_another_author_can_be_named(api, job):
    api.comment(PULL, BODY, BOT)
    mine = api.comment(PULL, BODY, "stacks[bot]")
    job.left("new")
    job.run("--author", "stacks[bot]")
    assert "tags.owner: new" in mine["body"]
    assert bodies(api)[0] == BODY


def test_projects_have_comments_of_their_own(api, job):
    job.left()
    job.run()
    job.left(project="shop")
    job.run(project="shop")
    one, other = bodies(api)
    assert one.startswith(f"{MARKER}\n")
    assert other.startswith("<!-- eks-inference diff: shop -->\n")


comments = st.lists(st.tuples(st.sampled_from([BODY, f"{MARKER}\nold", "<!-- x -->", "text"]), st.sampled_from([BOT, "a", None])))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(comments)
def test_whatever_is_there_one_comment_is_left_then_none(api, github, existing):
    api.comments[PULL] = []
    for body, author in existing:
        api.comment(PULL, body, author)
    others = [body for body, author in existing if not (author == BOT and body.startswith(MARKER))]

    put(github, PULL, BODY, author=BOT)
    assert sorted(bodies(api)) == sorted([*others, BODY])
    before = len(api.writes)
    assert put(github, PULL, BODY, author=BOT).done == "unchanged"
    assert len(api.writes) == before
    assert remove(github, PULL, MARKER, author=BOT).done == "removed"
    assert sorted(bodies(api)) == sorted(others)


# -- lengths ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.parametrize("letter", ["x", "é", "🚀"])
def test_a_report_that_is_too_long_is_cut_and_keeps_its_origin(api, job, letter):
    job.left(letter * 100, buckets=900)
    assert job.run()[0] == 0
    (body,) = bodies(api)
    assert utf16_length(body) <= LONGEST_BODY
    assert "> **Cut:**" in body
    assert_inert(body, marker=MARKER, links=LINKS)


def test_what_github_says_of_a_body_it_refuses_is_shown(api, github):
    with pytest.raises(GitHubError, match="422: Validation Failed; Body is too long"):
        put(github, PULL, f"{MARKER}\n{'x' * LONGEST_BODY}", author=BOT)


# -- whose report it is ----------------------------------------------------------------------------------------------------------


def test_a_report_of_another_repository_than_the_pull_requests_is_refused(api, job):
    api.pull_request(13, sha=SHA, repository="victim/stacks")
    job.left_files({"pull-request": "13", "diff.json": json.dumps(comparison())})
    job.refused("names pull request 13", FORK)


def test_a_deleted_fork_is_nobodys(api, job):
    api.pull_request(PULL, sha=SHA, repository=None)
    job.run_of_event["head_repository"] = None
    job.left()
    job.refused(f"names pull request {PULL}")


def test_a_report_of_an_older_commit_is_not_posted(api, job):
    api.pull_request(PULL, sha="b" * 40, repository=FORK)
    job.left()
    code, said = job.run()
    assert code == 0
    assert "has moved on" in said
    assert not api.writes


def test_only_runs_for_pull_requests_are_posted(api, job):
    job.run_of_event["event"] = "push"
    code, said = job.run()
    assert code == 0
    assert "not for a pull request" in said
    assert not api.requests


def test_an_archive_that_is_too_large_is_not_downloaded(api, job):
    api.artifact(RUN, "stack-diff", {"pull-request": "12"}, size=1 << 30)
    job.refused("has 1073741824 bytes", "at most")
    assert not api.downloads


def test_a_run_without_a_report_posts_nothing(api, job):
    api.comment(PULL, BODY)
    api.artifact(RUN, "another", {"pull-request": "12"})
    api.artifact(RUN, "stack-diff", {"pull-request": "12"}, expired=True)
    code, said = job.run()
    assert code == 0
    assert "left no report in an artifact 'stack-diff'" in said
    job.left_files({})
    assert job.run()[0] == 0
    assert not api.writes


def test_of_a_run_that_was_repeated_the_last_attempt_is_read(api, job):
    job.left("first")
    job.left("second")
    job.run()
    assert "tags.owner: second" in bodies(api)[0]


def test_the_token_goes_to_the_api_alone(api, job):
    job.left()
    job.run()
    assert all(request.headers["authorization"] == f"Bearer {api.token}" for request in api.requests)
    (download,) = api.downloads
    assert "authorization" not in download.headers


# -- when GitHub refuses ---------------------------------------------------------------------------------------------------------

LIST, MADE = rf"/issues/{PULL}/comments", r"/issues/comments/\d+"


@pytest.mark.parametrize("status", [500, 502, 503, 0])
@pytest.mark.parametrize(("method", "path"), [("GET", LIST), ("PATCH", MADE), ("DELETE", MADE)])
def test_what_fails_for_a_moment_is_asked_again(api, github, waits, method, path, status):
    api.comment(PULL, f"{MARKER}\nold")
    api.fail(method, path, status, b"<html>Unicorn!</html>", times=3)
    if method == "DELETE":
        remove(github, PULL, MARKER, author=BOT)
        assert not bodies(api)
    else:
        put(github, PULL, BODY, author=BOT)
        assert bodies(api) == [BODY]
    assert waits == [1, 2, 4]


def test_what_keeps_failing_is_an_error(api, github, waits):
    api.fail("GET", LIST, 502, b"<html>Unicorn!</html>", times=9)
    with pytest.raises(GitHubError, match=r"GET /issues/12/comments: 502: <html>Unicorn!</html> \(4 attempts\)") as caught:
        put(github, PULL, BODY, author=BOT)
    assert caught.value.status == 502
    assert len(waits) == 3


@pytest.mark.parametrize("status", [502, 0])
@pytest.mark.parametrize("done", [True, False])
def test_a_comment_that_may_have_been_made_is_not_made_twice(api, github, status, done):
    api.fail("POST", LIST, status, "Server Error", done=done)
    outcome = put(github, PULL, BODY, author=BOT)
    assert bodies(api) == [BODY]
    assert outcome == Outcome("created", api.comments[PULL][0]["html_url"])


@pytest.mark.parametrize("status", [400, 499])
def test_a_comment_that_github_refuses_is_not_tried_again(api, github, status):
    api.fail("POST", LIST, status, "refused", times=1)
    with pytest.raises(GitHubError, match="refused"):
        put(github, PULL, BODY, author=BOT)
    assert not bodies(api)


@pytest.mark.parametrize(
    ("status", "message", "headers", "expected"),
    [
        (403, "You have exceeded a secondary rate limit", {"retry-after": "7"}, [7]),
        (429, "slow down", {"retry-after": "7"}, [7]),
        (403, "You have exceeded a secondary rate limit", {}, [60]),
        (429, "slow down", {}, [60]),
        (403, "API rate limit exceeded", {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "1800000020"}, [21]),
        (403, "API rate limit exceeded", {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "1700000000"}, [1]),
    ],
)
def test_rate_limits_are_waited_for_as_github_asks(api, github, waits, status, message, headers, expected):
    api.fail("POST", LIST, status, message, headers=headers)
    assert put(github, PULL, BODY, author=BOT).done == "created"
    assert waits == expected


@pytest.mark.parametrize(
    "headers",
    [{"retry-after": "3600"}, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "1800003599"}],
    ids=lambda given: min(given),
)
def test_a_rate_limit_that_lasts_is_not_waited_for(api, github, waits, headers):
    api.fail("GET", LIST, 403, "API rate limit exceeded", headers=headers)
    with pytest.raises(GitHubError, match="resets in 3600 s"):
        put(github, PULL, BODY, author=BOT)
    assert not waits


def test_waits_for_a_limit_without_a_time_grow_and_end(api, github, waits):
    api.fail("GET", LIST, 403, "You have exceeded a secondary rate limit", times=9)
    with pytest.raises(GitHubError, match="rate limit"):
        put(github, PULL, BODY, author=BOT)
    assert waits == [60, 120]


@pytest.mark.parametrize(
    ("method", "path", "status", "message", "hint"),
    [
        ("POST", LIST, 403, "Resource not accessible by integration", "`pull-requests: write`"),
        ("GET", LIST, 404, "Not Found", "may not see it"),
        ("PATCH", MADE, 404, "Not Found", "may not see it"),
        ("POST", LIST, 422, "Validation Failed", "422: Validation Failed"),
        ("GET", r"/artifacts/\d+/zip", 410, "Artifact has expired", "410: Artifact has expired"),
    ],
)
def test_a_refusal_is_shown_with_what_to_do(api, job, method, path, status, message, hint):
    if method == "PATCH":
        api.comment(PULL, f"{MARKER}\nold")
    job.left()
    api.fail(method, path, status, message)
    code, said = job.run()
    assert code == 2
    assert f"{status}: {message}" in said
    assert hint in said
    assert len([request for request in api.requests if request.method == method]) <= 4


def test_a_comment_that_is_gone_already_is_removed(api, github):
    api.comment(PULL, BODY)
    api.fail("DELETE", MADE, 404, "Not Found")
    assert remove(github, PULL, MARKER, author=BOT).done == "removed"
    api.fail("DELETE", MADE, 403, "no")
    with pytest.raises(GitHubError, match="403: no"):
        github.delete("/issues/comments/1")


def test_a_file_that_is_too_long_is_an_error(api, github):
    api.fail("GET", LIST, 200, b"123", times=2)
    path = f"/issues/{PULL}/comments"
    assert github.download(path, limit=3) == b"123"
    with pytest.raises(GitHubError, match="has more than 2 bytes"):
        github.download(path, limit=2)


def test_an_answer_that_is_not_json_is_an_error(api, github):
    api.fail("GET", LIST, 200, b"<html>a proxy</html>")
    with pytest.raises(GitHubError, match="not JSON"):
        put(github, PULL, BODY, author=BOT)


# -- hostile artifacts -----------------------------------------------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.parametrize("name", ARTIFACTS)
def test_a_hostile_artifact_is_refused_or_inert(api, job, name):
    artifact = ARTIFACTS[name]
    others = ["<!-- eks-inference diff: shop -->\nof another project", "<!-- sticky -->\nof another bot"]
    for other in others:
        api.comment(PULL, other)
    api.artifact(RUN, "stack-diff", artifact.archive())
    if artifact.refused:
        job.refused(artifact.refused)
        return
    code, said = job.run()
    assert code == 0, said
    *untouched, body = bodies(api)
    assert untouched == others
    assert_inert(body, marker=MARKER, links=LINKS)
    assert FORGED not in body
    assert not [line for line in said.splitlines() if line.lstrip().startswith("::")]


of_diff = partial(read_contents, shown="diff.json", titles=TITLES, project=COMMAND, tool=COMMAND, link="")


@pytest.mark.parametrize("name", [name for name, artifact in ARTIFACTS.items() if artifact.refused])
def test_reading_refuses_what_is_hostile(name):
    with pytest.raises(ProblemsFound, match=re.escape(ARTIFACTS[name].refused)):
        of_diff((read(ARTIFACTS[name].archive()) or Report(1, b"")).diff)


def test_the_largest_artifact_is_read():
    more = {str(number): "" for number in range(98)}
    found = read(zipped({"pull-request": f"{'9' * 10:32}", "diff.json": b" " * (8 << 20), **more}))
    assert found == Report(9_999_999_999, b" " * (8 << 20))
    assert read(zipped({"pull-request": "1"})) is None


def test_there_are_enough_hostile_artifacts():
    assert len(ARTIFACTS) >= 40
    assert len([artifact for artifact in ARTIFACTS.values() if not artifact.refused]) >= 12


fragments = st.lists(st.sampled_from(SPEECH), min_size=1, max_size=4).map("".join)


@given(fragments, st.sampled_from([LONGEST_BODY, 3000]))
def test_whatever_a_document_says_is_inert(text, limit):
    read = {"project": COMMAND, "tool": COMMAND, "link": f"{LINKS}/blob/{SHA}"}
    told = read_contents(json.dumps(planted(text)).encode(), shown="diff.json", titles=TITLES, **read)
    assert_inert(render_markdown(told, limit, f"**Unverified:** [run]({RUN_URL})"), marker=MARKER, links=LINKS)


# -- the environment -------------------------------------------------------------------------------------------------------------


def test_a_server_that_repeats_the_token_does_not_make_it_show(api, job):
    job.left()
    api.fail("POST", LIST, 403, f"Bearer {api.token} may not do this")
    code, said = job.run()
    assert code == 2
    assert "Bearer *** may not do this" in said


def test_a_wrong_token_is_said_to_be_wrong(api, job, monkeypatch):
    monkeypatch.setenv("GITHUB_TOKEN", "ghs_another")
    job.refused("401: Bad credentials", "invalid")


def test_a_token_with_a_newline_behind_it_is_a_token(api, job, monkeypatch):
    monkeypatch.setenv("GITHUB_TOKEN", f"{api.token}\n")
    job.left()
    assert job.run()[0] == 0


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("GITHUB_TOKEN", "", "GITHUB_TOKEN: not set"),
        ("GITHUB_TOKEN", "ghs_loopback\nX-Other: 1", "GITHUB_TOKEN: not a token"),
        ("GITHUB_REPOSITORY", "team/stacks/../other", "GITHUB_REPOSITORY: not a repository"),
        ("GITHUB_API_URL", "file:///etc/passwd", "GITHUB_API_URL: not a URL"),
        ("GITHUB_EVENT_PATH", "/nowhere/event.json", "GITHUB_EVENT_PATH: cannot be read"),
    ],
)
def test_an_environment_that_is_not_a_jobs_is_refused(job, monkeypatch, name, value, said):
    monkeypatch.setenv(name, value)
    job.refused(said)


@pytest.mark.parametrize("project", ["", "a b", "x -->\n@org/team", "../x", "p" * 101])
def test_a_project_has_a_name_of_a_project(job, capsys, project):
    with pytest.raises(SystemExit) as ended:
        job.run(project=project)
    assert ended.value.code == 2
    assert "allowed: a name of letters" in capsys.readouterr().err


def test_another_event_is_refused(job):
    job.run_of_event = {}
    job.refused("not the event of a finished run", "on: workflow_run")


def test_a_host_that_is_not_there_is_an_error(waits):
    github = GitHub("http://127.0.0.1:9", REPOSITORY, "ghs_loopback", sleep=waits.append)
    with pytest.raises(GitHubError, match="no response") as caught:
        github.get("/pulls/1")
    assert caught.value.status == 0
    assert waits == [1, 2, 4]
