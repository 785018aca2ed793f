"""Who may reach a server, how much it may take, what keeps it where it is, how its pods end, and what scales it."""

import json
import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from eks_inference import serving
from eks_inference.catalog.engines import engine
from eks_inference.serving import ray_serve
from eks_inference.serving.ray_serve import plan
from graphs import of_kind
from servers import (
    LARGE,
    SMALL,
    container,
    head_pod,
    ray_service,
    serve_application,
    served,
    worker_group,
    worker_pod,
)
from stackgraph.graph.document import Graph
from traffic import Outside, Pod, passes, policies_of

ASSETS = Path(serving.__file__).parent / "assets"

NAME = "vllm-llama3-inf2"
OWN = {"eks-inference/server": NAME}
HEAD_POD = Pod("vllm", {**OWN, "ray.io/node-type": "head"})
WORKER_POD = Pod("vllm", {**OWN, "ray.io/node-type": "worker"})
STRANGER = Pod("default", {"app": "stranger"})
OPERATOR = Pod("kuberay-operator")
PROMETHEUS = Pod("monitoring")
RAY_PORTS = (6379, 8265, 10001)


# -- network --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("port", RAY_PORTS)
def test_rays_own_ports_are_closed_to_other_namespaces(port: int) -> None:
    policies = policies_of(served())
    for pod in (HEAD_POD, WORKER_POD):
        for source in (STRANGER, PROMETHEUS, Outside("10.0.0.9"), Pod("vllm", {"app": "stranger"})):
            assert not passes(policies, source, pod, port)


def test_the_api_is_open_to_the_cluster_and_to_nobody_outside() -> None:
    policies = policies_of(served())
    for pod in (HEAD_POD, WORKER_POD):
        assert passes(policies, STRANGER, pod, 8000)
        assert not passes(policies, Outside("198.51.100.7"), pod, 8000)


def test_the_api_can_be_kept_for_chosen_namespaces() -> None:
    policies = policies_of(served(client_namespaces={"team": "chat"}))
    assert passes(policies, Pod("chat", namespace_labels={"team": "chat"}), WORKER_POD, 8000)
    assert not passes(policies, STRANGER, WORKER_POD, 8000)
    assert passes(policies, OPERATOR, HEAD_POD, 8000), "the operator asks the proxy whether the head can serve"


def test_pods_of_the_ray_cluster_reach_each_other_at_any_port() -> None:
    policies = policies_of(served())
    for port in (*RAY_PORTS, 8000, 23456):
        assert passes(policies, WORKER_POD, HEAD_POD, port)
        assert passes(policies, HEAD_POD, WORKER_POD, port)


def test_the_operator_reaches_the_dashboard_of_the_head_and_no_more() -> None:
    policies = policies_of(served())
    assert passes(policies, OPERATOR, HEAD_POD, 8265)
    assert not passes(policies, OPERATOR, HEAD_POD, 6379)
    assert not passes(policies, OPERATOR, WORKER_POD, 8265)


def test_only_prometheus_reads_metrics() -> None:
    policies = policies_of(served())
    assert passes(policies, PROMETHEUS, WORKER_POD, 8080)
    assert passes(policies, PROMETHEUS, HEAD_POD, 44217)
    assert not passes(policies, STRANGER, WORKER_POD, 8080)
    assert not passes(policies_of(served(metrics_namespaces=[])), PROMETHEUS, WORKER_POD, 8080)
    assert passes(policies_of(served(metrics_namespaces=["prometheus"])), Pod("prometheus"), HEAD_POD, 8080)


def test_ways_out_are_names_credentials_and_https() -> None:
    policies = policies_of(served())
    for pod in (HEAD_POD, WORKER_POD):
        assert passes(policies, pod, Pod("kube-system", {"k8s-app": "kube-dns"}), 53, "UDP")
        assert passes(policies, pod, Outside("169.254.170.23"), 80)
        assert passes(policies, pod, Outside("172.20.0.1"), 443), "Ray's autoscaler talks to the API server"
        assert not passes(policies, pod, Outside("169.254.169.254"), 80)
        assert not passes(policies, pod, STRANGER, 8080)


def test_the_way_to_kuberays_services_does_not_depend_on_our_label() -> None:
    """Their selectors do not have it, and the VPC CNI would not open their addresses."""
    for policy in policies_of(served()):
        for rule in policy["spec"].get("egress", ()):
            for peer in rule.get("to", ()):
                assert OWN.keys().isdisjoint(peer.get("podSelector", {}).get("matchLabels", {}))


def test_pods_that_are_not_rays_are_closed_altogether() -> None:
    policies = policies_of(served())
    assert not passes(policies, STRANGER, Pod("vllm"), 80)
    assert not passes(policies, Pod("vllm"), Outside("198.51.100.7"), 443)


# -- devices and drains ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("base", "keys", "devices"),
    [
        (SMALL, {}, "5"),
        (LARGE, {"worker": {"max": 2}}, "36"),
        (LARGE, {"worker": {"max": 2}, "upgrade": "new_cluster"}, "60"),
    ],
)
def test_the_quota_is_what_all_workers_take_and_those_that_still_end(base: dict, keys: dict, devices: str) -> None:
    graph = served(base, **keys)
    (quota,) = of_kind(graph, "ResourceQuota")
    assert quota.inputs["spec"]["hard"] == {"requests.aws.amazon.com/neuron": devices}
    group = worker_group(graph)
    per_worker = int(container(worker_pod(graph))["resources"]["requests"]["aws.amazon.com/neuron"])
    assert int(devices) >= group["maxReplicas"] * per_worker


def budgets(graph: Graph) -> dict[str, Any]:
    found = graph.of_type("kubernetes:policy/v1:PodDisruptionBudget")
    return {r.inputs["spec"]["selector"]["matchLabels"]["ray.io/node-type"]: r.inputs["spec"] for r in found}


@pytest.mark.parametrize(("fewest", "kept"), [(2, 1), (4, 3)])
def test_a_drain_takes_one_worker_at_a_time(fewest: int, kept: int) -> None:
    """In a number, the form that Kubernetes can work out for pods of KubeRay."""
    (budget,) = budgets(served(worker={"min": fewest, "initial": fewest, "max": 4})).values()
    assert budget == {"minAvailable": kept, "selector": budget["selector"]}


@pytest.mark.parametrize("fewest", [0, 1])
def test_nothing_holds_up_the_end_of_the_node_of_the_head_or_of_a_lone_worker(fewest: int) -> None:
    assert budgets(served(worker={"min": fewest, "initial": fewest})) == {}


# -- how a pod ends -------------------------------------------------------------------------------------------------------------


def test_a_worker_has_time_to_drain_and_then_to_stop() -> None:
    graph = served()
    pod = worker_pod(graph)
    command = container(pod)["lifecycle"]["preStop"]["exec"]["command"][-1]
    drained, stopped = command.split("; ")
    script, seconds = drained.split()[1:]
    assert Path(script).parent == Path(plan.SCRIPT_FOLDER)
    assert Path(script).name in plan.SCRIPT_FILES
    assert stopped == "ray stop"
    # vllm_engine.py ends its server within half a minute, Ray its processes within 16 seconds.
    assert pod["terminationGracePeriodSeconds"] >= int(seconds) + 30 + 16
    assert int(seconds) >= serve_application(graph)["deployments"][0]["graceful_shutdown_timeout_s"]


def test_the_head_has_nothing_to_wait_for() -> None:
    pod = head_pod(served())
    assert container(pod)["lifecycle"]["preStop"]["exec"]["command"][-1] == "ray stop"
    assert pod["terminationGracePeriodSeconds"] <= 60


FAKE_VLLM = """\
    # Stands in for the command vllm: its gauges, one request under way for the time given, from the first question on.
    import sys, time
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *args):
            pass

        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            asked.append(time.monotonic())
            under_way = 1.0 if asked[-1] < asked[0] + float(sys.argv[2]) else 0.0
            lines = ["# TYPE vllm:num_requests_running gauge", 'vllm:num_requests_running{engine="0"} %s' % under_way]
            lines += ['vllm:num_requests_waiting{engine="0"} 0.0', 'vllm:generation_tokens_total{engine="0"} 5.0', ""]
            self.wfile.write("\\n".join(lines).encode())

    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Handler)
    print("ready", flush=True)
    server.serve_forever()
"""


@pytest.fixture
def busy(tmp_path: Path) -> Any:
    """Starts fake vLLM servers that are busy for so many seconds; ends them afterwards."""
    script = tmp_path / "vllm"
    script.write_text(textwrap.dedent(FAKE_VLLM))
    running = []
    sys.path[:0] = [str(ASSETS), str(Path(ray_serve.__file__).parent / "assets")]
    import vllm_engine  # pyright: ignore[reportMissingImports]

    def start(seconds: float) -> None:
        line = [sys.executable, str(script), "serve", str(seconds), "--port", str(vllm_engine.free_port())]
        process = subprocess.Popen(line, stdout=subprocess.PIPE, text=True)
        running.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"

    yield start
    for process in running:
        process.kill()
        process.wait(10)


def drained(mark: Path, seconds: float) -> float:
    """Runs the hook; gives how long it took."""
    started = time.monotonic()
    run = [sys.executable, str(ASSETS / "drain.py"), str(seconds)]
    subprocess.run(run, env={**os.environ, "DRAIN_MARK": str(mark)}, check=True, timeout=100)
    assert mark.exists()
    return time.monotonic() - started


@pytest.mark.thorough
def test_a_drain_waits_for_requests_under_way(busy: Any, tmp_path: Path) -> None:
    busy(0)
    busy(4)
    assert 4 <= drained(tmp_path / "mark", 60) < 50


@pytest.mark.thorough
def test_a_drain_does_not_wait_longer_than_it_may(busy: Any, tmp_path: Path) -> None:
    busy(60)
    assert 2 <= drained(tmp_path / "mark", 2) < 50


def test_a_pod_without_a_replica_ends_at_once(tmp_path: Path) -> None:
    assert drained(tmp_path / "mark", 30) < 10


# -- scaling --------------------------------------------------------------------------------------------------------------------


def test_nothing_but_serve_and_ray_scales_these_pods(shipped: Graph) -> None:
    scalers = [r for r in shipped.resources if r.type.rpartition(":")[2] in ("HorizontalPodAutoscaler", "ScaledObject")]
    assert [r.name for r in scalers if r.inputs["spec"]["scaleTargetRef"]["kind"].startswith("Ray")] == []


def test_serve_asks_for_no_more_than_ray_may_start_and_the_pool_can_hold(llama3: Graph) -> None:
    for service in of_kind(llama3, "RayService"):
        (group,) = service.inputs["spec"]["rayClusterConfig"]["workerGroupSpecs"]
        (application,) = yaml.safe_load(service.inputs["spec"]["serveConfigV2"])["applications"]
        (deployment,) = application["deployments"]
        scaling, options = deployment["autoscaling_config"], deployment["ray_actor_options"]
        cores = json.loads(group["rayStartParams"]["resources"].strip("'"))["neuron_cores"]
        replicas_per_worker = cores // options["resources"]["neuron_cores"]
        assert scaling["max_replicas"] <= group["maxReplicas"] * replicas_per_worker
        assert scaling["min_replicas"] <= group["maxReplicas"] * replicas_per_worker
        assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
        (pod,) = group["template"]["spec"]["containers"]
        assert options["num_cpus"] * replicas_per_worker <= int(pod["resources"]["limits"]["cpu"])
        pool = group["template"]["spec"]["nodeSelector"]["eks-inference/pool"]
        (filled,) = [p for p in of_kind(llama3, "NodePool") if p.inputs["metadata"]["name"] == pool]
        limit = int(filled.inputs["spec"]["limits"]["cpu"])
        assert limit >= group["maxReplicas"] * int(pod["resources"]["requests"]["cpu"])


def test_a_replica_that_finds_no_worker_is_waited_for_as_long_as_a_worker_takes_to_come() -> None:
    graph = served()
    startup = engine("neuron-2.28-vllm-0.13").startup
    timeout = float(serve_application(graph)["runtime_env"]["env_vars"]["STARTUP_TIMEOUT_S"])
    assert timeout >= startup.engine_s
    assert ray_service(graph)["spec"]["rayClusterConfig"]["enableInTreeAutoscaling"] is True
