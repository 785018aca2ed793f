"""Finding and building the programs of a simulated control plane, with a stand-in for Go: no Go and no network is needed."""

import fcntl
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from conftest import EVERY_SECONDS, ROOT
from eks_inference.catalog.versions import chart
from eks_inference.cluster.spec import ClusterSpec
from eks_inference_tools.simulate.control_plane import toolchain
from eks_inference_tools.simulate.control_plane.tool_build import Step, _state, build, provided
from eks_inference_tools.simulate.control_plane.toolchain import (
    DEFINITIONS,
    definition_sources,
    definitions_file,
    installed,
    tools,
    tools_folder,
)
from stackgraph.presentation import progress
from stackgraph.presentation.progress import Progress
from stackgraph.problems import ProblemsFound
from waiting import PATIENCE_S, until, until_ended

GO = f"""#!{sys.executable} -IS
import json, os, signal, sys, time
from pathlib import Path

here = Path(__file__).parent
told = json.loads((here / "told.json").read_text())
arguments = sys.argv[1:]
with (here / "calls").open("a") as calls:
    calls.write(json.dumps([arguments, os.getcwd(), {{name: os.environ.get(name) for name in ("GOFLAGS", "GOWORK")}}]) + "\\n")
if arguments[:1] == ["env"]:
    print(told["go"])
elif arguments[:2] == ["mod", "download"]:
    print(json.dumps(told["modules"].get(arguments[-1], {{"Error": "there is no such version"}})))
    sys.exit(arguments[-1] not in told["modules"])
elif arguments[:1] == ["build"]:
    package, output = arguments[-1], Path(arguments[arguments.index("-o") + 1])
    print("go: downloading example.com/a v1.0.0", "internal/a", "example.com/b-c/v2", sep="\\n", file=sys.stderr, flush=True)
    if package == told["fails"]:
        print("# example.com/d", *(f"d.go:{{line}}: no" for line in range(30)), told["last words"], sep="\\n", file=sys.stderr)
        sys.exit(1)
    if package == told["hangs"]:
        output.write_text("half of it")
        (here / "hanging").write_text(str(os.getpid()))
        time.sleep(3600)
    output.write_text(f"#!/bin/sh\\necho Version: v{{told['versions'][output.name]}} go1.99.1\\n")
    output.chmod(0o755)
else:
    sys.exit(f"unexpected: {{arguments}}")
"""


class Machine:
    """A machine with nothing but what a test puts on its PATH, and an empty cache."""

    def __init__(self, folder: Path) -> None:
        self.bin = folder / "bin"
        self.bin.mkdir()
        self.told = {
            "go": "go1.99.1",
            "fails": "",
            "last words": "",
            "hangs": "",
            "versions": {name: tool.group.version for name, tool in tools().items()},
            "modules": {},
        }
        for source in definition_sources():
            module = folder / "modules" / source.name
            (module / source.folder).mkdir(parents=True)
            for file in source.files:
                text = f"kind: CustomResourceDefinition\nmetadata: {{name: {file}}}\noperators:\n- '!='\n- =\n- =~\n"
                (module / source.folder / f"{file}.yaml").write_text(text)
            self.told["modules"][f"{source.module}@{source.version}"] = {"Dir": str(module), "Sum": source.sum}

    def put(self, name: str, text: str) -> Path:
        """A program on PATH."""
        program = self.bin / name
        program.write_text(text)
        program.chmod(0o755)
        return program

    def says(self, name: str, words: str) -> Path:
        return self.put(name, f"#!/bin/sh\necho '{words}'\n")

    def go(self, **told: str) -> None:
        """Puts the stand-in for Go on PATH."""
        (self.bin / "told.json").write_text(json.dumps(self.told | told))
        self.put("go", GO)

    def calls(self) -> list[list]:
        file = self.bin / "calls"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine(tmp_path)
    monkeypatch.setenv("PATH", str(made.bin))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return made


def build_quietly() -> list[Step]:
    """What was made."""
    done: list[Step] = []
    build(lambda step: done.append(step) if step.done else None, lambda: pytest.fail("no other build runs"))
    return done


def refused() -> str:
    with pytest.raises(ProblemsFound) as error:
        build_quietly()
    return str(error.value)


def cached() -> set[str]:
    """Files of the cache, but for what it keeps for itself."""
    folder = tools_folder()
    return {path.name for path in folder.rglob("*") if path.is_file()} - {"lock", "versions.json"}


# -- pins ------------------------------------------------------------------------------------------------------------------------


def test_every_group_builds_something_and_has_its_sums():
    folders = {path.parent.name for path in toolchain._HERE.glob("tools/*/go.mod")}
    assert {tool.group.name for tool in tools().values()} == folders
    for tool in tools().values():
        sums = (tool.group.folder / "go.sum").read_text()
        pinned = re.search(rf"^\s*{re.escape(tool.group.module)} (v\S+)", (tool.group.folder / "go.mod").read_text(), re.M)
        assert pinned
        assert f"{tool.group.module} {pinned[1]} h1:" in sums
        ours = tool.package == "." and (tool.group.folder / "main.go").exists()
        assert ours or tool.package.startswith(tool.group.module)


@pytest.mark.parametrize(("name", "of"), [("karpenter-on-kwok", "karpenter"), ("keda-on-loopback", "keda")])
def test_controllers_are_those_of_the_charts(name: str, of: str):
    assert tools()[name].group.version == chart(of).version


def test_what_is_built_would_be_used_from_path_as_well():
    for tool in tools().values():
        assert tool.fits(tool.group.version)


def test_versions_are_those_of_the_modules():
    versions = {tool.group.name: tool.group.version for tool in tools().values()}
    kubernetes = (toolchain._HERE / "tools" / "kubernetes" / "go.mod").read_text()
    staging = set(re.findall(r"=> k8s\.io/\S+ v0\.(\S+)", kubernetes))
    assert {f"1.{version}" for version in staging} == {versions["kubernetes"]}
    major, minor, patch = versions["prometheus"].split(".")
    prometheus = (toolchain._HERE / "tools" / "prometheus" / "go.mod").read_text()
    assert f"github.com/prometheus/prometheus v0.{major}{int(minor):02}.{patch} " in prometheus


def test_the_control_plane_is_of_the_minor_version_that_clusters_are_of_by_default():
    default = ClusterSpec.model_fields["version"].default
    for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"):
        assert tools()[name].group.version.startswith(f"{default}.")
        assert tools()[name].fits(f"{default}.0")


@pytest.mark.parametrize(("source", "of"), [("karpenter", "karpenter-crd"), ("keda", "keda")])
def test_definitions_are_those_of_the_charts(source: str, of: str):
    (found,) = [definition_source for definition_source in definition_sources() if definition_source.name == source]
    assert found.version == f"v{chart(of).version}"


def test_no_version_of_a_module_is_written_twice():
    table = tomllib.loads((toolchain._HERE / "toolchain.toml").read_text())
    assert [name for name, row in table["groups"].items() if "version" in row] == ["prometheus"]


def test_a_key_changes_with_all_that_changes_what_is_built(tmp_path: Path):
    group = tools()["karpenter-on-kwok"].group
    keys = {group.key, replace(group, tags=("x",)).key, replace(group, version="3.15.1").key, replace(group, variables={}).key}
    assert len(keys) == 4
    files = sorted(group.folder.iterdir())
    assert {file.suffix for file in files} == {".mod", ".sum", ".go"}
    for changed in files:
        folder = tmp_path / changed.name
        folder.mkdir()
        for file in files:
            (folder / file.name).write_bytes(file.read_bytes() + (b"\n" if file == changed else b""))
        keys.add(replace(group, folder=folder).key)
    assert len(keys) == 4 + len(files)


# -- finding ---------------------------------------------------------------------------------------------------------------------


def test_what_is_missing_is_told_in_full(machine: Machine):
    found = installed("etcd", "kwok", DEFINITIONS)
    assert found.missing().startswith("not on this machine: etcd, kwok, definitions; `make cluster-tools` builds")
    with pytest.raises(ProblemsFound) as error:
        found.path("kwok")
    assert "not on this machine: etcd, kwok, definitions\n    hint: run `make cluster-tools`" in str(error.value)
    with pytest.raises(ProblemsFound, match=r"not on this machine: definitions\n"):
        found.definitions()


@pytest.mark.parametrize(
    ("name", "says", "fits"),
    [
        ("etcd", "etcd Version: 3.5.13", True),
        ("etcd", "etcd Version: 3.5.12", False),
        ("etcd", "etcd Version: 3.4.34", False),
        ("etcd", "etcd Version: 4.0.0", False),
        ("kube-apiserver", "Kubernetes v1.35.6-eks-1-35-13", True),
        ("kube-apiserver", "Kubernetes v1.36.0", False),
        ("kube-scheduler", "Kubernetes v1.34.9", False),
        ("kubectl", "Client Version: v1.36.2\nKustomize Version: v5.7.1", True),
        ("kubectl", "Client Version: v1.32.4\nKustomize Version: v5.7.1", False),
        ("kwok", "kwok version v0.9.1 go1.26.8 (linux/amd64)", True),
        ("kwok", "kwok version  go1.26.8 (linux/amd64)", False),
        ("prometheus", "prometheus, version 3.0.0-rc.1 (branch: HEAD)", True),
        ("prometheus", "prometheus, version 2.53.0 (branch: HEAD)", False),
        ("promtool", "promtool, version  (branch: , revision: unknown)\n  go version:       go1.26.8", False),
        ("promtool", "", False),
    ],
)
def test_a_program_on_path_is_used_when_its_version_fits(machine: Machine, name: str, says: str, fits: bool):
    program = machine.says(name, says)
    found = installed(name)
    assert (found.missing() == "") == fits
    assert found.paths.get(name) == (program if fits else None)


def test_a_later_folder_of_path_may_have_the_one_that_fits(machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    machine.says("kwok", "kwok version v0.5.0")
    other = machine.says("later", "kwok version v0.8.0")
    (tmp_path / "later").mkdir()
    other = other.rename(tmp_path / "later" / "kwok")
    monkeypatch.setenv("PATH", os.pathsep.join(map(str, (machine.bin, "", tmp_path / "later"))))
    assert installed("kwok").path("kwok") == other


def test_a_program_that_cannot_be_run_does_not_fit(machine: Machine):
    machine.put("kwok", "\x7fELF, but not really")
    machine.put("etcd", "#!/bin/sh\necho etcd Version: 3.7.3\nexit 1\n")
    assert installed("kwok", "etcd").absent == ("kwok", "etcd")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Programs that were asked for their version; each tells 0.8.0."""
    found: list[Path] = []

    def version_of(path: Path, tool: toolchain.Tool) -> str:
        found.append(path)
        return "0.8.0"

    monkeypatch.setattr(toolchain, "version_of", version_of)
    return found


def test_a_program_is_asked_once_until_it_changes(machine: Machine, asked: list[Path]):
    program = machine.put("kwok", "\x7fELF")
    for _ in range(3):
        assert installed("kwok").path("kwok") == program
    assert asked == [program]
    machine.put("kwok", "\x7fELF, newer")
    assert installed("kwok").versions == {"kwok": "0.8.0"}
    assert asked == [program, program]


@pytest.mark.parametrize("launcher", ["script", "link"])
def test_a_launcher_that_chooses_among_versions_is_always_asked(machine: Machine, asked: list[Path], launcher: str):
    if launcher == "script":
        machine.put("kwok", "#!/bin/sh\n")
    else:
        (machine.bin / "kwok").symlink_to(machine.put("chooser", "\x7fELF"))
    for _ in range(3):
        installed("kwok")
    assert len(asked) == 3


@pytest.mark.parametrize("content", ["", "{", '{"x": 1}'])
def test_what_is_remembered_may_be_damaged(machine: Machine, asked: list[Path], content: str):
    machine.put("kwok", "\x7fELF")
    installed("kwok")
    (tools_folder() / "versions.json").write_text(content)
    assert installed("kwok").missing() == ""
    assert len(asked) == 2


def test_definitions_that_are_damaged_are_told(machine: Machine):
    definitions_file().parent.mkdir(parents=True)
    definitions_file().write_text("[{")
    with pytest.raises(ProblemsFound, match="delete it and run"):
        installed().definitions()


# -- building --------------------------------------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_all_is_built_once(machine: Machine, capsys: pytest.CaptureFixture[str]):
    machine.go()
    found = provided()
    err = capsys.readouterr().err
    assert found.paths.keys() == {*tools(), DEFINITIONS}
    told = err.splitlines()
    assert told[0].startswith(f"{len(told) - 1} items to make, once: at most about ")
    numbered = [f"{number} of {len(told) - 1}, {name}" for number, name in enumerate((DEFINITIONS, *tools()), start=1)]
    assert [" ".join(line.partition(":")[0].split()[:4]) for line in told[1:]] == numbered
    assert re.search(rf"^2 of {1 + len(tools())}, etcd 3\.\S+: done, 1 module, 2 packages, \d+ s$", err, re.M)
    assert cached() == {*tools(), definitions_file().name}
    for arguments, folder, environment in machine.calls():
        assert environment == {"GOFLAGS": "-mod=readonly", "GOWORK": "off"}
        if arguments[0] == "build":
            assert Path(folder, "go.sum").is_file()
            assert "-trimpath" in arguments
    machine.put("go", "#!/bin/sh\nexit 1\n")
    assert provided() == found
    assert capsys.readouterr().err == ""


@pytest.mark.thorough
def test_only_what_is_asked_for_is_built(machine: Machine):
    machine.go()
    assert provided("etcd", DEFINITIONS).absent == ()
    assert cached() == {"etcd", definitions_file().name}


@pytest.mark.thorough
def test_what_is_built_is_found_and_the_definitions_read(machine: Machine):
    machine.go()
    build_quietly()
    found = installed()
    assert found.missing() == ""
    assert all(found.path(name).parent.parent == tools_folder() for name in tools())
    names = [definition["metadata"]["name"] for definition in found.definitions()]
    assert names == [file for source in definition_sources() for file in source.files]
    assert found.definitions()[0]["operators"] == ["!=", "=", "=~"]


@pytest.mark.thorough
def test_linker_flags_name_the_version(machine: Machine):
    machine.go()
    build_quietly()
    flags = {arguments[-1]: " ".join(arguments) for arguments, *_ in machine.calls() if arguments[0] == "build"}
    assert "/version.gitVersion=v1.35." in flags["k8s.io/kubernetes/cmd/kube-apiserver"]
    assert "/version.gitMinor=35" in flags["k8s.io/kubernetes/cmd/kube-apiserver"]
    assert "/version.Version=3." in flags["github.com/prometheus/prometheus/cmd/prometheus"]
    assert "-tags=remove_all_sd,enable_kubernetes_sd" in flags["github.com/prometheus/prometheus/cmd/promtool"]


def test_what_is_on_path_is_not_built(machine: Machine):
    machine.go()
    machine.says("kwok", "kwok version v0.8.3")
    machine.says("kubectl", "Client Version: v1.20.1")
    found = provided()
    assert (found.versions["kwok"], found.path("kwok")) == ("0.8.3", machine.bin / "kwok")
    assert found.path("kubectl") == tools()["kubectl"].built, "that on PATH is too old"
    assert cached() == {*tools(), definitions_file().name} - {"kwok"}


@pytest.mark.thorough
def test_a_build_that_fails_tells_the_last_words_and_keeps_what_was_made(machine: Machine):
    machine.go(fails=tools()["kwok"].package)
    err = refused()
    assert f"kwok 0.8.0: `{machine.bin}/go build` failed" in err
    assert "d.go:29: no" in err
    assert "d.go:14: no" not in err, "only the last lines"
    made = cached()
    assert {"etcd", "kubectl"} <= made
    assert not {"kwok", "prometheus"} & made
    machine.go()
    assert [step.name.split()[0] for step in build_quietly()] == [*tools()][5:]


def test_a_full_disk_is_told_where_space_is_needed(machine: Machine):
    machine.go(fails=tools()["etcd"].package, **{"last words": "write /tmp/x: no space left on device"})
    assert "GOMODCACHE GOCACHE" in refused()


def test_a_program_that_does_not_tell_its_version_is_not_kept(machine: Machine):
    """As when upstream moves the variable that the linker sets."""
    machine.told["versions"]["etcd"] = "0.0.0"
    machine.go()
    assert re.search(r"etcd was built but does not print its version.*\n.*0\.0\.0\n.*3\.", refused())
    assert cached() == {definitions_file().name}


def test_without_go_it_says_which_is_needed_and_for_what(machine: Machine):
    machine.says("etcd", "etcd Version: 3.6.0")
    said = refused()
    assert re.match(r"Go 1\.\d+\.\d+ or newer is needed for definitions, kube-apiserver, ", said)
    assert "no `go` on PATH" in said
    assert "or put on PATH: kube-apiserver 1.35.0 or newer, below 1.36.0; " in said
    assert "etcd" not in said


@pytest.mark.parametrize("version", ["go1.20.14", "go1.25.9", "go1.26rc1", "devel go1.24-abcdef"])
def test_an_old_go_is_told_with_the_one_that_is_needed(machine: Machine, version: str):
    machine.go(go=version)
    said = refused()
    assert re.match(r"Go 1\.26\.6 or newer is needed", said)
    assert f"{machine.bin}/go is {version.removeprefix('devel ').partition('-')[0].partition('rc')[0]}" in said
    assert all(arguments[0] == "env" for arguments, *_ in machine.calls())


@pytest.mark.thorough
def test_a_go_that_fits_what_is_missing_is_enough(machine: Machine):
    """Kubernetes 1.35 builds with Go 1.25."""
    machine.go()
    build_quietly()
    tools()["kubectl"].built.unlink()
    machine.go(go="go1.25.3")
    assert [step.name for step in build_quietly()] == [f"kubectl {tools()['kubectl'].group.version}"]


def test_a_go_that_cannot_fetch_a_newer_one_is_quoted(machine: Machine):
    machine.put("go", "#!/bin/sh\necho 'go: download go1.26.6: toolchain not available' >&2\nexit 1\n")
    assert "because: go: download go1.26.6: toolchain not available" in refused()


def test_a_module_with_other_files_is_refused(machine: Machine):
    source = definition_sources()[0]
    machine.told["modules"][f"{source.module}@{source.version}"]["Sum"] = "h1:other="
    machine.go()
    assert (
        f"{source.module}@{source.version} does not match its pinned hash\n    given: h1:other=\n    allowed: {source.sum}"
        in refused()
    )
    assert cached() == set()


def test_a_module_that_cannot_be_had_is_told(machine: Machine):
    machine.told["modules"].clear()
    machine.go()
    assert "go mod download` failed\n    because: there is no such version" in refused()


def test_a_cache_that_cannot_be_written_to_is_told(machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    machine.go()
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert "cannot use the cache: Not a directory\n    hint: set XDG_CACHE_HOME" in refused()


def test_what_a_killed_build_left_is_not_taken_for_whole(machine: Machine):
    machine.go()
    left = tools_folder() / "unfinished" / "etcd"
    left.parent.mkdir(parents=True)
    left.write_text("half of it")
    assert "etcd" in installed("etcd").absent
    build_quietly()
    assert not left.parent.exists()
    assert toolchain.version_of(installed().path("etcd"), tools()["etcd"]) == tools()["etcd"].group.version


@pytest.mark.thorough
def test_what_nobody_used_for_long_is_removed(machine: Machine):
    machine.go()
    folder = tools_folder()
    long_ago = time.time() - 100 * 86_400
    for name, used in (("etcd-0123456789abcdef", long_ago), ("kwok-0123456789abcdef", time.time()), ("other", long_ago)):
        (folder / name).mkdir(parents=True)
        os.utime(folder / name, (used, used))
    build_quietly()
    os.utime(definitions_file(), (long_ago, long_ago))
    tools()["kwok"].built.unlink()
    build_quietly()
    assert definitions_file().exists(), "of the very pins that are built"
    assert not (folder / "etcd-0123456789abcdef").exists()
    assert (folder / "kwok-0123456789abcdef").exists()
    assert (folder / "other").exists()
    os.utime(tools()["etcd"].built.parent, (long_ago, long_ago))
    installed("etcd")
    assert time.time() - tools()["etcd"].built.parent.stat().st_mtime < 86_400


# -- more than one, and none -----------------------------------------------------------------------------------------------------


def start() -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "eks_inference_tools.simulate.control_plane"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.thorough
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_build_that_is_ended_ends_go_and_leaves_nothing_half(machine: Machine, number: signal.Signals):
    machine.go(hangs=tools()["kwok"].package)
    process = start()
    hanging = machine.bin / "hanging"
    until(lambda: hanging.exists() and hanging.read_text())
    process.send_signal(number)
    out, err = process.communicate(timeout=PATIENCE_S)
    assert "Traceback" not in err
    assert (process.returncode, out) == (130, "")
    until_ended(int(hanging.read_text()))
    assert not (tools_folder() / "unfinished").exists()
    made = cached()
    assert "etcd" in made
    assert "kwok" not in made
    machine.go()
    assert [step.name.split()[0] for step in build_quietly()] == [*tools()][5:]


def test_a_second_build_waits_and_then_has_nothing_to_do(machine: Machine):
    machine.go()
    folder = tools_folder()
    folder.mkdir(parents=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        process = start()
        assert process.stderr
        assert "items to make, once: at most about" in process.stderr.readline()
        assert process.stderr.readline() == "another build is in progress; waiting for it\n"
        assert machine.calls() == []
        for tool in tools().values():
            tool.built.parent.mkdir(exist_ok=True)
            tool.built.write_text("")
        definitions_file().write_text("[]")
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    assert machine.calls() == []


def test_where_all_is_there_no_build_is_waited_for(machine: Machine):
    machine.go()
    build_quietly()
    with (tools_folder() / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert build_quietly() == []


# -- progress --------------------------------------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(stream: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(Step, "seconds", 7.4)
    step = Step("kwok 0.8.0", 2, 9)
    with Progress() as progress:
        progress.show(_state(step))
        step.modules, step.packages = 1, 20
        progress.show(_state(step))
        step.done = True
        progress.keep(_state(step))
    return stream.getvalue()


def test_a_terminal_has_one_line_that_changes(monkeypatch: pytest.MonkeyPatch):
    lines = shown(Terminal(), monkeypatch).split("\r\x1b[K")
    assert lines[1:] == [
        "2 of 9, kwok 0.8.0: building, 7 s",
        "2 of 9, kwok 0.8.0: building, 1 module, 20 packages, 7 s",
        "2 of 9, kwok 0.8.0: done, 1 module, 20 packages, 7 s\n",
    ]


def test_elsewhere_there_is_a_line_for_each_thing(monkeypatch: pytest.MonkeyPatch):
    assert shown(io.StringIO(), monkeypatch) == "2 of 9, kwok 0.8.0: done, 1 module, 20 packages, 7 s\n"


def test_a_log_has_a_line_every_half_minute_with_what_is_left(monkeypatch: pytest.MonkeyPatch):
    stream, now = io.StringIO(), 0.0
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(progress, "_EVERY_SECONDS", EVERY_SECONDS)
    monkeypatch.setattr("stackgraph.presentation.progress.time.monotonic", lambda: now)
    with Progress(about=120) as shown:
        for now in (1.0, 29.0, 31.0, 45.0, 62.0):
            shown.show(f"step {now:.0f}")
    assert stream.getvalue() == "31 s of about 120 s: step 31\n62 s of about 120 s: step 62\n"


def test_of_equal_items_it_says_how_long_the_others_take(monkeypatch: pytest.MonkeyPatch):
    stream, now = Terminal(), [0.0]
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr("stackgraph.presentation.progress.time.monotonic", lambda: now[0])
    with Progress() as progress:
        for done, now[0] in ((0, 1.0), (2, 10.0), (3, 15.0)):
            progress.count("stacks judged", done, 3)
    assert stream.getvalue().split("\r\x1b[K")[1:] == [
        "stacks judged: 0 of 3",
        "stacks judged: 2 of 3, about 5 s more",
        "stacks judged: 3 of 3",
        "",
    ]


# -- what is packed --------------------------------------------------------------------------------------------------------------


def test_pins_are_packed_with_the_library():
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["eks_inference_tools"]
    package = ROOT / "components" / "eks_inference_tools"
    packed = {path for pattern in patterns for path in package.glob(pattern)}
    needed: Mapping[str, Path] = {tool.group.name: tool.group.folder for tool in tools().values()}
    for folder in needed.values():
        assert {folder / "go.mod", folder / "go.sum"} <= packed
