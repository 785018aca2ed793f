"""An AWS account that answers calls of boto3 in this process, by botocore's own models.

botocore checks and serializes each request before it is answered here, and each answer is validated as ``botocore.stub`` does.
"""

import copy
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

import boto3
import botocore.session
from botocore.awsrequest import AWSResponse
from botocore.loaders import create_loader
from botocore.validate import validate_parameters

from eks_inference.catalog.prices import instance_price, service_price
from eks_inference.catalog.quotas import quotas_of
from eks_inference.catalog.versions import addon, support
from eks_inference.catalog.zones import refused_by_control_plane, region_of_zone, region_zone_ids
from eks_inference_tools.doctor.account import Account
from eks_inference_tools.doctor.price_list import price_rows

LOADER = create_loader()

Reply = Callable[[Mapping[str, Any], str], Mapping[str, Any]]
"""Parameters and region → the answer. Raises ``Refused`` for an error."""


class Refused(Exception):
    """An error of the API."""

    def __init__(self, code: str, message: str = "", status: int = 400) -> None:
        super().__init__(code)
        self.code, self.message, self.status = code, message, status


@dataclass
class StubAccount:
    """Answers by operation (``ec2.DescribeVpcs``); ``asked`` notes what was asked, with parameters and region."""

    replies: dict[str, Reply]
    region: str = ""
    profile: str = ""
    asked: list[tuple[str, Mapping[str, Any], str]] = field(default_factory=list)

    def account(self) -> Account:
        core = botocore.session.Session()
        # It parses a service's model once for all accounts.
        core.register_component("data_loader", LOADER)
        session = boto3.Session("AKIAIOSFODNN7EXAMPLE", "example", region_name=self.region or None, botocore_session=core)
        session.events.register("before-parameter-build", self._noted)
        session.events.register("before-call", self._answered)
        return Account(session, profile=self.profile)

    def but(self, **changed: Reply) -> "StubAccount":
        """The same account with other answers: ``ec2_DescribeVpcs=…``."""
        named = {name.replace("_", ".", 1): reply for name, reply in changed.items()}
        return StubAccount({**self.replies, **named}, self.region, self.profile)

    def denying(self, *operations: str) -> "StubAccount":
        """The same account that does not allow operations."""

        def deny(parameters: Mapping[str, Any], region: str) -> Mapping[str, Any]:
            raise Refused("AccessDeniedException", "User is not authorized to perform it", 403)

        return StubAccount({**self.replies, **dict.fromkeys(operations, deny)}, self.region, self.profile)

    def _noted(self, params: Mapping[str, Any], context: dict[str, Any], **_: Any) -> None:
        context["given"] = copy.deepcopy(params)

    def _answered(self, model: Any, context: Mapping[str, Any], **_: Any) -> tuple[AWSResponse, dict[str, Any]]:
        operation, region = f"{model.service_model.service_name}.{model.name}", context["client_region"]
        self.asked.append((operation, context["given"], region))
        try:
            parsed = dict(self.replies[operation](context["given"], region))
        except Refused as refused:
            told = {"Error": {"Code": refused.code, "Message": refused.message}, "ResponseMetadata": {}}
            return AWSResponse("https://aws.example", refused.status, {}, None), told
        validate_parameters(parsed, model.output_shape)
        return AWSResponse("https://aws.example", 200, {}, None), parsed


# -- accounts --------------------------------------------------------------------------------------------------------------------


def well(**quotas: float) -> StubAccount:
    """An account in which every stack can be deployed: what it is asked for is there, and nothing else.

    ``quotas`` are values by the catalog's names, in place of 10,000.
    """
    return StubAccount(
        {
            "acm.DescribeCertificate": lambda asked, region: {
                "Certificate": {
                    "Status": "ISSUED",
                    "DomainName": "llm.example.com",
                    "SubjectAlternativeNames": ["llm.example.com"],
                }
            },
            "ec2.DescribeAddresses": lambda asked, region: {"Addresses": []},
            "ec2.DescribeAvailabilityZones": _zones,
            "ec2.DescribeCapacityBlockOfferings": lambda asked, region: {"CapacityBlockOfferings": [_offer(asked)]},
            "ec2.DescribeCapacityReservations": _reservations,
            "ec2.DescribeImages": lambda asked, region: {"Images": [{"ImageId": one} for one in asked["ImageIds"]]},
            "ec2.DescribeInstanceTypeOfferings": _offerings,
            "ec2.DescribeInstances": lambda asked, region: {"Reservations": [{"Instances": [{"InstanceType": "m5.xlarge"}]}]},
            "ec2.DescribeInternetGateways": lambda asked, region: {"InternetGateways": [{}]},
            "ec2.DescribeRegions": lambda asked, region: {
                "Regions": [{"RegionName": one, "OptInStatus": "opt-in-not-required"} for one in asked["RegionNames"]]
            },
            "ec2.DescribeSecurityGroups": lambda asked, region: {
                "SecurityGroups": [{"GroupId": one} for one in asked["GroupIds"]]
            },
            "ec2.DescribeSpotPriceHistory": lambda asked, region: {
                "SpotPriceHistory": [{"SpotPrice": "0.101"}, {"SpotPrice": "0.099"}]
            },
            "ec2.DescribeSubnets": lambda asked, region: {
                "Subnets": [{"SubnetId": one, "AvailabilityZoneId": "usw2-az1"} for one in asked["SubnetIds"]]
            },
            "ec2.DescribeVolumes": lambda asked, region: {"Volumes": [{"Size": 100}]},
            "ec2.DescribeVpcs": lambda asked, region: {"Vpcs": [{"VpcId": item} for item in asked.get("VpcIds", ["vpc-1"])]},
            "ecr.BatchGetImage": lambda asked, region: {"images": [{"imageId": {"imageDigest": f"sha256:{'0' * 64}"}}]},
            "ecr.DescribePullThroughCacheRules": lambda asked, region: {"pullThroughCacheRules": []},
            "ecr.DescribeRepositories": _absent("RepositoryNotFoundException"),
            "efs.DescribeFileSystems": _file_systems,
            "eks.DescribeAddonVersions": _addon_versions,
            "eks.DescribeCluster": _absent("ResourceNotFoundException"),
            "eks.DescribeClusterVersions": _cluster_versions,
            "eks.ListClusters": lambda asked, region: {"clusters": []},
            "elbv2.DescribeLoadBalancers": lambda asked, region: {"LoadBalancers": [{"Type": "network"}]},
            "fsx.DescribeFileSystems": _absent("FileSystemNotFound"),
            "iam.GetPolicy": lambda asked, region: {"Policy": {"Arn": asked["PolicyArn"]}},
            "iam.GetRole": _role,
            "iam.GetUser": lambda asked, region: {
                "User": _principal(asked["UserName"], "user") | {"UserName": asked["UserName"], "UserId": "A" * 20}
            },
            "iam.ListAccountAliases": lambda asked, region: {"AccountAliases": ["sandbox"]},
            "kms.GetKeyPolicy": lambda asked, region: {"Policy": '{"Statement": "…/AWSServiceRoleForAutoScaling"}'},
            "kms.ListGrants": lambda asked, region: {"Grants": []},
            "kms.DescribeKey": lambda asked, region: {"KeyMetadata": {"KeyId": "a", "Enabled": True, "KeyState": "Enabled"}},
            "logs.DescribeLogGroups": lambda asked, region: {"logGroups": []},
            "pricing.GetProducts": _products,
            "route53.GetHostedZone": lambda asked, region: {
                "HostedZone": {
                    "Id": asked["Id"],
                    "Name": "example.com.",
                    "CallerReference": "a",
                    "Config": {"PrivateZone": False},
                }
            },
            "s3.HeadBucket": lambda asked, region: {"BucketRegion": region},
            "service-quotas.ListAWSDefaultServiceQuotas": lambda asked, region: {"Quotas": _listed(asked["ServiceCode"], {})},
            "service-quotas.ListRequestedServiceQuotaChangeHistory": lambda asked, region: {"RequestedQuotas": []},
            "service-quotas.ListServiceQuotas": lambda asked, region: {"Quotas": _listed(asked["ServiceCode"], quotas)},
            "sns.GetTopicAttributes": lambda asked, region: {"Attributes": {"TopicArn": asked["TopicArn"]}},
            "ssm.GetParameters": _parameters,
            "sts.GetCallerIdentity": lambda asked, region: {
                "Account": "111122223333",
                "Arn": "arn:aws:sts::111122223333:assumed-role/deployer/session",
                "UserId": "AROAEXAMPLE:session",
            },
            "wafv2.GetWebACL": lambda asked, region: {},
        }
    )


def without_quota() -> StubAccount:
    """A new account: quotas have their defaults."""
    found = well()
    found.replies["service-quotas.ListServiceQuotas"] = lambda asked, region: {"Quotas": []}
    found.replies["service-quotas.ListAWSDefaultServiceQuotas"] = lambda asked, region: {
        "Quotas": _listed(asked["ServiceCode"], {}, default=True)
    }
    return found


def in_another_region() -> StubAccount:
    """An account whose profile is in another region, and which has not enabled the stack's."""
    found = well()
    found.region, found.profile = "eu-central-1", "sandbox"
    found.replies["ec2.DescribeRegions"] = lambda asked, region: {
        "Regions": [{"RegionName": one, "OptInStatus": "not-opted-in"} for one in asked["RegionNames"]]
    }
    return found


def denied() -> StubAccount:
    """An account that answers nothing but who asks."""
    found = well()
    return found.denying(*(reply for reply in found.replies if reply != "sts.GetCallerIdentity"))


def _absent(code: str) -> Reply:
    def reply(asked: Mapping[str, Any], region: str) -> Mapping[str, Any]:
        raise Refused(code)

    return reply


def _listed(service: str, quotas: Mapping[str, float], *, default: bool = False) -> list[dict[str, Any]]:
    rows = [(name, one) for section in ("on_demand", "spot", "others") for name, one in quotas_of(section).items()]
    return [
        {
            "QuotaName": one.title,
            "QuotaCode": one.code,
            "ServiceCode": service,
            "Value": float(one.default) if default else quotas.get(name, 10_000.0),
            "Adjustable": True,
        }
        for name, one in rows
        if one.service == service
    ]


def _zones(asked: Mapping[str, Any], region: str) -> Mapping[str, Any]:
    ids = [*region_zone_ids(region), *(one for one in refused_by_control_plane() if region_of_zone(one) == region)]
    return {
        "AvailabilityZones": [
            {"ZoneId": one, "ZoneName": f"{region}{letter}", "State": "available", "OptInStatus": "opt-in-not-required"}
            for one, letter in zip(ids, "abcdefgh", strict=False)
        ]
    }


def _offerings(asked: Mapping[str, Any], region: str) -> Mapping[str, Any]:
    (types,) = [one["Values"] for one in asked["Filters"] if one["Name"] == "instance-type"]
    return {
        "InstanceTypeOfferings": [
            {"InstanceType": type_.replace("*", "xlarge"), "Location": zone, "LocationType": asked["LocationType"]}
            for type_ in types
            for zone in region_zone_ids(region)
        ]
    }


def _reservations(asked: Mapping[str, Any], region: str) -> Mapping[str, Any]:
    ids = asked.get("CapacityReservationIds", ["cr-0123456789abcdef0"])
    filters = {item["Name"]: item["Values"] for item in asked.get("Filters", [])}
    return {
        "CapacityReservations": [
            {
                "CapacityReservationId": one,
                "InstanceType": filters.get("instance-type", ["trn2.48xlarge"])[0],
                "AvailabilityZoneId": region_zone_ids(region)[-1],
                "State": "active",
                "TotalInstanceCount": 4,
                "AvailableInstanceCount": 4,
                "ReservationType": "default",
            }
            for one in ids
        ]
    }


def _offer(asked: Mapping[str, Any]) -> dict[str, Any]:
    start = datetime(2026, 9, 3, 11, 30, tzinfo=UTC)
    return {
        "InstanceType": asked["InstanceType"],
        "AvailabilityZone": "a zone",
        "StartDate": start,
        "EndDate": start + timedelta(days=1),
        "UpfrontFee": "858.24",
        "CurrencyCode": "USD",
    }


def _file_systems(asked: Mapping[str, Any], region: str) -> Mapping[str, Any]:
    row = {
        "OwnerId": "111122223333",
        "CreationToken": "a",
        "FileSystemId": asked.get("FileSystemId", "fs-00000000"),
        "CreationTime": datetime(2026, 1, 1, tzinfo=UTC),
        "LifeCycleState": "available",
        "NumberOfMountTargets": 2,
        "SizeInBytes": {"Value": 0},
        "PerformanceMode": "generalPurpose",
        "Tags": [],
    }
    return {"FileSystems": [row] if "FileSystemId" in asked else []}


def _addon_versions(asked: Mapping[str, Any], region: str) -> Mapping[str, Any]:
    version, name = asked["kubernetesVersion"], asked["addonName"]
    pinned = addon(name, version)
    suits = [{"clusterVersion": version, "defaultVersion": True}]
    return {"addons": [{"addonName": name, "addonVersions": [{"addonVersion": pinned, "compatibilities": suits}]}]}


def _cluster_versions(asked: Mapping[str, Any], region: str) -> Mapping[str, Any]:
    def midnight(day: date) -> datetime:
        return datetime.combine(day, time(), UTC)

    return {
        "clusterVersions": [
            {
                "clusterVersion": one,
                "versionStatus": "STANDARD_SUPPORT",
                "endOfStandardSupportDate": midnight(support(one).standard),
                "endOfExtendedSupportDate": midnight(support(one).extended),
            }
            for one in asked["clusterVersions"]
        ]
    }


def _role(asked: Mapping[str, Any], region: str) -> Mapping[str, Any]:
    """Roles of AWS and those that a stack file names exist; those that a stack makes do not."""
    name = asked["RoleName"]
    if not name.startswith(("AWSServiceRole", "existing")):
        raise Refused("NoSuchEntity", status=404)
    return {"Role": _principal(name, "role") | {"RoleName": name, "RoleId": "A" * 20}}


def _principal(name: str, kind: str) -> dict[str, Any]:
    return {"Path": "/", "Arn": f"arn:aws:iam::111122223333:{kind}/{name}", "CreateDate": datetime(2026, 1, 1, tzinfo=UTC)}


def _products(asked: Mapping[str, Any], region: str) -> Mapping[str, Any]:
    """A product with the catalog's price, or 1 USD where it has none."""
    given = {one["Field"]: one["Value"] for one in asked["Filters"]}
    where = given["regionCode"]
    if type_ := given.get("instanceType"):
        price, usage, unit = instance_price(type_, where), f"X-BoxUsage:{type_}", "Hrs"
    else:
        name, row = next(
            (name, row)
            for name, row in price_rows().items()
            if row["usage"] == given["usagetype"] and row.get("family") == given.get("productFamily")
        )
        price, usage, unit = service_price(name, where), f"X-{row['usage']}", row["unit"]
    tier = {"unit": unit, "beginRange": "0", "pricePerUnit": {"USD": f"{price.usd if price else 1:.10f}"}}
    product = {
        "product": {"attributes": {"usagetype": usage}},
        "terms": {"OnDemand": {"A.B": {"priceDimensions": {"A.B.C": tier}}}},
    }
    return {"PriceList": [json.dumps(product)]}


def _parameters(asked: Mapping[str, Any], region: str) -> Mapping[str, Any]:
    values = {name: "1.35.9-20260828" if "release_version" in name else "ami-0123456789abcdef0" for name in asked["Names"]}
    return {"Parameters": [{"Name": name, "Value": value} for name, value in values.items()]}
