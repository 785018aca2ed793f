"""IAM policy documents that several domains share, as plain data.

Documents are dicts; ``policy_json`` is the one place that turns them into the text AWS takes, so equal documents give equal text.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

Document = dict[str, Any]
Statement = dict[str, Any]
Conditions = Mapping[str, Mapping[str, str | Sequence[str]]]
"""By operator (``StringEquals``), then by condition key."""


def document(*statements: Statement) -> Document:
    """A policy document of these statements."""
    return {"Version": "2012-10-17", "Statement": list(statements)}


def policy_json(policy: Document) -> str:
    """The document as AWS takes it, without white space: quotas count characters."""
    return json.dumps(policy, separators=(",", ":"))


def allow(sid: str, actions: Sequence[str], resources: str | Sequence[str], *, conditions: Conditions | None = None) -> Statement:
    """One Allow statement of an identity policy."""
    statement: Statement = {"Sid": sid, "Effect": "Allow", "Action": list(actions), "Resource": _plain(resources)}
    if conditions:
        statement["Condition"] = {
            operator: {key: _plain(value) for key, value in keys.items()} for operator, keys in conditions.items()
        }
    return statement


def dns_suffix(partition: str) -> str:
    """The domain that AWS services of a partition live in."""
    return "amazonaws.com.cn" if partition == "aws-cn" else "amazonaws.com"


def ec2_service(partition: str) -> str:
    """The principal of EC2. It is one of the few whose name carries the partition's domain (IAM user guide, "Principals")."""
    return f"ec2.{dns_suffix(partition)}"


def ec2_trust(partition: str = "aws") -> Document:
    """Lets EC2 instances (nodes) assume the role."""
    return document(_trust("Nodes", ec2_service(partition), ["sts:AssumeRole"]))


def pod_identity_trust(*, cluster: str, namespace: str, service_account: str) -> Document:
    """Lets the pods of one service account of one cluster assume the role through EKS Pod Identity.

    Pod Identity tags the session with where the pod runs; without the conditions any association in the account could hand the
    role out. Source: EKS user guide, "Create IAM role with trust policy required by EKS Pod Identity".
    """
    tags = {
        "aws:RequestTag/eks-cluster-name": cluster,
        "aws:RequestTag/kubernetes-namespace": namespace,
        "aws:RequestTag/kubernetes-service-account": service_account,
    }
    statement = _trust("PodIdentity", "pods.eks.amazonaws.com", ["sts:AssumeRole", "sts:TagSession"])
    return document({**statement, "Condition": {"StringEquals": tags}})


def managed_policy_arn(name: str, partition: str = "aws") -> str:
    """The ARN of a policy that AWS maintains."""
    return f"arn:{partition}:iam::aws:policy/{name}"


def s3_read(buckets: Sequence[str], partition: str = "aws") -> Document:
    """Read access to whole buckets, and to nothing else in S3."""
    arns = [f"arn:{partition}:s3:::{bucket}" for bucket in buckets]
    return document(
        allow("ListBuckets", ["s3:GetBucketLocation", "s3:ListBucket"], arns),
        allow("ReadObjects", ["s3:GetObject"], [f"{arn}/*" for arn in arns]),
    )


def _trust(sid: str, service: str, actions: list[str]) -> Statement:
    return {"Sid": sid, "Effect": "Allow", "Principal": {"Service": service}, "Action": actions}


def _plain(value: str | Sequence[str]) -> str | list[str]:
    return value if isinstance(value, str) else list(value)
