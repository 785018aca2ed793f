"""A stack for programs in other languages: what the plugin says of itself, builds and refuses."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import grpc
import pytest
import yaml
from pulumi.runtime.proto import errors_pb2, status_pb2

from conftest import PROJECT, ROOT, STACKS, recorded
from eks_inference.kubernetes.secrets import CONFIG_SECRETS
from plugin_host import TYPE, UNKNOWN, Plugin, plugin, secret
from readme import blocks
from stackgraph.graph.document import STACK_TYPE, Graph, Resource
from stackgraph.graph.values import mapped
from stackgraph.recorder import wire

STACK = "gpu-opt350m"
WRAPPED = f"{TYPE}$"
PAGE = ROOT / "docs" / "other-languages.md"


@pytest.fixture(scope="module")
def served() -> Iterator[Plugin]:
    with plugin() as found:
        yield found


def stack_of(name: str) -> tuple[dict[str, Any], dict[str, str]]:
    config = dict(PROJECT.config(PROJECT.stack_file(name)).values)
    return json.loads(config.pop("eks-inference:stack")), config


def test_the_schema(served):
    schema = json.loads(served.schema())
    assert schema["name"] == PROJECT.name
    (resource,) = schema["resources"].items()
    token, described = resource
    assert token == TYPE
    assert described["isComponent"]
    assert set(described["inputProperties"]) == {"stack", "region", "profile", *CONFIG_SECRETS}
    assert described["requiredInputs"] == ["stack"]
    assert set(described["properties"]) == {"clusterName", "kubeconfig", "endpoints"}
    every = {**described["inputProperties"], **described["properties"]}
    assert all(one["description"] for one in every.values())


@pytest.mark.thorough
@pytest.mark.parametrize("stack", STACKS)
def test_it_builds_what_the_stack_file_builds(served, stack):
    spec, config = stack_of(stack)
    graph, outputs = served.construct("llm", {"stack": spec}, project=PROJECT.name, stack=stack, config=config)
    (wrapper,) = graph.of_type(TYPE)
    assert rows(unwrapped(graph, wrapper)) == rows(recorded(stack, strict=True))
    assert outputs["clusterName"] == stack
    assert set(outputs["endpoints"]) == set(spec["servers"])
    assert wire.SECRET in outputs["kubeconfig"].values()


def unwrapped(graph: Graph, wrapper: Resource) -> Graph:
    """The graph without the component around the platform."""

    def urn(leaf: Any) -> Any:
        return leaf.replace(WRAPPED, "") if isinstance(leaf, str) else leaf

    def parent(resource: Resource) -> str:
        return wrapper.parent if resource.parent == wrapper.urn else urn(resource.parent)

    kept = (resource for resource in graph.resources if resource is not wrapper)
    return replace(
        graph,
        resources=tuple(
            replace(one, urn=urn(one.urn), parent=parent(one), **{key: mapped(getattr(one, key), urn) for key in _WITH_URNS})
            for one in kept
        ),
    )


_WITH_URNS = ("provider", "inputs", "dependencies", "property_dependencies", "options")


def rows(graph: Graph) -> dict[str, Any]:
    """What a resource is, by URN. The library is a plugin's whole program, so places in the source differ."""
    found = {resource.urn: resource.document() | {"source": ""} for resource in graph.resources if resource.type != STACK_TYPE}
    return json.loads(json.dumps(found, sort_keys=True))


@pytest.mark.thorough
def test_secrets_are_inputs_and_stay_secret(served):
    spec, config = stack_of(STACK)
    given = {"stack": spec, "grafanaAdminPassword": "plain-but-hush", "servingApiKey": secret("very-hush")}
    graph, _ = served.construct("llm", given, project="p", stack="s", config=config)
    assert "hush" not in graph.to_json()
    (password,) = [resource for resource in graph.of_type("kubernetes:core/v1:Secret") if "grafana" in resource.name]
    assert "[secret]" in json.dumps(password.inputs)


def faults(served: Plugin, **given: Any) -> dict[str, str]:
    """By input, what the engine shows after the sentence "property … has a problem"."""
    config = given.pop("config", {"aws:region": "us-west-2"})
    with pytest.raises(grpc.RpcError) as raised:
        served.construct("llm", given, project="p", stack="s", config=config)
    assert raised.value.code() == grpc.StatusCode.INVALID_ARGUMENT, raised.value.details()
    assert raised.value.details() == "the stack cannot be built"
    details = dict(raised.value.trailing_metadata())["grpc-status-details-bin"]  # pyright: ignore[reportCallIssue, reportArgumentType]
    found = errors_pb2.InputPropertiesError()
    status_pb2.Status.FromString(details).details[0].Unpack(found)
    return {error.property_path: error.reason for error in found.errors}


def test_faults_have_the_words_of_a_stack_file(served):
    spec, _ = stack_of("inf2-llama3")
    spec["network"]["zonez"] = spec["network"].pop("zones")
    spec["servers"]["vllm-llama3-inf2"]["worker"]["instance_type"] = "inf2.8xlrage"
    found = faults(served, stack=spec)
    assert found["stack.network.zonez"].splitlines() == [
        "unknown key",
        "    allowed: cidr, endpoints, existing, flow_logs, load_balancer_subnets, nat, public_subnets, zone_ids, zones",
        "    hint: did you mean 'zones'?",
    ]
    assert "Traceback" not in str(found)


@pytest.mark.thorough
def test_an_input_that_does_not_exist_is_a_fault(served):
    """Without it, a misspelt servingApiKey would leave a server open."""
    spec, _ = stack_of("smoke-gpu")
    assert "allowed: stack, region" in faults(served, stack=spec, servingApiKeys="k")["servingApiKeys"]


@pytest.mark.thorough
def test_what_a_rule_refuses_is_a_fault_of_an_input_as_well(served):
    spec, _ = stack_of("inf2-llama3")
    spec["servers"]["vllm-llama3-inf2"]["max_num_seqs"] = 40
    (found,) = faults(served, stack=spec).items()
    assert found[0] == "stack.servers.vllm-llama3-inf2.max_num_seqs"
    assert found[1].startswith("NEU008: Llama-3-8B needs")
    assert "because: weights" in found[1]


@pytest.mark.thorough
def test_a_stack_has_no_values_of_a_deployment_and_no_secrets(served):
    spec, _ = stack_of(STACK)
    spec["tags"] = {"owner": secret("me"), "id": UNKNOWN}
    found = faults(served, stack=spec)
    assert set(found) <= {"stack.tags.owner", "stack.tags.id", "stack"}
    for reason in found.values():
        assert "must be known during a preview, and no secret" in reason
        assert "huggingFaceToken" in reason


@pytest.mark.thorough
def test_the_region_is_that_of_the_provider(served):
    spec, _ = stack_of(STACK)
    assert "aws:region" in faults(served, stack=spec, config={})["region"]
    contradiction = faults(served, stack=spec, region="eu-west-1")["region"]
    assert "given: eu-west-1\n    allowed: us-west-2" in contradiction


@pytest.mark.thorough
@pytest.mark.parametrize("key", ["region", "profile"])
@pytest.mark.parametrize("value", [secret("us-west-2"), UNKNOWN, 5, ["us-west-2"]], ids=["secret", "unknown", "number", "list"])
def test_region_and_profile_are_plain_texts(served, key, value):
    (found,) = faults(served, stack=stack_of(STACK)[0], **{key: value}).items()
    assert found[0] == key
    assert "must be known during a preview, and no secret" in found[1]
    assert "allowed: a text" in found[1]


@pytest.mark.thorough
@pytest.mark.parametrize("value", [5, ["hush"], {"a": "hush"}], ids=["number", "list", "mapping"])
def test_a_secret_is_a_text(served, value):
    (found,) = faults(served, stack=stack_of(STACK)[0], servingApiKey=value).items()
    assert found[0] == "servingApiKey"
    assert "allowed: a text" in found[1]
    assert "hush" not in found[1]


@pytest.mark.thorough
def test_a_key_controls_no_terminal(served):
    assert set(faults(served, stack={**stack_of(STACK)[0], "\x1b[1m": 1})) == {"stack.\\x1b[1m"}


@pytest.mark.thorough
def test_a_secret_that_is_missing_is_asked_for_by_its_input(served):
    spec, _ = stack_of("trn2-di")
    for server in spec["servers"].values():
        server["model"] = {**server["model"], "id": "meta-llama/Llama-3.3-70B-Instruct"}
    found = faults(served, stack=spec)
    assert "is not public" in found["huggingFaceToken"]
    assert "pass it as an input of this name" in found["huggingFaceToken"]


@pytest.mark.thorough
def test_the_page_shows_a_program_that_works(served):
    (program,) = (yaml.safe_load(b.text) for b in blocks(PAGE) if b.language == "yaml")
    (resource,) = program["resources"].values()
    assert resource["type"] == TYPE
    given = resource["properties"] | {"huggingFaceToken": secret("hush")}
    graph, outputs = served.construct("llm", given, project="llm", stack="dev", config={"aws:region": "us-west-2"})
    assert "meta-llama/Meta-Llama-3-8B-Instruct" in graph.to_json()
    assert "hush" not in graph.to_json()
    used = {word for text in program["outputs"].values() for word in [text.removeprefix("${llm.").removesuffix("}")]}
    assert used <= set(outputs)
