"""The component of a load test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pulumi
import pulumi_kubernetes as k8s

from eks_inference.catalog import versions
from eks_inference.catalog.models import find_model
from eks_inference.cluster.handle import Cluster
from eks_inference.cluster.objects import on_cluster
from eks_inference.component import Component
from eks_inference.faults import Fault, SpecError
from eks_inference.kubernetes.secrets import SecretRef, secret_env, secret_object
from eks_inference.loadtest import plan
from eks_inference.loadtest.spec import HubTokenizer, LoadTestSpec
from eks_inference.place.placement import Placement
from eks_inference.serving.component import Secret, hub_token, own_namespace
from eks_inference.serving.handle import ModelServer
from eks_inference.serving.pod_parts import Hardware
from eks_inference.specs.base import Given, dns_label_faults

MAX_NAME_LENGTH = 40


class LoadTest(Component):
    """Runs GuideLLM against the endpoints of model servers, as a Job that keeps its results.

    ``name`` prefixes the name of every object: a DNS label of at most 40 characters. The component builds the namespace (Pod
    Security "restricted"), a NetworkPolicy, a volume for the results, a ConfigMap with the script and its configuration, the Job,
    and a suspended CronJob as the template of a pod that reads the volume.

    The Job's name contains a hash of everything that affects the measurement (spec, servers, hardware, image, script), so any
    such change runs the test again, as does a new value of ``run``. A test that is still running is stopped first. Nothing waits
    for the Job: ``pulumi up`` returns while models may still be loading. The Job's init container waits up to
    ``ready_timeout_seconds`` for the models and asks each one question.

    ``hardware`` describes the hardware of the servers, for results per device; it need not cover every server.
    ``hugging_face_token`` is for gated tokenizers, ``api_key`` for servers that require one.

    Results: the volume has a folder for each run (``run.json``, ``summary.jsonl``, and for each measurement ``requests.jsonl``
    beside GuideLLM's report and log). The Job's log has the same records as JSON lines until the next run: ``log_command``. A
    finished pod gives no access to the volume, so ``copy_commands`` (also an output) start a pod that does, copy every run to
    ./results, and delete it. While a test runs, one node holds the volume: read the log then.

    Raises ``SpecError`` for unknown servers, for a model name that is no Hub repository when no tokenizer is given, and for an
    invalid name.
    """

    def __init__(
        self,
        name: str,
        spec: Given[LoadTestSpec],
        opts: pulumi.ResourceOptions | None = None,
        *,
        cluster: Cluster,
        placement: Placement,
        servers: Mapping[str, ModelServer],
        hardware: Mapping[str, Hardware] | None = None,
        hugging_face_token: Secret = None,
        api_key: Secret = None,
    ) -> None:
        spec = LoadTestSpec.of(spec)
        targets = _targets(name, spec, servers, hardware or {})
        super().__init__("eks-inference:index:LoadTest", name, spec.inputs(), opts)
        settings = cluster.settings
        self.namespace = spec.namespace
        tool = settings.image(spec.image or versions.image("guidellm"))
        configuration = plan.configuration(name, spec, targets, tool)
        self.log_command = plan.log_command(name, spec, configuration) if spec.enabled else None
        self.copy_commands: Sequence[str] = plan.copy_commands(name, spec)

        namespace, inside = own_namespace(name, spec.namespace, cluster, self)
        endpoints = {target.endpoint: target.namespace for target in targets.values()}
        policy = plan.client_policy(name, spec.namespace, endpoints, hub=True)
        network = k8s.networking.v1.NetworkPolicy(f"{name}-network", **policy, opts=inside)
        volume = k8s.core.v1.PersistentVolumeClaim(
            f"{name}-results",
            **plan.volume_claim(f"{name}-results", spec.namespace, spec.volume_gib, spec.storage_class),
            opts=on_cluster(cluster, self, namespace, *cluster.ready, protect=settings.protect),
        )
        k8s.batch.v1.CronJob(
            f"{name}-reader",
            **plan.reader(name, spec, tool, placement),
            opts=on_cluster(cluster, self, volume, network, *placement.ready),
        )
        self.ready: Sequence[pulumi.Resource] = (volume,)
        if spec.enabled:
            scripts = {plan.SCRIPT_FILE: plan.script()}
            files = plan.config_map(name, spec.namespace, scripts, configuration)
            script = k8s.core.v1.ConfigMap(f"{name}-script", **files, opts=inside)
            token_env, token_secret = hub_token(name, hugging_face_token, spec.namespace, inside)
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
                    token_env=token_env,
                ),
                opts=on_cluster(
                    cluster,
                    self,
                    *(script, volume, network),
                    *(*token_secret, *key_secret),
                    *placement.ready,
                    *(resource for server in targets for resource in servers[server].ready),
                    # Two tests at once would distort each other, and only one node can mount the volume.
                    delete_before_replace=True,
                ),
            )
            self.ready = (job,)
        self.register_outputs(
            {"namespace": self.namespace, "results": {"log": self.log_command, "copy": list(self.copy_commands)}}
        )


def _targets(
    name: str, spec: LoadTestSpec, servers: Mapping[str, ModelServer], hardware: Mapping[str, Hardware]
) -> dict[str, plan.Target]:
    """Returns the servers under test in the order of the test. Raises ``SpecError`` with every fault."""
    faults = dns_label_faults(name, "Kubernetes refuses names that begin with this", max_length=MAX_NAME_LENGTH)
    if not servers:
        faults.append(Fault((), "there is no model server to test"))
    targets: dict[str, plan.Target] = {}
    for position, server_name in enumerate(spec.servers or servers):
        server = servers.get(server_name)
        if server is None:
            message = "no model server has this name"
            faults.append(Fault(("servers", position), message, server_name, ", ".join(sorted(servers))))
            continue
        try:
            if not spec.tokenizer and "/" not in server.model_id and find_model(server.model_id) is None:
                raise SpecError([])  # the oldest repositories have no owner, but far more names of models in S3 and on volumes
            tokenizer = spec.tokenizer or HubTokenizer(id=server.model_id)
        except SpecError:
            message = f"server '{server_name}' gives its model a name that is no repository of the Hub"
            faults.append(Fault(("tokenizer",), message, given=server.model_id, hint="name the tokenizer's repository"))
            continue
        targets[server_name] = plan.Target(
            namespace=server.namespace,
            endpoint=server.url,
            model=server.model_id,
            startup_seconds=server.startup_seconds,
            tokenizer=tokenizer,
            hardware=hardware.get(server_name),
            task=getattr(server, "does", "chat"),
        )
    if faults:
        raise SpecError(faults)
    return targets
