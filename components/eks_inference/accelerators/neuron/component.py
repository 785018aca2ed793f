"""Creates Neuron support of a cluster as typed Kubernetes objects, so that previews show each of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pulumi
import pulumi_kubernetes as k8s

from eks_inference.accelerators.neuron import plan
from eks_inference.accelerators.neuron.plan import DEVICE_RESOURCE, EXTENSION_NAME, PLUGIN_NAME, SCHEDULER_NAME, NeuronSpec
from eks_inference.catalog import versions
from eks_inference.cluster.handle import Cluster
from eks_inference.cluster.objects import on_cluster
from eks_inference.component import Component, Handle
from eks_inference.place.placement import Placement
from eks_inference.specs.base import Given


class DeviceScheduler(Protocol):
    """A scheduler that allocates contiguous Neuron devices: ``NeuronScheduler`` or ``ExistingNeuronScheduler``."""

    @property
    def scheduler_name(self) -> str:
        """The value of ``schedulerName`` in pods."""
        ...

    @property
    def ready(self) -> Sequence[pulumi.Resource]: ...


@dataclass(frozen=True)
class ExistingNeuronScheduler(Handle):
    """A scheduler with the Neuron extension that the team already runs, e.g. from AWS's chart."""

    scheduler_name: str = SCHEDULER_NAME
    ready: Sequence[pulumi.Resource] = ()
    cluster: Cluster | None = None
    """The cluster where it is; None: not said, so that it goes with any."""


class NeuronPlugin(Component):
    """The Neuron device plugin: makes ``aws.amazon.com/neuron`` a resource of every Neuron node.

    Creates a ServiceAccount, a ClusterRole with its binding, and the DaemonSet ``neuron-device-plugin`` in ``kube-system``. It
    runs on every Neuron instance type of the catalog and tolerates all taints. Never install it together with AWS's chart or the
    Neuron DRA driver: both would allocate the same devices.

    Source: chart neuron-helm-chart 1.9.0 (its affinity includes Trn2; the plain manifests of aws-neuron-sdk do not).
    """

    resource_name = DEVICE_RESOURCE
    """The resource that pods request."""

    def __init__(
        self,
        name: str,
        spec: Given[NeuronSpec],
        opts: pulumi.ResourceOptions | None = None,
        *,
        cluster: Cluster,
    ) -> None:
        spec = NeuronSpec.of(spec)
        super().__init__("eks-inference:index:NeuronPlugin", name, spec.inputs(), opts)
        self.spec = spec
        self.cluster = cluster
        permissions = _service_account(name, PLUGIN_NAME, plan.PLUGIN_RULES, cluster=cluster, parent=self)
        daemon_set = k8s.apps.v1.DaemonSet(
            f"{name}-daemonset",
            **plan.plugin_daemon_set(cluster.settings.image(versions.image(PLUGIN_NAME))),
            opts=on_cluster(cluster, self, permissions),
        )
        self.ready: Sequence[pulumi.Resource] = (daemon_set,)
        self.register_outputs({"resourceName": DEVICE_RESOURCE})


class NeuronScheduler(Component):
    """Allocates contiguous Neuron devices: the scheduler extension and a second kube-scheduler that consults it.

    Creates, in ``kube-system`` and on the nodes of ``placement`` (the core pool): the extension ``k8s-neuron-scheduler``
    (ServiceAccount, RBAC, Deployment, Service, a NetworkPolicy that admits the scheduler alone) and ``my-scheduler``
    (ServiceAccount, RBAC, ConfigMap, Deployment), a kube-scheduler of the cluster's minor version. It needs the plugin, which
    applies the extension's decisions.

    Pods that need the scheduler (``plan.needs_scheduler``) name it in ``schedulerName``. If one pod on a node uses it, all pods
    should: otherwise the extension's usage map of the node is wrong. To clear a stale map after a restart, run
    ``kubectl annotate node NODE NEURON_DEV_USAGE_MAP- NEURON_CORE_USAGE_MAP-`` (aws-neuron-sdk, "Neuron scheduler extension").

    Raises ``SpecError`` if the catalog has no kube-scheduler for the cluster's version.
    """

    scheduler_name = SCHEDULER_NAME
    """The value of ``schedulerName`` in pods."""

    def __init__(
        self,
        name: str,
        opts: pulumi.ResourceOptions | None = None,
        *,
        plugin: NeuronPlugin,
        placement: Placement,
    ) -> None:
        super().__init__("eks-inference:index:NeuronScheduler", name, {"schedulerName": SCHEDULER_NAME}, opts)
        extension = self._extension(f"{name}-extension", plugin, placement)
        scheduler = self._scheduler(f"{name}-scheduler", plugin.cluster, placement, extension)
        self.ready: Sequence[pulumi.Resource] = (scheduler,)
        self.register_outputs({"schedulerName": SCHEDULER_NAME})

    def _extension(self, name: str, plugin: NeuronPlugin, placement: Placement) -> k8s.core.v1.Service:
        cluster = plugin.cluster
        permissions = _service_account(name, EXTENSION_NAME, plan.EXTENSION_RULES, cluster=cluster, parent=self)
        policy = k8s.networking.v1.NetworkPolicy(
            f"{name}-policy", **plan.extension_policy(), opts=on_cluster(cluster, self, *cluster.pods_ready)
        )
        deployment = k8s.apps.v1.Deployment(
            f"{name}-deployment",
            **plan.extension_deployment(cluster.settings.image(versions.image("neuron-scheduler")), placement),
            opts=on_cluster(cluster, self, permissions, policy, *plugin.ready, *placement.ready),
        )
        return k8s.core.v1.Service(f"{name}-service", **plan.extension_service(), opts=on_cluster(cluster, self, deployment))

    def _scheduler(self, name: str, cluster: Cluster, placement: Placement, extension: pulumi.Resource) -> k8s.apps.v1.Deployment:
        first = on_cluster(cluster, self, *cluster.pods_ready)
        account = k8s.core.v1.ServiceAccount(f"{name}-account", **plan.of_namespace(SCHEDULER_NAME), opts=first)
        bindings: list[pulumi.Resource] = [
            k8s.rbac.v1.ClusterRoleBinding(
                f"{name}-as-{role}",
                **plan.of_cluster(SCHEDULER_NAME, f"{SCHEDULER_NAME}-as-{role}"),
                **_binding("ClusterRole", f"system:{role}", SCHEDULER_NAME),
                opts=on_cluster(cluster, self, account),
            )
            for role in plan.SCHEDULER_CLUSTER_ROLES
        ]
        lease = k8s.rbac.v1.Role(f"{name}-role", **plan.of_namespace(SCHEDULER_NAME), rules=plan.SCHEDULER_RULES, opts=first)
        # The second role lets the scheduler authenticate requests for /metrics.
        for role_name, role in {SCHEDULER_NAME: [lease], "extension-apiserver-authentication-reader": []}.items():
            bindings.append(
                k8s.rbac.v1.RoleBinding(
                    f"{name}-{role_name}",
                    **plan.of_namespace(SCHEDULER_NAME, f"{SCHEDULER_NAME}-{role_name}"),
                    **_binding("Role", role_name, SCHEDULER_NAME),
                    opts=on_cluster(cluster, self, account, *role),
                )
            )
        config_map = k8s.core.v1.ConfigMap(
            f"{name}-config",
            **plan.of_namespace(SCHEDULER_NAME, plan.SCHEDULER_CONFIG_MAP),
            data={plan.SCHEDULER_CONFIG_FILE: plan.scheduler_configuration_file()},
            opts=first,
        )
        return k8s.apps.v1.Deployment(
            f"{name}-deployment",
            **plan.scheduler_deployment(cluster.settings.image(versions.image("kube-scheduler", cluster.version)), placement),
            opts=on_cluster(cluster, self, *bindings, config_map, extension, *placement.ready),
        )


def _service_account(
    name: str, account_name: str, rules: list[Any], *, cluster: Cluster, parent: pulumi.Resource
) -> pulumi.Resource:
    """Creates a ServiceAccount with cluster-wide ``rules``; returns the binding, on which its pods depend."""
    first = on_cluster(cluster, parent, *cluster.pods_ready)
    account = k8s.core.v1.ServiceAccount(f"{name}-account", **plan.of_namespace(account_name), opts=first)
    role = k8s.rbac.v1.ClusterRole(f"{name}-role", **plan.of_cluster(account_name), rules=rules, opts=first)
    return k8s.rbac.v1.ClusterRoleBinding(
        f"{name}-binding",
        **plan.of_cluster(account_name),
        **_binding("ClusterRole", account_name, account_name),
        opts=on_cluster(cluster, parent, account, role),
    )


def _binding(kind: str, role: str, account: str) -> dict[str, Any]:
    return {
        "role_ref": k8s.rbac.v1.RoleRefArgs(api_group="rbac.authorization.k8s.io", kind=kind, name=role),
        "subjects": [k8s.rbac.v1.SubjectArgs(kind="ServiceAccount", name=account, namespace=plan.NAMESPACE)],
    }
