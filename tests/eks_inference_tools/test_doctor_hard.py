"""``doctor`` with answers that AWS may give and nobody expects: odd, huge, empty, endless, late, refused halfway."""

import random
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import boto3
import moto
import pytest
from botocore import exceptions
from botocore.awsrequest import AWSResponse
from botocore.loaders import create_loader
from botocore.model import ServiceModel
from test_doctor import only_these_credentials, said, wide  # noqa: F401

import covering
import covering_graphs
from conftest import recorded
from eks_inference_tools.doctor import account as accounts
from eks_inference_tools.doctor import report
from eks_inference_tools.doctor.account import MOST_PAGES, TRIES, Account
from eks_inference_tools.doctor.account_zones import TOPIC as ZONES
from eks_inference_tools.doctor.examine import examine, needed_policy
from eks_inference_tools.doctor.findings import VERDICTS, Findings
from eks_inference_tools.doctor.questions import Answer, Call, Unanswered, operations
from mutations import cases
from stackgraph.recorder.lazy_sdk import lazy_sdks
from stub_account import Refused, Reply, StubAccount, well
from waiting import PATIENCE_S, until

LOADER = create_loader()


class Generated:
    """Answers that have the shape of an operation's and otherwise anything."""

    WORDS = (
        "",
        "a",
        "\x1b[31mred",
        "use2-az3",
        "us-east-2a",
        "trn2.48xlarge",
        "L-417A185B",
        "1.35",
        "-1",
        "1e400",
        "×" * 300,
        "[]",
    )

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def reply(self, operation: str) -> Any:
        service, _, name = operation.partition(".")
        shape = ServiceModel(LOADER.load_service_model(service, "service-2"), service).operation_model(name).output_shape

        def reply(asked: Mapping[str, Any], region: str) -> Mapping[str, Any]:
            found = self.value(shape)
            # Pages end, also here.
            return {key: one for key, one in found.items() if key.lower() not in ("nexttoken", "marker", "nextmarker")}

        return reply

    def value(self, shape: Any, depth: int = 0) -> Any:
        if shape is None:
            return {}
        kind, any_ = shape.type_name, self.random
        if kind == "structure":
            likely = 0.7 / (1 + depth / 4) if depth < 6 else 0
            wanted = [key for key in shape.members if key in shape.required_members or any_.random() < likely]
            return {key: self.value(shape.members[key], depth + 1) for key in wanted}
        if kind == "list":
            return [self.value(shape.member, depth + 1) for _ in range(any_.choice((0, 1, 1, 3) if depth < 6 else (0,)))]
        if kind == "map":
            return {any_.choice(self.WORDS): self.value(shape.value, depth + 1)} if depth < 6 else {}
        if kind == "string":
            return any_.choice((*(getattr(shape, "enum", None) or ()), *self.WORDS))
        if kind in ("integer", "long"):
            return any_.choice((-1, 0, 1, 2**31 - 1))
        if kind in ("double", "float"):
            return any_.choice((0.0, 1.5, -3.0, 1e300))
        if kind == "timestamp":
            return datetime(any_.choice((1970, 2026, 9999)), 9, 1, tzinfo=UTC)
        return {"boolean": any_.random() < 0.5, "blob": b"\xff"}[kind]


def readable(findings: Findings) -> None:
    """Every finding is one line that a terminal and JSON can show."""
    assert findings
    for finding in findings:
        assert finding.topic
        assert finding.verdict in VERDICTS
        assert finding.text.strip()
    shown = report.shown("s", findings)
    assert all(line.isprintable() for line in shown.splitlines())
    report.document("s", findings)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(cases(20)))
def test_any_answer_of_the_right_shape_makes_findings(seed: int):
    generated = Generated(seed)
    stub = StubAccount({operation: generated.reply(operation) for operation in operations()})
    stub.replies["sts.GetCallerIdentity"] = well().replies["sts.GetCallerIdentity"]
    readable(examine(wide(), stub.account()))


@pytest.mark.thorough
@pytest.mark.parametrize("code", ["", "InternalError", "OptInRequired", "ValidationException", "Throttling"])
def test_any_error_leaves_a_question_open_and_nothing_else(code: str):
    def failing(asked: Mapping[str, Any], region: str) -> Mapping[str, Any]:
        raise Refused(code, "what happened\nand why", 500)

    stub = well()
    stub.replies |= {one: failing for one in operations() if not one.startswith(("sts.", "iam.", "ec2.DescribeRegions"))}
    findings = examine(wide(), stub.account())
    readable(findings)
    asked = [one for one in findings if one.topic in ("quotas", ZONES, "releases", "prices") and "reserved:" not in one.text]
    assert {finding.verdict for finding in asked} == {"unknown"}
    assert f"eks:DescribeClusterVersions in us-east-2 failed: {code}" in said(findings, "Kubernetes 1.35: ").text


@pytest.mark.thorough
@pytest.mark.parametrize(
    "error",
    [
        exceptions.ConnectTimeoutError(endpoint_url="https://eks.example"),
        exceptions.EndpointConnectionError(endpoint_url="https://eks.example"),
        exceptions.ReadTimeoutError(endpoint_url="https://eks.example"),
        exceptions.SSLError(endpoint_url="https://eks.example", error="self-signed"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_network_that_fails_is_told(error: Exception):
    def failing(asked: Mapping[str, Any], region: str) -> Mapping[str, Any]:
        raise error

    findings = examine(recorded("inf2-llama2"), well().but(eks_DescribeClusterVersions=failing).account())
    told = said(findings, "Kubernetes 1.35: ")
    assert told.verdict == "unknown"
    assert "https://eks.example" in told.text


@pytest.mark.thorough
def test_credentials_that_need_a_login_meanwhile_are_one_error():
    def failing(asked: Mapping[str, Any], region: str) -> Mapping[str, Any]:
        raise exceptions.UnauthorizedSSOTokenError()

    findings = examine(recorded("inf2-llama2"), well().but(eks_DescribeClusterVersions=failing).account())
    (error,) = [finding for finding in findings if finding.verdict == "error"]
    assert "the credentials cannot be used" in error.text


@pytest.mark.thorough
def test_an_endpoint_that_is_no_address_is_told(monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL_EKS", "nonsense")
    found = said(examine(recorded("inf2-llama2"), well().account()), "Kubernetes 1.35: ")
    assert (found.verdict, "Invalid endpoint: nonsense" in found.text) == ("unknown", True)


# -- pages -----------------------------------------------------------------------------------------------------------------------


def paged(*pages: list[dict[str, Any]], endless: bool = False) -> StubAccount:
    """An account whose list of EC2's quotas comes in pages."""

    def reply(asked: Mapping[str, Any], region: str) -> Mapping[str, Any]:
        number = int(asked.get("NextToken", "0"))
        more = endless or number + 1 < len(pages)
        return {"Quotas": pages[number] if number < len(pages) else [], **({"NextToken": str(number + 1)} if more else {})}

    stub = well()
    stub.replies["service-quotas.ListServiceQuotas"] = reply
    return stub


INF = {"QuotaName": "Running On-Demand Inf instances", "QuotaCode": "L-1", "Value": 1.0}


def test_pages_are_joined_also_empty_ones():
    found = said(examine(recorded("inf2-llama2"), paged([], [{"QuotaName": "other"}], [], [INF]).account()), "Inf instances")
    assert (found.verdict, found.facts["value"]) == ("error", 1.0)


@pytest.mark.thorough
def test_an_answer_without_an_end_is_left():
    stub = paged([], endless=True)
    found = said(examine(recorded("inf2-llama2"), stub.account()), "Inf instances")
    assert found.text.endswith(f"servicequotas:ListServiceQuotas: the answer has more than {MOST_PAGES} pages")
    asked = [one for one in stub.asked if one[0] == "service-quotas.ListServiceQuotas" and one[1]["ServiceCode"] == "ec2"]
    assert len(asked) == MOST_PAGES + 1


@pytest.mark.thorough
def test_a_page_that_comes_again_is_told():
    stub = well()
    stub.replies["service-quotas.ListServiceQuotas"] = lambda asked, region: {"Quotas": [], "NextToken": "same"}
    assert (
        "The same next token was received twice" in said(examine(recorded("inf2-llama2"), stub.account()), "Inf instances").text
    )


@pytest.mark.thorough
def test_a_huge_account_is_counted():
    stub = well(inf=1e9)
    stub.replies["ec2.DescribeInstances"] = lambda asked, region: {
        "Reservations": [{"Instances": [{"InstanceType": "inf2.48xlarge"}] * 1000}] * 100
    }
    assert "in use 19,200,000" in said(examine(recorded("inf2-llama2"), stub.account()), "Inf instances").text


# -- time ------------------------------------------------------------------------------------------------------------------------


class Throttled(StubAccount):
    """An account that throttles one operation over the wire, which botocore asks again."""

    sent = 0

    def _answered(self, model: Any, context: Mapping[str, Any], **rest: Any) -> Any:
        return None if model.name == "ListClusters" else super()._answered(model, context, **rest)

    def throttle(self, times: int) -> Account:
        def send(request: Any, **_: Any) -> AWSResponse:
            self.sent += 1
            body = b'{"clusters": []}' if self.sent > times else b'{"message": "Rate exceeded"}'
            headers = {} if self.sent > times else {"x-amzn-errortype": "ThrottlingException"}
            return AWSResponse(request.url, 200 if self.sent > times else 429, headers, _Raw(body))

        account = self.account()
        account._session.events.register("before-send.eks.ListClusters", send)
        return account


class _Raw:
    def __init__(self, body: bytes) -> None:
        self.body = body

    def stream(self, *_: Any, **__: Any) -> Any:
        yield self.body


@pytest.mark.thorough
def test_throttling_is_waited_for_and_then_told(monkeypatch):
    waited: list[float] = []
    monkeypatch.setattr("botocore.endpoint.time.sleep", waited.append)
    patient = Throttled(well().replies)
    assert said(examine(recorded("inf2-llama2"), patient.throttle(2)), "Clusters: ").verdict == "ok"
    assert (patient.sent, len(waited)) == (3, 2)
    busy = Throttled(well().replies)
    found = said(examine(recorded("inf2-llama2"), busy.throttle(100)), "Clusters, in part")
    assert found.text == "Clusters, in part: eks:ListClusters in us-east-2 failed: ThrottlingException: Rate exceeded"
    assert busy.sent == TRIES


def test_an_account_that_takes_too_long_is_left(monkeypatch):
    account = well().account()
    monkeypatch.setattr(accounts.time, "monotonic", lambda: float("inf"))
    answer = account.answer(Call("eks.ListClusters", "us-west-2"))
    assert answer == Unanswered("not asked: the account had not answered everything after 180 s")


@pytest.mark.thorough
def test_after_ctrl_c_nothing_more_is_asked():
    """Of many questions one is answered before, and the others that are under way only then."""
    over = threading.Event()
    soon = ("sts.GetCallerIdentity", "iam.ListAccountAliases", "ec2.DescribeRegions", "ec2.DescribeInstances")

    def later(reply: Reply) -> Reply:
        return lambda asked, region: reply(asked, region) if over.wait(PATIENCE_S) else {}

    stub = StubAccount({name: reply if name in soon else later(reply) for name, reply in well().replies.items()})

    def interrupted(done: int, of: int) -> None:
        if of > 10:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        examine(recorded("inf2-llama3"), stub.account(), progress=interrupted)
    over.set()
    until(lambda: not any(thread.name.startswith("doctor") for thread in threading.enumerate()))
    assert "pricing.GetProducts" not in {operation for operation, _, _ in stub.asked}


# -- graphs ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_stacks_with_any_option_are_examined():
    with lazy_sdks():
        graphs = [covering_graphs.recorded(example, secrets=True) for example in covering.covering_set()[::12]]
    for graph in graphs:
        readable(examine(graph, well().account()))
        assert needed_policy(graph)["Statement"]


# -- moto, where it answers ------------------------------------------------------------------------------------------------------


class ByMoto(Account):
    """An account that moto keeps; it lacks some operations."""

    lacking: frozenset[str] = frozenset()

    def answer(self, asked: Call) -> Answer:
        try:
            return super().answer(asked)
        except NotImplementedError:
            self.lacking |= {asked.operation}
            return Unanswered("moto lacks it")


@pytest.mark.thorough
def test_the_wire_of_what_moto_answers():
    with moto.mock_aws():
        session = boto3.Session("AKIAIOSFODNN7EXAMPLE", "example")
        boto3.client("ec2", region_name="us-west-2", aws_access_key_id="a", aws_secret_access_key="b").allocate_address()
        boto3.client("logs", region_name="us-west-2", aws_access_key_id="a", aws_secret_access_key="b").create_log_group(
            logGroupName="/aws/eks/inf2-llama3/cluster"
        )
        account = ByMoto(session)
        findings = examine(recorded("inf2-llama3"), account)
    readable(findings)
    assert said(findings, "account 123456789012").verdict == "ok"
    assert said(findings, "usw2-az4 is us-west-2").verdict == "ok"
    assert said(findings, "inf2.8xlarge (inferentia-inf2)").verdict == "ok"
    assert said(findings, "log group /aws/eks/inf2-llama3/cluster exists").verdict == "warning"
    assert said(findings, "cluster inf2-llama3: the name is free").verdict == "ok"
    assert said(findings, "ECR repository inf2-llama3/vllm-llama3-inf2-image: the name is free").verdict == "ok"
    assert said(findings, "AWSServiceRoleForEC2Spot is missing").verdict == "warning"
