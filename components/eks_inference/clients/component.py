"""The components of clients of model servers: the web UI and the smoke test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pulumi
import pulumi_kubernetes as k8s

from eks_inference.catalog import versions
from eks_inference.clients import plan
from eks_inference.clients.spec import OpenWebUISpec, SmokeTestSpec
from eks_inference.cluster.addon import EBS_CSI_DRIVER, require_addon
from eks_inference.cluster.handle import Cluster
from eks_inference.cluster.objects import on_cluster
from eks_inference.cluster.plan import STORAGE_CLASS
from eks_inference.component import Component
from eks_inference.faults import Fault, SpecError
from eks_inference.kubernetes.front import Door
from eks_inference.kubernetes.secret_object import secret_object
from eks_inference.kubernetes.secrets import SecretRef, secret_env
from eks_inference.loadtest.client_plan import client_policy, volume_claim
from eks_inference.placement import Placement
from eks_inference.serving.component import Secret, own_namespace
from eks_inference.serving.handle import ModelServer
from eks_inference.spec import Given, dns_label_faults


class OpenWebUI(Component):
    """Builds Open WebUI, a browser chat with the models of ``servers``.

    It creates a namespace with Pod Security "restricted", a NetworkPolicy (no ingress; egress only to the cluster's DNS and to
    the servers), a gp3 volume, the Deployment ``open-webui`` (one replica, uid 1000) on the nodes of ``placement``, and its
    Service on port 80. Users run ``port_forward_command``, which bypasses the policy because it enters through the node, and open
    http://localhost:8081. For more people, a ``Gateway`` gives it an address with HTTPS, opens the policy to that, and asks who
    they are.

    ``admin_password`` is the password of ``spec.admin_email``, at most 72 bytes. A ``SecretRef`` names a Secret in
    ``spec.namespace``, which the pod waits for. Open WebUI reads the password at its first start only: change it in the web UI
    afterwards. Without a password, the first visitor chooses name and password of the administrator, as in the source system. In
    both cases sign-up is closed from then on, and the administrator adds further accounts.

    ``api_key`` is the key of all servers and contains no semicolon. A ``SecretRef`` names a Secret in ``spec.namespace`` too.

    Open WebUI generates the key that signs sessions and keeps it on its volume. A key of ours would be derived from the password,
    which would let anyone who knows it forge sessions, or be one more secret to configure.

    With ``settings.protect`` the volume cannot be deleted. Raises ``SpecError`` when there are no servers.

    Sources: Open WebUI 0.12.4; it starts as another user than root since 0.11.1 (open-webui/open-webui, issue 27651).
    """

    def __init__(
        self,
        name: str,
        spec: Given[OpenWebUISpec],
        opts: pulumi.ResourceOptions | None = None,
        *,
        cluster: Cluster,
        placement: Placement,
        servers: Mapping[str, ModelServer],
        admin_password: Secret = None,
        api_key: Secret = None,
    ) -> None:
        spec = OpenWebUISpec.of(spec)
        if not servers:
            raise SpecError([Fault((), "a web UI needs a model server", allowed="one or more servers")])
        if spec.storage_class == STORAGE_CLASS:
            require_addon(cluster, EBS_CSI_DRIVER, f"a volume of the storage class {STORAGE_CLASS}")
        super().__init__("eks-inference:index:OpenWebUI", name, spec.inputs(), opts)
        settings = cluster.settings
        self.namespace = spec.namespace
        self.port_forward_command = plan.port_forward_command(spec.namespace)

        namespace, inside = own_namespace(name, spec.namespace, cluster, self)
        endpoints = {server.url: server.namespace for server in servers.values()}
        policy = k8s.networking.v1.NetworkPolicy(
            f"{name}-policy", **client_policy(plan.WEB_UI_NAME, spec.namespace, endpoints), opts=inside
        )
        volume = k8s.core.v1.PersistentVolumeClaim(
            f"{name}-volume",
            **volume_claim(plan.WEB_UI_NAME, spec.namespace, spec.volume_gib, spec.storage_class),
            opts=on_cluster(cluster, self, namespace, *cluster.ready, protect=settings.protect),
        )
        password, password_secret = secret_object(
            f"{name}-admin",
            admin_password,
            SecretRef(f"{plan.WEB_UI_NAME}-admin", "password"),
            namespace=spec.namespace,
            opts=inside,
        )
        key, key_secret = secret_object(
            f"{name}-api-key", api_key, SecretRef(f"{plan.WEB_UI_NAME}-api-key", "key"), namespace=spec.namespace, opts=inside
        )
        account = [{"name": "WEBUI_ADMIN_EMAIL", "value": spec.admin_email}] if password else []
        timeout = f"{plan.WEB_UI_PROGRESS_SECONDS + 60}s"
        deployment = k8s.apps.v1.Deployment(
            f"{name}-deployment",
            **plan.web_ui_deployment(
                spec,
                image=settings.image(spec.image or versions.image("open-webui")),
                endpoints=[server.url for server in servers.values()],
                secrets=[
                    *secret_env(plan.WEB_UI_KEY_VARIABLE, key),
                    *account,
                    *secret_env("WEBUI_ADMIN_PASSWORD", password),
                ],
                placement=placement,
            ),
            opts=on_cluster(
                cluster,
                self,
                *(policy, volume),
                *(*password_secret, *key_secret),
                *placement.ready,
                *(ready for server in servers.values() for ready in server.ready),
                timeouts=pulumi.CustomTimeouts(create=timeout, update=timeout),
            ),
        )
        k8s.core.v1.Service(
            f"{name}-service",
            **plan.web_ui_service(spec),
            opts=on_cluster(cluster, self, deployment),
        )
        self.doors: Sequence[Door] = (plan.web_ui_door(),)
        self.authenticates = password is not None
        """Whether only people with an account get in. Without a password, the first visitor becomes the administrator."""
        self.ready: Sequence[pulumi.Resource] = (deployment,)
        self.register_outputs({"namespace": spec.namespace, "portForwardCommand": self.port_forward_command})


class SmokeTest(Component):
    """Asks a model server three questions from inside the cluster: a plain one, one with parameters, and a streamed one.

    Builds a namespace that has the name of the component and Pod Security "restricted", a NetworkPolicy (egress only to the
    cluster's DNS and the server), a ConfigMap with the client of ``eks-inference chat``, and a Job that runs the client on the
    nodes of ``placement``. The Job waits for the server as long as a cold start may take, and fails unless all three answers have
    text. Any change of script, image, server or ``spec.run`` creates a new Job. ``logs_command`` shows questions, answers and
    figures.

    ``api_key`` is for a server that requires one. A ``SecretRef`` names a Secret in the namespace of the test.

    Nothing waits for the Job unless ``spec.wait`` is set. Then creation takes up to the server's ``startup_seconds`` plus 20
    minutes.

    Raises ``SpecError`` when ``name`` is no valid namespace name.
    """

    def __init__(
        self,
        name: str,
        spec: Given[SmokeTestSpec],
        opts: pulumi.ResourceOptions | None = None,
        *,
        cluster: Cluster,
        placement: Placement,
        server: ModelServer,
        api_key: Secret = None,
    ) -> None:
        spec = SmokeTestSpec.of(spec)
        if faults := dns_label_faults(name, "a smoke test's name is its namespace's", max_length=63):
            raise SpecError(faults)
        super().__init__("eks-inference:index:SmokeTest", name, spec.inputs(), opts)
        _, inside = own_namespace(name, name, cluster, self)
        policy = k8s.networking.v1.NetworkPolicy(
            f"{name}-policy",
            **client_policy(plan.SMOKE_TEST_NAME, name, {server.url: server.namespace}),
            opts=inside,
        )
        script = k8s.core.v1.ConfigMap(
            f"{name}-script",
            metadata={"name": plan.SMOKE_TEST_NAME, "namespace": name},
            data=plan.smoke_test_script(),
            opts=inside,
        )
        key, key_secret = secret_object(
            f"{name}-api-key", api_key, SecretRef(f"{plan.SMOKE_TEST_NAME}-api-key", "key"), namespace=name, opts=inside
        )
        job = plan.smoke_test_job(
            name,
            spec,
            image=cluster.settings.image(spec.image or versions.image("python")),
            endpoint=server.url,
            model=server.model_id,
            startup_seconds=server.startup_seconds,
            placement=placement,
            secret_env=secret_env("OPENAI_API_KEY", key),
        )
        self.logs_command = f"kubectl -n {name} logs --follow job/{job['metadata']['name']}"
        ran = k8s.batch.v1.Job(
            f"{name}-job",
            **job,
            opts=on_cluster(
                cluster,
                self,
                *(policy, script, *key_secret),
                *placement.ready,
                *server.ready,
                timeouts=pulumi.CustomTimeouts(create=f"{plan.smoke_test_seconds(server.startup_seconds) + 60}s"),
            ),
        )
        self.ready: Sequence[pulumi.Resource] = (ran,)
        self.register_outputs({"namespace": name, "logsCommand": self.logs_command})
