"""A provider of Kubernetes objects that turns to another cluster, and resources that turn to another provider."""

import json
from typing import Any

import pulumi
import pulumi_kubernetes as k8s
import pytest

from stackgraph.diff.graphs import ResourceChange, compare
from stackgraph.diff.replacement_causes import another_cluster
from stackgraph.graph.document import Graph
from stackgraph.recorder.recording import record
from stackgraph.state.engine_steps import deletes_first


def kubeconfig(server: str = "https://one", user: str = "aws", **more: Any) -> str:
    clusters = [{"name": "c", "cluster": {"server": server}}, {"name": "d", "cluster": {"server": "https://other"}}]
    contexts = [{"name": name, "context": {"cluster": name, "user": user}} for name in ("c", "d")]
    return json.dumps({"clusters": clusters, "contexts": contexts, "current-context": "c", **more})


@pytest.mark.parametrize(
    ("old", "new", "paths"),
    [
        ({"kubeconfig": kubeconfig()}, {"kubeconfig": kubeconfig()}, []),
        ({"kubeconfig": kubeconfig()}, {"kubeconfig": kubeconfig(user="another")}, []),
        ({"kubeconfig": kubeconfig()}, {"kubeconfig": kubeconfig("https://two")}, [("kubeconfig",)]),
        ({"kubeconfig": kubeconfig()}, {"kubeconfig": "<cluster.kubeconfig>"}, [("kubeconfig",)]),
        ({"kubeconfig": kubeconfig()}, {"kubeconfig": kubeconfig("<cluster.endpoint>")}, [("kubeconfig",)]),
        ({"kubeconfig": kubeconfig()}, {"kubeconfig": kubeconfig(), "context": "d"}, [("context",)]),
        ({"kubeconfig": kubeconfig()}, {"kubeconfig": kubeconfig(), "cluster": "d"}, [("cluster",)]),
        ({"kubeconfig": kubeconfig()}, {"kubeconfig": kubeconfig(), "context": "c"}, []),
        ({"kubeconfig": "clusters: []"}, {"kubeconfig": "{:"}, []),
        (
            {"kubeconfig": kubeconfig(), "clusterIdentifier": "a"},
            {"kubeconfig": kubeconfig("https://two"), "clusterIdentifier": "a"},
            [],
        ),
    ],
)
def test_which_settings_turn_to_another_cluster(old: Any, new: Any, paths: list[Any]) -> None:
    assert list(another_cluster(old, new)) == paths


def graph(provider: str, server: str, alias: str | None = None) -> Graph:
    def program() -> None:
        aliases = [pulumi.Alias(name=alias)] if alias else None
        cluster = k8s.Provider(provider, kubeconfig=kubeconfig(server), opts=pulumi.ResourceOptions(aliases=aliases))
        k8s.core.v1.ConfigMap("settings", metadata={"name": "s"}, opts=pulumi.ResourceOptions(provider=cluster))

    return record(program)


@pytest.mark.parametrize(
    ("after", "kind", "because"),
    [
        (("one", "https://two"), "replace", ("provider one",)),
        (("two", "https://two"), "replace", ("provider two",)),
        (("two", "https://one"), "dependencies", ()),
        (("two", "https://one", "one"), "same", ()),
    ],
)
def test_objects_of_another_cluster_are_made_anew(after: tuple[str, ...], kind: str, because: tuple[str, ...]) -> None:
    changes = compare(graph("one", "https://one"), graph(*after)).changes
    (change,) = (change for change in changes if change.resource.name == "settings")
    assert (change.kind, change.because) == (kind, because)


@pytest.mark.parametrize(
    ("because", "first"),
    [(("data",), True), (("provider two",), False), (("deletedWith n",), False), (("replaceWith n",), False)],
)
def test_what_follows_another_resource_is_deleted_last(because: tuple[str, ...], first: bool) -> None:
    """The object keeps its name, for which the Kubernetes provider, when it is asked, deletes first."""
    (settings,) = (resource for resource in graph("one", "https://one").resources if resource.name == "settings")
    assert deletes_first(ResourceChange("replace", settings, settings, because=because)) is first
