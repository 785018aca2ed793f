"""What clients ask servers for: a model that chats, one that makes embeddings and one that ranks, behind one address."""

import io
import json
import wave
from typing import Any

import pytest

from conftest import PROJECT
from eks_inference.catalog.engines import engines
from eks_inference.catalog.instances import instance_type
from eks_inference.catalog.models import listens, models
from eks_inference.clients.chat import TASKS, main
from eks_inference.serving.memory import MemoryUse
from eks_inference.serving.paths import PATHS
from eks_inference.stack.reading import parse_stack
from eks_inference.stack.registry import check_spec
from loopback import Handler, Served, Server
from stackgraph.graph.document import Graph
from variants import faults, merge, recorded_with, verdict

SECRETS = {"eks-inference:endpointKeys": json.dumps({"team-a": "a-key-of-team-a-in-a-test"})}
EMBED, RERANK, HEAR = "BAAI/bge-large-en-v1.5", "BAAI/bge-reranker-v2-m3", "openai/whisper-large-v3"
COMMON = {"kind": "vllm", "engine": "cuda-vllm-0.30", "pool": "gpu", "devices": 1, "tensor_parallel": 1, "max_num_seqs": 64}
THREE: dict[str, Any] = {
    "pools": {"gpu": {"size": 4}, "core": {"root_volume_gib": 150}},
    "servers": {
        "embed": {**COMMON, "model": {"id": EMBED}, "max_model_len": 512, "disk_gib": 30},
        "rerank": {**COMMON, "model": {"id": RERANK}, "max_model_len": 4096, "disk_gib": 30},
        "hear": {**COMMON, "model": {"id": HEAR}, "max_model_len": 448, "disk_gib": 30, "image": {"kind": "in_cluster"}},
    },
    "endpoints": {"api": {}},
}


def three(changes: dict[str, Any] | None = None) -> dict[str, Any]:
    section = json.loads(json.dumps(THREE))
    merge(section, changes or {})
    return section


@pytest.fixture(scope="module")
def made() -> Graph:
    return recorded_with(three(), "smoke-gpu", SECRETS)


def pods(graph: Graph, name: str) -> list[Any]:
    (found,) = (resource for resource in graph.resources if resource.name == name)
    return found.inputs["spec"]["template"]["spec"]["containers"]


def test_four_tasks_behind_one_address_are_judged_without_a_fault() -> None:
    assert not faults(three())


def test_the_engine_runs_each_as_what_it_is(made: Graph) -> None:
    for server, pooling in (("qwen3", False), ("embed", True), ("rerank", True), ("hear", False)):
        (engine,) = pods(made, f"{server}-deployment")
        assert ("--runner pooling" in " ".join(engine["args"])) == pooling, server


def led(graph: Graph) -> dict[str, set[str]]:
    """The paths that lead to each server."""
    (config,) = (resource for resource in graph.resources if resource.name == "api-config")
    (listener, _) = json.loads(config.inputs["data"]["envoy.json"])["static_resources"]["listeners"]
    (host,) = listener["filter_chains"][0]["filters"][0]["typed_config"]["route_config"]["virtual_hosts"]
    found: dict[str, set[str]] = {}
    for route in host["routes"]:
        if "route" in route:
            found.setdefault(route["route"]["cluster"], set()).add(route["match"]["path"])
    return found


def test_each_is_led_out_at_its_own_paths(made: Graph) -> None:
    own = {"qwen3": PATHS["chat"], "embed": PATHS["embed"], "rerank": PATHS["rerank"], "hear": PATHS["transcribe"]}
    assert led(made) == {server: {*paths} for server, paths in own.items()}


def test_the_image_of_what_hears_is_built_with_what_decodes_sounds(made: Graph) -> None:
    (built,) = (one for one in made.resources if one.name == "hear-image" and one.type.endswith(":ImageBuild"))
    assert "vllm[audio]==0.30.0" in str([resource.inputs for resource in made.resources if resource.parent == built.urn])


def test_no_picker_is_asked_for_what_none_reads() -> None:
    graph = recorded_with(three({"endpoints": {"api": {"spread": "endpoint_picker"}}}), "smoke-gpu", SECRETS)
    (config,) = (resource for resource in graph.resources if resource.name == "api-config")
    static = json.loads(config.inputs["data"]["envoy.json"])["static_resources"]
    assert [one["name"] for one in static["clusters"] if one["name"].endswith("/picker")] == ["qwen3/picker"]
    (host,) = static["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]["route_config"]["virtual_hosts"]
    picked = {one["match"]["path"] for one in host["routes"] if "overrides" in json.dumps(one.get("typed_per_filter_config"))}
    assert picked == {*PATHS["chat"]}


def test_one_model_may_do_two_tasks_under_two_names() -> None:
    model = "Qwen/Qwen3-0.6B"
    more = {
        "model": {"id": model},
        "task": "embed",
        "max_model_len": 2048,
        "extra_args": {"served-model-name": [model, "vectors"]},
    }
    section = three({"pools": {"gpu": {"size": 5}}, "servers": {"vectors": {**COMMON, **more}}, "load_test": None})
    (fault,) = faults(section)
    parts = {model: {"qwen3": 100}}
    assert f"models: {{{model}: {{qwen3: 100}}}}" in fault
    section["endpoints"]["api"]["models"] = parts
    assert not faults(section)
    found = led(recorded_with(section, "smoke-gpu", SECRETS))
    assert (found["qwen3"], found["vectors"]) == ({*PATHS["chat"]}, {*PATHS["embed"]})


def test_servers_of_a_model_with_parts_share_no_other_names() -> None:
    model = "Qwen/Qwen3-0.6B"
    more = {
        name: {**COMMON, "model": {"id": model}, "max_model_len": 2048, "extra_args": {"served-model-name": [model, name]}}
        for name in ("a", "b")
    }
    section = three({"pools": {"gpu": {"size": 6}}, "servers": more, "load_test": None})
    section["endpoints"]["api"]["models"] = {model: {"qwen3": 100}}
    assert not faults(section)
    found = led(recorded_with(section, "smoke-gpu", SECRETS))
    assert found["a"] == found["b"] == {*PATHS["chat"]}


def test_clients_ask_each_for_what_it_does(made: Graph) -> None:
    for server, task in (("qwen3", None), ("embed", "embed"), ("rerank", "rerank"), ("hear", "transcribe")):
        (test,) = pods(made, f"{server}-smoke-test-job")
        asked = dict(zip(test["command"], test["command"][1:], strict=False))
        assert asked.get("--task") == task
    (load,) = (resource for resource in made.resources if resource.type.endswith(":LoadTest"))
    assert [*load.inputs.get("servers", ())] == []
    (files,) = (resource for resource in made.resources if resource.parent == load.urn and resource.type.endswith(":ConfigMap"))
    told = json.loads(files.inputs["data"]["config.json"])
    backends = {one["server"]: one["scenario"]["spec"] for one in told["measurements"]}
    formats = {server: one["backend"]["request_format"] for server, one in backends.items()}
    assert formats == {"qwen3": "/v1/chat/completions", "embed": "/v1/embeddings"}
    assert {server: one.get("task") for server, one in told["servers"].items()} == {"qwen3": None, "embed": "embed"}
    assert "output_tokens" not in backends["embed"]["data"][0]


def test_the_longest_embedding_is_a_text_without_an_answer() -> None:
    section = three({"load_test": {"servers": ["embed"], "input_tokens": {"mean": 400}, "output_tokens": {"mean": 400}}})
    assert not faults(section)
    section["load_test"]["input_tokens"]["mean"] = 600
    assert any("LT001" in fault and "of 600 tokens" in fault for fault in faults(section))


@pytest.mark.parametrize(
    ("name", "speech"),
    [
        *[(one, True) for one in ("openai/whisper-large-v3", "mistralai/Voxtral-Mini-3B-2507", "Qwen/Qwen3-ASR-1.7B")],
        *[(one, True) for one in ("ibm-granite/granite-speech-3.3-8b", "whisper", "qwen3_asr", "voxtral_realtime")],
        *[(one, False) for one in ("Qwen/Qwen3-8B", "acme/laser-7b", "granite", "mistralai/Mistral-7B-v0.1")],
    ],
)
def test_models_of_speech_are_told_as_what_they_are(name: str, speech: bool) -> None:
    assert listens(name) == speech


@pytest.mark.parametrize("shape", [{}, {"shape": {"model_type": "voxtral"}}])
@pytest.mark.parametrize("task", [{}, {"task": "transcribe"}])
def test_who_serves_another_model_of_speech_says_its_task(shape: dict[str, Any], task: dict[str, Any]) -> None:
    server = {**COMMON, "model": {"id": "mistralai/Voxtral-Mini-3B-2507", **shape}, "max_model_len": 448, **task}
    told = verdict({"servers": {"qwen3": None, "hears": server}, "load_test": None}).findings
    found = {finding.rule.id: finding.stops for finding in told if finding.rule.id in ("SRV020", "SRV023")}
    assert found == ({"SRV023": False} if task else {"SRV020": False})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"servers": {"embed": {"task": "chat"}}}, "SRV020: BAAI/bge-large-en-v1.5 reads texts and writes none"),
        ({"servers": {"embed": {"task": "classify"}}}, "made for embed: vLLM starts it and has no path for classify"),
        ({"servers": {"rerank": {"task": "embed"}}}, "made for rerank: vLLM starts it and has no path for embed"),
        ({"servers": {"embed": {"extra_args": {"runner": "generate"}}}}, "the key task decides it"),
        ({"servers": {"embed": {"extra_args": {"convert": "embed"}}}}, "the key task decides it"),
        ({"servers": {"embed": {"objectives": {"time_to_first_token_seconds": 1}}}}, "an answer of task embed has no tokens"),
        ({"load_test": {"servers": ["rerank"]}}, "no requests for the task of this server, rerank"),
        ({"servers": {"embed": {"task": "translate"}}}, "task"),
        ({"servers": {"hear": {"task": "chat"}}}, "openai/whisper-large-v3 writes what it hears: it does not chat"),
        ({"servers": {"hear": {"task": "embed"}}}, "made for transcribe: vLLM starts it and has no path for embed"),
        (
            {"servers": {"qwen3": {"task": "transcribe"}, "hear": None}},
            "made for chat: vLLM starts it and has no path for transcribe",
        ),
        ({"servers": {"hear": {"extra_args": {"max-num-batched-tokens": 1024}}}}, "at least what a model hears at once"),
        ({"servers": {"hear": {"max_num_seqs": 3}}}, "a step is too short for the 1500 tokens"),
        ({"servers": {"hear": {"max_num_seqs": 3}}}, "raise max_num_seqs, or give max-num-batched-tokens 1500"),
        (
            {"servers": {"hear": {"quantized_kv": "fp8"}}, "pools": {"gpu": {"instance_types": ["g5.xlarge"]}}},
            "what is heard needs",
        ),
        ({"servers": {"hear": {"prefix_caching": True}}}, "first request of a model that hears ends an engine"),
        ({"servers": {"hear": {"prefix_caching": True}}}, "leave prefix caching out"),
        ({"servers": {"hear": {"extra_args": {"pipeline-parallel-size": 2}}}}, "models that hear nothing"),
        (
            {"servers": {"more": {**COMMON, "model": {"id": f"{HEAR}-turbo"}, "max_model_len": 448}}},
            "path alone leads to what hears",
        ),
        (
            {
                "endpoints": {"api": {"requests_per_minute_by_model": {"other": 9}}},
                "servers": {"hear": {"extra_args": {"served-model-name": [HEAR, "other"]}}},
            },
            "requests name no such model",
        ),
        ({"endpoints": {"api": {"models": {EMBED: {"embed": 50, "rerank": 50}}}}}, "its servers have several tasks"),
    ],
)
def test_what_makes_no_sense_for_a_task_is_refused(changes: dict[str, Any], words: str) -> None:
    found = faults(three(changes))
    assert any(words in one for one in found), found


def test_a_load_test_of_nothing_that_it_has_requests_for_is_refused() -> None:
    section = three()
    section["servers"] |= {"qwen3": None, "embed": None}
    assert any("load_test: no model server does what it asks for: tasks are rerank" in fault for fault in faults(section))


def test_a_model_that_chats_may_be_asked_for_embeddings() -> None:
    assert not faults({"servers": {"qwen3": {"task": "embed"}}, "load_test": None})


@pytest.mark.parametrize(
    ("model", "at_start"),
    # As the engine counts them: what is written, and a step of what is heard (max_memory_usage_bytes of both specs).
    [("Whisper-Large-v3", 2 * 32 * 20 * 64 * 2 * (448 + 2048)), ("Whisper-Large-v3-Turbo", 2 * 4 * 20 * 64 * 2 * (448 + 2048))],
)
def test_what_is_heard_takes_a_kv_cache_of_its_own(model: str, at_start: int) -> None:
    instance, engine = instance_type("g6.xlarge"), engines()["cuda-vllm-0.30"]
    use = MemoryUse(models()[model], instance, engine, 1, 1, 448)
    assert use.kv == at_start
    assert use.kv_one == at_start * (448 + 1504) // (448 + 2048)
    assert use.of(3, 448).kv == 3 * use.kv_one


@pytest.mark.parametrize(("server", "task"), [("embed", "rerank"), ("rerank", "classify")])
def test_a_pooled_model_does_what_else_the_engine_has_paths_for(server: str, task: str) -> None:
    assert not faults(three({"servers": {server: {"task": task}}}))


def test_who_makes_a_scorer_of_a_decoder_says_its_class() -> None:
    overrides = {"hf-overrides": {"architectures": ["Qwen3ForSequenceClassification"]}}
    asked = {"qwen3": {"task": "classify", "extra_args": overrides}}
    assert not [fault for fault in faults({"servers": asked, "load_test": None}) if "SRV020" in fault]
    asked["qwen3"].pop("extra_args")
    assert any("SRV020" in fault for fault in faults({"servers": asked, "load_test": None}))


def test_no_document_says_that_neuron_makes_embeddings() -> None:
    spec = json.loads(PROJECT.config(PROJECT.stack_file("smoke-trn2")).values["eks-inference:stack"])
    server = next(iter(spec["servers"].values()))
    server["task"] = "embed"
    spec.pop("load_test")
    found = [str(fault) for fault in check_spec(parse_stack(json.dumps(spec)), "sa-east-1").faults]
    assert any("SRV020" in one and "is for embed" in one for one in found)


# -- the client that asks --------------------------------------------------------------------------------------------------------

ANSWERS: dict[str, tuple[str, Any]] = {
    "complete": ("/v1/completions", {"choices": [{"text": "Lisbon"}], "usage": {"completion_tokens": 1}}),
    "embed": ("/v1/embeddings", {"data": [{"embedding": [0.1]}, {"embedding": [0.2, 0.3]}]}),
    "rerank": ("/v1/rerank", {"results": [{"relevance_score": 0.9}, {"relevance_score": 0.1}]}),
    "classify": ("/classify", {"data": [{"label": "a"}, {"label": "b"}]}),
    "transcribe": ("/v1/audio/transcriptions", {"text": "", "usage": {"type": "duration", "seconds": 1}}),
}


class Answering(Served):
    """A server that answers one path."""

    def __init__(self, path: str, answer: Any) -> None:
        self.path, self.answer = path, answer
        self.asked: list[Any] = []
        self.servers = [Server(self, _Handler)]


class _Handler(Handler):
    def do_GET(self) -> None:
        self.send(200, json.dumps({"data": [{"id": "m"}]}).encode())

    def do_POST(self) -> None:
        asked = self.received()
        self.owner.asked.append(asked.body)
        self.send(*((200, json.dumps(self.owner.answer).encode()) if asked.path == self.owner.path else (404, b"{}")))


@pytest.mark.parametrize("task", TASKS)
def test_a_server_is_asked_for_what_it_does(task: str, capsys: pytest.CaptureFixture[str]) -> None:
    path, answer = ANSWERS[task]
    with Answering(path, answer) as server:
        assert main(["--url", f"http://{server.servers[0].address}/v1", "--task", task]) == 0
        assert server.asked[0]["model"] in ("m", b"m")
        assert f"{task}: " in capsys.readouterr().out
        assert main(["--url", f"http://{server.servers[0].address}/v1", "--task", task, "--format", "json"]) == 0
        said = json.loads(capsys.readouterr().out)
        assert (said["schema"], said["model"], [one["seconds"] > 0 for one in said["answers"]]) == (1, "m", [True])
        for wrong in ({}, {"data": []}, {"results": {}}, {"choices": [{"text": ""}], "data": 3}, {"error": {"message": "no"}}):
            server.answer = wrong
            assert main(["--url", f"http://{server.servers[0].address}/v1", "--task", task]) == 1
            assert "answer" in capsys.readouterr().err


def test_what_hears_is_sent_a_second_of_a_tone() -> None:
    with Answering(*ANSWERS["transcribe"]) as server:
        assert main(["--url", f"http://{server.servers[0].address}/v1", "--task", "transcribe"]) == 0
        with wave.open(io.BytesIO(server.asked[0]["file"])) as sound:
            assert (sound.getnchannels(), sound.getframerate(), sound.getnframes()) == (1, 16_000, 16_000)


def test_every_task_but_chat_has_an_example_at_its_path() -> None:
    assert {task: path for task, (path, _, _) in TASKS.items()} == {
        task: path.removeprefix("/v1") for task, (path, _) in ANSWERS.items()
    }
    assert {*TASKS} == {*PATHS} - {"chat"}
