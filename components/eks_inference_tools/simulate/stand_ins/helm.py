"""Builds Helm's records of a stack's releases: one Secret each, as Helm 3 and 4 write them.

They claim that charts are installed, which nobody did; their description says that they are stand-ins.
Sources: Helm 4.2, storage driver "secrets" (name, type, labels, encoding of the release).
"""

import base64
import gzip
import json

from eks_inference_tools.reading.expected import ExpectedRelease, expected_of
from eks_inference_tools.simulate.control_plane.kubernetes_api import Object
from stackgraph.graph.document import Graph

DESCRIPTION = "Stand-in of a simulation: the chart is not installed, pods of the catalog's size stand in for its own"


def helm_records(graph: Graph) -> tuple[Object, ...]:
    """Returns one record per release: its first revision, deployed."""
    return tuple(_record(release) for release in expected_of(graph).releases)


def _record(release: ExpectedRelease) -> Object:
    revision, status = 1, "deployed"
    content = {
        "name": release.name,
        "namespace": release.namespace,
        "version": revision,
        "info": {"status": status, "description": DESCRIPTION},
        "chart": {"metadata": {"name": release.chart, "version": release.version}},
    }
    # Helm's own encoding; the API adds another layer of base64.
    encoded = base64.b64encode(gzip.compress(json.dumps(content).encode(), mtime=0))
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": f"sh.helm.release.v1.{release.name}.v{revision}",
            "namespace": release.namespace,
            "labels": {"name": release.name, "owner": "helm", "status": status, "version": str(revision)},
        },
        "type": "helm.sh/release.v1",
        "data": {"release": base64.b64encode(encoded).decode()},
    }
