"""What cannot work is refused at the key that has it, before anything is recorded: one row for each thing that was accepted once.

Every command reads a stack file this way and ends with exit code 2 when there is a fault (``test_bad_input.py``).
"""

import copy
import json
from functools import cache
from typing import Any

import pytest
import yaml

from conftest import ROOT
from eks_inference.faults import SpecError, format_path
from eks_inference.stack.reading import parse_stack
from eks_inference.stack.registry import check_spec
from eks_inference.stack.spec import StackSpec
from variants import merge
from vectors.gateway import LOGIN

GPU, RAY, PAIR, NIXL = "gpu-opt350m", "inf2-llama3", "trn2-di-pair", "gpu-nixl"
RAY_SERVER = "servers.vllm-llama3-inf2"

Row = tuple[str, str, Any, str]
"""Stack; key, and after an arrow the key that is reported if it is another; value; part of the report, or an empty text where the
value is taken."""


def shown(row: Row) -> str:
    return f"{row[1]}={json.dumps(row[2])[:60]}"


OPT = {
    "kind": "vllm",
    "model": {"id": "facebook/opt-350m"},
    "engine": "cuda-vllm-0.30",
    "pool": "gpu",
    "tensor_parallel": 1,
    "max_num_seqs": 32,
    "max_model_len": 2048,
}

NAMESPACES: list[Row] = [
    *((RAY, f"{RAY_SERVER}.namespace", name, "belongs to Kubernetes") for name in ("kube-system", "default", "kube-x")),
    (RAY, f"{RAY_SERVER}.namespace", "amazon-cloudwatch", "this namespace is taken"),
    (RAY, "observability.fluent_bit.namespace", "monitoring-nodes", "this namespace is taken"),
    (RAY, "observability.prometheus.namespace", "kube-system", "belongs to Kubernetes"),
    (RAY, "kuberay.namespace", "default", "belongs to Kubernetes"),
    (GPU, "observability.fluent_bit.namespace", "kube-public", "belongs to Kubernetes"),
    (GPU, "servers.triton-server.namespace", "amazon-cloudwatch", ""),
]

KUBELET: list[Row] = [
    (GPU, "pools.gpu.kubelet.maxPods", 5, "0 pods of g4dn.xlarge remain"),
    (GPU, "pools.gpu.kubelet.maxPods", -1, "greater than or equal to 1"),
    (GPU, "pools.gpu.kubelet.podsPerCore", 1, "0 pods of g4dn.xlarge remain"),
    (GPU, "pools.gpu.kubelet.evictionHard", {"memory.available": "99%"}, "0 MiB of memory of g4dn.xlarge remain"),
    (GPU, "pools.gpu.kubelet.evictionHard", {"memory.available": "5%"}, ""),
    (
        GPU,
        "pools.gpu.kubelet.evictionHard -> pools.gpu.kubelet.evictionHard.memory.available",
        {"memory.available": "45m"},
        "has a wrong form",
    ),
    (GPU, "pools.gpu.kubelet.kubeReserved", {"cpu": "450m", "memory": "1Gi"}, ""),
    (GPU, "pools.gpu.kubelet.kubeReserved", {"cpu": "4"}, "0 millicores of CPU of g4dn.xlarge remain"),
    # What the kubelet keeps, the servers of the pool lack.
    (GPU, "pools.gpu.kubelet.systemReserved -> servers.triton-server.cpu", {"cpu": "3500m"}, "no g4dn.xlarge has 3 CPU"),
    (GPU, "pools.gpu.kubelet.evictionHard -> servers.triton-server.memory", {"memory.available": "90%"}, "has 12 GiB"),
    (GPU, "pools.gpu.kubelet.authentication", {"anonymous": {"enabled": True}}, "unknown key"),
    (GPU, "pools.gpu.kubelet.authorization", {"mode": "AlwaysAllow"}, "unknown key"),
    (GPU, "pools.gpu.kubelet.imageGCLowThresholdPercent -> pools.gpu.kubelet", 90, "is below imageGCHighThresholdPercent"),
    (RAY, "pools.default.kubelet.nope", 3, "unknown key"),
    # Karpenter has no such field.
    (RAY, "pools.default.kubelet.registryPullQPS", 3, "unknown key"),
]

KEY = "arn:aws:kms:us-west-2:123456789012:key/12345678-1234-1234-1234-123456789012"
ADDRESSES: list[Row] = [
    *((GPU, "network.cidr", f"{block}/16", "no host can have") for block in ("127.0.0.0", "169.254.0.0", "224.0.0.0", "0.0.0.0")),
    (GPU, "cluster.endpoint.public_access_cidrs -> cluster.endpoint.public_access_cidrs[0]", ["10.0.0.0/8"], "is not public"),
    (GPU, "cluster.endpoint.public_access_cidrs -> cluster.endpoint.public_access_cidrs[0]", ["2001:db8::/32"], "IPv6"),
    (GPU, "cluster.endpoint.public_access_cidrs", ["203.0.113.7/32"], ""),
]
ARNS: list[Row] = [
    (GPU, "kms_key_arn", "arn:aws:kms:us-west-2:123456789012:alias/x", "which an alias does not replace"),
    (GPU, "kms_key_arn", "arn:aws:s3:::b", "the ARN of a KMS key"),
    (GPU, "kms_key_arn", KEY, ""),
    (GPU, "permissions_boundary_arn", "arn:aws:s3:::x", "the ARN of an IAM policy"),
    (GPU, "permissions_boundary_arn", "arn:aws:iam::123456789012:policy/team/limits", ""),
    (GPU, "cluster.admins -> cluster.admins[0]", ["arn:aws:iam::123456789012:role/*"], "the ARN of an IAM role"),
    (GPU, "cluster.admins", ["arn:aws:iam::123456789012:role/team/admin"], ""),
]
# Forms that the models of AWS's API or its documents state.
TRITON, PAIRED = "servers.triton-server", "servers.llama3-70b"
EXISTING = {"kind": "existing", "file_system": "efs"}
IDS: list[Row] = [
    (GPU, "kms_key_arn", "arn:aws:kms:us-west-2:123456789012:key/0c0e", "the ARN of a KMS key"),
    (GPU, "kms_key_arn", f"arn:aws:kms:us-west-2:123456789012:key/mrk-{'0' * 32}", ""),
    (GPU, "pools.gpu.capacity_reservation_id", "cr-1", "is not the id of a capacity reservation"),
    *(
        (GPU, "pools.gpu.s3_read_buckets -> pools.gpu.s3_read_buckets[0]", [name], "the name of an S3 bucket")
        for name in ("a..b", "192.168.5.4", "xn--weights", "weights-s3alias", "weights--x-s3", "w", "Weights")
    ),
    (GPU, "pools.gpu.s3_read_buckets", ["my.weights-1", "192.168.5.4.weights"], ""),
    *(
        (
            GPU,
            f"{TRITON}.model -> {TRITON}.model.uri",
            {"kind": "s3", "uri": uri, "id": "m"},
            "s3://<bucket>/<folder>",
        )
        for uri in ("s3://a..b/x", "s3://weights-s3alias/x", "s3://192.168.5.4/x")
    ),
    *(
        (GPU, "pools.gpu.ami -> pools.gpu.ami.name", {"kind": "ssm_parameter", "name": name}, "has a wrong form")
        for name in ("team/image", "/team//image", "/a" * 16)
    ),
    *(
        (GPU, "pools.gpu.ami", {"kind": "ssm_parameter", "name": name}, "belong to AWS")
        for name in ("awsImage", "SSM-image", "/aws/x")
    ),
    *((GPU, "pools.gpu.ami", {"kind": "ssm_parameter", "name": name}, "") for name in ("image", "/a" * 15, "/team/awsImage")),
    (GPU, "observability.fluent_bit.log_group", "aws/logs", "not beginning with aws/"),
    (GPU, "observability.fluent_bit.log_group", "/aws/logs", ""),
    (GPU, "pools.gpu.placement -> pools.gpu.placement.name", {"name": "é"}, "is not the name of a placement group"),
    *(
        (PAIR, f"{PAIRED}.store -> {PAIRED}.store.file_system_id", {**EXISTING, "file_system_id": name}, "has a wrong form")
        for name in ("fs-1", "fs-0123456G")
    ),
]
SIZES: list[Row] = [
    (GPU, " -> servers.opt.replicas", {"servers": {"opt": {**OPT, "replicas": 10**9}}}, "1000"),
    (GPU, "pools.gpu.kubelet.systemReserved", {"memory": "524288Ki"}, ""),
    (GPU, "pools.gpu.kubelet.systemReserved -> pools.gpu.kubelet.systemReserved.memory", {"memory": "5ki"}, "match"),
    (RAY, "load_test.memory", "1", "a bare number as bytes"),
    (RAY, "clients.open_webui.memory", "1", "a bare number as bytes"),
    (RAY, "clients.open_webui.cpu", "0", "above none"),
    (RAY, "load_test.volume_gib", 1000000, "less than or equal to 65536"),
    (RAY, "clients.open_webui.volume_gib", 1000000, "less than or equal to 65536"),
    (RAY, "observability.prometheus.volume_gib", 1000000, "less than or equal to 65536"),
    (RAY, "pools.default.expire_after", "0s", "would replace nodes without end"),
    (RAY, "pools.default.expire_after", "90m", ""),
    (RAY, "cluster.addon_versions -> cluster.addon_versions.vpc-cni", {"vpc-cni": "latest"}, "v1.21.1-eksbuild.1"),
    (RAY, "addons.addon_versions -> addons.addon_versions.coredns", {"coredns": "1.13"}, "v1.21.1-eksbuild.1"),
]
SYSTEM_FOLDERS = ("/var/lib/kubelet", "/etc/kubernetes", "/var/run/containerd", "/proc/sys", "/../..", "/mnt/../etc", "/mnt/a/..")
HOST_PATHS: list[Row] = [
    *((GPU, "servers.triton-server.cache.path", path, "below /data, /mnt, /srv or /var/cache") for path in SYSTEM_FOLDERS),
    (GPU, "servers.triton-server.cache.path", "/mnt/models", ""),
]

NAMES: list[Row] = [
    (GPU, "mirrors", {"public.ecr.aws": "https://reg.corp"}, "without a scheme"),
    (GPU, "mirrors", {"public.ecr.aws": ""}, "'' is not a registry"),
    (GPU, "mirrors", {"public.ecr.aws": "Reg.Corp/X"}, "in lower case"),
    (GPU, "mirrors", {"public.ecr.aws": "reg corp"}, "'reg corp' is not a registry"),
    (GPU, "mirrors", {"": "reg.corp"}, "'' is not a registry"),
    (GPU, "mirrors", {"public.ecr.aws": "reg.corp:5000/a_b/c", "https://ray-project.github.io": "https://reg.corp/charts"}, ""),
    (RAY, "load_test.extra_env -> load_test.extra_env.A=B", {"A=B": "x"}, "the name of an environment variable"),
    (RAY, "clients.open_webui.extra_env -> clients.open_webui.extra_env.", {"": "x"}, "the name of an environment variable"),
    (GPU, "observability.fluent_bit.log_group", "x" * 257, "256 or fewer characters"),
    (GPU, "servers.triton-server.client_namespaces.team", "a b", "has a wrong form"),
    (GPU, "servers.triton-server.client_namespaces.team", "a", ""),
    (GPU, "pools.gpu.ssh_key_name", "", "the name of an EC2 key pair"),
]

# What Kubernetes, EC2, S3, ECR, ALB and the engines take in forms that were refused once, beside the nearest that they refuse:
# NodeRestriction; names of objects (apimachinery, validation); botocore's patterns; ELB, security policies.
S3_MODEL = {"kind": "s3", "uri": "s3://models/date=2026-11-01/v1+cu13", "id": "gpt-oss:20b"}
GATEWAY_API = {"gateway": "1st.gateway", "namespace": "0gateways", "host": "a.example.com", "from_namespaces": ["kube-system"]}
LEGAL: list[Row] = [
    (GPU, "servers.opt", {**OPT, "model": S3_MODEL}, ""),
    (
        GPU,
        "servers.opt -> servers.opt.model.uri",
        {**OPT, "model": {**S3_MODEL, "uri": "s3://models/a?b"}},
        "s3://<bucket>/<folder>",
    ),
    (GPU, "servers.opt", {**OPT, "model": {"kind": "volume", "claim": "w.v2", "path": "date=2026/x", "id": "org/m:1"}}, ""),
    (GPU, "pools.gpu.extra_labels", {"team.node.kubernetes.io/a": "x", "a.b.kubelet.kubernetes.io/c": "y"}, ""),
    (GPU, "pools.gpu.extra_labels -> pools.gpu", {"notnode.kubernetes.io/a": "x"}, "is reserved"),
    (GPU, "pools.core.instance_types -> pools.core.instance_types[0]", ["m7gd.large"], "nearest: m7g.large"),
    (GPU, "gateway_api", GATEWAY_API, ""),
    (GPU, "gateway_api.gateway", "up_per", "a name of Kubernetes"),
    (GPU, "gateway_api.gateway", "a" * 64, "a name of Kubernetes"),
    (GPU, "load_test.storage_class", "io2.encrypted", ""),
    (GPU, "load_test.tokenizer -> load_test.tokenizer.id", {"id": "a/é"}, "a repository of the Hugging Face Hub"),
    (GPU, "gateway.ssl_policy", "ELBSecurityPolicy-TLS13-1-2-Res-PQ-2025-09", ""),
    (GPU, "gateway.ssl_policy", "ELBSecurityPolicy-TLS13-1-2-Ext2-2021-06", "unknown value"),
    (GPU, "gateway.login.scope", "profile openid", ""),
    (GPU, "network.flow_logs", {"traffic": "ACCEPT"}, ""),
]

# A setting that only another one makes wrong: the change, and the key that is reported.
IDLE = {"servers": {"opt": {**OPT, "replicas": 0}}}
ONLY_US = {"private": False, "public_access_cidrs": ["203.0.113.7/32"]}
PICKED = {"endpoints": {"e": {"servers": ["opt"], "spread": "endpoint_picker", "keys": False}}}
SILENT = {"servers": {"opt": {**OPT, "extra_args": {"disable-log-stats": True}}}}
EMBEDS = {"opt": {**SILENT["servers"]["opt"], "task": "embed", "model": {"id": "Qwen/Qwen3-Embedding-0.6B"}}}
SCALED = {"traffic": {"rate": 1}, "autoscaling": {"kind": "keda"}}
TOGETHER: list[Row] = [
    (GPU, " -> endpoints.e.spread", {**SILENT, **PICKED}, "END004"),
    (GPU, " -> endpoints.e.spread", {"servers": EMBEDS, **PICKED}, ""),
    (GPU, " -> endpoints.e.spread", {"servers": {"opt": OPT}, **PICKED}, ""),
    (GPU, "cluster.endpoint -> cluster.endpoint.private", ONLY_US, "NET003"),
    (GPU, "cluster.endpoint -> cluster.endpoint.private", {"private": False}, ""),
    (GPU, "accelerators", "nvidia", "should be an object"),
    (GPU, "endpoints", "opt", "should be an object"),
    (GPU, "servers.opt -> servers.opt.extra_args", {**OPT, "extra_args": "--seed=1"}, "should be an object"),
    (GPU, "servers.opt -> servers.opt.max_num_seqs", {**OPT, "max_num_seqs": "many", **SCALED}, "an integer"),
    (GPU, "kms_key_arn", KEY.replace("us-west-2", "us-east-1"), "ARN001"),
    (GPU, "kms_key_arn", KEY.replace("arn:aws:", "arn:aws-cn:"), "ARN001"),
    (GPU, "cluster.admins -> cluster.admins[0]", ["arn:aws-cn:iam::123456789012:role/x"], "ARN001"),
    (RAY, "load_test.input_tokens", {"mean": 4000}, "LT001"),
    (RAY, "load_test.input_tokens", {"mean": 3800, "stddev": 0}, ""),
    (GPU, "clients.triton.input_tokens", {"mean": 2000}, "LT001"),
    (GPU, " -> servers.opt.replicas", {**IDLE, "load_test": {}}, "CLI001"),
    (GPU, " -> servers.opt.replicas", {**IDLE, "clients": {"smoke_test": {}}}, "CLI001"),
    (GPU, " -> servers.opt.replicas", IDLE, ""),
    (PAIR, "servers.llama3-70b.router -> pools.trn2.size", {"replicas": 4, "cpu": "16"}, "2 pods of 'llama3-70b (router)'"),
    (PAIR, "servers.llama3-70b.router -> pools.trn2.size", {"replicas": 2, "cpu": "16"}, ""),
    (PAIR, "servers.llama3-70b.router -> servers.llama3-70b", {"replicas": 5}, "5 routers share 4 sequences"),
    (PAIR, "pools.trn2.instance_types -> servers.llama3-70b.pool", ["p4d.24xlarge"], "devices of the wrong kind"),
    (PAIR, "servers.llama3-70b.instance_type", "p4d.24xlarge", "has no such instance type"),
    (PAIR, "servers.llama3-70b.compile.global_topk", 200_000, "DI045"),
    (PAIR, "servers.llama3-70b.compile.global_topk", 100_000, ""),
    (PAIR, "servers.llama3-70b.compile.pad_token_id", 128_256, "at most 128255"),
    (RAY, "pools.inferentia-inf2.node_limit", 0, "CAP001"),
    (RAY, "pools.inferentia-inf2.node_limit", 1, ""),
    (RAY, f"{RAY_SERVER}.head.memory -> pools.core.size", "100G", "1 pod of 'vllm-llama3-inf2 (head)'"),
]


# What parts of a stack say of each other.
NAMED = {"model": {"kind": "s3", "uri": "s3://models/x", "id": "a" * 64}, "kind": "triton", "pool": "gpu"}
GATEWAY = {"host": "models.example.com", "hosted_zone_id": "Z0123456789ABCDEFGHIJ"}
SECOND = {**NAMED, "model": {"id": "facebook/opt-350m"}}
TWO_TRITONS = {"servers": {"t2": SECOND}, "endpoints": {"e": {"servers": ["triton-server", "t2"]}}}
RECEIVER = "observability.prometheus.receiver"
UI = {"gateway": GATEWAY, "clients": {"open_webui": {}}}
REFERENCES: list[Row] = [
    (RAY, "pools.core.size", 0, "neither DNS nor any controller runs"),
    (RAY, "pools.core.autoscaled -> pools.core.autoscaled.min", {"min": 0, "max": 3}, "remove the last node"),
    (RAY, "pools.core.autoscaled -> pools.core.autoscaled.min", {"min": 1, "max": 3}, ""),
    (RAY, "pools.core.instance_types", ["m5.2xlarge", "m5.4xlarge"], "the core pool must have one instance type"),
    (NIXL, "servers.llama3-70b.router.pool", "nowhere", "there is no pool of this name"),
    (NIXL, "servers.llama3-70b.router.pool", "core", ""),
    (RAY, "pools.core", {"kind": "karpenter", "size": None}, "the core pool runs what every other part"),
    (
        GPU,
        "servers.opt -> servers.opt.instance_type",
        {**OPT, "instance_type": "g4dn.2xlarge"},
        "pool 'gpu' has no such instance type",
    ),
    (GPU, "servers.opt -> servers.opt.instance_type", {**OPT, "instance_type": "g4dn.xlarge"}, ""),
    (RAY, f"{RAY_SERVER}.image.ephemeral_storage_gib -> {RAY_SERVER}", 10, "the engine's image has 19 GB"),
    (RAY, f"{RAY_SERVER}.image.ephemeral_storage_gib -> {RAY_SERVER}", 20, ""),
    # The namespace of a server without one of its own is its name.
    (GPU, " -> servers.default.namespace", {"servers": {"default": OPT}}, "belongs to Kubernetes"),
    (RAY, f"{RAY_SERVER}.image.namespace", "vllm", "this namespace is taken"),
    (RAY, f"{RAY_SERVER}.image.namespace", "build", ""),
    (GPU, "endpoints -> endpoints.e.servers", {"e": {"servers": ["triton-servr"]}}, "did you mean 'triton-server'?"),
    (GPU, "endpoints -> endpoints.e.servers", {"e": {}}, "no server has an OpenAI API"),
    (GPU, "endpoints -> endpoints.e.servers", {"e": {"servers": ["triton-server"]}}, ""),
    (GPU, " -> endpoints.e.servers", TWO_TRITONS, "at most one server with the KServe API"),
    (GPU, " -> gateway", {"gateway": GATEWAY, "servers": None, "clients": None}, "a gateway needs a model server or the web UI"),
    (GPU, " -> gateway", {"gateway": GATEWAY}, ""),
    (GPU, " -> servers.open-webui", {**UI, "servers": {"open-webui": OPT}}, "a route of this name leads to the web UI"),
    (GPU, " -> servers.open-webui", {**UI, "servers": {"open-web": OPT}}, ""),
    (GPU, "servers -> servers.t2", {"t2": NAMED}, "is no name of a folder that Triton reads"),
    (GPU, "servers -> servers.t2", {"t2": {**NAMED, "model_name": "a" * 63}}, ""),
    (
        GPU,
        TRITON,
        {"quantized_kv": "fp8", "extra_args": {"kv-cache-dtype": "fp8"}},
        "kv-cache-dtype: keys of the server set this too",
    ),
    (GPU, TRITON, {"extra_args": {"kv-cache-dtype": "auto"}}, ""),
    (GPU, "servers.triton-server.cache.path", "/mnt/k8s-disks/0/kubelet", "belongs to containerd and the kubelet"),
    (GPU, "servers.triton-server.cache.path", "/mnt/k8s-disks-of-us", ""),
    (GPU, f"{RECEIVER} -> {RECEIVER}.kin", {"kin": "slack"}, "unknown key\n    hint: did you mean 'kind'?"),
]
# Without internet: what parts call, and what they want of it.
NODES = ["ec2", "ecr", "eks-auth", "s3"]
HUB = {"load_test": {"extra_env": {"HF_ENDPOINT": "https://hub.corp"}}}
WAF = "arn:aws:wafv2:us-west-2:123456789012:regional/webacl/x/12345678-1234-1234-1234-123456789012"
ASKED = {**GATEWAY, "login": LOGIN, "web_acl_arn": WAF, "routes": {"triton-server": {"login": True}}}


def inside(*endpoints: str, **beside: Any) -> dict[str, Any]:
    return {"network": {"nat": "none", "public_subnets": False, "endpoints": [*NODES, *endpoints]}, **beside}


ISOLATED: list[Row] = [
    *(
        (stack, " -> network.endpoints", inside(*others, **beside), f"{part} would wait in vain for an answer of {missing}")
        for stack, part, missing, others, beside in (
            (GPU, "Fluent Bit", "logs", (), {}),
            (GPU, "AWS Load Balancer Controller", "elasticloadbalancing", ("logs",), {"gateway": GATEWAY}),
            (RAY, "CloudWatch Observability", "monitoring", ("eks", "sqs", "ssm", "logs"), {}),
            (PAIR, "the driver of efs", "elasticfilesystem", (), {}),
        )
    ),
    (GPU, " -> network.endpoints", inside("logs", "elasticloadbalancing", gateway=GATEWAY), ""),
    (RAY, " -> network.endpoints", inside("eks", "sqs", "ssm", "logs", "monitoring"), ""),
    (PAIR, " -> network.endpoints", inside("elasticfilesystem"), ""),
    (RAY, f" -> {RAY_SERVER}.image", inside(), "the build installs packages from the internet"),
    (RAY, f" -> {RAY_SERVER}.image", inside(servers={"vllm-llama3-inf2": {"image": "reg.corp/ray:1"}}), ""),
    (RAY, " -> load_test", inside(), "the tokenizer is on the Hub"),
    (RAY, " -> load_test", inside(**HUB), ""),
    (GPU, " -> clients.triton", inside(), "the tokenizer is on the Hub"),
    (GPU, " -> gateway.web_acl_arn", inside(gateway=ASKED), "the API of AWS WAF has no endpoint"),
    (GPU, " -> gateway.login", inside(gateway=ASKED), "the provider of the login is on the internet"),
    (GPU, " -> gateway.login", {"gateway": ASKED}, ""),
]


@pytest.mark.parametrize(
    "row",
    [
        row
        for rows in (REFERENCES, ISOLATED, TOGETHER, LEGAL, NAMES, ADDRESSES, ARNS, IDS, SIZES, HOST_PATHS, NAMESPACES, KUBELET)
        for row in rows
    ],
    ids=shown,
)
def test_a_value_that_cannot_work_is_refused_at_its_key(row: Row):
    stack, keys, value, says = row
    key, _, reported = keys.partition(" -> ")
    said = [fault.render() for fault in faults(stack, key, value) if format_path(fault.path) == (reported or key)]
    assert any(says in text for text in said) if says else not said, said


def test_a_stack_of_a_program_is_refused_as_that_of_a_file():
    region, spec = shipped(GPU)
    with pytest.raises(SpecError, match=r"endpoints\.e\.servers: there is no server of this name"):
        check_spec(StackSpec.of({**spec, "endpoints": {"e": {"servers": ["x"]}}}), region)
    assert not check_spec(StackSpec.of({**spec, "endpoints": {"e": {"servers": ["triton-server"]}}}), region).faults


@pytest.mark.parametrize(("dtype", "bytes_"), [("bfloat16", 2), ("float16", 2), ("float32", 4)])
def test_a_pair_is_as_large_as_its_artifact(dtype: str, bytes_: int):
    region, spec = shipped(PAIR)
    spec = copy.deepcopy(spec)
    merge(spec, {"servers": {"llama3-70b": {"compile": {"torch_dtype": dtype}}}})
    working = [line for rule, one in check_spec(parse_stack(json.dumps(spec)), region).judgements for line in one.working]
    assert any(f"70.55 billion x {bytes_} bytes" in line for line in working)


def faults(stack: str, key: str, value: Any) -> Any:
    """Returns what is wrong with a shipped stack in which a key has another value."""
    region, spec = shipped(stack)
    spec = copy.deepcopy(spec)
    change = value
    for part in reversed(list(filter(None, key.split(".")))):
        change = {part: change}
    merge(spec, change)
    try:
        return check_spec(parse_stack(json.dumps(spec)), region).faults
    except SpecError as error:
        return error.faults


@cache
def shipped(stack: str) -> tuple[str, dict[str, Any]]:
    config = yaml.safe_load((ROOT / f"stacks/Pulumi.{stack}.yaml").read_text())["config"]
    return config["aws:region"], config["eks-inference:stack"]
