"""Plans an image build: its tag, its permissions and its Job. Pure functions; no pulumi.

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
from eks_inference.kubernetes.workloads import APP_LABEL, Level
from eks_inference.place.placement import Placement
from eks_inference.specs.base import dns_label_faults
from eks_inference.specs.settings import StackSettings

SERVICE_ACCOUNT = "image-build"
SCRIPTS_CONFIG_MAP = "image-build-scripts"
SCRIPT_FILES = ("prepare.sh", "build.sh")
LABELS = {APP_LABEL: "image-build"}

POD_SECURITY: Level = "privileged"
"""Pod Security level of the build's namespace.

"restricted" and "baseline" are too strict although rootless BuildKit runs as uid 1000 and is not privileged. Each RUN step of a
Dockerfile is a container inside the pod. Its namespaces and mounts need system calls that the runtime's seccomp profile and
AppArmor forbid, so both are "Unconfined". Mapping its users needs newuidmap, which is setuid, so privilege escalation is allowed.
"""

MAX_NAME_LENGTH = 63
"""The component's name is also that of a namespace."""

_TAG_LENGTH = 16
_USER = 1000  # the uid that the rootless image is built for
_BACKOFF_LIMIT = 4  # pauses of 10, 20, 40 and 80 s give a new role time to reach ECR
_REPORT_SECONDS = 60
_STATE = "/build"
_RECIPE = "/recipe"
_SCRIPTS = "/scripts"
_STATE_AND_SCRIPTS = (
    {"name": "state", "mountPath": _STATE},
    {"name": "scripts", "mountPath": _SCRIPTS, "readOnly": True},
)

# Ubuntu's package archives use plain HTTP. A Dockerfile must not reach link-local addresses, such as instance metadata.
EGRESS: tuple[Rule, ...] = (DNS, POD_IDENTITY, HTTPS, allow_to(addresses("0.0.0.0/0", but=["169.254.0.0/16"]), tcp=[80]))
"""Egress of a build: DNS, credentials, and registries and package archives anywhere."""

# The kubelet of AL2023 reserves a tenth of the disk as the eviction threshold, and 1 GiB. The last figure, for the system and the
# images of other pods, is inferred.
_EVICTION_SHARE = 0.1
_RESERVED_GIB = 1
_SYSTEM_GIB = 20


def arguments(spec: InClusterImage, defaults: Mapping[str, str]) -> dict[str, str]:
    """Returns the build arguments: the Dockerfile's defaults, overridden by ``defaults``, overridden by the spec's.

    ``defaults`` come from the user of the image (its engine). Arguments that the Dockerfile does not declare are dropped.
    """
    declared = dockerfile.arguments(spec.dockerfile_text)
    literal = {name: default for name, default in declared.items() if default is not None}
    return literal | {name: value for name, value in defaults.items() if name in declared} | spec.build_args


def content_tag(spec: InClusterImage, build_arguments: Mapping[str, str]) -> str:
    """Returns the image's tag: a hash of the Dockerfile, the files and the build arguments.

    Pass the arguments without mirrors: a mirror holds the same image under another name.
    """
    content = {"dockerfile": spec.dockerfile_text, "files": spec.files, "arguments": dict(build_arguments)}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:_TAG_LENGTH]


def mirrored(build_arguments: Mapping[str, str], settings: StackSettings) -> dict[str, str]:
    """Returns the build arguments with the names of images replaced by their mirrors."""
    return {name: settings.image(value) if name.endswith("_IMAGE") else value for name, value in sorted(build_arguments.items())}


def scripts() -> dict[str, str]:
    """Returns the scripts of the two steps of a build."""
    folder = files("eks_inference.images").joinpath("assets")
    return {name: folder.joinpath(name).read_text("utf-8") for name in SCRIPT_FILES}


def smallest_root_volume_gib(spec: InClusterImage) -> int:
    """Returns the smallest root disk, in GiB, of a node that the build's pod can be scheduled on."""
    return math.ceil((spec.ephemeral_storage_gib + _RESERVED_GIB + _SYSTEM_GIB) / (1 - _EVICTION_SHARE))


def lifecycle_policy(keep_images: int) -> dict[str, Any]:
    """Returns the lifecycle policy that expires images beyond the newest, and remains of failed pushes."""
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
    """Returns what a build may do: pull from and push to its repository, and pull from private ones that its Dockerfile names.

    The repository's KMS key needs no permission here: ECR uses it through its own grant.
    """
    pull = ["ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"]
    push = ["ecr:CompleteLayerUpload", "ecr:InitiateLayerUpload", "ecr:PutImage", "ecr:UploadLayerPart"]
    statements = [
        # The action takes no resource: the token is valid for every registry that the role can use.
        iam.allow("Login", ["ecr:GetAuthorizationToken"], "*"),
        iam.allow("PushAndPull", [*pull, *push, "ecr:DescribeImages"], repository_arn),
    ]
    if bases:
        statements.append(iam.allow("PullBases", pull, [base.arn(partition) for base in bases]))
    return iam.document(*statements)


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
    """Returns the ``spec`` of the Job in Kubernetes spelling. ``image`` is the reference to push, known after the deployment."""
    return {
        # No ttlSecondsAfterFinished: the next `pulumi up` would recreate a Job that has disappeared.
        "backoffLimit": _BACKOFF_LIMIT,
        # Earlier than Pulumi's own timeout, so that the Job reports the reason.
        "activeDeadlineSeconds": spec.timeout_minutes * 60 - _REPORT_SECONDS,
        "podFailurePolicy": {
            "rules": [
                {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
                # A retry cannot fix a Dockerfile. Only the first step, which calls AWS, is retried.
                {"action": "FailJob", "onExitCodes": {"containerName": "build", "operator": "NotIn", "values": [0]}},
            ]
        },
        "template": {
            "metadata": {"labels": LABELS, "annotations": {"karpenter.sh/do-not-disrupt": "true"}},
            "spec": {
                # Each attempt keeps its pod, and so its log.
                "restartPolicy": "Never",
                "serviceAccountName": SERVICE_ACCOUNT,
                "automountServiceAccountToken": False,
                "enableServiceLinks": False,
                **placement.scheduling(),
                # No fsGroup: the setgid bit that it sets on the volume would leak into folders of the image.
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
    """Returns the container that logs in to the registries and checks whether the image already exists."""
    return {
        "name": "prepare",
        "image": cli_image,
        "command": ["/bin/sh", f"{_SCRIPTS}/prepare.sh"],
        "env": [
            *_environment(image),
            {"name": "RECIPE", "value": _RECIPE},
            {"name": "REGISTRIES", "value": " ".join(registries)},
            # The user has no home directory in this image.
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
    """Returns the container that builds and pushes the image unless it exists."""
    storage = {"ephemeral-storage": f"{spec.ephemeral_storage_gib}Gi"}
    # Kubernetes would expand $(VARIABLE) in arguments; $$ escapes the dollar sign.
    options = [f"build-arg:{name}={value}".replace("$", "$$") for name, value in build_arguments.items()]
    return {
        "name": "build",
        "image": buildkit_image,
        "command": ["/bin/sh", f"{_SCRIPTS}/build.sh"],
        "args": [argument for option in options for argument in ("--opt", option)],
        "env": [
            *_environment(image),
            # A pod's /proc is masked, so RUN steps cannot mount their own and share the daemon's.
            {"name": "BUILDKITD_FLAGS", "value": "--oci-worker-no-process-sandbox"},
            # Retries with growing pauses, 40 s in total. The default of 10 retries ends after 3 s.
            {"name": "BUILDCTL_CONNECT_RETRIES_MAX", "value": "60"},
        ],
        "resources": {
            "requests": {"cpu": spec.cpu, "memory": spec.memory, **storage},
            "limits": {"memory": spec.memory, **storage},
        },
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": {
            # newuidmap is setuid, and every RUN step mounts file systems. See POD_SECURITY.
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
    """Returns the faults of the component's name and of the nodes that build the image."""
    message = "an image build's name is also that of its namespace and repository"
    found = dns_label_faults(name, message, max_length=MAX_NAME_LENGTH)
    shape = placement.instance_type
    if shape.architecture != "x86_64":
        message = "an image has the architecture of the node that builds it, and servers run on x86_64"
        found.append(Fault((), message, f"{shape.name} ({shape.architecture})", "a placement on x86_64 nodes"))
    return found
