"""Runs a real Prometheus for a day, configured from the stack's own monitors and rules.

Stands in for the Prometheus operator, which cannot run without its images. For every endpoint of a PodMonitor the configuration
discovers pods, selects them by labels and port, and applies the monitor's interval and relabelings. One thing is added: scrapes
go through a proxy on loopback, which answers for the pods.

Source: prometheus-operator 0.93, pkg/prometheus/promcfg.go (generatePodMonitorConfig); Prometheus documentation, "Configuration".
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import requests

from eks_inference_tools.simulate.control_plane.control_plane import ControlPlane
from eks_inference_tools.simulate.day.subjects import Sources

TOOL = "prometheus"

_TIMEOUT_SECONDS = 10


def configuration(sources: Sources, *, kubeconfig: Path, proxy: str, rule_files: Sequence[Path]) -> dict[str, Any]:
    """Returns Prometheus' configuration. ``proxy`` is the URL of the proxy that answers for the pods."""
    chosen = sources.prometheus
    wanted = {
        "scrape_interval": chosen.get("scrapeInterval"),
        "evaluation_interval": chosen.get("evaluationInterval"),
        "external_labels": chosen.get("externalLabels"),
    }
    return {
        "global": {key: value for key, value in wanted.items() if value},
        "rule_files": [str(path) for path in rule_files],
        "scrape_configs": [job for monitor in sources.monitors for job in _jobs(monitor, kubeconfig, proxy)],
    }


def _jobs(monitor: Mapping[str, Any], kubeconfig: Path, proxy: str) -> Iterator[dict[str, Any]]:
    metadata, spec = monitor["metadata"], monitor["spec"]
    place = f"{metadata['namespace']}/{metadata['name']}"
    selector = spec.get("namespaceSelector", {})
    names = [] if selector.get("any") else selector.get("matchNames", [metadata["namespace"]])
    discovery = {
        "role": "pod",
        "kubeconfig_file": str(kubeconfig),
        **({"namespaces": {"names": names}} if names else {}),
        **({"attach_metadata": spec["attachMetadata"]} if "attachMetadata" in spec else {}),
    }
    for number, endpoint in enumerate(spec["podMetricsEndpoints"]):
        optional = {"scrape_interval": endpoint.get("interval"), "scrape_timeout": endpoint.get("scrapeTimeout")}
        yield {
            "job_name": f"podMonitor/{place}/{number}",
            "kubernetes_sd_configs": [discovery],
            "proxy_url": proxy,
            "scheme": endpoint.get("scheme", "http"),
            "metrics_path": endpoint.get("path", "/metrics"),
            "honor_labels": endpoint.get("honorLabels", False),
            **{key: value for key, value in optional.items() if value},
            "relabel_configs": [
                *_selection(spec["selector"], endpoint["port"]),
                *_target_labels(place, endpoint["port"]),
                *map(_relabeling, endpoint.get("relabelings", ())),
            ],
            "metric_relabel_configs": list(map(_relabeling, endpoint.get("metricRelabelings", ()))),
        }


def _selection(selector: Mapping[str, Any], port: str) -> Iterator[dict[str, Any]]:
    """Keeps running pods with the labels, and only the named port."""
    yield {"action": "drop", "source_labels": ["__meta_kubernetes_pod_phase"], "regex": "(Failed|Succeeded)"}
    for label, value in selector["matchLabels"].items():
        name = re.sub(r"\W", "_", label)
        labels = [f"__meta_kubernetes_pod_label_{name}", f"__meta_kubernetes_pod_labelpresent_{name}"]
        yield {"action": "keep", "source_labels": labels, "regex": f"({re.escape(value)});true"}
    yield {"action": "keep", "source_labels": ["__meta_kubernetes_pod_container_port_name"], "regex": port}


def _target_labels(job: str, port: str) -> Iterator[dict[str, Any]]:
    for source, target in (("namespace", "namespace"), ("pod_container_name", "container"), ("pod_name", "pod")):
        yield {"source_labels": [f"__meta_kubernetes_{source}"], "target_label": target}
    yield {"target_label": "job", "replacement": job}
    yield {"target_label": "endpoint", "replacement": port}


def _relabeling(given: Mapping[str, Any]) -> dict[str, Any]:
    """Converts keys to Prometheus' spelling: ``sourceLabels`` becomes ``source_labels``."""
    return {re.sub("[A-Z]", lambda letter: f"_{letter[0].lower()}", key): value for key, value in given.items()}


class Prometheus:
    """A client of a running Prometheus. Several threads may use it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._session = requests.Session()
        self._session.trust_env = False  # no proxy for loopback

    def is_ready(self) -> bool:
        try:
            return self._session.get(f"{self.url}/-/ready", timeout=_TIMEOUT_SECONDS).ok
        except requests.RequestException:
            return False

    def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """Runs an instant query; returns labels and value of every element. Raises ``requests.RequestException``."""
        return [(one["metric"], float(one["value"][1])) for one in self._get("query", query=expression)["result"]]

    def series(self, selector: str, *, since: float) -> frozenset[str]:
        """Returns names of series with a sample since ``since``, in epoch seconds. Raises ``requests.RequestException``."""
        return frozenset(one["__name__"] for one in self._get("series", **{"match[]": selector, "start": f"{since:.3f}"}))

    def _get(self, what: str, **query: str) -> Any:
        answer = self._session.get(f"{self.url}/api/v1/{what}", params=query, timeout=_TIMEOUT_SECONDS)
        answer.raise_for_status()
        return answer.json()["data"]


def start(plane: ControlPlane, sources: Sources, *, proxy: str) -> Prometheus:
    """Starts Prometheus among the control plane's processes, and waits until it answers.

    Raises ``ComponentError``, with Prometheus' own message if it rejects the rules or the configuration.
    """
    folder, processes = plane.processes.folder, plane.processes
    rules, config = folder / "rules", folder / f"{TOOL}.yaml"
    rules.mkdir(exist_ok=True)
    for name, content in sources.rule_files.items():
        (rules / name).write_text(json.dumps(content))
    files = [rules / name for name in sources.rule_files]
    config.write_text(json.dumps(configuration(sources, kubeconfig=plane.kubeconfig, proxy=proxy, rule_files=files)))
    fixed = [f"--config.file={config}", f"--storage.tsdb.path={folder / TOOL}", "--log.level=warn"]
    port = processes.start_on_a_port(
        TOOL,
        lambda port: [plane.toolchain.path(TOOL), *fixed, f"--web.listen-address=127.0.0.1:{port}"],
        lambda port: Prometheus(f"http://127.0.0.1:{port}").is_ready(),
    )
    return Prometheus(f"http://127.0.0.1:{port}")
