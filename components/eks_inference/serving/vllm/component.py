"""A plain vLLM server."""

import re
from collections.abc import Sequence

import pulumi
import pulumi_kubernetes as k8s

from eks_inference.accelerators.neuron.handle import DeviceScheduler
from eks_inference.catalog import versions
from eks_inference.cluster.handle import Cluster
from eks_inference.faults import Fault, SpecError
from eks_inference.images.spec import InClusterImage
from eks_inference.kubernetes.pod_security import RESTRICTED_CONTAINER, enforce
from eks_inference.kubernetes.secret_object import secret_object
from eks_inference.kubernetes.secrets import SecretRef, secret_env
from eks_inference.placement import Placement
from eks_inference.rules import refuse
from eks_inference.serving import storage_plan
from eks_inference.serving.pods import TERMINATION_SECONDS
from eks_inference.serving.rules.servers import server_rules
from eks_inference.serving.storage import Account, server_storage
from eks_inference.serving.vllm import plan, protection
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
        hugging_face_token: SecretRef | pulumi.Input[str] | None = None,
        api_key: SecretRef | pulumi.Input[str] | None = None,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        faults = _faults(name, spec, image is not None)
        if faults:
            raise SpecError(faults)
        settings = cluster.settings
        refuse(server_rules(), serving_facts(spec, placement, scheduler=scheduler is not None), settings.silenced)
        super().__init__("eks-inference:index:VllmServer", name, spec.model_dump(mode="json", exclude_none=True), opts)
        self.namespace = plan.namespace(name, spec)
        self.service_name = self.deployment_name = name
        self.port = plan.port(spec)
        self.pod_labels = plan.labels(name)
        self.metrics_job: str = spec.kind
        self.metrics_ports = {plan.PORT_NAME: self.port}
        self.metric_names = spec.profile.metric_names
        self.model_id = spec.model.id
        self.endpoint = f"http://{name}.{self.namespace}.svc.cluster.local:{self.port}/v1"
        self.startup_seconds = plan.cold_start_seconds(spec)
        self.hardware = plan.hardware(spec, placement.instance_type)

        namespace = k8s.core.v1.Namespace(
            f"{name}-namespace",
            metadata={"name": self.namespace, "labels": enforce("restricted")},
            opts=pulumi.ResourceOptions(parent=self, provider=cluster.provider, depends_on=[*cluster.ready]),
        )
        self.foundation: Sequence[pulumi.Resource] = (namespace,)
        inside = pulumi.ResourceOptions(parent=self, provider=cluster.provider, depends_on=[namespace])
        script = k8s.core.v1.ConfigMap(
            f"{name}-drain",
            metadata={"name": plan.script_config_map(name), "namespace": self.namespace},
            data=plan.script(),
            opts=inside,
        )
        account = k8s.core.v1.ServiceAccount(
            f"{name}-account",
            metadata={"name": plan.account(name), "namespace": self.namespace},
            automount_service_account_token=False,
            opts=inside,
        )
        storage = server_storage(
            name,
            spec.model,
            spec.cache,
            several_pods=spec.most > 1,
            account=Account(self.namespace, plan.account(name), f"Model server {name} in the EKS cluster {cluster.name}"),
            cluster=cluster,
            parent=self,
            namespace=namespace,
        )
        token, token_secret = secret_object(
            f"{name}-hugging-face",
            hugging_face_token,
            SecretRef(f"{name}-hugging-face", "token"),
            namespace=self.namespace,
            opts=inside,
        )
        key, key_secret = secret_object(
            f"{name}-api-key", api_key, SecretRef(f"{name}-api-key", "key"), namespace=self.namespace, opts=inside
        )
        guards = self._guards(name, spec, placement, inside)
        service = k8s.core.v1.Service(f"{name}-service", **plan.service(name, spec), opts=inside)
        self.deployment = k8s.apps.v1.Deployment(
            f"{name}-deployment",
            **plan.deployment(
                name,
                spec,
                placement,
                image=image if isinstance(spec.image, InClusterImage) else settings.image(spec.image or spec.profile.image),
                scheduler_name=scheduler.scheduler_name if scheduler else None,
                storage=storage_plan.pod_storage(
                    name,
                    spec.model,
                    spec.cache,
                    cache_url=storage.cache_url,
                    downloader_image=settings.image(versions.image("aws-cli")),
                    security=RESTRICTED_CONTAINER,
                ),
                secret_env=[*secret_env("HF_TOKEN", token), *secret_env("VLLM_API_KEY", key)],
            ),
            opts=pulumi.ResourceOptions(
                parent=self,
                provider=cluster.provider,
                depends_on=[
                    script,
                    account,
                    service,
                    *storage.ready,
                    *token_secret,
                    *key_secret,
                    *guards,
                    *placement.ready,
                    *(scheduler.ready if scheduler else ()),
                ],
                custom_timeouts=pulumi.CustomTimeouts(
                    # A little more than Kubernetes itself waits: its reason is the better message.
                    create=f"{plan.progress_seconds(spec) + 300}s",
                    update=f"{plan.rollout_seconds(spec) + 300}s",
                    delete=f"{TERMINATION_SECONDS + 300}s",
                ),
            ),
        )
        self.ready: Sequence[pulumi.Resource] = (self.deployment, service)
        self.register_outputs({"endpoint": self.endpoint, "model": self.model_id})

    def _guards(
        self, name: str, spec: VllmServerSpec, placement: Placement, options: pulumi.ResourceOptions
    ) -> list[pulumi.Resource]:
        """What must be there before the first pod: who may reach it, how much it may take, what a drain may do."""
        return [
            *(
                k8s.networking.v1.NetworkPolicy(f"{name}-network-{role}", **manifest, opts=options)
                for role, manifest in protection.network_policies(name, spec).items()
            ),
            k8s.core.v1.ResourceQuota(f"{name}-quota", **protection.quota(name, spec, placement.instance_type), opts=options),
            k8s.policy.v1.PodDisruptionBudget(f"{name}-budget", **protection.disruption_budget(name, spec), opts=options),
        ]


def _faults(name: str, spec: VllmServerSpec, image_given: bool) -> list[Fault]:
    faults = []
    if not re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", name) or len(name) > plan.MAX_NAME_LENGTH:
        allowed = f"a DNS label of at most {plan.MAX_NAME_LENGTH} characters that begins with a letter"
        faults.append(Fault((), "Kubernetes refuses this name", given=name, allowed=allowed))
    if isinstance(spec.image, InClusterImage) and not image_given:
        hint = "build it with ImageBuild and pass its reference as image="
        faults.append(Fault(("image",), "is built in the cluster, and the server was not given what was built", hint=hint))
    if not isinstance(spec.image, InClusterImage) and image_given:
        hint = "leave image= out, or let the spec say kind: in_cluster"
        faults.append(Fault(("image",), "is given twice", given=str(spec.compiled_image), hint=hint))
    return faults
