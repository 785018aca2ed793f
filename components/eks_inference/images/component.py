"""The component that builds an image in the cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pulumi
import pulumi_aws as aws
import pulumi_kubernetes as k8s

from eks_inference.aws import iam
from eks_inference.catalog import versions
from eks_inference.cluster.handle import Cluster
from eks_inference.cluster.objects import in_namespace, namespace_object, on_cluster
from eks_inference.cluster.pod_identity import pod_identity
from eks_inference.component import Component
from eks_inference.faults import SpecError
from eks_inference.images import dockerfile, plan
from eks_inference.images.spec import InClusterImage
from eks_inference.kubernetes.network_policy import network_policy
from eks_inference.place.placement import Placement
from eks_inference.specs.base import Given


class ImageBuild(Component):
    """Builds an image from a Dockerfile by a Job in the cluster. ``reference`` resolves once the image can be pulled.

    Creates an ECR repository (immutable tags, scan on push, the stack's KMS key if there is one) with its lifecycle policy, and a
    role by EKS Pod Identity that may use only this repository. Also creates a namespace with a ServiceAccount, a NetworkPolicy,
    ConfigMaps for the recipe and the scripts, and the Job on ``placement``. The Job's first container logs in and looks for the
    tag; if the tag exists, the build is skipped. Otherwise rootless BuildKit builds and pushes. The namespace's Pod Security
    level is "privileged", for the reasons in ``plan.POD_SECURITY``, but BuildKit runs neither as root nor privileged.

    The tag is a hash of Dockerfile, files and build arguments, and part of the Job's name: changed content is a new Job, and
    whatever uses ``reference`` waits for it. After a failed build the pods remain for their logs, and the next ``pulumi up``
    builds again. Deleting the component deletes the repository with its images, which can be rebuilt, unless the stack sets
    ``protect``.

    ``defaults`` are build arguments from the user of the image, e.g. from an engine profile: ``ENGINE_IMAGE``, ``RAY_VERSION``.
    The nodes of ``placement`` need user namespaces (AL2023 has them; Bottlerocket and EKS Auto Mode disable them) and a root disk
    of ``plan.smallest_root_volume_gib(spec)``. Public registries are used without an account, within their limits.

    Raises ``SpecError`` for an invalid namespace name, and for nodes whose architecture is not x86_64.
    """

    def __init__(
        self,
        name: str,
        spec: Given[InClusterImage],
        opts: pulumi.ResourceOptions | None = None,
        *,
        cluster: Cluster,
        placement: Placement,
        defaults: Mapping[str, str] | None = None,
    ) -> None:
        spec = InClusterImage.of(spec)
        if faults := plan.faults(name, placement):
            raise SpecError(faults)
        super().__init__("eks-inference:index:ImageBuild", name, spec.inputs(), opts)
        settings = cluster.settings
        arguments = plan.arguments(spec, defaults or {})
        build_arguments = plan.mirrored(arguments, settings)
        bases = dockerfile.private_repositories([spec.dockerfile_text, *build_arguments.values()])
        self.tag = plan.content_tag(spec, arguments)
        self.namespace = spec.namespace or name
        self._repository_name = spec.repository or f"{cluster.name}/{name}"

        repository = self._repository(name, spec, cluster)
        permissions = repository.arn.apply(lambda arn: iam.policy_json(plan.permissions(arn, bases, settings.partition)))
        identity = pod_identity(
            name,
            cluster=cluster,
            namespace=self.namespace,
            service_account=plan.SERVICE_ACCOUNT,
            description=f"Builds of the image {self._repository_name} in the EKS cluster {cluster.name}",
            parent=self,
            policies={"policy": permissions},
        )
        namespace = namespace_object(f"{name}-namespace", self.namespace, plan.POD_SECURITY, cluster=cluster, parent=self)
        before = self._inside(name, spec, in_namespace(cluster, self, namespace))
        job = k8s.batch.v1.Job(
            f"{name}-job",
            metadata={
                "name": f"build-{self.tag}",
                "namespace": self.namespace,
                "labels": plan.LABELS,
                # The next `pulumi up` replaces a failed Job instead of waiting for it forever.
                "annotations": {"pulumi.com/replaceUnready": "true"},
            },
            spec=plan.job(
                spec,
                tag=self.tag,
                image=pulumi.Output.concat(repository.repository_url, ":", self.tag),
                build_arguments=build_arguments,
                registries=sorted({base.registry for base in bases}),
                placement=placement,
                cli_image=settings.image(versions.image("aws-cli")),
                buildkit_image=settings.image(versions.image("buildkit")),
            ),
            opts=on_cluster(
                cluster,
                self,
                *(*before, *identity, *placement.ready),
                timeouts=pulumi.CustomTimeouts(create=f"{spec.timeout_minutes}m"),
            ),
        )
        self.reference: pulumi.Output[str] = pulumi.Output.all(repository.repository_url, job.id).apply(
            lambda known: f"{known[0]}:{self.tag}"
        )
        """Reference of the image, known once the Job has pushed it: whatever uses it waits for the Job."""
        self.repository_name: pulumi.Output[str] = repository.name
        self.ready: Sequence[pulumi.Resource] = (job,)
        self.register_outputs({"reference": self.reference, "repositoryUrl": repository.repository_url})

    def _repository(self, name: str, spec: InClusterImage, cluster: Cluster) -> aws.ecr.Repository:
        settings = cluster.settings
        key = settings.kms_key_arn
        repository = aws.ecr.Repository(
            f"{name}-repository",
            name=self._repository_name,
            image_tag_mutability="IMMUTABLE",
            image_scanning_configuration=aws.ecr.RepositoryImageScanningConfigurationArgs(scan_on_push=True),
            encryption_configurations=[aws.ecr.RepositoryEncryptionConfigurationArgs(encryption_type="KMS", kms_key=key)]
            if key
            else None,
            # ECR refuses to delete a repository with images. They can be rebuilt, and a deleted stack must leave nothing behind.
            force_delete=not settings.protect,
            tags={**settings.tags, "Name": self._repository_name},
            opts=pulumi.ResourceOptions(parent=self, protect=settings.protect or None),
        )
        aws.ecr.LifecyclePolicy(
            f"{name}-lifecycle",
            repository=repository.name,
            policy=iam.policy_json(plan.lifecycle_policy(spec.keep_images)),
            opts=pulumi.ResourceOptions(parent=self),
        )
        return repository

    def _inside(self, name: str, spec: InClusterImage, opts: pulumi.ResourceOptions) -> list[pulumi.Resource]:
        """Creates what the build's pods need in their namespace."""
        return [
            k8s.core.v1.ServiceAccount(
                f"{name}-account",
                metadata={"name": plan.SERVICE_ACCOUNT, "namespace": self.namespace},
                automount_service_account_token=False,
                opts=opts,
            ),
            k8s.networking.v1.NetworkPolicy(
                f"{name}-network",
                **network_policy("image-build", self.namespace, selector={}, ingress=[], egress=plan.EGRESS),
                opts=opts,
            ),
            k8s.core.v1.ConfigMap(
                f"{name}-recipe",
                metadata={"name": plan.recipe_config_map(self.tag), "namespace": self.namespace},
                data={dockerfile.NAME: spec.dockerfile_text, **spec.files},
                opts=opts,
            ),
            k8s.core.v1.ConfigMap(
                f"{name}-scripts",
                metadata={"name": plan.SCRIPTS_CONFIG_MAP, "namespace": self.namespace},
                data=plan.scripts(),
                opts=opts,
            ),
        ]
