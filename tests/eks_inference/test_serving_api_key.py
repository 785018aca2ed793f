"""The key of all servers of a stack, from its configuration to every server and every client."""

import json

import pytest

from conftest import PROJECT, STACKS, record_once, recorded
from graphs import children_of, kubernetes
from stackgraph.graph.document import Graph, Resource

CLIENTS = {"OpenWebUI": "SERVING_API_KEY", "SmokeTest": "OPENAI_API_KEY", "LoadTest": "OPENAI_API_KEY"}
SERVERS = {"PrefillDecodeServers": "VLLM_API_KEY", "RayServeVllm": "VLLM_API_KEY", "VllmServer": "VLLM_API_KEY"}


def with_key(stack: str) -> Graph:
    config = {**PROJECT.config(PROJECT.stack_file(stack)).values, "eks-inference:servingApiKey": "geheim"}
    return record_once(
        PROJECT.main,
        project=PROJECT.name,
        stack=stack,
        config=config,
        secret_keys=["eks-inference:servingApiKey"],
        root=PROJECT.root,
    )


def key_secrets(graph: Graph) -> list[Resource]:
    return [secret for secret in graph.of_type("kubernetes:core/v1:Secret") if secret.name.endswith("-api-key")]


def readers(graph: Graph, component: str, variable: str) -> list[str]:
    """Names of the Secrets that objects of a component read this variable from."""
    found = []
    for resource in children_of(graph, component):
        containers = json.dumps(resource.inputs)
        if f'"name": "{variable}"' in containers:
            found += [secret.name for secret in key_secrets(graph) if secret.inputs["metadata"]["name"] in containers]
    return found


@pytest.mark.thorough
def test_every_server_wants_the_key_and_every_client_has_it() -> None:
    for stack in STACKS:
        graph = with_key(stack)
        made = {resource.type.rpartition(":")[2] for resource in graph.resources}
        for component, variable in (SERVERS | CLIENTS).items():
            assert bool(readers(graph, component, variable)) == (component in made), (stack, component)
        namespaces = [secret.inputs["metadata"]["namespace"] for secret in key_secrets(graph)]
        assert len(set(namespaces)) == len(namespaces)
        assert "geheim" not in graph.to_json()


def test_the_routers_of_prefill_and_decode_servers_send_the_key_to_them() -> None:
    assert readers(with_key("gpu-nixl"), "PrefillDecodeServers", "OPENAI_API_KEY") == ["llama3-70b-api-key"]


@pytest.mark.thorough
def test_the_key_changes_nothing_but_who_knows_it() -> None:
    """Further Secrets, and variables of pods that read them: no other object, address or policy."""
    for stack in STACKS:
        plain, graph = recorded(stack), with_key(stack)
        further = {resource.urn for resource in key_secrets(graph)}
        assert {resource.urn.rpartition("::")[2] for resource in graph.resources if resource.urn not in further} == {
            resource.urn.rpartition("::")[2] for resource in plain.resources
        }
        readers = {"Deployment", "RayService", "Job"}
        for resource in kubernetes(plain):
            if resource.type.rpartition(":")[2] not in readers:
                assert graph.by_urn[resource.urn].inputs == resource.inputs


@pytest.mark.thorough
def test_the_next_steps_say_that_chat_needs_the_key() -> None:
    chat = "eks-inference chat"
    for stack in STACKS:
        steps = recorded(stack).outputs["next"]
        assert with_key(stack).outputs["next"] == [f"OPENAI_API_KEY=KEY {step}" if step == chat else step for step in steps]
    assert chat in recorded("inf2-llama3").outputs["next"]
