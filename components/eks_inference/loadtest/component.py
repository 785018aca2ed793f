"""A load test as resources."""

from collections.abc import Mapping, Sequence

import pulumi
import pulumi_kubernetes as k8s
from pydantic import ValidationError

from eks_inference.catalog import versions
from eks_inference.cluster.handle import Cluster
from eks_inference.cluster.objects import namespace_object, on_cluster
from eks_inference.faults import Fault, SpecError
from eks_inference.kubernetes.secret_object import secret_object
from eks_inference.kubernetes.secrets import SecretRef, secret_env
from eks_inference.loadtest import guidellm_plan, plan
from eks_inference.loadtest.spec import HubTokenizer, LoadTestSpec
from eks_inference.placement import Placement
from eks_inference.serving.handle import ModelServer
from eks_inference.serving.hardware import Hardware
from eks_inference.spec import dns_label_faults

MAX_NAME_LENGTH = 40


class LoadTest(pulumi.ComponentResource):
    """GuideLLM against the endpoints of model servers, as a Job whose results stay.

    ``name`` is also the beginning of every object's name: a DNS label of at most 40 characters. Builds the namespace (Pod
    Security "restricted"), a NetworkPolicy, the volume of the results, a ConfigMap with our script and what it is told, the Job,
    and a suspended CronJob as the template of a pod that reads the volume.

    The Job's name carries a hash of all that decides the measurement (spec, servers, hardware, image, script), so any change of
    it runs the test again, and so does a new value of ``run``. A test that still runs is ended first. Nothing waits for the
    Job: ``pulumi up`` is over while the models may still load. Its init container waits for them, at most
    ``ready_timeout_seconds``, and asks each one question first.

    ``hardware`` says on what the servers run, for the results and what they come to for one device; it may leave servers out.
    ``hugging_face_token`` is for tokenizers behind a licence, ``api_key`` for servers that want one.

    Results: one folder a run on the volume (``run.json``, ``summary.jsonl``, and for each measurement ``requests.jsonl`` beside
    GuideLLM's own report and log), and the same records as JSON lines in the Job's log, where they stay until the next run:
    ``log_command``. The volume cannot be read through a pod that has ended; ``copy_commands`` (also outputs) start one that
    can, copy every run to ./results, and end it. While a test runs, its volume is in use on one node: read the log then.

    Raises ``SpecError`` for names of servers that are not there, a model that names no tokenizer on the Hub, or a bad name.
    """

    def __init__(
        self,
        name: str,
        spec: LoadTestSpec,
        *,
        cluster: Cluster,
        placement: Placement,
        servers: Mapping[str, ModelServer],
        hardware: Mapping[str, Hardware] | None = None,
        hugging_face_token: SecretRef | pulumi.Input[str] | None = None,
        api_key: SecretRef | pulumi.Input[str] | None = None,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        targets = _targets(name, spec, servers, hardware or {})
        super().__init__("eks-inference:index:LoadTest", name, spec.model_dump(mode="json", exclude_none=True), opts)
        settings = cluster.settings
        self.namespace = spec.namespace
        tool = settings.image(spec.image or versions.image("guidellm"))
        configuration = guidellm_plan.configuration(name, spec, targets, tool)
        self.log_command = plan.log_command(name, spec, configuration) if spec.enabled else None
        self.copy_commands: Sequence[str] = plan.copy_commands(name, spec)

        namespace = namespace_object(f"{name}-namespace", spec.namespace, "restricted", cluster=cluster, parent=self)
        inside = on_cluster(cluster, self, namespace)
        network = k8s.networking.v1.NetworkPolicy(f"{name}-network", **plan.network_policy(name, spec, targets), opts=inside)
        volume = k8s.core.v1.PersistentVolumeClaim(
            f"{name}-results",
            **plan.volume_claim(name, spec),
            opts=on_cluster(cluster, self, namespace, protect=settings.protect),
        )
        k8s.batch.v1.CronJob(
            f"{name}-reader",
            **plan.reader(name, spec, tool, placement),
            opts=on_cluster(cluster, self, volume, network, *placement.ready),
        )
        self.ready: Sequence[pulumi.Resource] = (volume,)
        if spec.enabled:
            script = k8s.core.v1.ConfigMap(f"{name}-script", **plan.config_map(name, spec, configuration), opts=inside)
            token, token_secret = secret_object(
                f"{name}-hugging-face",
                hugging_face_token,
                SecretRef(f"{name}-hugging-face", "token"),
                namespace=spec.namespace,
                opts=inside,
            )
            key, key_secret = secret_object(
                f"{name}-api-key", api_key, SecretRef(f"{name}-api-key", "key"), namespace=spec.namespace, opts=inside
            )
            job = k8s.batch.v1.Job(
                f"{name}-job",
                **plan.job(
                    name,
                    spec,
                    configuration,
                    targets,
                    placement=placement,
                    secret_env=secret_env("OPENAI_API_KEY", key),
                    token_env=secret_env("HF_TOKEN", token),
                ),
                opts=on_cluster(
                    cluster,
                    self,
                    *(script, volume, network),
                    *(*token_secret, *key_secret),
                    *placement.ready,
                    *(resource for server in targets for resource in servers[server].ready),
                    # Two tests at once would measure each other, and the volume is for one node.
                    delete_before_replace=True,
                ),
            )
            self.ready = (job,)
        self.register_outputs(
            {"namespace": self.namespace, "results": {"log": self.log_command, "copy": list(self.copy_commands)}}
        )


def _targets(
    name: str, spec: LoadTestSpec, servers: Mapping[str, ModelServer], hardware: Mapping[str, Hardware]
) -> dict[str, guidellm_plan.Target]:
    """The servers under test, in the order they are tested."""
    faults = dns_label_faults(name, "Kubernetes refuses names that begin with this", max_length=MAX_NAME_LENGTH)
    if not servers:
        faults.append(Fault((), "there is no model server to test"))
    targets: dict[str, guidellm_plan.Target] = {}
    for position, server_name in enumerate(spec.servers or servers):
        server = servers.get(server_name)
        if server is None:
            allowed = ", ".join(sorted(servers))
            faults.append(Fault(("servers", position), "there is no model server of this name", server_name, allowed))
            continue
        tokenizer = spec.tokenizer
        try:
            tokenizer = tokenizer or HubTokenizer(id=server.model_id)
        except ValidationError:
            message = f"server '{server_name}' calls its model by a name that is no repository of the Hub"
            faults.append(Fault(("tokenizer",), message, given=server.model_id, hint="name the tokenizer's repository"))
            continue
        targets[server_name] = guidellm_plan.Target(
            namespace=server.namespace,
            endpoint=server.endpoint,
            model=server.model_id,
            startup_seconds=server.startup_seconds,
            tokenizer=tokenizer,
            hardware=hardware.get(server_name),
        )
    if faults:
        raise SpecError(faults)
    return targets
