"""CloudWatch Logs: what its API accepts, and leave to write."""

from typing import Literal

from eks_inference.aws import iam

RetentionDays = Literal[1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653]
"""Values that CloudWatch Logs accepts (API PutRetentionPolicy)."""


def writer(log_group_arn: str, *further: str) -> iam.Document:
    """Returns a policy that allows only writing to a log group, and ``further`` actions on its streams."""
    return iam.document(iam.allow("WriteLogs", ["logs:CreateLogStream", "logs:PutLogEvents", *further], f"{log_group_arn}:*"))
