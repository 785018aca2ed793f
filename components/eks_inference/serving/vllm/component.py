"""The component of a plain vLLM server."""

from __future__ import annotations

import pulumi
import pulumi_kubernetes as k8s

from eks_inference.accelerators.claims.component import DeviceDriver
from eks_inference.accelerators.neuron.component import DeviceScheduler
from eks_inference.cluster.handle import Cluster
from eks_inference.faults import Fault, SpecError
from eks_inference.place.placement import Placement
from eks_inference.serving.component import ReplicatedServer, Secret, vllm_api_key
from eks_inference.serving.flag_values import other_names
from eks_inference.serving.storage import server_storage
from eks_inference.serving.vllm import plan
from eks_inference.serving.vllm.facts import facts_of_places
from eks_inference.serving.vllm.spec import VllmServerSpec
from eks_inference.specs.base import Given
from eks_inference.storage.component import store_claim
from eks_inference.storage.handle import Store


class VllmServer(ReplicatedServer):
    """vLLM on Neuron devices or GPUs, with an OpenAI API at ``endpoint`` and metrics at the same port.

    ``name``, a DNS label of at most 40 characters, also names the Deployment, the Service and, by default, the namespace. Creates
    the namespace (Pod Security "restricted", a quota of the devices of all pods together, NetworkPolicies that open only API and
    metrics), the service account with the AWS permissions for compile cache and model, a disruption budget, Secrets for tokens
    that are given as values, the Service and the Deployment.

    ``placement`` is one instance type of the pool; the pods tolerate its taints and take their share of its CPU and memory.
    ``image`` is the reference of the image that ``spec.image`` says to build in the cluster, e.g. ``ImageBuild(...).reference``.
    The Hugging Face token becomes HF_TOKEN; ``api_key`` becomes VLLM_API_KEY, which every request below /v1 then needs. Either
    may be a Secret in the server's namespace.

    ``pulumi up`` waits until every pod answers. At first that takes a node start, an image pull, a download, a compilation and a
    load (``startup_seconds``). A change replaces one pod after the other; each pod has three minutes to finish its requests. With
    ``autoscaling`` in the spec, the Deployment does not set the number of pods.

    On a pool whose devices are claimed, the server also gets a template of its pods' claim, and ``driver`` is what offers the
    devices, e.g. ``DraDriver(...)``: it has to outlive the pods.

    ``store`` is the file system that ``spec.store`` or ``spec.shared_store`` asks for: a ``SharedStore``, or, with any
    name as ``spec.shared_store``, an ``ExistingStore``.

    Raises ``SpecError`` for an invalid name, a missing or superfluous ``store`` or ``image``, and a spec that the serving rules
    refuse.
    """

    def __init__(
        self,
        name: str,
        spec: Given[VllmServerSpec],
        opts: pulumi.ResourceOptions | None = None,
        *,
        cluster: Cluster,
        placement: Placement,
        scheduler: DeviceScheduler | None = None,
        driver: DeviceDriver | None = None,
        store: Store | None = None,
        image: pulumi.Input[str] | None = None,
        hugging_face_token: Secret = None,
        api_key: Secret = None,
    ) -> None:
        spec = VllmServerSpec.of(spec)
        if (spec.kept_in is None) != (store is None):
            raise SpecError([Fault(("store",), "the spec and the argument store go together", hint="give both, or neither")])
        super().__init__(
            "eks-inference:index:VllmServer",
            name,
            spec,
            cluster=cluster,
            placement=placement,
            image=image,
            subjects=facts_of_places(spec, placement, scheduler=scheduler is not None),
            labels=plan.labels(name),
            ports={plan.PORT_NAME: plan.port(spec)},
            opts=opts,
        )
        self.other_names = (*spec.adapters, *other_names(self.model_id, spec.extra_args))
        self.port = plan.port(spec)
        self.url = f"http://{self.host}:{self.port}/v1"
        kept = self._store_claim(name, store)
        script = k8s.core.v1.ConfigMap(
            f"{name}-drain",
            metadata={"name": plan.script_config_map(name), "namespace": self.namespace},
            data=plan.scripts(spec),
            opts=self._inside,
        )
        storage, stored = server_storage(
            name, spec, account=self._identity, cluster=cluster, parent=self, namespace=self.foundation[0]
        )
        key_env, key = vllm_api_key(name, api_key, self.namespace, self._inside)
        self._serve(
            name,
            spec,
            plan.engine(name, spec, placement),
            storage=storage,
            hugging_face_token=hugging_face_token,
            secret_env=key_env,
            scheduler_name=scheduler.scheduler_name if scheduler else None,
            after=[script, *kept, *stored, *key, *(resource for part in (scheduler, driver) if part for resource in part.ready)],
        )
        self.register_outputs({"endpoint": self.endpoint, "model": self.model_id})

    def _store_claim(self, name: str, store: Store | None) -> list[pulumi.Resource]:
        if store is None:
            return []
        claim = plan.claim_name(name)
        return [store_claim(claim, store, namespace=self.namespace, cluster=self._cluster, parent=self, opts=self._inside)]
