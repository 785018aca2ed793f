"""The component of a Triton server's client."""

from __future__ import annotations

from collections.abc import Sequence

import pulumi
import pulumi_kubernetes as k8s

from eks_inference.clients import triton_client_plan as plan
from eks_inference.clients.triton_client_spec import TritonClientSpec
from eks_inference.cluster.handle import Cluster
from eks_inference.cluster.objects import on_cluster
from eks_inference.component import Component
from eks_inference.faults import Fault, SpecError
from eks_inference.loadtest import client_plan
from eks_inference.placement import Placement
from eks_inference.serving.component import Secret, hub_token, own_namespace
from eks_inference.serving.spec import HubModel
from eks_inference.serving.triton.component import TritonServer
from eks_inference.serving.triton.plan import triton_release
from eks_inference.spec import dns_label_faults

MAX_NAME_LENGTH = 40


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
        spec: TritonClientSpec,
        *,
        cluster: Cluster,
        placement: Placement,
        server: TritonServer,
        hugging_face_token: Secret = None,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        reference, target = _target(name, spec, server)
        super().__init__("eks-inference:index:TritonClient", name, spec.model_dump(mode="json", exclude_none=True), opts)
        image = cluster.settings.image(reference)
        configuration = plan.configuration(spec, target, image)
        self.namespace = spec.namespace
        self.log_command = plan.log_command(name, spec, configuration)
        self.again_command = plan.again_command(name, spec)

        _, inside = own_namespace(name, spec.namespace, cluster, self)
        policy = client_plan.client_policy(name, spec.namespace, {target.grpc: target.namespace}, hub=True)
        network = k8s.networking.v1.NetworkPolicy(f"{name}-network", **policy, opts=inside)
        files = client_plan.config_map(name, spec.namespace, {plan.SCRIPT_FILE: plan.script()}, configuration)
        script = k8s.core.v1.ConfigMap(f"{name}-script", **files, opts=inside)
        token_env, secret = hub_token(name, hugging_face_token, spec.namespace, inside)
        work = plan.job_spec(name, spec, configuration, target, image=image, placement=placement, token_env=token_env)
        before: list[pulumi.Resource] = [script, network, *secret, *placement.ready]
        k8s.batch.v1.CronJob(
            f"{name}-again",
            **client_plan.job_template(name, spec.namespace, work),
            opts=on_cluster(cluster, self, *before),
        )
        job = k8s.batch.v1.Job(
            f"{name}-job",
            **client_plan.job(name, spec.namespace, configuration, work),
            # Two at once would distort each other.
            opts=on_cluster(cluster, self, *before, *server.ready, delete_before_replace=True),
        )
        self.ready: Sequence[pulumi.Resource] = (job,)
        self.register_outputs({"namespace": spec.namespace, "log": self.log_command, "again": self.again_command})


def _target(name: str, spec: TritonClientSpec, server: TritonServer) -> tuple[str, plan.Target]:
    """Returns the image, before any mirror, and the server under test. Raises ``SpecError`` with every fault."""
    faults = dns_label_faults(name, "Kubernetes refuses names that begin with this", max_length=MAX_NAME_LENGTH)
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
    target = plan.Target(
        namespace=server.namespace,
        grpc=server.grpc_endpoint,
        model=server.model_id,
        tokenizer=tokenizer.id,
        tokenizer_revision=tokenizer.revision,
        release=triton_release(profile),
        startup_seconds=server.startup_seconds,
    )
    return image, target
