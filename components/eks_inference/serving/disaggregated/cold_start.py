"""Calculates how long the store of a pair takes from nothing to the first answer, and the limits for waiting. Pure; no pulumi.

One Job writes the model into the store. Another reads it and writes it once more, split up by core. Each server reads all parts.
"""

from eks_inference.catalog.times import Typical, phase_time
from eks_inference.placement import Placement
from eks_inference.serving.cold_start import Phase, moved, pull
from eks_inference.serving.disaggregated.servers import roles_by_pod
from eks_inference.serving.disaggregated.spec import DisaggregatedPairSpec
from eks_inference.storage.throughput import node_mib_s


def cold_start(spec: DisaggregatedPairSpec, placement: Placement) -> tuple[Phase, ...]:
    """Returns the phases in their order. Downloading and compiling end at the limits of their Jobs, whatever the store needs."""
    startup = spec.profile.startup
    return (
        Phase("a node starts", startup.node_start_s),
        pull(spec.profile, placement),
        download(spec),
        compilation(spec),
        load(spec),
    )


def download(spec: DisaggregatedPairSpec) -> Phase:
    """Returns the phase in which a Job downloads the model."""
    return _stored(spec, "a Job downloads the model", 1, spec.download_timeout_minutes * 60, phase_time("download"))


def compilation(spec: DisaggregatedPairSpec) -> Phase:
    """Returns the phase in which a Job compiles the model."""
    copies = 2 if spec.compile.save_sharded_checkpoint else 1
    return _stored(spec, "a Job compiles it", copies, spec.compile_timeout_minutes * 60)


def load(spec: DisaggregatedPairSpec) -> Phase:
    """Returns the phase in which the servers load the model, which is waited for as long as the store needs."""
    by_pod = [len(roles) for roles in roles_by_pod(spec).values()]
    # EFS has a throughput for each node, and FSx for Lustre one that all nodes share.
    copies = max(by_pod) if spec.store.file_system == "efs" else sum(by_pod)
    return _stored(spec, "the servers load it", copies, spec.profile.startup.load_s)


def _stored(spec: DisaggregatedPairSpec, what: str, copies: int, limit_s: int, rate: Typical | None = None) -> Phase:
    model = spec.model.known
    content = (model.name, copies, model.weight_bytes() / 1e9) if model else None
    return moved(what, limit_s, content, node_mib_s(spec.store), "the store", rate)
