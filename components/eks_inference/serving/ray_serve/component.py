"""The component of a vLLM server on Ray Serve."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pulumi
import pulumi_kubernetes as k8s

from eks_inference.accelerators.neuron.component import DeviceScheduler
from eks_inference.catalog.models import Task
from eks_inference.cluster.handle import Cluster
from eks_inference.cluster.objects import on_cluster
from eks_inference.component import Component, carried
from eks_inference.faults import SpecError
from eks_inference.observability.handle import Expected, Metrics
from eks_inference.observability.prometheus import ServerMetrics
from eks_inference.place.placement import Placement
from eks_inference.serving import component
from eks_inference.serving.component import REPORT_SECONDS, Secret
from eks_inference.serving.flag_values import other_names
from eks_inference.serving.kuberay.component import RayOperator
from eks_inference.serving.pod_parts import cold_start_seconds
from eks_inference.serving.ray_serve import plan, protection
from eks_inference.serving.ray_serve.rules import RULES, RayServeFacts, serving_facts
from eks_inference.serving.ray_serve.spec import RayServeVllmSpec
from eks_inference.serving.rules.every_server import server_rules
from eks_inference.serving.storage import Account, server_storage
from eks_inference.specs.base import Given


class RayServeVllm(Component):
    """Builds vLLM on Neuron devices behind Ray Serve, with an OpenAI API at ``endpoint``.

    ``name`` is also the name of the RayService: a DNS label of at most 47 characters. The component creates a namespace (Pod
    Security "restricted"; NetworkPolicies open only API and metrics; a quota of the devices of all workers), the Serve script as
    a ConfigMap, the workers' service account with AWS permissions for the compile cache and the model, disruption budget,
    Secrets for tokens and keys that are values, the RayService, and then the Service ``head_service_name`` for the Ray head.
    KubeRay creates the Service ``<name>-serve-svc``, which routes only to pods that can answer: clients should use that one.

    ``image`` is the reference of the image that ``spec.image`` builds in the cluster, e.g. ``ImageBuild(...).reference``.

    Three layers scale the server: Serve adds replicas by requests in flight, Ray adds workers for replicas that find no
    NeuronCores, and the pool (Karpenter) adds nodes for workers that find no device. Nothing else may scale these pods.

    Nothing waits for the model: Kubernetes accepts a RayService at once, and only the head Service waits until the Ray head runs.
    The first answer takes a node start, an image pull, a download, a compilation and a load (``startup_seconds``).

    With ``upgrade: none``, deleting the RayCluster (``kubectl -n vllm delete raycluster --all``) applies pending changes: KubeRay
    creates a new one.

    HF_TOKEN holds the Hugging Face token. With ``api_key`` (VLLM_API_KEY) vLLM demands the key in every request, and Serve
    forwards the client's header. Either may be a Secret in ``spec.namespace``.

    A terminating pod accepts no new requests and finishes those in flight, for up to three minutes. Serve itself, without
    Anyscale's additions, does not move replicas away from draining nodes (tested with Ray 2.52.1): a drain stops the replica of
    each worker it takes, one worker at a time where there are several.

    Raises ``SpecError`` for a name that KubeRay refuses, a ``worker`` placement on another instance type than the spec's, an
    ``image`` that is missing or given twice, and for violated rules about servers (``serving/rules``), e.g. a number of devices
    that needs the Neuron scheduler when none is given.
    """

    def __init__(
        self,
        name: str,
        spec: Given[RayServeVllmSpec],
        opts: pulumi.ResourceOptions | None = None,
        *,
        cluster: Cluster,
        operator: RayOperator,
        head: Placement,
        worker: Placement,
        scheduler: DeviceScheduler | None = None,
        image: pulumi.Input[str] | None = None,
        hugging_face_token: Secret = None,
        api_key: Secret = None,
    ) -> None:
        spec = RayServeVllmSpec.of(spec)
        placed = component.placement_faults(spec, worker_pool=worker, head_pool=head)
        faults = [*component.name_faults(name, plan.MAX_NAME_LENGTH), *component.image_faults(spec, image), *placed]
        if faults:
            raise SpecError(faults)
        facts = serving_facts(spec, worker, scheduler=scheduler is not None)
        for subject in (facts, RayServeFacts((), spec)):
            self._judge(name, (*server_rules(), *RULES), subject, cluster.settings.silenced)
        super().__init__(
            "eks-inference:index:RayServeVllm",
            name,
            spec.inputs(),
            component.formerly(opts, spec),
        )
        self._announce(name, spec, worker)

        namespace, inside = component.own_namespace(name, self.namespace, cluster, self, delete_before_replace=True)
        script = k8s.core.v1.ConfigMap(
            f"{name}-script",
            metadata={"name": plan.SCRIPT_CONFIG_MAP, "namespace": self.namespace},
            data=plan.scripts(),
            opts=inside,
        )
        account = component.service_account(f"{name}-worker-account", plan.worker_account(name), self.namespace, inside)
        role = f"Workers of model server {name} in the EKS cluster {cluster.name}"
        identity = Account(self.namespace, plan.worker_account(name), role)
        storage, stored = server_storage(name, spec, account=identity, cluster=cluster, parent=self, namespace=namespace)
        guards = component.guards(
            name,
            policies=protection.network_policies(name, spec, operator_namespace=operator.namespace, api_cidrs=cluster.api_cidrs),
            quota=protection.quota(name, spec),
            budgets=protection.disruption_budgets(name, spec),
            options=inside,
        )
        token_env, token = component.hub_token(name, hugging_face_token, self.namespace, inside, resource="token")
        key_env, key = component.vllm_api_key(name, api_key, self.namespace, inside)
        worker_image = component.engine_image(spec, image, cluster)
        before = [script, account, *stored, *guards, *token, *key, *operator.ready, *head.ready, *worker.ready]
        self.ray_service = k8s.apiextensions.CustomResource(
            f"{name}-rayservice",
            api_version="ray.io/v1",
            kind="RayService",
            metadata={"name": name, "namespace": self.namespace},
            spec=plan.ray_service(
                name,
                spec,
                head=head,
                worker=worker,
                head_image=cluster.settings.image(spec.head.image) if spec.head.image else worker_image,
                worker_image=worker_image,
                scheduler_name=scheduler.scheduler_name if scheduler else None,
                storage=storage,
                secret_env=[*token_env, *key_env],
            ),
            opts=on_cluster(
                cluster,
                self,
                *before,
                *(scheduler.ready if scheduler else ()),
                # Creation returns at once unless a transform adds the annotation pulumi.com/waitFor, which then has enough time.
                timeouts=pulumi.CustomTimeouts(create=f"{self.startup_seconds}s", delete="15m"),
                delete_before_replace=True,
            ),
        )
        head_service = self._head_service(name, spec, cluster)
        self.ready: Sequence[pulumi.Resource] = (self.ray_service, head_service)
        self.endpoint = carried(self.url, self.ready)
        self.register_outputs({"endpoint": self.endpoint, "model": self.model_id})

    def _announce(self, name: str, spec: RayServeVllmSpec, worker: Placement) -> None:
        """Sets the attributes that clients and the stack read. All are known before any resource exists."""
        self.namespace = spec.namespace_of(name)
        self.serve_service_name = f"{name}-serve-svc"
        self.head_service_name = spec.head_service_name
        self.model_id = spec.model.id
        self.does: Task = spec.does
        self.other_names = other_names(spec.model.id, spec.extra_args)
        self.url = f"http://{self.serve_service_name}.{self.namespace}.svc.cluster.local:{plan.HEAD_PORTS['serve']}/v1"
        self.startup_seconds = cold_start_seconds(plan.startup(spec, worker), plan.startup_timeout_seconds(spec, worker))
        self.hardware = plan.hardware(spec.worker)
        self.fronts = plan.fronts(name)
        # The head always runs, with any number of workers.
        self.expected = Expected(name, 1, spec.objectives)
        self.forwards: Mapping[str, Sequence[int]] = {
            self.serve_service_name: [plan.HEAD_PORTS["serve"]],
            self.head_service_name: [plan.HEAD_PORTS["dashboard"]],
        }

    def _head_service(self, name: str, spec: RayServeVllmSpec, cluster: Cluster) -> k8s.core.v1.Service:
        startup = spec.profile.startup
        timeouts = pulumi.CustomTimeouts(create=f"{startup.node_start_s + startup.image_pull_s + REPORT_SECONDS}s")
        return k8s.core.v1.Service(
            f"{name}-head-service",
            **plan.head_service(name, spec),
            opts=on_cluster(cluster, self, self.ray_service, timeouts=timeouts),
        )

    def scraped_by(self, name: str, metrics: Metrics, opts: pulumi.ResourceOptions) -> ServerMetrics:
        """Makes Prometheus scrape the server."""
        return ServerMetrics(name, server=self, metrics=metrics, opts=opts)
