"""Vectors of the rules about recorded graphs: small graphs with resources as a program registers them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from eks_inference_tools.reading.graph_facts import GraphFacts
from stackgraph.graph.document import Graph, Resource
from vectors import Vector

PREFIX = "urn:pulumi:test::test::"


def urn_of(type_: str, name: str) -> str:
    return f"{PREFIX}{type_}::{name}"


def resource(type_: str, name: str, inputs: Mapping[str, Any] | None = None, /, **fields: Any) -> Resource:
    return Resource(urn=urn_of(type_, name), type=type_, name=name, inputs=inputs or {}, **fields)


def graph(*resources: Resource) -> GraphFacts:
    return GraphFacts(Graph("test", "test", tuple(sorted(resources, key=lambda one: one.urn))))


# -- Kubernetes ------------------------------------------------------------------------------------------------------------------

WHERE = "app"
LABELS = {"app": "server"}


def kubernetes(type_: str, name: str, body: Mapping[str, Any] | None = None, **metadata: Any) -> Resource:
    return resource(f"kubernetes:{type_}", name, {"metadata": {"name": name, "namespace": WHERE, **metadata}, **(body or {})})


NAMESPACE = "kubernetes:core/v1:Namespace"


def namespace(**labels: str) -> Resource:
    return kubernetes("core/v1:Namespace", WHERE, labels=labels)


def container(**changes: Any) -> dict[str, Any]:
    return {"name": "server", "image": "registry.example/server:1.2.3", **changes}


def pods(kind: str = "Deployment", *, spec: Mapping[str, Any] | None = None, **pod: Any) -> Resource:
    """Returns an object of ``apps/v1`` whose pods have one valid container, with changes."""
    template = {"metadata": {"labels": LABELS}, "spec": {"containers": [container()], **pod}}
    return kubernetes(f"apps/v1:{kind}", "server", {"spec": {"template": template, **(spec or {})}})


def server(**changes: Any) -> Resource:
    return pods(containers=[container(**changes)])


def checked(**pod: Any) -> Resource:
    """Returns a Deployment that an API server takes, with changes to its pods."""
    return pods(spec={"selector": {"matchLabels": LABELS}}, **pod)


def asking(amounts: Mapping[str, Any], **pod: Any) -> Resource:
    return pods(containers=[container(resources={"limits": dict(amounts)})], **pod)


def probed(**probe: Any) -> Resource:
    return server(resources={"limits": {"nvidia.com/gpu": 1}}, startupProbe={"periodSeconds": 10, **probe})


def service(**spec: Any) -> Resource:
    good = {"selector": LABELS, "ports": [{"port": 80, "targetPort": "http"}]}
    return kubernetes("core/v1:Service", "server", {"spec": {**good, **spec}})


def listening(**changes: Any) -> Resource:
    return server(**{"ports": [{"name": "http", "containerPort": 8000}], **changes})


def balanced(paths: int) -> Resource:
    """Returns an Ingress of a group with so many paths."""
    backend = {"service": {"name": "server", "port": {"number": 80}}}
    rules = [{"http": {"paths": [{"path": f"/{number}", "pathType": "Exact", "backend": backend} for number in range(paths)]}}]
    type_, group = "networking.k8s.io/v1:Ingress", {"alb.ingress.kubernetes.io/group.name": "g"}
    return kubernetes(type_, f"of-{paths}", {"spec": {"rules": rules}}, annotations=group)


def budget(name: str = "server", **spec: Any) -> Resource:
    return kubernetes("policy/v1:PodDisruptionBudget", name, {"spec": {"selector": {"matchLabels": LABELS}, **spec}})


def storage_class(name: str) -> Resource:
    default = {"storageclass.kubernetes.io/is-default-class": "true"}
    return resource("kubernetes:storage.k8s.io/v1:StorageClass", name, {"metadata": {"name": name, "annotations": default}})


def autoscaler(name: str = "server") -> Resource:
    target = {"kind": "Deployment", "name": "server"}
    return kubernetes(
        "autoscaling/v2:HorizontalPodAutoscaler", name, {"spec": {"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 4}}
    )


def ray_service(name: str = "llama", **head: Any) -> Resource:
    head_group = {"template": {"spec": {"containers": [container()]}}, **head}
    return kubernetes("ray.io/v1:RayService", name, {"spec": {"rayClusterConfig": {"headGroupSpec": head_group}}})


def chart(chart_: str = "oci://registry.example/charts/kuberay-operator", version: Any = "1.7.0", **values: Any) -> Resource:
    return resource("kubernetes:helm.sh/v3:Release", "release", {"chart": chart_, "version": version, "values": values})


NEURON_CHART = "oci://public.ecr.aws/neuron/neuron-helm-chart"


def neuron_daemon(what: str, **pod: Any) -> Resource:
    image = f"public.ecr.aws/neuron/{what}:1.0.0"
    template = {"spec": {"containers": [{"name": what, "image": image}], "tolerations": [{"operator": "Exists"}], **pod}}
    return kubernetes("apps/v1:DaemonSet", what, {"spec": {"template": template}})


SCHEDULER_CONFIGURATION = "kind: KubeSchedulerConfiguration\nprofiles:\n- schedulerName: my-scheduler\n"


def config_map(**data: str) -> Resource:
    return kubernetes("core/v1:ConfigMap", "config", {"data": data})


# -- nodes -----------------------------------------------------------------------------------------------------------------------

NEURON_TAINT = {"key": "aws.amazon.com/neuron", "value": "true", "effect": "NO_SCHEDULE"}
TOLERATION = {"key": "aws.amazon.com/neuron", "operator": "Exists"}


def cluster(**changes: Any) -> Resource:
    network = {"endpointPublicAccess": True, "publicAccessCidrs": ["203.0.113.0/24"], **changes}
    return resource("aws:eks/cluster:Cluster", "cluster", {"version": "1.35", "vpcConfig": network})


def node_group(template: Resource | None = None, name: str = "core", **changes: Any) -> Resource:
    good = {
        "amiType": "AL2023_x86_64_STANDARD",
        "instanceTypes": ["m5.2xlarge"],
        "labels": {"pool": "core"},
        "releaseVersion": "1.35.6-20260714",
        "scalingConfig": {"minSize": 1, "desiredSize": 1, "maxSize": 1},
        "subnetIds": ["subnet-1"],
        "version": "1.35",
    }
    if template is None:
        return resource("aws:eks/nodeGroup:NodeGroup", name, {**good, **changes})
    inputs = {**good, "launchTemplate": {"id": f"<{template.name}.id>", "version": "<unknown>"}, **changes}
    return resource("aws:eks/nodeGroup:NodeGroup", name, inputs, property_dependencies={"launchTemplate": (template.urn,)})


def trn2_group(template: Resource | None = None, **changes: Any) -> Resource:
    good = {
        "amiType": "AL2023_x86_64_NEURON",
        "instanceTypes": ["trn2.48xlarge"],
        "labels": {"pool": "trn2"},
        "taints": [NEURON_TAINT],
    }
    return node_group(template, "trn2", **{**good, **changes})


def on_trn2(amounts: Mapping[str, Any], **pod: Any) -> Resource:
    """Returns pods that select the trn2 group and request resources of its nodes."""
    return asking(amounts, **{"nodeSelector": {"pool": "trn2"}, "tolerations": [TOLERATION], **pod})


def template(**changes: Any) -> Resource:
    return resource("aws:ec2/launchTemplate:LaunchTemplate", "template", changes)


EFA_GROUP = "aws:ec2/securityGroup:SecurityGroup"


def efa_template(interfaces: int = 16, **changes: Any) -> Resource:
    inputs = {
        "networkInterfaces": [{"interfaceType": "efa", "securityGroups": ["<efa.id>"]} for _ in range(interfaces)],
        "placement": {"groupName": "together"},
        **changes,
    }
    group = urn_of(EFA_GROUP, "efa")
    return resource(
        "aws:ec2/launchTemplate:LaunchTemplate", "template", inputs, property_dependencies={"networkInterfaces": (group,)}
    )


def security_group(*, ingress: Sequence[Any] = (), egress: Sequence[Any] = ()) -> Resource:
    return resource(EFA_GROUP, "efa", {"ingress": list(ingress), "egress": list(egress)})


TO_ITSELF = {"protocol": "-1", "fromPort": 0, "toPort": 0, "self": True}
TO_ALL = {"protocol": "-1", "fromPort": 0, "toPort": 0, "cidrBlocks": ["0.0.0.0/0"]}


def efa_nodes(group: Resource, **changes: Any) -> GraphFacts:
    made = efa_template()
    return graph(cluster(), trn2_group(made, **changes), made, group)


def efa_pods(interfaces: int, devices: int) -> GraphFacts:
    made = efa_template()
    asked = {"aws.amazon.com/neuron": devices, "vpc.amazonaws.com/efa": interfaces}
    return graph(cluster(), trn2_group(made), made, on_trn2(asked))


# -- AWS -------------------------------------------------------------------------------------------------------------------------

BUCKET = "aws:s3/bucket:Bucket"


def public_access_block(**changes: bool) -> Resource:
    settings = dict.fromkeys(("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets"), True)
    return resource(
        "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock",
        "block",
        {"bucket": "<weights.id>", **settings, **changes},
        property_dependencies={"bucket": (urn_of(BUCKET, "weights"),)},
    )


def policy(action: str, on: str) -> Resource:
    document = f'{{"Statement":[{{"Effect":"Allow","Action":["{action}"],"Resource":"{on}"}}]}}'
    return resource("aws:iam/rolePolicy:RolePolicy", "policy", {"policy": document})


def ingress_rule(port: int, source: str) -> Resource:
    inputs = {"type": "ingress", "protocol": "tcp", "fromPort": port, "toPort": port, "cidrBlocks": [source]}
    return resource("aws:ec2/securityGroupRule:SecurityGroupRule", "rule", inputs)


def repairing(*beside: Resource) -> GraphFacts:
    given = {"nodeRepairConfig": {"enabled": True}}
    return graph(cluster(), resource("aws:eks/nodeGroup:NodeGroup", "nodes", given), *beside)


def associated(*beside: Resource) -> GraphFacts:
    """Returns a cluster whose pods get a role by Pod Identity, and resources beside it."""
    given = {"clusterName": "cluster", "namespace": WHERE, "serviceAccount": "server"}
    return graph(cluster(), resource("aws:eks/podIdentityAssociation:PodIdentityAssociation", "identity", given), *beside)


def addon(name: str, **configuration: Any) -> Resource:
    values = {"configurationValues": json.dumps(configuration)} if configuration else {}
    return resource("aws:eks/addon:Addon", name, {"clusterName": "cluster", "addonName": name, **values})


def nodes_in(vpc: str) -> GraphFacts:
    """Returns a cluster in the VPC "ours", and a node group in a subnet of this VPC."""
    made = {name: resource("aws:ec2/vpc:Vpc", name) for name in ("ours", "theirs")}
    subnets = {
        name: resource("aws:ec2/subnet:Subnet", f"{name}-a", property_dependencies={"vpcId": (one.urn,)})
        for name, one in made.items()
    }
    control_plane = replace(cluster(), property_dependencies={"vpcConfig": (subnets["ours"].urn,)})
    nodes = replace(node_group(), property_dependencies={"subnetIds": (subnets[vpc].urn,)})
    return graph(*made.values(), *subnets.values(), control_plane, nodes)


def with_entry(mode: str | None) -> GraphFacts:
    """Returns a cluster with an access entry and this authentication mode."""
    made = cluster()
    inputs = {**made.inputs, "accessConfig": {"authenticationMode": mode}}
    entry = resource("aws:eks/accessEntry:AccessEntry", "admins", {"clusterName": "cluster"})
    return graph(resource(made.type, made.name, inputs), entry)


def subnet_in(zone: str) -> GraphFacts:
    """Returns a subnet in a zone, whose AWS provider is for us-west-2."""
    provider = resource("pulumi:providers:aws", "west", {"region": "us-west-2"})
    subnet = resource("aws:ec2/subnet:Subnet", "private", {"availabilityZoneId": zone}, provider=provider.urn)
    return graph(provider, subnet)


BLOCK_TEMPLATE = {
    "instanceType": "trn2.48xlarge",
    "instanceMarketOptions": {"marketType": "capacity-block"},
    "capacityReservationSpecification": {"capacityReservationTarget": {"capacityReservationId": "cr-1"}},
}


def capacity_block(**changes: Any) -> GraphFacts:
    made = template(**BLOCK_TEMPLATE)
    return graph(trn2_group(made, **{"capacityType": "CAPACITY_BLOCK", "instanceTypes": None, **changes}), made)


def ebs(encrypted: Any) -> GraphFacts:
    return graph(template(blockDeviceMappings=[{"deviceName": "/dev/xvda", "ebs": {"encrypted": encrypted, "volumeSize": 100}}]))


def budgeted(usd: int) -> GraphFacts:
    """A control plane, which costs $0.10 an hour, in the budget of its stack."""
    provider = resource("pulumi:providers:aws", "west", {"region": "us-west-2"})
    platform = resource("eks-inference:index:InferencePlatform", "small", {"budgetUsdPerMonth": usd})
    made = resource("aws:eks/cluster:Cluster", "small", {"version": "1.35"}, provider=provider.urn, parent=platform.urn)
    return graph(provider, platform, made)


def tagged(tags: Mapping[str, str], type_: str = "aws:iam/role:Role") -> GraphFacts:
    return graph(resource(type_, "made", {"tags": tags}))


def inline_policies(*sizes: int) -> list[Resource]:
    """Returns policies of one role, of so many characters that are no white space."""
    role = {"property_dependencies": {"role": (urn_of("aws:iam/role:Role", "web"),)}}
    return [
        resource("aws:iam/rolePolicy:RolePolicy", f"p{place}", {"role": "<web.name>", "policy": " \n" + "x" * size}, **role)
        for place, size in enumerate(sizes)
    ]


ISOLATED = (
    resource("aws:ec2/vpc:Vpc", "net"),
    resource("aws:ec2/vpcEndpoint:VpcEndpoint", "s3", {"serviceName": "com.amazonaws.us-west-2.s3"}),
    resource(
        "aws:eks/cluster:Cluster",
        "cluster",
        {"version": "1.35"},
        property_dependencies={"vpcConfig": (urn_of("aws:ec2/vpc:Vpc", "net"),)},
    ),
)
"""A cluster in a network without a route to the internet."""


def claim_of(**counts: int) -> Resource:
    """Returns a template of a claim for so many devices of each class."""
    requests = [
        {"name": name, "exactly": {"deviceClassName": f"{name}.example", "count": count}} for name, count in counts.items()
    ]
    body = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate"}
    return kubernetes(
        "resource.k8s.io/v1:ResourceClaimTemplate", "half", {**body, "spec": {"spec": {"devices": {"requests": requests}}}}
    )


def claiming(*others: Resource, device_class: str = "neuron.aws.com", **pod: Any) -> GraphFacts:
    """Returns pods that claim one device, beside other resources."""
    request = {"name": "devices", "exactly": {"deviceClassName": device_class, "count": 1}}
    body = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate"}
    template = {**body, "spec": {"spec": {"devices": {"requests": [request]}}}}
    claims = {"resourceClaims": [{"name": "devices", "resourceClaimTemplateName": "half"}]}
    return graph(kubernetes("resource.k8s.io/v1:ResourceClaimTemplate", "half", template), pods(**claims, **pod), *others)


def auto_mode(on: bool = True) -> Resource:
    return resource("aws:eks/cluster:Cluster", "cluster", {"version": "1.35", "computeConfig": {"enabled": on}})


VECTORS = {
    "DRA009": Vector(
        lambda: claiming(auto_mode(), node_group(), nodeSelector={"pool": "core"}),
        lambda: claiming(auto_mode(), node_group(), nodeSelector={"pool": "other"}),
        "Auto Mode of cluster starts no node for the claims of Deployment app/server",
    ),
    "DRA008": Vector(
        lambda: graph(claim_of(gpu=8, efa=24)),
        lambda: graph(claim_of(gpu=8, efa=32)),
        "ResourceClaimTemplate half asks for 40 devices",
    ),
    "COST001": Vector(
        lambda: budgeted(80),
        lambda: budgeted(70),
        "the stack costs $73 a month as deployed",
    ),
    "AWS012": Vector(
        lambda: tagged({"team": "search", "Name": "a b_c.d:e/f=g+h@i-j"}),
        lambda: tagged({f"t{number}": "" for number in range(51)}),
        "51 tags, at most 50",
    ),
    "AWS013": Vector(
        lambda: graph(resource("aws:s3/bucket:Bucket", "weights")),
        lambda: graph(resource("aws:s3/bucket:Bucket", "w", {"bucket": "a..b"})),
        "s3.Bucket w: the API does not accept bucket",
    ),
    "AWS014": Vector(
        lambda: graph(resource("aws:iam/role:Role", "r" * 56, {"assumeRolePolicy": "{}"})),
        lambda: graph(resource("aws:iam/role:Role", "r" * 57, {"assumeRolePolicy": "{}"})),
        "the API does not accept name",
    ),
    "AWS015": Vector(
        lambda: graph(*inline_policies(5000, 5000)),
        lambda: graph(*inline_policies(5000, 5241)),
        "the inline policies of role <web.name> have 10241 characters",
    ),
    "K8S016": Vector(
        lambda: graph(kubernetes("batch/v1:Job", "j" * 63)),
        lambda: graph(kubernetes("batch/v1:Job", "j" * 64)),
        "has 64 characters",
    ),
    "K8S019": Vector(
        lambda: graph(checked(terminationGracePeriodSeconds=0)),
        lambda: graph(checked(terminationGracePeriodSecond=0)),
        "Deployment app/server: the API server does not take this spec.template.spec.terminationGracePeriodSecond",
    ),
    "K8S001": Vector(
        lambda: graph(server()),
        lambda: graph(server(image="registry.example:5000/server:latest")),
        "Deployment app/server, container server: the image has the moving tag 'latest'",
    ),
    "K8S002": Vector(
        lambda: graph(cluster(), node_group(), pods(nodeSelector={"pool": "core"})),
        lambda: graph(cluster(), node_group(), pods(nodeSelector={"pool": "cores"})),
        "matches no pool; closest, m5.2xlarge of pool core: needs label pool=cores, nodes have core",
    ),
    "K8S003": Vector(
        lambda: graph(cluster(), trn2_group(), on_trn2({"aws.amazon.com/neuron": 16, "cpu": "160", "memory": "1500Gi"})),
        lambda: graph(cluster(), trn2_group(), on_trn2({"aws.amazon.com/neuron": 32})),
        "requests 32 aws.amazon.com/neuron, trn2.48xlarge of pool trn2 has 16",
    ),
    "K8S022": Vector(
        lambda: graph(cluster(), trn2_group(), on_trn2({"aws.amazon.com/neuron": 16, "cpu": "160"})),
        lambda: graph(cluster(), trn2_group(), on_trn2({"aws.amazon.com/neuron": 16, "cpu": "160"}, spec={"replicas": 3})),
        "there is no room for 2 pods of",
    ),
    "K8S004": Vector(
        lambda: graph(server(env=[{"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hf", "key": "token"}}}])),
        lambda: graph(server(env=[{"name": "HF_TOKEN", "value": "s3cr3t-t0ken"}])),
        "variable HF_TOKEN: a literal of 12 characters",
    ),
    "K8S005": Vector(
        lambda: graph(storage_class("gp3")),
        lambda: graph(storage_class("gp2"), storage_class("gp3")),
        "2 StorageClasses are the default: gp2, gp3",
    ),
    "K8S006": Vector(
        lambda: graph(service(type="LoadBalancer", loadBalancerSourceRanges=["203.0.113.0/24"])),
        lambda: graph(service(type="LoadBalancer")),
        "Service app/server is open to the whole internet",
    ),
    "K8S007": Vector(
        lambda: graph(pods(), autoscaler()),
        lambda: graph(pods(spec={"replicas": 2}), autoscaler()),
        "Deployment app/server sets replicas to 2, and HorizontalPodAutoscaler server changes them",
    ),
    "K8S008": Vector(
        lambda: graph(namespace(), service(), listening()),
        lambda: graph(namespace(), service(), listening(ports=[{"name": "metrics", "containerPort": 8002}])),
        "Service app/server leads to port http, which Deployment app/server does not have",
    ),
    "K8S009": Vector(
        lambda: graph(namespace(**{"pod-security.kubernetes.io/enforce": "privileged"}), pods(hostNetwork=True)),
        lambda: graph(namespace(), pods(hostNetwork=True)),
        "has host privileges (hostNetwork), and its namespace has no level",
    ),
    "K8S010": Vector(
        lambda: graph(server(command=["python", "/scripts/pip_install_report.py"])),
        lambda: graph(server(command=["sh", "-c", "pip install -q numpy && python client.py"])),
        "installs software when it starts",
    ),
    "K8S011": Vector(
        lambda: graph(server(resources={"requests": {"nvidia.com/gpu": 1}, "limits": {"nvidia.com/gpu": "1"}})),
        lambda: graph(server(resources={"requests": {"nvidia.com/gpu": 1}, "limits": {"nvidia.com/gpu": 2}})),
        "nvidia.com/gpu has a request that differs from its limit",
    ),
    "K8S012": Vector(
        lambda: graph(probed(failureThreshold=180)),
        lambda: graph(probed(failureThreshold=12)),
        "uses accelerators, and its startupProbe kills it after 120 s",
    ),
    "K8S023": Vector(
        lambda: graph(server(image="vllm/vllm-openai:v0.30.0", resources={"limits": {"memory": "2Gi"}})),
        lambda: graph(server(image="vllm/vllm-openai:v0.30.0", resources={"limits": {"memory": "500M"}})),
        "is killed for memory before it is up",
    ),
    "K8S025": Vector(
        lambda: graph(cluster(), kubernetes("batch/v1:CronJob", "every")),
        lambda: graph(cluster(), kubernetes("batch/v1beta1:CronJob", "every")),
        "serves no CronJob of batch/v1beta1 (gone since 1.25)",
    ),
    "K8S024": Vector(
        lambda: graph(cluster(), node_group(instanceTypes=["m7g.large"]), server(image="python:3.13")),
        lambda: graph(cluster(), node_group(instanceTypes=["m7g.large"]), server(image="ghcr.io/vllm-project/guidellm:v0.7.3")),
        "the image is built for x86-64 alone, and its node may have Arm processors",
    ),
    "K8S013": Vector(
        lambda: graph(cluster(), trn2_group(), on_trn2({"aws.amazon.com/neuron": 16}), neuron_daemon("neuron-device-plugin")),
        lambda: graph(cluster(), trn2_group(), on_trn2({"aws.amazon.com/neuron": 16})),
        "but nothing offers it on trn2.48xlarge of pool trn2",
    ),
    "K8S014": Vector(
        lambda: graph(
            cluster(), node_group(), pods(schedulerName="my-scheduler"), config_map(**{"config.yaml": SCHEDULER_CONFIGURATION})
        ),
        lambda: graph(cluster(), node_group(), pods(schedulerName="my-schedular")),
        "names the scheduler my-schedular, but nothing in the graph has that name",
    ),
    "K8S015": Vector(
        lambda: graph(ray_service()),
        lambda: graph(ray_service(headService={"metadata": {"name": "vllm"}})),
        "RayService app/llama: it sets the name of its head Service",
    ),
    "EKS001": Vector(
        lambda: associated(addon("eks-pod-identity-agent")),
        lambda: associated(addon("vpc-cni")),
        "identity gives app/server a role, but its cluster has no add-on eks-pod-identity-agent",
    ),
    "EKS006": Vector(lambda: nodes_in("ours"), lambda: nodes_in("theirs"), "core starts nodes in another VPC than the cluster's"),
    "EKS005": Vector(
        lambda: repairing(addon("eks-node-monitoring-agent")),
        lambda: repairing(addon("vpc-cni")),
        "nodes repairs nodes, but nothing reports failed accelerators",
    ),
    "EKS002": Vector(
        lambda: with_entry("API_AND_CONFIG_MAP"),
        lambda: with_entry(None),
        "EKS refuses eks.AccessEntry admins: the authentication mode of cluster cluster is CONFIG_MAP",
    ),
    "EKS003": Vector(
        lambda: subnet_in("usw2-az4"),
        lambda: subnet_in("use1-az4"),
        "the AWS provider makes 1 subnet (private) in us-west-2, with zones of us-east-1",
    ),
    "HEL001": Vector(
        lambda: graph(chart()),
        lambda: graph(chart(version="^1.7.0")),
        "has no exact version",
    ),
    "HEL002": Vector(
        lambda: graph(chart(replicas=1), addon("coredns", replicaCount=3)),
        lambda: graph(chart(replicas=1), addon("aws-ebs-csi-driver", controller={"replicaCount": 0})),
        "add-on aws-ebs-csi-driver runs no pod of what controller.replicaCount counts",
    ),
    "K8S021": Vector(
        lambda: graph(pods(spec={"replicas": 2}), budget(minAvailable=1), budget("other", maxUnavailable="50%")),
        lambda: graph(pods(spec={"replicas": 2}), budget(minAvailable="100%")),
        "PodDisruptionBudget app/server lets no pod of Deployment app/server go: minAvailable 100% of 2",
    ),
    "K8S020": Vector(
        lambda: graph(kubernetes("core/v1:ConfigMap", "server", labels=LABELS)),
        lambda: graph(kubernetes("core/v1:ConfigMap", "server", labels={}, finalizers=[])),
        "ConfigMap app/server: the API server drops the empty finalizers, labels",
    ),
    "K8S018": Vector(
        lambda: graph(namespace()),
        lambda: graph(
            resource(NAMESPACE, "a", {"metadata": {"name": "x"}}), resource(NAMESPACE, "b", {"metadata": {"name": "x"}})
        ),
        "Namespace x is declared by a and b",
    ),
    "NET006": Vector(
        lambda: graph(*ISOLATED, server(image="registry.corp.example/vllm:1")),
        lambda: graph(*ISOLATED, server(image="vllm/vllm:1")),
        "docker.io is on the internet, and the nodes have no way there",
    ),
    "K8S017": Vector(
        lambda: graph(server(env=[{"name": "WEBUI_AUTH", "value": "true"}])),
        lambda: graph(server(env=[{"name": "WEBUI_AUTH", "value": "False"}])),
        "WEBUI_AUTH: False: whoever reaches it is the administrator",
    ),
    "NEU010": Vector(
        lambda: graph(neuron_daemon("neuron-device-plugin"), chart()),
        lambda: graph(neuron_daemon("neuron-device-plugin"), neuron_daemon("neuron-dra-driver")),
        "DaemonSet app/neuron-device-plugin and DaemonSet app/neuron-dra-driver offer the same Neuron devices",
    ),
    "NEU011": Vector(
        lambda: graph(trn2_group(), on_trn2({"aws.amazon.com/neuron": 16})),
        lambda: graph(trn2_group(), on_trn2({"aws.amazon.com/neuroncore": 64})),
        "requests aws.amazon.com/neuroncore, which counts differently on trn2.48xlarge",
    ),
    "NEU017": Vector(
        lambda: graph(cluster(), server(image="public.ecr.aws/eks-distro/kubernetes/kube-scheduler:v1.35.6-eks-1-35-13")),
        lambda: graph(cluster(), server(image="public.ecr.aws/eks-distro/kubernetes/kube-scheduler:v1.28.5-eks-1-28-9")),
        "the kube-scheduler has Kubernetes version 1.28, the cluster 1.35",
    ),
    "NEU018": Vector(
        lambda: graph(
            chart(
                NEURON_CHART, npd={"serviceAccount": {"annotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/npd"}}}
            )
        ),
        lambda: graph(chart(NEURON_CHART)),
        "neuron-healthcheck-system/node-problem-detector has no role",
    ),
    "NEU026": Vector(
        lambda: graph(trn2_group(), on_trn2({"aws.amazon.com/neuron": 8}, schedulerName="my-scheduler")),
        lambda: graph(trn2_group(), on_trn2({"aws.amazon.com/neuron": 8})),
        "lets the kubelet choose its 8 devices of trn2.48xlarge",
    ),
    "EFA004": Vector(
        lambda: efa_pods(interfaces=16, devices=16),
        lambda: efa_pods(interfaces=8, devices=16),
        "requests 8 EFA interfaces, but its share of trn2.48xlarge of pool trn2 is 16",
    ),
    "EFA005": Vector(
        lambda: efa_nodes(security_group(ingress=[TO_ITSELF], egress=[TO_ITSELF, TO_ALL])),
        lambda: efa_nodes(security_group(ingress=[TO_ITSELF], egress=[TO_ALL])),
        "no security group of its template template allows it: efa: egress to itself missing",
    ),
    "AWS001": Vector(
        lambda: graph(cluster()),
        lambda: graph(cluster(publicAccessCidrs=None)),
        "the API of cluster cluster is open to the whole internet",
    ),
    "AWS002": Vector(
        lambda: graph(ingress_rule(443, "10.0.0.0/16")),
        lambda: graph(ingress_rule(443, "0.0.0.0/0")),
        "rule admits the whole internet: tcp 443",
    ),
    "AWS003": Vector(
        lambda: graph(resource(BUCKET, "weights"), public_access_block()),
        lambda: graph(resource(BUCKET, "weights"), public_access_block(blockPublicPolicy=False)),
        "bucket weights can be open to the public: blockPublicPolicy off",
    ),
    "KEP001": Vector(
        lambda: graph(resource(BUCKET, "weights")),
        lambda: graph(resource(BUCKET, "weights", options={"retainOnDelete": True})),
        "`pulumi destroy` leaves s3.Bucket weights",
    ),
    "EKS004": Vector(
        lambda: graph(cluster()),
        lambda: graph(resource("aws:eks/cluster:Cluster", "cluster", {"version": "1.33"})),
        "standard support of Kubernetes 1.33 ended on 2026-07-29",
    ),
    "AWS004": Vector(
        lambda: graph(cluster(), node_group()),
        lambda: graph(cluster(), node_group(releaseVersion="1.34.2-20251217")),
        "the AMI release 1.34.2-20251217 is not for Kubernetes 1.35",
    ),
    "AWS005": Vector(lambda: ebs("true"), lambda: ebs(None), "launch template template, /dev/xvda is not encrypted"),
    "AWS006": Vector(
        lambda: graph(resource("aws:iam/user:User", "robot")),
        lambda: graph(resource("aws:iam/accessKey:AccessKey", "robot", {"user": "robot"})),
        "robot is a static access key",
    ),
    "AWS007": Vector(
        lambda: graph(policy("s3:GetObject", "*")),
        lambda: graph(policy("*", "*")),
        "allows every action on every resource",
    ),
    "AWS008": Vector(
        lambda: graph(node_group()),
        lambda: graph(node_group(scalingConfig={"minSize": 4, "desiredSize": 2, "maxSize": 8})),
        "node group core cannot have 2 nodes between 4 and 8",
    ),
    "AWS009": Vector(
        capacity_block,
        lambda: capacity_block(instanceTypes=["trn2.48xlarge"]),
        "node group trn2: the group names instance types",
    ),
    "AWS010": Vector(
        lambda: graph(node_group()),
        lambda: graph(node_group(instanceTypes=["inf2.8xlarge"])),
        "AL2023_x86_64_STANDARD lacks the neuron driver that inf2.8xlarge needs",
    ),
    "AWS011": Vector(
        lambda: graph(node_group()),
        lambda: graph(node_group(releaseVersion=None)),
        "uses the newest image instead of a fixed release",
    ),
    "GWY011": Vector(
        lambda: graph(balanced(60), balanced(40)),
        lambda: graph(balanced(60), balanced(41)),
        "IngressGroup g has 101 paths",
    ),
}
