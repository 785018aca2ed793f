"""A cluster of pulumi-eks with its own nodes."""

import pulumi
import pulumi_eks as eks

from eks_inference import ExistingCluster, ExistingPool, NvidiaDevicePlugin, OpenWebUI, StackSettings, VllmServer

theirs = eks.Cluster("platform", name="platform", version="1.35", instance_type="g5.xlarge", desired_capacity=2)
agent = eks.Addon("agent", cluster=theirs, addon_name="eks-pod-identity-agent")
cluster = ExistingCluster.from_eks(theirs, name="platform", version="1.35", settings=StackSettings(), ready=[agent])
nodes = ExistingPool("gpu", {"node.kubernetes.io/instance-type": "g5.xlarge"}, ["g5.xlarge"], ready=[theirs]).placement()
NvidiaDevicePlugin("nvidia", {}, cluster=cluster)
server = VllmServer(
    "qwen",
    {
        "engine": "cuda-vllm-0.30",
        "model": {"id": "Qwen/Qwen3-8B"},
        "tensor_parallel": 1,
        "max_model_len": 4096,
        "max_num_seqs": 4,
        "client_namespaces": {"kubernetes.io/metadata.name": "open-webui"},
    },
    cluster=cluster,
    placement=nodes,
)
OpenWebUI("chat", {}, cluster=cluster, placement=nodes, servers={"qwen": server})
pulumi.export("endpoint", server.endpoint)
