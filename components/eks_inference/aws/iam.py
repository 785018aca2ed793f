"""IAM policy documents that several domains share, as plain data.

Documents are dicts. Only ``policy_json`` turns them into text for AWS, so equal documents give equal text.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

from eks_inference.specs.late import Late

Document = dict[str, Any]
Statement = dict[str, Any]
Conditions = Mapping[str, Mapping[str, str | Sequence[str]]]
"""Values by operator (``StringEquals``) and condition key."""


def document(*statements: Statement) -> Document:
    """Returns a policy document with these statements."""
    return {"Version": "2012-10-17", "Statement": list(statements)}


def policy_json(policy: Document) -> str:
    """Returns a document as JSON for AWS, without white space because quotas count characters."""
    return json.dumps(policy, separators=(",", ":"))


def allow(
    sid: str, actions: Sequence[str], resources: Late | Sequence[Late], *, conditions: Conditions | None = None
) -> Statement:
    """Returns an Allow statement of an identity policy."""
    statement: Statement = {"Sid": sid, "Effect": "Allow", "Action": list(actions), "Resource": _plain(resources)}
    if conditions:
        statement["Condition"] = {
            operator: {key: _plain(value) for key, value in keys.items()} for operator, keys in conditions.items()
        }
    return statement


def dns_suffix(partition: str) -> str:
    """Returns the DNS suffix of AWS services in a partition."""
    return "amazonaws.com.cn" if partition == "aws-cn" else "amazonaws.com"


def ec2_service(partition: str) -> str:
    """Returns the service principal of EC2, one of the few that depend on the partition (IAM user guide, "Principals")."""
    return f"ec2.{dns_suffix(partition)}"


def trust(sid: str, service: str, *actions: str) -> Statement:
    """Returns a statement of a trust policy that lets an AWS service assume the role."""
    return {"Sid": sid, "Effect": "Allow", "Principal": {"Service": service}, "Action": list(actions)}


def pod_identity_trust(*, cluster: str, namespace: str, service_account: str) -> Document:
    """Returns a trust policy that lets the pods of one service account of one cluster assume the role through EKS Pod Identity.

    Pod Identity tags the session with cluster, namespace and service account. Without the conditions any association in the
    account could use the role. Source: EKS user guide, "Create IAM role with trust policy required by EKS Pod Identity".
    """
    tags = {
        "aws:RequestTag/eks-cluster-name": cluster,
        "aws:RequestTag/kubernetes-namespace": namespace,
        "aws:RequestTag/kubernetes-service-account": service_account,
    }
    statement = trust("PodIdentity", "pods.eks.amazonaws.com", "sts:AssumeRole", "sts:TagSession")
    return document({**statement, "Condition": {"StringEquals": tags}})


def managed_policy_arn(name: str, partition: str = "aws") -> str:
    """Returns the ARN of an AWS managed policy."""
    return f"arn:{partition}:iam::aws:policy/{name}"


def s3_read(buckets: Sequence[str], partition: str = "aws") -> Document:
    """Returns a policy for read access to whole buckets and nothing else in S3."""
    arns = [f"arn:{partition}:s3:::{bucket}" for bucket in buckets]
    return document(
        allow("ListBuckets", ["s3:GetBucketLocation", "s3:ListBucket"], arns),
        allow("ReadObjects", ["s3:GetObject"], [f"{arn}/*" for arn in arns]),
    )


def tls_only(bucket_arn: str) -> Document:
    """Returns a bucket policy that refuses requests without TLS.

    Source: S3 user guide, "Security best practices for Amazon S3" (``aws:SecureTransport``).
    """
    return document(
        {
            "Sid": "TlsOnly",
            "Effect": "Deny",
            "Principal": "*",
            "Action": "s3:*",
            "Resource": [bucket_arn, f"{bucket_arn}/*"],
            "Condition": {"Bool": {"aws:SecureTransport": "false"}},
        }
    )


def _plain(value: Late | Sequence[Late]) -> Late | list[Late]:
    return list(value) if isinstance(value, list | tuple) else cast(Late, value)


RetentionDays = Literal[1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653]
"""Values that CloudWatch Logs accepts (API PutRetentionPolicy)."""


def writer(log_group_arn: str, *further: str) -> Document:
    """Returns a policy that allows only writing to a log group, and ``further`` actions on its streams."""
    return document(allow("WriteLogs", ["logs:CreateLogStream", "logs:PutLogEvents", *further], f"{log_group_arn}:*"))
