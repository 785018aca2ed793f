"""The component of a prefill and decode pair, and of the Jobs that prepare it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pulumi
import pulumi_kubernetes as k8s

from eks_inference.accelerators.efa.component import EfaDevices
from eks_inference.catalog import versions
from eks_inference.catalog.models import Task
from eks_inference.cluster.handle import Cluster
from eks_inference.cluster.objects import in_namespace, on_cluster
from eks_inference.component import Component, carried
from eks_inference.faults import Fault, SpecError
from eks_inference.observability.handle import Expected, Metrics
from eks_inference.observability.prometheus import RouterMetrics, VllmMetrics
from eks_inference.place.placement import Placement
from eks_inference.rules import Rule
from eks_inference.serving import component
from eks_inference.serving.component import Secret
from eks_inference.serving.disaggregated import jobs, pair_pods, parts, rules
from eks_inference.serving.disaggregated.facts import disaggregated_facts, hardware, serving_facts
from eks_inference.serving.disaggregated.pair_processes import API_PORT, servers
from eks_inference.serving.disaggregated.parts import artifact
from eks_inference.serving.disaggregated.spec import DisaggregatedPairSpec
from eks_inference.serving.leader_worker_sets.component import LeaderWorkerSets
from eks_inference.serving.rules.every_server import server_rules
from eks_inference.specs.base import Given
from eks_inference.storage.component import store_claim
from eks_inference.storage.handle import Store

_REPORT_SECONDS = 60


class DisaggregatedPair(Component):
    """Builds vLLM on Trn2 as a prefill and decode pair with an OpenAI API at ``endpoint``, or its baseline: one server instead.

    ``name`` prefixes the name of every object: a DNS label of at most 40 characters. The component creates the namespace (Pod
    Security level: ``workloads.POD_SECURITY``; NetworkPolicies open only API and metrics) and the claim of ``store``. Then it
    creates in turn the Job that downloads the model, the Job that compiles it into a folder named by a hash of all inputs, the
    Job that tests EFA, the servers (one instance: a Deployment of one pod with both; two: a LeaderWorkerSet), the router, which
    is ready when both servers are healthy, and a Job that asks questions. ``pulumi up`` waits for each; the first compilation
    takes hours.

    ``placement`` is one instance type of a managed pool with EFA. The compile Job runs on ``compile_placement``, or else on the
    servers' nodes: a changed artifact then stops the servers first, because Kubernetes gives the Job their chips. The router runs
    on ``router_placement``, or else on the node of prefill. The nodes need ``efa``, two instances need ``controller``, and gated
    models need ``hugging_face_token`` (HF_TOKEN of the download Job only).

    ``serving`` can change in place. ``instances`` cannot: the new servers would wait for the chips of the old ones. Remove the
    pair from the program, deploy, and add it again; the store keeps the compiled model.

    Raises ``SpecError`` for an invalid name, a missing controller, and for violated rules about pairs and servers.
    """

    def __init__(
        self,
        name: str,
        spec: Given[DisaggregatedPairSpec],
        opts: pulumi.ResourceOptions | None = None,
        *,
        cluster: Cluster,
        store: Store,
        placement: Placement,
        efa: EfaDevices,
        compile_placement: Placement | None = None,
        router_placement: Placement | None = None,
        controller: LeaderWorkerSets | None = None,
        hugging_face_token: Secret = None,
    ) -> None:
        spec = DisaggregatedPairSpec.of(spec)
        pools = {"pool": placement, "compile_pool": compile_placement, "router_pool": router_placement}
        faults = [*component.name_faults(name, pair_pods.MAX_NAME_LENGTH), *component.placement_faults(spec, **pools)]
        if spec.instances == 2 and controller is None:
            hint = "pass a LeaderWorkerSetController as controller="
            message = "two instances are a LeaderWorkerSet, and nothing turns one into pods"
            faults.append(Fault(("instances",), message, "2", "1", hint))
        if faults:
            raise SpecError(faults)
        settings = cluster.settings
        self._judge(name, _PAIR_RULES, disaggregated_facts(spec, placement), settings.silenced)
        for pod in serving_facts(spec, placement, scheduler=False):
            self._judge(name, server_rules(), pod, settings.silenced)
        super().__init__(
            "eks-inference:index:DisaggregatedPair",
            name,
            spec.inputs(),
            component.formerly(opts, spec),
        )
        self._name, self._spec, self._cluster = name, spec, cluster
        engine_image, script_image = settings.image(spec.image_reference), settings.image(versions.image("python"))
        self.namespace = spec.namespace_of(name)
        self.model_id = spec.model.id
        self.does: Task = spec.does
        self.other_names: Sequence[str] = ()
        self.service_name = name
        self.url = f"http://{name}.{self.namespace}.svc.cluster.local:{API_PORT}/v1"
        self.startup_seconds = pair_pods.cold_start_seconds(spec)
        self.hardware = hardware(spec, placement)
        self.artifact_key = artifact(spec).key
        self.forwards: Mapping[str, Sequence[int]] = {name: [API_PORT]}
        self.pod_labels = pair_pods.server_labels(name)
        self.fronts = (pair_pods.entry(name, spec),)
        self.metrics_job = "vllm"
        self.metrics_ports: Mapping[str, int] = {role: each.port for role, each in servers(spec).items()}
        self.metric_names = spec.profile.metric_names
        self.expected = Expected(name, 1, spec.objectives)

        self._namespace, inside = component.own_namespace(
            name, self.namespace, cluster, self, pair_pods.POD_SECURITY, delete_before_replace=True
        )
        self.foundation: Sequence[pulumi.Resource] = (self._namespace,)
        own = on_cluster(cluster, self, self._namespace)
        claim = store_claim(parts.claim_name(name), store, namespace=self.namespace, cluster=cluster, parent=self, opts=own)
        policies = {**pair_pods.network_policies(name, spec), **jobs.network_policies(name, spec)}
        guards = component.guards(name, policies=policies, quota=None, budgets={}, options=inside)
        services: list[pulumi.Resource] = [
            k8s.core.v1.Service(f"{name}-{what}-service", **manifest, opts=own)
            for what, manifest in pair_pods.services(name, spec).items()
        ]
        priority = k8s.scheduling.v1.PriorityClass(
            f"{name}-priority", **jobs.priority_class(name), opts=on_cluster(cluster, self, *cluster.pods_ready)
        )

        base, script_placement = [claim, *guards], router_placement or placement
        token_env, secrets = component.hub_token(name, hugging_face_token, self.namespace, inside, resource="token")
        download = jobs.download(name, spec, placement, image=engine_image, token_env=token_env)
        downloaded = self._job("download", download, [*secrets, *placement.ready, *base])
        compiling = compile_placement or placement
        compilation = jobs.compilation(name, spec, compiling, image=engine_image)
        before = [self._job("compile", compilation, [*compiling.ready, downloaded, priority])]
        if spec.serving == "pair":
            found: list[pulumi.Resource] = []
            if spec.instances == 2:
                found.append(k8s.core.v1.Service(f"{name}-efa-service", **jobs.efa_service(name, spec), opts=own))
            check = jobs.efa_check(name, spec, placement, image=engine_image)
            before.append(self._job("efa", check, [*found, *placement.ready, *guards, priority, *efa.ready]))
        controllers = controller.ready if controller else ()
        facing = self._servers(placement, engine_image, [*before, *base, *services, *efa.ready, *controllers])
        if spec.serving == "pair":
            facing = self._router(script_placement, script_image, [facing, *guards, *services])
        answers = jobs.answers(name, spec, script_placement, image=script_image)
        answered = self._job("answers", answers, [*script_placement.ready, facing, *guards, *services])
        self.ready: Sequence[pulumi.Resource] = (facing, answered)
        self.endpoint = carried(self.url, self.ready)
        self.register_outputs({"endpoint": self.endpoint, "model": self.model_id, "artifact": self.artifact_key})

    def scraped_by(self, name: str, metrics: Metrics, opts: pulumi.ResourceOptions) -> VllmMetrics:
        """Makes Prometheus scrape the servers of the pair, and the router."""
        if self._spec.serving == "pair":
            RouterMetrics(
                f"{name}-router",
                namespace=self.namespace,
                pod_labels=parts.labels(self._name, "router"),
                port=API_PORT,
                metrics=metrics,
                after=self.foundation,
                opts=component.formerly(opts, self._spec, "-metrics-router"),
            )
        return VllmMetrics(name, server=self, metrics=metrics, opts=opts)

    def _servers(self, placement: Placement, image: str, after: Sequence[pulumi.Resource]) -> pulumi.Resource:
        files = self._files("servers", pair_pods.server_files(self._name, self._spec))
        manifest = pair_pods.workload(self._name, self._spec, placement, image=image)
        seconds = manifest["spec"].get("progressDeadlineSeconds", self.startup_seconds)
        options = self._options(files, *placement.ready, *after, seconds=seconds)
        options.delete_before_replace = True  # successors wait for the devices
        api_version, kind = manifest.pop("apiVersion"), manifest.pop("kind")
        if kind == "Deployment":
            return k8s.apps.v1.Deployment(f"{self._name}-servers", **manifest, opts=options)
        # Kubernetes accepts it at once; the router waits for its pods.
        return k8s.apiextensions.CustomResource(
            f"{self._name}-servers", api_version=api_version, kind=kind, **manifest, opts=options
        )

    def _router(self, placement: Placement, image: str, after: Sequence[pulumi.Resource]) -> pulumi.Resource:
        files = self._files("router", pair_pods.router_files(self._name, self._spec))
        return k8s.apps.v1.Deployment(
            f"{self._name}-router",
            **pair_pods.router(self._name, self._spec, placement, image=image),
            opts=self._options(files, *placement.ready, *after, seconds=self.startup_seconds),
        )

    def _job(self, what: str, step: jobs.Step, after: Sequence[pulumi.Resource]) -> pulumi.Resource:
        files = self._files(what, step.files)
        options = self._options(files, *after, seconds=step.job["spec"]["activeDeadlineSeconds"], updates=False)
        return k8s.batch.v1.Job(f"{self._name}-{what}", **step.job, opts=options)

    def _files(self, what: str, manifest: Mapping[str, Any]) -> pulumi.Resource:
        options = in_namespace(self._cluster, self, self._namespace)
        return k8s.core.v1.ConfigMap(f"{self._name}-{what}-files", **manifest, opts=options)

    def _options(self, *after: pulumi.Resource, seconds: int, updates: bool = True) -> pulumi.ResourceOptions:
        # Pulumi waits a little longer than Kubernetes, whose error message is better.
        wait = f"{seconds + _REPORT_SECONDS}s"
        timeouts = pulumi.CustomTimeouts(create=wait, update=wait if updates else None)
        return on_cluster(self._cluster, self, self._namespace, *after, timeouts=timeouts)


_PAIR_RULES = tuple(rule for rule in vars(rules).values() if isinstance(rule, Rule))
