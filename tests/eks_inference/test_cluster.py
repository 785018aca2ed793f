"""The cluster: its spec, its plans, and the resources the two components register."""

import json
from collections.abc import Callable
from typing import Any, get_args

import pulumi
import pulumi_aws as aws
import pulumi_eks as eks
import pulumi_kubernetes as k8s
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from catalog_rows import VERSIONS
from eks_inference.accelerators.nvidia.component import NvidiaDevicePlugin
from eks_inference.catalog import versions
from eks_inference.catalog.instances import instance_type
from eks_inference.cluster import plan
from eks_inference.cluster.component import ClusterAddons, EksCluster
from eks_inference.cluster.existing import ExistingCluster
from eks_inference.cluster.handle import ControlPlane
from eks_inference.cluster.spec import ClusterAddonsSpec, ClusterSpec, NodeAddon, NodelessAddon, Version
from eks_inference.faults import SpecError
from eks_inference.kubernetes.merge import merged
from eks_inference.kubernetes.secrets import SecretRef, secret_env
from eks_inference.network.handle import ExistingVpc, Subnet
from eks_inference.place.placement import Placement, Taint
from eks_inference.specs.settings import StackSettings
from golden import assert_golden
from graphs import stands_on
from stackgraph.graph.document import Graph
from stackgraph.recorder.recording import record

KEY = "arn:aws:kms:us-west-2:123456789012:key/12345678-1234-1234-1234-123456789012"
BOUNDARY = "arn:aws:iam::123456789012:policy/boundary"
ADMIN = "arn:aws:iam::123456789012:role/ci/deployer"
VIEWER = "arn:aws:iam::123456789012:user/ana"
CORE = instance_type("m6i.large")

PLAIN = StackSettings.model_validate({"region": "us-west-2"})
FULL = StackSettings.model_validate(
    {
        "region": "us-west-2",
        "profile": "research",
        "tags": {"team": "ml", "cost-centre": "42"},
        "permissions_boundary_arn": BOUNDARY,
        "kms_key_arn": KEY,
        "protect": True,
    }
)


# -- what a user may write ------------------------------------------------------------------------------------------------------


def refusal_of(make: Callable[[], object]) -> str:
    """What the user reads when the spec is refused."""
    with pytest.raises(SpecError) as caught:
        make()
    return str(caught.value)


def cluster_spec(**given: Any) -> ClusterSpec:
    return ClusterSpec.model_validate(given)


IAM = "arn:aws:iam::123456789012"


@pytest.mark.parametrize(
    ("given_", "said"),
    [
        *(({"version": version}, "Amazon Linux 2") for version in ("1.32", "1.29", "1.9")),
        ({"version": "1.37"}, "pinned for Kubernetes 1.37 yet"),
        ({"version": 1.35}, "in quotes"),
        ({"endpoint": {"public": True}}, "0.0.0.0/0"),
        ({"endpoint": {"public_access_cidrs": ["203.0.113.0/24"]}}, "no effect"),
        ({"endpoint": {"private": False}}, "nothing could reach the API"),
        ({"endpoint": {"public": True, "public_access_cidrs": ["203.0.113.7/24"]}}, "203.0.113.0/24"),
        ({"endpoint": {"public": True, "public_access_cidrs": ["office"]}}, "not an address block"),
        *(
            ({"service_cidr": block}, "within 10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16")
            for block in ("10.0.0.0/8", "192.168.4.0/25", "100.64.0.0/16", "172.32.0.0/16", "fd00::/108")
        ),
        *(
            ({"admins": [principal]}, "not the ARN of an IAM role or user")
            for principal in ("arn:aws:sts::123456789012:assumed-role/dev/ana", f"{IAM}:root", f"{IAM}:policy/x")
        ),
        ({"admins": [ADMIN], "viewers": [ADMIN]}, ADMIN),
        ({"addon_versions": {"vpccni": "v1"}}, "vpc-cni"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_the_reason(given_: dict[str, Any], said: str) -> None:
    assert said in refusal_of(lambda: cluster_spec(**given_))


def test_every_version_allowed_has_every_addon_pinned() -> None:
    assert get_args(Version) == VERSIONS
    for version in get_args(Version):
        for name in (*get_args(NodelessAddon), *get_args(NodeAddon)):
            assert versions.addon(name, version).startswith("v")


def test_the_api_is_private_unless_said_otherwise() -> None:
    endpoint = cluster_spec().endpoint
    assert (endpoint.private, endpoint.public, endpoint.public_access_cidrs) == (True, False, ())


@pytest.mark.parametrize("block", ["172.20.0.0/16", "10.100.0.0/16", "192.168.4.0/24", "10.0.0.0/12"])
def test_service_blocks_that_eks_takes(block: str) -> None:
    assert cluster_spec(service_cidr=block).service_cidr == block


def test_a_misspelt_addon_is_refused() -> None:
    assert "coredns" in refusal_of(lambda: ClusterAddonsSpec.model_validate({"addon_configuration": {"core-dns": {}}}))


# -- plans ----------------------------------------------------------------------------------------------------------------------


def test_the_kubeconfig_reads_as_reviewed() -> None:
    text = plan.kubeconfig("chat", "https://ABC.gr7.us-west-2.eks.amazonaws.com", "Q0E=", "us-west-2", "research")
    assert yaml.safe_load(text) == json.loads(text)
    assert_golden("cluster/kubeconfig.json", text)


def test_a_kubeconfig_without_a_profile_leaves_the_choice_to_the_environment() -> None:
    text = plan.kubeconfig("chat", "https://x", "Q0E=", "us-west-2")
    assert "profile" not in text


def test_the_kubeconfig_command_survives_a_shell() -> None:
    command = plan.kubeconfig_command("chat", "us-west-2", "my profile")
    assert command == "aws eks update-kubeconfig --region us-west-2 --name chat --alias chat --profile 'my profile'"


def test_the_storage_class_reads_as_reviewed() -> None:
    assert_golden("cluster/storage-class.yaml", yaml.safe_dump(plan.storage_class(KEY), sort_keys=False))


def test_the_control_plane_stays_out_of_zones_that_refuse_it() -> None:
    assert plan.control_plane_zones(["use1-az3", "use1-az1", "use1-az2", "use1-az1"]) == ("use1-az1", "use1-az2")


@pytest.mark.parametrize("zones", [[], ["use1-az1", "use1-az1"], ["use1-az1", "use1-az3"]])
def test_a_control_plane_in_one_zone_is_refused(zones: list[str]) -> None:
    with pytest.raises(SpecError, match="at least two zones"):
        plan.control_plane_zones(zones)


arns = st.builds(
    "arn:aws:iam::{}:role/{}".format,
    st.integers(10**11, 10**12 - 1),
    st.lists(st.from_regex(r"[a-zA-Z0-9+=,.@_-]{1,12}", fullmatch=True), min_size=1, max_size=3).map("/".join),
)


@given(st.lists(arns, min_size=2, max_size=6, unique=True), st.randoms())
@pytest.mark.thorough
def test_an_access_entry_keeps_its_name_wherever_it_stands(principals: list[str], random: Any) -> None:
    shuffled = random.sample(principals, len(principals))
    before = {entry.principal_arn: entry.key for entry in plan.access_entries(cluster_spec(admins=principals))}
    after = {entry.principal_arn: entry.key for entry in plan.access_entries(cluster_spec(viewers=shuffled))}
    assert before == after
    assert len(set(before.values())) == len(principals)


documents = st.recursive(
    st.booleans() | st.text(max_size=4) | st.lists(st.integers(), max_size=2),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=12,
)
mappings = st.dictionaries(st.sampled_from("abc"), documents, max_size=3)


@given(mappings, mappings)
def test_what_the_user_wrote_wins_and_nothing_else_is_lost(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    result = merged(ours, theirs)
    assert set(result) == set(ours) | set(theirs)
    for key, value in result.items():
        if key not in theirs:
            assert value == ours[key]
        elif isinstance(ours.get(key), dict) and isinstance(theirs[key], dict):
            assert value == merged(ours[key], theirs[key])
        else:
            assert value == theirs[key]


def test_an_addon_takes_the_users_version_and_configuration() -> None:
    spec = cluster_spec(
        addon_versions={"vpc-cni": "v1.99.0-eksbuild.1"},
        addon_configuration={"vpc-cni": {"env": {"ENABLE_PREFIX_DELEGATION": "false"}}},
    )
    addons = plan.addons_before_pools(spec)
    assert addons["vpc-cni"].version == "v1.99.0-eksbuild.1"
    assert addons["vpc-cni"].configuration["env"] == {"ENABLE_PREFIX_DELEGATION": "false", "WARM_PREFIX_TARGET": "1"}
    assert addons["vpc-cni"].configuration["enableNetworkPolicy"] == "true"
    assert addons["kube-proxy"].version == versions.addon("kube-proxy", "1.35")


def test_network_policies_cannot_be_turned_off_beside_the_stack_that_relies_on_them() -> None:
    spec = cluster_spec(addon_configuration={"vpc-cni": {"enableNetworkPolicy": "false"}})
    with pytest.raises(SpecError, match=r"addon_configuration\.vpc-cni\.enableNetworkPolicy: the stack relies on its own value"):
        plan.addons_before_pools(spec)


def test_the_storage_driver_may_use_one_key_only() -> None:
    statements = plan.ebs_csi_key_policy(KEY)["Statement"]
    assert {statement["Resource"] for statement in statements} == {KEY}
    grants = next(statement for statement in statements if "kms:CreateGrant" in statement["Action"])
    assert grants["Condition"] == {"Bool": {"kms:GrantIsForAWSResource": "true"}}


def test_a_secret_becomes_one_variable_and_no_secret_none() -> None:
    assert secret_env("HF_TOKEN", None) == []
    assert secret_env("HF_TOKEN", SecretRef("hugging-face", "token")) == [
        {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hugging-face", "key": "token"}}}
    ]


# -- the control plane ----------------------------------------------------------------------------------------------------------


ZONES = {"us-west-2": "usw2", "us-gov-west-1": "usgw1", "cn-north-1": "cnn1"}


def a_network(region: str = "us-west-2") -> ExistingVpc:
    """Two private subnets, and a route without which no node reaches the internet."""
    zones = [f"{ZONES[region]}-az{number}" for number in (1, 2)]
    route = aws.ec2.RouteTable("network-route", vpc_id="vpc-1")
    return ExistingVpc(
        vpc_id="vpc-1",
        private_subnets=[Subnet(zones[0], "subnet-1"), Subnet(zones[1], "subnet-2")],
        public_subnets=[Subnet(zones[0], "subnet-3")],
        ready=[route],
    )


def a_core_pool(cluster: ControlPlane, taints: tuple[Taint, ...] = ()) -> Placement:
    """A node group as pools make them: after what the cluster says must be ready."""
    group = aws.eks.NodeGroup(
        "core-pool",
        cluster_name=cluster.name,
        node_role_arn="arn:aws:iam::123456789012:role/node",
        subnet_ids=["subnet-1"],
        scaling_config=aws.eks.NodeGroupScalingConfigArgs(min_size=2, max_size=2, desired_size=2),
        opts=pulumi.ResourceOptions(depends_on=[*cluster.ready]),
    )
    return Placement(pool="core", instance_type=CORE, node_selector={}, taints=taints, ready=[group])


def the_cluster(settings: StackSettings = PLAIN, **spec: Any) -> Graph:
    def build() -> None:
        EksCluster("chat", cluster_spec(**spec), network=a_network(settings.region), settings=settings)

    return record(build)


def the_whole_cluster(settings: StackSettings = FULL, *, strict: bool = False) -> Graph:
    """Control plane, core pool, add-ons and a workload on top."""

    def build() -> None:
        spec, network = cluster_spec(admins=[ADMIN], viewers=[VIEWER]), a_network(settings.region)
        control_plane = EksCluster("chat", spec, network=network, settings=settings)
        cluster = ClusterAddons("chat-addons", ClusterAddonsSpec(), cluster=control_plane, core=a_core_pool(control_plane))
        k8s.core.v1.ConfigMap(
            "workload",
            metadata={"name": "w"},
            opts=pulumi.ResourceOptions(provider=cluster.provider, depends_on=[*cluster.ready]),
        )

    return record(build, strict=strict)


def waits_for(graph: Graph, later: str, earlier: str) -> bool:
    """Whether ``earlier`` exists before ``later``, and is deleted after it."""
    return stands_on(graph, graph.named(later), graph.named(earlier))


def test_the_control_plane_gets_exactly_these_arguments() -> None:
    graph = the_cluster(
        FULL,
        admins=[ADMIN],
        viewers=[VIEWER],
        endpoint={"public": True, "public_access_cidrs": ["203.0.113.0/24"]},
        create_oidc_provider=True,
    )
    resource = graph.named("chat-control-plane")
    assert resource.type == "eks:index:Cluster"
    arguments = dict(resource.inputs)
    entries = arguments.pop("accessEntries")
    assert arguments == {
        "name": "chat",
        "version": "1.35",
        "serviceRole": {"resource": graph.named("chat-service-role").urn},
        "vpcId": "vpc-1",
        "privateSubnetIds": ["subnet-1", "subnet-2"],
        "authenticationMode": "API",
        "endpointPrivateAccess": True,
        "endpointPublicAccess": True,
        "publicAccessCidrs": ["203.0.113.0/24"],
        "kubernetesServiceIpAddressRange": "172.20.0.0/16",
        "enabledClusterLogTypes": ["api", "audit", "authenticator", "controllerManager", "scheduler"],
        "encryptionConfigKeyArn": KEY,
        "deletionProtection": True,
        "providerCredentialOpts": {"profileName": "research"},
        "createOidcProvider": True,
        "skipDefaultNodeGroup": True,
        "skipDefaultSecurityGroups": True,
        "createInstanceRole": False,
        "bootstrapSelfManagedAddons": False,
        "useDefaultVpcCni": True,
        # The SDK adds the conflict rules; an add-on that is not made has no conflicts.
        "kubeProxyAddonOptions": {
            "enabled": False,
            "resolveConflictsOnCreate": "OVERWRITE",
            "resolveConflictsOnUpdate": "OVERWRITE",
        },
        "corednsAddonOptions": {
            "enabled": False,
            "resolveConflictsOnCreate": "OVERWRITE",
            "resolveConflictsOnUpdate": "OVERWRITE",
        },
        "tags": {"team": "ml", "cost-centre": "42", "Name": "chat"},
    }
    assert {entry["principalArn"]: entry["accessPolicies"]["cluster"] for entry in entries.values()} == {
        ADMIN: {
            "policyArn": "arn:aws:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy",
            "accessScope": {"type": "cluster"},
        },
        VIEWER: {
            "policyArn": "arn:aws:eks::aws:cluster-access-policy/AmazonEKSViewPolicy",
            "accessScope": {"type": "cluster"},
        },
    }
    assert all(entry["tags"] == FULL.tags for entry in entries.values())


def test_the_logs_of_the_control_plane_have_an_end() -> None:
    graph = the_cluster(log_retention_days=7)
    (group,) = graph.of_type("aws:cloudwatch/logGroup:LogGroup")
    assert (group.inputs["name"], group.inputs["retentionInDays"]) == ("/aws/eks/chat/cluster", 7)
    assert waits_for(graph, "chat-control-plane", group.name), "EKS would make the group, and another one after its deletion"
    assert not the_cluster(log_types=[]).of_type("aws:cloudwatch/logGroup:LogGroup")


@pytest.mark.thorough
@pytest.mark.parametrize("region", ["us-gov-west-1", "cn-north-1"])
def test_policies_are_of_the_regions_partition(region: str) -> None:
    settings = StackSettings.model_validate({"region": region})
    assert f'"arn:{settings.partition}:iam' in the_whole_cluster(settings).to_json()
    assert '"arn:aws:eks' not in the_cluster(settings, admins=[ADMIN]).to_json()
    assert '"arn:aws:iam::aws:' not in the_whole_cluster(settings).to_json()


def test_the_longest_cluster_name_still_makes_a_legal_role_name() -> None:
    name = "c" * 40

    def build() -> None:
        EksCluster(name, cluster_spec(), network=a_network(), settings=PLAIN)

    (role,) = record(build).of_type("aws:iam/role:Role")
    assert len(role.name) + len("-1234567") <= 64, "the AWS provider adds eight characters and does not shorten"


# -- add-ons --------------------------------------------------------------------------------------------------------------------


def test_the_storage_driver_waits_for_its_permissions() -> None:
    graph = the_whole_cluster()
    assert waits_for(graph, "chat-addons-aws-ebs-csi-driver", "chat-addons-ebs-csi-policy")
    assert waits_for(graph, "chat-addons-aws-ebs-csi-driver", "chat-addons-ebs-csi-key")
    assert graph.named("chat-addons-aws-ebs-csi-driver").inputs["podIdentityAssociations"] == [
        {"roleArn": "<chat-addons-ebs-csi.arn>", "serviceAccount": "ebs-csi-controller-sa"}
    ]


@pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute"])
def test_a_tainted_core_pool_is_refused(effect: Any) -> None:
    taint = Taint("nvidia.com/gpu", "true", effect)
    faults: list[str] = []

    def build() -> None:
        control_plane = EksCluster("chat", cluster_spec(), network=a_network(), settings=PLAIN)
        with pytest.raises(SpecError) as caught:
            ClusterAddons("a", ClusterAddonsSpec(), cluster=control_plane, core=a_core_pool(control_plane, taints=(taint,)))
        faults.append(str(caught.value))

    record(build)
    assert (
        f"pools.core.taints: CoreDNS and the EBS CSI driver would find no node; given: nvidia.com/gpu=true:{effect}" in faults[0]
    )


def test_pods_need_a_cluster_with_dns() -> None:
    def build() -> None:
        control_plane = EksCluster("chat", cluster_spec(), network=a_network(), settings=PLAIN)
        with pytest.raises(SpecError, match=r"cluster: .* wrong type; .*it lacks pods_ready; Cluster: An EKS cluster whose"):
            NvidiaDevicePlugin("plugin", {}, cluster=control_plane)  # pyright: ignore[reportArgumentType]

    record(build)


# -- the Kubernetes provider and the handles ------------------------------------------------------------------------------------


def test_the_provider_reaches_this_cluster_with_the_stacks_profile() -> None:
    provider = the_whole_cluster().named("chat-k8s")
    endpoint = "<chat-control-plane.eksCluster.endpoint>"
    authority = "<chat-control-plane.eksCluster.certificateAuthority.data>"
    assert provider.inputs["kubeconfig"] == plan.kubeconfig("chat", endpoint, authority, "us-west-2", "research")
    assert provider.inputs["clusterIdentifier"] == "chat", "without it a new endpoint would replace every object"
    assert provider.inputs["enableServerSideApply"] == "true"
    assert "deleteUnreachable" not in provider.inputs, "a lost connection must not empty the state"


def test_names_are_known_in_a_preview_where_no_output_is() -> None:
    graph = the_whole_cluster(strict=True)
    assert {addon.inputs["clusterName"] for addon in graph.of_type("aws:eks/addon:Addon")} == {"chat"}
    assert graph.named("chat-k8s").inputs["kubeconfig"] == "<unknown>"


def test_clusters_of_one_name_in_two_regions_have_a_provider_each() -> None:
    def build() -> None:
        for region in ("us-east-1", "us-west-2"):
            theirs = eks.Cluster(f"chat-{region}", name="chat")
            ExistingCluster.from_eks(theirs, name="chat", version="1.35", settings=StackSettings(region=region))

    found = record(build).of_type("pulumi:providers:kubernetes")
    assert sorted((one.name, one.inputs["clusterIdentifier"]) for one in found if not one.is_default_provider) == [
        ("chat-us-east-1-k8s", "chat"),
        ("chat-us-west-2-k8s", "chat"),
    ]


def test_a_team_can_bring_a_cluster_of_its_own() -> None:
    def build() -> None:
        theirs = eks.Cluster("theirs", name="legacy")
        cluster = ExistingCluster.from_eks(theirs, name="legacy", version="1.34", settings=FULL, service_cidr="10.100.0.0/16")
        addons = ClusterAddons("a", ClusterAddonsSpec(), cluster=cluster, core=a_core_pool(cluster))
        pulumi.export("group", addons.security_group_id)
        pulumi.export("service_cidr", addons.service_cidr)

    graph = record(build)
    assert graph.outputs == {
        "group": "<theirs.eksCluster.vpcConfig.clusterSecurityGroupId>",
        "service_cidr": "10.100.0.0/16",
    }
    assert graph.named("theirs-k8s").inputs["clusterIdentifier"] == "legacy"
    assert graph.named("a-coredns").inputs["addonVersion"] == versions.addon("coredns", "1.34")
    assert waits_for(graph, "core-pool", "theirs")
    assert waits_for(graph, "a-storage-class", "theirs")


def test_every_cluster_is_a_handle_with_the_same_facts() -> None:
    found: list[tuple[str, str, str, StackSettings]] = []

    def build() -> None:
        control_plane = EksCluster("chat", cluster_spec(version="1.36"), network=a_network(), settings=FULL)
        addons = ClusterAddons("a", ClusterAddonsSpec(), cluster=control_plane, core=a_core_pool(control_plane))
        existing = ExistingCluster(
            name="chat",
            version="1.36",
            settings=FULL,
            provider=control_plane.provider,
            endpoint="https://x",
            certificate_authority="Q0E=",
            security_group_id="sg-1",
        )
        handles: list[ControlPlane] = [control_plane, addons, existing]
        found.extend((handle.name, handle.version, handle.service_cidr, handle.settings) for handle in handles)
        assert addons.provider is control_plane.provider

    record(build)
    assert found == [("chat", "1.36", "172.20.0.0/16", FULL)] * 3
