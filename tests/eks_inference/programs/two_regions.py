"""One stack in two regions: networks and clusters by explicit providers."""

import pulumi
import pulumi_aws as aws

from eks_inference import ClusterAddons, EksCluster, ManagedPool, NvidiaDevicePlugin, StackSettings, VllmServer, Vpc

for region in ("us-east-1", "us-west-2"):
    here = pulumi.ResourceOptions(provider=aws.Provider(region, region=region))
    settings = StackSettings(region=region, tags={"team": "ml"})
    network = Vpc(f"net-{region}", {"zones": 2}, here, settings=settings)
    control_plane = EksCluster(f"chat-{region}", {}, here, network=network, settings=settings)
    at = {"cluster": control_plane, "network": network}
    core = ManagedPool(f"core-{region}", {"instance_types": ["m5.large"], "size": 2}, here, **at)
    cluster = ClusterAddons(f"addons-{region}", {}, here, cluster=control_plane, core=core.placement())
    gpu = ManagedPool(f"gpu-{region}", {"instance_types": ["g5.xlarge"], "size": 1}, here, **at)
    plugin = NvidiaDevicePlugin(f"nvidia-{region}", {}, here, cluster=cluster)
    server = VllmServer(
        f"qwen-{region}",
        {
            "engine": "cuda-vllm-0.30",
            "model": {"id": "Qwen/Qwen3-8B"},
            "tensor_parallel": 1,
            "max_model_len": 4096,
            "max_num_seqs": 4,
        },
        here,
        cluster=cluster,
        placement=gpu.placement(),
    )
    pulumi.export(f"endpoint-{region}", server.endpoint)
