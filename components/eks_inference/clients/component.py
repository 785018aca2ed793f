"""Components of model servers' clients: the web UI, the smoke test and the Triton client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pulumi
import pulumi_kubernetes as k8s

from eks_inference.catalog import versions
from eks_inference.catalog.models import Task
from eks_inference.clients import plan
from eks_inference.clients.spec import OpenWebUISpec, SmokeTestSpec, TritonClientSpec
from eks_inference.cluster.handle import Cluster
from eks_inference.cluster.objects import EBS_CSI_DRIVER, on_cluster, require_addon
from eks_inference.cluster.plan import STORAGE_CLASS
from eks_inference.component import Component
from eks_inference.faults import Fault, SpecError
from eks_inference.kubernetes.network_policy import Door
from eks_inference.kubernetes.secrets import SecretRef, secret_env, secret_object
from eks_inference.loadtest import plan as client_plan
from eks_inference.loadtest.plan import client_policy, volume_claim
from eks_inference.place.placement import Placement
from eks_inference.serving.component import Secret, hub_token, own_namespace
from eks_inference.serving.handle import ModelServer
from eks_inference.serving.spec import HubModel
from eks_inference.serving.triton.component import TritonServer
from eks_inference.serving.triton.plan import triton_release
from eks_inference.specs.base import Given, dns_label_faults


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
    """Asks a model server three questions from inside the cluster: a plain one, one with parameters, and a streamed one. A model
    that does not chat is asked once for what it does, its ``task``.

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
        task: Task = "chat",
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
            task=task,
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


_MAX_NAME_LENGTH = 40


class TritonClient(Component):
    """Sends 20 prompts to a Triton server over gRPC (container ``test``), then measures it with genai-perf (container ``perf``).

    ``name`` is a DNS label of at most 40 characters. The component builds a namespace (Pod Security "restricted"), a
    NetworkPolicy (egress to the server's gRPC port, and to the Hub for the tokenizer), a ConfigMap with the script and its
    configuration, the Job, a suspended CronJob as the template of further Jobs, and a Secret when the token is a value.

    The Job's name contains a hash of everything that affects the measurement, so any such change runs the client again, as does a
    new value of ``run``; ``again_command`` runs it on demand. Nothing waits for the Job. A failed test prevents the measurement.
    The log (``log_command``) has both results: tables, and one line of JSON for each number of users.

    Unlike the source system's client it downloads no program at run time: script and prompts come with this library, the rest is
    in NVIDIA's client image of the server's release.

    Raises ``SpecError`` for an invalid name, a model without a tokenizer on the Hub, or an engine without a client image.
    """

    def __init__(
        self,
        name: str,
        spec: Given[TritonClientSpec],
        opts: pulumi.ResourceOptions | None = None,
        *,
        cluster: Cluster,
        placement: Placement,
        server: TritonServer,
        hugging_face_token: Secret = None,
    ) -> None:
        spec = TritonClientSpec.of(spec)
        reference, target = _target(name, spec, server)
        super().__init__("eks-inference:index:TritonClient", name, spec.inputs(), opts)
        image = cluster.settings.image(reference)
        configuration = plan.triton_configuration(spec, target, image)
        self.namespace = spec.namespace
        self.log_command = plan.triton_log_command(name, spec, configuration)
        self.again_command = plan.triton_again_command(name, spec)

        _, inside = own_namespace(name, spec.namespace, cluster, self)
        policy = client_plan.client_policy(name, spec.namespace, {target.grpc: target.namespace}, hub=True)
        network = k8s.networking.v1.NetworkPolicy(f"{name}-network", **policy, opts=inside)
        files = client_plan.config_map(name, spec.namespace, {plan.TRITON_SCRIPT: plan.triton_script()}, configuration)
        script = k8s.core.v1.ConfigMap(f"{name}-script", **files, opts=inside)
        token_env, secret = hub_token(name, hugging_face_token, spec.namespace, inside)
        work = plan.triton_job_spec(name, spec, configuration, target, image=image, placement=placement, token_env=token_env)
        before: list[pulumi.Resource] = [script, network, *secret, *placement.ready]
        k8s.batch.v1.CronJob(
            f"{name}-again",
            **client_plan.job_template(name, spec.namespace, work),
            opts=on_cluster(cluster, self, *before),
        )
        job = k8s.batch.v1.Job(
            f"{name}-job",
            **client_plan.client_job(name, spec.namespace, configuration, work),
            # Two at once would distort each other.
            opts=on_cluster(cluster, self, *before, *server.ready, delete_before_replace=True),
        )
        self.ready: Sequence[pulumi.Resource] = (job,)
        self.register_outputs({"namespace": spec.namespace, "log": self.log_command, "again": self.again_command})


def _target(name: str, spec: TritonClientSpec, server: TritonServer) -> tuple[str, plan.TritonTarget]:
    """Returns the image, before any mirror, and the server under test. Raises ``SpecError`` with every fault."""
    faults = dns_label_faults(name, "Kubernetes refuses names that begin with this", max_length=_MAX_NAME_LENGTH)
    model, profile = server.spec.model, server.spec.profile
    tokenizer = spec.tokenizer or (model if isinstance(model, HubModel) else None)
    if tokenizer is None:
        faults.append(
            Fault(("tokenizer",), "the server's model is not on the Hub", model.id, hint="name a tokenizer's repository")
        )
    image = spec.image or profile.client_image
    if image is None:
        faults.append(Fault(("image",), f"engine {profile.name} has no client image", hint="name an image"))
    if tokenizer is None or image is None or faults:
        raise SpecError(faults)
    target = plan.TritonTarget(
        namespace=server.namespace,
        grpc=server.grpc_address,
        model=server.model_id,
        tokenizer=tokenizer.id,
        tokenizer_revision=tokenizer.revision,
        release=triton_release(profile),
        startup_seconds=server.startup_seconds,
    )
    return image, target
