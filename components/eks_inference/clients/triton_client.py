"""The client of a Triton server as resources."""

from collections.abc import Sequence

import pulumi
import pulumi_kubernetes as k8s

from eks_inference.clients import triton_client_plan as plan
from eks_inference.clients.triton_client_spec import TritonClientSpec
from eks_inference.cluster.handle import Cluster
from eks_inference.cluster.objects import namespace_object, on_cluster
from eks_inference.faults import Fault, SpecError
from eks_inference.kubernetes.secret_object import secret_object
from eks_inference.kubernetes.secrets import SecretRef, secret_env
from eks_inference.placement import Placement
from eks_inference.serving.spec import HubModel
from eks_inference.serving.triton.component import TritonServer
from eks_inference.serving.triton.plan import triton_release
from eks_inference.spec import dns_label_faults

MAX_NAME_LENGTH = 40


class TritonClient(pulumi.ComponentResource):
    """Asks a Triton server 20 prompts over gRPC (container ``test``), then measures it with genai-perf (container ``perf``).

    ``name`` is a DNS label of at most 40 characters. Builds a namespace (Pod Security "restricted"), a NetworkPolicy (out to the
    server's gRPC port and to the Hub, which has the tokenizer), a ConfigMap with our script and what it is told, the Job, a
    suspended CronJob as the template of further Jobs, and a Secret for a token that is a value.

    The Job's name carries a hash of all that decides the measurement, so any change of it runs the client again, and so does a
    new value of ``run``; ``again_command`` runs it on demand. Nothing waits for the Job. A test that fails keeps the measurement
    from running. What both found is in the log (``log_command``): tables, and one line of JSON for each number of users.

    Unlike the source system's it fetches no program when it runs: script and prompts are of this library, the rest is in
    NVIDIA's client image of the server's release.

    Raises ``SpecError`` for a bad name, a model that names no tokenizer, or an engine without a client image.
    """

    def __init__(
        self,
        name: str,
        spec: TritonClientSpec,
        *,
        cluster: Cluster,
        placement: Placement,
        server: TritonServer,
        hugging_face_token: SecretRef | pulumi.Input[str] | None = None,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        reference, target = _given(name, spec, server)
        super().__init__("eks-inference:index:TritonClient", name, spec.model_dump(mode="json", exclude_none=True), opts)
        image = cluster.settings.image(reference)
        told = plan.configuration(spec, target, image)
        self.namespace = spec.namespace
        self.log_command = plan.log_command(name, spec, told)
        self.again_command = plan.again_command(name, spec)

        namespace = namespace_object(f"{name}-namespace", spec.namespace, "restricted", cluster=cluster, parent=self)
        inside = on_cluster(cluster, self, namespace)
        network = k8s.networking.v1.NetworkPolicy(f"{name}-network", **plan.network_policy(name, spec, target), opts=inside)
        script = k8s.core.v1.ConfigMap(f"{name}-script", **plan.config_map(name, spec, told), opts=inside)
        token, secret = secret_object(
            f"{name}-hugging-face",
            hugging_face_token,
            SecretRef(f"{name}-hugging-face", "token"),
            namespace=spec.namespace,
            opts=inside,
        )
        before: list[pulumi.Resource] = [script, network, *secret]
        work = plan.job_spec(name, spec, told, target, image=image, placement=placement, token_env=secret_env("HF_TOKEN", token))
        k8s.batch.v1.CronJob(
            f"{name}-again",
            **plan.again(name, spec, work),
            opts=on_cluster(cluster, self, *before, *placement.ready),
        )
        job = k8s.batch.v1.Job(
            f"{name}-job",
            **plan.job(name, spec, told, work),
            # Two at once would measure each other.
            opts=on_cluster(cluster, self, *before, *placement.ready, *server.ready, delete_before_replace=True),
        )
        self.ready: Sequence[pulumi.Resource] = (job,)
        self.register_outputs({"namespace": spec.namespace, "log": self.log_command, "again": self.again_command})


def _given(name: str, spec: TritonClientSpec, server: TritonServer) -> tuple[str, plan.Target]:
    """The image before mirrors, and whom it asks; ``SpecError`` with everything that is missing."""
    faults = dns_label_faults(name, "Kubernetes refuses names that begin with this", max_length=MAX_NAME_LENGTH)
    model, profile = server.spec.model, server.spec.profile
    tokenizer, revision = "", None
    if spec.tokenizer:
        tokenizer, revision = spec.tokenizer.id, spec.tokenizer.revision
    elif isinstance(model, HubModel):
        tokenizer, revision = model.id, model.revision
    else:
        faults.append(
            Fault(("tokenizer",), "the server's model is not on the Hub", model.id, hint="name a tokenizer's repository")
        )
    image = spec.image or profile.client_image
    if image is None:
        faults.append(Fault(("image",), f"engine {profile.name} has no client image", hint="name an image"))
    if image is None or faults:
        raise SpecError(faults)
    target = plan.Target(
        namespace=server.namespace,
        grpc=server.grpc_endpoint,
        model=server.model_id,
        tokenizer=tokenizer,
        tokenizer_revision=revision,
        release=triton_release(profile),
        startup_seconds=server.startup_seconds,
    )
    return image, target
