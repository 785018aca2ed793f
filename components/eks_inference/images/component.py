"""An image that is built in the cluster."""

from collections.abc import Mapping, Sequence

import pulumi
import pulumi_aws as aws
import pulumi_kubernetes as k8s

from eks_inference.aws import iam
from eks_inference.catalog import versions
from eks_inference.cluster.handle import Cluster
from eks_inference.cluster.objects import namespace_object, on_cluster
from eks_inference.cluster.pod_identity import pod_identity
from eks_inference.faults import SpecError
from eks_inference.images import plan
from eks_inference.images.dockerfile import PrivateRepository
from eks_inference.images.spec import InClusterImage
from eks_inference.kubernetes.network_policy import network_policy
from eks_inference.placement import Placement


class ImageBuild(pulumi.ComponentResource):
    """An image built from a Dockerfile by a Job in the cluster; ``reference`` is there once it can be pulled.

    Builds an ECR repository (immutable tags, scan on push, the stack's KMS key if there is one) with its lifecycle policy, a role
    by EKS Pod Identity that may use this repository only, and in a namespace of its own: ServiceAccount, NetworkPolicy, the
    recipe and the scripts as ConfigMaps, and the Job on ``placement``. A first container logs in and looks for the tag; where it
    is there the build is skipped. Else rootless BuildKit builds and pushes. The namespace is Pod Security "privileged":
    ``plan.POD_SECURITY`` says what BuildKit needs of that, and that it is neither root nor privileged.

    The tag is a hash of Dockerfile, files and build arguments, and part of the Job's name: other content is another Job, and what
    takes ``reference`` waits for it. A build that fails ends the Job; its pods stay for their logs, and the next ``pulumi up``
    builds again. Deleting the component deletes the repository with its images, which can be built again, unless ``protect`` is
    set for the stack.

    ``defaults`` are build arguments of whoever uses the image, e.g. of its engine profile: ``ENGINE_IMAGE``, ``RAY_VERSION``.
    The nodes of ``placement`` need user namespaces (AL2023 has them; Bottlerocket and EKS Auto Mode switch them off) and a root
    disk of ``plan.smallest_root_volume_gib(spec)``. Public registries are used without an account, within their limits.

    Raises ``SpecError`` for a name that cannot be a namespace's, or nodes of another processor than x86_64.
    """

    def __init__(
        self,
        name: str,
        spec: InClusterImage,
        *,
        cluster: Cluster,
        placement: Placement,
        defaults: Mapping[str, str] | None = None,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        faults = plan.faults(name, placement)
        if faults:
            raise SpecError(faults)
        super().__init__("eks-inference:index:ImageBuild", name, spec.model_dump(mode="json", exclude_none=True), opts)
        settings = cluster.settings
        arguments = plan.arguments(spec, defaults or {})
        build_arguments = plan.mirrored(arguments, settings)
        bases = plan.private_bases(spec, build_arguments)
        self.tag = plan.content_tag(spec, arguments)
        self.namespace = spec.namespace or name
        self.repository_name = spec.repository or f"{cluster.name}/{name}"

        repository = self._repository(name, spec, cluster)
        identity = self._identity(name, repository, bases, cluster)
        namespace = namespace_object(f"{name}-namespace", self.namespace, plan.POD_SECURITY, cluster=cluster, parent=self)
        before = self._inside(name, spec, on_cluster(cluster, self, namespace))
        job = k8s.batch.v1.Job(
            f"{name}-job",
            metadata={
                "name": plan.job_name(self.tag),
                "namespace": self.namespace,
                "labels": plan.LABELS,
                # A failed Job is built again by the next `pulumi up`, which would otherwise wait for it for ever.
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
        """The image, known and pullable once the Job has finished: what takes it waits for the Job."""
        self.ready: Sequence[pulumi.Resource] = (job,)
        self.register_outputs({"reference": self.reference, "repositoryUrl": repository.repository_url})

    def _repository(self, name: str, spec: InClusterImage, cluster: Cluster) -> aws.ecr.Repository:
        settings = cluster.settings
        key = settings.kms_key_arn
        repository = aws.ecr.Repository(
            f"{name}-repository",
            name=self.repository_name,
            image_tag_mutability="IMMUTABLE",
            image_scanning_configuration=aws.ecr.RepositoryImageScanningConfigurationArgs(scan_on_push=True),
            encryption_configurations=[aws.ecr.RepositoryEncryptionConfigurationArgs(encryption_type="KMS", kms_key=key)]
            if key
            else None,
            # ECR refuses to delete a repository with images. These can be built again, and a stack leaves nothing behind.
            force_delete=not settings.protect,
            tags={**settings.tags, "Name": self.repository_name},
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
        """What the build's pods need in their namespace."""
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
                data=plan.context(spec),
                opts=opts,
            ),
            k8s.core.v1.ConfigMap(
                f"{name}-scripts",
                metadata={"name": plan.SCRIPTS_CONFIG_MAP, "namespace": self.namespace},
                data=plan.scripts(),
                opts=opts,
            ),
        ]

    def _identity(
        self, name: str, repository: aws.ecr.Repository, bases: Sequence[PrivateRepository], cluster: Cluster
    ) -> list[pulumi.Resource]:
        """What the build's pods need in AWS."""
        partition = cluster.settings.partition
        policy = repository.arn.apply(lambda arn: iam.policy_json(plan.permissions(arn, bases, partition)))
        return pod_identity(
            name,
            cluster=cluster,
            namespace=self.namespace,
            service_account=plan.SERVICE_ACCOUNT,
            description=f"Builds of the image {self.repository_name} in the EKS cluster {cluster.name}",
            parent=self,
            policies={"policy": policy},
        )
