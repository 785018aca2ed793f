"""``doctor``: what it asks of an account, what it makes of the answers, and what it says when nobody answers."""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, date, datetime
from functools import cache
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.loaders import Loader

from conftest import ROOT, STACKS, recorded
from eks_inference.catalog.prices import Price
from eks_inference.catalog.quotas import quota as quota_named
from eks_inference.catalog.quotas import quotas_of
from eks_inference_tools.cli import main
from eks_inference_tools.cost.estimate import Priced
from eks_inference_tools.cost.needed_quotas import Need
from eks_inference_tools.cost.price_book import OWN, Charge, read_price_file
from eks_inference_tools.doctor import account as accounts
from eks_inference_tools.doctor import (
    account_quotas,
    account_zones,
    capacity,
    given,
    hub_access,
    identity,
    images,
    linked_roles,
    offered_releases,
    price_list,
    report,
    taken_names,
)
from eks_inference_tools.doctor.examine import examine, needed_policy, regions_of
from eks_inference_tools.doctor.findings import Finding, Findings
from eks_inference_tools.doctor.images import reference
from eks_inference_tools.doctor.price_list import _amounts, price_file
from eks_inference_tools.doctor.questions import Call, HubFile, Unanswered, call, operations
from eks_inference_tools.reading.node_groups import NODE_GROUP_TYPE
from golden import assert_golden
from json_schemas import unlike
from stackgraph.graph.document import Graph, Resource
from stackgraph.problems import ProblemsFound
from stub_account import Refused, StubAccount, denied, in_another_region, well, without_quota
from variants import recorded_with

ACCOUNTS: Mapping[str, Callable[[], StubAccount]] = {
    "well": well,
    "no_quota": without_quota,
    "wrong_region": in_another_region,
    "denied": denied,
}


@pytest.fixture(autouse=True)
def only_these_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    for name in ("AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "HF_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.chdir(ROOT)


ACL = "arn:aws:wafv2:us-east-2:111122223333:regional/webacl/a/b"


@cache
def wide() -> Graph:
    """A stack with something of everything that the doctor asks about."""
    graph = recorded_with(
        {
            "kms_key_arn": "arn:aws:kms:us-east-2:111122223333:key/11111111-2222-3333-4444-555555555555",
            "permissions_boundary_arn": "arn:aws:iam::111122223333:policy/boundary",
            "pools": {"trn2": {"capacity_reservation_id": "cr-0123456789abcdef0"}},
            "cluster": {"admins": ["arn:aws:iam::111122223333:role/existing-admin", "arn:aws:iam::111122223333:user/eva"]},
            "servers": {
                "llama3-70b": {"store": {"kind": "existing", "file_system": "efs", "file_system_id": "fs-0123456789abcdef0"}}
            },
            "mirrors": {"public.ecr.aws": "111122223333.dkr.ecr.us-east-2.amazonaws.com/ecr-public"},
        },
        "trn2-di",
    )
    more = [
        ("aws:s3/bucket:Bucket", {"bucket": "weights-of-ours"}),
        ("aws:iam/role:Role", {"name": "fixed"}),
        ("aws:ecr/repository:Repository", {"name": "fixed"}),
        ("aws:route53/record:Record", {"zoneId": "Z0123456789ABCDEF"}),
        ("aws:lb/listener:Listener", {"certificateArn": "arn:aws:acm:us-east-2:111122223333:certificate/a-b"}),
        (
            "aws:wafv2/webAclAssociation:WebAclAssociation",
            {"webAclArn": ACL},
        ),
        (
            "aws:lb/loadBalancer:LoadBalancer",
            {"subnets": ["subnet-0123456789abcdef0"], "securityGroups": ["sg-0123456789abcdef0"]},
        ),
        ("aws:ec2/instance:Instance", {"ami": "ami-0123456789abcdef0", "instanceType": "m5.large"}),
        ("aws:sns/topicSubscription:TopicSubscription", {"topic": "arn:aws:sns:us-east-2:111122223333:alerts"}),
        ("aws:iam/rolePolicy:RolePolicy", {"policy": '{"Resource": "arn:aws:s3:::models-of-ours/*"}'}),
    ]
    spot = next(resource for resource in graph.of_type(NODE_GROUP_TYPE) if "core" in resource.name)
    resources = [
        *(resource for resource in graph.resources if resource is not spot),
        replace(spot, inputs={**spot.inputs, "capacityType": "SPOT"}),
        *(
            Resource(f"urn:pulumi:s::p::{type_}::more{n}", type_, f"more{n}", inputs=inputs)
            for n, (type_, inputs) in enumerate(more)
        ),
    ]
    # Without its reservation, the type needs one.
    group = next(resource for resource in recorded("trn2-nixl").of_type(NODE_GROUP_TYPE) if "core" not in resource.name)
    bare = {key: value for key, value in group.inputs.items() if key != "launchTemplate"}
    return replace(graph, resources=(*resources, replace(group, urn=f"{group.urn}-again", name="bare", inputs=bare)))


def of(findings: Findings, topic: str) -> Findings:
    return tuple(finding for finding in findings if finding.topic == topic)


def said(findings: Findings, words: str) -> Finding:
    """The finding whose text has the words."""
    (found,) = [finding for finding in findings if words in finding.text]
    return found


# -- the four accounts -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ACCOUNTS)
def test_the_report_of_an_account(name: str):
    findings = examine(recorded("inf2-llama3"), ACCOUNTS[name]().account())
    assert_golden(f"doctor/{name}.txt", report.shown("inf2-llama3", findings))


@pytest.mark.thorough
@pytest.mark.parametrize("stack", STACKS)
def test_every_stack_in_every_account(stack: str):
    graph = recorded(stack)
    found = {name: examine(graph, one().account()) for name, one in ACCOUNTS.items()}
    assert [finding for finding in found["well"] if finding.verdict == "error"] == []
    named = of(found["well"], "reservations")
    assert all(finding.verdict == "warning" and "names no reservation; the account has" in finding.text for finding in named)
    requests = [finding.request for finding in of(found["no_quota"], "quotas") if finding.verdict == "error"]
    assert requests
    assert all("request-service-quota-increase --service-code ec2 --quota-code L-" in request for request in requests)
    assert said(found["wrong_region"], "is not enabled in this account").verdict == "error"
    assert {finding.verdict for finding in found["denied"] if finding.topic != "credentials"} == {"unknown"}
    assert {finding.topic for finding in found["denied"]} == {finding.topic for finding in found["well"]}


# -- every question --------------------------------------------------------------------------------------------------------------


def model(service: str) -> Mapping[str, Any]:
    return Loader().load_service_model(service, "service-2")


@pytest.mark.thorough
@pytest.mark.parametrize("operation", operations())
def test_an_operation_only_reads_and_is_one_of_awss(operation: str):
    service, _, name = operation.partition(".")
    assert re.match(r"(Get|List|Describe|Head|Batch(Get|Check|Describe))[A-Z]", name)
    assert name in model(service)["operations"]
    metadata = model(service)["metadata"]
    asked = call(operation, "us-west-2")
    assert asked.permission.partition(":")[0] in ("", metadata.get("signingName") or metadata["endpointPrefix"])
    declared = {item["shape"] for item in model(service)["operations"][name].get("errors", ())}
    codes = {model(service)["shapes"][one].get("error", {}).get("code", one) for one in declared} | declared
    # EC2 declares no errors, S3 answers HEAD with a status only; and IAM's are declared by another name.
    assert service in ("ec2", "s3", "iam", "sns") or set(asked.absent) <= codes, (asked.absent, codes)


@cache
def whole() -> tuple[frozenset[str], Findings]:
    """What is asked about the wide stack, and what comes out."""
    stub = well()
    findings = examine(wide(), stub.account())
    return frozenset(operation for operation, _, _ in stub.asked), findings


@pytest.mark.thorough
@pytest.mark.parametrize("operation", operations())
def test_who_may_not_ask_is_told_which_permission_is_missing(operation: str):
    without, (asked, before) = well().denying(operation), whole()
    assert operation in asked, "no stack of this test asks it"
    if operation == "sts.GetCallerIdentity":
        with pytest.raises(ProblemsFound, match="cannot ask the account"):
            examine(wide(), without.account())
        return
    after = examine(wide(), without.account())
    permission = call(operation, "").permission
    refused = [finding for finding in after if permission in finding.facts.get("permissions", ())]
    assert {finding.verdict for finding in refused} == {"unknown"}
    assert len([finding for finding in refused if permission in finding.text]) == len(refused) - 1
    assert said(after, "1 permission missing").remedy == "allow what --iam-policy prints"
    # Nothing else changes, and nothing that was not answered counts as well.
    new = [finding for finding in after if finding not in before and finding not in refused]
    assert all(finding.topic in {each.topic for each in refused} for finding in new)
    assert not any(finding.verdict in ("error", "warning") for finding in new)


@pytest.mark.thorough
def test_the_policy_allows_what_is_asked_and_nothing_else():
    for graph in (wide(), *map(recorded, STACKS)):
        asked = well()
        examine(graph, asked.account())
        needed = {permission for one, _, _ in asked.asked if (permission := call(one, "").permission)}
        policy = needed_policy(graph)
        assert {action for one in policy["Statement"] for action in one["Action"]} == needed
        assert all(action.split(":")[1] for action in needed)
    statements = needed_policy(wide())["Statement"]
    assert next(statement for statement in statements if "kms:DescribeKey" in statement["Action"])["Resource"] == [
        "arn:aws:kms:us-east-2:111122223333:key/11111111-2222-3333-4444-555555555555"
    ]


@pytest.mark.thorough
def test_no_question_is_asked_twice():
    asked = well()
    examine(wide(), asked.account())
    seen = [(one, json.dumps(given_, sort_keys=True), region) for one, given_, region in asked.asked]
    assert len(seen) == len(set(seen))


# -- credentials -----------------------------------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_without_credentials_there_is_one_error(capsys, recorded_once):
    assert main(["doctor", "inf2-llama2"]) == 2
    assert capsys.readouterr().err.startswith("error: cannot ask the account: no credentials were found\n    hint: log in")


@pytest.mark.thorough
def test_a_profile_that_does_not_exist_is_named():
    with pytest.raises(ProblemsFound, match=r"(?s)aws:profile: cannot ask the account: .*absent.*given: absent"):
        accounts.open_account("absent")


@pytest.mark.thorough
def test_without_boto3_an_error_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "boto3", None)
    with pytest.raises(ProblemsFound, match=r"(?s)boto3 is not installed.*pip install 'boto3>="):
        accounts.open_account()


@pytest.mark.thorough
@pytest.mark.parametrize("code", ["ExpiredTokenException", "RequestExpired", "InvalidClientTokenId", "ExpiredToken"])
def test_credentials_that_end_meanwhile_are_one_error(code: str):
    def ended(asked: Mapping[str, Any], region: str) -> Mapping[str, Any]:
        raise Refused(code, "The security token included in the request is expired")

    stub = well().but(eks_DescribeClusterVersions=ended)
    findings = examine(recorded("inf2-llama3"), stub.account())
    errors = [finding for finding in findings if finding.verdict == "error"]
    assert [error.text for error in errors] == [
        f"the credentials are no longer accepted ({code}): The security token included in the request is expired"
    ]
    assert errors[0].remedy == "log in again, then repeat this"
    assert said(findings, "Kubernetes 1.35: ").verdict == "unknown"


@pytest.mark.parametrize(
    ("operation", "code", "answer"),
    [
        ("eks.DescribeCluster", "ResourceNotFoundException", None),
        ("eks.DescribeCluster", "AccessDeniedException", Unanswered(permission="eks:DescribeCluster")),
        ("s3.HeadBucket", "403", Unanswered(permission="s3:ListBucket")),
        ("sts.GetCallerIdentity", "AccessDenied", Unanswered("sts:GetCallerIdentity in here failed: AccessDenied: no")),
        ("eks.ListClusters", "Throttling", Unanswered("eks:ListClusters in here failed: Throttling: no")),
        ("eks.ListClusters", "ExpiredToken", Unanswered("the credentials are no longer accepted (ExpiredToken): no")),
    ],
)
def test_a_refusal_is_an_answer(operation: str, code: str, answer: Unanswered | None):
    account, asked = well().account(), call(operation, "here")
    refused = SimpleNamespace(response={"Error": {"Code": code, "Message": "no"}})
    assert account._refused(asked, refused) == answer
    assert account.ended == (answer.reason if answer and code == "ExpiredToken" else "")
    assert not account.ended or account.answer(asked) == Unanswered(f"not asked: {account.ended}")


def test_a_program_without_a_region_is_refused():
    with pytest.raises(ProblemsFound, match="no region"):
        regions_of(Graph("p", "s", ()))


# -- answers ---------------------------------------------------------------------------------------------------------------------


def quota(title: str, value: float, **more: Any) -> dict[str, Any]:
    return {"QuotaName": title, "QuotaCode": "L-1", "Value": value, "Adjustable": True, **more}


def with_quotas(*rows: dict[str, Any], pending: float = 0) -> Findings:
    requests = [{"QuotaCode": "L-1", "DesiredValue": pending}] if pending else []
    stub = well().but(
        service__quotas_ListServiceQuotas=lambda asked, region: {"Quotas": rows if asked["ServiceCode"] == "ec2" else []}
    )
    stub.replies["service-quotas.ListServiceQuotas"] = lambda asked, region: {
        "Quotas": rows if asked["ServiceCode"] == "ec2" else []
    }
    stub.replies["service-quotas.ListAWSDefaultServiceQuotas"] = lambda asked, region: {"Quotas": []}
    stub.replies["service-quotas.ListRequestedServiceQuotaChangeHistory"] = lambda asked, region: {"RequestedQuotas": requests}
    return of(examine(recorded("inf2-llama3"), stub.account()), "quotas")


INF = "Running On-Demand Inf instances"


def test_a_quota_is_found_by_its_name_whatever_its_code():
    found = said(with_quotas(quota("Running on-demand  Inf instances", 95)), "Inf instances")
    assert found.verdict == "error"
    assert found.text == "Running on-demand Inf instances: needs 96 vCPU, the account may have 95 vCPU, in use 0"
    assert found.request.endswith("--service-code ec2 --quota-code L-1 --desired-value 96 --region us-west-2")
    assert said(with_quotas(quota(INF, 96)), "Inf instances").verdict == "ok"


def test_what_is_in_use_counts():
    instances = [("inf2.48xlarge", ""), ("inf2.8xlarge", "spot"), ("inf2.xlarge", "capacity-block"), ("g6.xlarge", ""), ("x", "")]
    answer = {"Reservations": [{"Instances": [{"InstanceType": type_, "InstanceLifecycle": life}]} for type_, life in instances]}
    assert [account_quotas._vcpus(quotas_of(way)["inf"], answer) for way in ("on_demand", "spot")] == [192, 32]
    assert account_quotas._IN_USE["gp3_storage"][2]({"Volumes": [{"Size": 1024}, {"Size": 500}, {}]}) == 1.49
    balancers = {"LoadBalancers": [{"Type": "network"}, {"Type": "network"}, {"Type": "gateway"}]}
    assert [account_quotas._IN_USE[f"{kind}_load_balancers"][2](balancers) for kind in ("network", "application")] == [2, 0]


def reservation(**changed: Any) -> Finding:
    row = {
        "CapacityReservationId": "cr-0123456789abcdef0",
        "InstanceType": "trn2.48xlarge",
        "AvailabilityZoneId": "use2-az3",
        "State": "active",
        "TotalInstanceCount": 1,
        "AvailableInstanceCount": 1,
        "ReservationType": "default",
    }
    stub = well().but(ec2_DescribeCapacityReservations=lambda asked, region: {"CapacityReservations": [row | changed]})
    graph = recorded_with({"pools": {"trn2": {"capacity_reservation_id": "cr-0123456789abcdef0"}}}, "trn2-di")
    (found,) = of(examine(graph, stub.account()), "reservations")
    return found


@pytest.mark.parametrize(
    ("changed", "verdict", "words"),
    [
        ({}, "ok", "reservation cr-0123456789abcdef0 of 1 × trn2.48xlarge in use2-az3, active"),
        ({"InstanceType": "trn1.32xlarge"}, "error", "the pool has trn2.48xlarge"),
        ({"AvailabilityZoneId": "use2-az1"}, "error", "the pool has only use2-az3"),
        ({"TotalInstanceCount": 0}, "error", "the pool may have 1 nodes"),
        ({"State": "expired"}, "error", "it gives no capacity any more"),
        ({"State": "scheduled"}, "warning", "it is not active yet"),
        ({"AvailableInstanceCount": 0}, "warning", "0 are free"),
        ({"EndDate": datetime(2026, 9, 1, 23, tzinfo=UTC)}, "warning", "it ends within a day"),
        ({"EndDate": datetime(2026, 9, 2, tzinfo=UTC)}, "ok", "active"),
        ({"ReservationType": "capacity-block"}, "error", "it is a capacity block, and the pool does not set"),
    ],
)
def test_a_reservation_suits_its_pool_or_not(changed: dict[str, Any], verdict: str, words: str):
    found = reservation(**changed)
    assert found.verdict == verdict
    assert words in found.text


def test_what_the_graph_names_and_does_not_make_is_asked_for():
    arns = ["s3:::b/x", "s3:::made/*", "s3:::many-*", "iam::aws:policy/P", "iam::aws:role/x", "iam::111122223333:role/a/r"]
    key, topic = "arn:aws:kms:us-west-1:111122223333:key/k", "arn:aws:sns:us-east-2:111122223333:alerts"
    things = [
        ("a:b:C", {"texts": [topic, *(f"arn:aws:{one}" for one in arns)], "bucket": "made"}),
        ("a:b:D", {"ids": ["fs-01234567", "x-subnet-01234567", "subnet-0123456", "sg-0123456789abcdef0"]}),
        ("aws:ec2/launchTemplate:LaunchTemplate", {"blockDeviceMappings": [{"ebs": {"kmsKeyId": key}}, 1]}),
        *(("aws:route53/record:Record", {"zoneId": one}) for one in ("Z1", "<zone.id>", "")),
    ]
    made = (Resource(f"urn:pulumi:s::p::{type_}::{n}", type_, str(n), inputs=inputs) for n, (type_, inputs) in enumerate(things))
    planned = list(given.given(Graph("p", "s", tuple(made)), ("us-east-2", "us-west-1")))
    asked = [(one.subject, call) for one in planned for call in one.needed if isinstance(call, Call) and call.service != "sts"]
    assert [(subject, call.operation, call.region, [*call.parameters.values()][-1]) for subject, call in asked] == [
        ("arn:aws:iam::111122223333:role/a/r", "iam.GetRole", "us-east-1", "r"),
        ("arn:aws:iam::aws:policy/P", "iam.GetPolicy", "us-east-1", "arn:aws:iam::aws:policy/P"),
        (key, "kms.DescribeKey", "us-west-1", key),
        ("bucket b", "s3.HeadBucket", "us-east-2", "b"),
        (topic, "sns.GetTopicAttributes", "us-east-2", topic),
        (f"{key} for disks", "kms.GetKeyPolicy", "us-west-1", "default"),
        (f"{key} for disks", "kms.ListGrants", "us-west-1", key),
        ("fs-01234567", "efs.DescribeFileSystems", "us-east-2", "fs-01234567"),
        ("fs-01234567", "fsx.DescribeFileSystems", "us-east-2", ["fs-01234567"]),
        ("sg-0123456789abcdef0", "ec2.DescribeSecurityGroups", "us-east-2", ["sg-0123456789abcdef0"]),
        ("hosted zone Z1", "route53.GetHostedZone", "us-east-1", "Z1"),
    ]


@pytest.mark.parametrize(
    ("policy", "grants", "verdict", "said_"),
    [
        ('{"Statement": [{"Principal": {"AWS": "arn:aws:iam::1:role/x/AWSServiceRoleForAutoScaling"}}]}', [], "ok", "names"),
        ("{}", [{"GranteePrincipal": "arn:aws:iam::1:role/x/AWSServiceRoleForAutoScaling"}], "ok", "names"),
        ('{"Statement": [{"Principal": {"AWS": "*"}, "Condition": {}}]}', [], "unknown", "every principal on conditions"),
        ('{"Statement": [{"Principal": {"AWS": "arn:aws:iam::1:root"}}]}', [], "warning", "no managed node starts"),
    ],
)
def test_auto_scaling_may_use_the_key_of_disks(policy: str, grants: list[dict[str, str]], verdict: str, said_: str) -> None:
    (found,) = given._for_disks({"Policy": policy}, {"Grants": grants}, "arn:aws:kms:us-west-2:1:key/a")
    assert (found.verdict, said_ in found.text) == (verdict, True)


# -- answers, one by one ---------------------------------------------------------------------------------------------------------

HERE, DAY = ("us-east-2",), date(2026, 9, 1)
CERTIFICATE, ROLE = given.Arn("c/1", "acm", *HERE, "1", "c/1"), given.Arn("role/r", "iam", "", "1", "role/r")
NODES = capacity.Wanted("p", "us-east-2", ("trn2.48xlarge",), frozenset(), 2, block=True)
TYPES = account_zones.Wanted("p", "us-east-2", ("inf2.*", "c5.large"), ("us-east-2a", "az2"))
IMAGE, HUB = images.Reference("1.dkr.ecr.us-east-2.amazonaws.com", "cache/vllm", "v1"), HubFile("org/m", "v2")
P6 = Need("us-east-1", None, 2, "p6-b200.48xlarge, spot: none known")
LIKE_P6 = {"Quotas": [{"QuotaName": name, "Value": 96.0} for name in ("All P6 Spot", "All P5 Spot", "P6 On-Demand")]}
LINE = Priced(Charge("nodes", "p", "", "g6.xlarge", "us-east-2", "", (0, 0, 1)), None)
SPOT = [{"SpotPrice": usd} for usd in ("0", "x", "0.1", "0.3", "0.2")]
PRICE = Price("g6.xlarge", "us-east-2", 2, "hour", "AWS", "May")
OFFER = {"StartDate": datetime(2026, 9, 3, 11, 30, tzinfo=UTC), "AvailabilityZone": "a", "UpfrontFee": "9"}
LOGS = {"logGroups": [{"logGroupName": "a-b"}]}
BLOCK = {"ReservationType": "capacity-block", "State": "active", "TotalInstanceCount": 2, "AvailableInstanceCount": 2}


def zone(name: str = "az1", **more: Any) -> Iterable[Finding]:
    return account_zones._zones({"AvailabilityZones": [{"ZoneId": "az1", "ZoneName": "a", **more}]}, [name], "us-east-2")


def offered(*where: str, type_: str = "inf2.xlarge", zones: tuple[str, ...] = TYPES.zones) -> Iterable[Finding]:
    ids = {"AvailabilityZones": [{"ZoneName": "us-east-2a", "ZoneId": "az1"}]}
    there = {"InstanceTypeOfferings": [{"InstanceType": type_, "Location": one} for one in where]}
    return account_zones._offered(there, ids, replace(TYPES, zones=zones))


def version(status: str, standard: datetime | None = None, named: str = "1.99") -> Iterable[Finding]:
    row = {"clusterVersion": "1.99", "versionStatus": status, "endOfStandardSupportDate": standard}
    return offered_releases._version({"clusterVersions": [row]}, named, DAY)


def addon(pin: str, *there: str, default: str = "") -> Iterable[Finding]:
    suits = ([{"clusterVersion": "1.35", "defaultVersion": one == default}] for one in there)
    rows = [{"addonVersion": one, "compatibilities": suit} for one, suit in zip(there, suits, strict=True)]
    return offered_releases._addon({"addons": [{"addonVersions": rows}]}, "dns", pin, "1.35")


def image(**parameters: str) -> Iterable[Finding]:
    found = {"Parameters": [{"Name": name, "Value": value} for name, value in parameters.items()]}
    return offered_releases._image(found, "AL2023", "v7", "pinned", "newest")


def cached(*prefixes: str, **answer: Any) -> Iterable[Finding]:
    rules = [{"ecrRepositoryPrefix": one, "upstreamRegistryUrl": "up.io"} for one in prefixes]
    return images._in_ecr(answer, {"pullThroughCacheRules": rules}, one=IMAGE)


def provider(**inputs: Any) -> Iterable[Finding]:
    type_ = "pulumi:providers:aws"
    return identity._allowed(Graph("p", "s", (Resource("urn:pulumi:s::p::x::y", type_, "y", inputs=inputs),)), "1")


def price(*usd: float, ours: Price | None = None) -> Iterable[Finding]:
    tiers = ({"a": {"unit": "Hrs", "beginRange": "0", "pricePerUnit": {"USD": str(one)}}} for one in usd)
    terms = {str(number): {"priceDimensions": tier} for number, tier in enumerate(tiers)}
    answer = {"PriceList": ["no JSON", "[]", '{"terms": 3}', '{"terms": {"OnDemand": []}}', {"terms": {"OnDemand": terms}}]}
    return price_list._listed(answer, replace(LINE, price=ours), "on_demand", ("Hrs",), "", DAY)


@pytest.mark.parametrize(
    ("findings", "told"),
    [
        (given._key({}, CERTIFICATE), "ok: is enabled; who may use it is not judged here"),
        (given._key({"KeyMetadata": {"Enabled": True, "KeyState": "Enabled"}}, CERTIFICATE), "ok: is not judged here"),
        (given._key({"KeyMetadata": {"Enabled": True, "KeyState": "PendingDeletion"}}, CERTIFICATE), "error: is PendingDeletion"),
        (given._key({"KeyMetadata": {"Enabled": False}}, CERTIFICATE), "error: c/1 is not enabled"),
        (given._certificate({"Certificate": {"Status": "ISSUED", "DomainName": "a.b"}}, CERTIFICATE), "ok: is issued for a.b"),
        (given._exists({}, {}, CERTIFICATE, HERE), "error: c/1 is without a status"),
        (given._exists(None, {}, CERTIFICATE, HERE), "error: c/1 does not exist"),
        (given._exists({}, {}, CERTIFICATE, ("us-west-2",)), "error: c/1 is in us-east-2, the stack in us-west-2"),
        (given._exists({}, {}, replace(ROLE, account="aws"), HERE), "ok: role/r exists"),
        (given._exists(None, {"Account": "9"}, ROLE, HERE), "unknown: is in another account than 9 and cannot be looked up"),
        *((given._for_disks(*unknown, "key"), "") for unknown in ((None, {}), ({}, None))),
        (given._listed({}, "S", "ami-1", "us-east-2"), "error: us-east-2 has no ami-1 that this account sees"),
        (given._listed({"S": [{"AvailableIpAddressCount": 0}]}, "S", "subnet-1", ""), "ok: subnet-1 exists, 0 addresses free"),
        (given._file_system(None, {}, "fs-1", "here"), "error: here has no file system fs-1 that this account sees"),
        (given._file_system({"FileSystems": [{"LifeCycleState": "available"}]}, None, "fs-1", ""), "ok: fs-1 is available"),
        (given._file_system(None, {"FileSystems": [{"Lifecycle": "FAILED"}]}, "fs-1", ""), "warning: fs-1 is FAILED"),
        (given._bucket("b", HERE).judge({"BucketRegion": "us-east-2"}), "ok: bucket b exists"),
        (given._bucket("b", HERE).judge({}), "ok: bucket b exists"),
        (given._bucket("b", HERE).judge({"BucketRegion": "x"}), "unknown: costs, and gateway endpoints do not serve it"),
        (given._zone({"HostedZone": {"Name": "a.", "Config": {"PrivateZone": True}}}, "Z1"), "ok: Z1 is a. (private)"),
        (given._zone({"HostedZone": {"Name": "a."}}, "Z1"), "ok: Z1 is a. (public)"),
        (zone(State="information"), "ok: az1 is a in this account"),
        (zone("az3"), "error: us-east-2 has no zone az3 for this account; it has az1"),
        (zone(OptInStatus="not-opted-in"), "error: az1 is a in this account, and not enabled"),
        (zone(State="impaired", Messages=[{"Message": "x"}]), "warning: az1 is a in this account, and impaired: x"),
        (offered("az1", type_="inf2x.large"), "error: us-east-2 offers it in no zone"),
        (offered("az1", "az2"), "ok: inf2.* or c5.large (p): offered in az1, az2"),
        (offered("az1", zones=()), "unknown: offered in az1; the pool's zones are known only after deployment"),
        (offered("az1", type_="c5.large"), "warning: offered in az1, not in az2: nodes start only where it is offered"),
        (offered("az3"), "error: offered in az3; the pool has only az1, az2"),
        (capacity._named(None, "cr", NODES, DAY), "error: p: us-east-2 has no reservation cr for this account"),
        (capacity._named({"CapacityReservations": [BLOCK]}, "cr", NODES, DAY), "ok: p: block  of 2 ×  in , active"),
        (
            capacity._named({"CapacityReservations": [BLOCK | {"ReservationType": "default"}]}, "cr", NODES, DAY),
            "error: the pool sets capacity_type: capacity_block, and this is not one",
        ),
        (capacity._unnamed({}, None, NODES, "trn2"), "error: none of trn2, which is rarely available on demand"),
        (capacity._unnamed({}, {}, replace(NODES, count=0), "trn2"), "error: ; capacity blocks of a day for 1: none"),
        (capacity._unnamed({}, {"CapacityBlockOfferings": [OFFER]}, NODES, "trn2"), "error: 2: 2026-09-03 11:30 UTC in a, 9"),
        (version("UNSUPPORTED"), "error: Kubernetes 1.99: unsupported"),
        (version("", named="1.98"), "error: EKS has no Kubernetes 1.98 here"),
        (version("extended-support"), "warning: extended support: the control plane costs six times as much"),
        (version("x", datetime(2026, 10, 31)), "ok: Kubernetes 1.99: x, standard support until 2026-10-31"),
        (version("x", datetime(2026, 10, 30)), "warning: 2026-10-30: then the control plane costs six times as much"),
        (addon("v1"), "error: add-on dns: EKS has none for Kubernetes 1.35 here"),
        (addon("", "v2", "v1", default="v1"), "ok: add-on dns: EKS chooses v1 for Kubernetes 1.35"),
        (addon("v2", "v2", default="v2"), "ok: add-on dns v2: suits for Kubernetes 1.35; EKS's default is v2"),
        (addon("v0", "v4", "v3", "v2", "v1"), "error: EKS has no such version for Kubernetes 1.35; it has v4, v3, v2"),
        (image(newest="v7"), "ok: AL2023 v7: it is the newest"),
        (image(newest="v8"), "error: AL2023 v7: EKS has no such image here; the newest is v8"),
        (image(), "error: AL2023 v7: EKS has no such image here; the newest is not known"),
        (cached("vllm", "cach", failures=[{"failureCode": "X", "failureReason": "y"}]), "error: cache/vllm:v1: X: y"),
        (cached("cache"), "unknown: not cached yet; the rule for cache fetches it from up.io at the first pull"),
        (linked_roles._spot(None, ("p", "q")), "warning: and get none; Karpenter takes others without a word"),
        (linked_roles._judged(None, "R", {"missing": "no nodes", "service": "s"}), "warning: R is missing: no nodes"),
        (taken_names._judged({}, "b", "bucket", taken_names._always), "warning: b exists: names are unique in all accounts"),
        (taken_names._judged({}, "r", "role", taken_names._always), "warning: creation fails, unless this stack has made it"),
        (taken_names._judged(LOGS, "a", "group", taken_names._listed), "ok: group a: the name is free"),
        (
            taken_names._judged(LOGS, "a-b", "group", taken_names._listed),
            "warning: creation fails, unless this stack has made it",
        ),
        (hub_access._judged({}, HUB, False), "ok: org/m: the Hub gives it to anybody without a token"),
        (hub_access._judged(None, HUB, True), "error: org/m: the Hub has no config.json at revision v2"),
        (hub_access._judged({"refused": "gated"}, HUB, True), "error: org/m: the Hub refuses the token: gated"),
        (identity._enabled({}, "us-east-2"), "error: region us-east-2 is not in this account's partition"),
        (provider(allowedAccountIds=["1"]), ""),
        (provider(allowedAccountIds=["2"]), "error: provider y refuses account 1"),
        (provider(forbiddenAccountIds=["1"]), "error: provider y refuses account 1"),
        (provider(assumeRole={"roleArn": "r"}), "unknown: provider y assumes r: everything here was asked without it"),
        (account_quotas._reserved(P6), "ok: one applied when the capacity was reserved"),
        (account_quotas._nameless({}, {}, P6), "unknown: p6-b200.48xlarge, spot: none known; the stack needs 2"),
        (account_quotas._nameless({}, LIKE_P6, P6), "unknown: the account lists All P6 Spot = 96.0"),
        (price(), "unknown: g6.xlarge in us-east-2: the price list has none"),
        (price(2, 1, 2), "unknown: g6.xlarge in us-east-2: the price list has several prices, $1, $2"),
        (price(2.000004, ours=PRICE), "ok: the catalog has the same"),
        (price(2.000006, ours=PRICE), "ok: the catalog has $2 of May"),
        (price(2, ours=replace(PRICE, usd=3, notes=(OWN,))), "ok: $2 (AWS price list); yours is $3"),
        (price_list._spot({"SpotPriceHistory": SPOT}, LINE, DAY), "ok: $0.3 (spot price, the dearest zone of the day)"),
        (price_list._spot({"SpotPriceHistory": SPOT[:2]}, LINE, DAY), "unknown: g6.xlarge in us-east-2: no spot price today"),
    ],
)
def test_what_an_answer_means(findings: Iterable[Finding], told: str):
    verdict, _, words = told.partition(": ")
    found = list(findings)
    assert [(one.verdict, one.text[-len(words) :]) for one in found] == ([(verdict, words)] if told else [])
    # A remedy has every fault.
    assert all(one.remedy for one in found if one.verdict in ("error", "warning"))


@pytest.mark.parametrize(
    ("row", "used", "asked", "verdict", "request_"),
    [
        ({"Value": 97}, 1, 0, "ok", ""),
        ({"Value": 96}, 1, 0, "warning", "--desired-value 97 --region us-east-2"),
        ({"Value": 95}, 1, 96, "error", "--desired-value 97 --region us-east-2"),
        ({"Value": 95}, 0, 96, "error", ""),
        ({"Value": 95, "Adjustable": False}, 0, 0, "error", ""),
        ({"Value": 96, "QuotaName": "renamed"}, 0, 0, "ok", ""),
        *(({"Value": 96, **other}, 0, 0, "unknown", "") for other in ({"QuotaAppliedAtLevel": "RESOURCE"}, {"Value": "x"})),
    ],
)
def test_a_quota_is_enough_or_not(row: dict[str, Any], used: float, asked: float, verdict: str, request_: str):
    of = quota_named("clusters")
    pending = {"RequestedQuotas": [{"QuotaCode": of.code, "DesiredValue": asked}] if asked else []}
    rows = {"Quotas": [{"QuotaName": of.title, "QuotaCode": of.code} | row]}
    (found,) = account_quotas._judged(Need("us-east-2", of, 96), rows, {}, pending, [{}], lambda answer: used, "")
    assert (found.verdict, found.request.partition("--desired")[2]) == (verdict, request_.removeprefix("--desired"))


# -- images ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given_", "shown"),
    [
        ("nginx", "docker.io/library/nginx:latest"),
        ("nginx:1.27", "docker.io/library/nginx:1.27"),
        ("vllm/vllm-openai:v1", "docker.io/vllm/vllm-openai:v1"),
        ("localhost:5000/a/b", "localhost:5000/a/b:latest"),
        ("public.ecr.aws/a/b:1@sha256:ab", "public.ecr.aws/a/b@sha256:ab"),
    ],
)
def test_an_image_is_read_as_container_runtimes_do(given_: str, shown: str):
    assert reference(given_).shown == shown


# -- prices ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_prices_become_a_file_that_commands_read(tmp_path, capsys, recorded_once):
    graph = recorded("inf2-llama3")
    findings = examine(graph, well().account())
    file = tmp_path / "prices.yaml"
    file.write_text(price_file(findings))
    prices = read_price_file(file)
    assert prices["us-west-2"]["inf2.8xlarge"].on_demand == 1.96786
    assert prices["us-west-2"]["nat_gateway"].usd == 0.045
    assert prices["us-west-2"]["nat_gateway"].source == "AWS price list, 2026-09-01"
    assert main(["check", "inf2-llama3", "--prices", str(file)]) == 0
    assert main(["preview", "inf2-llama3", "--prices", str(file)]) == 0
    assert "own price" in capsys.readouterr().out
    spot = examine(wide(), well().account())
    file.write_text(price_file(spot))
    assert read_price_file(file)["us-east-2"]["m5.xlarge"].spot == 0.101


def test_of_a_price_in_tiers_the_first_that_costs_anything_counts():
    prices = (("0", "Hrs", "0"), ("10", "Hrs", "0.3"), ("20", "Hrs", "0.2"), ("5", "GB", "7"), ("6", "Hrs", "no number"))
    tiers = {begin: {"unit": unit, "beginRange": begin, "pricePerUnit": {"USD": usd}} for begin, unit, usd in prices}
    assert [*_amounts({"terms": {"OnDemand": {"A": {"priceDimensions": tiers}}}}, ("Hrs",))] == [0.3]


# -- the command -----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch, recorded_once) -> Callable[[StubAccount], None]:
    return lambda stub: monkeypatch.setattr(accounts, "open_account", lambda profile: stub.account())


def test_exit_codes_are_those_of_check(answering, capsys):
    answering(well())
    assert main(["doctor", "inf2-llama2", "--no-web"]) == 0
    assert main(["doctor", "inf2-llama2", "--no-web", "--strict"]) == 2
    answering(without_quota())
    assert main(["doctor", "inf2-llama2", "--no-web"]) == 2
    answering(denied())
    assert main(["doctor", "inf2-llama2", "--no-web"]) == 0
    assert "not known" in capsys.readouterr().out


def test_json_has_every_finding_with_what_was_read(answering, capsys, tmp_path):
    answering(without_quota())
    file = tmp_path / "prices.yaml"
    assert main(["doctor", "inf2-llama2", "--no-web", "--format", "json", "--write-prices", str(file)]) == 2
    document = json.loads(capsys.readouterr().out)
    assert (document["schema"], document["stack"], document["verdict"]) == (1, "inf2-llama2", "error")
    assert not unlike("doctor", document)
    row = next(one for one in document["findings"] if one["text"].startswith(INF))
    assert (
        row["facts"]
        == {"quota": INF, "code": "L-1945791B", "value": 0.0, "needed": 192, "used": 0, "region": "us-west-2"} | row["facts"]
    )
    assert read_price_file(file)


def test_the_policy_is_printed_without_an_account(capsys, recorded_once):
    assert main(["doctor", "inf2-llama2", "--iam-policy"]) == 0
    assert json.loads(capsys.readouterr().out) == needed_policy(recorded("inf2-llama2"))
