"""checkov over every Kubernetes object of every shipped stack, but for exceptions that are named with reasons.

``make checkov`` installs it into an environment of its own and runs this file. Nothing is asked of the network: no policies, no
guidelines, no platform. checkov knows pods only in kinds of Kubernetes itself, so it gets those of Ray and LeaderWorkerSet
objects as Pods beside them.
"""

import json
import os
import subprocess
import tomllib
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from conftest import STACKS, recorded
from eks_inference_tools.reading.object_kinds import group_kind
from eks_inference_tools.reading.pod_templates import PodTemplate, pod_templates
from stackgraph.graph.document import Graph
from stackgraph.views.manifests import render_manifests

CHECKOV = os.environ.get("CHECKOV")
"""Its path, which `make checkov` sets."""
needs_checkov = pytest.mark.skipif(not CHECKOV, reason="checkov is not installed: make checkov")


class Finding(NamedTuple):
    check: str
    object: str
    """``Kind/namespace/name``."""
    says: str = ""


@dataclass(frozen=True)
class Exempt:
    """What a check may find; ``objects`` are patterns of ``Kind/namespace/name``."""

    check: str
    objects: list[str]
    reason: str

    def names(self, name: str) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in self.objects)


class Report(NamedTuple):
    findings: frozenset[Finding]
    looked_at: frozenset[str]


EXEMPT = [
    Exempt(**entry)
    for entry in tomllib.loads(Path(__file__).with_name("checkov_exceptions.toml").read_text("utf-8"))["exceptions"]
]


def unexpected(findings: Iterable[Finding], exempt: Sequence[Exempt]) -> list[str]:
    """What no exception names, a line each."""
    return sorted(
        f"{finding.check} {finding.object}: {finding.says}"
        for finding in findings
        if not any(each.check == finding.check and each.names(finding.object) for each in exempt)
    )


def left_over(findings: Iterable[Finding], exempt: Sequence[Exempt]) -> list[str]:
    """What exceptions name and no check finds any more, a line each."""
    found: dict[str, set[str]] = {}
    for finding in findings:
        found.setdefault(finding.check, set()).add(finding.object)
    return [
        f"{each.check} {pattern}"
        for each in exempt
        for pattern in each.objects
        if not any(fnmatchcase(name, pattern) for name in found.get(each.check, ()))
    ]


# -- running it ------------------------------------------------------------------------------------------------------------------


def manifests(graph: Graph) -> str:
    unknown = [template for template in pod_templates(graph) if not _known(template)]
    return render_manifests(graph) + yaml.safe_dump_all(map(_as_pod, unknown), explicit_start=True)


def object_of(template: PodTemplate) -> str:
    """Under which name checkov tells of the pods."""
    if _known(template):
        return f"{template.kind}/{template.namespace}/{template.name}"
    return f"Pod/{template.namespace}/{_pod_name(template)}"


def _known(template: PodTemplate) -> bool:
    return group_kind(template.owner)[0] in ("apps", "batch", "core")


def _as_pod(template: PodTemplate) -> dict[str, Any]:
    metadata = {**template.template.get("metadata", {}), "name": _pod_name(template), "namespace": template.namespace}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template.template["spec"]}


def _pod_name(template: PodTemplate) -> str:
    return f"{template.name}-{template.part}".replace(" ", "-")


def scan(text: str, folder: Path) -> Report:
    """What checkov says of manifests. It reads settings of whoever runs it from the home and the working folder: here empty."""
    assert CHECKOV
    (folder / "manifests").mkdir()
    (folder / "manifests" / "stack.yaml").write_text(text, "utf-8")
    command = [CHECKOV, "--directory", "manifests", "--framework", "kubernetes", "--skip-download", "--soft-fail"]
    done = subprocess.run(
        [*command, "--compact", "--output", "json"],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": str(folder)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    report = json.loads(done.stdout)
    assert report["summary"]["parsing_errors"] == 0
    failed, passed = report["results"]["failed_checks"], report["results"]["passed_checks"]
    return Report(
        frozenset(Finding(each["check_id"], _object(each), each["check_name"]) for each in failed),
        frozenset(_object(each) for each in (*failed, *passed)),
    )


def _object(result: dict[str, Any]) -> str:
    """checkov writes ``Kind.namespace.name``, and neither kind nor namespace has a dot."""
    return result["resource"].replace(".", "/", 2)


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Report]:
    texts = [manifests(recorded(stack)) for stack in STACKS]
    folders = [tmp_path_factory.mktemp(stack) for stack in STACKS]
    # Of several folders in one run, checkov 3.3 reports the first again and again.
    with ThreadPoolExecutor(os.cpu_count()) as runs:
        return dict(zip(STACKS, runs.map(scan, texts, folders), strict=True))


# -- the stacks ------------------------------------------------------------------------------------------------------------------


@needs_checkov
@pytest.mark.parametrize("stack", STACKS)
def test_checkov_finds_nothing_but_what_is_named(reports: dict[str, Report], stack: str) -> None:
    found = unexpected(reports[stack].findings, EXEMPT)
    assert not found, "mend it, or name it in tests/checkov_exceptions.toml with a reason:\n" + "\n".join(found)


@needs_checkov
def test_no_exception_is_left_over(reports: dict[str, Report]) -> None:
    over = left_over({finding for report in reports.values() for finding in report.findings}, EXEMPT)
    assert not over, "no stack needs these in tests/checkov_exceptions.toml:\n" + "\n".join(over)


@needs_checkov
@pytest.mark.parametrize("stack", STACKS)
def test_checkov_looks_at_every_pod(reports: dict[str, Report], stack: str) -> None:
    assert {object_of(template) for template in pod_templates(recorded(stack))} <= reports[stack].looked_at


# -- the exceptions --------------------------------------------------------------------------------------------------------------


def test_exceptions_have_reasons_and_stand_once() -> None:
    assert all(each.objects and each.reason.endswith(".") and len(each.reason.split()) > 5 for each in EXEMPT)
    named = [(each.check, pattern) for each in EXEMPT for pattern in each.objects]
    assert len(set(named)) == len(named)


def test_what_no_exception_names_is_told() -> None:
    exempt = [Exempt("CKV_K8S_1", ["Pod/a/*"], "")]
    found = [
        Finding("CKV_K8S_1", "Pod/a/x"),
        Finding("CKV_K8S_1", "Pod/b/x", "Mind it"),
        Finding("CKV_K8S_2", "Pod/a/x", "And it"),
    ]
    assert unexpected(found, exempt) == ["CKV_K8S_1 Pod/b/x: Mind it", "CKV_K8S_2 Pod/a/x: And it"]


def test_exceptions_that_nobody_needs_are_told() -> None:
    exempt = [Exempt("CKV_K8S_1", ["Pod/a/*", "Pod/b/*"], ""), Exempt("CKV_K8S_2", ["Pod/a/x"], "")]
    assert left_over([Finding("CKV_K8S_1", "Pod/a/x")], exempt) == ["CKV_K8S_1 Pod/b/*", "CKV_K8S_2 Pod/a/x"]
