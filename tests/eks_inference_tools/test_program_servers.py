"""``check`` of a program without a stack object: an ``InferencePlatform`` judges its own servers, nothing judges others."""

from pathlib import Path

import pytest

from eks_inference_tools.check.report import left_open
from eks_inference_tools.cli import main
from eks_inference_tools.program import programs


def check(capsys, folder: Path) -> tuple[int, str]:
    code = main(["check", "--program", str(folder)])
    return code, capsys.readouterr().out


def platform_program(folder: Path, *, model: str = "Qwen/Qwen3-8B", also: str = "") -> Path:
    (folder / "Pulumi.yaml").write_text("name: theirs\nruntime: python\n")
    (folder / "Pulumi.dev.yaml").write_text("config: {'aws:region': us-west-2}\n")
    (folder / "__main__.py").write_text(
        "import pulumi\n"
        "import pulumi_kubernetes as k8s\n"
        "from eks_inference import InferencePlatform\n"
        "engine = {'engine': 'cuda-vllm-0.30', 'tensor_parallel': 1, 'max_num_seqs': 2, 'max_model_len': 8192}\n"
        "spec = {'name': 'mine', 'pools': {'gpu': {'instance_types': ['g6.xlarge'], 'size': 1}},\n"
        f"        'servers': {{'chat': {{'model': {{'id': '{model}'}}, **engine}}}}}}\n"
        f"platform = InferencePlatform(spec)\n{also}"
    )
    return folder


def test_a_platform_in_a_program_judges_its_own_servers(tmp_path, capsys):
    code, said = check(capsys, folder := platform_program(tmp_path))
    assert code == 0
    *_, last, next_ = filter(None, said.splitlines())
    assert "dev: can run: 0 errors" in last
    assert next_ == f"next: eks-inference preview dev --program {folder}"


def test_what_a_platform_in_a_program_could_not_judge_is_told_with_its_line(tmp_path, capsys):
    code, said = check(capsys, platform_program(tmp_path, model="Acme/Unheard-of"))
    assert code == 0
    (place,) = [line for line in said.splitlines() if line.startswith("not judged")]
    assert "__main__.py:7: mine (eks-inference:index:InferencePlatform): servers.chat.model.id: memory," in place
    assert "dev: not refused; not judged: memory, heads" in said
    assert said.count("the catalog has no model 'Acme/Unheard-of'") == 1


SERVER = """k8s.apps.v1.Deployment("own", metadata={"name": "own", "namespace": "x"}, spec={
    "selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": []}}})
"""
NO_SERVERS = """k8s.core.v1.Namespace("own", metadata={"name": "own"})
k8s.core.v1.ConfigMap("settings", metadata={"name": "settings", "namespace": "own"}, data={"a": "b"})
k8s.rbac.v1.Role("reader", metadata={"name": "reader", "namespace": "own"}, rules=[])
"""


@pytest.mark.parametrize(("also", "is_judged"), [(SERVER, False), (NO_SERVERS, True)])
def test_servers_beside_a_platform_are_not_judged(tmp_path, also, is_judged):
    (program,) = programs([], platform_program(tmp_path, also=also))
    of = [each.of for each in left_open(program.record())]
    assert of == ([] if is_judged else ["the program's servers"])


def test_warnings_of_a_program_are_told(tmp_path, capsys):
    _, said = check(capsys, platform_program(tmp_path, also="pulumi.log.warn('the key of 2025 is still in use')\n"))
    assert "note: the program warns: the key of 2025 is still in use" in said


OF_COMPONENTS = """from eks_inference import ExistingCluster, ExistingPool, Keda, KubeRayOperator, ManagedPool, StackSettings
from eks_inference import ExistingVpc, Subnet
here = StackSettings(region="us-west-2")
network = ExistingVpc(vpc_id="vpc-0123456789abcdef0", private_subnets=[Subnet("usw2-az1", "subnet-0123456789abcdef0")])
cluster = ExistingCluster.from_aws("theirs", version="1.35", settings=here, network=network, addons=["coredns"])
core = ExistingPool("core", {"a": "b"}, ["m5.large"]).placement()
ManagedPool("more", {"instance_types": ["m5.large"], "size": 1, "kubelet": {"evictionHard": {"pid.available": "5%"}}},
    cluster=cluster, network=network)
Keda("keda", {"values": {"resources": {"operator": {"limits": {"memory": "16Mi"}}}}}, cluster=cluster, placement=core)
KubeRayOperator("kuberay", {"values": {"imgae": {"tag": "v1"}}}, cluster=cluster, placement=core)
"""


def test_what_components_say_in_the_words_of_others_is_named(tmp_path, capsys):
    folder = platform_program(tmp_path)
    (folder / "__main__.py").write_text(OF_COMPONENTS)
    _, said = check(capsys, folder)
    assert [line.split("): ")[1] for line in said.splitlines() if line.startswith("not judged: __main__")] == [
        "values.resources.operator.limits.memory: resources.operator.limits.memory of scaling.keda.values: "
        "the chart keda reads it, and no rule does; 16Mi instead of 100Mi that its authors request",
        "values.imgae: imgae of kuberay: the chart kuberay-operator has no value 'imgae' here",
        "kubelet.evictionHard.pid.available: pid.available of pools.more.kubelet.evictionHard.pid.available: "
        "the kubelet reads it, and no rule does",
    ]


ON_AN_EXISTING_CLUSTER = """from eks_inference import ExistingCluster, ExistingPool, NvidiaDevicePlugin, StackSettings, VllmServer
cluster = ExistingCluster.from_aws("theirs", version="1.35", settings=StackSettings(region="us-west-2"), addons={addons})
gpu = ExistingPool("gpu", {{"team": "ml"}}, ["g6.xlarge"]).placement()
{plugin}
spec = {{"engine": "cuda-vllm-0.30", "tensor_parallel": 1, "max_num_seqs": 2, "max_model_len": 8192, "pool": "{pool}",
         "model": {{"id": "{model}", "kind": "s3", "uri": "s3://our-weights/model/v1"}}, "instance_type": "g6.xlarge"}}
VllmServer("chat", spec, cluster=cluster, placement=gpu)
"""
PLUGIN = "NvidiaDevicePlugin('nvidia', {}, cluster=cluster)"
AGENT = ["eks-pod-identity-agent"]


@pytest.mark.parametrize(
    ("changed", "code", "said"),
    [
        ({}, 0, "dev: can run: 0 errors"),
        ({"addons": None}, 2, "not judged: the add-on of theirs eks-pod-identity-agent: "),
        ({"addons": ["coredns"]}, 2, "needs eks-pod-identity-agent"),
        ({"plugin": ""}, 2, "not judged: the device plugin of nvidia.com/gpu: "),
        ({"model": "Acme/Unheard-of"}, 2, "not judged: chat: model.id: length, memory, heads, architecture of Acme/Unheard-of"),
        ({"pool": "gpus"}, 2, "VllmServer 'chat': pool: the server is placed elsewhere"),
    ],
)
def test_a_server_on_an_existing_cluster_judges_itself(tmp_path, capsys, changed, code, said):
    keys = {"addons": AGENT, "plugin": PLUGIN, "pool": "gpu", "model": "Qwen/Qwen3-8B", **changed}
    folder = platform_program(tmp_path)
    (folder / "__main__.py").write_text(ON_AN_EXISTING_CLUSTER.format(**keys))
    (folder / "answers.yaml").write_text(
        "- function: aws:eks/getCluster:getCluster\n"
        "  result: {endpoint: 'https://x', vpcConfig: {clusterSecurityGroupId: sg-1}, certificateAuthorities: [{data: YQ==}]}\n"
    )
    assert main(["check", "--strict", "--program", str(folder), "--answers", str(folder / "answers.yaml")]) == code
    assert said in " ".join(capsys.readouterr()).replace("\n    ", " ")
