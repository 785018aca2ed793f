"""Models by name: ``plan`` and ``new`` with --hub, against a Hub on loopback that answers well, badly or slowly."""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partialmethod
from pathlib import Path
from typing import Any

import pytest
import yaml
from requests.adapters import HTTPAdapter

from conftest import ROOT
from eks_inference_tools import hub
from eks_inference_tools.cli import main
from loopback import Handler, Request, Served, Server
from waiting import PATIENCE_S

COMMIT = "0123456789abcdef0123456789abcdef01234567"
NAME = "ours/llm-32b"
CONFIG = (ROOT / "tests" / "data" / "model_configs" / "Qwen3-32B.json").read_bytes()
WEIGHTS = 65_524_246_528
"""What the index of Qwen/Qwen3-32B says: 32,762,123,264 weights of two bytes."""
TOKEN = "hf_exampleexampleexample"
Reply = tuple[int, bytes, Mapping[str, str]]


class Site(Served):
    """A Hub with one repository. ``replies`` come before what it would answer, by the last part of a path."""

    def __init__(self) -> None:
        self.files = {"config.json": CONFIG, "model.safetensors.index.json": _index(WEIGHTS)}
        self.replies: dict[str, Callable[[Request], Reply]] = {}
        self.requests: list[Request] = []
        self.servers = [Server(self, _Handler)]

    @property
    def url(self) -> str:
        return f"http://{self.servers[0].address}"


class _Handler(Handler):
    def do_GET(self) -> None:
        asked = self.received()
        self.owner.requests.append(asked)
        *_, revision, file = asked.path.split("/")
        if file in self.owner.replies:
            self.send(*self.owner.replies[file](asked))
        elif not asked.path.startswith(f"/{NAME}/resolve/"):
            self.send(401, b"", {"X-Error-Code": "RepoNotFound"})
        elif revision not in ("main", COMMIT):
            self.send(404, b"", {"X-Error-Code": "RevisionNotFound"})
        elif file in self.owner.files:
            self.send(200, self.owner.files[file], {"X-Repo-Commit": COMMIT})
        else:
            self.send(404, b"", {"X-Error-Code": "EntryNotFound"})


def _index(size: Any) -> bytes:
    return json.dumps({"metadata": {"total_size": size}, "weight_map": {}}).encode()


def _patient(adapter: HTTPAdapter, send: Callable[..., Any], *given: Any, **named: Any) -> Any:
    """Sends a request that waits for its answer as long as a busy machine may take."""
    return send(adapter, *given, **{**named, "timeout": PATIENCE_S})


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    with Site() as site:
        monkeypatch.setenv("HF_ENDPOINT", site.url)
        monkeypatch.delenv("HF_TOKEN", raising=False)
        monkeypatch.setattr(hub, "SECONDS", PATIENCE_S)
        monkeypatch.setattr(HTTPAdapter, "send", partialmethod(_patient, HTTPAdapter.send))
        yield site


def plan(capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, str]:
    code = main(["plan", "--hub", "--instance", "p5.48xlarge", *options])
    captured = capsys.readouterr()
    return code, captured.err or captured.out


# -- what is read ----------------------------------------------------------------------------------------------------------------


def test_a_model_is_judged_by_its_name(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    code, said = plan(capsys, "--model", NAME)
    assert (code, NAME in said) == (0, True)
    assert [asked.path.split("/resolve/")[1] for asked in site.requests] == [
        "main/config.json",
        f"{COMMIT}/hf_quant_config.json",
        f"{COMMIT}/model.safetensors.index.json",
        f"{COMMIT}/modules.json",
    ]
    assert not [asked for asked in site.requests if "authorization" in asked.headers]


def test_a_stack_keeps_the_file_and_the_commit(site: Site, clone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new", "mine", "--model", NAME, "--hub", "--instance", "p5.48xlarge"]) == 0
    written = yaml.safe_load((clone / "stacks" / "Pulumi.mine.yaml").read_text())
    server = written["config"]["eks-inference:stack"]["servers"]["mine"]
    assert server["model"] == {"id": NAME, "revision": COMMIT, "config": "./stacks/mine.config.json"}
    assert (clone / "stacks" / "mine.config.json").read_bytes() == CONFIG
    asked = len(site.requests)
    assert main(["check", "mine"]) == 0
    assert len(site.requests) == asked, "check asks nobody"
    assert "can run: 0 errors" in capsys.readouterr().out


def test_what_modelopt_quantized_is_read_from_its_own_file(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    said = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "NVFP4", "exclude_modules": ["lm_head"]}}
    site.files["hf_quant_config.json"] = json.dumps(said).encode()
    site.files["model.safetensors.index.json"] = _index(int(WEIGHTS * 0.31))
    described = hub.described(NAME)
    assert json.loads(described.config) == {**json.loads(CONFIG), "quantization_config": said}
    assert plan(capsys, "--model", NAME)[0] == 0
    for odd in (b"", b"[]", b"[" * 99_999, b'{"quantization": 3}'):
        site.files["hf_quant_config.json"] = odd
        assert plan(capsys, "--model", NAME)[0] == 2, odd[:40]


@pytest.mark.thorough
def test_a_repository_for_embeddings_is_served_as_such(site: Site, clone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    site.files["modules.json"] = b"[]"
    assert main(["new", "mine", "--model", NAME, "--hub", "--instance", "p5.48xlarge"]) == 0
    written = yaml.safe_load((clone / "stacks" / "Pulumi.mine.yaml").read_text())
    assert written["config"]["eks-inference:stack"]["servers"]["mine"]["task"] == "embed"


@pytest.mark.thorough
def test_a_stack_that_cannot_be_leaves_no_file(site: Site, clone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted((clone / "stacks").iterdir())
    assert main(["new", "mine", "--model", NAME, "--hub", "--instance", "g4dn.xlarge"]) == 2
    assert "fits none of the places asked for" in capsys.readouterr().err
    (clone / "stacks" / "mine.config.json").write_text("mine")
    assert main(["new", "mine", "--model", NAME, "--hub", "--instance", "p5.48xlarge"]) == 2
    assert (clone / "stacks" / "mine.config.json").read_text() == "mine"
    (clone / "stacks" / "mine.config.json").unlink()
    assert sorted((clone / "stacks").iterdir()) == before


def test_the_token_goes_to_the_hub(site: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert plan(capsys, "--model", NAME)[0] == 0
    assert {asked.headers["authorization"] for asked in site.requests} == {f"Bearer {TOKEN}"}


def test_a_repository_that_was_renamed_is_found(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    moved = {"Location": f"/{NAME}/resolve/main/anew.json", "X-Repo-Commit": COMMIT}
    site.replies["config.json"] = lambda _: (307, b"", moved)
    site.files["anew.json"] = CONFIG
    assert plan(capsys, "--model", NAME)[0] == 0


# -- what is refused, each in a sentence with a way out --------------------------------------------------------------------------

BAD: Mapping[str, tuple[str, Reply, str]] = {
    "html": ("config.json", (200, b"<html>Sign in</html>", {"X-Repo-Commit": COMMIT}), "this is not JSON"),
    "a list": ("config.json", (200, b"[]", {"X-Repo-Commit": COMMIT}), "this is not a JSON object"),
    "latin": ("config.json", (200, b'{"a": "\xff"}', {"X-Repo-Commit": COMMIT}), "not in UTF-8"),
    "deep": ("config.json", (200, b"[" * 100_000, {"X-Repo-Commit": COMMIT}), "nested too deep"),
    "huge": ("config.json", (200, b" " * (1 << 20) + CONFIG, {"X-Repo-Commit": COMMIT}), "larger than 1 MiB"),
    "of no model": ("config.json", (200, b'{"a": 1}', {"X-Repo-Commit": COMMIT}), "model_type: this key is required"),
    "no formula": ("config.json", (200, b'{"model_type": "mamba"}', {"X-Repo-Commit": COMMIT}), "counted_parameters"),
    "outer": (
        "config.json",
        (200, json.dumps({"model_type": "kimi_k25", "text_config": json.loads(CONFIG)}).encode(), {"X-Repo-Commit": COMMIT}),
        "counted_parameters",
    ),
    "gated": (
        "config.json",
        (401, b"", {"X-Error-Code": "GatedRepo"}),
        "accept its licence on https://huggingface.co/ours/llm-32b",
    ),
    "forbidden": ("config.json", (403, b"", {}), "has no such repository, or it is private, and HF_TOKEN has no token"),
    "no config": ("config.json", (404, b"", {"X-Error-Code": "EntryNotFound"}), "has no config.json at this revision"),
    "often": ("config.json", (429, b"", {}), "is asked too often"),
    "broken": ("config.json", (503, b"", {}), "answered with status 503"),
    "elsewhere": ("config.json", (302, b"", {"Location": "http://127.0.0.2:1/a?signature=hush"}), "leads to another host"),
    "other scheme": ("config.json", (302, b"", {"Location": "file:///etc/passwd"}), "leads to another host"),
    "round": ("config.json", (302, b"", {"Location": ""}), "leads from one address to the next"),
    "no commit": ("config.json", (200, CONFIG, {}), "name a commit with --revision"),
    "odd commit": ("config.json", (200, CONFIG, {"X-Repo-Commit": "../../../../../../../../../../../../../x"}), "--revision"),
    "commit of letters": ("config.json", (200, CONFIG, {"X-Repo-Commit": "z" * 40}), "--revision"),
    "short": ("config.json", (200, CONFIG[:99], {"X-Repo-Commit": COMMIT, "content-length": "999"}), "this is not JSON"),
    "twice as large": (
        "model.safetensors.index.json",
        (200, _index(3 * WEIGHTS), {}),
        "not as large as its config.json says",
    ),
}


@pytest.mark.parametrize("bad", BAD)
def test_what_the_hub_may_answer_is_told(bad: str, site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    file, reply, words = BAD[bad]
    site.replies[file] = lambda _: reply
    code, said = plan(capsys, "--model", NAME)
    assert code == 2
    assert words in said
    assert "Traceback" not in said
    assert "hush" not in said


def test_odd_indexes_decide_nothing(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    for index in (b"", b"[]", b'{"metadata": 3}', _index("much"), _index(-1), _index(float("inf")), _index(True), b"[" * 99_999):
        site.files["model.safetensors.index.json"] = index
        assert plan(capsys, "--model", NAME)[0] == 0, index[:40]


def test_an_index_that_the_hub_keeps_elsewhere_decides_nothing(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    site.replies["model.safetensors.index.json"] = lambda _: (302, b"", {"Location": "http://127.0.0.2:1/a"})
    assert plan(capsys, "--model", NAME)[0] == 0
    assert site.requests[-1].path.endswith("/modules.json")


def test_a_commit_of_a_user_needs_no_header(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    site.replies["config.json"] = lambda _: (200, CONFIG, {})
    assert plan(capsys, "--model", NAME, "--revision", COMMIT)[0] == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--model", "ours/other"), "has no such repository"),
        (("--model", "Llama-2-13B"), "is the catalog's name"),
        (("--model", "../../api/whoami"), "a repository of the Hugging Face Hub"),
        (("--model", NAME, "--revision", "v9"), "has no such revision"),
        (("--model", NAME, "--revision", "../x y"), "--revision"),
        (("--model", NAME, "--config", "config.json"), "leave out --hub or --config"),
    ],
)
def test_names_that_lead_nowhere_are_told(
    options: tuple[str, ...], words: str, site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said = plan(capsys, *options)
    assert code == 2
    assert words in said


@pytest.mark.parametrize(
    "address",
    [
        "file:///etc",
        "huggingface",
        "http://",
        "http://127.0.0.1:1",
        "http://[::1",
        "http://me:hush@127.0.0.1:1",
        "http://127.0.0.1:1/?key=hush",
        "http://h#hush",
    ],
)
def test_an_address_without_a_hub_is_told(
    address: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", address)
    code, said = plan(capsys, "--model", NAME)
    assert (code, "HF_ENDPOINT" in said, "hush" in said) == (2, True, False)


def test_a_hub_that_gives_a_byte_now_and_then_is_left(
    site: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def drop(handler: Handler, *_: Any) -> None:
        handler.send_response(200)
        handler.end_headers()
        for _number in range(100):
            handler.wfile.write(b" ")
            time.sleep(0.1)

    monkeypatch.setattr(_Handler, "send", drop)
    monkeypatch.setattr(hub, "SECONDS", 1)
    code, said = plan(capsys, "--model", NAME)
    # Of what comes to its end the command would say that it is not JSON.
    assert (code, "has not answered within 1 s" in said) == (2, True)


def test_a_token_that_is_none_is_not_sent(
    site: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_a\nhost: elsewhere")
    code, said = plan(capsys, "--model", NAME)
    assert (code, site.requests) == (2, [])
    assert "elsewhere" not in said
