"""A small program with one of everything that matters in a preview, without components of this library."""

import json

import pulumi
import pulumi_aws as aws
import pulumi_eks as eks
import pulumi_kubernetes as k8s


class Network(pulumi.ComponentResource):
    def __init__(self, name: str, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("demo:index:Network", name, {"cidr": "10.0.0.0/16"}, opts)
        inside = pulumi.ResourceOptions(parent=self)
        vpc = aws.ec2.Vpc(f"{name}-vpc", cidr_block="10.0.0.0/16", opts=pulumi.ResourceOptions(parent=self, protect=True))
        gateway = aws.ec2.InternetGateway(f"{name}-gateway", vpc_id=vpc.id, opts=inside)
        table = aws.ec2.RouteTable(f"{name}-public-routes", vpc_id=vpc.id, opts=inside)
        aws.ec2.Route(
            f"{name}-internet", route_table_id=table.id, destination_cidr_block="0.0.0.0/0", gateway_id=gateway.id, opts=inside
        )
        self.subnets = [
            aws.ec2.Subnet(
                f"{name}-private-{zone}",
                vpc_id=vpc.id,
                cidr_block=f"10.0.{number * 32}.0/19",
                availability_zone_id=zone,
                opts=inside,
            )
            for number, zone in enumerate(("usw2-az1", "usw2-az2", "usw2-az4"))
        ]
        for subnet, zone in zip(self.subnets, ("usw2-az1", "usw2-az2", "usw2-az4"), strict=True):
            aws.ec2.RouteTableAssociation(
                f"{name}-private-{zone}-association", subnet_id=subnet.id, route_table_id=table.id, opts=inside
            )
        self.register_outputs({})


class ControlPlane(pulumi.ComponentResource):
    def __init__(self, name: str, network: Network, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("demo:index:ControlPlane", name, {"version": "1.35"}, opts)
        inside = pulumi.ResourceOptions(parent=self)
        trust = {"Statement": [{"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": {"Service": "eks.amazonaws.com"}}]}
        self.role = aws.iam.Role(f"{name}-role", assume_role_policy=json.dumps(trust), opts=inside)
        self.cluster = eks.Cluster(
            f"{name}-cluster",
            name=name,
            version="1.35",
            service_role=self.role,
            subnet_ids=[subnet.id for subnet in network.subnets],
            endpoint_private_access=True,
            endpoint_public_access=True,
            public_access_cidrs=["203.0.113.0/24"],
            opts=inside,
        )
        kubeconfig = pulumi.Output.json_dumps({"server": self.cluster.eks_cluster.endpoint})
        self.provider = k8s.Provider(f"{name}-provider", kubeconfig=kubeconfig, opts=inside)
        self.register_outputs({})


class ManagedNodes(pulumi.ComponentResource):
    def __init__(
        self, name: str, instance_type: str, plane: ControlPlane, network: Network, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("demo:index:ManagedNodes", name, {"instance_type": instance_type}, opts)
        inside = pulumi.ResourceOptions(parent=self)
        accelerated = not instance_type.startswith("m")
        role = aws.iam.Role(f"{name}-role", assume_role_policy="{}", opts=inside)
        policies = [
            aws.iam.RolePolicyAttachment(
                f"{name}-{policy}", role=role.name, policy_arn=f"arn:aws:iam::aws:policy/{policy}", opts=inside
            )
            for policy in ("AmazonEKSWorkerNodePolicy", "AmazonEC2ContainerRegistryPullOnly", "AmazonSSMManagedInstanceCore")
        ]
        template = aws.ec2.LaunchTemplate(
            f"{name}-template",
            block_device_mappings=[{"device_name": "/dev/xvda", "ebs": {"volume_size": 100, "volume_type": "gp3"}}],
            network_interfaces=(
                [{"device_index": int(card > 0), "network_card_index": card, "interface_type": "efa"} for card in range(8)]
                if accelerated
                else None
            ),
            opts=inside,
        )
        self.group = aws.eks.NodeGroup(
            f"{name}-nodes",
            cluster_name="demo",
            node_role_arn=role.arn,
            subnet_ids=[subnet.id for subnet in network.subnets],
            instance_types=[instance_type],
            ami_type="AL2023_x86_64_NEURON" if accelerated else "AL2023_x86_64_STANDARD",
            release_version="1.35.6-20260714",
            scaling_config={"desired_size": 1, "min_size": 1, "max_size": 3}
            if accelerated
            else {
                "desired_size": 2,
                "min_size": 2,
                "max_size": 2,
            },
            launch_template={"id": template.id, "version": template.latest_version.apply(str)},
            labels={"demo/pool": name},
            taints=[{"key": "aws.amazon.com/neuron", "value": "true", "effect": "NO_SCHEDULE"}] if accelerated else None,
            opts=pulumi.ResourceOptions(parent=self, depends_on=[plane.cluster, *policies]),
        )
        self.register_outputs({})


class OnDemandNodes(pulumi.ComponentResource):
    def __init__(self, name: str, plane: ControlPlane, core: ManagedNodes, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("demo:index:OnDemandNodes", name, {}, opts)
        inside = pulumi.ResourceOptions(parent=self, provider=plane.provider)
        chart = k8s.helm.v3.Release(
            f"{name}-karpenter",
            chart="oci://public.ecr.aws/karpenter/karpenter",
            version="1.8.1",
            namespace="kube-system",
            values={"settings": {"clusterName": "demo"}, "password": pulumi.Output.secret("chart-password")},
            opts=pulumi.ResourceOptions(parent=self, provider=plane.provider, depends_on=[core.group]),
        )
        node_class = k8s.apiextensions.CustomResource(
            f"{name}-class",
            api_version="karpenter.k8s.aws/v1",
            kind="EC2NodeClass",
            metadata={"name": name},
            spec={
                "role": plane.role.name,
                "amiSelectorTerms": [{"alias": "al2023@v20260714"}],
                "blockDeviceMappings": [{"deviceName": "/dev/xvda", "ebs": {"volumeSize": "500Gi", "volumeType": "gp3"}}],
            },
            opts=pulumi.ResourceOptions(parent=self, provider=plane.provider, depends_on=[chart]),
        )
        k8s.apiextensions.CustomResource(
            f"{name}-pool",
            api_version="karpenter.sh/v1",
            kind="NodePool",
            metadata={"name": name},
            spec={
                "limits": {"cpu": "1000", "memory": "4000Gi"},
                "template": {
                    "metadata": {"labels": {"demo/pool": name}},
                    "spec": {
                        "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": name},
                        "requirements": [
                            {"key": "karpenter.k8s.aws/instance-family", "operator": "In", "values": ["inf2"]},
                            {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot", "on-demand"]},
                            {"key": "karpenter.k8s.aws/instance-size", "operator": "NotIn", "values": ["48xlarge"]},
                            {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
                        ],
                        "taints": [{"key": "aws.amazon.com/neuron", "value": "true", "effect": "NoSchedule"}],
                    },
                },
            },
            opts=pulumi.ResourceOptions.merge(inside, pulumi.ResourceOptions(depends_on=[node_class])),
        )
        self.register_outputs({})


SERVE_CONFIG = """\
applications:
- name: vllm
  import_path: serve:deployment
  runtime_env:
    env_vars:
      MODEL_ID: NousResearch/Meta-Llama-3-8B-Instruct
      TENSOR_PARALLELISM: '2'
"""


class Servers(pulumi.ComponentResource):
    def __init__(
        self, name: str, plane: ControlPlane, nodes: pulumi.Resource, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        shape = {"model": {"id": "meta-llama/Llama-2-7b-hf", "revision": "01c7f73d"}, "tensor_parallel": 8, "max_model_len": 4096}
        super().__init__("demo:index:Servers", name, {"servers": {"chat": shape}}, opts)
        inside = pulumi.ResourceOptions(parent=self, provider=plane.provider, depends_on=[nodes])
        k8s.core.v1.Namespace(f"{name}-namespace", metadata={"name": "demo"}, opts=inside)
        metadata = k8s.meta.v1.ObjectMetaArgs(name="chat", namespace="demo")
        k8s.core.v1.Secret(
            f"{name}-token", metadata=metadata, string_data={"token": pulumi.Output.secret("hf_never_shown")}, opts=inside
        )
        k8s.core.v1.ConfigMap(
            f"{name}-script", metadata=metadata, data={"serve.py": "import vllm\n\n\ndef main():\n    vllm.run()\n"}, opts=inside
        )
        for number in range(3):
            k8s.core.v1.ServiceAccount(
                f"{name}-account-{number}", metadata={"name": f"chat-{number}", "namespace": "demo"}, opts=inside
            )
        k8s.apps.v1.Deployment(
            f"{name}-deployment",
            metadata=metadata,
            spec={
                "selector": {"match_labels": {"app": "chat"}},
                "template": {
                    "metadata": {"labels": {"app": "chat"}},
                    "spec": {
                        "node_selector": {"demo/pool": "inf2", "node.kubernetes.io/instance-type": "inf2.48xlarge"},
                        "containers": [
                            {
                                "name": "server",
                                "image": "registry.example/vllm-neuron:2.28",
                                "command": ["vllm", "serve", "meta-llama/Llama-2-7b-hf"],
                                "resources": {
                                    "requests": {"cpu": "40", "memory": "100Gi"},
                                    "limits": {"aws.amazon.com/neuron": "4", "memory": "100Gi"},
                                },
                            },
                            {
                                "name": "metrics",
                                "image": "registry.example/exporter:1.2",
                                "resources": {"requests": {"cpu": "100m"}},
                            },
                        ],
                    },
                },
            },
            opts=inside,
        )
        k8s.autoscaling.v2.HorizontalPodAutoscaler(
            f"{name}-autoscaler",
            metadata=metadata,
            spec={
                "min_replicas": 1,
                "max_replicas": 4,
                "scale_target_ref": {"api_version": "apps/v1", "kind": "Deployment", "name": "chat"},
            },
            opts=inside,
        )
        k8s.core.v1.Service(
            f"{name}-service",
            metadata={
                "name": "chat",
                "namespace": "demo",
                "annotations": {"service.beta.kubernetes.io/aws-load-balancer-scheme": "internet-facing"},
            },
            spec={
                "type": "LoadBalancer",
                "selector": {"app": "chat"},
                "ports": [{"name": "http", "port": 80, "target_port": 8000}, {"name": "metrics", "port": 9090}],
            },
            opts=inside,
        )
        template = {"spec": {"containers": [{"name": "ray", "image": "registry.example/ray:2.52.1"}]}}
        worker = {
            "spec": {
                "containers": [
                    {
                        "name": "ray",
                        "image": "registry.example/ray-neuron:2.52.1",
                        "resources": {"limits": {"aws.amazon.com/neuron": 1, "cpu": "6", "memory": "24Gi"}},
                    }
                ]
            }
        }
        k8s.apiextensions.CustomResource(
            f"{name}-ray",
            api_version="ray.io/v1",
            kind="RayService",
            metadata={"name": "llama", "namespace": "demo"},
            spec={
                "serveConfigV2": SERVE_CONFIG,
                "rayClusterConfig": {
                    "enableInTreeAutoscaling": True,
                    "headGroupSpec": {"template": template},
                    "workerGroupSpecs": [
                        {"groupName": "inf2", "replicas": 1, "minReplicas": 1, "maxReplicas": 3, "template": worker}
                    ],
                },
            },
            opts=inside,
        )
        self.register_outputs({})


def program() -> None:
    network = Network("net")
    plane = ControlPlane("demo", network)
    core = ManagedNodes("core", "m6i.large", plane, network)
    accelerated = ManagedNodes("inf2", "inf2.48xlarge", plane, network)
    OnDemandNodes("small", plane, core)
    Servers("servers", plane, accelerated.group)
    bucket = aws.s3.Bucket("weights", bucket="demo-weights")
    aws.ssm.Parameter.get("image", "/demo/image")
    pulumi.log.warn("the model has no revision; its weights may change")
    pulumi.export("bucket", bucket.arn)
    pulumi.export("endpoints", {"chat": "http://chat.demo.svc.cluster.local:80/v1"})
    pulumi.export("password", pulumi.Output.secret("never-shown-either"))


SECRETS = ("chart-password", "hf_never_shown", "never-shown-either")
"""The values that the program marks as secret."""
