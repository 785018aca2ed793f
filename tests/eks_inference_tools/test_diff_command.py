"""``eks-inference diff`` between revisions of a repository made here: what it says, writes, leaves behind, and how it ends."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from threading import Lock
from typing import Any

import pytest

from conftest import ROOT
from eks_inference_tools.cli import main
from eks_inference_tools.recorder import READER
from json_schemas import unlike
from stackgraph.diff import recorded
from stackgraph.diff.markdown import render_markdown
from stackgraph.diff.revisions import repository
from stackgraph.diff.saved import read_contents
from stackgraph.diff.titles import NO_TITLES
from stackgraph.graph.document import SEAL
from stackgraph.problems import ProblemsFound
from stackgraph.recorder.recording import record
from stackgraph.revisions import recorder, recorders
from stackgraph.revisions.recorders import without_credentials
from waiting import until

PROGRAM = '''
"""Buckets that the configuration names."""

import pulumi
import pulumi_aws as aws

config = pulumi.Config()
for name in config.require_object("buckets"):
    aws.s3.Bucket(name, tags={"owner": config.get("owner")})
pulumi.export("owner", config.get("owner"))
'''
STACK_FILE = """\
config:
  aws:region: eu-west-1
  demo:owner: {owner}
  demo:buckets: {buckets}
"""


@pytest.fixture
def in_processes() -> None:
    """For tests of what processes of their own are for; they take twenty times as long."""


@pytest.fixture(autouse=True)
def recorded_here(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Revisions are recorded in this process, one after the other, where a test does not ask for ``in_processes``."""
    one_at_a_time = Lock()

    def ask(asking: object, asked: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
        with one_at_a_time, monkeypatch.context() as meanwhile:
            meanwhile.chdir(asked["tree"])
            meanwhile.setattr(sys, "path", [*sys.path])
            meanwhile.setattr(sys, "dont_write_bytecode", True)
            return json.loads(json.dumps([*recorder.record_all(asked, READER)]))

    if "in_processes" not in request.fixturenames:
        monkeypatch.setattr(recorders._Recorders, "ask", ask)


class Repo:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.git("init", "-q", "-b", "main")
        self.write("Pulumi.yaml", "name: demo\nruntime: python\n")
        self.write("__main__.py", PROGRAM)

    def write(self, name: str, text: str) -> None:
        file = self.root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def stack(self, name: str, owner: str, *buckets: str) -> None:
        self.write(f"Pulumi.{name}.yaml", STACK_FILE.format(owner=owner, buckets=json.dumps(buckets)))

    def commit(self, message: str) -> str:
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", message)
        return self.git("rev-parse", "HEAD")

    def git(self, *arguments: str) -> str:
        identity = ("-c", "user.name=Test", "-c", "user.email=test@example.com")
        done = subprocess.run(["git", "-C", str(self.root), *identity, *arguments], check=True, capture_output=True, text=True)
        return done.stdout.strip()


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    return tmp_path / "cache" / "eks-inference" / "diff"


@pytest.fixture
def repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repo:
    root = tmp_path / "repo"
    root.mkdir()
    found = Repo(root)
    found.stack("one", "team-a", "first", "second")
    found.stack("two", "team-a", "first")
    found.commit("base")
    # Hooks, as husky and git-lfs install them, are for the work in a clone.
    found.git("config", "core.hooksPath", "hooks")
    found.write("hooks/post-checkout", f"#!/bin/sh\ntouch {tmp_path}/hook-ran\n")
    (root / "hooks" / "post-checkout").chmod(0o755)
    found.git("add", "hooks")
    found.git("commit", "-q", "--amend", "--no-edit")
    monkeypatch.chdir(root)
    return found


def diff(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["diff", *arguments])
    said = capsys.readouterr()
    assert "Traceback" not in said.err
    return code, said.out, said.err


def as_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    _, out, _ = diff(capsys, *arguments, "--format", "json")
    found = json.loads(out)
    assert not unlike("diff", found)
    return found


@pytest.mark.thorough
def test_two_revisions_stack_by_stack(repo, in_processes, capsys, tmp_path):
    repo.stack("one", "team-b", "second", "third")
    head = repo.commit("head")
    outputs = {name: tmp_path / f"report.{name}" for name in ("markdown", "json", "html")}
    code, out, _ = diff(capsys, "--base", "main~1", "--head", head, *(f"--{name}={file}" for name, file in outputs.items()))
    assert code == 0
    assert "1 of 2 stacks changes: +1 ~1 −1" in out
    assert "one: s3.Bucket first is deleted with its objects" in out
    assert "- tags.owner: team-a" in out
    assert "+ tags.owner: team-b" in out
    assert "unchanged: two" in out
    assert "drift" in out
    found = json.loads(outputs["json"].read_text())
    assert (found["schema"], found["changed"], found["failed"]) == (1, True, [])
    assert found["summary"] == {"create": 1, "update": 1, "replace": 0, "delete": 1, "move": 0, "dependencies": 0, "same": 1}
    assert found["head"] == {"revision": head, "commit": head, "dirty": False}
    told = read_contents(outputs["json"].read_bytes(), shown="", project="demo", tool="eks-inference", link="", titles=NO_TITLES)
    assert told.headline == found["headline"], "the job that comments reads it"
    markdown = outputs["markdown"].read_text()
    assert markdown.startswith(found["marker"] + "\n")
    assert "-->" in found["marker"]
    assert "<h1>" in outputs["html"].read_text()
    assert list((tmp_path / "tmp").iterdir()) == []
    assert repo.git("worktree", "list").count("\n") == 0
    assert not (tmp_path / "hook-ran").exists()


def test_exit_codes_for_gates(repo, capsys):
    assert diff(capsys, "--base", "main", "--exit-code")[0] == 0
    repo.stack("one", "team-b", "first", "second")
    assert diff(capsys, "--base", "main", "--exit-code")[0] == 1
    assert diff(capsys, "--base", "main", "--fail-on", "delete,replace,danger")[0] == 0
    repo.stack("one", "team-a", "first")
    assert diff(capsys, "--base", "main", "--fail-on", "delete")[0] == 1
    assert diff(capsys, "--base", "main", "--fail-on", "danger")[0] == 1
    assert diff(capsys, "--base", "main", "--fail-on", "loss")[0] == 1, "a bucket with its objects"
    assert diff(capsys, "--base", "main", "--fail-on", "outage")[0] == 0
    with pytest.raises(SystemExit) as ended:
        main(["diff", "--fail-on", "everything"])
    assert ended.value.code == 2


@pytest.mark.thorough
def test_the_working_tree_is_compared_as_it_is_and_that_is_said(repo, capsys):
    code, out, _ = diff(capsys, "--base", "HEAD")
    assert code == 0
    assert "No change in 2 stacks" in out
    assert "uncommitted" not in out
    repo.stack("one", "team-z", "first", "second")
    _, out, _ = diff(capsys, "--base", "HEAD")
    assert "working tree" in out
    assert "uncommitted changes" in out
    assert "+ tags.owner: team-z" in out


@pytest.mark.thorough
def test_a_stack_on_one_side_only(repo, capsys):
    repo.stack("three", "team-a", "first")
    (repo.root / "Pulumi.two.yaml").unlink()
    code, out, _ = diff(capsys, "--base", "HEAD")
    assert code == 0
    assert "stack three is new" in out
    assert "stack two no longer has a file" in out
    assert "two: the stack file was deleted: 1 resource would no longer be managed" in out


@pytest.mark.thorough
def test_a_revision_that_fails_fails_its_stack_only(repo, capsys):
    repo.write("Pulumi.one.yaml", "config:\n  aws:region: eu-west-1\n  demo:owner: x\n")
    repo.stack("two", "team-c", "first")
    code, out, _ = diff(capsys, "--base", "HEAD", "--markdown", "comment.md")
    assert code == 2
    assert "one: head failed: __main__.py:8: ConfigMissingError" in out or "one: head failed: __main__.py:8:" in out
    assert "+ tags.owner: team-c" in out
    assert "cannot be compared" in (repo.root / "comment.md").read_text()
    assert as_json(capsys, "--base", "HEAD")["failed"] == ["one"]


@pytest.mark.thorough
def test_a_revision_without_a_project_says_so_for_every_stack(repo, capsys):
    repo.write("Pulumi.yaml", "name: demo\nruntime: go\n")
    repo.commit("not Python any more")
    repo.write("Pulumi.yaml", "name: demo\nruntime: python\n")
    code, out, _ = diff(capsys, "--base", "HEAD")
    assert code == 2
    assert "one: base failed: Pulumi.yaml:2: runtime: only Python programs can be recorded" in out


def test_unknown_and_missing_revisions(repo, capsys, tmp_path, monkeypatch):
    code, _, err = diff(capsys, "--base", "no-such-branch")
    assert code == 2
    assert "error: --base: unknown revision" in err
    assert "no-such-branch" in err
    repo.commit("second")
    shallow = tmp_path / "shallow"
    subprocess.run(["git", "clone", "-q", "--depth", "1", f"file://{repo.root}", str(shallow)], check=True)
    monkeypatch.chdir(shallow)
    code, _, err = diff(capsys, "--base", "HEAD~1")
    assert code == 2
    assert "the clone is shallow" in err
    assert "fetch-depth: 0" in err
    code, _, err = diff(capsys, "--base", "HEAD", "no-such-stack")
    assert code == 2
    assert "no stack 'no-such-stack' on either side" in err


def test_outside_of_a_repository(tmp_path, capsys, monkeypatch):
    (tmp_path / "plain").mkdir()
    monkeypatch.chdir(tmp_path / "plain")
    (tmp_path / "plain" / "Pulumi.yaml").write_text("name: demo\nruntime: python\n")
    (tmp_path / "plain" / "__main__.py").write_text("")
    code, _, err = diff(capsys, "--base", "HEAD")
    assert code == 2
    assert "not a git repository" in err
    assert "two saved graphs" in err


def test_without_a_base_it_is_where_the_main_branch_was_left(repo, capsys):
    repo.git("checkout", "-q", "-b", "topic")
    repo.stack("one", "team-b", "first", "second")
    repo.commit("topic")
    repo.git("checkout", "-q", "main")
    repo.stack("two", "team-q", "first")
    repo.commit("main goes on")
    repo.git("checkout", "-q", "topic")
    _, out, _ = diff(capsys)
    assert "+ tags.owner: team-b" in out
    assert "team-q" not in out
    assert "where main was left" in out


@pytest.mark.thorough
def test_a_base_that_was_recorded_is_not_recorded_again(repo, capsys, own_cache):
    first = as_json(capsys, "--base", "HEAD", "one")
    (kept,) = own_cache.glob("*.json")
    answer = json.loads(kept.read_text())
    assert os.stat(own_cache).st_mode & 0o077 == 0
    answer["graph"]["resources"] = [item for item in answer["graph"]["resources"] if item["name"] != "second"]
    kept.write_text(json.dumps(answer))
    assert as_json(capsys, "--base", "HEAD", "one")["summary"]["create"] == first["summary"]["create"] + 1, "taken from the store"
    repo.commit("the same tree")
    assert as_json(capsys, "--base", "HEAD", "one")["summary"]["create"] == 1, "whatever the commit is called"
    kept.write_text("not JSON")
    assert as_json(capsys, "--base", "HEAD", "one")["changed"] is False


def test_a_recording_by_another_build_of_the_package_or_of_other_parts_is_not_taken(tmp_path: Path, monkeypatch):
    """Only versions of what is installed are known, and a checkout keeps its own."""
    package, builds = tmp_path / "package", set()
    monkeypatch.setattr(recorded, "__file__", str(package / "diff" / "recorded.py"))
    (package / "recorder").mkdir(parents=True)
    for file, text in (("recorder/monitor.py", "pass"), ("recorder/monitor.py", "print()"), ("../beside.py", "pass")):
        (package / file).write_text(text)
        builds.add(recorded._environment.__wrapped__())
    assert len(builds) == 2
    assert recorded.key_of("ab", "c") != recorded.key_of("a", "bc")


@pytest.mark.thorough
@pytest.mark.parametrize("ci", ["true", "1", "woodpecker"])
def test_ci_keeps_and_believes_no_recording(repo, capsys, own_cache, monkeypatch, ci):
    first = as_json(capsys, "--base", "HEAD", "one")
    (kept,) = own_cache.glob("*.json")
    kept.write_text(kept.read_text().replace("team-a", "forged"))
    assert as_json(capsys, "--base", "HEAD", "one")["changed"] is True, "taken from the store"
    forged = kept.read_text()
    monkeypatch.setenv("CI", ci)
    again = as_json(capsys, "--base", "HEAD", "one", "two")
    assert again["changed"] is first["changed"] is False
    assert [file.read_text() for file in own_cache.glob("*.json")] == [forged]


def test_what_was_used_last_is_kept_and_neither_failures_nor_digests_of_secrets(tmp_path, monkeypatch):
    monkeypatch.setattr(recorded, "_MOST_KEPT", 2)
    store = recorded.Store(tmp_path / "cache" / "diff")
    for age, key in enumerate("abc", start=1):
        store.put(key, {"graph": key})
        os.utime(store.folder / f"{key}.json", (age, age))
        assert store.get("a") == {"graph": "a"}
    store.put("d", {"problems": []})
    store.put("e", {"graph": {"password": f"{SEAL}0a1b"}})
    assert {file.stem for file in store.folder.iterdir()} == {"a", "c"}


LEAK = """
import os
import pulumi
import pulumi_aws as aws

aws.s3.Bucket("first", tags=dict(sorted(os.environ.items())))
"""


@pytest.mark.thorough
def test_a_recorded_program_gets_no_credentials(repo, in_processes, capsys, monkeypatch):
    secrets = ("AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "PULUMI_ACCESS_TOKEN", "HF_TOKEN", "GITHUB_TOKEN", "GITHUB_ENV", "DB_PW")
    for name in secrets:
        monkeypatch.setenv(name, f"hunter2-{name}")
    monkeypatch.setenv("HTTPS_PROXY", "http://user:hunter2@proxy:3128")
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    monkeypatch.setenv("DEPLOYMENT_COLOUR", "blue")
    repo.write("__main__.py", LEAK)
    code, out, err = diff(capsys, "--base", "HEAD", "one", "--format", "json")
    assert code == 0
    assert "hunter2" not in out + err
    (bucket,) = (one for one in json.loads(out)["stacks"][0]["resources"] if one["name"] == "first")
    tags = {one["path"]: one.get("after") for one in bucket["properties"]}
    assert (tags["tags.AWS_REGION"], tags["tags.DEPLOYMENT_COLOUR"]) == ("eu-central-1", "blue")


CREDENTIALS = """
    AWS_ACCESS_KEY_ID AWS_CONTAINER_CREDENTIALS_FULL_URI AWS_WEB_IDENTITY_TOKEN_FILE aws_session_token PULUMI_CONFIG
    PULUMI_CONFIG_PASSPHRASE PULUMI_BACKEND_URL HUGGING_FACE_HUB_TOKEN GH_TOKEN ACTIONS_ID_TOKEN_REQUEST_TOKEN GITHUB_OUTPUT
    GITHUB_PATH GOOGLE_APPLICATION_CREDENTIALS ARM_CLIENT_SECRET KUBECONFIG SSH_AUTH_SOCK NPM_TOKEN TWINE_PASSWORD OPENAI_API_KEY
    CI_JOB_TOKEN MYTOKEN DB_PW SIGNING_KEY BASIC_AUTH USER_PASS
"""
KEPT = """
    PATH HOME PWD OLDPWD LANG TZ CI PYTHONPATH VIRTUAL_ENV LD_LIBRARY_PATH TMPDIR AWS_REGION AWS_DEFAULT_REGION STACK KEYBOARD
    MONKEY COMPASS TOKENIZERS_PARALLELISM SSL_CERT_FILE PATTERN
"""


def test_variables_of_credentials_are_left_out_and_others_kept():
    everything = dict.fromkeys(map(str, (CREDENTIALS + KEPT).split()), "https://example.com/@x")
    assert without_credentials(everything).keys() == set(KEPT.split())


def test_a_value_with_a_user_is_a_credential():
    found = {
        "PIP_INDEX_URL": "https://user:word@packages.example/simple",
        "DATABASE_URL": "postgres://me@db/x",
        "URL": "https://a/@b",
    }
    assert without_credentials(found) == {"URL": "https://a/@b"}


@pytest.mark.thorough
def test_a_link_out_of_the_repository_is_not_read(repo, capsys, tmp_path):
    (tmp_path / "elsewhere.txt").write_text("hunter2==1\n")
    repo.write("constraints.txt", "pulumi==3.0.0\n")
    repo.commit("pins")
    (repo.root / "constraints.txt").unlink()
    (repo.root / "constraints.txt").symlink_to(tmp_path / "elsewhere.txt")
    _, out, _ = diff(capsys, "--base", "HEAD")
    assert "hunter2" not in out


@pytest.mark.thorough
def test_a_link_that_leads_to_itself_is_no_file_of_the_repository(repo, capsys):
    (repo.root / "constraints.txt").symlink_to("constraints.txt")
    assert diff(capsys, "--base", "HEAD")[0] == 0


def test_pins_that_change_are_said(repo, capsys):
    repo.write("constraints.txt", "pulumi==3.0.0\npulumi_aws==7.0.0\n")
    repo.commit("pins")
    repo.write("constraints.txt", "pulumi==3.0.0\npulumi_aws==7.1.0\n")
    _, out, _ = diff(capsys, "--base", "HEAD")
    assert "constraints.txt changes (pulumi_aws)" in out
    assert "packages that are installed here" in out


SECRETS = """
import pulumi
import pulumi_aws as aws

value = pulumi.Output.secret("{value}")
aws.ssm.Parameter("one", type="SecureString", value=value)
aws.ssm.Parameter("two", type="SecureString", value=pulumi.Config().require_secret("token"))
"""
SEALED = "config:\n  aws:region: eu-west-1\n  demo:token:\n    secure: {text}\n"


@pytest.mark.thorough
def test_secrets_never_leave_but_a_rotation_shows(repo, in_processes, capsys, own_cache, tmp_path):
    (repo.root / "Pulumi.two.yaml").unlink()
    repo.write("__main__.py", SECRETS.format(value="hunter2-first"))
    repo.write("Pulumi.one.yaml", SEALED.format(text="v1:AAAAAAAA"))
    repo.commit("secrets")
    _, out, _ = diff(capsys, "--base", "HEAD")
    assert "No change" in out
    assert not own_cache.exists() or list(own_cache.iterdir()) == [], "what tells secrets apart is not stored"
    repo.write("__main__.py", SECRETS.format(value="hunter2-second"))
    repo.write("Pulumi.one.yaml", SEALED.format(text="v1:BBBBBBBB"))
    files = {name: tmp_path / name for name in ("markdown", "json", "html")}
    _, out, err = diff(capsys, "--base", "HEAD", *(f"--{name}={file}" for name, file in files.items()))
    said = [out, *(file.read_text() for file in files.values())]
    assert not [words for words in ("hunter2", "AAAAAAAA") if words in "".join((*said, err))]
    assert said[0].count("+ value: [secret] (a different one)") == 2 or "ssm.Parameter one, two" in said[0]
    assert "the encrypted value of demo:token changed" in said[0]
    assert json.loads(said[2])["stacks"][0]["rotatedConfig"] == ["demo:token"]


def test_two_saved_graphs(repo, capsys, tmp_path):
    assert main(["preview", "one", "--format", "json", "-o", str(tmp_path / "base.json")]) == 0
    repo.stack("one", "team-a", "first")
    assert main(["preview", "one", "--format", "json", "-o", str(tmp_path / "head.json")]) == 0
    capsys.readouterr()
    code, out, _ = diff(capsys, str(tmp_path / "base.json"), str(tmp_path / "head.json"))
    assert code == 0
    assert "1 of 1 stack changes: −1" in out
    (tmp_path / "other.json").write_text("[]")
    code, _, err = diff(capsys, str(tmp_path / "base.json"), str(tmp_path / "other.json"))
    assert code == 2
    assert "not a recorded graph" in err
    code, _, err = diff(capsys, str(tmp_path / "base.json"), str(tmp_path / "none.json"))
    assert code == 2
    assert "none.json" in err


@pytest.mark.thorough
def test_colour_only_where_it_is_wanted(repo, capsys, monkeypatch):
    repo.stack("one", "team-b", "first", "second")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert "\x1b[" in diff(capsys, "--base", "HEAD")[1]
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" not in diff(capsys, "--base", "HEAD")[1]


def test_sources_lead_to_the_head_where_the_remote_is_known(repo, capsys):
    repo.stack("one", "team-b", "first", "second")
    repo.write("__main__.py", PROGRAM + "\n")
    head = repo.commit("head")
    arguments = ("--base", "HEAD~1", "--format", "markdown", "one")
    assert "](http" not in diff(capsys, *arguments, "--head", "HEAD")[1]
    for url in ("https://example.com/team/repo", "git@github.com:team/repo.git", "ssh://git@github.com/team/repo.git"):
        repo.git("config", "remote.origin.url", url)
        assert repository(repo.root).link("c") == ("https://github.com/team/repo/blob/c" if "github" in url else "")
    repo.git("config", "remote.origin.url", "https://github.com/team/repo")
    for clean in (("--head", "HEAD"), ()):
        assert f"](https://github.com/team/repo/blob/{head}/__main__.py#L9)" in diff(capsys, *arguments, *clean)[1]
    assert "](https://git.example.com/x/__main__.py#L9)" in diff(capsys, *arguments, "--link", "https://git.example.com/x/")[1]
    repo.write("__main__.py", PROGRAM + "\n\n")
    assert "](http" not in diff(capsys, *arguments)[1], "no commit has these lines"


@pytest.mark.thorough
def test_an_edit_of_a_stack_file_is_told_by_its_keys_and_lines(repo, capsys):
    repo.write("Pulumi.one.yaml", "config:\n  demo:owner: a\n  demo:old: {secure: v1:x}\n  demo:buckets:\n    - first\n")
    repo.commit("base")
    edited = (
        "# Why.\nconfig:\n  demo:owner: b\n  demo:old: {secure: v1:y}\n  demo:new: {deep: {size: 2}}\n  demo:buckets: [first]\n"
    )
    repo.write("Pulumi.one.yaml", edited)
    repo.commit("head")
    arguments = ("--base", "HEAD~1", "--head", "HEAD", "one")
    said = diff(capsys, *arguments)[1]
    _, _, after = said.partition("Settings\n")
    settings, _, changes = after.partition("\n\n")
    assert settings.splitlines() == [
        "  + key demo:new  Pulumi.one.yaml:5",
        '      + new: {"deep": {"size": 2}}',
        "  ~ key demo:owner  Pulumi.one.yaml:3",
        "      - owner: a",
        "      + owner: b",
    ]
    assert "Bucket first" in changes
    assert "__main__.py" not in said
    assert "v1:" not in said

    # The report that another job posts says the same.
    written = json.dumps(as_json(capsys, *arguments)).encode()
    posted = read_contents(written, shown="report", project="demo", tool="t", link="https://x/b", titles=NO_TITLES)
    comment = render_markdown(posted, 60_000)
    assert "[Pulumi.one.yaml:3](https://x/b/Pulumi.one.yaml#L3)" in comment
    assert "__main__.py" not in comment

    # A program that changes too may be why a resource changes.
    repo.write("__main__.py", PROGRAM + "\n")
    said = diff(capsys, "--base", "HEAD~1", "one")[1]
    assert "~ key demo:owner  Pulumi.one.yaml:3" in said
    assert "__main__.py:9" in said


@pytest.mark.thorough
def test_libraries_of_the_repository_are_taken_from_each_revision(repo, in_processes, capsys, monkeypatch, tmp_path):
    repo.write("lib/house/__init__.py", "import pulumi_aws as aws\n\ndef bucket(name):\n    aws.s3.Bucket(name)\n")
    repo.write("installed/name_of.py", "NAME = 'one'\n")
    repo.write(".gitignore", "installed/\n")
    repo.write("__main__.py", "from house import bucket\nfrom name_of import NAME\n\nbucket(NAME)\n")
    repo.commit("a library")
    repo.write(
        "lib/house/__init__.py", "import pulumi_aws as aws\n\ndef bucket(name):\n    aws.s3.Bucket(name, force_destroy=True)\n"
    )
    monkeypatch.setenv("PYTHONPATH", f"{repo.root / 'lib'}{os.pathsep}{repo.root / 'installed'}")
    _, out, _ = diff(capsys, "--base", "HEAD", "one")
    assert "+ forceDestroy: true" in out
    assert "lib/house/__init__.py:4" in out


@pytest.mark.thorough
def test_a_base_whose_library_is_laid_out_otherwise(repo):
    """The recorder is ours, the library is the base's: its rules and its list of secrets are not where ours are."""
    (repo.root / "Pulumi.two.yaml").unlink()
    repo.write("Pulumi.one.yaml", "config:\n  aws:region: eu-west-1\n")
    repo.write("Pulumi.yaml", "name: eks-inference\nruntime: python\n")
    repo.write("__main__.py", "from eks_inference.buckets import bucket\n\nbucket('first')\n")
    repo.write("components/eks_inference/__init__.py", "")
    library = "import pulumi_aws as aws\n\n\ndef bucket(name):\n    aws.s3.Bucket(name{more})\n"
    repo.write("components/eks_inference/buckets.py", library.format(more=""))
    repo.commit("a package of another layout")
    shutil.copytree(
        ROOT / "components",
        repo.root / "components",
        dirs_exist_ok=True,
        ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"),
    )
    repo.write("components/eks_inference/buckets.py", library.format(more=", force_destroy=True"))
    done = subprocess.run(
        [sys.executable, "-m", "eks_inference_tools", "diff", "--base", "HEAD"],
        env={**os.environ, "PYTHONPATH": str(repo.root / "components")},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0
    # A busy machine tells how far it is.
    assert not [line for line in done.stderr.splitlines() if not line.startswith("stacks recorded: ")]
    assert "1 of 1 stack changes: ~1" in done.stdout
    assert "+ forceDestroy: true" in done.stdout
    assert "findings of check are not compared: the rules of the base cannot be run from here" in done.stdout


@pytest.mark.thorough
def test_the_traceback_of_a_program_is_shown_when_it_is_wanted(repo, in_processes, capsys):
    repo.write("__main__.py", "def deep():\n    {}['absent']\n\ndeep()\n")
    assert diff(capsys, "--base", "HEAD", "one")[0] == 2
    assert main(["diff", "--base", "HEAD", "one", "--debug"]) == 2
    said = capsys.readouterr()
    assert "one: head failed: __main__.py:2: KeyError: 'absent'" in said.out
    assert "Traceback" in said.err
    assert ", line 2, in deep" in said.err


THIRD_PARTY = """
import pulumi
import pulumi_aws as aws

DETAIL = {detail!r}


class Vpc(pulumi.ComponentResource):
    \"\"\"Nests as awsx does: parts below parts, through a provider of its own.\"\"\"

    def __init__(self, name, opts=None):
        super().__init__("awsx:ec2:Vpc", name, None, opts)
        vpc = aws.ec2.Vpc(name, cidr_block="10.0.0.0/16", opts=pulumi.ResourceOptions(parent=self))
        for number in range(2):
            subnet = aws.ec2.Subnet(
                f"{{name}}-{{number}}", vpc_id=vpc.id, cidr_block=f"10.0.{{number}}.0/24", opts=pulumi.ResourceOptions(parent=vpc)
            )
            aws.ec2.RouteTable(
                f"{{name}}-{{number}}", vpc_id=vpc.id, tags={{"subnet": subnet.id}}, opts=pulumi.ResourceOptions(parent=subnet)
            )


def tagged(args):
    if args.type_ == "aws:ec2/subnet:Subnet":
        return pulumi.ResourceTransformResult({{**args.props, "tags": {{"detail": DETAIL}}}}, args.opts)


pulumi.runtime.register_resource_transform(tagged)
provider = aws.Provider("away", region="eu-central-1")
Vpc("net", pulumi.ResourceOptions(provider=provider))
"""


@pytest.mark.thorough
def test_a_program_of_others_in_a_folder_of_its_own(repo, capsys):
    repo.write("elsewhere/Pulumi.yaml", "name: theirs\nruntime: python\n")
    repo.write("elsewhere/__main__.py", THIRD_PARTY.format(detail="before"))
    repo.write("elsewhere/Pulumi.dev.yaml", "config:\n  aws:region: eu-west-1\n")
    repo.commit("theirs")
    repo.write("elsewhere/__main__.py", THIRD_PARTY.format(detail="after"))
    code, out, _ = diff(capsys, "--base", "HEAD", "--program", "elsewhere")
    assert code == 0
    assert "1 of 1 stack changes: ~2" in out
    assert "ec2.Subnet net-0, net-1" in out, "equal changes are told once"
    assert "+ tags.detail: after" in out
    _, out, _ = diff(capsys, "--base", "HEAD", "--program", "elsewhere", "--format", "markdown")
    assert out.startswith("<!-- eks-inference diff: theirs -->")


@pytest.mark.thorough
def test_the_same_program_in_one_process_and_in_others(repo, in_processes, capsys, tmp_path):
    """What the processes answer is what the recorder says here."""
    repo.git("checkout", "-q", "-b", "copy")
    values = {"demo:buckets": '["first","second"]', "demo:owner": "team-a", "aws:region": "eu-west-1"}
    graph = record(repo.root / "__main__.py", project="demo", stack="one", config=values, root=repo.root)
    (tmp_path / "here.json").write_text(graph.to_json())
    main(["preview", "one", "--format", "json", "-o", str(tmp_path / "there.json")])
    capsys.readouterr()
    assert as_json(capsys, str(tmp_path / "here.json"), str(tmp_path / "there.json"))["changed"] is False


SLOW = "import pathlib, time\npathlib.Path({flag!r}).touch()\ntime.sleep(600)\n"


@pytest.mark.thorough
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_nothing_is_left_behind_when_it_is_ended(repo, tmp_path, how):
    flag = tmp_path / "running"
    repo.write("__main__.py", SLOW.format(flag=str(flag)))
    repo.commit("slow")
    process = subprocess.Popen(
        [sys.executable, "-m", "eks_inference_tools", "diff", "--base", "HEAD", "one"], cwd=repo.root, stderr=subprocess.DEVNULL
    )
    try:
        until(lambda: flag.exists() or process.poll() is not None)
        assert flag.exists()
        process.send_signal(how)
        assert process.wait(timeout=60) == 130
    finally:
        process.kill()
    assert list((tmp_path / "tmp").iterdir()) == []
    assert repo.git("worktree", "list").count("\n") == 0
    running = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert str(repo.root) not in running


def test_files_of_another_schema_are_refused(tmp_path):
    from stackgraph.graph.document import read_graph

    with pytest.raises(ProblemsFound, match="unsupported graph schema"):
        read_graph({"schema": 99, "resources": []}, "x.json")
    one, function = {"urn": "u", "type": "t", "name": "n"}, {"token": "t", "answer": "file"}
    for wrong, said in (
        ({"resources": [{}]}, "a resource without 'urn'"),
        ({"resources": [one | {"inputs": []}]}, "a resource without a inputs that is a dict"),
        ({"functions": [function]}, "a function without 'args'"),
        ({"functions": [function | {"args": []}]}, "a function without args that are a mapping"),
        ({"outputs": []}, "outputs must be a mapping, and warnings a list"),
    ):
        with pytest.raises(ProblemsFound, match=said):
            read_graph({"schema": 1, "project": "p", "stack": "s", "resources": [one], **wrong}, "x.json")


OPEN_STACK = """\
config:
  aws:region: us-west-2
  eks-inference:stack:
    name: open
    catalog: [./ours.toml]
    pools: {gpu: {instance_types: [g6.xlarge], size: 1}}
    servers: {m: {model: {id: Qwen/Qwen3-0.6B}}}
"""
OWN_ENGINE = """\
[engines.ours]
source = "our registry"
read = "2026-11"
generation = "CUDA"
server = "vllm"
vllm = "0.99.0"
image = "registry.example/vllm:v0.99.0"
architectures = ["ARCHITECTURE"]
minimum_compute_capability = [8, 0]
startup = { node_start_s = 300, image_pull_s = 600, download_s = 600, compile_s = 300, load_s = 300 }
"""


@pytest.mark.thorough
def test_a_value_that_the_stack_file_leaves_open_is_named_where_it_resolves_otherwise(repo, capsys):
    for name in ("one", "two"):
        (repo.root / f"Pulumi.{name}.yaml").unlink()
    repo.write("__main__.py", "from eks_inference import InferencePlatform\n\nInferencePlatform.from_config()\n")
    repo.write("Pulumi.open.yaml", OPEN_STACK)
    repo.write("ours.toml", OWN_ENGINE.replace("ARCHITECTURE", "llama"))
    repo.commit("an engine for another model")
    repo.write("ours.toml", OWN_ENGINE.replace("ARCHITECTURE", "qwen3"))
    repo.commit("a newer engine for this model")
    code, out, _ = diff(capsys, "--base", "HEAD~1", "--format", "json", "--fail-on", "danger")
    assert code == 1
    (told,) = [one for one in json.loads(out)["danger"] if one["kind"] == "resolved-otherwise"]
    assert told["what"] == (
        'the stack file leaves servers.m.engine open: it resolves to "ours" instead of "cuda-vllm-0.30" '
        "(row ours of engines.toml: the newest supported that serves qwen3 on g6 and passes the rules)"
    )


def test_a_project_that_the_base_lacks_is_new(repo, capsys):
    program = "import pulumi, pulumi_aws as aws\naws.sqs.Queue(pulumi.Config().require('name'))\n"
    repo.write("Pulumi.yaml", "name: outer\nruntime: python\nconfig: {never: {type: string}}\n")
    repo.commit("another project above")
    repo.write("inner/Pulumi.yaml", "name: inner\nruntime: python\n")
    repo.write("inner/__main__.py", program)
    repo.commit("inner")
    given = ("--base", "HEAD~1", "--program", "inner", "-c", "name=jobs")
    found = as_json(capsys, *given)
    assert found["summary"]["create"] == 1
    assert "stack dev is new: the base has no such project" in found["notes"]
    assert diff(capsys, *given)[0] == 0


def test_new_warnings_of_a_program_are_told_and_files_that_are_built_later_stop_nothing(repo, capsys):
    repo.write("__main__.py", "import pulumi_aws as aws\n")
    repo.commit("nothing")
    repo.write(
        "__main__.py", "import pulumi, pulumi_aws as aws\naws.s3.BucketObject('o', bucket='b', source=pulumi.FileAsset('x'))\n"
    )
    code, out, _ = diff(capsys, "--base", "HEAD", "one")
    assert code == 0
    told = "the program of stack one newly warns: __main__.py:2: s3.BucketObject o takes the file x, which does not exist"
    assert told in " ".join(out.split())


def test_a_function_that_is_asked_otherwise_is_told(repo, capsys):
    program = "import pulumi_aws as aws\naws.ec2.Instance('i', ami=aws.ec2.get_ami(owners=['amazon']).id)\n"
    repo.write("__main__.py", program)
    repo.commit("amazon")
    for change, told in (
        ("aws.ec2.get_ami(owners=['self'])", True),
        ("(aws.ec2.get_ami(), aws.ec2.get_ami(owners=['amazon']))[1]", False),
    ):
        repo.write("__main__.py", program.replace("aws.ec2.get_ami(owners=['amazon'])", change))
        notes = as_json(capsys, "--base", "HEAD", "one")["notes"]
        assert any("stack one asks aws:ec2/getAmi:getAmi differently than before" in note for note in notes) is told
