"""A plain vLLM server."""

from collections.abc import Mapping, Sequence

import pulumi
import pulumi_kubernetes as k8s

from eks_inference.accelerators.neuron.handle import DeviceScheduler
from eks_inference.catalog.instances import InstanceType
from eks_inference.cluster.handle import Cluster
from eks_inference.faults import SpecError
from eks_inference.observability.handle import Metrics
from eks_inference.observability.prometheus import VllmMetrics
from eks_inference.placement import Placement
from eks_inference.rules import refuse
from eks_inference.serving import component, deployment
from eks_inference.serving.component import Secret
from eks_inference.serving.rules.servers import server_rules
from eks_inference.serving.storage import Account, server_storage
from eks_inference.serving.vllm import plan
from eks_inference.serving.vllm.facts import serving_facts
from eks_inference.serving.vllm.spec import VllmServerSpec


class VllmServer(pulumi.ComponentResource):
    """vLLM on Neuron devices or GPUs, with an OpenAI API at ``endpoint`` and metrics at the same port.

    ``name`` is also the name of the Deployment, of the Service and, unless the spec says otherwise, of the namespace: a DNS label
    of at most 40 characters. Builds the namespace (Pod Security "restricted", closed by NetworkPolicies but for API and metrics,
    with a quota of the devices the pods may take together), the service account with what the compile cache and the model need
    in AWS, a disruption budget, Secrets for tokens that are values, the Service, and the Deployment.

    ``placement`` is one instance type of the pool; the pods take its taints, and their share of its CPU and memory. ``image`` is
    the reference of the image that ``spec.image`` says to build in the cluster, e.g. ``ImageBuild(...).reference``. The Hugging
    Face token is read as HF_TOKEN; with ``api_key`` (VLLM_API_KEY) every request below /v1 needs it. Either may be a Secret in
    the server's namespace.

    ``pulumi up`` waits until every pod answers: a node start, an image pull, a download, a compilation and a load
    (``startup_seconds``, the first time). A change replaces one pod after the other; each finishes the requests it has, for three
    minutes at most. With an ``autoscaling`` in the spec the Deployment says nothing of the number of its pods.

    Raises ``SpecError`` for a bad name, ``image`` missing or given twice, and for what the rules of serving refuse.
    """

    def __init__(
        self,
        name: str,
        spec: VllmServerSpec,
        *,
        cluster: Cluster,
        placement: Placement,
        scheduler: DeviceScheduler | None = None,
        image: pulumi.Input[str] | None = None,
        hugging_face_token: Secret = None,
        api_key: Secret = None,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        faults = [
            *component.name_faults(name, deployment.MAX_NAME_LENGTH),
            *component.image_faults(spec, image),
        ]
        if faults:
            raise SpecError(faults)
        shape = placement.instance_type
        refuse(server_rules(), serving_facts(spec, placement, scheduler=scheduler is not None), cluster.settings.silenced)
        super().__init__("eks-inference:index:VllmServer", name, spec.model_dump(mode="json", exclude_none=True), opts)
        self._announce(name, spec, shape)

        namespace, inside = component.own_namespace(name, self.namespace, cluster, self)
        self.foundation: Sequence[pulumi.Resource] = (namespace,)
        script = k8s.core.v1.ConfigMap(
            f"{name}-drain",
            metadata={"name": plan.script_config_map(name), "namespace": self.namespace},
            data=plan.script(),
            opts=inside,
        )
        account = component.service_account(f"{name}-account", deployment.account(name), self.namespace, inside)
        storage = server_storage(
            name,
            spec.model,
            spec.cache,
            several_pods=spec.most > 1,
            account=Account(self.namespace, deployment.account(name), f"Model server {name} in the EKS cluster {cluster.name}"),
            cluster=cluster,
            parent=self,
            namespace=namespace,
        )
        token_env, token = component.hub_token(name, hugging_face_token, self.namespace, inside)
        key_env, key = component.vllm_api_key(name, api_key, self.namespace, inside)
        guards = component.guards(
            name,
            policies=plan.network_policies(name, spec),
            quota=deployment.quota(name, spec, shape),
            budgets={"": deployment.disruption_budget(name, spec, self.pod_labels)},
            options=inside,
        )
        service = k8s.core.v1.Service(
            f"{name}-service", **deployment.service(name, spec, self.pod_labels, self.metrics_ports), opts=inside
        )
        manifest = deployment.deployment(
            name,
            spec,
            placement,
            plan.engine(name, spec, shape),
            labels=self.pod_labels,
            image=component.engine_image(spec, image, cluster),
            storage=storage.pods,
            secret_env=[*token_env, *key_env],
            scheduler_name=scheduler.scheduler_name if scheduler else None,
        )
        ready = [*placement.ready, *(scheduler.ready if scheduler else ())]
        before = [script, account, service, *storage.ready, *token, *key, *guards, *ready]
        self.deployment = component.server_deployment(name, spec, manifest, after=before, cluster=cluster, parent=self)
        self.ready: Sequence[pulumi.Resource] = (self.deployment, service)
        self.register_outputs({"endpoint": self.endpoint, "model": self.model_id})

    def _announce(self, name: str, spec: VllmServerSpec, shape: InstanceType) -> None:
        """What others need to know of the server, all of it known before anything is made."""
        self.namespace = spec.namespace_of(name)
        self.service_name = self.deployment_name = name
        self.port = plan.port(spec)
        self.pod_labels = plan.labels(name)
        self.metrics_job: str = spec.kind
        self.metrics_ports = {plan.PORT_NAME: self.port}
        self.metric_names = spec.profile.metric_names
        self.model_id = spec.model.id
        self.endpoint = f"http://{name}.{self.namespace}.svc.cluster.local:{self.port}/v1"
        self.forwards: Mapping[str, Sequence[int]] = {self.service_name: [self.port]}
        self.startup_seconds = deployment.cold_start_seconds(spec)
        self.hardware = deployment.hardware(spec, shape)

    def scraped_by(self, name: str, metrics: Metrics, opts: pulumi.ResourceOptions) -> VllmMetrics:
        """Makes that Prometheus read the server."""
        return VllmMetrics(name, server=self, metrics=metrics, opts=opts)
