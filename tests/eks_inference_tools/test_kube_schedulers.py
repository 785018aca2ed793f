"""Second schedulers of a graph: how they are found, and what of their configuration a simulation changes."""

import json
from dataclasses import replace
from typing import Any

import pytest
import yaml

from conftest import recorded
from eks_inference.accelerators.neuron.plan import SCHEDULER_CONFIG_FILE, scheduler_configuration
from eks_inference_tools.reading.pods import PodSpec
from eks_inference_tools.simulate.schedulers.kube_schedulers import (
    SecondScheduler,
    exits,
    forbidden,
    rewritten,
    scheduler_of,
    second_schedulers,
)
from eks_inference_tools.simulate.world.unsimulated import Unsimulated
from stackgraph.graph.document import Graph, Resource

CONFIGURATION = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
URL = "http://k8s-neuron-scheduler.kube-system.svc.cluster.local:12345"


def spec(
    container: dict[str, Any], *, mount: dict[str, Any] | None = None, volume: dict[str, Any] | None = None
) -> dict[str, Any]:
    """A pod with a ConfigMap ``conf`` under /etc/conf."""
    mounts = [{"name": "conf", "mountPath": "/etc/conf", **(mount or {})}]
    return {
        "serviceAccountName": "second",
        "containers": [{"name": "sidecar", "image": "proxy:1"}, {"name": "scheduler", "volumeMounts": mounts, **container}],
        "volumes": [{"name": "conf", **(volume or {"configMap": {"name": "conf"}})}],
    }


def read(pod: Any, **data: Any) -> SecondScheduler | Unsimulated | None:
    """``data`` are the files of ConfigMap ``conf``; ``s_yaml`` is the one that configures."""
    content = {"s.yaml": json.dumps(CONFIGURATION), **{key.replace("_", "."): value for key, value in data.items()}}
    return scheduler_of("Deployment demo/second", PodSpec(pod), lambda name: content if name == "conf" else None)


def scheduler(**configuration: Any) -> SecondScheduler:
    return SecondScheduler((), {**CONFIGURATION, **configuration})


@pytest.mark.parametrize("stack", ["inf2-llama2", "inf2-llama3"])
def test_the_neuron_stacks_bring_one_with_the_library_s_configuration(stack: str):
    assert second_schedulers(recorded(stack)) == (SecondScheduler(arguments=("--v=2",), configuration=scheduler_configuration()),)
    assert SCHEDULER_CONFIG_FILE.endswith(".yaml")


def test_other_stacks_bring_none():
    assert second_schedulers(recorded("gpu-opt350m")) == ()


@pytest.mark.parametrize(
    "container",
    [
        {"command": ["/usr/local/bin/kube-scheduler"], "args": ["--config=/etc/conf/s.yaml", "--v=4"]},
        {"command": ["kube-scheduler", "--v", "4", "--config", "/etc/conf/s.yaml"]},
        {"command": ["/bin/sh", "-c", "exec kube-scheduler --config=/etc/conf/s.yaml -v=4"]},
        {"image": "registry.k8s.io/kube-scheduler:v1.35.4@sha256:00", "args": ["--config=/etc/conf/s.yaml", "--v=4"]},
        {"image": "mirror/kube-scheduler", "args": ["kube-scheduler", "--config=/etc/conf/s.yaml", "--v=4"]},
        {
            "command": ["kube-scheduler"],
            "args": ["--kubeconfig=/etc/k", "--secure-port=1", "--bind-address", "0.0.0.0", "--config=/etc/conf/s.yaml", "--v=4"],
        },
    ],
)
def test_command_lines_of_many_forms_are_read(container: dict[str, Any]):
    assert read(spec(container)) == SecondScheduler(("--v=4",), CONFIGURATION)


@pytest.mark.parametrize(
    ("path", "mount", "volume"),
    [
        ("/etc/conf/s.yaml", {"mountPath": "/etc/conf/"}, None),
        ("/s.yaml", {"mountPath": "/s.yaml", "subPath": "s.yaml"}, None),
        ("/etc/conf/deep/own.yaml", {}, {"configMap": {"name": "conf", "items": [{"key": "s.yaml", "path": "deep/own.yaml"}]}}),
        ("/etc/conf/s.yaml", {}, {"projected": {"sources": [{"secret": {"name": "x"}}, {"configMap": {"name": "conf"}}]}}),
    ],
)
def test_the_file_is_followed_into_its_config_map(path, mount, volume):
    found = read(spec({"command": ["kube-scheduler", f"--config={path}"]}, mount=mount, volume=volume))
    assert isinstance(found, SecondScheduler)
    assert found.configuration == CONFIGURATION


@pytest.mark.parametrize(
    "container",
    [
        {"image": "nginx:1", "args": ["--config=/etc/conf/s.yaml"]},
        {"image": "kube-scheduler:1", "command": ["sleep", "1"]},
        {"command": ["/bin/sh", "-c", "echo kube-scheduler"]},
        {"command": ["/bin/sh", "-c", "a 'b"]},
        {"image": "my-kube-scheduler:1"},
    ],
)
def test_other_programs_are_no_schedulers(container: dict[str, Any]):
    assert read(spec(container)) is None


@pytest.mark.parametrize(
    "pod", [None, "<unknown>", {}, {"containers": "<x.y>"}, {"containers": [None, "[secret]", {"command": 3}]}]
)
def test_anything_may_stand_in_a_template(pod: Any):
    assert read(pod) is None


def test_what_cannot_be_followed_is_told():
    def why(*words: str, **more: Any) -> str:
        found = read(spec({"command": ["kube-scheduler", *words]}, **more.pop("pod", {})), **more)
        assert isinstance(found, Unsimulated)
        assert found.subject == "Deployment demo/second"
        return found.why

    config = "--config=/etc/conf/s.yaml"
    assert why("--v=2") == "kube-scheduler runs without --config"
    assert why("serve", config) == "the argument 'serve' of kube-scheduler is not a flag"
    assert why("--config=/elsewhere/s.yaml") == "--config=/elsewhere/s.yaml is in no ConfigMap that the pod mounts"
    assert why("--config=/etc/conf/t.yaml") == "--config=/etc/conf/t.yaml is in no ConfigMap that the pod mounts"
    assert why("--config=/etc/configuration/s.yaml").endswith("is in no ConfigMap that the pod mounts")
    assert why(config, pod={"volume": {"secret": {"secretName": "x"}}}).endswith("is in no ConfigMap that the pod mounts")
    assert why(config, s_yaml="kind: Other") == "ConfigMap conf, /etc/conf/s.yaml has no KubeSchedulerConfiguration"
    assert why(config, s_yaml="{") == "ConfigMap conf, /etc/conf/s.yaml has no KubeSchedulerConfiguration"
    assert why(config, s_yaml="<db.out>") == "the content of ConfigMap conf, /etc/conf/s.yaml is not known before it is deployed"


def test_a_graph_s_config_maps_are_taken_from_the_pod_s_own_namespace():
    def resource(kind: str, name: str, namespace: str, **inputs: Any) -> Resource:
        inputs = {"metadata": {"name": name, "namespace": namespace}, **inputs}
        type_ = f"kubernetes:{'apps/v1' if kind == 'Deployment' else 'core/v1'}:{kind}"
        return Resource(urn=f"{namespace}-{kind}", type=type_, name=name, custom=True, inputs=inputs)

    template = {"template": {"spec": spec({"command": ["kube-scheduler", "--config=/etc/conf/s.yaml"]})}}
    mine = {"s.yaml": json.dumps(CONFIGURATION | {"profiles": [{"schedulerName": "mine"}, {"schedulerName": "too"}]})}
    graph = Graph(
        "p",
        "s",
        (
            resource("ConfigMap", "conf", "a", data={"s.yaml": "other: 1"}),
            resource("ConfigMap", "conf", "b", data=mine),
            resource("Deployment", "second", "b", spec=template),
        ),
    )
    (found,) = second_schedulers(graph)
    assert isinstance(found, SecondScheduler)
    assert found.names == ("mine", "too")


@pytest.mark.parametrize("name", ["", "default-scheduler", "volcano"])
def test_schedulers_that_pods_name_and_nothing_runs_are_told(name: str):
    inputs = {"metadata": {"name": "a"}, "spec": {"template": {"spec": {"schedulerName": name, "containers": []}}}}
    server = Resource(urn="s", type="kubernetes:apps/v1:Deployment", name="a", custom=True, inputs=inputs)
    why = "nothing in the graph runs it (a chart may bring it): pods that name it wait here"
    told = (Unsimulated("scheduler volcano", why),) if name == "volcano" else ()
    assert second_schedulers(Graph("p", "s", (server, replace(server, urn="t")))) == told


# -- the configuration -----------------------------------------------------------------------------------------------------------


def test_only_addresses_are_changed():
    neuron = scheduler_configuration()
    found = rewritten(scheduler(**neuron), "/tmp/kubeconfig", {URL: "http://127.0.0.1:1"})
    assert found == {
        **neuron,
        "clientConnection": {"kubeconfig": "/tmp/kubeconfig"},
        "extenders": [{**neuron["extenders"][0], "urlPrefix": "http://127.0.0.1:1"}],
    }
    assert neuron == scheduler_configuration()
    assert yaml.safe_load(json.dumps(found)) == found


def test_what_the_stack_says_of_its_connection_stays():
    found = rewritten(scheduler(clientConnection={"qps": 5, "kubeconfig": "/etc/k"}), "/tmp/k", {})
    assert found == {**CONFIGURATION, "clientConnection": {"qps": 5, "kubeconfig": "/tmp/k"}}


def test_extenders_nobody_stands_in_for_are_left_out():
    ours = {"urlPrefix": URL, "filterVerb": "filter", "tlsConfig": {"caFile": "/etc/ca"}}
    found = rewritten(scheduler(extenders=[{"urlPrefix": "http://other"}, ours]), "/tmp/k", {URL: "http://127.0.0.1:1/x"})
    assert found["extenders"] == [{"urlPrefix": "http://127.0.0.1:1/x", "filterVerb": "filter"}]
    assert rewritten(scheduler(extenders=[{"urlPrefix": "http://other"}]), "/tmp/k", {})["extenders"] == []


# -- its words -------------------------------------------------------------------------------------------------------------------


def test_what_was_forbidden_is_found_in_a_log():
    user = "system:serviceaccount:kube-system:my-scheduler"
    quoted = f'nodes is forbidden: User "{user}" cannot list resource "nodes" in API group "" at the cluster scope'
    plain = f'leases.coordination.k8s.io "my-scheduler" is forbidden: User "{user}" cannot get resource "leases"'
    # As kube-scheduler 1.35 writes it, twice, and as older ones do.
    escaped = quoted.replace('"', '\\"')
    line = f'E1122 01:05:27.9 1 reflector.go:204] "Failed to watch" err="failed to list *v1.Node: {escaped}"'
    log = f"""I1122 01:05:27.9 1 leaderelection.go:272] "Successfully acquired lease" lock="kube-system/my-scheduler"
{line} logger="UnhandledError" reflector="x" type="*v1.Node"
{line}
E1122 01:05:28.9 1 leaderelection.go:1] error retrieving resource lock kube-system/my-scheduler: {plain}
"""
    assert forbidden(log) == (quoted, plain)
    assert forbidden("") == ()


def test_ends_are_told_but_for_those_that_the_machine_is_to_blame_for():
    log = """E1127 02:16:01.2 1 server.go:319] "Leaderelection lost"
the scheduler ended with exit code 1
E1127 02:16:03.2 1 run.go:72] "command failed" err="listen tcp 127.0.0.1:4711: bind: address already in use"
the scheduler ended with exit code 1
Error: unknown flag: --no-such-flag
the scheduler ended with exit code 1
"""
    assert list(exits(log)) == ["the scheduler ended with exit code 1: Error: unknown flag: --no-such-flag"]
