"""``doctor``: what it asks of an account, what it makes of the answers, and what it says when nobody answers."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from typing import Any

import pytest
from botocore.loaders import Loader

from conftest import ROOT, STACKS, recorded
from eks_inference_tools.cli import main
from eks_inference_tools.cost.needed_quotas import Need
from eks_inference_tools.cost.price_book import read_price_file
from eks_inference_tools.doctor import account as accounts
from eks_inference_tools.doctor import report
from eks_inference_tools.doctor.account_quotas import _nameless
from eks_inference_tools.doctor.examine import examine, needed_policy, regions_of
from eks_inference_tools.doctor.findings import Finding, Findings
from eks_inference_tools.doctor.given import _for_disks
from eks_inference_tools.doctor.images import reference
from eks_inference_tools.doctor.price_list import _amounts, price_file
from eks_inference_tools.doctor.questions import call, operations
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


STORE = {"kind": "existing", "file_system": "efs", "file_system_id": "fs-0123456789abcdef0"}
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


@pytest.mark.thorough
def test_a_provider_of_another_account_is_an_error():
    graph = recorded("inf2-llama3")
    provider = Resource("urn:pulumi:s::p::pulumi:providers:aws::other", "pulumi:providers:aws", "other")
    inputs = {"region": "us-west-2", "allowedAccountIds": ["999999999999"], "assumeRoles": [{"roleArn": "arn:aws:iam::9:role/x"}]}
    graph = replace(graph, resources=(*graph.resources, replace(provider, inputs=inputs)))
    findings = examine(graph, well().account())
    assert said(findings, "provider other refuses account 111122223333").verdict == "error"
    assert said(findings, "provider other assumes arn:aws:iam::9:role/x").verdict == "unknown"


@pytest.mark.thorough
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


@pytest.mark.thorough
def test_a_quota_that_has_another_name_is_found_by_its_code():
    assert said(with_quotas(quota("Inf, renamed", 96, QuotaCode="L-1945791B")), "Inf, renamed").verdict == "ok"


@pytest.mark.thorough
def test_a_quota_that_the_account_does_not_list_is_not_known():
    assert said(with_quotas(), "Inf instances").verdict == "unknown"


@pytest.mark.thorough
def test_a_pending_request_is_not_made_again():
    found = said(with_quotas(quota(INF, 0), pending=192), "Inf instances")
    assert (found.verdict, found.remedy, found.request) == ("error", "a request for 192 is pending: wait for it", "")


@pytest.mark.thorough
def test_a_quota_that_nobody_raises_has_no_request():
    found = said(with_quotas(quota(INF, 0, Adjustable=False)), "Inf instances")
    assert (found.verdict, found.request) == ("error", "")


@pytest.mark.thorough
def test_what_is_in_use_counts():
    instances = [{"InstanceType": "inf2.48xlarge"}, {"InstanceType": "inf2.8xlarge", "InstanceLifecycle": "spot"}]
    stub = well(inf=200)
    stub.replies["ec2.DescribeInstances"] = lambda asked, region: {"Reservations": [{"Instances": instances}]}
    found = said(examine(recorded("inf2-llama3"), stub.account()), INF)
    assert found.verdict == "warning"
    assert "in use 192: together they are more" in found.text
    assert "--desired-value 288" in found.request


@pytest.mark.thorough
def test_reserved_capacity_counted_when_it_was_reserved():
    found = said(examine(wide(), well().account()), "trn2.48xlarge, reserved")
    assert (found.verdict, found.facts) == ("ok", {"needed": 1})


@pytest.mark.thorough
def test_a_need_without_a_quota_of_the_catalog_names_those_of_the_account():
    rows = [{"QuotaName": name, "Value": 96.0} for name in ("All P6 Spot Instance Requests", "All P5 Spot Instance Requests")]
    need = Need("us-east-1", None, 2, "p6-b200.48xlarge, spot: no quota known here")
    (found,) = _nameless({"Quotas": []}, {"Quotas": rows}, need)
    assert found.verdict == "unknown"
    assert found.text.endswith("the stack needs 2; the account lists All P6 Spot Instance Requests = 96.0")


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


@pytest.mark.thorough
def test_a_type_that_is_not_sold_on_demand_asks_for_a_reservation():
    stub = well().but(ec2_DescribeCapacityReservations=lambda asked, region: {"CapacityReservations": []})
    (found,) = of(examine(recorded("trn2-di"), stub.account()), "reservations")
    assert found.verdict == "error"
    assert "2026-09-03 11:30 UTC in a zone, 858.24 USD" in found.text
    assert found.request.startswith("aws ec2 describe-capacity-block-offerings --instance-type trn2.48xlarge --instance-count 1")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("offered", "verdict"),
    [((), "error"), (("usw2-az1",), "warning"), (("usw2-az3",), "error"), (("usw2-az1", "usw2-az4"), "ok")],
)
def test_a_type_is_offered_in_the_zones_of_its_pool(offered: tuple[str, ...], verdict: str):
    rows = [{"InstanceType": "inf2.8xlarge", "Location": zone} for zone in offered]
    stub = well().but(ec2_DescribeInstanceTypeOfferings=lambda asked, region: {"InstanceTypeOfferings": rows})
    findings = of(examine(recorded("inf2-llama3"), stub.account()), "zones and offerings")
    assert said(findings, "inf2.8xlarge (inferentia-inf2)").verdict == verdict


@pytest.mark.thorough
def test_a_zone_that_the_account_lacks_is_an_error():
    rows = [{"ZoneId": "usw2-az1", "ZoneName": "us-west-2a", "State": "impaired", "Messages": [{"Message": "power"}]}]
    stub = well().but(ec2_DescribeAvailabilityZones=lambda asked, region: {"AvailabilityZones": rows})
    findings = examine(recorded("inf2-llama3"), stub.account())
    assert said(findings, "us-west-2 has no zone usw2-az4 for this account; it has usw2-az1").verdict == "error"
    assert said(findings, "usw2-az1 is us-west-2a in this account, and impaired: power").verdict == "warning"


@pytest.mark.thorough
def test_releases_that_eks_lacks_are_errors_with_those_it_has():
    rows = [{"addonVersion": "v9.0.0-eksbuild.1", "compatibilities": []}]
    stub = well().but(
        eks_DescribeAddonVersions=lambda asked, region: {"addons": [{"addonVersions": rows}]},
        eks_DescribeClusterVersions=lambda asked, region: {
            "clusterVersions": [{"clusterVersion": "1.35", "versionStatus": "EXTENDED_SUPPORT"}]
        },
        ssm_GetParameters=lambda asked, region: {
            "Parameters": [{"Name": one, "Value": "1.35.9-20260828"} for one in asked["Names"] if "release_version" in one]
        },
    )
    findings = of(examine(recorded("inf2-llama2"), stub.account()), "releases")
    assert "it has v9.0.0-eksbuild.1" in said(findings, "add-on coredns").text
    assert said(findings, "extended support: the control plane costs six times").verdict == "warning"
    image = said(findings, "AL2023_x86_64_NEURON")
    assert image.verdict == "error"
    assert image.remedy == "set ami.release_version of its pools to 1.35.9-20260828"


@pytest.mark.thorough
def test_spot_without_its_role_is_told():
    def missing(asked: Mapping[str, Any], region: str) -> Mapping[str, Any]:
        raise Refused("NoSuchEntity")

    findings = of(examine(recorded("inf2-llama3"), well().but(iam_GetRole=missing).account()), "service-linked roles")
    assert all(finding.verdict == "warning" for finding in findings)
    spot = said(findings, "AWSServiceRoleForEC2Spot")
    assert "default may have spot instances" in spot.text
    assert spot.request == "aws iam create-service-linked-role --aws-service-name spot.amazonaws.com"


@pytest.mark.thorough
def test_names_that_are_taken_are_told():
    stub = well().but(
        eks_DescribeCluster=lambda asked, region: {"cluster": {"name": asked["name"]}},
        logs_DescribeLogGroups=lambda asked, region: {"logGroups": [{"logGroupName": f"{asked['logGroupNamePrefix']}-other"}]},
    )
    findings = of(examine(recorded("inf2-llama3"), stub.account()), "names")
    assert said(findings, "cluster inf2-llama3 exists").verdict == "warning"
    assert said(findings, "log group /aws/eks/inf2-llama3/cluster: the name is free").verdict == "ok"


@pytest.mark.thorough
def test_what_is_given_is_judged_by_account_region_and_state():
    findings = of(examine(wide(), well().account()), "given by the stack")
    assert {finding.verdict for finding in findings} == {"ok"}
    assert {finding.text.partition(" ")[0] for finding in findings} >= {
        "fs-0123456789abcdef0",
        "subnet-0123456789abcdef0",
        "bucket",
        "hosted",
    }
    stub = well().but(
        kms_DescribeKey=lambda asked, region: {"KeyMetadata": {"KeyId": "a", "Enabled": False, "KeyState": "PendingDeletion"}},
        acm_DescribeCertificate=lambda asked, region: {"Certificate": {"Status": "PENDING_VALIDATION"}},
        sts_GetCallerIdentity=lambda asked, region: {"Account": "999999999999"},
        s3_HeadBucket=lambda asked, region: {"BucketRegion": "eu-west-1"},
    )
    findings = of(examine(wide(), stub.account()), "given by the stack")
    assert said(findings, "is PendingDeletion").verdict == "error"
    assert said(findings, "is PENDING_VALIDATION").verdict == "error"
    assert said(findings, "existing-admin is in another account than 999999999999").verdict == "unknown"
    assert said(findings, "bucket models-of-ours is in eu-west-1").verdict == "unknown"


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
    (found,) = _for_disks({"Policy": policy}, {"Grants": grants}, "arn:aws:kms:us-west-2:1:key/a")
    assert (found.verdict, said_ in found.text) == (verdict, True)


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


@pytest.mark.thorough
def test_an_image_that_a_rule_fetches_is_not_known_and_one_that_nothing_has_is_an_error():
    failures = [{"failureCode": "ImageNotFound", "failureReason": "Requested image not found"}]
    rules = [{"ecrRepositoryPrefix": "ecr-public", "upstreamRegistryUrl": "public.ecr.aws"}]
    stub = well().but(
        ecr_BatchGetImage=lambda asked, region: {"images": [], "failures": failures},
        ecr_DescribePullThroughCacheRules=lambda asked, region: {"pullThroughCacheRules": rules},
    )
    findings = of(examine(wide(), stub.account()), "images and charts")
    assert said(findings, "neuron-monitor").verdict == "unknown"
    efa = said(findings, "aws-efa-k8s-device-plugin")
    assert efa.verdict == "error"
    assert "ImageNotFound: Requested image not found" in efa.text


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


@pytest.mark.thorough
@pytest.mark.parametrize("listed", [[], ["no JSON"], ["[]"], ['{"terms": {"OnDemand": []}}'], ['{"terms": 3}']])
def test_a_price_list_without_a_price_is_not_known(listed: list[str]):
    stub = well().but(pricing_GetProducts=lambda asked, region: {"PriceList": listed})
    findings = of(examine(recorded("inf2-llama3"), stub.account()), "prices")
    assert {finding.verdict for finding in findings} == {"unknown"}
    assert price_file(findings) == ""


def test_of_a_price_in_tiers_the_first_that_costs_anything_counts():
    prices = (("0", "Hrs", "0"), ("10", "Hrs", "0.3"), ("20", "Hrs", "0.2"), ("5", "GB", "7"), ("6", "Hrs", "no number"))
    tiers = {begin: {"unit": unit, "beginRange": begin, "pricePerUnit": {"USD": usd}} for begin, unit, usd in prices}
    assert [*_amounts({"terms": {"OnDemand": {"A": {"priceDimensions": tiers}}}}, ("Hrs",))] == [0.3]


@pytest.mark.thorough
def test_two_prices_are_not_known():
    def twice(asked: Mapping[str, Any], region: str) -> Mapping[str, Any]:
        (one,) = well().replies["pricing.GetProducts"](asked, region)["PriceList"]
        return {"PriceList": [one, re.sub(r'"USD": "[^"]*"', '"USD": "9.5"', one)]}

    findings = of(examine(recorded("inf2-llama3"), well().but(pricing_GetProducts=twice).account()), "prices")
    assert "the price list has several prices, $1.96786, $9.5" in said(findings, "inf2.8xlarge").text
    assert {finding.verdict for finding in findings} == {"unknown"}


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
