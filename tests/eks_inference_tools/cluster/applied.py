"""What an edit of a stack does on a real control plane: which servers are away, which Jobs run again, what is refused or gone."""

import json
import os
import re
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from tempfile import TemporaryFile
from typing import Any

from cluster.shared_planes import PLANES
from eks_inference.place.placement import KARPENTER_POOL_LABEL, NODE_GROUP_LABEL
from eks_inference_tools.placing.footprint import STANDS_IN_FOR_LABEL
from eks_inference_tools.reading.kinds import NAMESPACES, NODES, PODS, VOLUME_CLAIMS
from eks_inference_tools.reading.live_objects import is_leaving, is_ready, labels_of, name_of, node_of
from eks_inference_tools.simulate.control_plane.api import Api, ApiRefusal
from eks_inference_tools.simulate.control_plane.toolchain import Toolchain
from eks_inference_tools.simulate.rollout import rollout
from eks_inference_tools.simulate.simulation import Simulation, simulation
from eks_inference_tools.simulate.world.objects import cluster_objects
from eks_inference_tools.timeline.timeline import timeline
from stackgraph.graph.document import Graph

POLL, MOST_POLLS = 0.2, 600
_HASH = re.compile(r"-[0-9a-f]{8,}(?=-|$)")


def applied(before: Graph, after: Graph, rolls: Mapping[str, bool], toolchain: Toolchain) -> set[str]:
    """Creates a stack, exchanges the nodes of pools as AWS does, applies an edit and says what happened.

    ``rolls`` says of each pool whether a node's successor stands before it ends.
    """
    with PLANES.reused(), simulation(before, toolchain) as simulated:
        assert simulated.create().is_complete
        assert rollout.settle(simulated.plane, simulated.objects).is_complete
        objects, api = cluster_objects(after), simulated.plane.api
        until(partial(_in_bounds, api), "autoscalers have corrected what is outside of their bounds")
        named = {**timeline(after).servers, **timeline(before).servers}
        servers = defaultdict[str, set[tuple[str, str]]](set)
        for one in (*simulated.objects, *objects):
            if one.urn in named:
                servers[named[one.urn]].add((one.namespace, one.name))
        there, watched = _kept(api), _Watched(simulated, servers)
        for pool, successor_first in rolls.items():
            _roll(simulated, pool, successor_first=successor_first)
        outcome = rollout.update(simulated.plane, simulated.objects, objects, simulated.opaque, observe=simulated.observe)
        settled = rollout.settle(simulated.plane, objects, observe=simulated.observe) if outcome.is_complete else outcome
        until(partial(_in_bounds, api), "autoscalers have corrected what is outside of their bounds")
        found = {*watched.told()}
        found |= {
            f"{_plain(one.title)} again" for one in outcome.steps if one.action == "replace" and one.title.startswith("Job ")
        }
        found |= {f"{_plain(one.title)} refused" for one in outcome.refusals}
        found |= {f"{_plain(one.title)} waits" for one in (*outcome.stalls, *(() if settled is outcome else settled.stalls))}
        found |= {f"{one} gone" for one in there - _kept(api)}
        simulated.objects = objects
        simulated.delete()  # what it leaves keeps the control plane from being used again
        return found


def _in_bounds(api: Api) -> bool:
    for scaler in api.list("horizontalpodautoscalers.autoscaling"):
        spec, place = scaler["spec"], scaler["metadata"]["namespace"]
        target = api.get("deployments.apps", spec["scaleTargetRef"]["name"], place) or {"status": {}}
        if not spec["minReplicas"] <= target["status"].get("readyReplicas", 0) <= spec["maxReplicas"]:
            return False
    return True


def _plain(title: str) -> str:
    """A title without the hashes of contents."""
    return _HASH.sub("", title)


def _kept(api: Api) -> set[str]:
    return {
        f"{kind} {name_of(one)}"
        for kind, resource in (("Namespace", NAMESPACES), ("claim", VOLUME_CLAIMS))
        for one in api.list(resource)
    }


class _Watched:
    """The pods of servers, by every change that the API server reports, in the order of etcd."""

    def __init__(self, simulated: Simulation, servers: Mapping[str, set[tuple[str, str]]]) -> None:
        self._servers = servers
        self._ready: dict[str, dict[str, bool]] = defaultdict(dict)
        for pod in simulated.plane.api.list(PODS):
            self._see("ADDED", pod)
        self._first = {server: self._now(server) for server in servers}
        self._least = {server: len(first) for server, first in self._first.items()}
        self._written = TemporaryFile("w+")  # noqa: SIM115
        command = (str(simulated.plane.toolchain.path("kubectl")), f"--kubeconfig={simulated.plane.kubeconfig}")
        asked = ("get", "pods", "--all-namespaces", "--watch", "--output-watch-events", "--output=json")
        self._kubectl = subprocess.Popen((*command, *asked), stdout=self._written)
        until(lambda: os.fstat(self._written.fileno()).st_size > 0, "kubectl follows the pods")

    def told(self) -> Iterator[str]:
        """What happened to each server until now, at which the watch ends."""
        time.sleep(1)
        self._kubectl.terminate()
        self._kubectl.wait()
        self._written.seek(0)
        for event in _documents(self._written.read()):
            self._see(event["type"], event["object"])
            self._least = {server: min(least, len(self._now(server))) for server, least in self._least.items()}
        for server, first in self._first.items():
            now = self._now(server)
            if first and not self._least[server]:
                yield f"{server} away" if now else f"{server} away for good"
            elif first and len(now) != len(first):
                yield f"{server} {len(now)} pods instead of {len(first)}"
            elif first and now != first:
                yield f"{server} anew"

    def _see(self, kind: str, pod: Mapping[str, Any]) -> None:
        # What fetches images, a client, or what only leads workers.
        if {"DaemonSet", "Job"} & _owners(pod) or labels_of(pod).get("ray.io/node-type") == "head":
            return
        place = pod["metadata"]["namespace"]
        for server, objects in self._servers.items():
            if any(place == namespace and name_of(pod).startswith(f"{name}-") for namespace, name in objects):
                serves = kind != "DELETED" and not is_leaving(pod) and is_ready(pod)
                self._ready[server][pod["metadata"]["uid"]] = serves

    def _now(self, server: str) -> set[str]:
        return {uid for uid, ready in self._ready[server].items() if ready}


def _documents(written: str) -> Iterator[Any]:
    decoder, place = json.JSONDecoder(), 0
    while (place := place + len(written[place:]) - len(written[place:].lstrip())) < len(written):
        try:
            document, place = decoder.raw_decode(written, place)
        except ValueError:  # the last one, if the end of the watch cut it
            return
        yield document


def _roll(simulated: Simulation, pool: str, *, successor_first: bool) -> None:
    """Exchanges the nodes of a pool one after another, with the API server's own evictions.

    EKS user guide, "Understand each phase of node updates"; Karpenter, "Disruption": a node that drifts.
    """
    api = simulated.plane.api
    nodes = [
        one for one in api.list(NODES) if pool in (labels_of(one).get(NODE_GROUP_LABEL), labels_of(one).get(KARPENTER_POOL_LABEL))
    ]
    assert nodes, f"{pool} has no node"
    for node in nodes:
        kept = {key: value for key, value in node["metadata"].items() if key in ("labels", "annotations")}
        name = f"{name_of(node)}-next"
        fresh = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {**kept, "name": name},
            "status": {key: node["status"][key] for key in ("capacity", "allocatable")},
        }
        fresh["metadata"]["labels"] = {**labels_of(node), "kubernetes.io/hostname": name}
        fresh["spec"] = {
            "taints": [one for one in node["spec"].get("taints", ()) if not one["key"].startswith("node.kubernetes.io/")]
        }
        api.patch(node, {"spec": {"unschedulable": True}})
        if successor_first:
            api.create(fresh)
        until(partial(_drained, api, name_of(node)), f"{name_of(node)} is drained")
        api.delete(NODES, name_of(node))
        if not successor_first:
            api.create(fresh)


def _drained(api: Api, node: str) -> bool:
    pods = [one for one in api.list(PODS) if node_of(one) == node and _goes(one)]
    for pod in pods:
        where = {"name": name_of(pod), "namespace": pod["metadata"]["namespace"]}
        with suppress(ApiRefusal):  # a disruption budget that allows none now
            api.create_sub(pod, "eviction", {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": where})
    return not pods


def _goes(pod: Mapping[str, Any]) -> bool:
    """Not those of DaemonSets, and those that stand in for charts, which nothing would make again."""
    return "DaemonSet" not in _owners(pod) and STANDS_IN_FOR_LABEL not in labels_of(pod)


def _owners(pod: Mapping[str, Any]) -> set[str]:
    return {one["kind"] for one in pod["metadata"].get("ownerReferences", ())}


def until(check: Callable[[], bool], what: str) -> None:
    for _ in range(MOST_POLLS):
        if check():
            return
        time.sleep(POLL)
    raise AssertionError(f"not so after {MOST_POLLS * POLL} s: {what}")
