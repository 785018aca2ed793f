"""Neuron support of a cluster as typed Kubernetes objects, so that a preview shows each of them."""

import hashlib
from collections.abc import Sequence

import pulumi
import pulumi_kubernetes as k8s
import yaml

from eks_inference.accelerators.neuron.plan import (
    DEVICE_RESOURCE,
    EXTENSION_NAME,
    EXTENSION_PORT,
    NAMESPACE,
    PLUGIN_NAME,
    SCHEDULER_CONFIG_FILE,
    SCHEDULER_NAME,
    neuron_instance_types,
    scheduler_configuration,
)
from eks_inference.accelerators.neuron.spec import NeuronSpec
from eks_inference.catalog import versions
from eks_inference.cluster.handle import Cluster
from eks_inference.placement import INSTANCE_TYPE_LABEL, Placement

_RBAC = "rbac.authorization.k8s.io"
_CONFIG_FOLDER = f"/etc/kubernetes/{SCHEDULER_NAME}"


class NeuronPlugin(pulumi.ComponentResource):
    """The Neuron device plugin: makes ``aws.amazon.com/neuron`` a resource of every Neuron node.

    Builds a ServiceAccount, a ClusterRole, its binding and the DaemonSet ``neuron-device-plugin`` in ``kube-system``, on every
    Neuron instance type of the catalog whatever its taints. Never install it beside AWS's chart or the Neuron DRA driver: two
    of them on a node hand out the same device twice.

    Sources: chart neuron-helm-chart 1.9.0 (its affinity knows Trn2; the plain manifests of aws-neuron-sdk do not).
    """

    resource_name = DEVICE_RESOURCE
    """What pods ask for."""

    def __init__(self, name: str, spec: NeuronSpec, *, cluster: Cluster, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("eks-inference:index:NeuronPlugin", name, spec.model_dump(mode="json", exclude_none=True), opts)
        self.spec = spec
        self.cluster = cluster
        labels = {"app.kubernetes.io/name": PLUGIN_NAME}
        first = pulumi.ResourceOptions(parent=self, provider=cluster.provider, depends_on=[*cluster.ready])

        account = k8s.core.v1.ServiceAccount(
            f"{name}-account", metadata={"name": PLUGIN_NAME, "namespace": NAMESPACE, "labels": labels}, opts=first
        )
        role = k8s.rbac.v1.ClusterRole(
            f"{name}-role",
            metadata={"name": PLUGIN_NAME, "labels": labels},
            rules=[
                {"api_groups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"]},
                {"api_groups": [""], "resources": ["events"], "verbs": ["create", "patch"]},
                # Plugin and scheduler extension talk through annotations of pods.
                {"api_groups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch", "patch", "update"]},
                {"api_groups": [""], "resources": ["nodes/status"], "verbs": ["patch", "update"]},
            ],
            opts=first,
        )
        binding = k8s.rbac.v1.ClusterRoleBinding(
            f"{name}-binding",
            metadata={"name": PLUGIN_NAME, "labels": labels},
            role_ref={"api_group": _RBAC, "kind": "ClusterRole", "name": PLUGIN_NAME},
            subjects=[{"kind": "ServiceAccount", "name": PLUGIN_NAME, "namespace": NAMESPACE}],
            opts=pulumi.ResourceOptions(parent=self, provider=cluster.provider, depends_on=[account, role]),
        )
        daemon_set = k8s.apps.v1.DaemonSet(
            f"{name}-daemonset",
            metadata={"name": PLUGIN_NAME, "namespace": NAMESPACE, "labels": labels},
            spec={
                "selector": {"match_labels": labels},
                "update_strategy": {"type": "RollingUpdate"},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {
                        "service_account_name": PLUGIN_NAME,
                        "priority_class_name": "system-node-critical",
                        "affinity": {
                            "node_affinity": {
                                "required_during_scheduling_ignored_during_execution": {
                                    "node_selector_terms": [
                                        {
                                            "match_expressions": [
                                                {"key": INSTANCE_TYPE_LABEL, "operator": "In", "values": neuron_instance_types()},
                                                # Auto Mode nodes run their own plugin; Fargate and hybrid nodes have no device.
                                                {
                                                    "key": "eks.amazonaws.com/compute-type",
                                                    "operator": "NotIn",
                                                    "values": ["auto", "fargate", "hybrid"],
                                                },
                                            ]
                                        }
                                    ]
                                }
                            }
                        },
                        # aws.amazon.com/neuron and whatever else a pool adds: a node without its plugin has no devices at all.
                        "tolerations": [{"operator": "Exists"}],
                        "security_context": {"seccomp_profile": {"type": "RuntimeDefault"}},
                        "containers": [
                            {
                                "name": PLUGIN_NAME,
                                "image": cluster.settings.image(versions.image(PLUGIN_NAME)),
                                "image_pull_policy": "IfNotPresent",
                                "env": [
                                    {"name": "KUBECONFIG", "value": "/etc/kubernetes/kubelet.conf"},
                                    {"name": "NODE_NAME", "value_from": {"field_ref": {"field_path": "spec.nodeName"}}},
                                ],
                                "security_context": {"allow_privilege_escalation": False, "capabilities": {"drop": ["ALL"]}},
                                "volume_mounts": [
                                    {"name": "device-plugin", "mount_path": "/var/lib/kubelet/device-plugins"},
                                    {"name": "run", "mount_path": "/run"},
                                    # The node's logical-core setting on Trn2 (/opt/aws/neuron/logical_nc_config).
                                    {"name": "aws-config", "mount_path": "/opt/aws", "read_only": True},
                                ],
                            }
                        ],
                        "volumes": [
                            {"name": "device-plugin", "host_path": {"path": "/var/lib/kubelet/device-plugins"}},
                            {"name": "run", "host_path": {"path": "/run"}},
                            {"name": "aws-config", "host_path": {"path": "/opt/aws"}},
                        ],
                    },
                },
            },
            opts=pulumi.ResourceOptions(parent=self, provider=cluster.provider, depends_on=[binding]),
        )
        self.ready: Sequence[pulumi.Resource] = (daemon_set,)
        self.register_outputs({"resourceName": DEVICE_RESOURCE})


class NeuronScheduler(pulumi.ComponentResource):
    """Hands out neighbouring Neuron devices: the scheduler extension and a second kube-scheduler that consults it.

    Builds, in ``kube-system`` and on the nodes of ``placement`` (the core pool): the extension ``k8s-neuron-scheduler``
    (ServiceAccount, RBAC, Deployment, Service) and ``my-scheduler`` (ServiceAccount, RBAC, ConfigMap, Deployment), a
    kube-scheduler of the cluster's minor version. It stands on the plugin, which carries out what the extension decides.

    Pods that need it name ``scheduler_name``; ``plan.needs_scheduler`` says which do. All pods of a node on which one does
    should, or the extension's picture of the node is wrong. Stale pictures after its restart are mended with
    ``kubectl annotate node NODE NEURON_DEV_USAGE_MAP- NEURON_CORE_USAGE_MAP-`` (aws-neuron-sdk, "Neuron scheduler extension").

    Raises ``KeyError`` when the catalog has no kube-scheduler for the cluster's version.
    """

    scheduler_name = SCHEDULER_NAME
    """What pods write in ``schedulerName``."""

    def __init__(
        self, name: str, *, plugin: NeuronPlugin, placement: Placement, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("eks-inference:index:NeuronScheduler", name, {"schedulerName": SCHEDULER_NAME}, opts)
        extension = self._extension(f"{name}-extension", plugin, placement)
        scheduler = self._scheduler(f"{name}-scheduler", plugin, placement, extension)
        self.ready: Sequence[pulumi.Resource] = (scheduler,)
        self.register_outputs({"schedulerName": SCHEDULER_NAME})

    def _options(self, plugin: NeuronPlugin, *depends_on: pulumi.Resource) -> pulumi.ResourceOptions:
        return pulumi.ResourceOptions(parent=self, provider=plugin.cluster.provider, depends_on=[*depends_on])

    def _extension(self, name: str, plugin: NeuronPlugin, placement: Placement) -> k8s.core.v1.Service:
        labels = {"app.kubernetes.io/name": EXTENSION_NAME}
        first = self._options(plugin, *plugin.cluster.ready)
        account = k8s.core.v1.ServiceAccount(
            f"{name}-account", metadata={"name": EXTENSION_NAME, "namespace": NAMESPACE, "labels": labels}, opts=first
        )
        role = k8s.rbac.v1.ClusterRole(
            f"{name}-role",
            metadata={"name": EXTENSION_NAME, "labels": labels},
            rules=[
                {"api_groups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"]},
                # It keeps its usage map in annotations of nodes and pods.
                {"api_groups": [""], "resources": ["nodes/status"], "verbs": ["get", "list", "watch", "patch", "update"]},
                {"api_groups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch", "patch", "update"]},
                {"api_groups": [""], "resources": ["events"], "verbs": ["create", "patch"]},
                {"api_groups": [""], "resources": ["bindings", "pods/binding"], "verbs": ["create"]},
            ],
            opts=first,
        )
        binding = k8s.rbac.v1.ClusterRoleBinding(
            f"{name}-binding",
            metadata={"name": EXTENSION_NAME, "labels": labels},
            role_ref={"api_group": _RBAC, "kind": "ClusterRole", "name": EXTENSION_NAME},
            subjects=[{"kind": "ServiceAccount", "name": EXTENSION_NAME, "namespace": NAMESPACE}],
            opts=self._options(plugin, account, role),
        )
        deployment = k8s.apps.v1.Deployment(
            f"{name}-deployment",
            metadata={"name": EXTENSION_NAME, "namespace": NAMESPACE, "labels": labels},
            spec={
                # Exactly one, also while it is replaced: two would each hand out devices from their own picture.
                "replicas": 1,
                "strategy": {"type": "Recreate"},
                "selector": {"match_labels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {
                        "service_account_name": EXTENSION_NAME,
                        "priority_class_name": "system-cluster-critical",
                        "node_selector": dict(placement.node_selector),
                        "tolerations": _tolerations(placement),
                        "security_context": {"seccomp_profile": {"type": "RuntimeDefault"}},
                        "containers": [
                            {
                                "name": EXTENSION_NAME,
                                "image": plugin.cluster.settings.image(versions.image("neuron-scheduler")),
                                "image_pull_policy": "IfNotPresent",
                                "env": [{"name": "PORT", "value": str(EXTENSION_PORT)}],
                                "ports": [{"name": "http", "container_port": EXTENSION_PORT}],
                                "readiness_probe": {"tcp_socket": {"port": "http"}, "period_seconds": 5},
                                "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}},
                                # Its user is the image's: AWS does not say that it runs as another one.
                                "security_context": {"allow_privilege_escalation": False, "capabilities": {"drop": ["ALL"]}},
                            }
                        ],
                    },
                },
            },
            opts=self._options(plugin, binding, *plugin.ready, *placement.ready),
        )
        return k8s.core.v1.Service(
            f"{name}-service",
            metadata={"name": EXTENSION_NAME, "namespace": NAMESPACE, "labels": labels},
            spec={
                "type": "ClusterIP",
                "selector": labels,
                "ports": [{"name": "http", "port": EXTENSION_PORT, "target_port": "http"}],
            },
            opts=self._options(plugin, deployment),
        )

    def _scheduler(
        self, name: str, plugin: NeuronPlugin, placement: Placement, extension: pulumi.Resource
    ) -> k8s.apps.v1.Deployment:
        cluster = plugin.cluster
        labels = {"app.kubernetes.io/name": SCHEDULER_NAME}
        subjects = [k8s.rbac.v1.SubjectArgs(kind="ServiceAccount", name=SCHEDULER_NAME, namespace=NAMESPACE)]
        first = self._options(plugin, *cluster.ready)
        account = k8s.core.v1.ServiceAccount(
            f"{name}-account", metadata={"name": SCHEDULER_NAME, "namespace": NAMESPACE, "labels": labels}, opts=first
        )
        # Kubernetes keeps these two roles up to date with what a kube-scheduler of its version reads.
        bindings: list[pulumi.Resource] = [
            k8s.rbac.v1.ClusterRoleBinding(
                f"{name}-as-{role}",
                metadata={"name": f"{SCHEDULER_NAME}-as-{role}", "labels": labels},
                role_ref={"api_group": _RBAC, "kind": "ClusterRole", "name": f"system:{role}"},
                subjects=subjects,
                opts=self._options(plugin, account),
            )
            for role in ("kube-scheduler", "volume-scheduler")
        ]
        lease = k8s.rbac.v1.Role(
            f"{name}-role",
            metadata={"name": SCHEDULER_NAME, "namespace": NAMESPACE, "labels": labels},
            rules=[
                {"api_groups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"]},
                {
                    "api_groups": ["coordination.k8s.io"],
                    "resources": ["leases"],
                    "resource_names": [SCHEDULER_NAME],
                    "verbs": ["get", "update"],
                },
            ],
            opts=first,
        )
        # system:kube-scheduler covers only the lease named kube-scheduler; the second role lets it check who asks for /metrics.
        for role_name, role_resources in {SCHEDULER_NAME: [lease], "extension-apiserver-authentication-reader": []}.items():
            bindings.append(
                k8s.rbac.v1.RoleBinding(
                    f"{name}-{role_name}",
                    metadata={"name": f"{SCHEDULER_NAME}-{role_name}", "namespace": NAMESPACE, "labels": labels},
                    role_ref={"api_group": _RBAC, "kind": "Role", "name": role_name},
                    subjects=subjects,
                    opts=self._options(plugin, account, *role_resources),
                )
            )
        configuration = yaml.safe_dump(scheduler_configuration(), sort_keys=False)
        config_map = k8s.core.v1.ConfigMap(
            f"{name}-config",
            metadata={"name": f"{SCHEDULER_NAME}-config", "namespace": NAMESPACE, "labels": labels},
            data={SCHEDULER_CONFIG_FILE: configuration},
            opts=first,
        )
        return k8s.apps.v1.Deployment(
            f"{name}-deployment",
            metadata={"name": SCHEDULER_NAME, "namespace": NAMESPACE, "labels": labels},
            spec={
                "replicas": 1,
                # Two may overlap during an update: only the holder of the lease schedules.
                "strategy": {"type": "RollingUpdate", "rolling_update": {"max_surge": 1, "max_unavailable": 0}},
                "selector": {"match_labels": labels},
                "template": {
                    "metadata": {
                        "labels": labels,
                        # kube-scheduler reads its file once: a changed file has to change the pod.
                        "annotations": {"eks-inference/config-sha256": hashlib.sha256(configuration.encode()).hexdigest()},
                    },
                    "spec": {
                        "service_account_name": SCHEDULER_NAME,
                        "priority_class_name": "system-cluster-critical",
                        "node_selector": dict(placement.node_selector),
                        "tolerations": _tolerations(placement),
                        "security_context": {
                            "run_as_non_root": True,
                            "run_as_user": 65532,
                            "run_as_group": 65532,
                            "seccomp_profile": {"type": "RuntimeDefault"},
                        },
                        "containers": [
                            {
                                "name": "kube-second-scheduler",
                                "image": cluster.settings.image(versions.image("kube-scheduler", cluster.version)),
                                "image_pull_policy": "IfNotPresent",
                                "command": ["/usr/local/bin/kube-scheduler"],
                                "args": [f"--config={_CONFIG_FOLDER}/{SCHEDULER_CONFIG_FILE}", "--v=2"],
                                "ports": [{"name": "https", "container_port": 10259}],
                                "liveness_probe": {
                                    "http_get": {"path": "/healthz", "port": "https", "scheme": "HTTPS"},
                                    "initial_delay_seconds": 15,
                                },
                                "readiness_probe": {"http_get": {"path": "/healthz", "port": "https", "scheme": "HTTPS"}},
                                "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
                                # Its serving certificate is made in memory, so nothing is written.
                                "security_context": {
                                    "allow_privilege_escalation": False,
                                    "read_only_root_filesystem": True,
                                    "capabilities": {"drop": ["ALL"]},
                                },
                                "volume_mounts": [{"name": "config", "mount_path": _CONFIG_FOLDER, "read_only": True}],
                            }
                        ],
                        "volumes": [{"name": "config", "config_map": {"name": f"{SCHEDULER_NAME}-config"}}],
                    },
                },
            },
            opts=self._options(plugin, *bindings, config_map, extension, *placement.ready),
        )


def _tolerations(placement: Placement) -> list[k8s.core.v1.TolerationArgsDict]:
    return [
        {"key": each["key"], "operator": each["operator"], "value": each["value"], "effect": each["effect"]}
        for each in placement.tolerations()
    ]
