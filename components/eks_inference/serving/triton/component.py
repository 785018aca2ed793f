"""The component of a Triton server with the vLLM back end."""

from __future__ import annotations

from dataclasses import replace

import pulumi
import pulumi_aws as aws
import pulumi_kubernetes as k8s

from eks_inference.accelerators.nvidia.component import GpuPlugin
from eks_inference.aws import iam
from eks_inference.catalog import versions
from eks_inference.catalog.instances import InstanceType
from eks_inference.cluster.handle import Cluster
from eks_inference.cluster.objects import on_cluster
from eks_inference.component import carried, rendered
from eks_inference.place.placement import Placement
from eks_inference.serving.component import ReplicatedServer, Secret
from eks_inference.serving.spec import NoCompileCache
from eks_inference.serving.storage import account_role, private_bucket
from eks_inference.serving.storage_plan import pod_storage
from eks_inference.serving.triton import plan
from eks_inference.serving.triton.rules import facts_of_places, triton_rules
from eks_inference.serving.triton.spec import ConfigMapRepository, HostPathCache, TritonServerSpec
from eks_inference.specs.base import Given


class TritonServer(ReplicatedServer):
    """Triton Inference Server with the vLLM back end on GPUs: KServe v2 over HTTP (8000) and gRPC (8001), metrics on 8002.

    ``name``, a DNS label of at most 40 characters, also names the Deployment, the Service and, by default, the namespace. Creates
    the namespace (Pod Security "restricted", or "privileged" for a cache in a folder of the node; a quota of the GPUs of all pods
    together; NetworkPolicies that open only the two protocols and metrics), the model repository as a ConfigMap or as files in
    S3, the service account with the AWS permissions for repository and model, a disruption budget, a Secret for a token that is
    given as a value, the Service, the Deployment and, with ``prefetch``, the DaemonSet that keeps the image on the pool's nodes.

    ``placement`` is one instance type of the pool; the pods tolerate its taints and take their share of its CPU and memory.
    ``plugin`` is the device plugin for the GPUs, if the same program installs it. ``image`` is the reference of the image that
    ``spec.image`` says to build in the cluster. The Hugging Face token becomes HF_TOKEN (nothing reads the source system's
    HUGGING_FACE_TOKEN); it may be a Secret in the server's namespace.

    ``further_models`` are in the same pods and share their GPUs; Triton loads them one after the other and listens when all are
    there.

    The server does not speak the OpenAI API. Triton's own frontend for it is a separate server process in front of the same back
    end, and it cannot answer a chat with a model that has no chat template, such as OPT. Serve such clients with ``VllmServer``.

    ``pulumi up`` waits until every pod answers. At first that takes a node start, an image pull, a download and a load
    (``startup_seconds``). A change of the model's settings changes the repository and thereby replaces the pods, one after the
    other; each pod has three minutes to finish its requests. With ``autoscaling`` in the spec, the Deployment does not set the
    number of pods. A gRPC connection stays with its first pod: new pods receive only new connections. ``VllmMetrics`` makes
    Prometheus scrape the server.

    Raises ``SpecError`` for an invalid name and a spec that the serving rules or the Triton rules refuse.
    """

    def __init__(
        self,
        name: str,
        spec: Given[TritonServerSpec],
        opts: pulumi.ResourceOptions | None = None,
        *,
        cluster: Cluster,
        placement: Placement,
        plugin: GpuPlugin | None = None,
        image: pulumi.Input[str] | None = None,
        hugging_face_token: Secret = None,
    ) -> None:
        spec = TritonServerSpec.of(spec)
        facts, *further = facts_of_places(spec, placement)
        super().__init__(
            "eks-inference:index:TritonServer",
            name,
            spec,
            cluster=cluster,
            placement=placement,
            image=image,
            subjects=[facts.serving, facts, *(subject for one in further for subject in (one.serving, one))],
            rules=triton_rules(),
            labels=plan.server_labels(name),
            ports=plan.PORTS,
            level="privileged" if isinstance(spec.cache, HostPathCache) else "restricted",
            opts=opts,
        )
        self.spec = spec
        self.model_id = spec.served_name
        # Triton hands on no gauge of vLLM: what waits inside of it shows only as more requests under way than it works on.
        self.expected = replace(self.expected, requests_per_pod=facts.serving.max_num_seqs * facts.serving.copies)
        self.url = f"http://{self.host}:{plan.PORTS['http']}"
        self.grpc_address = f"{self.host}:{plan.PORTS['grpc']}"
        repository, repository_url = self._repository(name, spec, placement.instance_type)
        tools_image = cluster.settings.image(versions.image("aws-cli"))
        self._serve(
            name,
            spec,
            plan.engine(name, spec, placement.instance_type, tools_image=tools_image, repository_url=repository_url),
            storage=pod_storage(name, spec.model, NoCompileCache(), downloader_image=tools_image),
            hugging_face_token=hugging_face_token,
            after=[*repository, *(plugin.ready if plugin else ())],
        )
        if spec.prefetch:
            k8s.apps.v1.DaemonSet(
                f"{name}-prefetch",
                **plan.prefetch(name, spec, placement, image=self._image),
                opts=on_cluster(cluster, self, *self.foundation, *placement.ready),
            )
        self.grpc_endpoint = carried(self.grpc_address, self.ready)
        self.register_outputs({"http": self.endpoint, "grpc": self.grpc_endpoint, "model": self.model_id})

    def _repository(
        self, name: str, spec: TritonServerSpec, shape: InstanceType
    ) -> tuple[list[pulumi.Resource], pulumi.Input[str] | None]:
        """Creates the model repository and the role of the pods. Returns the resources, and the URL of a repository in S3."""
        cluster = self._cluster
        made: list[pulumi.Resource] = []
        bucket: pulumi.Input[str] | None = None
        url: pulumi.Input[str] | None = None
        if isinstance(spec.repository, ConfigMapRepository):
            manifest = plan.repository_config_map(name, spec, shape)
            made.append(k8s.core.v1.ConfigMap(f"{name}-repository", **manifest, opts=self._inside))
        else:
            bucket = spec.repository.bucket or private_bucket(f"{name}-repository", cluster, self)
            url = pulumi.Output.concat("s3://", bucket, "/", spec.repository.prefix)
            made += [
                aws.s3.BucketObjectv2(
                    f"{name}-{plan.file_key(spec, path)}",
                    bucket=bucket,
                    key=f"{spec.repository.prefix}/{path}",
                    content=text,
                    content_type="text/plain",
                    tags=dict(cluster.settings.tags),
                    opts=pulumi.ResourceOptions(parent=self),
                )
                for path, text in plan.repository_files(spec, shape).items()
            ]
        if spec.needs_role:
            policy = pulumi.Output.from_input(bucket).apply(
                lambda known: rendered(iam.policy_json, plan.role_policy(spec, cluster.settings, known))
            )
            made += account_role(self._identity, policy, cluster, self)
        return made, url
