"""Two of everything in one program: what is judged and shown of it is the union of what each alone gives."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import product
from types import SimpleNamespace
from typing import Any

import pulumi
import pulumi_aws as aws
import pytest

from eks_inference import (
    ClusterSpec,
    EksCluster,
    ExistingVpc,
    ManagedPool,
    ManagedPoolSpec,
    NetworkSpec,
    StackSettings,
    Subnet,
    Vpc,
)
from eks_inference.platform import InferencePlatform
from eks_inference.stack.spec import StackSpec
from eks_inference_tools.check.registry import check_graph
from eks_inference_tools.cli import main
from eks_inference_tools.reading.clusters import part_of, parts
from eks_inference_tools.reading.expected import expected_of
from eks_inference_tools.reading.graph_facts import GraphFacts
from eks_inference_tools.reading.stack_sections import overview_of
from eks_inference_tools.simulate.control_plane import toolchain
from stackgraph.graph.document import Graph, Resource
from stackgraph.graph.values import mapped
from stackgraph.problems import ProblemsFound
from stackgraph.recorder.recording import record
from vectors.graph import PREFIX, VECTORS, associated, cluster, graph, kubernetes, node_group, pods, resource, storage_class

CLUSTER = "aws:eks/cluster:Cluster"
REGIONS = {"east": "us-east-1", "west": "us-west-2"}


def side(which: str, facts: GraphFacts) -> list[Resource]:
    """The resources of a graph as one half of a program: inside a component, by providers of this half, for its own cluster."""

    def urn(given: str) -> str:
        return given.replace(PREFIX, f"{PREFIX}team:index:{which}$")

    made = [one.urn for one in facts.graph.resources if one.type == CLUSTER]
    aws, reached = urn(f"{PREFIX}pulumi:providers:aws::p"), urn(f"{PREFIX}pulumi:providers:kubernetes::p")
    how: dict[str, Any] = (
        {"property_dependencies": {"kubeconfig": (urn(made[0]),)}} if made else {"inputs": {"kubeconfig": f"config of {which}"}}
    )
    providers = [
        Resource(aws, "pulumi:providers:aws", "p", inputs={"region": REGIONS[which]}),
        Resource(reached, "pulumi:providers:kubernetes", "p", **how),
    ]
    found = []
    for one in facts.graph.resources:
        inputs: Mapping[str, Any] = mapped(one.inputs, lambda leaf: leaf)
        needs = {key: tuple(map(urn, urns)) for key, urns in one.property_dependencies.items()}
        if one.type.startswith("aws:eks/") and one.type != CLUSTER:
            inputs = {**inputs, "clusterName": which}
            needs |= {"clusterName": (urn(made[0]),)} if made else {}
        own = urn(one.provider) if one.provider else reached if one.package == "kubernetes" else aws
        made_here = Resource(urn(one.urn), one.type, one.name, provider=own, inputs=inputs, property_dependencies=needs)
        found.append(replace(made_here, options=one.options, parent=urn(one.parent)))
    return [*providers, *found]


def program(*halves: list[Resource]) -> Graph:
    return Graph("test", "test", tuple(sorted((one for half in halves for one in half), key=lambda one: one.urn)))


# One judgement stands for all resources with the same tags, whichever cluster they belong to.
OF_THE_WHOLE_PROGRAM = {"AWS012"}


def judged(graph_: Graph) -> set[Any]:
    found = check_graph(graph_, {}).judgements
    return {(rule.id, judgement.holds if rule.id in OF_THE_WHOLE_PROGRAM else judgement) for rule, judgement in found}


def examples(id_: str) -> tuple[Callable[[], GraphFacts], Callable[[], GraphFacts]]:
    return VECTORS[id_].passes, VECTORS[id_].fails


@pytest.mark.thorough
@pytest.mark.parametrize("id_", sorted(VECTORS))
def test_two_clusters_are_judged_as_each_alone(id_: str):
    """Every vector of a rule in the one half, with every vector of it and of the next rule in the other."""
    following = sorted(VECTORS)[(sorted(VECTORS).index(id_) + 1) % len(VECTORS)]
    for one, other in product(examples(id_), (*examples(id_), *examples(following))):
        east, west = side("east", one()), side("west", other())
        alone = judged(program(east)) | judged(program(west))
        assert judged(program(east, west)) == alone


@pytest.mark.thorough
@pytest.mark.parametrize("id_", sorted(VECTORS))
def test_a_half_breaks_the_rule_that_its_vector_breaks(id_: str):
    """Otherwise the test above would compare nothing with nothing."""
    found = check_graph(program(side("west", VECTORS[id_].fails())), {}).judgements
    assert id_ in {rule.id for rule, judgement in found if not judgement.holds}


@pytest.mark.thorough
def test_the_overview_of_two_clusters_is_that_of_each():
    def scaler(most: int) -> Resource:
        spec = {"scaleTargetRef": {"kind": "Deployment", "name": "server"}, "maxReplicas": most}
        return kubernetes("autoscaling/v2:HorizontalPodAutoscaler", "server", {"spec": spec})

    east, west = (side(which, graph(cluster(), node_group(), pods(), scaler(most))) for which, most in (("east", 3), ("west", 7)))
    both, alone = overview_of(program(east, west)), [overview_of(program(east)), overview_of(program(west))]
    assert [workload.replicas for workload in both.workloads] == ["1–3 by HPA", "1–7 by HPA"]
    for view in ("clusters", "capacity", "workloads", "endpoints"):
        assert getattr(both, view) == tuple(found for overview in alone for found in getattr(overview, view))


# -- whose cluster is it? --------------------------------------------------------------------------------------------------------


def reaching(name: str, **inputs: Any) -> Resource:
    needs = {"kubeconfig": (inputs.pop("of"),)} if "of" in inputs else {}
    return resource("pulumi:providers:kubernetes", name, inputs, property_dependencies=needs)


def by(provider: Resource, name: str) -> Resource:
    made = storage_class(name)
    return Resource(f"{made.urn}-{provider.name}", made.type, name, provider=provider.urn, inputs=made.inputs)


def clusters_of(*resources: Resource) -> dict[str, list[str]]:
    """By cluster, the names of the objects and add-ons in its part."""
    return {
        part.cluster: sorted(one.name for one in part.graph.resources if not one.is_provider and one.type != CLUSTER)
        for part in parts(graph(*resources).graph)
    }


def addon(name: str, cluster_name: str) -> Resource:
    return resource("aws:eks/addon:Addon", name, {"clusterName": cluster_name, "addonName": name})


def test_two_providers_of_one_cluster_are_one_cluster():
    made = cluster()
    one, other = reaching("one", of=made.urn), reaching("other", of=made.urn)
    assert clusters_of(made, one, other, by(one, "gp2"), by(other, "gp3")) == {"cluster": ["gp2", "gp3"]}
    one, other = reaching("one", kubeconfig="same"), reaching("other", kubeconfig="same")
    assert list(clusters_of(one, other, by(one, "gp2"), by(other, "gp3")).values()) == [["gp2", "gp3"]]


@pytest.mark.thorough
def test_providers_of_unknown_clusters_are_different_clusters():
    one, other = reaching("one", kubeconfig="<unknown>"), reaching("other", kubeconfig="<unknown>")
    assert [*clusters_of(one, other, by(one, "gp2"), by(other, "gp3")).values()] == [["gp2"], ["gp3"]]


def test_a_cluster_made_elsewhere_is_known_by_its_name():
    one, other = reaching("one", clusterIdentifier="blue"), reaching("other", kubeconfig='{"current-context": "green"}')
    found = clusters_of(one, other, by(one, "gp2"), by(other, "gp3"), addon("a", "blue"), addon("b", "green"))
    assert found == {"blue": ["a", "gp2"], "green": ["b", "gp3"]}


@pytest.mark.thorough
def test_the_only_provider_reaches_the_only_cluster():
    provider = reaching("default_4_1_0")
    assert clusters_of(cluster(), provider, by(provider, "gp3"), node_group(clusterName="cluster")) == {
        "cluster": ["core", "gp3"]
    }
    assert clusters_of(provider, by(provider, "gp3"), addon("a", "blue")) == {"blue": ["a", "gp3"]}


@pytest.mark.thorough
def test_what_no_provider_can_tell_may_belong_to_any():
    one, other = reaching("one", kubeconfig="<a>"), reaching("other", kubeconfig="<b>")
    found = clusters_of(one, other, by(one, "gp2"), by(other, "gp3"), addon("a", "blue"))
    assert [*found.values()] == [["a", "gp2"], ["a", "gp3"]]


def test_clusters_of_one_name_in_two_regions_stay_apart():
    halves = []
    for which in REGIONS:
        half = side(which, associated(addon("eks-pod-identity-agent", "cluster")) if which == "east" else associated())
        halves += [
            Resource(one.urn, one.type, one.name, provider=one.provider, inputs={**one.inputs, "clusterName": "cluster"})
            if one.type.startswith("aws:eks/") and one.type != CLUSTER
            else one
            for one in half
        ]
    broken = [judgement.resource for id_, judgement in judged(program(halves)) if id_ == "EKS001" and not judgement.holds]
    assert [urn for urn in broken if "west" in urn] == broken != []


@pytest.mark.thorough
def test_the_agent_of_a_cluster_that_the_program_does_not_make_is_not_judged():
    (association,) = associated().graph.of_type("aws:eks/podIdentityAssociation:PodIdentityAssociation")
    (of_theirs,) = (judgement for id_, judgement in judged(program([association])) if id_ == "EKS001")
    assert of_theirs.unjudged
    installed = [association, addon("eks-pod-identity-agent", "cluster")]
    assert [judgement.unjudged for id_, judgement in judged(program(installed)) if id_ == "EKS001"] == [None]


@pytest.mark.thorough
def test_nodes_in_the_network_of_another_cluster_are_seen():
    """Ids that only a deployment knows tell a constructor nothing."""

    def build() -> None:
        settings = StackSettings(region="us-west-2")
        nets = {name: Vpc(f"{name}-net", NetworkSpec(), settings=settings) for name in ("a", "b")}
        made = {name: EksCluster(name, ClusterSpec(), network=net, settings=settings) for name, net in nets.items()}
        theirs = [Subnet(private_subnet.zone_id, private_subnet.id) for private_subnet in nets["b"].private_subnets]
        wrong = ExistingVpc(nets["b"].vpc_id.apply(str), theirs)
        nodes = ManagedPoolSpec(instance_types=("m5.large",), size=2)
        ManagedPool("a-core", nodes, cluster=made["a"], network=wrong)
        ManagedPool("b-core", nodes, cluster=made["b"], network=nets["b"])

    found = {one.working: one.holds for id_, one in judged(record(build, config={"aws:region": "us-west-2"})) if id_ == "EKS006"}
    assert found == {
        ("a-core-nodes: b-net-vpc; cluster a-control-plane: a-net-vpc",): False,
        ("b-core-nodes: b-net-vpc; cluster b-control-plane: b-net-vpc",): True,
    }


# -- commands that look at one cluster -------------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_a_command_about_one_cluster_takes_the_named_one():
    east, west = reaching("one", clusterIdentifier="blue"), reaching("other", clusterIdentifier="green")
    both = graph(east, west, by(east, "gp2"), by(west, "gp3")).graph
    with pytest.raises(ProblemsFound, match="the program has 2 clusters: name one\n    allowed: one, other"):
        part_of(both, None)
    with pytest.raises(ProblemsFound, match=r"no such cluster\n    given: onee\n .*\n    hint: did you mean 'one'"):
        part_of(both, "onee")
    assert {one.name for one in part_of(both, "one").resources} == {"one", "gp2"}
    assert part_of(graph(east, by(east, "gp2")).graph, None).named("gp2")


def test_two_clusters_of_one_name_cannot_be_told_apart():
    made = [resource(CLUSTER, name, {"name": "same"}) for name in ("east", "west")]
    with pytest.raises(ProblemsFound, match="has 2 clusters of this name, and they cannot be told apart"):
        part_of(graph(*made).graph, "same")


@pytest.mark.thorough
@pytest.mark.parametrize("command", ["verify", "simulate"])
def test_commands_say_that_a_program_has_several_clusters(tmp_path, monkeypatch, capsys, command: str):
    (tmp_path / "Pulumi.yaml").write_text("name: team\nruntime: python\n")
    (tmp_path / "Pulumi.dev.yaml").write_text("config: {}\n")
    provider = "pulumi_kubernetes.Provider(name, kubeconfig=name)"
    (tmp_path / "__main__.py").write_text(f"import pulumi_kubernetes\nfor name in ('a', 'b'):\n    {provider}\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(toolchain, "installed", lambda *tools: SimpleNamespace(asked=()))
    assert main([command]) == 2
    assert "error: --cluster: the program has 2 clusters: name one" in capsys.readouterr().err


# -- two platforms in one program ------------------------------------------------------------------------------------------------


def two_platforms(*names: str) -> Graph:
    """The same spec under different names, each in a region of its own, by providers of its own."""

    def build() -> None:
        for name in names:
            provider = aws.Provider(name, region=REGIONS[name])
            spec = {
                "name": name,
                "pools": {
                    "core": {"kind": "managed", "instance_types": ["m5.2xlarge"], "size": 2},
                    "inf2": {"kind": "karpenter", "instance_families": ["inf2"]},
                },
                "accelerators": {"neuron": {}},
            }
            opts = pulumi.ResourceOptions(providers=[provider])
            InferencePlatform(StackSpec.model_validate(spec), region=REGIONS[name], opts=opts)

    return record(build, project="two", stack="dev", config={"aws:region": "eu-west-1"})


@pytest.mark.thorough
def test_two_platforms_are_judged_and_shown_as_each_alone():
    both, alone = two_platforms("east", "west"), [two_platforms(name) for name in REGIONS]
    assert judged(both) == judged(alone[0]) | judged(alone[1])
    assert [part.cluster for part in parts(both)] == ["east", "west"]
    for part, one in zip(parts(both), alone, strict=True):
        assert expected_of(part.graph).objects == expected_of(one).objects
        assert expected_of(part.graph).addons == expected_of(one).addons
    assert len(overview_of(both).capacity) == sum(len(overview_of(one).capacity) for one in alone)
