"""Questions to an account, to image registries and to the Hub, and what judges the answers. Pure.

A check plans its questions before anything is asked. So the policy that they need is known without an account, no question is
asked twice, and what happens when one is refused is said in one place.
"""

import json
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any

from eks_inference.specs.settings import partition_of
from eks_inference_tools.doctor.findings import Finding, unknown
from stackgraph.graph.values import joined, unique


@dataclass(frozen=True)
class Call:
    """A read-only operation of AWS's API: a row of ``operations.toml``."""

    operation: str
    """``ec2.DescribeVpcs``: service as botocore names it, and operation."""
    region: str
    given: str = "{}"
    """The parameters as canonical JSON."""
    resource: str = "*"
    """What a policy has to allow it on: an ARN, or ``*`` where IAM knows nothing narrower."""

    @property
    def service(self) -> str:
        return self.operation.partition(".")[0]

    @property
    def parameters(self) -> dict[str, Any]:
        return json.loads(self.given)

    @property
    def permission(self) -> str:
        """The IAM action: ``ec2:DescribeVpcs``. Empty where IAM asks for none."""
        name = self.operation.partition(".")[2]
        return _operations()[self.operation].get("permission", f"{_PREFIXES.get(self.service, self.service)}:{name}")

    @property
    def absent(self) -> tuple[str, ...]:
        """Codes of errors that say that there is no such thing."""
        return tuple(_operations()[self.operation].get("absent", ()))

    @property
    def shown(self) -> str:
        return self.permission or self.operation.replace(".", ":")


@dataclass(frozen=True)
class Manifest:
    """Whether a public registry has an image or a chart (OCI distribution specification, "Pulling manifests")."""

    host: str
    repository: str
    reference: str
    """A tag or a digest."""

    @property
    def shown(self) -> str:
        return f"{self.host}/{self.repository}:{self.reference}"


@dataclass(frozen=True)
class HubFile:
    """Whether the Hugging Face Hub gives a repository's ``config.json`` to the holder of the token."""

    repository: str
    revision: str = "main"

    @property
    def shown(self) -> str:
        return f"huggingface.co/{self.repository}"


Question = Call | Manifest | HubFile


@dataclass(frozen=True)
class Unanswered:
    """Why a question has no answer: nobody may ask it without the ``permission``, or for another ``reason``."""

    reason: str = ""
    permission: str = ""


Answer = Mapping[str, Any] | Unanswered | None
"""What was answered. None: there is no such thing."""

Answers = Mapping[Question, Answer]


@dataclass(frozen=True)
class Inquiry:
    """Questions about one subject and what makes findings of the answers.

    ``judge`` gets an answer for each of ``needed`` and of ``helpful``, in this order: a mapping, or None where there is no such
    thing, or where nobody answered a helpful question. It is not called while a needed question has no answer.
    """

    topic: str
    subject: str
    needed: tuple[Question, ...]
    judge: Callable[..., Iterable[Finding]]
    helpful: tuple[Question, ...] = ()

    @property
    def questions(self) -> tuple[Question, ...]:
        return (*self.needed, *self.helpful)

    def findings(self, answers: Answers) -> Iterator[Finding]:
        """Yields what the answers mean, and what is not known because nobody gave one."""
        missing = [one for question in self.needed if isinstance(one := answers[question], Unanswered)]
        beside = [one for question in self.helpful if isinstance(one := answers[question], Unanswered)]
        if not missing:
            given = [None if isinstance(one := answers[question], Unanswered) else one for question in self.questions]
            for finding in self.judge(*given):
                yield replace(finding, topic=self.topic)
        if unanswered := (*missing, *beside):
            permissions = unique(one.permission for one in unanswered)
            denied = f"not allowed to ask ({', '.join(permissions)})" if permissions else ""
            reasons = unique(("" if one.permission else one.reason) for one in unanswered)
            said = joined(f"{self.subject}{'' if missing else ', in part'}:", joined(denied, *reasons, by="; "))
            yield replace(unknown(said, permissions=permissions), topic=self.topic)


def call(operation: str, region: str, resource: str = "*", /, **parameters: Any) -> Call:
    """A call with its parameters. Raises ``KeyError`` for an operation without a row in ``operations.toml``."""
    _operations()[operation]
    return Call(operation, region, json.dumps(parameters, sort_keys=True), resource)


def arn(service: str, of: str, resource: str, *, account: str = "*") -> str:
    """An ARN for a policy. ``of`` is the region; of services without regions, one of the same partition."""
    place = "" if service in ("iam", "route53", "s3") else of
    owner = "" if service in ("route53", "s3") else account
    return f"arn:{partition_of(of)}:{service}:{place}:{owner}:{resource}"


def operations() -> tuple[str, ...]:
    """All operations that the doctor may ask for."""
    return tuple(_operations())


_PREFIXES = {"service-quotas": "servicequotas", "elbv2": "elasticloadbalancing", "efs": "elasticfilesystem"}
"""Prefixes of IAM actions, where they are not botocore's name of the service (Service Authorization Reference)."""


@cache
def _operations() -> Mapping[str, Mapping[str, Any]]:
    text = files("eks_inference_tools.doctor").joinpath("operations.toml").read_text("utf-8")
    return {f"{service}.{name}": row for service, rows in tomllib.loads(text).items() for name, row in rows.items()}
