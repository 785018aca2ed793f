"""An image build as data: its tag, its permissions, its Job. Pure functions; no pulumi.

Sources: BuildKit v0.32.2, docs/rootless.md and examples/kubernetes/job.rootless.yaml; ECR user guide, "IAM permissions for
pushing an image" and "Lifecycle policy properties"; Kubernetes documentation, "Pod failure policy" and "Pod Security Standards".
"""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from eks_inference.aws import iam
from eks_inference.faults import Fault
from eks_inference.images import dockerfile
from eks_inference.images.dockerfile import PrivateRepository
from eks_inference.images.spec import InClusterImage
from eks_inference.kubernetes.network_policy import DNS, HTTPS, POD_IDENTITY, Rule, addresses, allow_to
from eks_inference.kubernetes.pod_security import Level
from eks_inference.kubernetes.workloads import APP_LABEL
from eks_inference.placement import Placement
from eks_inference.settings import StackSettings
from eks_inference.spec import dns_label_faults

SERVICE_ACCOUNT = "image-build"
SCRIPTS_CONFIG_MAP = "image-build-scripts"
SCRIPT_FILES = ("prepare.sh", "build.sh")
LABELS = {APP_LABEL: "image-build"}

POD_SECURITY: Level = "privileged"
"""Pod Security of the build's namespace, and why it is not "restricted".

Rootless BuildKit runs as uid 1000, not privileged. But each RUN step of a Dockerfile is a container inside the pod: making its
namespaces and mounts takes system calls that the runtime's seccomp profile and AppArmor forbid, so both are "Unconfined", which
"baseline" does not allow either; and mapping its users takes newuidmap, which is setuid, so privileges may grow.
"""

MAX_NAME_LENGTH = 63
"""The component's name is the name of a namespace."""

_TAG_LENGTH = 16
_USER = 1000  # of the rootless image; another one needs another image
_BACKOFF_LIMIT = 4  # waits of 10, 20, 40 and 80 s: a new association or role reaches pods and ECR within these
_LAST_WORDS_SECONDS = 60
_STATE = "/build"
_RECIPE = "/recipe"
_SCRIPTS = "/scripts"
_STATE_AND_SCRIPTS = (
    {"name": "state", "mountPath": _STATE},
    {"name": "scripts", "mountPath": _SCRIPTS, "readOnly": True},
)

# Ubuntu's package archives are plain HTTP. Link-local addresses (instance metadata above all) are not for a Dockerfile.
_HTTP: Rule = allow_to(addresses("0.0.0.0/0", but=["169.254.0.0/16"]), tcp=[80])

EGRESS: tuple[Rule, ...] = (DNS, POD_IDENTITY, HTTPS, _HTTP)
"""Where a build may connect to: registries and package archives anywhere."""

# What a node's kubelet holds back of its disk (AL2023): a tenth for the eviction threshold, 1 GiB for itself. Then the system and
# the images of the node's other pods; inferred.
_EVICTION_SHARE = 0.1
_RESERVED_GIB = 1
_SYSTEM_GIB = 20


def arguments(spec: InClusterImage, defaults: Mapping[str, str]) -> dict[str, str]:
    """The build arguments by name: the Dockerfile's own defaults, ``defaults`` over them, the spec's over both.

    ``defaults`` are those of whoever uses the image (its engine); the Dockerfile takes only what it declares.
    """
    declared = dockerfile.arguments(spec.dockerfile_text)
    literal = {name: default for name, default in declared.items() if default is not None}
    return literal | {name: value for name, value in defaults.items() if name in declared} | spec.build_args


def content_tag(spec: InClusterImage, build_arguments: Mapping[str, str]) -> str:
    """The image's tag: a hash of the Dockerfile, the files and the build arguments.

    Of the arguments before mirrors: a mirror holds the same image under another name.
    """
    content = {"dockerfile": spec.dockerfile_text, "files": spec.files, "arguments": dict(build_arguments)}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:_TAG_LENGTH]


def mirrored(build_arguments: Mapping[str, str], settings: StackSettings) -> dict[str, str]:
    """The build arguments as the build gets them: names of images by their mirrors."""
    return {name: settings.image(value) if name.endswith("_IMAGE") else value for name, value in sorted(build_arguments.items())}


def private_bases(spec: InClusterImage, build_arguments: Mapping[str, str]) -> list[PrivateRepository]:
    """Private ECR repositories the build pulls from."""
    return dockerfile.private_repositories([spec.dockerfile_text, *build_arguments.values()])


def context(spec: InClusterImage) -> dict[str, str]:
    """What the build sees: the Dockerfile and its files by name."""
    return {dockerfile.NAME: spec.dockerfile_text, **spec.files}


def scripts() -> dict[str, str]:
    """The two steps of a build."""
    folder = files("eks_inference.images").joinpath("assets")
    return {name: folder.joinpath(name).read_text("utf-8") for name in SCRIPT_FILES}


def smallest_root_volume_gib(spec: InClusterImage) -> int:
    """The smallest root disk of a node that the build's pod can be put on. On a smaller one it stays pending."""
    return math.ceil((spec.ephemeral_storage_gib + _RESERVED_GIB + _SYSTEM_GIB) / (1 - _EVICTION_SHARE))


def lifecycle_policy(keep_images: int) -> dict[str, Any]:
    """The repository's own housekeeping: images beyond the newest, and what failed pushes left."""
    return {
        "rules": [
            {
                "rulePriority": 1,
                "description": f"Keep the newest {keep_images} images",
                "selection": {
                    "tagStatus": "tagged",
                    "tagPatternList": ["*"],
                    "countType": "imageCountMoreThan",
                    "countNumber": keep_images,
                },
                "action": {"type": "expire"},
            },
            {
                "rulePriority": 2,
                "description": "Untagged images go after a day",
                "selection": {"tagStatus": "untagged", "countType": "sinceImagePushed", "countUnit": "days", "countNumber": 1},
                "action": {"type": "expire"},
            },
        ]
    }


def permissions(repository_arn: str, bases: Sequence[PrivateRepository], partition: str = "aws") -> iam.Document:
    """What a build may do: pull from and push to this one repository, and pull from the private ones its Dockerfile names.

    A KMS key of the repository needs no permission here: ECR uses it by a grant of its own.
    """
    pull = ["ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"]
    push = ["ecr:CompleteLayerUpload", "ecr:InitiateLayerUpload", "ecr:PutImage", "ecr:UploadLayerPart"]
    statements = [
        # Takes no resource: the token is for whatever registry the role can use.
        iam.allow("Login", ["ecr:GetAuthorizationToken"], "*"),
        iam.allow("PushAndPull", [*pull, *push, "ecr:DescribeImages"], repository_arn),
    ]
    if bases:
        statements.append(iam.allow("PullBases", pull, [base.arn(partition) for base in bases]))
    return iam.document(*statements)


def job_name(tag: str) -> str:
    """Other content is another Job, so that the old one is there until the new one has finished."""
    return f"build-{tag}"


def recipe_config_map(tag: str) -> str:
    return f"recipe-{tag}"


def job(
    spec: InClusterImage,
    *,
    tag: str,
    image: Any,
    build_arguments: Mapping[str, str],
    registries: list[str],
    placement: Placement,
    cli_image: str,
    buildkit_image: str,
) -> Any:
    """``spec`` of the Job, in Kubernetes spelling. ``image`` is the reference to make, known once the repository is there."""
    return {
        # No ttlSecondsAfterFinished: a Job that disappears is built again by the next `pulumi up`.
        "backoffLimit": _BACKOFF_LIMIT,
        # Ahead of Pulumi's own waiting, so that the Job says why it ended.
        "activeDeadlineSeconds": spec.timeout_minutes * 60 - _LAST_WORDS_SECONDS,
        "podFailurePolicy": {
            "rules": [
                {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
                # What a Dockerfile did wrong it does wrong again. The first step, which talks to AWS, is tried again.
                {"action": "FailJob", "onExitCodes": {"containerName": "build", "operator": "NotIn", "values": [0]}},
            ]
        },
        "template": {
            "metadata": {"labels": LABELS, "annotations": {"karpenter.sh/do-not-disrupt": "true"}},
            "spec": {
                # Each try leaves its pod, and with it its log.
                "restartPolicy": "Never",
                "serviceAccountName": SERVICE_ACCOUNT,
                "automountServiceAccountToken": False,
                "enableServiceLinks": False,
                **placement.scheduling(),
                # No fsGroup: its setgid bit on the volume would find its way into folders of the image.
                "securityContext": {"runAsNonRoot": True, "runAsUser": _USER, "runAsGroup": _USER},
                "initContainers": [_prepare_container(cli_image, image, registries)],
                "containers": [_build_container(buildkit_image, image, spec, build_arguments)],
                "volumes": [
                    {"name": "recipe", "configMap": {"name": recipe_config_map(tag)}},
                    {"name": "scripts", "configMap": {"name": SCRIPTS_CONFIG_MAP}},
                    {"name": "state", "emptyDir": {}},
                    {"name": "buildkit", "emptyDir": {}},
                ],
            },
        },
    }


def _prepare_container(cli_image: str, image: Any, registries: Sequence[str]) -> dict[str, Any]:
    """Logs in, and looks whether the image is there already."""
    return {
        "name": "prepare",
        "image": cli_image,
        "command": ["/bin/sh", f"{_SCRIPTS}/prepare.sh"],
        "env": [
            *_environment(image),
            {"name": "RECIPE", "value": _RECIPE},
            {"name": "REGISTRIES", "value": " ".join(registries)},
            # The user has no home in this image.
            {"name": "HOME", "value": _STATE},
        ],
        "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "256Mi"}},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumeMounts": [*_STATE_AND_SCRIPTS, {"name": "recipe", "mountPath": _RECIPE, "readOnly": True}],
    }


def _build_container(buildkit_image: str, image: Any, spec: InClusterImage, build_arguments: Mapping[str, str]) -> dict[str, Any]:
    """Builds and pushes the image, unless it is there."""
    storage = {"ephemeral-storage": f"{spec.ephemeral_storage_gib}Gi"}
    options = [_literal(f"build-arg:{name}={value}") for name, value in build_arguments.items()]
    return {
        "name": "build",
        "image": buildkit_image,
        "command": ["/bin/sh", f"{_SCRIPTS}/build.sh"],
        "args": [argument for option in options for argument in ("--opt", option)],
        "env": [
            *_environment(image),
            # A pod's /proc is masked, so a RUN step cannot have one of its own and shares the daemon's.
            {"name": "BUILDKITD_FLAGS", "value": "--oci-worker-no-process-sandbox"},
            # Of growing length, 40 s in all; the 10 it would try are 3 s.
            {"name": "BUILDCTL_CONNECT_RETRIES_MAX", "value": "60"},
        ],
        "resources": {
            "requests": {"cpu": spec.cpu, "memory": spec.memory, **storage},
            "limits": {"memory": spec.memory, **storage},
        },
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": {
            # For newuidmap, which is setuid, and for the mounts of each RUN step. See POD_SECURITY.
            "allowPrivilegeEscalation": True,
            "privileged": False,
            "seccompProfile": {"type": "Unconfined"},
            "appArmorProfile": {"type": "Unconfined"},
        },
        "volumeMounts": [*_STATE_AND_SCRIPTS, {"name": "buildkit", "mountPath": "/home/user/.local/share/buildkit"}],
    }


def _environment(image: Any) -> list[dict[str, Any]]:
    return [
        {"name": "IMAGE", "value": image},
        {"name": "STATE", "value": _STATE},
        {"name": "DOCKER_CONFIG", "value": f"{_STATE}/docker"},
    ]


def faults(name: str, placement: Placement) -> list[Fault]:
    """What is wrong with where and under which name an image is to be built."""
    message = "an image build's name is also that of its namespace and repository"
    found = dns_label_faults(name, message, max_length=MAX_NAME_LENGTH)
    shape = placement.instance_type
    if shape.architecture != "x86_64":
        message = "an image is built for the processor it is built on, and servers run on x86_64"
        found.append(Fault((), message, f"{shape.name} ({shape.architecture})", "a placement on x86_64 nodes"))
    return found


def _literal(argument: str) -> str:
    """An argument in which Kubernetes finds no ``$(VARIABLE)`` to fill in."""
    return argument.replace("$", "$$")
