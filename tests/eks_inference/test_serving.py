"""Model servers: KubeRay, and vLLM on Ray Serve."""

import ast
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pulumi
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from eks_inference import serving
from eks_inference.catalog.engines import engine
from eks_inference.catalog.instances import instance_type
from eks_inference.faults import SpecError
from eks_inference.kubernetes.secrets import SecretRef
from eks_inference.place.nodes import allocatable
from eks_inference.serving import ray_serve
from eks_inference.serving.kuberay.component import KubeRayOperator
from eks_inference.serving.kuberay.spec import KubeRayOperatorSpec
from eks_inference.serving.pod_parts import Hardware, cold_start_seconds
from eks_inference.serving.ray_serve import plan
from golden import Readable, assert_golden
from handles import existing_cluster
from ports import free_ports
from servers import (
    HEAD,
    LARGE,
    SMALL,
    container,
    declared_cores,
    environment_of,
    head_pod,
    ray_service,
    serve_application,
    served,
    spec_of,
    worker_group,
    worker_pod,
    workers_on,
)
from stackgraph.graph.document import Graph
from stackgraph.problems import ProgramError
from stackgraph.recorder.recording import record
from waiting import PATIENCE_S, until_ended

ASSETS = Path(ray_serve.__file__).parent / "assets"
SHARED = Path(serving.__file__).parent / "assets"
sys.path[:0] = [str(ASSETS), str(SHARED)]
# A file that runs in the server's pod, not a module of the library.
import vllm_engine  # noqa: E402  # pyright: ignore[reportMissingImports]

# -- KubeRay --------------------------------------------------------------------------------------------------------------------


def operator(values: dict | None = None, mirrors: dict | None = None) -> Graph:
    def build() -> None:
        cluster = existing_cluster(mirrors=mirrors or {})
        KubeRayOperator("kuberay", KubeRayOperatorSpec(values=values or {}), cluster=cluster, placement=HEAD)

    return record(build)


def test_the_operators_chart_and_image_come_from_the_mirrors() -> None:
    mirrors = {"quay.io": "registry.example/quay", "https://ray-project.github.io": "registry.example/charts"}
    release = operator(mirrors=mirrors).named("kuberay-release").inputs
    assert release["values"]["image"]["repository"] == "registry.example/quay/kuberay/operator"
    assert release["chart"] == "oci://registry.example/charts/kuberay-helm/kuberay-operator"
    assert "repositoryOpts" not in release


def test_values_are_merged_last() -> None:
    values = {"resources": {"limits": {"cpu": "2"}}, "watchNamespace": ["vllm"]}
    merged = operator(values).named("kuberay-release").inputs["values"]
    assert merged["resources"]["limits"] == {"cpu": "2", "memory": "512Mi"}
    assert merged["watchNamespace"] == ["vllm"]


# -- both forms of the source system --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("form", "base"), [("inf2.8xlarge", SMALL), ("inf2.48xlarge", LARGE)])
def test_manifest_of_both_forms(form: str, base: dict) -> None:
    graph = served(base, token=lambda: SecretRef("hugging-face", "token"))
    manifest = {key: value for key, value in ray_service(graph).items() if key in ("apiVersion", "kind", "metadata", "spec")}
    assert_golden(f"serving/rayservice-{form}.yaml", yaml.dump(manifest, Dumper=Readable, sort_keys=False, width=1_000_000))


@pytest.mark.parametrize("base", [SMALL, LARGE])
def test_whole_nodes_do_without_the_neuron_scheduler(base: dict) -> None:
    graph = served(base, scheduler=True)
    assert "schedulerName" not in worker_pod(graph)
    assert "schedulerName" not in head_pod(graph)


def test_part_of_a_node_goes_through_the_neuron_scheduler_but_never_the_head() -> None:
    graph = served(LARGE, worker={"devices": 4, "cpu": None, "memory": None}, scheduler=True)
    assert worker_pod(graph)["schedulerName"] == "my-scheduler"
    assert "schedulerName" not in head_pod(graph)
    assert declared_cores(graph) == 8


def test_part_of_a_node_without_a_scheduler_is_refused() -> None:
    with pytest.raises(ProgramError, match=r"worker\.devices: NEU009: needs the Neuron scheduler; given: 4 of the 12 devices"):
        served(LARGE, worker={"devices": 4})


def test_measurements_are_of_the_workers_devices() -> None:
    worker = spec_of(LARGE, worker={"devices": 6, "min": 2, "initial": 2, "max": 2}).worker
    assert plan.hardware(worker) == Hardware("inf2.48xlarge", devices_per_pod=6, pods_min=2, pods_max=2)
    assert plan.hardware(worker).devices == 12
    assert plan.hardware(spec_of(SMALL).worker).devices is None, "Ray starts up to three workers"


def test_a_placement_of_another_instance_type_is_refused() -> None:
    with pytest.raises(ProgramError, match=r"placed elsewhere; given: inf2\.8xlarge; allowed: inf2\.48xlarge"):
        served(on=workers_on("inf2.48xlarge"))


# -- what a default means -------------------------------------------------------------------------------------------------------


@given(st.sampled_from(["inf2.xlarge", "inf2.8xlarge", "inf2.24xlarge", "inf2.48xlarge", "trn1.32xlarge"]), st.integers(1, 16))
def test_default_sizes_of_all_workers_of_a_node_fit_it(name: str, devices: int) -> None:
    shape = instance_type(name)
    if devices > shape.devices:
        return
    spec = spec_of(worker={"instance_type": name, "devices": devices, "cpu": None, "memory": None})
    resources = plan.worker_resources(spec.worker)
    workers = shape.devices // devices
    assert workers * int(resources["cpu"]) * 1000 <= allocatable(shape).cpu_millis - 1000
    assert workers * int(resources["memory"].removesuffix("Gi")) * 1024 <= allocatable(shape).memory_mib - 2048
    assert int(resources["cpu"]) >= 1


def test_default_sizes_reach_what_the_source_system_asked_for() -> None:
    resources = plan.worker_resources(spec_of(worker={"cpu": None, "memory": None}).worker)
    assert int(resources["cpu"]) == 30
    assert int(resources["memory"].removesuffix("Gi")) * 1024**3 >= 110 * 1000**3


@given(st.integers(1, 256))
def test_a_replica_fills_its_batch_before_serve_asks_for_a_node(sequences: int) -> None:
    spec = spec_of(max_num_seqs=sequences)
    assert 1 <= plan.target_ongoing_requests(spec) <= sequences
    (deployment,) = plan.serve_config(spec, workers_on("inf2.8xlarge"))["applications"][0]["deployments"]
    assert deployment["max_ongoing_requests"] == sequences


def test_the_source_systems_target_can_be_set() -> None:
    spec = spec_of(replicas={"target_ongoing_requests": 1, "cpus": 2})
    (deployment,) = plan.serve_config(spec, workers_on("inf2.8xlarge"))["applications"][0]["deployments"]
    assert deployment["autoscaling_config"] == {"min_replicas": 1, "max_replicas": 3, "target_ongoing_requests": 1}
    assert deployment["ray_actor_options"]["num_cpus"] == 2


@given(st.integers(1, 24), st.integers(1, 180))
def test_replicas_of_a_worker_share_its_cpus(tensor_parallel: int, cpu: int) -> None:
    spec = spec_of(LARGE, tensor_parallel=tensor_parallel, worker={"cpu": str(cpu)})
    replicas = plan.replicas_per_worker(spec)
    assert replicas * plan.replica_cpus(spec) <= max(cpu, replicas)


def test_the_startup_budget_is_the_profiles_unless_given() -> None:
    profile = engine("neuron-2.28-vllm-0.13")
    assert environment_of(spec_of())["STARTUP_TIMEOUT_S"] == str(profile.startup.engine_s)
    assert environment_of(spec_of(startup_timeout_seconds=1200))["STARTUP_TIMEOUT_S"] == "1200"


def test_timeouts_cover_a_cold_start() -> None:
    graph = served()
    startup = engine("neuron-2.28-vllm-0.13").startup
    timeouts = graph.named("vllm-llama3-inf2-rayservice").options["customTimeouts"]
    assert seconds(timeouts["create"]) == cold_start_seconds(startup, startup.engine_s)
    head = graph.named("vllm-llama3-inf2-head-service").options["customTimeouts"]
    assert seconds(head["create"]) > startup.node_start_s + startup.image_pull_s


def seconds(duration: str) -> int:
    return int(duration[:-1]) * {"s": 1, "m": 60}[duration[-1]]


def test_extra_arguments_come_last_and_extra_environment_wins() -> None:
    spec = spec_of(
        extra_args={
            "dtype": "bfloat16",
            "num-gpu-blocks-override": 16,
            "enable-prefix-caching": False,
            "trust-remote-code": True,
        },
        extra_env={"NEURON_CC_FLAGS": "-O1", "STARTUP_TIMEOUT_S": "60"},
    )
    environment = environment_of(spec)
    assert json.loads(environment["ENGINE_ARGS"]) == [
        "--dtype=bfloat16",
        "--num-gpu-blocks-override=16",
        "--no-enable-prefix-caching",
        "--trust-remote-code",
    ]
    assert environment["NEURON_CC_FLAGS"] == "-O1"
    assert environment["STARTUP_TIMEOUT_S"] == "60"


def test_upgrades_never_double_the_accelerators_unless_asked() -> None:
    assert ray_service(served())["spec"]["upgradeStrategy"] == {"type": "None"}
    assert ray_service(served(upgrade="new_cluster"))["spec"]["upgradeStrategy"] == {"type": "NewCluster"}


# -- what is wrong in a spec ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "complaint"),
    [
        ({"image": "registry.example/vllm"}, "give a tag other than latest, or a digest"),
        ({"image": "registry.example:5000/vllm"}, "give a tag other than latest, or a digest"),
        ({"image": "registry.example/vllm:latest"}, "may change under a running server"),
        ({"image": "docker.io/vllm/vllm-openai:nightly"}, "may change under a running server"),
        ({"image": "registry.example/vllm@sha256:abc"}, "has no sha256 digest"),
        ({"head": {"image": "registry.example/vllm:latest"}}, "may change under a running server"),
        ({"worker": {"instance_type": "g5.xlarge"}}, r"g5\.xlarge has no Neuron devices"),
        ({"worker": {"min": 2}}, "min 2 <= initial 1 <= max 3 does not hold"),
        ({"replicas": {"min": 4}}, "min 4 is more than max 3"),
        ({"engine": "neuron-2.29"}, r"nearest: neuron-2\.26-vllm-0\.9"),
        ({"engine": "neuron-2.26-vllm-0.9"}, "ray_version: no Ray release is known to go with engine"),
        ({"model": {"id": "Meta Llama"}}, "is not a repository of the Hugging Face Hub"),
        ({"model": {"id": "meta-llama/Llama-"}}, "single . and -, and without .git at the end"),
        ({"model": {"id": "meta-llama./Llama"}}, "is not a repository of the Hugging Face Hub"),
        ({"extra_args": {"--dtype": "float16"}}, "has a wrong form"),
        ({"block_size": 4096}, "unknown key"),
    ],
)
def test_a_wrong_spec_says_why(keys: dict, complaint: str) -> None:
    with pytest.raises(SpecError, match=complaint):
        spec_of(**keys)


@pytest.mark.parametrize(
    ("keys", "complaint"),
    [
        ({"tensor_parallel": 4}, r"tensor_parallel: NEU003: tensor_parallel 4 is more than the 2 NeuronCores of a pod"),
        ({"worker": {"devices": 2}}, r"worker\.devices: NEU002: 2 Neuron devices on inf2\.8xlarge, which has 1; given: 2"),
        ({"worker": {"instance_type": "trn2.48xlarge"}}, r"engine: NEU012: engine neuron-2\.28-vllm-0\.13 is not for trn2"),
        (
            {"max_num_seqs": 80},
            r"max_num_seqs: NEU008: Llama-3-8B needs 27\.57 GiB a core, but only 16 are available; .*up to 27 at",
        ),
        ({"startup_timeout_seconds": 120}, r"startup_timeout_seconds: SRV001: 120 s is less than a start takes"),
    ],
)
def test_what_cannot_run_is_refused_before_anything_is_made(keys: dict, complaint: str) -> None:
    with pytest.raises(ProgramError, match=complaint):
        served(**keys)


def test_a_worker_too_small_for_a_replica_holds_none_of_them() -> None:
    spec = spec_of(tensor_parallel=8)
    assert plan.replicas_per_worker(spec) == 0
    assert plan.replica_cpus(spec) == 30


@pytest.mark.parametrize("name", ["a" * 48, "Vllm", "1-vllm", "vllm_llama", "vllm-"])
def test_names_that_kuberay_refuses_are_refused_before_anything_is_made(name: str) -> None:
    with pytest.raises(ProgramError, match="Kubernetes refuses this name"):
        served(name=name)


def test_all_faults_of_a_server_come_at_once() -> None:
    with pytest.raises(ProgramError) as caught:
        served(LARGE, name="A", on=workers_on("inf2.8xlarge"))
    cause = caught.value.__cause__
    assert isinstance(cause, SpecError)
    assert len(cause.faults) == 2


# -- around the RayService ------------------------------------------------------------------------------------------------------


def test_a_token_given_as_a_value_becomes_a_secret_and_shows_nowhere() -> None:
    graph = served(token=lambda: pulumi.Output.from_input("hf_very_secret"))
    secret = graph.named("vllm-llama3-inf2-token")
    assert "hf_very_secret" not in graph.to_json()
    (entry,) = [entry for entry in container(worker_pod(graph))["env"] if entry["name"] == "HF_TOKEN"]
    assert entry["valueFrom"]["secretKeyRef"]["name"] == secret.inputs["metadata"]["name"]
    assert secret.urn in graph.named("vllm-llama3-inf2-rayservice").dependencies


def test_the_engines_in_the_workers_want_the_key() -> None:
    """In the container's environment, which replicas and their engines inherit; not in Serve's, which the dashboard shows."""
    graph = served(api_key=lambda: "geheim")
    secret = graph.named("vllm-llama3-inf2-api-key")
    (entry,) = [entry for entry in container(worker_pod(graph))["env"] if entry["name"] == "VLLM_API_KEY"]
    assert entry["valueFrom"]["secretKeyRef"] == {"name": secret.inputs["metadata"]["name"], "key": "key"}
    assert secret.urn in graph.named("vllm-llama3-inf2-rayservice").dependencies
    assert "VLLM_API_KEY" not in serve_application(graph)["runtime_env"]["env_vars"]
    assert "env" not in container(head_pod(graph))
    assert "geheim" not in graph.to_json()


def test_a_changed_script_changes_the_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    before = worker_group(served())["template"]["metadata"]["annotations"]
    monkeypatch.setattr(plan, "scripts", lambda: {"vllm_serve.py": "pass"})
    assert worker_group(served())["template"]["metadata"]["annotations"] != before


@pytest.mark.parametrize("script", plan.SCRIPT_FILES)
def test_what_a_script_imports_of_ours_is_mounted_too(script: str) -> None:
    tree = ast.parse(plan.scripts()[script])
    modules = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    ours = {f"{module}.py" for module in modules if any((folder / f"{module}.py").exists() for folder in (ASSETS, SHARED))}
    assert ours <= set(plan.SCRIPT_FILES)


# -- the image ------------------------------------------------------------------------------------------------------------------


# -- the engine's process -------------------------------------------------------------------------------------------------------


needs_setpriv = pytest.mark.skipif(not shutil.which("setpriv"), reason="setpriv (util-linux) is not installed")

LOADS_BY_ITSELF = {"MODEL_DOWNLOAD": "", "MODEL_FOLDER": ""}
PATIENT = str(PATIENCE_S)


def settings_of(**keys: str) -> vllm_engine.Settings:
    """Settings of an engine that downloads the model itself, with changes."""
    return vllm_engine.Settings.from_environment(environment_of(spec_of(extra_env=LOADS_BY_ITSELF | keys)))


def test_the_script_reads_what_the_plan_writes() -> None:
    settings = vllm_engine.Settings.from_environment(environment_of(spec_of(model={"revision": "abc123"})))
    line = vllm_engine.command_line(settings, 1234)
    assert line[line.index("vllm") :] == [
        *("vllm", "serve", "/tmp/models/NousResearch/Meta-Llama-3-8B-Instruct/abc123"),
        *("--served-model-name", "NousResearch/Meta-Llama-3-8B-Instruct"),
        *("--host", "127.0.0.1", "--port", "1234", "--tensor-parallel-size", "2"),
        *("--max-model-len", "4096", "--max-num-seqs", "10", "--no-enable-prefix-caching", "--num-gpu-blocks-override=10"),
    ]


def test_an_engine_that_downloads_the_model_itself_gets_its_revision() -> None:
    settings = settings_of(MODEL_REVISION="abc123")
    line = vllm_engine.command_line(settings, 1234)
    assert line[line.index("vllm") + 2 :][:3] == ["NousResearch/Meta-Llama-3-8B-Instruct", "--revision", "abc123"]


def test_a_replica_downloads_its_model_first(tmp_path: Path) -> None:
    script, folder = tmp_path / "download.py", tmp_path / "main"
    script.write_text("import pathlib, sys; pathlib.Path(sys.argv[3]).write_text(' '.join(sys.argv[1:]))")
    vllm_engine.download(settings_of(MODEL_DOWNLOAD=str(script), MODEL_FOLDER=str(folder), STARTUP_TIMEOUT_S=PATIENT))
    assert folder.read_text() == f"NousResearch/Meta-Llama-3-8B-Instruct main {folder}"


@needs_setpriv
def test_an_engine_whose_model_cannot_be_downloaded_does_not_start(fake_vllm: None, tmp_path: Path) -> None:
    (tmp_path / "download.py").write_text("import sys; sys.exit(1)")
    settings = settings_of(MODEL_DOWNLOAD=str(tmp_path / "download.py"), MODEL_FOLDER=str(tmp_path / "m"))
    with pytest.raises(subprocess.CalledProcessError):
        vllm_engine.Engine(settings).start()


def test_a_missing_setting_is_named() -> None:
    with pytest.raises(KeyError, match="MODEL_ID"):
        vllm_engine.Settings.from_environment({})


FAKE_VLLM = """\
    #!{python}
    # Stands in for the command vllm: an OpenAI server as far as the proxy is concerned.
    import json, os, sys, time
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args):
            pass

        def answer(self, status, document):
            body = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self):
            artifacts = os.environ.get("NEURON_COMPILED_ARTIFACTS", "")
            compiler = os.environ["BASE_COMPILE_WORK_DIR"]
            self.answer(200, {{"path": self.path, "folder": os.getcwd(), "artifacts": artifacts, "compiler": compiler}})

        def do_POST(self):
            asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
            if asked.get("wrong"):
                return self.answer(400, {{"error": "wrong"}})
            if not asked.get("stream"):
                return self.answer(200, {{"path": self.path, "asked": asked, "key": self.headers.get("authorization")}})
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            for number in range(3):
                line = f"data: {{number}}\\n\\n".encode()
                self.wfile.write(b"%x\\r\\n%s\\r\\n" % (len(line), line))
                self.wfile.flush()
                time.sleep(0.2)
            self.wfile.write(b"0\\r\\n\\r\\n")

    mode = os.environ.get("FAKE_VLLM", "")
    if mode == "dies":
        sys.exit(3)
    if mode == "hangs":
        time.sleep(600)
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Handler).serve_forever()
"""


@pytest.fixture
def fake_vllm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "vllm"
    script.write_text(textwrap.dedent(FAKE_VLLM.format(python=sys.executable)))
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    # Nobody else gets these.
    monkeypatch.setattr(vllm_engine, "free_port", lambda: free_ports(1)[0])


@pytest.fixture
def running_engine(fake_vllm: None) -> Any:
    running = vllm_engine.Engine(settings_of(STARTUP_TIMEOUT_S=PATIENT))
    running.start()
    yield running
    running.stop()


@needs_setpriv
def test_the_engine_runs_in_a_folder_of_its_own_and_leaves_nothing_behind(running_engine: vllm_engine.Engine) -> None:
    other = vllm_engine.Engine(settings_of(STARTUP_TIMEOUT_S=PATIENT))
    other.start()
    seen = [fetch(engine.url) for engine in (running_engine, other)]
    folders = {each["folder"] for each in seen}
    assert len(folders) == 2
    assert [each["compiler"] for each in seen] == [f"{each['folder']}/compiler/" for each in seen]
    other.stop()
    other.stop()
    assert sum(Path(folder).exists() for folder in folders) == 1
    with pytest.raises(RuntimeError, match="vLLM has ended"):
        other.check()
    running_engine.check()


def fetch(url: str) -> dict:
    import urllib.request

    with urllib.request.urlopen(f"{url}/v1/models", timeout=PATIENCE_S) as answer:
        return json.load(answer)


@needs_setpriv
def test_artifacts_of_a_local_model_go_into_the_engines_own_folder(fake_vllm: None) -> None:
    engine = vllm_engine.Engine(settings_of(STARTUP_TIMEOUT_S=PATIENT, MODEL_FOLDER="/models"))
    engine.start()
    try:
        seen = fetch(engine.url)
        assert seen["artifacts"].startswith(seen["folder"] + "/")
        assert not Path(seen["artifacts"]).exists()
    finally:
        engine.stop()


@needs_setpriv
def test_a_model_of_the_hub_keeps_the_engines_own_places(running_engine: vllm_engine.Engine) -> None:
    assert fetch(running_engine.url)["artifacts"] == ""


@needs_setpriv
def test_an_engine_that_dies_while_starting_fails_at_once(fake_vllm: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_VLLM", "dies")
    started = time.monotonic()
    with pytest.raises(RuntimeError, match="vLLM has ended: 3"):
        vllm_engine.Engine(settings_of(STARTUP_TIMEOUT_S="600")).start()
    assert time.monotonic() - started < 60


@needs_setpriv
def test_an_engine_that_never_answers_is_ended_when_its_budget_is_spent(fake_vllm: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_VLLM", "hangs")
    engine = vllm_engine.Engine(settings_of(STARTUP_TIMEOUT_S="1"))
    with pytest.raises(TimeoutError, match="within 1 s"):
        engine.start()
    with pytest.raises(RuntimeError, match="not started"):
        engine.check()


@needs_setpriv
def test_an_engine_that_dies_later_fails_the_check(running_engine: vllm_engine.Engine) -> None:
    process = running_engine._process
    assert process is not None
    process.kill()
    process.wait(PATIENCE_S)
    with pytest.raises(RuntimeError, match="vLLM has ended: -9"):
        running_engine.check()


@needs_setpriv
def test_the_engine_does_not_outlive_a_replica_that_is_killed(fake_vllm: None, tmp_path: Path) -> None:
    environment = {**os.environ, **environment_of(spec_of(extra_env={"PYTHONPATH": str(ASSETS), **LOADS_BY_ITSELF}))}
    code = (
        "import os, time, vllm_engine as v;"
        f"e = v.Engine(v.Settings.from_environment(os.environ), {free_ports(1)[0]}); e.start();"
        "print(e._process.pid, flush=True); time.sleep(600)"
    )
    replica = subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True)
    assert replica.stdout is not None
    child = int(replica.stdout.readline())
    replica.send_signal(signal.SIGKILL)
    replica.wait(PATIENCE_S)
    until_ended(child)


# -- the proxy ------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def proxy(fake_vllm: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The Serve application in front of a fake vLLM, without Ray: a stub of its decorators stands in."""
    reason = "is in the server's image, not among this library's dependencies"
    pytest.importorskip("httpx", reason=f"httpx {reason}")
    pytest.importorskip("fastapi", reason=f"fastapi {reason}")
    monkeypatch.setitem(sys.modules, "ray", _ray_stub())
    monkeypatch.delitem(sys.modules, "vllm_serve", raising=False)
    monkeypatch.delitem(sys.modules, "drain", raising=False)
    monkeypatch.setenv("DRAIN_MARK", str(tmp_path / "mark"))
    import vllm_serve  # pyright: ignore[reportMissingImports]
    from fastapi.testclient import TestClient  # pyright: ignore[reportMissingImports]

    for name, value in environment_of(
        spec_of(extra_env={"STARTUP_TIMEOUT_S": PATIENT, "PYTHONPATH": "", **LOADS_BY_ITSELF})
    ).items():
        monkeypatch.setenv(name, value)
    replica = vllm_serve.VLLMDeployment()
    # What serve.ingress does: endpoints of the class become those of one replica.
    for route in list(vllm_serve.app.routes):
        if getattr(route, "endpoint", None) is vllm_serve.VLLMDeployment.forward:
            vllm_serve.app.router.routes.remove(route)
            vllm_serve.app.add_api_route(route.path, replica.forward, methods=list(route.methods), response_model=None)
    with TestClient(vllm_serve.app) as client:
        yield client
    replica.__del__()


def _ray_stub() -> Any:
    """Only what the script takes from Ray: two decorators that change nothing, bind, and gauges nobody reads."""
    from types import ModuleType, SimpleNamespace

    def deployment(decorated: type) -> type:
        decorated.bind = classmethod(lambda cls: cls)  # pyright: ignore[reportAttributeAccessIssue]
        return decorated

    stub = ModuleType("ray")
    serve = SimpleNamespace(
        deployment=deployment,
        ingress=lambda app: lambda decorated: decorated,
        metrics=SimpleNamespace(Gauge=lambda *words: SimpleNamespace(set=lambda value, tags: None)),
    )
    setattr(stub, "serve", serve)  # noqa: B010
    return stub


@needs_setpriv
def test_requests_and_answers_pass_unchanged(proxy: Any) -> None:
    assert proxy.get("/v1/models").json()["path"] == "/v1/models"
    answer = proxy.post("/v1/chat/completions", json={"messages": []}, headers={"authorization": "Bearer key"})
    assert answer.json() == {"path": "/v1/chat/completions", "asked": {"messages": []}, "key": "Bearer key"}
    assert proxy.post("/v1/completions", json={"wrong": True}).status_code == 400


@needs_setpriv
def test_a_proxy_for_downloads_does_not_catch_loopback(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    for variable in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(variable, "http://127.0.0.1:9")
    proxy = request.getfixturevalue("proxy")
    assert proxy.get("/v1/models").status_code == 200


@needs_setpriv
def test_streams_pass_as_they_come(proxy: Any) -> None:
    with proxy.stream("POST", "/v1/chat/completions", json={"stream": True}) as answer:
        assert answer.headers["content-type"] == "text/event-stream"
        assert [line for line in answer.iter_lines() if line] == ["data: 0", "data: 1", "data: 2"]


@needs_setpriv
def test_a_pod_that_ends_refuses_new_requests_but_stays_healthy(proxy: Any, tmp_path: Path) -> None:
    assert proxy.get("/v1/models").status_code == 200
    (tmp_path / "mark").touch()
    refusal = proxy.get("/v1/models")
    assert refusal.status_code == 503
    assert refusal.headers["retry-after"] == "1"


@needs_setpriv
def test_nothing_else_of_the_engine_is_reachable(proxy: Any) -> None:
    assert proxy.get("/metrics").status_code == 404
    assert proxy.post("/v1/load_lora_adapter", json={}).status_code == 404
