"""The component of prefill and decode servers with their routers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_kubernetes as k8s

from eks_inference.accelerators.claims.component import DeviceDriver
from eks_inference.accelerators.efa.component import EfaDevices
from eks_inference.accelerators.neuron.component import DeviceScheduler
from eks_inference.catalog import versions
from eks_inference.catalog.models import Task
from eks_inference.cluster.handle import Cluster
from eks_inference.cluster.objects import on_cluster
from eks_inference.component import Component, carried
from eks_inference.faults import SpecError
from eks_inference.kubernetes.workloads import Level
from eks_inference.observability.handle import Expected, Metrics
from eks_inference.observability.prometheus import RouterMetrics, VllmMetrics
from eks_inference.place.placement import Placement
from eks_inference.rules import Rule
from eks_inference.serving import component, deployment
from eks_inference.serving.component import REPORT_SECONDS, Secret
from eks_inference.serving.prefill_decode import operation_rules, plan, router, rules
from eks_inference.serving.prefill_decode.plan import Group, RoleServers
from eks_inference.serving.prefill_decode.rules import group_facts
from eks_inference.serving.prefill_decode.spec import PrefillDecodeSpec
from eks_inference.serving.rules.every_server import server_rules
from eks_inference.serving.storage import Account, server_storage
from eks_inference.serving.vllm import plan as vllm
from eks_inference.specs.base import Given


@dataclass(frozen=True)
class _Scaled:
    """The Deployment of one role, as its autoscaler sees it."""

    namespace: str
    deployment_name: str
    ready: Sequence[pulumi.Resource]


class PrefillDecodeServers(Component):
    """Builds vLLM on Trn2 or GPUs as prefill servers, decode servers and routers, with an OpenAI API at ``endpoint``.

    A router sends each prompt to a prefill server, and then the request to a decode server, which reads the KV cache from there
    over EFA (NIXL) and answers. Each role has its own number of pods, pool, split and batch.

    ``name``, a DNS label of at most 32 characters, also names the Service and, by default, the namespace. Creates the namespace
    (Pod Security "privileged": the servers pin memory for EFA as root with IPC_LOCK), a quota of the devices of all pods
    together, NetworkPolicies (clients reach routers only; servers reach each other's side channel only), a Deployment with
    service account and disruption budget for each role, the routers with a Role that lets them watch pods, and the Service.

    All servers of a group run one image with equal settings: the group has a revision, which is part of the names of both
    Deployments, and routers pair servers of their own revision only. A new revision replaces both Deployments, before or after
    the old ones end (``rollout``); ``pulumi up`` waits until all new pods answer.

    ``prefill_placement`` and ``decode_placement`` are each one instance type of a pool with EFA; ``router_placement`` is where
    the routers run. ``efa`` offers EFA interfaces as resources, or ``efa_driver`` for claims. On a pool whose devices are
    claimed, ``prefill_driver`` or ``decode_driver`` offers them, and has to outlive the pods. Pods that share a node need claims:
    a device plugin lets no pod choose its half.

    The Hugging Face token becomes HF_TOKEN; servers demand ``api_key``, which the routers send. Clients need no key: who reaches
    the routers is decided by ``client_namespaces``.

    Raises ``SpecError`` for an invalid name and a spec that the rules refuse.
    """

    def __init__(
        self,
        name: str,
        spec: Given[PrefillDecodeSpec],
        opts: pulumi.ResourceOptions | None = None,
        *,
        cluster: Cluster,
        prefill_placement: Placement,
        decode_placement: Placement,
        router_placement: Placement,
        efa: EfaDevices | None = None,
        efa_driver: DeviceDriver | None = None,
        scheduler: DeviceScheduler | None = None,
        prefill_driver: DeviceDriver | None = None,
        decode_driver: DeviceDriver | None = None,
        hugging_face_token: Secret = None,
        api_key: Secret = None,
    ) -> None:
        spec = PrefillDecodeSpec.of(spec)
        pools = {"prefill_pool": prefill_placement, "decode_pool": decode_placement, "router_pool": router_placement}
        faults = [*component.name_faults(name, plan.MAX_NAME_LENGTH), *component.placement_faults(spec, **pools)]
        if faults:
            raise SpecError(faults)
        group = plan.group(name, spec, {"prefill": prefill_placement, "decode": decode_placement})
        found = group_facts(group, scheduler=scheduler is not None)
        for role in found.roles:
            self._judge(name, server_rules(), role.server, cluster.settings.silenced)
        self._judge(name, _GROUP_RULES, found, cluster.settings.silenced)
        super().__init__("eks-inference:index:PrefillDecodeServers", name, spec.inputs(), component.formerly(opts, spec))
        self._name, self._spec, self._cluster = name, spec, cluster
        self.namespace = spec.namespace_of(name)
        self.service_name = name
        self.model_id = spec.model.id
        self.does: Task = spec.does
        self.revision = group.revision
        self.url = f"http://{name}.{self.namespace}.svc.cluster.local:{router.API_PORT}/v1"
        self.startup_seconds = max(deployment.cold_start_seconds(one.spec, one.placement) for one in group)
        self.hardware = plan.hardware(group)
        self.forwards: Mapping[str, Sequence[int]] = {name: [router.API_PORT]}
        self.pod_labels = plan.server_labels(name)
        self.metrics_job = "vllm"
        self.metrics_ports: Mapping[str, int] = {role_servers.role: plan.port(spec) for role_servers in group}
        self.metric_names = spec.profile.metric_names
        self.expected = Expected(name, min(role_servers.spec.fewest for role_servers in group), spec.objectives)
        level: Level = "privileged" if spec.serving == "disaggregated" else "restricted"
        self.fronts = (router.entry(group),)
        self.other_names: Sequence[str] = ()
        namespace, self._inside = component.own_namespace(name, self.namespace, cluster, self, level, delete_before_replace=True)
        self.foundation: Sequence[pulumi.Resource] = (namespace,)
        script = k8s.core.v1.ConfigMap(
            f"{name}-drain",
            metadata={"name": vllm.script_config_map(name), "namespace": self.namespace},
            data=vllm.scripts(group.roles["decode"].spec),
            opts=self._inside,
        )
        token_env, token = component.hub_token(name, hugging_face_token, self.namespace, self._inside)
        key_env, key = component.vllm_api_key(name, api_key, self.namespace, self._inside)
        policies = plan.network_policies(group, router=router.labels(name))
        policies["router"] = router.network_policy_of(group, cluster.api_cidrs)
        guards = component.guards(
            name,
            policies=policies,
            quota=plan.quota(group),
            budgets={**plan.budgets(group), "router": router.disruption_budget(group)},
            options=self._inside,
        )
        offering = [one for part in (efa, efa_driver, scheduler, prefill_driver, decode_driver) if part for one in part.ready]
        before = [script, *token, *key, *guards, *offering]
        deployments = {one.role: self._servers(group, one, [*token_env, *key_env], scheduler, before) for one in group}
        self.scaled = {
            one.role: _Scaled(self.namespace, deployment.revised(one.name, group.revision), (deployments[one.role],))
            for one in group
        }
        routers = self._routers(group, router_placement, key_env, [*key, *guards, *deployments.values()])
        service = k8s.core.v1.Service(
            f"{name}-service", **router.service(group), opts=on_cluster(cluster, self, *self.foundation)
        )
        self.ready: Sequence[pulumi.Resource] = (*deployments.values(), routers, service)
        self.endpoint = carried(self.url, self.ready)
        self.register_outputs({"endpoint": self.endpoint, "model": self.model_id, "revision": self.revision})

    def scraped_by(self, name: str, metrics: Metrics, opts: pulumi.ResourceOptions) -> VllmMetrics:
        """Makes Prometheus scrape the servers, each role as a server of its own, and the routers."""
        RouterMetrics(
            f"{name}-router",
            namespace=self.namespace,
            pod_labels=router.labels(self._name),
            port=router.METRICS_PORT,
            port_name=router.METRICS_NAME,
            metrics=metrics,
            after=self.foundation,
            opts=component.formerly(opts, self._spec, "-metrics-router"),
        )
        return VllmMetrics(name, server=self, metrics=metrics, opts=opts)

    def _servers(
        self,
        group: Group,
        one: RoleServers,
        secret_env: Sequence[Mapping[str, Any]],
        scheduler: DeviceScheduler | None,
        before: Sequence[pulumi.Resource],
    ) -> pulumi.Resource:
        cluster, name, space = self._cluster, one.name, self.namespace
        account = deployment.account_name(name)
        made = component.service_account(f"{name}-account", account, space, self._inside)
        identity = Account(space, account, f"Model servers {name} in the EKS cluster {cluster.name}")
        storage, stored = server_storage(
            name, one.spec, account=identity, cluster=cluster, parent=self, namespace=self.foundation[0]
        )
        templates = [
            k8s.resource.v1.ResourceClaimTemplate(f"{name}-{claim}", **manifest, opts=self._inside)
            for claim, manifest in deployment.claims(one.spec, one.placement, one.engine.efa_interfaces)
            .manifests(name, space)
            .items()
        ]
        manifest = deployment.deployment(
            name,
            one.spec,
            one.placement,
            one.engine,
            labels=one.labels,
            image=cluster.settings.image(self._spec.image_reference),
            storage=storage,
            secret_env=secret_env,
            scheduler_name=scheduler.scheduler_name if scheduler else None,
            revision=group.revision,
        )
        lingering = one.engine.lingers_seconds
        timeouts = pulumi.CustomTimeouts(
            create=f"{deployment.progress_seconds(one.spec, one.placement) + lingering + REPORT_SECONDS}s",
            update=f"{deployment.rollout_seconds(one.spec, one.placement) + lingering * one.spec.most + REPORT_SECONDS}s",
            delete=f"{one.lingering + REPORT_SECONDS}s",
        )
        return k8s.apps.v1.Deployment(
            f"{name}-deployment",
            **manifest,
            opts=on_cluster(
                cluster,
                self,
                *self.foundation,
                *before,
                *templates,
                *stored,
                made,
                *one.placement.ready,
                timeouts=timeouts,
                # Without devices for a second group, the new pods would wait for those of the old ones for ever.
                delete_before_replace=group.spec.rollout == "recreate" or None,
            ),
        )

    def _routers(
        self, group: Group, placement: Placement, key_env: Sequence[Mapping[str, Any]], before: Sequence[pulumi.Resource]
    ) -> pulumi.Resource:
        name, cluster, inside = self._name, self._cluster, self._inside
        account = k8s.core.v1.ServiceAccount(
            f"{name}-router-account",
            metadata={"name": router.account_name(name), "namespace": self.namespace},
            opts=inside,
        )
        role, binding = router.permission(group)
        role = k8s.rbac.v1.Role(f"{name}-router-role", **role, opts=inside)
        binding = k8s.rbac.v1.RoleBinding(f"{name}-router-binding", **binding, opts=inside)
        wait = f"{router.PROGRESS_SECONDS + REPORT_SECONDS}s"
        return k8s.apps.v1.Deployment(
            f"{name}-router-deployment",
            **router.deployment(
                group,
                placement,
                image=cluster.settings.image(versions.image("vllm-router")),
                secret_env=[{**entry, "name": router.KEY_VARIABLE} for entry in key_env],
            ),
            opts=on_cluster(
                cluster,
                self,
                *self.foundation,
                *before,
                account,
                role,
                binding,
                *placement.ready,
                timeouts=pulumi.CustomTimeouts(create=wait, update=wait),
            ),
        )


_GROUP_RULES = tuple(rule for module in (rules, operation_rules) for rule in vars(module).values() if isinstance(rule, Rule))
