"""The client of a Triton server: what it is told, what it makes of it, and the objects around it."""

import json
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eks_inference.clients import plan
from eks_inference.clients.component import TritonClient
from eks_inference.clients.spec import TritonClientSpec
from eks_inference.faults import SpecError
from eks_inference.serving.triton.component import TritonServer
from eks_inference.serving.triton.spec import TritonServerSpec
from golden import assert_golden
from graphs import stands_on
from handles import existing_cluster, placement
from stackgraph.graph.document import Graph
from stackgraph.problems import ProgramError
from stackgraph.recorder.recording import record

SCRIPT = Path(plan.__file__).parent / "assets" / "triton_client.py"
CORE = placement("m6i.large", pool="core")
GPU = placement("g4dn.xlarge", pool="gpu")
SERVER = {"pool": "gpu", "model": {"id": "facebook/opt-350m"}, "model_name": "opt350m"}
TARGET = plan.TritonTarget(
    "triton-server", "triton-server.triton-server.svc:8001", "opt350m", "facebook/opt-350m", None, "26.08", 1200
)


def client(server: dict[str, Any] | None = None, *, token: str | None = None, mirrors: Any = None, **spec: Any) -> Graph:
    def build() -> None:
        cluster = existing_cluster(mirrors=mirrors or {})
        wanted = TritonServerSpec.model_validate({**SERVER, **(server or {})})
        TritonClient(
            "triton-client",
            TritonClientSpec.model_validate(spec),
            cluster=cluster,
            placement=CORE,
            server=TritonServer("triton-server", wanted, cluster=cluster, placement=GPU),
            hugging_face_token=token,
        )

    return record(build)


def told(graph: Graph) -> dict[str, Any]:
    return json.loads(graph.named("triton-client-script").inputs["data"]["config.json"])


# -- what it is told ------------------------------------------------------------------------------------------------------------


def test_commands_of_the_measurement_in_both_spellings() -> None:
    spec = TritonClientSpec()
    commands = [
        " ".join(plan.triton_command(spec, target, users))
        for target in (TARGET, replace(TARGET, release="24.07"))
        for users in spec.users
    ]
    assert_golden("triton/client-commands.txt", "\n".join(commands))


def test_a_pinned_revision_pins_the_tokenizer() -> None:
    assert plan.triton_command(TritonClientSpec(), replace(TARGET, tokenizer_revision="abc"), 8)[-2:] == [
        "--tokenizer-revision",
        "abc",
    ]


def test_prompts_are_twenty_or_the_users_own() -> None:
    assert len(plan.triton_prompts(TritonClientSpec())) == len(set(plan.triton_prompts(TritonClientSpec()))) == 20
    assert plan.triton_prompts(TritonClientSpec(prompts=("One",))) == ["One"]


def test_whatever_decides_the_measurement_runs_it_again() -> None:
    def digest(image: str = "i:1", **spec: Any) -> str:
        return plan.triton_configuration(TritonClientSpec.model_validate(spec), TARGET, image)["digest"]

    assert digest() == digest(cpu="500m")
    assert len({digest(), digest(run=2), digest(users=[8]), digest(prompts=["Hi"]), digest("i:2"), digest(seed=2)}) == 6


def test_the_deadline_covers_every_measurement() -> None:
    spec = TritonClientSpec()
    assert plan.triton_deadline_seconds(spec, TARGET) > TARGET.startup_seconds + len(spec.users) * 3 * 30


@pytest.mark.parametrize(
    ("keys", "complaint"),
    [
        ({"users": [8, 8]}, "users: has an entry twice: 8, 8"),
        ({"users": []}, "1 or more entries"),
        ({"prompts": ["two\nlines"]}, "has a wrong form"),
        ({"concurrency": [8]}, "unknown key"),
    ],
)
def test_a_wrong_spec_says_why(keys: dict, complaint: str) -> None:
    with pytest.raises(SpecError, match=complaint):
        TritonClientSpec.model_validate(keys)


# -- what is made ---------------------------------------------------------------------------------------------------------------


def test_the_client_is_of_the_servers_release() -> None:
    graph = client({"engine": "triton-24.07-vllm-0.5"}, mirrors={"nvcr.io": "registry.example/nvcr"})
    (perf,) = graph.named("triton-client-job").inputs["spec"]["template"]["spec"]["containers"]
    assert perf["image"] == "registry.example/nvcr/nvidia/tritonserver:24.07-py3-sdk"
    assert "--service-kind" in told(graph)["measurements"][0]["command"]


def test_it_asks_the_server_by_the_server_s_own_names() -> None:
    config = told(client({"namespace": "inference", "model_name": "opt"}))
    assert config["url"] == "triton-server.inference.svc.cluster.local:8001"
    assert config["model"] == "opt"
    assert config["measurements"][0]["command"][-1] == "facebook/opt-350m"


def test_jobs_on_demand_are_the_first_one_again() -> None:
    graph = client()
    cron = graph.named("triton-client-again").inputs["spec"]
    assert cron["suspend"] is True
    assert cron["jobTemplate"]["spec"] == graph.named("triton-client-job").inputs["spec"]
    outputs = plan.triton_again_command("triton-client", TritonClientSpec())
    assert outputs == "kubectl -n triton-client create job triton-client-$(date +%s) --from=cronjob/triton-client"


def test_it_stands_on_the_server_and_nobody_waits_for_it() -> None:
    graph = client(token="hf_secret")
    job = graph.named("triton-client-job")
    for below in ("triton-server-deployment", "triton-client-network", "triton-client-script", "triton-client-hugging-face"):
        assert stands_on(graph, job, graph.named(below)), below
    assert job.inputs["metadata"]["annotations"] == {"pulumi.com/skipAwait": "true"}
    assert job.options["deleteBeforeReplace"] is True


def test_all_that_is_missing_is_told_at_once() -> None:
    def build() -> None:
        cluster = existing_cluster()
        model = {"kind": "s3", "uri": "s3://models/opt/v1", "id": "opt"}
        wanted = TritonServerSpec.model_validate({"pool": "gpu", "model": model})
        server = TritonServer("triton-server", wanted, cluster=cluster, placement=GPU)
        TritonClient("Client", TritonClientSpec(), cluster=cluster, placement=CORE, server=server)

    with pytest.raises(ProgramError, match=r"(?s)Kubernetes refuses names.*tokenizer: the server's model is not on the Hub"):
        record(build)


@pytest.mark.parametrize("image", ["", "registry.example/client:v1"])
def test_a_client_of_an_engine_without_one_names_its_image(image: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = TritonServerSpec.model_validate({"pool": "gpu", "model": {"id": "facebook/opt-350m"}}).profile
    monkeypatch.setattr(TritonServerSpec, "profile", replace(plain, client_image=None))
    if image:
        assert image in client(image=image).to_json()
        return
    with pytest.raises(ProgramError, match=rf"image: engine {plain.name} has no client image.*name an image"):
        client()


# -- what the script does -------------------------------------------------------------------------------------------------------

FAKES = {
    # Triton's client: it answers "<prompt> indeed" in two parts, prompts with "silent" by no text, with "broken" by an error.
    "tritonclient/__init__.py": "",
    "tritonclient/grpc.py": """
        import json, os

        class InferInput:
            def __init__(self, name, shape, kind):
                self.name, self.shape, self.kind, self.value = name, shape, kind, None
            def set_data_from_numpy(self, values):
                (self.value,) = values

        class Result:
            def __init__(self, number, text):
                self.id, self.text = number, text
            def as_numpy(self, name):
                assert name == "text_output"
                return [self.text.encode()]
            def get_response(self):
                return self

        class InferenceServerClient:
            def __init__(self, url):
                self.url, self.requests, self.not_ready = url, [], int(os.environ.get("NOT_READY", "0"))
            def is_model_ready(self, model):
                self.not_ready -= 1
                if self.not_ready >= 0:
                    raise OSError("connection refused")
                return model == "opt350m"
            def start_stream(self, callback):
                self.callback = callback
            def async_stream_infer(self, model_name, inputs, request_id):
                self.requests.append((request_id, {one.name: one.value for one in inputs}))
            def stop_stream(self):
                for number, tensors in self.requests:
                    assert tensors["stream"] is True and tensors["exclude_input_in_output"] is True
                    assert json.loads(tensors["sampling_parameters"])["max_tokens"] == 100
                    prompt = tensors["text_input"].decode()
                    if "broken" in prompt:
                        self.callback(None, RuntimeError("out of memory"))
                        continue
                    for part in ("", " ") if "silent" in prompt else (prompt, " indeed"):
                        self.callback(Result(number, part), None)
            def close(self):
                print("closed")
    """,
    "numpy.py": "object_ = object\ndef array(values, dtype): return values\n",
}
GENAI_PERF = """\
#!{python}
import json, pathlib, sys
users = sys.argv[sys.argv.index("--concurrency") + 1]
if users == "64":
    sys.exit(3)
here = pathlib.Path(f"artifacts/opt350m-triton-vllm-concurrency{{users}}")
here.mkdir(parents=True)
(here / "profile_export_genai_perf.csv").write_text(f"Metric,avg\\nTime To First Token (ms),{{users}}\\n")
if users != "128":
    (here / "profile_export_genai_perf.json").write_text(json.dumps({{"time_to_first_token": {{"avg": int(users)}}}}))
"""


def run(tmp_path: Path, role: str, env: dict[str, str] | None = None, **spec: Any) -> subprocess.CompletedProcess[str]:
    for name, text in FAKES.items():
        path = tmp_path / "fakes" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    tool = tmp_path / "bin" / "genai-perf"
    tool.parent.mkdir(exist_ok=True)
    tool.write_text(GENAI_PERF.format(python=sys.executable))
    tool.chmod(0o755)
    config = tmp_path / "config.json"
    target = replace(TARGET, startup_seconds=0 if (env or {}).get("NOT_READY") else 60)
    config.write_text(json.dumps(plan.triton_configuration(TritonClientSpec.model_validate(spec), target, "image:1")))
    return subprocess.run(
        [sys.executable, str(SCRIPT), role, str(config)],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path / "fakes"), "PATH": f"{tool.parent}:/usr/bin:/bin", **(env or {})},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_every_prompt_is_asked_and_shown_with_its_answer(tmp_path: Path) -> None:
    done = run(tmp_path, "test")
    assert done.returncode == 0, done.stderr
    assert "20 of 20 prompts answered; errors: 0" in done.stdout
    for prompt in plan.triton_prompts(TritonClientSpec()):
        assert f"> {prompt}\n{prompt} indeed\n" in done.stdout
    assert "closed" in done.stdout


@pytest.mark.parametrize(
    ("prompts", "says"),
    [(["fine", "silent"], "1 of 2 prompts answered; errors: 0"), (["fine", "broken"], "1 of 2 prompts answered; errors: 1")],
)
def test_silence_and_errors_fail_the_test(tmp_path: Path, prompts: list[str], says: str) -> None:
    done = run(tmp_path, "test", prompts=prompts)
    assert done.returncode == 1
    assert says in done.stdout
    assert ("out of memory" in done.stderr) is ("broken" in prompts)


def test_a_model_that_never_loads_fails_the_test(tmp_path: Path) -> None:
    done = run(tmp_path, "test", {"NOT_READY": "1000000"})
    assert done.returncode == 1
    assert "not yet: connection refused" in done.stdout
    assert "opt350m is not ready within 0 s" in done.stderr


def test_measurements_are_printed_as_tables_and_as_records(tmp_path: Path) -> None:
    done = run(tmp_path, "perf", users=[8, 16])
    assert done.returncode == 0, done.stderr
    records = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert [(one["users"], one["report"]["time_to_first_token"]["avg"]) for one in records] == [(8, 8), (16, 16)]
    assert "Time To First Token (ms),16" in done.stdout
    assert records[0]["command"] == plan.triton_command(TritonClientSpec(), TARGET, 8)


def test_a_measurement_that_fails_does_not_keep_the_next_from_running(tmp_path: Path) -> None:
    done = run(tmp_path, "perf", users=[64, 128])
    assert done.returncode == 1
    records = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert [(one["users"], one["exit"], one["report"]) for one in records] == [(64, 3, None), (128, 0, None)]
    assert "no report with 64 users" in done.stderr


def test_the_script_says_how_it_is_used(tmp_path: Path) -> None:
    done = run(tmp_path, "measure")
    assert done.returncode == 2
    assert "usage: triton_client.py" in done.stderr
