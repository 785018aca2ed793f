"""Who may reach a server, how much it may take, what keeps it where it is, how its pods end, and what scales it."""

import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

from eks_inference import serving
from ports import free_ports
from servers import (
    served,
)
from stackgraph.graph.document import Graph
from traffic import Pod, passes, policies_of
from waiting import PATIENCE_S

ASSETS = Path(serving.__file__).parent / "assets"

NAME = "vllm-llama3-inf2"
OWN = {"eks-inference/server": NAME}
HEAD_POD = Pod("vllm", {**OWN, "ray.io/node-type": "head"})
WORKER_POD = Pod("vllm", {**OWN, "ray.io/node-type": "worker"})
STRANGER = Pod("default", {"app": "stranger"})
OPERATOR = Pod("kuberay-operator")
PROMETHEUS = Pod("monitoring")
LONG_S = 100


# -- network --------------------------------------------------------------------------------------------------------------------


def test_the_api_can_be_kept_for_chosen_namespaces() -> None:
    policies = policies_of(served(client_namespaces={"team": "chat"}))
    assert passes(policies, Pod("chat", namespace_labels={"team": "chat"}), WORKER_POD, 8000)
    assert not passes(policies, STRANGER, WORKER_POD, 8000)
    assert passes(policies, OPERATOR, HEAD_POD, 8000), "the operator asks the proxy whether the head can serve"


def test_only_prometheus_reads_metrics() -> None:
    policies = policies_of(served())
    assert passes(policies, PROMETHEUS, WORKER_POD, 8080)
    assert passes(policies, PROMETHEUS, HEAD_POD, 44217)
    assert not passes(policies, STRANGER, WORKER_POD, 8080)
    assert not passes(policies_of(served(metrics_namespaces=[])), PROMETHEUS, WORKER_POD, 8080)
    assert passes(policies_of(served(metrics_namespaces=["prometheus"])), Pod("prometheus"), HEAD_POD, 8080)


# -- devices and drains ---------------------------------------------------------------------------------------------------------


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

    def start(seconds: float) -> None:
        line = [sys.executable, str(script), "serve", str(seconds), "--port", str(*free_ports(1))]
        process = subprocess.Popen(line, stdout=subprocess.PIPE, text=True)
        running.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"

    yield start
    for process in running:
        process.kill()
        process.wait(PATIENCE_S)


def drained(mark: Path, seconds: float) -> float:
    """Runs the hook, for no more than ``LONG_S``; gives how long it took."""
    started = time.monotonic()
    run = [sys.executable, str(ASSETS / "drain.py"), str(seconds)]
    subprocess.run(run, env={**os.environ, "DRAIN_MARK": str(mark)}, check=True, timeout=LONG_S)
    assert mark.exists()
    return time.monotonic() - started


@pytest.mark.thorough
def test_a_drain_waits_for_requests_under_way(busy: Any, tmp_path: Path) -> None:
    busy(0)
    busy(4)
    assert drained(tmp_path / "mark", 2 * LONG_S) >= 4


@pytest.mark.thorough
def test_a_drain_does_not_wait_longer_than_it_may(busy: Any, tmp_path: Path) -> None:
    busy(2 * LONG_S)
    assert drained(tmp_path / "mark", 2) >= 2


def test_a_pod_without_a_replica_ends_at_once(tmp_path: Path) -> None:
    drained(tmp_path / "mark", 2 * LONG_S)
