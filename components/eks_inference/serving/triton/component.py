"""A Triton server with the vLLM back end."""

from collections.abc import Mapping, Sequence

import pulumi
import pulumi_aws as aws
import pulumi_kubernetes as k8s

from eks_inference.accelerators.nvidia.handle import GpuPlugin
from eks_inference.aws import iam
from eks_inference.catalog import versions
from eks_inference.cluster.handle import Cluster
from eks_inference.faults import SpecError
from eks_inference.observability.handle import Metrics
from eks_inference.observability.prometheus import VllmMetrics
from eks_inference.placement import Placement
from eks_inference.rules import refuse
from eks_inference.serving import component, deployment
from eks_inference.serving.component import Secret
from eks_inference.serving.rules.servers import server_rules
from eks_inference.serving.spec import NoCompileCache
from eks_inference.serving.storage import Account, account_role, pod_storage, private_bucket
from eks_inference.serving.triton import plan
from eks_inference.serving.triton.facts import triton_facts
from eks_inference.serving.triton.rules import triton_rules
from eks_inference.serving.triton.spec import ConfigMapRepository, TritonServerSpec


class TritonServer(pulumi.ComponentResource):
    """Triton Inference Server with the vLLM back end on GPUs: KServe v2 over HTTP (8000) and gRPC (8001), metrics on 8002.

    ``name`` is also the name of the Deployment, of the Service and, unless the spec says otherwise, of the namespace: a DNS label
    of at most 40 characters. Builds the namespace (Pod Security "restricted", or "privileged" for a cache in a folder of the
    node; closed by NetworkPolicies but for the two protocols and metrics; with a quota of the GPUs the pods may take together),
    the model repository as a ConfigMap or as files in S3, the service account with what that and the model need in AWS, a
    disruption budget, a Secret for a token that is a value, the Service, the Deployment and, with ``prefetch``, the DaemonSet
    that keeps the image on the pool's nodes.

    ``placement`` is one instance type of the pool; the pods take its taints, and their share of its CPU and memory. ``plugin``
    is what offers GPUs on the nodes, when it is of the same program. ``image`` is the reference of the image that ``spec.image``
    says to build in the cluster. The Hugging Face token is read as HF_TOKEN (the source
    system's HUGGING_FACE_TOKEN is read by nothing); it may be a Secret in the server's namespace.

    It does not speak the OpenAI API: Triton's own frontend for that is another server process, in front of the same back end,
    and with a model that brings no chat template, as OPT, it cannot answer a chat. Serve such clients with ``VllmServer``.

    ``pulumi up`` waits until every pod answers: a node start, an image pull, a download and a load (``startup_seconds``, the
    first time). A change of the model's settings changes the repository, and with it every pod, one after the other; each
    finishes the requests it has, for three minutes at most. With an ``autoscaling`` in the spec the Deployment says nothing of
    the number of its pods. A connection of gRPC stays with the pod it began with: pods that come later get later connections.
    ``VllmMetrics`` makes Prometheus read the server.

    Raises ``SpecError`` for a bad name and for what the rules of serving and of Triton refuse.
    """

    def __init__(
        self,
        name: str,
        spec: TritonServerSpec,
        *,
        cluster: Cluster,
        placement: Placement,
        plugin: GpuPlugin | None = None,
        image: pulumi.Input[str] | None = None,
        hugging_face_token: Secret = None,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        faults = [
            *component.name_faults(name, deployment.MAX_NAME_LENGTH),
            *component.image_faults(spec, image),
        ]
        if faults:
            raise SpecError(faults)
        settings, shape = cluster.settings, placement.instance_type
        facts = triton_facts(spec, placement)
        refuse(server_rules(), facts.serving, settings.silenced)
        refuse(triton_rules(), facts, settings.silenced)
        super().__init__("eks-inference:index:TritonServer", name, spec.model_dump(mode="json", exclude_none=True), opts)
        self.spec = spec
        self.namespace = spec.namespace_of(name)
        self.service_name = self.deployment_name = name
        # What ``VllmMetrics`` reads: Triton hands on what vLLM counts, beside its own.
        self.metrics_job: str = spec.kind
        self.metrics_ports = {"metrics": plan.PORTS["metrics"]}
        self.metric_names = spec.profile.metric_names
        self.pod_labels = plan.server_labels(name)
        self.model_id = spec.served_name
        host = f"{name}.{self.namespace}.svc.cluster.local"
        self.endpoint = f"http://{host}:{plan.PORTS['http']}"
        self.grpc_endpoint = f"{host}:{plan.PORTS['grpc']}"
        self.forwards: Mapping[str, Sequence[int]] = {self.service_name: [plan.PORTS["http"], plan.PORTS["grpc"]]}
        self.startup_seconds = deployment.cold_start_seconds(spec)
        self.hardware = deployment.hardware(spec, shape)

        namespace, inside = component.own_namespace(name, self.namespace, cluster, self, plan.pod_security(spec))
        self.foundation: Sequence[pulumi.Resource] = (namespace,)
        account = component.service_account(f"{name}-account", deployment.account(name), self.namespace, inside)
        repository, repository_url = self._repository(name, spec, placement, cluster, inside)
        token_env, token = component.hub_token(name, hugging_face_token, self.namespace, inside)
        guards = component.guards(
            name,
            policies=plan.network_policies(name, spec),
            quota=deployment.quota(name, spec, shape),
            budgets={"": deployment.disruption_budget(name, spec, self.pod_labels)},
            options=inside,
        )
        service = k8s.core.v1.Service(
            f"{name}-service", **deployment.service(name, spec, self.pod_labels, plan.PORTS), opts=inside
        )
        engine_image, tools_image = component.engine_image(spec, image, cluster), settings.image(versions.image("aws-cli"))
        manifest = deployment.deployment(
            name,
            spec,
            placement,
            plan.engine(name, spec, shape, tools_image=tools_image, repository_url=repository_url),
            labels=self.pod_labels,
            image=engine_image,
            storage=pod_storage(name, spec.model, NoCompileCache(kind="none"), cluster=cluster),
            secret_env=token_env,
        )
        ready = [*placement.ready, *(plugin.ready if plugin else ())]
        before = [service, account, *repository, *token, *guards, *ready]
        self.deployment = component.server_deployment(name, spec, manifest, after=before, cluster=cluster, parent=self)
        if spec.prefetch:
            k8s.apps.v1.DaemonSet(
                f"{name}-prefetch",
                **plan.prefetch(name, spec, placement, image=engine_image),
                opts=pulumi.ResourceOptions(parent=self, provider=cluster.provider, depends_on=[namespace, *placement.ready]),
            )
        self.ready: Sequence[pulumi.Resource] = (self.deployment, service)
        self.register_outputs({"http": self.endpoint, "grpc": self.grpc_endpoint, "model": self.model_id})

    def scraped_by(self, name: str, metrics: Metrics, opts: pulumi.ResourceOptions) -> VllmMetrics:
        """Makes that Prometheus read the server."""
        return VllmMetrics(name, server=self, metrics=metrics, opts=opts)

    def _repository(
        self, name: str, spec: TritonServerSpec, placement: Placement, cluster: Cluster, options: pulumi.ResourceOptions
    ) -> tuple[list[pulumi.Resource], pulumi.Input[str] | None]:
        """The model repository, and where it is when it is in S3; with what the pods may do in AWS."""
        shape = placement.instance_type
        made: list[pulumi.Resource] = []
        bucket: pulumi.Input[str] | None = None
        url: pulumi.Input[str] | None = None
        if isinstance(spec.repository, ConfigMapRepository):
            manifest = plan.repository_config_map(name, spec, shape)
            made.append(k8s.core.v1.ConfigMap(f"{name}-repository", **manifest, opts=options))
        else:
            bucket = spec.repository.bucket or private_bucket(f"{name}-repository", cluster, self)
            url = pulumi.Output.concat("s3://", bucket, "/", spec.repository.prefix)
            made += [
                aws.s3.BucketObjectv2(
                    f"{name}-{path.rpartition('/')[2]}",
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
            description = f"Model server {name} in the EKS cluster {cluster.name}"
            policy = pulumi.Output.from_input(bucket).apply(
                lambda known: iam.policy_json(plan.role_policy(spec, cluster.settings, known))
            )
            made += account_role(Account(self.namespace, deployment.account(name), description), policy, cluster, self)
        return made, url
