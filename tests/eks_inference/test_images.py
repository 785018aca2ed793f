"""Images that are built in the cluster."""

import base64
import dataclasses
import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import pulumi
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError, create_model

from eks_inference.catalog import versions
from eks_inference.catalog.engines import engine, engines
from eks_inference.faults import SpecError
from eks_inference.images import dockerfile, plan
from eks_inference.images.component import ImageBuild
from eks_inference.images.spec import InClusterImage, ServerImage
from eks_inference.place.placement import Placement, Taint
from eks_inference.specs.base import Spec
from eks_inference.stack import spec as stack_spec
from golden import assert_golden
from handles import existing_cluster, placement, stack_settings
from stackgraph.graph.document import Graph, Resource
from stackgraph.problems import ProgramError
from stackgraph.recorder.recording import record

NAME = "llama3-image"
CORE = placement("m5.2xlarge", pool="core", taints=(Taint("dedicated", "build", "NoSchedule"),))
ECR = "111122223333.dkr.ecr.us-west-2.amazonaws.com"
SMALL = "FROM public.ecr.aws/docker/library/busybox:1.37.0\n"


def spec_of(**keys: Any) -> InClusterImage:
    return InClusterImage.model_validate({"kind": "in_cluster", **keys})


def built(
    *,
    name: str = NAME,
    on: Placement = CORE,
    settings: Mapping[str, Any] | None = None,
    defaults: Mapping[str, str] | None = None,
    **keys: Any,
) -> Graph:
    """The graph of one build, and of a Deployment that runs its image (as a server would)."""

    def build() -> None:
        nodes, addon = (pulumi.CustomResource("test:index:Ready", kind) for kind in ("core-nodes", "pod-identity-agent"))
        cluster = dataclasses.replace(existing_cluster(**(settings or {})), ready=(addon,))
        image = ImageBuild(
            name, spec_of(**keys), cluster=cluster, placement=dataclasses.replace(on, ready=(nodes,)), defaults=defaults
        )
        pulumi.CustomResource("test:index:Server", "server", {"image": image.reference})

    return record(build, project="p", stack="s", config={"aws:region": "us-west-2"})


def the(graph: Graph, kind: str) -> Resource:
    (found,) = (resource for resource in graph.resources if resource.type.endswith(f":{kind}"))
    return found


def job(graph: Graph) -> dict[str, Any]:
    return dict(the(graph, "Job").inputs)


def pod(graph: Graph) -> dict[str, Any]:
    return job(graph)["spec"]["template"]["spec"]


def containers(graph: Graph) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in pod(graph)["initContainers"] + pod(graph)["containers"]}


def environment(container: dict[str, Any]) -> dict[str, str]:
    return {variable["name"]: variable["value"] for variable in container["env"]}


def build_arguments(graph: Graph) -> list[str]:
    words = containers(graph)["build"]["args"]
    assert set(words[::2]) <= {"--opt"}
    return [word.removeprefix("build-arg:") for word in words[1::2]]


def tag_of(**keys: Any) -> str:
    spec = spec_of(**keys)
    return plan.content_tag(spec, plan.arguments(spec, {}))


# -- what a user may write -------------------------------------------------------------------------------------------------------


def refusal_of(**keys: Any) -> str:
    with pytest.raises(SpecError) as caught:
        spec_of(**keys)
    return str(caught.value)


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"build_args": {"RAY_VERSON": "2.52.1"}}, "no ARG RAY_VERSON; it declares: ENGINE_IMAGE, RAY_VERSION"),
        ({"dockerfile": "./Dockerfile"}, "give the text of a Dockerfile, not the path to one"),
        ({"dockerfile": SMALL, "files": {"big.txt": "x" * 1_000_000}}, "files: "),
        ({"dockerfile": SMALL, "files": {"folder/a.txt": ""}}, "has a wrong form"),
        ({"dockerfile": SMALL, "files": {"Dockerfile": SMALL}}, "goes into 'dockerfile'"),
    ],
    ids=["argument", "path", "large", "folder", "name"],
)
def test_what_cannot_be_built_is_refused(keys: dict[str, Any], said: str):
    assert said in refusal_of(**keys)


def test_an_image_is_a_pinned_reference_or_a_recipe():
    image = TypeAdapter(ServerImage)
    assert image.validate_python("registry.example/vllm:1") == "registry.example/vllm:1"
    assert image.validate_python({"kind": "in_cluster"}) == spec_of()
    for wrong in ("registry.example/vllm", "registry.example/vllm:latest", {"kind": "somewhere"}, {"kind": "in_cluster", "x": 1}):
        with pytest.raises(ValidationError) as caught:
            image.validate_python(wrong)
        assert len(caught.value.errors()) == 1, "one mistake, one message"


@pytest.mark.parametrize("name", ["Image", "1st", "a" * 64, "a_b"])
def test_a_name_that_no_namespace_can_have_is_refused(name: str):
    with pytest.raises(ProgramError, match="also that of its namespace"):
        built(name=name)


def test_a_build_on_another_processor_than_the_servers_is_refused():
    with pytest.raises(ProgramError, match=r"servers run on x86_64; given: .* \(arm64\)"):
        built(on=dataclasses.replace(CORE, instance_type=dataclasses.replace(CORE.instance_type, architecture="arm64")))


# -- Dockerfiles -----------------------------------------------------------------------------------------------------------------


def test_declared_arguments_are_read_as_the_build_reads_them():
    text = (
        "# ARG COMMENTED=1\n"
        "ARG BASE_IMAGE=busybox:1\n"
        'FROM ${BASE_IMAGE}\narg B="two words" \\\n    C\n'
        'ARG DERIVED=${B}-x\nARG TWICE=1\nFROM scratch\nARG TWICE=2\nARG BASE_IMAGE\nARG OPEN="1\n'
    )
    assert dockerfile.arguments(text) == {
        "BASE_IMAGE": "busybox:1",
        "B": "two words",
        "C": None,
        "DERIVED": None,
        "TWICE": None,
        "OPEN": '"1',
    }


def test_the_library_s_own_dockerfile_declares_what_an_engine_profile_gives():
    declared = dockerfile.arguments(dockerfile.own_dockerfile())
    assert declared.keys() == {"ENGINE_IMAGE", "RAY_VERSION"}
    assert (declared["ENGINE_IMAGE"], declared["RAY_VERSION"]) in {(e.image, e.ray) for e in engines().values()}


# -- the tag ---------------------------------------------------------------------------------------------------------------------

names = st.from_regex(r"[A-Z][A-Z0-9_]{0,8}", fullmatch=True)
words = st.text(st.characters(codec="ascii", categories=("L", "N", "P", "S")), max_size=12)
recipes = st.builds(
    lambda args, files, given: {
        "dockerfile": SMALL + "".join(f"ARG {name}\n" for name in sorted(args)),
        "build_args": {name: value for name, value in args.items() if name in given},
        "files": files,
    },
    st.dictionaries(names, words, max_size=3),
    st.dictionaries(st.from_regex(r"[a-z]{1,6}\.txt", fullmatch=True), words, max_size=3),
    st.sets(names, max_size=3),
)


@given(recipes, recipes)
def test_tags_are_equal_exactly_when_the_content_is(first: dict, second: dict):
    assert (tag_of(**first) == tag_of(**second)) == (first == second)


@given(recipes, st.integers(10, 500), st.integers(5, 600), st.integers(1, 50))
def test_how_and_where_it_is_built_does_not_change_the_tag(recipe: dict, disk: int, minutes: int, keep: int):
    elsewhere = {"ephemeral_storage_gib": disk, "timeout_minutes": minutes, "keep_images": keep, "cpu": "7", "memory": "1Gi"}
    assert tag_of(**recipe) == tag_of(**recipe, **elsewhere, repository="other", namespace="other")


def test_the_order_of_keys_does_not_change_the_tag():
    text = SMALL + "ARG A\nARG B\n"
    assert tag_of(dockerfile=text, build_args={"A": "1", "B": "2"}) == tag_of(dockerfile=text, build_args={"B": "2", "A": "1"})


def test_saying_a_default_again_is_the_same_image():
    profile = engine("neuron-2.28-vllm-0.13")
    assert tag_of() == tag_of(build_args={"RAY_VERSION": profile.ray, "ENGINE_IMAGE": profile.image})
    assert tag_of() != tag_of(build_args={"RAY_VERSION": "2.52.2"})


def test_a_mirror_does_not_change_the_tag_but_where_the_base_comes_from():
    mirrored = built(settings={"mirrors": {"public.ecr.aws": "registry.example/public"}})
    assert job(mirrored)["metadata"] == job(built())["metadata"]
    (base,) = (argument for argument in build_arguments(mirrored) if argument.startswith("ENGINE_IMAGE="))
    assert base.startswith("ENGINE_IMAGE=registry.example/public/neuron/")


def test_arguments_of_the_engine_are_taken_where_declared_and_the_users_win():
    defaults = {"ENGINE_IMAGE": "registry.example/engine:1", "RAY_VERSION": "2.1.0", "OTHER": "x"}
    assert build_arguments(built(defaults=defaults, build_args={"RAY_VERSION": "2.2.0"})) == [
        "ENGINE_IMAGE=registry.example/engine:1",
        "RAY_VERSION=2.2.0",
    ]
    assert build_arguments(built(defaults=defaults, dockerfile=SMALL)) == []


def test_kubernetes_does_not_fill_in_variables_of_an_argument():
    (argument,) = build_arguments(built(dockerfile=SMALL + "ARG A\n", build_args={"A": "$(IMAGE) costs $5"}))
    assert argument == "A=$$(IMAGE) costs $$5"


# -- the repository --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protect", [True, False])
def test_the_repository_goes_with_its_images_unless_the_stack_is_protected(protect: bool):
    repository = the(built(settings={"protect": protect}), "Repository")
    assert repository.inputs["forceDelete"] is not protect
    assert repository.options.get("protect", False) is protect


def test_the_repository_keeps_the_newest_images():
    graph = built(keep_images=3)
    assert_golden(
        "images/lifecycle-policy.json", json.dumps(json.loads(the(graph, "LifecyclePolicy").inputs["policy"]), indent=2)
    )


# -- permissions -----------------------------------------------------------------------------------------------------------------


def statements(graph: Graph) -> dict[str, dict[str, Any]]:
    document = json.loads(the(graph, "RolePolicy").inputs["policy"])
    return {statement["Sid"]: statement for statement in document["Statement"]}


@pytest.mark.parametrize(
    ("settings", "keys"),
    [
        ({"mirrors": {"public.ecr.aws": f"{ECR}/public"}}, {}),
        ({}, {"dockerfile": f"FROM {ECR}/public/neuron/pytorch-inference-vllm-neuronx:1\n"}),
    ],
)
def test_private_repositories_of_bases_can_be_read_but_not_written(settings: dict, keys: dict):
    graph = built(settings=settings, **keys)
    bases = statements(graph)["PullBases"]
    assert bases["Resource"] == ["arn:aws:ecr:us-west-2:111122223333:repository/public/neuron/pytorch-inference-vllm-neuronx"]
    assert not [action for action in bases["Action"] if "Put" in action or "Upload" in action]
    assert environment(containers(graph)["prepare"])["REGISTRIES"] == ECR


# -- the Job ---------------------------------------------------------------------------------------------------------------------


def test_the_images_are_pinned_and_come_from_the_mirrors():
    cli, buildkit = versions.image("aws-cli"), versions.image("buildkit")
    assert {name: each["image"] for name, each in containers(built()).items()} == {"prepare": cli, "build": buildkit}
    assert buildkit.endswith("-rootless")
    mirrored = built(settings={"mirrors": {"public.ecr.aws": "a.example", "docker.io": "b.example"}})
    assert containers(mirrored)["prepare"]["image"] == cli.replace("public.ecr.aws", "a.example")
    assert containers(mirrored)["build"]["image"] == buildkit.replace("docker.io", "b.example")


def test_other_content_is_another_job_with_another_recipe():
    before, after = built(), built(build_args={"RAY_VERSION": "2.52.2"})
    for name in ("job", "recipe"):
        names = [graph.named(f"{NAME}-{name}").inputs["metadata"]["name"] for graph in (before, after)]
        assert names[0] != names[1]


def test_the_job_ends_by_itself_before_pulumi_stops_waiting():
    graph = built(timeout_minutes=90)
    assert job(graph)["spec"]["activeDeadlineSeconds"] < 90 * 60
    assert the(graph, "Job").options["customTimeouts"]["create"] == "90m"


def test_the_build_runs_where_it_is_placed_with_the_disk_it_needs():
    graph = built(ephemeral_storage_gib=150)
    assert pod(graph)["nodeSelector"] == CORE.node_selector
    assert pod(graph)["tolerations"] == CORE.tolerations()
    resources = containers(graph)["build"]["resources"]
    assert resources["requests"]["ephemeral-storage"] == resources["limits"]["ephemeral-storage"] == "150Gi"


@given(st.integers(10, 14700))
def test_the_smallest_root_disk_has_room_for_the_build(gib: int):
    disk = plan.smallest_root_volume_gib(spec_of(ephemeral_storage_gib=gib))
    assert disk * 0.9 - 1 >= gib
    assert disk <= gib * 1.12 + 25


# -- order -----------------------------------------------------------------------------------------------------------------------


# -- the two scripts, with stand-ins for aws and BuildKit on PATH ----------------------------------------------------------------

ASSETS = Path(str(files("eks_inference.images").joinpath("assets")))

STAND_IN_AWS = """#!/bin/sh
# Stands in for the AWS CLI: says what it was asked, answers as the test wants.
echo "aws $*" >>"$CALLS"
case "$2" in
describe-images)
    case "$ECR" in
    has-it) echo sha256:0123 ;;
    has-not) echo 'An error occurred (ImageNotFoundException) when calling the DescribeImages operation' >&2; exit 254 ;;
    forbids) echo 'An error occurred (AccessDeniedException) when calling the DescribeImages operation' >&2; exit 254 ;;
    esac ;;
get-login-password) if [ "$LOGIN" = refused ]; then echo "no token" >&2; exit 254; fi; echo "password-of-$4" ;;
*) exit 2 ;;
esac
"""

STAND_IN_BUILDCTL = """#!/bin/sh
# Stands in for buildctl-daemonless.sh: writes its arguments, one a line, and ends as the test wants.
printf '%s\\n' "$@" >"$CALLS"
exit "${BUILD_EXIT:-0}"
"""


class Pod:
    """What the two containers of the Job share, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.state, self.recipe, self.tools = (folder / name for name in ("state", "recipe", "bin"))
        for made in (self.state, self.recipe, self.tools):
            made.mkdir()
        self.calls = folder / "calls"
        self.calls.touch()
        self.tool("aws", STAND_IN_AWS)
        self.tool("buildctl-daemonless.sh", STAND_IN_BUILDCTL)
        self.user_namespaces = folder / "max_user_namespaces"
        self.user_namespaces.write_text("28633\n")
        # As the kubelet lays out a ConfigMap: links to a folder whose name changes.
        (self.recipe / "..2026").mkdir()
        (self.recipe / "..data").symlink_to("..2026")
        for name, text in {"Dockerfile": SMALL, "a.txt": "a"}.items():
            (self.recipe / "..2026" / name).write_text(text)
            (self.recipe / name).symlink_to(f"..data/{name}")

    def tool(self, name: str, text: str) -> None:
        (self.tools / name).write_text(text)
        (self.tools / name).chmod(0o755)

    def run(self, script: str, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        variables = {
            "PATH": f"{self.tools}:{os.environ['PATH']}",
            "CALLS": str(self.calls),
            "STATE": str(self.state),
            "RECIPE": str(self.recipe),
            "DOCKER_CONFIG": str(self.state / "docker"),
            "IMAGE": f"{ECR}/c/llama3-image:0123456789abcdef",
            "REGISTRIES": "",
            "USER_NAMESPACES": str(self.user_namespaces),
            "ECR": "has-not",
            "LOGIN": "granted",
            **more,
        }
        command = ["sh", str(ASSETS / script), *arguments]
        return subprocess.run(command, env=variables, capture_output=True, text=True, timeout=60)


@pytest.fixture
def shared(tmp_path: Path) -> Pod:
    return Pod(tmp_path)


def test_what_is_there_is_not_built(shared: Pod):
    prepared = shared.run("prepare.sh", ECR="has-it")
    assert prepared.returncode == 0
    assert "there already as sha256:0123" in prepared.stdout
    assert "get-login-password" not in shared.calls.read_text()
    shared.calls.write_text("")
    done = shared.run("build.sh")
    assert done.returncode == 0
    assert shared.calls.read_text() == ""


def test_what_is_not_there_is_looked_for_by_its_tag_and_prepared(shared: Pod):
    prepared = shared.run("prepare.sh")
    assert prepared.returncode == 0, prepared.stderr
    assert (
        "aws ecr describe-images --region us-west-2 --repository-name c/llama3-image --image-ids imageTag=0123456789abcdef"
        in shared.calls.read_text()
    )
    context = shared.state / "context"
    assert {path.name: path.read_text() for path in context.iterdir()} == {"Dockerfile": SMALL, "a.txt": "a"}
    assert not any(path.is_symlink() for path in context.iterdir())


def test_logins_are_a_docker_configuration_nobody_else_can_read(shared: Pod):
    other = "222233334444.dkr.ecr.eu-west-1.amazonaws.com"
    assert shared.run("prepare.sh", REGISTRIES=f"{other} {ECR}").returncode == 0
    path = shared.state / "docker" / "config.json"
    logins = json.loads(path.read_text())["auths"]
    assert {host: base64.b64decode(entry["auth"]).decode() for host, entry in logins.items()} == {
        ECR: "AWS:password-of-us-west-2",
        other: "AWS:password-of-eu-west-1",
    }
    assert path.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"ECR": "forbids"}, "AccessDeniedException"),
        ({"LOGIN": "refused"}, "no token"),
    ],
)
def test_a_step_that_cannot_go_on_says_why_and_leaves_nothing_behind(shared: Pod, variables: dict, said: str):
    failed = shared.run("prepare.sh", **variables)
    assert failed.returncode != 0
    assert said in failed.stderr
    assert not (shared.state / "exists").exists()
    assert not (shared.state / "docker" / "config.json").exists()


def test_the_build_takes_the_context_pushes_the_image_and_passes_arguments_on(shared: Pod):
    shared.run("prepare.sh")
    done = shared.run("build.sh", "--opt", "build-arg:A=two words")
    assert done.returncode == 0, done.stderr
    words = shared.calls.read_text().splitlines()
    assert words[0] == "build"
    assert words[-2:] == ["--opt", "build-arg:A=two words"]
    assert f"type=image,name={ECR}/c/llama3-image:0123456789abcdef,push=true" in words
    assert [word for word in words if word.endswith(str(shared.state / "context"))] == [
        f"context={shared.state}/context",
        f"dockerfile={shared.state}/context",
    ]


def test_a_failed_build_fails_the_container_and_does_not_say_pushed(shared: Pod):
    failed = shared.run("build.sh", BUILD_EXIT="7")
    assert failed.returncode == 7
    assert "pushed" not in failed.stdout


def test_a_node_without_user_namespaces_is_named_as_the_reason(shared: Pod):
    shared.user_namespaces.write_text("0\n")
    failed = shared.run("build.sh")
    assert failed.returncode == 1
    assert "user.max_user_namespaces is 0" in failed.stderr


def test_settings_of_another_partition_reach_the_permissions():
    base = [dockerfile.PrivateRepository("host", "111122223333", "cn-north-1", "r")]
    document = plan.permissions(
        "arn:aws-cn:ecr:cn-north-1:111122223333:repository/x", base, stack_settings(region="cn-north-1").partition
    )
    assert document["Statement"][-1]["Resource"] == ["arn:aws-cn:ecr:cn-north-1:111122223333:repository/r"]


def _with_an_image(of: type[Spec]) -> Iterator[type[Spec]]:
    for each in of.__subclasses__():
        yield from (each,) if "image" in each.model_fields else ()
        yield from _with_an_image(each)


assert stack_spec.StackSpec, "whose module imports every spec"


@pytest.mark.parametrize("spec", sorted({*_with_an_image(Spec)}, key=str), ids=str)
def test_every_image_may_be_pinned_by_a_digest_beside_its_tag(spec: type[Spec]) -> None:
    field = spec.model_fields["image"]
    definition: Any = (field.annotation, field)
    one = create_model("One", image=definition)
    for tagged in ("host.test/a/b:1.0", "host.test:5000/b:v2"):
        assert one.model_validate({"image": f"{tagged}@sha256:{'0a' * 32}"})
        with pytest.raises(ValidationError):
            one.model_validate({"image": f"{tagged}@sha256:{'0a' * 31}"})
