"""Answers the provider functions whose result needs no provider. All others stay unknown until a deployment."""

from collections.abc import Mapping
from typing import Any


def answer(token: str, args: Mapping[str, Any], config: Mapping[str, str]) -> dict[str, Any] | None:
    """The result of a function, or None if only a provider knows it."""
    region = config.get("aws:region", "")
    if token == "aws:index/getRegion:getRegion" and region:
        return {"id": region, "name": region, "region": region}
    if token == "aws:index/getPartition:getPartition" and region:
        partition = "aws-cn" if region.startswith("cn-") else "aws-us-gov" if region.startswith("us-gov-") else "aws"
        suffix = "amazonaws.com.cn" if partition == "aws-cn" else "amazonaws.com"
        return {"id": partition, "partition": partition, "dnsSuffix": suffix}
    if token == "kubernetes:yaml:decode":
        import yaml

        return {"result": [document for document in yaml.safe_load_all(args["text"]) if document]}
    return None
