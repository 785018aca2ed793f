"""The gateway: one address with HTTPS in front of servers of every kind, and the controller of its load balancer."""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from itertools import permutations
from typing import Any
from zlib import crc32

import pulumi
import pytest
import yaml
from pulumi.runtime.mocks import MockResourceArgs

from conftest import PROJECT, ROOT, record_once
from eks_inference.catalog import versions
from eks_inference.faults import SpecError
from eks_inference.gateway.component import Gateway
from eks_inference.gateway.controller import LoadBalancerController
from eks_inference.gateway.controller_plan import controller_policies
from eks_inference.gateway.handle import ExistingLoadBalancerController
from eks_inference.gateway.hosts import validated_certificate
from eks_inference.gateway.plan import Route, ingress, routes
from eks_inference.gateway.spec import WEB_UI, GatewaySpec
from eks_inference.kubernetes.network_policy import GATED, Door, Front
from eks_inference.kubernetes.secrets import SecretRef
from eks_inference.network.handle import ExistingVpc, Subnet
from eks_inference.observability.prometheus import PrometheusStack
from eks_inference.serving.leader_worker_sets.component import LeaderWorkerSetController
from eks_inference.stack.reading import parse_stack
from eks_inference.stack.registry import check_spec
from eks_inference.stack.spec import StackSpec
from eks_inference_tools.check.registry import check_graph
from golden import assert_golden
from graphs import children_of, kind, of_kind, stands_on
from handles import existing_cluster, existing_vpc, placement, stack_settings
from readme import blocks
from stackgraph.graph.document import Graph, Resource
from stackgraph.problems import ProgramError
from stackgraph.recorder.recording import record
from stackgraph.testing import Mocks
from traffic import Outside, Pod, passes, policies_of
from variants import merge
from variants import recorded_with as recorded
from vectors.gateway import LOGIN

ALB = "alb.ingress.kubernetes.io/"
ZONE = "Z0123456789ABCDEFGHIJ"
CERTIFICATE = "arn:aws:acm:us-east-2:123456789012:certificate/12345678-1234-1234-1234-123456789012"
GATEWAY = {"host": "models.example.com", "hosted_zone_id": ZONE}
OPT = {"kind": "vllm", "model": {"id": "facebook/opt-350m"}, "engine": "cuda-vllm-0.30", "pool": "gpu", "task": "chat"}
OPT = {**OPT, "tensor_parallel": 1, "max_num_seqs": 32, "max_model_len": 2048}
"""A server with an OpenAI API for the stack of Triton."""
SECRETS = {
    "eks-inference:servingApiKey": "hush-key-of-the-servers",
    "eks-inference:gatewayClientSecret": "hush-client",
    "eks-inference:endpointKeys": '{"team-a": "hush-key-of-team-a"}',
}


def recorded_with(section: dict[str, Any], stack: str, secrets: Mapping[str, str] = SECRETS) -> Graph:
    return recorded(section, stack, secrets)


@cache
def with_gateway(stack: str = "inf2-llama2") -> Graph:
    return recorded_with({"gateway": {**GATEWAY, "access_logs": {}}}, stack)


@cache
def public() -> Graph:
    """Triton, vLLM and a web UI on the internet; people log in."""
    login = {"login": True}
    gateway = {
        "host": "models.example.com",
        "certificate_arn": CERTIFICATE.replace("us-east-2", "us-west-2"),
        "public": True,
        "source_cidrs": ["203.0.113.0/24"],
        "login": LOGIN,
        "routes": {
            "opt": {},
            "triton-server": {"host": "triton.example.com", **login},
            WEB_UI: {"host": "chat.example.com", **login},
        },
    }
    config = dict(PROJECT.config(PROJECT.stack_file("gpu-opt350m")).values)
    spec = json.loads(config["eks-inference:stack"])
    merge(spec, {"servers": {"opt": OPT}, "clients": {"open_webui": {}}, "gateway": gateway})
    config |= {"eks-inference:stack": json.dumps(spec), **SECRETS}
    return record_once(
        PROJECT.main, project=PROJECT.name, stack="gpu-opt350m", config=config, secret_keys=[*SECRETS], root=PROJECT.root
    )


def annotations(resource: Resource) -> dict[str, str]:
    return {key.removeprefix(ALB): value for key, value in resource.inputs["metadata"]["annotations"].items()}


def by_namespace(graph: Graph) -> dict[str, list[Resource]]:
    found: dict[str, list[Resource]] = {}
    for resource in of_kind(graph, "Ingress"):
        found.setdefault(resource.inputs["metadata"]["namespace"], []).append(resource)
    return found


def stack(name: str, section: Mapping[str, Any]) -> StackSpec:
    spec = json.loads(dict(PROJECT.config(PROJECT.stack_file(name)).values)["eks-inference:stack"])
    merge(spec, dict(section))
    return parse_stack(json.dumps(spec))


# -- the controller --------------------------------------------------------------------------------------------------------------

UPSTREAM = "9890077d8bb4d9448a7466931d9c19152dd9fcfe676e18c2a502a9d08b46971e"
"""Digest of what kubernetes-sigs/aws-load-balancer-controller v3.5.0 publishes in docs/install/iam_policy.json, in the form of
``permissions``. With another version of the chart, read that file of its tag again and compare."""


def permissions(*documents: dict[str, Any]) -> set[str]:
    """Every action with its resource and conditions, however the statements are cut."""

    def listed(value: Any) -> list[str]:
        return sorted(value) if isinstance(value, list) else [value]

    found = set[str]()
    for statement in (one for document in documents for one in document["Statement"]):
        assert statement["Effect"] == "Allow"
        wanted = {
            operator: {key: listed(value) for key, value in keys.items()}
            for operator, keys in statement.get("Condition", {}).items()
        }
        conditions = json.dumps(wanted, sort_keys=True)
        found |= {
            f"{action}|{resource}|{conditions}"
            for action in listed(statement["Action"])
            for resource in listed(statement["Resource"])
        }
    return found


def test_the_controller_may_do_what_its_project_publishes_and_nothing_else():
    found = permissions(*controller_policies(stack_settings()).values())
    assert len(found) == 98
    assert hashlib.sha256("\n".join(sorted(found)).encode()).hexdigest() == UPSTREAM
    assert versions.chart("aws-load-balancer-controller").version == "3.5.0"


@pytest.mark.thorough
def test_the_permissions_are_of_the_partition():
    text = json.dumps(controller_policies(stack_settings(region="cn-north-1")))
    assert "arn:aws-cn:" in text
    assert "arn:aws:" not in text


def controller(spec: dict[str, Any] | None = None, **settings: Any) -> Graph:
    def program() -> None:
        LoadBalancerController(
            "lb", spec or {}, cluster=existing_cluster(**settings), network=existing_vpc(), placement=placement("m5.xlarge")
        )

    return record(program)


def test_the_api_server_reaches_nothing_of_a_controller_but_its_webhooks():
    """At the ports of the pinned charts."""

    def program() -> None:
        on: dict[str, Any] = {"cluster": existing_cluster(), "placement": placement("m5.2xlarge")}
        LoadBalancerController("lb", {}, network=existing_vpc(), **on)
        LeaderWorkerSetController("lws", **on)
        PrometheusStack("prometheus", {}, **on)

    policies, ports = policies_of(record(program)), {"aws-load-balancer": 9443, "lws-system": 9443, "monitoring": 10250}
    for namespace, port in ports.items():
        asked = (port - 1, port, port + 1)
        assert [passes(policies, Outside("10.0.0.9"), Pod(namespace), at) for at in asked] == [False, True, False], namespace


@pytest.mark.thorough
def test_the_controller_is_like_the_golden_file():
    (release,) = of_kind(controller(), "Release")
    assert_golden("gateway/controller.yaml", yaml.safe_dump(dict(release.inputs), sort_keys=True))


@pytest.mark.thorough
def test_its_image_and_chart_come_from_mirrors():
    mirrors = {"public.ecr.aws": "mirror.example/ecr", "https://aws.github.io/eks-charts": "mirror.example/charts"}
    (release,) = of_kind(controller(mirrors=mirrors), "Release")
    assert release.inputs["values"]["image"]["repository"] == "mirror.example/ecr/eks/aws-load-balancer-controller"


@pytest.mark.thorough
def test_values_beside_ours_are_taken_and_ours_stay():
    (release,) = of_kind(controller({"values": {"logLevel": "debug"}}), "Release")
    assert release.inputs["values"]["logLevel"] == "debug"
    with pytest.raises(ProgramError, match="clusterName"):
        controller({"values": {"clusterName": "other"}})


@pytest.mark.thorough
def test_a_cluster_with_a_controller_gets_no_other():
    graph = recorded_with({"gateway": {**GATEWAY, "ingress_class": "edge"}}, "inf2-llama2")
    assert not children_of(graph, "LoadBalancerController")
    assert {resource.inputs["spec"]["ingressClassName"] for resource in of_kind(graph, "Ingress")} == {"edge"}


# -- the load balancer -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("title", "graph"), [("internal", with_gateway), ("public", public)])
def test_ingresses_policies_and_groups_are_like_the_golden_file(title, graph):
    wanted = ("Ingress", "NetworkPolicy", "SecurityGroup", "SecurityGroupIngressRule", "Role", "RoleBinding", "Record")
    found = {resource.name: dict(resource.inputs) for resource in children_of(graph(), "Gateway") if kind(resource) in wanted}
    assert_golden(f"gateway/{title}.yaml", yaml.safe_dump(found, sort_keys=True, width=200))


@pytest.mark.thorough
def test_nothing_but_load_balancers_is_in_their_subnets():
    graph = with_gateway()
    own = {resource.urn for resource in graph.of_type("aws:ec2/subnet:Subnet") if "load-balancers" in resource.name}
    assert len(own) == 2
    users = [resource for resource in graph.resources for urns in resource.property_dependencies.values() if own & set(urns)]
    assert {kind(user) for user in users} == {"Ingress", "RouteTableAssociation"}


@pytest.mark.thorough
def test_logs_go_to_a_private_bucket_and_end():
    graph = with_gateway()
    (bucket,) = (resource for resource in graph.of_type("aws:s3/bucket:Bucket") if "gateway" in resource.name)
    assert (
        f"access_logs.s3.bucket=<{bucket.name}.bucket>" in annotations(of_kind(graph, "Ingress")[0])["load-balancer-attributes"]
    )
    (rules,) = graph.of_type("aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration")
    assert rules.inputs["rules"][0]["expiration"] == {"days": 90}
    (policy,) = (resource for resource in graph.of_type("aws:s3/bucketPolicy:BucketPolicy") if "gateway" in resource.name)
    write, deny = json.loads(policy.inputs["policy"])["Statement"]
    assert write["Principal"] == {"Service": "logdelivery.elasticloadbalancing.amazonaws.com"}
    assert write["Resource"].endswith("-security-group.ownerId>/*")
    assert deny["Effect"] == "Deny"
    assert "access_logs.s3.enabled=false" in annotations(of_kind(public(), "Ingress")[0])["load-balancer-attributes"]


# -- routes ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_the_only_server_of_a_host_has_all_of_it_and_others_have_paths():
    spec = GatewaySpec.model_validate(
        {**GATEWAY, "routes": {"a": {}, "b": {}, "c": {"host": "c.example.com"}, "d": {"path": "/x"}}}
    )
    assert {route.target: route.url for route in routes(spec, [])} == {
        "a": "https://models.example.com/a",
        "b": "https://models.example.com/b",
        "c": "https://c.example.com",
        "d": "https://models.example.com/x",
    }
    (only,) = routes(GatewaySpec.model_validate(GATEWAY), ["a"])
    assert only == Route("a", "models.example.com", "/", login=False)


def service_of(one: Resource) -> str:
    (rule,) = one.inputs["spec"]["rules"]
    (backend,) = {
        (path["backend"]["service"]["name"], path["backend"]["service"]["port"]["number"]) for path in rule["http"]["paths"]
    }
    return f"{backend[0]}:{backend[1]}"


@pytest.mark.thorough
@pytest.mark.parametrize("stack", ["inf2-llama3", "trn2-di", "trn2-di-pair", "gpu-nixl"])
def test_ray_and_pairs_are_led_out_by_an_endpoint(stack):
    graph = recorded_with({"gateway": GATEWAY}, stack)
    (one,) = of_kind(graph, "Ingress")
    (name,) = graph.outputs["addresses"]
    assert service_of(one) == f"{name}-endpoint:80"
    assert graph.outputs["addresses"] == {name: "https://models.example.com/v1"}


@pytest.mark.parametrize(
    ("asked", "got"),
    [
        ("/llama.3", "/"),
        ("/llama.3/", "/"),
        ("/llama.3/v1/chat/completions", "/v1/chat/completions"),
        ("/llama.3/llama.3/x", "/llama.3/x"),
    ],
)
def test_the_path_of_a_route_is_taken_away(asked, got):
    door = Door("s", 80, {"a": "b"}, 8000, "/health")
    route = Route("s", "models.example.com", "/llama.3", login=False)
    made = ingress("g", route, door, namespace="s", shared={}, ingress_class="alb", login={})
    (transform,) = json.loads(made["metadata"]["annotations"][f"{ALB}transforms.s"])
    (rewrite,) = transform["urlRewriteConfig"]["rewrites"]
    assert re.sub(rewrite["regex"], rewrite["replace"].replace("$", "\\"), asked) == got
    assert re.fullmatch(rewrite["regex"], "/llamax3") is None


def test_longer_paths_come_first_whatever_they_lead_to():
    door = Door("s", 80, {"a": "b"}, 8000, "/health")
    orders = {
        path: int(
            ingress(
                "g",
                Route("s", "h.example.com", path, login=False),
                door,
                namespace="s",
                shared={},
                ingress_class="alb",
                login={},
            )["metadata"]["annotations"][f"{ALB}group.order"]
        )
        for path in ("/", "/a", "/a/b")
    }
    assert sorted(orders, key=lambda path: orders[path]) == ["/a/b", "/a", "/"]
    grpc = replace(door, grpc="inference.GRPCInferenceService")
    made = ingress(
        "g", Route("s", "h.example.com", "/", login=False), grpc, namespace="s", shared={}, ingress_class="alb", login={}
    )
    assert int(made["metadata"]["annotations"][f"{ALB}group.order"]) < orders["/"]


# -- streams ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_pods_outlive_what_the_load_balancer_still_sends_them():
    """A pod waits for the end of new requests, then has the time in which its target keeps the requests it has."""
    graph = with_gateway()
    for resource in of_kind(graph, "Ingress"):
        drained = int(annotations(resource)["target-group-attributes"].partition("=")[2])
        (pod,) = [each for each in of_kind(graph, "Deployment") if namespace_of(each) == namespace_of(resource)]
        spec = pod.inputs["spec"]["template"]["spec"]
        *_, leaves, within = spec["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
        assert int(leaves) >= 40
        assert spec["terminationGracePeriodSeconds"] > int(within) == int(leaves) + drained


@pytest.mark.thorough
def test_pods_behind_it_wait_for_it_and_others_do_not():
    spaces = {one.inputs["metadata"]["name"]: one.inputs["metadata"]["labels"] for one in of_kind(with_gateway(), "Namespace")}
    gated = {name for name, labels in spaces.items() if labels.items() >= GATED.items()}
    assert gated == {"llama2-a-endpoint", "llama2-b-endpoint", "llama2-c-endpoint"}


def test_a_route_to_a_server_makes_an_endpoint_and_leaves_the_others_as_they_are():
    spec = stack("inf2-llama2", {"gateway": {**GATEWAY, "routes": {"llama2-a": {}}}})
    assert {name: one.servers for name, one in spec.endpoints.items()} == {"llama2-a-endpoint": ("llama2-a",)}
    assert spec.endpoints["llama2-a-endpoint"].behind_load_balancer
    assert ("endpoints", "llama2-a-endpoint") in [resolved.path for resolved in spec.resolved]


def test_a_route_to_a_server_uses_the_endpoint_that_leads_to_it_alone():
    endpoints = {"own": {"servers": ["llama2-a"], "replicas": 3}, "all": {}}
    spec = stack("inf2-llama2", {"endpoints": endpoints, "gateway": {**GATEWAY, "routes": {"llama2-a": {}, "llama2-b": {}}}})
    assert {*spec.endpoints} == {"own", "all", "llama2-b-endpoint"}
    assert [spec.leading_to(name) for name in ("llama2-a", "llama2-b", "all")] == ["own", "llama2-b-endpoint", "all"]
    assert spec.endpoints["own"].behind_load_balancer
    assert not spec.endpoints["all"].behind_load_balancer


def test_an_endpoint_without_keys_is_no_way_in_of_a_route_that_asks_nobody():
    endpoints = {"inside": {"servers": ["llama2-a"], "keys": False}}
    spec = stack("inf2-llama2", {"endpoints": endpoints, "gateway": {**GATEWAY, "routes": {"llama2-a": {}}}})
    assert spec.leading_to("llama2-a") == "llama2-a-endpoint"
    assert spec.endpoints["llama2-a-endpoint"].keys
    with_login = {**GATEWAY, "login": LOGIN, "routes": {"llama2-a": {"login": True}}}
    spec = stack("inf2-llama2", {"endpoints": {"asks": {"servers": ["llama2-a"]}}, "gateway": with_login})
    assert not spec.endpoints[spec.leading_to("llama2-a") or ""].keys


@pytest.mark.parametrize("odd", [{"llama2-a": {"servers": ["llama2-a", "llama2-b"]}}, {"chat": True}, {"chat": 3}])
def test_a_mistake_in_an_endpoint_beside_a_gateway_is_told_with_its_key(odd: dict[str, Any]):
    with pytest.raises(SpecError, match=rf"endpoints\.{next(iter(odd))}"):
        stack("inf2-llama2", {"endpoints": odd, "gateway": GATEWAY})


def test_a_stack_that_is_written_out_makes_the_same():
    spec = stack("inf2-llama2", {"gateway": GATEWAY})
    again = StackSpec.of(spec.inputs())
    assert again.endpoints == spec.endpoints
    assert again.routes == spec.routes


@pytest.mark.parametrize(
    ("server", "route", "made"),
    [
        ({"client_namespaces": {"team": "a"}}, {}, {"keys": True, "client_namespaces": {"team": "a"}}),
        (
            {"client_namespaces": {"team": "a"}},
            {"login": True},
            {"keys": False, "client_namespaces": {"kubernetes.io/metadata.name": "qwen3-endpoint"}},
        ),
    ],
)
def test_who_may_ask_a_server_may_ask_its_endpoint_and_nobody_else(server, route, made):
    gateway = {**GATEWAY, "login": LOGIN, "routes": {"qwen3": route}}
    spec = stack("smoke-gpu", {"servers": {"qwen3": server}, "gateway": gateway})
    assert spec.endpoints["qwen3-endpoint"].inputs().items() >= {key: one for key, one in made.items() if one is not True}.items()
    assert spec.endpoints["qwen3-endpoint"].keys is made["keys"]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("section", "own"),
    [
        ({"gateway": GATEWAY}, True),
        ({"gateway": {**GATEWAY, "public": True}}, False),
        ({"gateway": GATEWAY, "network": {"cidr": "10.2.0.0/19"}}, False),
        ({"gateway": GATEWAY, "network": {"load_balancer_subnets": False}}, False),
        ({}, False),
    ],
)
def test_an_internal_gateway_has_subnets_of_its_own_where_there_is_room(section, own):
    assert stack("inf2-llama2", section).network.load_balancer_subnets is own


# -- the end ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.parametrize("graph", [with_gateway, public])
def test_ingresses_go_before_everything_that_ends_their_load_balancer(graph):
    """The controller takes load balancer, target groups and listeners away while an Ingress goes, and needs its role for that."""
    graph = graph()
    below = [
        *children_of(graph, "LoadBalancerController"),
        *(
            resource
            for resource in children_of(graph, "Gateway")
            if kind(resource) in ("SecurityGroup", "SecurityGroupIngressRule", "BucketPolicy")
        ),
        *(
            resource
            for resource in children_of(graph, "Gateway")
            if kind(resource) in ("CertificateValidation", "Secret", "Role", "RoleBinding")
        ),
        *graph.of_type("aws:ec2/subnet:Subnet")[:1],
    ]
    ingresses = of_kind(graph, "Ingress")
    for resource in ingresses:
        mine = [
            low
            for low in below
            if low.inputs.get("metadata", {}).get("namespace") in (None, namespace_of(resource), "aws-load-balancer")
        ]
        for low in mine:
            assert stands_on(graph, resource, low), f"{resource.name} could be deleted after {low.name}"
        assert resource.options.get("deletedWith", "") == ""
        assert "pulumi.com/skipAwait" not in resource.inputs["metadata"]["annotations"], "its end would not be waited for"


def namespace_of(one: Resource) -> str:
    return one.inputs["metadata"]["namespace"]


@pytest.mark.thorough
def test_ingresses_go_before_the_servers_behind_them():
    graph = with_gateway()
    for space, (one,) in by_namespace(graph).items():
        for server in of_kind(graph, "Deployment"):
            if namespace_of(server) == space:
                assert stands_on(graph, one, server)


def test_records_go_before_their_load_balancer():
    graph = with_gateway()
    records = [resource for resource in graph.of_type("aws:route53/record:Record") if resource.inputs["type"] == "CNAME"]
    assert [resource.inputs["name"] for resource in records] == ["models.example.com"]
    assert stands_on(graph, records[0], of_kind(graph, "Ingress")[0])


# -- names -----------------------------------------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_the_certificate_is_proved_in_the_zone_and_awaited():
    graph = recorded_with(
        {"gateway": {**GATEWAY, "routes": {"llama2-a": {}, "llama2-b": {"host": "b.example.com"}}}}, "inf2-llama2"
    )
    (certificate,) = graph.of_type("aws:acm/certificate:Certificate")
    assert certificate.inputs["domainName"] == "b.example.com"
    assert certificate.inputs["subjectAlternativeNames"] == ["models.example.com"]
    (validation,) = graph.of_type("aws:acm/certificateValidation:CertificateValidation")
    assert len(validation.inputs["validationRecordFqdns"]) == 2
    assert graph.outputs["addresses"] == {"llama2-a": "https://models.example.com/v1", "llama2-b": "https://b.example.com/v1"}


class Acm(Mocks):
    """What ACM says of the hosts of a certificate, as the provider hands it on: a set, in the order of hashes of their names.

    Source: terraform-provider-aws, internal/service/acm/certificate.go, domainValidationOptionsHash.
    """

    def __init__(self, unsaid: str = "") -> None:
        super().__init__()
        self.unsaid = unsaid
        self.records: dict[str, dict[str, Any]] = {}

    def new_resource(self, args: MockResourceArgs) -> tuple[str | None, dict[str, Any]]:
        identity, outputs = super().new_resource(args)
        if args.typ == "aws:route53/record:Record":
            self.records[args.name] = dict(args.inputs)
        if args.typ == "aws:acm/certificate:Certificate":
            hosts = [args.inputs["domainName"], *args.inputs.get("subjectAlternativeNames", ())]
            outputs["domainValidationOptions"] = [
                {
                    "domainName": host,
                    "resourceRecordName": f"_proof.{host}.",
                    "resourceRecordType": "CNAME",
                    "resourceRecordValue": f"_of-{host}.acm-validations.aws.",
                }
                for host in sorted(hosts, key=lambda host: crc32(host.encode()))
                if host != self.unsaid
            ]
        return identity, outputs


def proofs(*hosts: str, acm: Acm | None = None) -> dict[str, dict[str, Any]]:
    """The records of a certificate for hosts, by name, once ACM has answered."""
    acm = acm or Acm()

    @pulumi.runtime.test
    def program() -> pulumi.Output[str]:
        pulumi.runtime.set_mocks(acm)
        parent = pulumi.ComponentResource("test:index:Gateway", "gateway")
        return validated_certificate("g", hosts, ZONE, settings=stack_settings(), parent=parent)

    program()
    return acm.records


MODELS, LLAMA2, B = "models.example.com", "llama2.example.com", "b.example.com"


@pytest.mark.parametrize("before", [*permutations((MODELS, LLAMA2, B), 1), *permutations((MODELS, LLAMA2, B), 2)])
def test_another_host_leaves_the_proofs_of_the_others_as_they_are(before):
    """A record of another name is made anew, and the deletion of the old one would take a proof that is still needed."""
    old = proofs(*before)
    assert {one["name"] for one in old.values()} == {f"_proof.{host}." for host in before}
    for after in permutations((MODELS, LLAMA2, B)):
        assert proofs(*after).items() > old.items()


def test_a_host_of_which_acm_has_not_spoken_says_what_to_do():
    with pytest.raises(Exception, match=r"which record proves llama2.example.com; run `pulumi up --refresh`"):
        proofs(MODELS, LLAMA2, acm=Acm(unsaid=LLAMA2))


@pytest.mark.thorough
def test_a_given_certificate_makes_nothing_in_route_53():
    graph = recorded_with({"gateway": {"host": "models.example.com", "certificate_arn": CERTIFICATE}}, "inf2-llama2")
    assert not [resource for resource in graph.resources if resource.type.startswith(("aws:acm/", "aws:route53/"))]
    assert {annotations(resource)["certificate-arn"] for resource in of_kind(graph, "Ingress")} == {CERTIFICATE}


# -- who may ask -----------------------------------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_the_secret_of_the_client_is_shown_to_nobody():
    assert "hush" not in json.dumps([resource.inputs for resource in public().resources], default=str)


def test_without_keys_of_clients_they_use_that_of_the_servers():
    graph = recorded_with({"gateway": GATEWAY}, "smoke-gpu", {"eks-inference:servingApiKey": "hush-key-of-the-servers"})
    (secret,) = [one for one in of_kind(graph, "Secret") if one.inputs["metadata"]["namespace"] == "qwen3-endpoint"]
    assert secret.inputs["stringData"] == "[secret]"
    assert "hush" not in json.dumps([resource.inputs for resource in graph.resources], default=str)


@pytest.mark.parametrize(
    ("secrets", "says"),
    [
        ({"eks-inference:servingApiKey": "short"}, "the secret eks-inference:servingApiKey cannot be used"),
        ({}, "pulumi config set --secret eks-inference:endpointKeys"),
    ],
)
def test_a_gateway_without_a_key_says_which_to_add(secrets, says):
    with pytest.raises(ProgramError, match=re.escape(says)):
        recorded_with({"gateway": GATEWAY}, "smoke-gpu", secrets)


class Target:
    """What a route leads to, without a server."""

    namespace = "t"
    ready: tuple[pulumi.Resource, ...] = ()

    def __init__(self, *, authenticates: bool = False) -> None:
        self.authenticates = authenticates
        self.doors = (Door("t", 80, {"app": "t"}, 8080, "/ready", api="/v1"),)


NETWORK = ExistingVpc(
    vpc_id="vpc-1",
    private_subnets=[Subnet(f"usw2-az{n}", f"subnet-{n}", f"10.0.{n}.0/24") for n in (1, 2)],
    public_subnets=[Subnet(f"usw2-az{n}", f"subnet-p{n}", f"10.0.1{n}.0/24") for n in (1, 2)],
)


def gateway(spec: dict[str, Any], *, network: ExistingVpc = NETWORK, target: Any = None, name: str = "g", **more: Any) -> Graph:
    def program() -> None:
        Gateway(
            name,
            {"host": "models.example.com", "certificate_arn": CERTIFICATE, **spec},
            cluster=existing_cluster(),
            network=network,
            controller=ExistingLoadBalancerController(),
            **{"targets": {"t": target or Target()}, **more},
        )

    return record(program)


def test_a_server_itself_is_nothing_to_lead_to():
    class Server:
        namespace, fronts, ready = "t", (Front({"app": "t"}, 8000),), ()

    with pytest.raises(ProgramError, match=r"a ModelEndpoint, which asks for keys"):
        gateway({}, target=Server())


def test_a_secret_that_exists_is_only_named():
    spec = {"login": LOGIN, "routes": {"t": {"login": True}}}
    graph = gateway(spec, login_secret=SecretRef("idp", "clientSecret"))
    assert not [resource for resource in graph.resources if kind(resource) == "Secret"]
    (one,) = of_kind(graph, "Ingress")
    assert json.loads(annotations(one)["auth-idp-oidc"])["secretName"] == "idp"


@pytest.mark.parametrize(
    ("spec", "more", "says"),
    [
        ({"public": True}, {}, "anyone on the internet could use t"),
        ({"routes": {"u": {}}}, {}, "no target has this name"),
        ({"login": LOGIN, "routes": {"t": {"login": True}}}, {}, "the secret of this client is missing"),
        ({}, {"network": existing_vpc()}, "the addresses of a subnet of the load balancer are not known"),
        ({}, {"network": replace(NETWORK, private_subnets=NETWORK.private_subnets[:1])}, "subnets in two zones"),
        (
            {"public": True},
            {"network": replace(NETWORK, public_subnets=()), "target": Target(authenticates=True)},
            "no such subnets",
        ),
        ({}, {"name": "G"}, "names of Ingresses"),
        ({}, {"targets": {}}, "routes: a gateway needs a model server or the web UI"),
        ({}, {"name": "g" * 51}, "at most 50 characters"),
    ],
)
def test_what_cannot_be_is_refused(spec, more, says):
    with pytest.raises(ProgramError, match=says):
        gateway(spec, **more)


def test_a_public_server_with_a_key_is_taken():
    graph = gateway({"public": True}, target=Target(authenticates=True))
    (one,) = of_kind(graph, "Ingress")
    assert annotations(one)["scheme"] == "internet-facing"
    (group,) = (each for each in graph.resources if kind(each) == "SecurityGroup")
    assert group.inputs["ingress"][0]["cidrBlocks"] == ["0.0.0.0/0"]


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({"host": "models.example.com"}, "HTTPS needs a certificate"),
        ({**GATEWAY, "routes": {"a": {"login": True}}}, "routes a ask for a login"),
        ({**GATEWAY, "host": "models"}, "is not a host name"),
        ({**GATEWAY, "routes": {"a": {"path": "/a/"}}}, "is not a path"),
        ({**GATEWAY, "routes": {"a": {"path": "/../x"}}}, "is not a path"),
        ({**GATEWAY, "source_cidrs": ["10.0.0.1/8"]}, "is not an IPv4 range"),
        ({**GATEWAY, "web_acl_arn": "arn:aws:waf::1:x"}, "ARN of a web ACL"),
    ],
)
def test_what_makes_no_sense_is_refused_at_its_key(spec, says):
    with pytest.raises(SpecError, match=says):
        GatewaySpec.model_validate(spec)


@pytest.mark.parametrize(
    ("section", "says"),
    [
        ({"gateway": {**GATEWAY, "routes": {"llama2": {}}}}, "gateway.routes.llama2: there is no server of this name"),
        ({"gateway": {**GATEWAY, "routes": {WEB_UI: {}}}}, "add clients.open_webui"),
        ({"gateway": GATEWAY, "servers": {"llama2-a": {"namespace": "aws-load-balancer"}}}, "this namespace is taken"),
        (
            {"endpoints": {"x": {"servers": ["llama2-a"]}}, "gateway": {**GATEWAY, "routes": {"llama2-a": {}, "x": {}}}},
            "gateway.routes.x: llama2-a has a route to the same endpoint, x",
        ),
        (
            {"endpoints": {"llama2-a-endpoint": {}}, "gateway": {**GATEWAY, "routes": {"llama2-a": {}}}},
            "gateway.routes.llama2-a: no endpoint leads to llama2-a alone",
        ),
    ],
)
def test_routes_lead_somewhere(section, says):
    with pytest.raises(ProgramError, match=re.escape(says)):
        recorded_with(section, "inf2-llama2")


# -- the pages -------------------------------------------------------------------------------------------------------------------

PAGES = [ROOT / "docs" / "gateway.md", ROOT / "docs" / "stacks" / "inf2-llama2.md"]
BLOCKS = [yaml.safe_load(block.text) for page in PAGES for block in blocks(page) if block.language == "yaml"]
SHOWN = [one for one in BLOCKS if "gateway" in one]


@pytest.mark.thorough
def test_each_page_shows_one():
    assert len(SHOWN) == 5


@pytest.mark.thorough
@pytest.mark.parametrize("shown", SHOWN, ids=[",".join((*one, *one["gateway"])) for one in SHOWN])
def test_what_the_pages_show_is_taken_and_built(shown):
    spec = stack("inf2-llama2", shown)
    assert not check_spec(spec, "us-east-2").faults
    graph = recorded_with(shown, "inf2-llama2", SECRETS)
    verdict = check_graph(graph, spec.silenced)
    # The core pool of that stack has room for the gateway, but may have none for the load test beside it.
    open_ = [one.summary for one in verdict.findings if not one.reason and "inf2-llama2-load-test-job: K8S022" not in one.summary]
    assert not open_
    assert graph.outputs["addresses"].keys() == {route.target for route in spec.routes}
