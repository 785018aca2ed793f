"""NetworkPolicies as data, judged by what they let through."""

import pytest

from eks_inference.kubernetes.network_policy import (
    DNS,
    EVERY_NAMESPACE,
    HTTPS,
    POD_IDENTITY,
    addresses,
    allow_from,
    allow_to,
    namespace,
    namespaces_labelled,
    network_policy,
    pods,
)
from traffic import Outside, Pod, passes

WEB = Pod("web", {"app": "web"})
OTHER = Pod("other", {"app": "other"})
COREDNS = Pod("kube-system", {"k8s-app": "kube-dns"})


def closed(**ways):
    return network_policy("p", "web", selector={"app": "web"}, **{"ingress": None, "egress": None, **ways})


def test_a_direction_that_is_left_out_stays_open():
    assert passes([closed(ingress=())], WEB, OTHER, 1)
    assert not passes([closed(ingress=())], OTHER, WEB, 1)
    assert passes([closed(egress=())], OTHER, WEB, 1)
    assert not passes([closed(egress=())], WEB, OTHER, 1)


def test_an_empty_selector_means_every_pod_of_the_namespace():
    everything = network_policy("p", "web", selector={}, ingress=(), egress=())
    assert everything["spec"]["podSelector"] == {}
    assert not passes([everything], OTHER, Pod("web"), 1)
    assert passes([everything], OTHER, Pod("elsewhere"), 1)


def test_policies_add_up():
    assert passes([closed(ingress=()), closed(ingress=[allow_from(namespace("other"), tcp=[80])])], OTHER, WEB, 80)


def test_only_the_named_ports_are_opened():
    policies = [closed(ingress=[allow_from(EVERY_NAMESPACE, tcp=[80], udp=[81])])]
    assert passes(policies, OTHER, WEB, 80)
    assert passes(policies, OTHER, WEB, 81, "UDP")
    assert not passes(policies, OTHER, WEB, 81)
    assert not passes(policies, OTHER, WEB, 8080)
    assert passes([closed(ingress=[allow_from(EVERY_NAMESPACE)])], OTHER, WEB, 8080)


def test_every_namespace_is_the_cluster_and_nothing_outside():
    policies = [closed(ingress=[allow_from(EVERY_NAMESPACE)])]
    assert passes(policies, OTHER, WEB, 80)
    assert not passes(policies, Outside("10.0.0.9"), WEB, 80)
    assert passes([closed(ingress=[allow_from(tcp=[80])])], Outside("10.0.0.9"), WEB, 80)


@pytest.mark.parametrize(
    ("peer", "friend", "stranger"),
    [
        (pods({"app": "a"}), Pod("web", {"app": "a"}), Pod("other", {"app": "a"})),
        (pods({}), Pod("web"), Pod("other")),
        (pods({"app": "a"}, of="other"), Pod("other", {"app": "a"}), Pod("web", {"app": "a"})),
        (namespace("other"), OTHER, Pod("third")),
        (namespaces_labelled({"team": "x"}), Pod("third", namespace_labels={"team": "x"}), OTHER),
        (addresses("10.0.0.0/8", but=["10.1.0.0/16"]), Outside("10.2.0.1"), Outside("10.1.0.1")),
    ],
)
def test_peers(peer, friend, stranger):
    policies = [closed(ingress=[allow_from(peer)], egress=[allow_to(peer)])]
    assert passes(policies, friend, WEB, 80)
    assert passes(policies, WEB, friend, 80)
    assert not passes(policies, stranger, WEB, 80)
    assert not passes(policies, WEB, stranger, 80)


def test_dns_credentials_and_https_are_ways_out():
    policies = [closed(egress=[DNS, POD_IDENTITY, HTTPS])]
    assert passes(policies, WEB, COREDNS, 53, "UDP")
    assert passes(policies, WEB, COREDNS, 53, "TCP")
    assert not passes(policies, WEB, Pod("kube-system"), 53, "UDP")
    assert passes(policies, WEB, Outside("169.254.170.23"), 80)
    assert passes(policies, WEB, Outside("198.51.100.7"), 443)


def test_the_metadata_service_of_the_node_is_none_of_them():
    assert not passes([closed(egress=[DNS, POD_IDENTITY, HTTPS])], WEB, Outside("169.254.169.254"), 80)


def test_dns_is_selected_as_its_service_selects_it():
    """The VPC CNI adds a Service's address only when the Service's own selector meets the rule (see ``network_policy.py``)."""
    (peer,) = DNS["to"]
    assert peer["podSelector"]["matchLabels"].items() <= {"k8s-app": "kube-dns"}.items()
