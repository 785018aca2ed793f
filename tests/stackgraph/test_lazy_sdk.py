"""SDKs that are loaded by what is used of them look and work like SDKs that are loaded whole.

Each program runs in a process of its own: in this one the SDKs are loaded already.
"""

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from textwrap import dedent

import pytest

ROOT = Path(__file__).parents[2]

# Many services, arguments as classes and as dictionaries, a remote component, an enum, a secret, a function.
PROGRAM = """
    import json
    import pulumi
    import pulumi_aws as aws
    import pulumi_eks as eks
    import pulumi_kubernetes as k8s

    def program():
        vpc = aws.ec2.Vpc("net", cidr_block="10.0.0.0/16")
        group = aws.ec2.SecurityGroup("group", vpc_id=vpc.id, ingress=[{"protocol": "tcp", "from_port": 1, "to_port": 2}])
        aws.ec2.LaunchTemplate(
            "template",
            block_device_mappings=[{"device_name": "/dev/xvda", "ebs": {"volume_size": 100}}],
            metadata_options=aws.ec2.LaunchTemplateMetadataOptionsArgs(http_tokens="required"),
        )
        role = aws.iam.Role("role", assume_role_policy=json.dumps({"Statement": []}))
        aws.eks.Cluster(
            "c",
            role_arn=role.arn,
            vpc_config=aws.eks.ClusterVpcConfigArgs(subnet_ids=["subnet-1"], security_group_ids=[group.id]),
            access_config={"authentication_mode": "API"},
        )
        queue = aws.sqs.Queue("queue", message_retention_seconds=300)
        aws.sqs.QueuePolicy("policy", queue_url=queue.url, policy=queue.arn.apply(lambda arn: json.dumps({"Resource": arn})))
        aws.s3.Bucket("bucket", server_side_encryption_configuration={"rule": {"bucket_key_enabled": True}})
        aws.cloudwatch.EventRule("rule", event_pattern="{}")
        region = aws.get_region_output()
        remote = eks.Cluster("remote", vpc_id=vpc.id, authentication_mode=eks.AuthenticationMode.API)

        options = pulumi.ResourceOptions(provider=k8s.Provider("k8s", kubeconfig=remote.kubeconfig_json))
        name = k8s.core.v1.Namespace("namespace", metadata={"name": "n"}, opts=options).metadata.name
        k8s.core.v1.Secret("s", metadata={"namespace": name}, string_data={"a": pulumi.Output.secret("hunter2")}, opts=options)
        k8s.apps.v1.Deployment(
            "typed",
            metadata=k8s.meta.v1.ObjectMetaArgs(name="typed", namespace=name),
            spec=k8s.apps.v1.DeploymentSpecArgs(
                selector=k8s.meta.v1.LabelSelectorArgs(match_labels={"app_name": "a"}),
                template=k8s.core.v1.PodTemplateSpecArgs(
                    spec=k8s.core.v1.PodSpecArgs(
                        containers=[
                            k8s.core.v1.ContainerArgs(
                                name="c", readiness_probe=k8s.core.v1.ProbeArgs(http_get=k8s.core.v1.HTTPGetActionArgs(port=80))
                            )
                        ]
                    )
                ),
            ),
            opts=options,
        )
        pod = {"containers": [{"name": "c", "volume_mounts": [{"name": "v", "mount_path": "/v"}]}], "host_network": True}
        k8s.apps.v1.DaemonSet(
            "plain", spec={"selector": {"match_labels": {}}, "template": {"spec": pod}}, opts=options
        )
        k8s.rbac.v1.ClusterRole("reader", rules=[{"api_groups": [""], "resources": ["pods"], "verbs": ["get"]}], opts=options)
        k8s.storage.v1.StorageClass("gp3", provisioner="ebs.csi.aws.com", parameters={"type": "gp3"}, opts=options)
        k8s.helm.v3.Release("chart", chart="c", version="1.0.0", repository_opts={"repo": "https://charts.example"}, opts=options)
        k8s.apiextensions.CustomResource("pool", api_version="karpenter.sh/v1", kind="NodePool", spec={"a_b": 1}, opts=options)
        pulumi.export("region", region.region)
        pulumi.export("endpoint", remote.core.apply(lambda core: core.endpoint))

    from stackgraph.recorder.recording import record
    print(record(program, config={"aws:region": "eu-north-1"}).to_json())
"""

STACK = """
    from eks_inference_tools.cli import main
    assert main(["preview", "inf2-llama3", "--format", "json"]) == 0
"""


NAMES = """
    import importlib, inspect, json

    def described(thing):
        home = "" if inspect.ismodule(thing) else getattr(thing, "__module__", "")
        return [inspect.isclass(thing), inspect.ismodule(thing), home, getattr(thing, "__name__", str(thing))]

    found = {}
    for name in (
        "pulumi_aws", "pulumi_aws.sqs", "pulumi_aws.eks", "pulumi_aws.eks.outputs", "pulumi_aws.sqs.queue", "pulumi_eks",
        "pulumi_kubernetes", "pulumi_kubernetes.helm.v3", "pulumi_kubernetes.apps.v1", "pulumi_kubernetes.apps.v1._inputs",
    ):
        module = importlib.import_module(name)
        found[name] = {key: described(getattr(module, key)) for key in sorted(dir(module)) if not key.startswith("__")}
    print(json.dumps(found))
"""


def output_of(program: str, *, lazy: bool = True) -> str:
    """What a program prints, with the SDKs loaded lazily or whole."""
    context = "lazy_sdk.lazy_sdks" if lazy else "contextlib.nullcontext"
    head = f"import contextlib\nfrom stackgraph.recorder import lazy_sdk\nlazy_sdk.lazy_sdks = {context}\nwith {context}():\n"
    body = "\n".join(f"    {line}" for line in dedent(program).splitlines())
    done = subprocess.run(
        [sys.executable, "-c", head + body],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@cache
def outputs_of_whole_sdks() -> dict[str, str]:
    """What each program prints; one process runs all, since loading all SDKs takes seconds. The names before others add any."""
    programs = (NAMES, PROGRAM, STACK)
    printed = output_of("\nprint('====')\n".join(map(dedent, programs)), lazy=False)
    return dict(zip(programs, printed.split("====\n"), strict=True))


@pytest.mark.thorough
@pytest.mark.parametrize("program", [pytest.param(PROGRAM, id="many services"), pytest.param(STACK, id="the stack")])
def test_graphs_are_the_same_to_the_byte(program: str):
    graph = outputs_of_whole_sdks()[program]
    assert len(json.loads(graph)["resources"]) > 20
    assert output_of(program) == graph


@pytest.mark.thorough
def test_modules_have_the_same_names_for_the_same_things():
    assert json.loads(output_of(NAMES)) == json.loads(outputs_of_whole_sdks()[NAMES])


@pytest.mark.thorough
def test_only_what_is_used_is_loaded():
    program = """
        import sys
        import pulumi_aws as aws
        import pulumi_kubernetes as k8s
        aws.ec2.Vpc, k8s.helm.v3.Release
        print(*(name for name in sys.modules if name.startswith(("pulumi_aws.ec2.", "pulumi_kubernetes.helm.", "requests"))))
        import pulumi_aws.ec2.outputs
        aws.ec2.outputs.LaunchTemplateMetadataOptions
        print(sum(isinstance(value, type) for value in vars(aws.ec2.outputs).values()))
    """
    modules, classes = output_of(program).splitlines()
    assert {"pulumi_aws.ec2.vpc", "pulumi_kubernetes.helm.v3.Release"} <= set(modules.split())
    assert not {"pulumi_aws.ec2.subnet", "pulumi_kubernetes.helm.v3.helm", "requests"} & set(modules.split())
    assert int(classes) < 5


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("program", "printed"),
    [
        pytest.param("from pulumi_aws.sqs import *; print(Queue.__name__, QueueArgs.__name__)", "Queue QueueArgs", id="all"),
        pytest.param(
            "import pulumi_aws.ec2.get_ami as module; import pulumi_aws as aws; print(aws.ec2.get_ami.__class__.__name__)",
            "function",
            id="function with the name of its module",
        ),
        pytest.param(
            """
            import pulumi_kubernetes.core.v1 as v1
            v1.Service
            from pulumi_kubernetes.core.v1.Pod import Pod
            print(v1.Pod is Pod)
            """,
            "True",
            id="class with the name of its module",
        ),
        pytest.param("import pulumi_aws as aws; print(aws.sqs.queue.QueueArgs.__name__)", "QueueArgs", id="submodule"),
        pytest.param(
            "import pickle; from pulumi_aws import eks; print(pickle.loads(pickle.dumps(eks.ClusterArgs)) is eks.ClusterArgs)",
            "True",
            id="pickle",
        ),
        pytest.param(
            """
            import pulumi_aws as aws
            from pulumi._types import input_type_types
            print(input_type_types(aws.sqs.QueueArgs)["name"], input_type_types(aws.ec2.LaunchTemplateArgs)["metadataOptions"])
            """,
            "<class 'str'> <class 'pulumi_aws.ec2._inputs.LaunchTemplateMetadataOptionsArgs'>",
            id="type hints",
        ),
        pytest.param("import pulumi_aws as aws; print(hasattr(aws.sqs, 'Qeueu'))", "False", id="no such name"),
        pytest.param(
            "import pulumi; from pulumi.automation import LocalWorkspace; print(pulumi.dynamic.Resource.__mro__[1].__name__)",
            "CustomResource",
            id="rarely used parts of pulumi",
        ),
    ],
)
def test_programs_may_use_an_sdk_in_any_way(program: str, printed: str):
    assert output_of(program).strip() == printed


def test_programs_may_derive_from_a_nested_type():
    program = """
        import pulumi_kubernetes as k8s
        from stackgraph.recorder.recording import record

        class Server(k8s.core.v1.ContainerArgs):
            def __init__(self, **more):
                super().__init__(name="server", **more)

        spec = k8s.core.v1.PodSpecArgs(containers=[Server(ports=[{"container_port": 80}])])
        graph = record(lambda: k8s.core.v1.Pod("pod", spec=spec) and None)
        print(graph.named("pod").inputs["spec"]["containers"][0]["ports"])
    """
    assert output_of(program).strip() == "[{'containerPort': 80}]"


@pytest.mark.thorough
def test_nothing_is_left_behind():
    program = """
        import sys
        before = [*sys.meta_path]
        with lazy_sdk.lazy_sdks():
            import pulumi_aws as aws
            aws.sqs.Queue
        print(sys.meta_path == before, aws.sqs.QueuePolicy.__name__, aws.iam.Role.__name__)
    """
    assert output_of(program, lazy=False).strip() == "True QueuePolicy Role"


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("inputs", "printed"),
    [
        pytest.param("class AArgs: size = 1\nclass BArgs(AArgs): pass", "1", id="classes that build on one another"),
        pytest.param("class AArgs: size = 2\nBArgs = type('BArgs', (AArgs,), {})", "2", id="statements that use a class"),
        pytest.param("import pulumi\n@pulumi.deprecated('no')\nclass BArgs: size = 3", "3", id="another decorator"),
        pytest.param("missing", "name 'missing' is not defined", id="an error of its own"),
    ],
)
def test_a_module_of_another_form_is_loaded_as_always(tmp_path: Path, inputs: str, printed: str):
    package = tmp_path / "pulumi_odd"
    package.mkdir()
    head = "# *** WARNING: this file was generated by pulumi-language-python. ***\n"
    (package / "__init__.py").write_text(head + "from ._inputs import *\n")
    (package / "_inputs.py").write_text(f"{head}__all__ = ['BArgs']\n{inputs}\n")
    program = f"""
        import sys
        sys.path.insert(0, {str(tmp_path)!r})
        try:
            import pulumi_odd
            print(getattr(pulumi_odd.BArgs, "size", None) or pulumi_odd.BArgs.__dict__["_pulumi_deprecated_callable"].size)
        except NameError as error:
            print(error)
    """
    assert output_of(program).strip() == printed
