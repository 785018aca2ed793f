"""The runbook: every alert and every known message has a page, every page is reached, and its commands are commands."""

import re
import shutil
import socket
import ssl
import subprocess
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from botocore import xform_name
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from conftest import ROOT, STACKS, recorded
from eks_inference.observability import prometheus_plan
from eks_inference_tools.cli import parser
from eks_inference_tools.reading.known_messages import causes, meaning, runbook
from readme import blocks, commands_of
from variants import recorded_with

FOLDER = ROOT / "docs" / "runbook"
PAGES = {page.stem: page for page in FOLDER.glob("*.md")}
OPERATIONS = {"certificate", "model-change"}
"""Pages that no alert and no message leads to: people look for them in the list."""

OF_OTHERS = {"Event", "HorizontalPodAutoscaler", "Ingress", "Node", "NodeClaim", "Pod", "RayCluster", "Secret"}
"""Kinds that controllers, the cloud or some stacks make."""

SHORT = {
    "all": "Pod",
    "hpa": "HorizontalPodAutoscaler",
    "pdb": "PodDisruptionBudget",
    "pvc": "PersistentVolumeClaim",
    "svc": "Service",
}
WITH_VALUES = ("-n", "-l", "-o", "-L", "--patch", "--field-selector")
NAMED_ALONE = ("debug", "drain", "edit", "logs", "port-forward", "set")
"""Verbs that take a node or a pod by its name, or are only mentioned."""


def alerts() -> dict[str, str]:
    rules = [rule for group in prometheus_plan.rules()["groups"] for rule in group["rules"] if "alert" in rule]
    return {rule["alert"]: rule["annotations"]["runbook_url"] for rule in rules}


def test_every_alert_has_a_page_which_names_it() -> None:
    for alert, page in alerts().items():
        assert f"`{alert}`" in (ROOT / page).read_text().partition("## How to tell")[0], f"{page} does not begin with {alert}"


def test_alerts_link_to_the_pages_where_a_team_reads_them() -> None:
    base = "https://wiki.example.com/runbook/"
    graph = recorded_with({"observability": {"prometheus": {"runbooks": base}}})
    (rules,) = [one for one in graph.of_type("kubernetes:monitoring.coreos.com/v1:PrometheusRule") if one.name.endswith("-rules")]
    found = {
        rule["annotations"]["runbook_url"]
        for group in rules.inputs["spec"]["groups"]
        for rule in group["rules"]
        if "alert" in rule
    }
    assert found == {base + page.removeprefix("docs/runbook/") for page in alerts().values()}


def test_every_page_is_reached_and_listed() -> None:
    named = {Path(page).stem for page in alerts().values()} | {cause["page"] for cause in causes()}
    assert named | OPERATIONS | {"README", "cost"} == PAGES.keys()
    assert not OPERATIONS & named
    listed = set(re.findall(r"\]\(([\w-]+)\.md\)", PAGES["README"].read_text()))
    assert listed == PAGES.keys() - {"README"}


def test_a_page_says_what_is_seen_what_it_costs_and_how_it_was_tried() -> None:
    for name, page in PAGES.items():
        text = page.read_text()
        for part in ("**You see**", "**It costs**", "**Tried**"):
            assert part in text or name == "README" or (name, part) == ("model-change", "**You see**"), f"{name}: {part}"


@pytest.mark.parametrize(
    ("message", "pages"),
    [
        (("Deployment a/b: 0 of 1 ready; pod b-1 is Pending: 0/3 nodes are available",), ["pending"]),
        (("pod b-1: container c: ImagePullBackOff: Back-off pulling image x",), ["image"]),
        (("pod b-1: container c crashes: OOMKilled, exit code 137, 7 restarts",), ["out-of-memory"]),
        (("pod b-1: container c crashes: Error, exit code 1, 3 restarts",), ["not-answering"]),
        (("pod b-1 failed: Evicted: The node was low on resource: ephemeral-storage.",), ["disk-full"]),
        (("nodes of pool inf2: node n is lost: Kubelet stopped posting node status.",), ["node-not-ready"]),
        (("Helm release a/b: revision 2 is pending-upgrade",), ["interrupted-up"]),
        (("Namespace a: it is being deleted",), ["stuck-destroy"]),
        (("InsufficientInstanceCapacity: no inf2", "manifest unknown", "InsufficientInstanceCapacity"), ["no-capacity", "image"]),
        (("Failed to schedule pod, no instance type had enough resources or had a required offering",), ["no-capacity"]),
        (("toomanyrequests: You have reached your pull rate limit.",), ["image"]),
        (("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB",), ["out-of-memory"]),
        (('pod b-1: container c: CreateContainerConfigError: secret "model-keys" not found',), ["not-answering"]),
        (('MountVolume.SetUp failed for volume "x": configmap "y" not found',), ["not-answering"]),
        (("GatedRepoError: 401 Client Error.",), ["keys"]),
        (("another operation (install/upgrade/rollback) is in progress",), ["interrupted-up"]),
        (("0/3 nodes are available: 1 node(s) had volume node affinity conflict.",), ["pending"]),
        (("nobody wrote this down",), ["README"]),
    ],
)
def test_a_message_leads_to_its_page(message: tuple[str, ...], pages: list[str]) -> None:
    assert runbook(*message) == tuple(f"docs/runbook/{page}.md" for page in pages)
    assert meaning("nobody wrote this down") == ""


# -- commands --------------------------------------------------------------------------------------------------------------------


def commands(program: str) -> list[list[str]]:
    return [words for page in PAGES.values() for words in commands_of(page, program)]


@cache
def kinds() -> set[str]:
    graphs = [recorded(stack) for stack in STACKS]
    return OF_OTHERS | {str(one.inputs.get("kind")) for graph in graphs for one in graph.resources if one.package == "kubernetes"}


@pytest.mark.parametrize("words", commands("eks-inference"), ids=" ".join)
def test_a_command_of_ours_is_taken(words: list[str]) -> None:
    parser().parse_args(words[1:])


@pytest.mark.parametrize("words", commands("kubectl"), ids=" ".join)
def test_kubectl_is_asked_for_what_is_there(words: list[str]) -> None:
    verb, *rest = [word for before, word in pairwise(words) if not word.startswith("-") and before not in WITH_VALUES]
    asked = rest[verb == "rollout"] if rest else ""
    if "/" in asked:
        asked = asked.partition("/")[0]
    elif verb in NAMED_ALONE:
        return
    for kind in (SHORT.get(one, one).lower() for one in asked.split(",")):
        assert re.sub("ies$", "y", kind).rstrip("s") in {kind.lower().rstrip("s") for kind in kinds()}, f"nothing makes a {kind}"


@pytest.mark.thorough
@pytest.mark.parametrize("program", ["kubectl", "pulumi"])
def test_the_options_are_those_of_the_program(program: str) -> None:
    if not shutil.which(program):
        pytest.skip(f"no {program} on PATH")

    def said(*words: str) -> str:
        return subprocess.run([program, *words], capture_output=True, text=True, check=False).stdout

    everywhere = said("options") if program == "kubectl" else ""
    for words in commands(program):
        verb = [word for word in words[1:] if re.fullmatch(r"[a-z][a-z-]*", word)]
        verb = verb[: 2 if verb[0] in ("rollout", "stack", "state", "config") else 1]
        if words[1] == "-n":
            verb = [word for word in words[3:] if re.fullmatch(r"[a-z][a-z-]*", word)][: 2 if "rollout" in words else 1]
        helped = said(*verb, "--help") + everywhere
        for option in (word.partition("=")[0] for word in words if re.match(r"--?[a-zA-Z]", word)):
            assert re.search(rf"(^|[\s,]){re.escape(option)}[\s,=:]", helped), f"{' '.join(words)}: {option}"


@pytest.mark.parametrize("words", commands("aws"), ids=" ".join)
def test_aws_knows_the_operation_and_its_parameters(words: list[str]) -> None:
    _, service, operation, *rest = words
    model: Any = botocore.session.get_session().get_service_model(service)
    (name,) = [operation_name for operation_name in model.operation_names if xform_name(operation_name, "-") == operation]
    shape = model.operation_model(name).input_shape
    known = {xform_name(member, "-") for member in shape.members} if shape else set()
    options = {word.removeprefix("--").removeprefix("no-") for word in rest if word.startswith("--")}
    assert options <= known | {"query", "output"}


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("days", "host", "told"),
    [(1, "api.example.com", "Verification: OK"), (-1, "api.example.com", "certificate has expired"), (1, "other", "mismatch")],
)
def test_openssl_tells_what_is_wrong_with_a_certificate(days: int, host: str, told: str, tmp_path: Path) -> None:
    if not shutil.which("openssl"):
        pytest.skip("no openssl on PATH")
    key = ec.generate_private_key(ec.SECP256R1())
    name, now, serial = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, host)]), datetime.now(UTC), 1
    built = x509.CertificateBuilder(name, name, key.public_key(), serial, now - timedelta(2), now + timedelta(days))
    certificate = built.add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), False).sign(key, hashes.SHA256())
    (chain := tmp_path / "chain.pem").write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()) + certificate.public_bytes(Encoding.PEM)
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain)
    (command,) = commands("openssl")
    with context.wrap_socket(socket.create_server(("127.0.0.1", 0)), server_side=True) as server, ThreadPoolExecutor() as pool:
        pool.submit(server.accept)
        address = f"127.0.0.1:{server.getsockname()[1]}"
        filled = [word.replace("HOST:443", address).replace("HOST", "api.example.com") for word in command]
        done = subprocess.run([*filled, "-CAfile", chain], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert told in done.stdout + done.stderr


def test_there_are_commands_of_each_program() -> None:
    assert all(len(commands(program)) > 10 for program in ("kubectl", "eks-inference", "pulumi"))
    assert {block.language for page in PAGES.values() for block in blocks(page)} <= {"sh", "yaml"}
