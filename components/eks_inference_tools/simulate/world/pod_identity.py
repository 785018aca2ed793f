"""Stands in for the webhook of EKS Pod Identity, which no simulated control plane has. Pure."""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from typing import Any

from eks_inference.cluster.plan import CREDENTIALS_VARIABLE
from eks_inference_tools.reading.pod_templates import pod_templates
from stackgraph.graph.document import Graph, Resource
from stackgraph.graph.values import at, items, text

ASSOCIATION_TYPE = "aws:eks/podIdentityAssociation:PodIdentityAssociation"

# EKS user guide, "How EKS Pod Identity works": the address of the agent on every node.
_VARIABLE = {"name": CREDENTIALS_VARIABLE, "value": "http://169.254.170.23/v1/credentials"}


Account = tuple[str, str]
"""Namespace and name of a service account."""


def associated(graph: Graph) -> frozenset[Account]:
    """Returns the service accounts to which the graph gives roles."""
    return frozenset(
        (text(one.inputs.get("namespace")), text(one.inputs.get("serviceAccount"))) for one in graph.of_type(ASSOCIATION_TYPE)
    )


def with_credentials(manifest: Mapping[str, Any], owner: Resource, accounts: frozenset[Account]) -> dict[str, Any]:
    """Returns the manifest of ``owner`` with the variable that EKS adds to pods of these service accounts, in their templates."""
    if not accounts:
        return dict(manifest)
    given = deepcopy(dict(manifest))
    for template in pod_templates(Graph("", "", (replace(owner, inputs=given),))):
        if (template.namespace, template.spec.service_account) in accounts:
            for container in items(at(template.template, "spec", "containers")):
                container["env"] = [*items(container.get("env")), _VARIABLE]
    return given
