"""Plans the pods of an endpoint's proxy, the files with keys that Envoy reads and watches, and what surrounds them. Pure; no
pulumi.

Both files are parts of a Secret. Envoy takes a changed file without a restart, so keys rotate while streams flow: a client may
have several keys at once.

Sources: Envoy 1.40.0 (the image's user, command line; xDS by path, api_key_auth and secrets), Kubernetes documentation.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from math import ceil
from typing import Any

from eks_inference.aws.naming import shortened
from eks_inference.endpoints.envoy import configuration
from eks_inference.endpoints.picker import picks_at_once
from eks_inference.endpoints.proxy import (
    ADMIN_PORT,
    API_PORT,
    CLIENT_HEADER,
    ENDPOINT_LABEL,
    ENDPOINT_NAME,
    HEALTH_PATH,
    HEALTH_PORT,
    KEYS_FILTER,
    KEYS_TYPE,
    METRICS_PATH,
    SERVER_KEY,
    STATS,
    WORKERS,
    Proxy,
    Upstream,
)
from eks_inference.endpoints.spec import ModelEndpointSpec
from eks_inference.faults import Fault, SpecError
from eks_inference.kubernetes import workloads
from eks_inference.kubernetes.network_policy import DNS, Door, Front, Rule, allow_from, allow_to, namespace, network_policy, pods
from eks_inference.kubernetes.workloads import APP_LABEL, restricted_pod
from eks_inference.place.nodes import amount
from eks_inference.place.placement import HOSTNAME_LABEL, Placement
from eks_inference.serving.paths import KSERVE_SERVICE
from eks_inference.serving.pod_parts import SETTLE_SECONDS, from_clients, from_prometheus, spread_over_zones

KEYS_FILE = "clients.json"
SERVER_KEY_FILE = "server.json"
SHORTEST_KEY = 16
"""Characters of a key; one that is shorter can be guessed."""

_CLIENT = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?(/[a-z0-9-]{1,20})?")
_KEY = re.compile(r"[\x21-\x7e]+")

METRICS_NAME = "health"
"""The port of the pods that also has the metrics."""

PROGRESS_SECONDS = 600
"""For an image pull on a small node, and a load balancer that looks at the pod."""

_CONFIG = "envoy.json"
_CONFIG_FOLDER = "/etc/endpoint"
_KEYS_FOLDER = "/etc/endpoint-keys"
_SCRIPT = "drain.sh"
_USER = 101  # envoy, in the image
_END_SECONDS = 30
_BALANCED_SETTLE_SECONDS = 40
"""How long a pod that goes still gets requests where a load balancer sends them: its controller sees the end of the pod, AWS
takes the target out, and each part of the load balancer learns of it. AWS publishes no bound."""


def clients_file(keys: Mapping[str, str]) -> str:
    """Returns the file with the keys of clients.

    ``keys`` maps each client to its key. A second key of a client has the client's name with a part after a slash
    (``team-a/next``). Raises ``SpecError`` for names and keys that do not fit, and for a key that two clients have; no error
    tells a key.
    """
    if faults := list(key_faults(keys)):
        raise SpecError(faults)
    # Once for each key: Envoy refuses a file that has one twice, and writes the key into its log.
    clients = {key: name.partition("/")[0] for name, key in keys.items()}
    return _discovery(
        {
            "@type": "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig",
            "name": KEYS_FILTER,
            "typed_config": {
                "@type": KEYS_TYPE,
                "key_sources": [{"header": "Authorization"}],
                "credentials": [
                    {"key": key, "client": client} for key, client in sorted(clients.items(), key=lambda item: (item[1], item[0]))
                ],
                # A server never sees the key of a client.
                "forwarding": {"header": CLIENT_HEADER, "hide_credentials": True},
            },
        }
    )


def server_file(key: str) -> str:
    """Returns the file with the key that servers demand."""
    return _discovery(
        {
            "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret",
            "name": SERVER_KEY,
            "generic_secret": {"secret": {"inline_string": f"Bearer {key}"}},
        }
    )


def key_faults(keys: Any) -> Iterator[Fault]:
    """Yields a fault for each client that cannot have this name or key."""
    if not isinstance(keys, Mapping) or not keys:
        example = '{"team-a": "…", "team-a/next": "…"}'
        yield Fault((), "should be keys by client", allowed="a JSON object with one client or more", hint=f"such as {example}")
        return
    owners: dict[str, str] = {}
    for name, key in keys.items():
        client = str(name).partition("/")[0]
        if not isinstance(name, str) or not _CLIENT.fullmatch(name):
            allowed = "lower-case letters, digits and hyphens, at most 40; a further key has a part after a slash"
            yield Fault((), "this is no name of a client", given=str(name), allowed=allowed)
        elif not isinstance(key, str) or not _KEY.fullmatch(key):
            yield Fault((name,), "this is no key", allowed="a text of visible ASCII characters without blanks")
        elif len(key) < SHORTEST_KEY:
            hint = "openssl rand -hex 32 makes one"
            yield Fault((name,), "this key can be guessed", f"{len(key)} characters", f"at least {SHORTEST_KEY}", hint)
        elif owners.setdefault(key, client) != client:
            yield Fault((name,), f"client {owners[key]} has this key, too", hint="give each client keys of its own")


def parsed_keys(text: str) -> Mapping[str, str]:
    """Returns keys by client from a JSON object. Raises ``SpecError``, which tells no key."""
    try:
        found: Any = json.loads(text)
    except ValueError:
        found = None
    if faults := list(key_faults(found)):
        raise SpecError(faults)
    return found


def _discovery(resource: Mapping[str, Any]) -> str:
    """A file as Envoy reads it. Its version changes with its content."""
    content = json.dumps(resource, sort_keys=True)
    version = hashlib.sha256(content.encode()).hexdigest()[:16]
    return json.dumps({"version_info": version, "resources": [resource]}, indent=1) + "\n"


def labels(name: str) -> dict[str, str]:
    """Returns the labels of the pods, which are also their selector."""
    return {APP_LABEL: "endpoint", ENDPOINT_LABEL: name}


def proxy(spec: ModelEndpointSpec, upstreams: Sequence[Upstream], *, server_key: bool) -> Proxy:
    """Returns what one pod of the proxy does. Pods share no counts, so each has an equal part of the limits."""

    def part(limit: int | None) -> int | None:
        return limit and ceil(limit / spec.replicas)

    return Proxy(
        upstreams,
        keys_file=f"{_KEYS_FOLDER}/{KEYS_FILE}" if spec.keys else None,
        server_key_file=f"{_KEYS_FOLDER}/{SERVER_KEY_FILE}" if server_key else None,
        requests_per_minute=part(spec.requests_per_minute),
        concurrent_requests=part(spec.concurrent_requests),
        models=spec.models,
        spread=spec.spread,
        silence_seconds=spec.longest_silence_seconds,
        largest_request_bytes=spec.largest_request_mib << 20,
        memory_bytes=int(amount(spec.memory)),
        requests_per_model={model: ceil(most / spec.replicas) for model, most in spec.requests_per_minute_by_model.items()},
        picks_at_once=picks_at_once(int(amount(spec.picks.memory)), spec.replicas),
    )


def config_map(name: str, spec: ModelEndpointSpec, planned: Proxy) -> dict[str, Any]:
    """Returns ``metadata`` and ``data`` of the ConfigMap."""
    script = files("eks_inference.endpoints").joinpath("assets", _SCRIPT).read_text("utf-8")
    return {
        "metadata": {"name": name, "namespace": spec.namespace_of(name)},
        "data": {_CONFIG: json.dumps(configuration(planned), indent=1) + "\n", _SCRIPT: script},
    }


def deployment(
    name: str, spec: ModelEndpointSpec, planned: Proxy, placement: Placement, *, image: Any, secret: Any
) -> dict[str, Any]:
    """Returns ``metadata`` and ``spec`` of the Deployment. ``secret`` is the name of the Secret with keys, if there are any.

    A change of the keys replaces no pod; a change of the configuration replaces one pod after the other.
    """
    own = labels(name)
    leaves = _BALANCED_SETTLE_SECONDS if spec.behind_load_balancer else SETTLE_SECONDS
    within = leaves + spec.drain_seconds
    drain = ["/bin/bash", f"{_CONFIG_FOLDER}/{_SCRIPT}", str(ADMIN_PORT), str(leaves), str(within)]
    ready = {"httpGet": {"path": HEALTH_PATH, "port": HEALTH_PORT}, "periodSeconds": 5}
    container = {
        "name": "envoy",
        "image": image,
        "command": ["envoy"],
        # By default, it has a thread for each core of the node.
        "args": [
            *("-c", f"{_CONFIG_FOLDER}/{_CONFIG}", "--concurrency", str(WORKERS)),
            *("--disable-hot-restart", "--log-level", "warning"),
        ],
        "ports": [{"name": "http", "containerPort": API_PORT}, {"name": METRICS_NAME, "containerPort": HEALTH_PORT}],
        "resources": {"requests": {"cpu": spec.cpu, "memory": spec.memory}, "limits": {"memory": spec.memory}},
        "startupProbe": {**ready, "periodSeconds": 1, "failureThreshold": 60},
        "readinessProbe": ready,
        # Not whether it is ready: a pod that goes is not, and ends its answers first.
        "livenessProbe": {"tcpSocket": {"port": HEALTH_PORT}, "periodSeconds": 30},
        "lifecycle": {"preStop": {"exec": {"command": drain}}},
        "securityContext": workloads.READ_ONLY_CONTAINER,
        "volumeMounts": [
            {"name": "config", "mountPath": _CONFIG_FOLDER, "readOnly": True},
            *([{"name": "keys", "mountPath": _KEYS_FOLDER, "readOnly": True}] if secret else []),
        ],
    }
    pod = {
        **{field: value for field, value in placement.scheduling().items() if value},
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": restricted_pod(_USER),
        "topologySpreadConstraints": [*spread_over_zones(own), _over_nodes(own)],
        "terminationGracePeriodSeconds": within + _END_SECONDS,
        "containers": [container],
        "volumes": [
            {"name": "config", "configMap": {"name": name}},
            *([{"name": "keys", "secret": {"secretName": secret}}] if secret else []),
        ],
    }
    config = json.dumps(config_map(name, spec, planned)["data"], sort_keys=True)
    return workloads.rolling_deployment(
        name,
        spec.namespace_of(name),
        own,
        pod,
        replicas=spec.replicas,
        progress_seconds=PROGRESS_SECONDS,
        template={"annotations": workloads.config_annotation(config)},
    )


def _over_nodes(own: Mapping[str, str]) -> dict[str, Any]:
    """Spreads the pods over nodes where there are several: a node that goes then takes no more than one."""
    (spread,) = spread_over_zones(own)
    return {**spread, "topologyKey": HOSTNAME_LABEL}


def service(name: str, spec: ModelEndpointSpec) -> dict[str, Any]:
    """Returns ``metadata`` and ``spec`` of the Service."""
    return workloads.service(name, spec.namespace_of(name), labels(name), [("http", 80, API_PORT)])


def pods_service(name: str, server: str, namespace: str, behind: Front, ports: Sequence[int]) -> dict[str, Any]:
    """Returns ``metadata`` and ``spec`` of a Service without an address: its name resolves to the pods that are ready."""
    listed = [(f"port-{port}", port, port) for port in ports]
    return workloads.service(pods_service_name(name, server), namespace, behind.labels, listed, headless=True)


def pods_service_name(name: str, server: str) -> str:
    """Returns the name of that Service, in the namespace of the server."""
    return shortened(63, f"{name}-{server}-pods")


def disruption_budget(name: str, spec: ModelEndpointSpec) -> dict[str, Any]:
    """Returns ``metadata`` and ``spec`` of the disruption budget: one pod at a time goes."""
    return {
        "metadata": {"name": name, "namespace": spec.namespace_of(name)},
        "spec": {
            "maxUnavailable": 1,
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {"matchLabels": labels(name)},
        },
    }


def policy(name: str, spec: ModelEndpointSpec, spaces: Mapping[str, Sequence[int]], ways: Sequence[Rule] = ()) -> dict[str, Any]:
    """Returns ``metadata`` and ``spec`` of the NetworkPolicy. ``spaces`` are the ports of servers by namespace, ``ways`` lead
    elsewhere."""
    return network_policy(
        name,
        spec.namespace_of(name),
        selector={},
        ingress=[
            from_clients(spec.client_namespaces, API_PORT),
            *from_prometheus(spec.metrics_namespaces, HEALTH_PORT),
        ],
        egress=[DNS, *(allow_to(namespace(space), tcp=sorted(set(ports))) for space, ports in sorted(spaces.items())), *ways],
    )


def entrance(
    name: str, space: str, front: Front, ports: Sequence[int], *, of: str, also: Sequence[Mapping[str, str]] = ()
) -> dict[str, Any]:
    """Returns ``metadata`` and ``spec`` of the NetworkPolicy that lets the proxy, in the namespace ``space``, and pods there with
    the labels ``also``, reach the pods of a server in the namespace ``of``, whoever else may."""
    admitted = allow_from(*(pods(each, of=space) for each in (labels(name), *also)), tcp=ports)
    return network_policy(f"{name}-endpoint", of, selector=front.labels, ingress=[admitted], egress=None)


def metrics_endpoint() -> dict[str, Any]:
    """Returns the endpoint of a PodMonitor. A histogram of Envoy has 20 series for each server: those of times are enough."""
    return {
        "port": METRICS_NAME,
        "path": METRICS_PATH,
        "relabelings": [ENDPOINT_NAME],
        "metricRelabelings": [
            {"action": "keep", "sourceLabels": ["__name__"], "regex": f"envoy_(http|cluster_upstream|{STATS})_.*"},
            {"action": "drop", "sourceLabels": ["__name__"], "regex": "envoy_.*_(cx_length_ms|rq_per_cx|cx_connect_ms)_.*"},
        ],
    }


def doors(name: str, spec: ModelEndpointSpec, upstreams: Sequence[Upstream]) -> tuple[Door, ...]:
    """Returns where requests from outside the cluster enter: the proxy closes paths by itself."""
    api = "/v1" if any(upstream.model for upstream in upstreams) else ""
    http = Door(name, 80, labels(name), API_PORT, HEALTH_PATH, api=api, drain_seconds=spec.drain_seconds)
    if not any(upstream.grpc_port for upstream in upstreams):
        return (http,)
    # No method answers without a key: 16 is UNAUTHENTICATED, and without keys 12 UNIMPLEMENTED.
    return (http, replace(http, grpc=KSERVE_SERVICE, health="/AWS.ALB/healthcheck", healthy="12,16", api=""))
