"""Nothing of an account, a person or a machine gets through: planted in texts, logs, events and documents."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eks_inference_tools.flight.bundle import bundle_of, redacted, redacted_document
from eks_inference_tools.flight.journal import Journal, Passed

PLANTED = {
    "account": "482915736204",
    "account with hyphens": "4829-1573-6204",
    "ARN": "arn:aws:iam::482915736204:role/platform-admin",
    "ARN of an assumed role": "arn:aws-us-gov:sts::482915736204:assumed-role/Admin/jane.doe@corp.example",
    "address": "10.7.33.141",
    "address and port": "52.94.133.131:443",
    "range": "10.7.32.0/19",
    "IPv6 address": "2600:1f13:f3b:ab00:8cf1:9d2:a1:7",
    "short IPv6 address": "fe80::a9fe:a9fe%eth0",
    "MAC address": "06:1f:9b:aa:3d:07",
    "node": "ip-10-7-33-141.us-west-2.compute.internal",
    "API server": "https://1B2C3D4E5F60718293A4B5C6D7E8F901.gr7.us-west-2.eks.amazonaws.com",
    "load balancer": "internal-k8s-smoke-0a1b2c3d4e-1029384756.us-west-2.elb.amazonaws.com",
    "registry": "482915736204.dkr.ecr.us-west-2.amazonaws.com/team/model:v1",
    "instance": "i-0f1e2d3c4b5a69788",
    "old instance": "i-1a2b3c4d",
    "VPC": "vpc-0aa11bb22cc33dd44",
    "reservation": "cr-0123456789abcdef0",
    "hosted zone": "Z0948571239QWERTYUIO",
    "request": "RequestID: 7c9e6679-7425-40de-944b-e07fc1f90ae7",
    "access key": "AKIAQ3EXAMPLE7R2LMNO",
    "session key": "ASIAQ3EXAMPLE7R2LMNO",
    "secret key": "aws_secret_access_key=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",
    "bare secret key": "kX7bN2vQ9pLmR4tY8wZ1cF6hJ3sD5gA0eU+i/oPq",
    "hub token": "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",
    "Pulumi token": "pul-0123456789abcdef0123456789abcdef01234567",
    "EKS token": "k8s-aws-v1.aHR0cHM6Ly9zdHMudXMtd2VzdC0yLmFtYXpvbmF3cy5jb20vP0FjdGlvbj1HZXRDYWxsZXJJZGVudGl0eQ",
    "JWT": "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJodHRwczovL29pZGMuZWtzIn0.c2lnbmF0dXJlLW9mLWl0",
    "header": "Authorization: Bearer sk-test-1234567890",
    "password in JSON": '{"adminPassword": "correct horse battery"}',
    "password in escaped JSON": '{\\"password\\": \\"correct-horse\\"}',
    "URL with a user": "https://jane:hunter2@git.corp.example/x",
    "signed URL": "https://b.s3.amazonaws.com/k?X-Amz-Signature=9f86d081884c7d65&X-Amz-Credential=AKIAQ3EXAMPLE7R2LMNO",
    "mail": "jane.doe@corp.example",
    "certificate": "-----BEGIN CERTIFICATE-----\nMIIC5zCCAc+gAwIBAgIBADANBgkqhkiG9w0B\n-----END CERTIFICATE-----",
    "account in other digits": "４８２９１５７３６２０４",
    "account with signs that nobody sees": "4829\u200b1573\u200b6204",
    "profile": "acme-production",
}

TELLING = (
    *("482915736204", "4829-1573-6204", "platform-admin", "jane", "10.7.3", "52.94", "2600:1f13", "a9fe", "06:1f:9b", "10-7-33"),
    *("1B2C3D4E", "1029384756", "0f1e2d3c", "1a2b3c4d", "0aa11bb2", "0123456789abcdef0", "Z09485", "7c9e6679", "AKIA", "ASIA"),
    *("kX7b", "QwErTy", "aHR0cHM6", "eyJ", "sk-test", "correct", "hunter2", "9f86d0", "MIIC5", "acme"),
)
"""Parts of what was planted, none of which may be read anywhere."""


def assert_nothing_told(text: str) -> None:
    plain = text.replace("\u200b", "")
    assert [part for part in TELLING if part.lower() in plain.lower()] == []


@pytest.mark.parametrize("name", PLANTED)
@pytest.mark.parametrize("around", ["{}", "Failed: {} is wrong", '"{}"', "a={},b", "({})", "\t{}\n", "log of x/y z: {}: denied"])
def test_what_is_planted_is_taken_out(name: str, around: str) -> None:
    assert_nothing_told(redacted(around.format(PLANTED[name]), ["acme-production"]))


KEPT = (
    "aws:eks/nodeGroup:NodeGroup",
    "v1.35.3-eksbuild.13",
    "public.ecr.aws/neuron/pytorch-inference-vllm-neuronx:0.13.0-neuronx-py312-sdk2.28.0-ubuntu24.04",
    "docker.io/vllm/vllm-openai:v0.30.0",
    "VcpuLimitExceeded: You have requested more vCPU capacity than your current vCPU limit of 0 allows",
    "Amazon Linux 2023.9.20260714",
    "6.12.48-58.101.amzn2023.x86_64",
    "containerd://2.1.4",
    "vllm:time_to_first_token_seconds_bucket",
    "12:34:56 nodes of pool neuron: 0 of 1 ready",
    "us-west-2 2026-11-25 g6.xlarge",
    "AmazonEC2ContainerRegistryPullOnly",
)


@pytest.mark.parametrize("text", KEPT)
def test_what_a_bundle_is_for_stays(text: str) -> None:
    assert redacted(text) == text


@given(st.lists(st.sampled_from(sorted(PLANTED.values())), min_size=1, max_size=6), st.text(max_size=20), st.data())
def test_nothing_gets_through_in_any_mixture(planted: list[str], between: str, data: st.DataObject) -> None:
    order = data.draw(st.permutations(planted))
    assert_nothing_told(redacted(f" {between} ".join(order), ["acme-production"]))


@given(st.text(max_size=200))
def test_redacting_twice_changes_nothing_more(text: str) -> None:
    once = redacted(text)
    assert redacted(once) == once


def test_documents_are_redacted_in_keys_values_and_numbers() -> None:
    found = redacted_document({"482915736204": [482915736204, {"a": "arn:aws:iam::482915736204:root"}, True, None, 1.5]})
    assert found == {"[account]": ["[account]", {"a": "[arn]"}, True, None, 1.5]}


def planted_journal() -> Journal:
    every = [*PLANTED.values()]
    rows: list[dict[str, Any]] = [
        {"kind": "image", "image": one, "started": False, "why": one, "date": "2026-11-25", "node": one} for one in every
    ]
    rows += [{"kind": "account", "topic": one, "facts": {one: {"deeper": [one]}}, "date": "2026-11-25"} for one in every]
    rows += [{"kind": "unknown to everybody", one: one, "date": "2026-11-25"} for one in every]
    return Journal(
        "acme-production",
        passed=(Passed("node", "failed", 60, tuple(f"log of a/b c: {one}" for one in every)),),
        rows=tuple(rows),
    )


def test_nothing_planted_in_logs_events_or_rows_gets_into_a_bundle() -> None:
    bundle = bundle_of(
        planted_journal(),
        (),
        region="us-west-2",
        now=1_800_000_000,
        landing="failed",
        tools={"pulumi CLI": "3.260.0"},
        prices={},
        known=["acme-production"],
    )
    written = json.dumps(bundle, ensure_ascii=False)
    assert_nothing_told(written)
    assert bundle["versions"]["pulumi CLI"] == "3.260.0"
    assert {row["kind"] for row in bundle["rows"]} == {"image", "account", "unknown to everybody"}
    assert all("node" not in row for row in bundle["rows"])
    assert next(row for row in bundle["rows"] if row["kind"] == "unknown to everybody").keys() == {"kind", "date"}
