"""A prefill and decode pair, and what has to be done before it can serve."""

from collections.abc import Mapping, Sequence
from typing import Any

import pulumi
import pulumi_kubernetes as k8s

from eks_inference.accelerators.efa.component import EfaDevices
from eks_inference.catalog import versions
from eks_inference.cluster.handle import Cluster
from eks_inference.faults import Fault, SpecError
from eks_inference.observability.handle import Metrics
from eks_inference.observability.prometheus import VllmMetrics
from eks_inference.placement import Placement
from eks_inference.rules import Rule, refuse
from eks_inference.serving import component
from eks_inference.serving.component import Secret
from eks_inference.serving.disaggregated import jobs, rules, workloads
from eks_inference.serving.disaggregated.artifact import artifact
from eks_inference.serving.disaggregated.facts import disaggregated_facts, hardware, serving_facts
from eks_inference.serving.disaggregated.servers import API_PORT, servers
from eks_inference.serving.disaggregated.spec import DisaggregatedPairSpec
from eks_inference.serving.leader_worker_sets.handle import LeaderWorkerSets
from eks_inference.serving.rules.servers import server_rules
from eks_inference.storage.component import store_claim
from eks_inference.storage.handle import Store

_LAST_WORDS_SECONDS = 60


class DisaggregatedPair(pulumi.ComponentResource):
    """vLLM on Trn2 as a pair, prefill and decode, with an OpenAI API at ``endpoint``; or its baseline, one server, in its place.

    ``name`` is also the beginning of every object's name: a DNS label of at most 40 characters. Builds the namespace (its Pod
    Security: ``workloads.POD_SECURITY``), closed by NetworkPolicies but for API and metrics, the claim of ``store``, and then one
    after the other: the Job that downloads the model; the one that compiles it into a folder named by all that decides it; the
    one that tries EFA out; the servers (one instance: a Deployment of one pod with both; two: a LeaderWorkerSet); the router,
    which is ready when both servers are well; a Job that asks two questions. ``pulumi up`` waits for each, hours for the first
    compilation.

    ``placement`` is one instance type of a managed pool with EFA. The compile Job runs on ``compile_placement``, or on the
    servers' nodes: then a changed artifact stops them first, since Kubernetes gives its Job their chips. The router runs on
    ``router_placement``, or beside prefill. ``efa`` must be on the nodes, ``controller`` is needed with two instances, and
    ``hugging_face_token`` (HF_TOKEN of the download, nowhere else) for models behind a licence.

    ``serving`` is changed in place. ``instances`` is not: the new servers would wait for the chips of the old ones. Take the pair
    out of the program, deploy, and put it in again; the store keeps what is compiled.

    Raises ``SpecError`` for a bad name, a controller that is missing, and for what the rules of pairs and of servers refuse.
    """

    def __init__(
        self,
        name: str,
        spec: DisaggregatedPairSpec,
        *,
        cluster: Cluster,
        store: Store,
        placement: Placement,
        efa: EfaDevices,
        compile_placement: Placement | None = None,
        router_placement: Placement | None = None,
        controller: LeaderWorkerSets | None = None,
        hugging_face_token: Secret = None,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        faults = component.name_faults(name, workloads.MAX_NAME_LENGTH)
        if spec.instances == 2 and controller is None:
            hint = "pass a LeaderWorkerSetController as controller="
            message = "two instances are a LeaderWorkerSet, and nothing turns one into pods"
            faults.append(Fault(("instances",), message, "2", "1", hint))
        if faults:
            raise SpecError(faults)
        settings = cluster.settings
        refuse(_PAIR_RULES, disaggregated_facts(name, spec, placement), settings.silenced)
        for pod in serving_facts(spec, placement, scheduler=False):
            refuse(server_rules(), pod, settings.silenced)
        super().__init__("eks-inference:index:DisaggregatedPair", name, spec.model_dump(mode="json", exclude_none=True), opts)
        self._name, self._spec, self._cluster = name, spec, cluster
        self._engine_image = settings.image(spec.image_reference)
        self._script_image = settings.image(versions.image("python"))
        self.namespace = spec.namespace_of(name)
        self.model_id = spec.model.id
        self.service_name = name
        self.endpoint = f"http://{name}.{self.namespace}.svc.cluster.local:{API_PORT}/v1"
        self.startup_seconds = workloads.cold_start_seconds(spec)
        self.hardware = hardware(spec, placement)
        self.artifact_key = artifact(spec).key
        self.forwards: Mapping[str, Sequence[int]] = {name: [API_PORT]}
        self.pod_labels = workloads.server_labels(name)
        self.metrics_job = "vllm"
        self.metrics_ports: Mapping[str, int] = {role: each.port for role, each in servers(spec).items()}
        self.metric_names = spec.profile.metric_names

        self._namespace, _ = component.own_namespace(name, self.namespace, cluster, self, workloads.POD_SECURITY)
        self.foundation: Sequence[pulumi.Resource] = (self._namespace,)
        claim = store_claim(
            workloads.claim_name(name), store, namespace=self.namespace, cluster=cluster, parent=self, opts=self._options()
        )
        policies = {**workloads.network_policies(name, spec), **jobs.network_policies(name, spec)}
        guards = component.guards(name, policies=policies, quota=None, budgets={}, options=self._options())
        services: list[pulumi.Resource] = [
            k8s.core.v1.Service(f"{name}-{what}-service", **manifest, opts=self._options())
            for what, manifest in workloads.services(name, spec).items()
        ]
        priority = k8s.scheduling.v1.PriorityClass(
            f"{name}-priority",
            **jobs.priority_class(name),
            opts=pulumi.ResourceOptions(parent=self, provider=cluster.provider, depends_on=[*cluster.ready]),
        )

        downloaded = self._download(placement, hugging_face_token, [claim, *guards])
        before = [self._compilation(compile_placement or placement, [downloaded, priority])]
        if spec.serving == "pair":
            before.append(self._efa_check(placement, [*guards, priority, *efa.ready]))
        controllers = controller.ready if controller else ()
        serving = self._servers(placement, [*before, claim, *guards, *services, *efa.ready, *controllers])
        front = serving
        if spec.serving == "pair":
            front = self._router(router_placement or placement, [serving, *guards, *services])
        answered = self._answers(router_placement or placement, [front, *guards, *services])
        self.ready: Sequence[pulumi.Resource] = (front, answered)
        self.register_outputs({"endpoint": self.endpoint, "model": self.model_id, "artifact": self.artifact_key})

    def scraped_by(self, name: str, metrics: Metrics, opts: pulumi.ResourceOptions) -> VllmMetrics:
        """Makes that Prometheus read the servers of the pair."""
        return VllmMetrics(name, server=self, metrics=metrics, opts=opts)

    def _download(self, placement: Placement, token: Secret, after: Sequence[pulumi.Resource]) -> pulumi.Resource:
        name, spec = self._name, self._spec
        token_env, secrets = component.hub_token(name, token, self.namespace, self._options(), resource="token")
        config, files = self._files("download", jobs.download_files(name, spec))
        manifest = jobs.download(name, spec, placement, image=self._engine_image, config=config, token_env=token_env)
        return self._job("download", manifest, [files, *secrets, *placement.ready, *after])

    def _compilation(self, placement: Placement, after: Sequence[pulumi.Resource]) -> pulumi.Resource:
        config, files = self._files("compile", jobs.compile_files(self._name, self._spec))
        manifest = jobs.compilation(self._name, self._spec, placement, image=self._engine_image, config=config)
        return self._job("compile", manifest, [files, *placement.ready, *after])

    def _efa_check(self, placement: Placement, after: Sequence[pulumi.Resource]) -> pulumi.Resource:
        name, spec = self._name, self._spec
        config, files = self._files("efa", jobs.efa_files(name, spec))
        found = []
        if spec.instances == 2:
            found.append(k8s.core.v1.Service(f"{name}-efa-service", **jobs.efa_service(name, spec), opts=self._options()))
        manifest = jobs.efa_check(name, spec, placement, image=self._engine_image, config=config)
        return self._job("efa", manifest, [files, *found, *placement.ready, *after])

    def _servers(self, placement: Placement, after: Sequence[pulumi.Resource]) -> pulumi.Resource:
        name, spec = self._name, self._spec
        config, files = self._files("servers", workloads.server_files(name, spec))
        manifest = workloads.workload(name, spec, placement, image=self._engine_image, config=config)
        before = [files, *placement.ready, *after]
        seconds = manifest["spec"].get("progressDeadlineSeconds", workloads.cold_start_seconds(spec)) + _LAST_WORDS_SECONDS
        timeouts = pulumi.CustomTimeouts(create=f"{seconds}s", update=f"{seconds}s")
        if manifest.pop("kind") == "Deployment":
            del manifest["apiVersion"]
            return k8s.apps.v1.Deployment(f"{name}-servers", **manifest, opts=self._options(*before, custom_timeouts=timeouts))
        # Accepted at once; the router waits for its pods.
        return k8s.apiextensions.CustomResource(
            f"{name}-servers",
            api_version=manifest["apiVersion"],
            kind="LeaderWorkerSet",
            metadata=manifest["metadata"],
            spec=manifest["spec"],
            opts=self._options(*before, custom_timeouts=timeouts),
        )

    def _router(self, placement: Placement, after: Sequence[pulumi.Resource]) -> pulumi.Resource:
        name, spec = self._name, self._spec
        config, files = self._files("router", workloads.router_files(name, spec))
        seconds = f"{workloads.cold_start_seconds(spec) + _LAST_WORDS_SECONDS}s"
        return k8s.apps.v1.Deployment(
            f"{name}-router",
            **workloads.router(name, spec, placement, image=self._script_image, config=config),
            opts=self._options(
                files,
                *placement.ready,
                *after,
                custom_timeouts=pulumi.CustomTimeouts(create=seconds, update=seconds),
            ),
        )

    def _answers(self, placement: Placement, after: Sequence[pulumi.Resource]) -> pulumi.Resource:
        name, spec = self._name, self._spec
        config, files = self._files("answers", jobs.answers_files(name, spec))
        manifest = jobs.answers(
            name,
            spec,
            placement,
            image=self._script_image,
            config=config,
            endpoint=self.endpoint.removesuffix("/v1"),
            seconds=self.startup_seconds,
        )
        return self._job("answers", manifest, [files, *placement.ready, *after])

    def _options(self, *depends_on: pulumi.Resource, **more: Any) -> pulumi.ResourceOptions:
        return pulumi.ResourceOptions(
            parent=self, provider=self._cluster.provider, depends_on=[self._namespace, *depends_on], **more
        )

    def _files(self, what: str, manifest: Mapping[str, Any]) -> tuple[str, pulumi.Resource]:
        """A ConfigMap and its name in the cluster."""
        return manifest["metadata"]["name"], k8s.core.v1.ConfigMap(f"{self._name}-{what}-files", **manifest, opts=self._options())

    def _job(self, what: str, manifest: Mapping[str, Any], after: Sequence[pulumi.Resource]) -> pulumi.Resource:
        # A little more than Kubernetes itself waits: its reason is the better message.
        seconds = manifest["spec"]["activeDeadlineSeconds"] + _LAST_WORDS_SECONDS
        return k8s.batch.v1.Job(
            f"{self._name}-{what}",
            **manifest,
            opts=self._options(*after, custom_timeouts=pulumi.CustomTimeouts(create=f"{seconds}s")),
        )


_PAIR_RULES = tuple(one for one in vars(rules).values() if isinstance(one, Rule))
