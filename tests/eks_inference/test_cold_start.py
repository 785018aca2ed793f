"""What a cold start writes, how long it is waited for, and what the pages of the stacks say about it."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import yaml

from eks_inference.catalog.engines import engine
from eks_inference.catalog.models import model
from eks_inference.serving.cold_start import MARGIN, ColdStart, Phase, cold_start
from eks_inference.serving.deployment import cold_start_seconds, startup_timeout_seconds
from eks_inference.serving.disaggregated import pair_processes as disaggregated
from eks_inference.serving.disaggregated.facts import DisaggregatedFacts
from eks_inference.serving.disaggregated.pair_pods import startup_seconds
from eks_inference.serving.disaggregated.spec import DisaggregatedPairSpec
from eks_inference.serving.facts import ServingFacts
from eks_inference.serving.ray_serve import plan as ray
from eks_inference.serving.rules.every_server import startup_is_waited_for
from eks_inference.serving.vllm.facts import serving_facts
from eks_inference.serving.vllm.spec import VllmServerSpec
from eks_inference.stack.facts import stack_facts
from eks_inference.stack.spec import StackSpec
from golden import GOLDEN, assert_golden
from handles import placement
from servers import spec_of, workers_on

ROOT = GOLDEN.parents[1]
PROFILE = engine("neuron-2.28-vllm-0.13")
SLOW = replace(placement("inf2.48xlarge"), disk_mib_s=125)
LLAMA = {"model": {"id": "NousResearch/Llama-2-13b-chat-hf"}, "max_num_seqs": 24, "max_model_len": 4096}


def cold(**changes: Any) -> ColdStart:
    """A cold start of three pods of Llama-2-13B on a node whose disk is as fast as EC2 makes it, with changes."""
    return replace(ColdStart(PROFILE, model("Llama-2-13B"), SLOW, devices=4), **changes)


def written(start: ColdStart) -> dict[str, Phase]:
    return {phase.what: phase for phase in start.phases if phase.disk_s is not None}


def test_every_pod_of_a_node_writes_the_model_and_all_together_one_image():
    """19 GB, and 3 x 26.03 GB, at 125 MiB/s = 131.072 MB/s."""
    image, download = written(cold()).values()
    assert (image.disk_s, download.disk_s) == (145, 596)
    assert download.working == "Llama-2-13B: 3 x 26.0 GB / 125 MiB/s"


def test_a_slow_disk_is_waited_for_longer():
    startup = cold().startup
    assert startup.download_s == MARGIN * 596 > PROFILE.startup.download_s
    assert startup.image_pull_s == PROFILE.startup.image_pull_s > MARGIN * 145
    assert cold(placement=replace(SLOW, disk_mib_s=600)).startup == PROFILE.startup


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"placement": replace(SLOW, disk_mib_s=None)}, "speed of the local disks unknown"),
        ({"model": None, "engine": engine("neuron-2.32-vllm-0.24")}, "size unknown"),
    ],
)
def test_what_is_unknown_raises_no_limit_and_is_said(changes: dict[str, Any], why: str):
    start = cold(**changes)
    assert start.startup == start.engine.startup
    assert written(start) == {}
    assert [phase.working.partition(";")[0] for phase in start.phases if phase.working] == [why, why]


def test_the_limits_reach_probes_and_deadlines():
    spec = VllmServerSpec.model_validate(
        {**LLAMA, "kind": "vllm", "engine": PROFILE.name, "pool": "p", "tensor_parallel": 8, "devices": 4}
    )
    raised = MARGIN * 596 - PROFILE.startup.download_s
    assert startup_timeout_seconds(spec, SLOW) == PROFILE.startup.engine_s + raised
    assert cold_start_seconds(spec, SLOW) == cold_start_seconds(spec, placement("inf2.48xlarge")) + raised


LARGE = {"model": {"id": "unsloth/Llama-3.3-70B-Instruct"}, "max_num_seqs": 4, "max_model_len": 8192, "tensor_parallel": 8}
VOLUME = {"kind": "volume", "claim": "weights", "id": "unsloth/Llama-3.3-70B-Instruct"}


def large(**changes: Any) -> VllmServerSpec:
    return VllmServerSpec.model_validate(
        {**LARGE, "kind": "vllm", "engine": "cuda-vllm-0.30", "pool": "p", "devices": 8, **changes}
    )


@pytest.mark.parametrize("changes", [{}, {"store": {}}, {"shared_store": "s"}])
def test_the_first_pod_downloads_wherever_the_model_is_kept(changes: dict[str, Any]):
    """141.1 GB at 19.3 s each, the slowest seen."""
    start = cold_start(large(**changes), placement("g6e.48xlarge"), devices=8).startup
    assert start.download_s == 2724


def test_a_streamed_model_is_waited_for_and_written_to_no_disk():
    streamed = large(model={"kind": "s3", "uri": "s3://models/llama", "id": LARGE["model"]["id"], "streamed": True})
    start = cold_start(streamed, replace(placement("g6e.48xlarge"), disk_mib_s=125), devices=8)
    assert start.startup.download_s == 2724, "and not three times the 1077 s of the disk"
    (stream,) = [phase for phase in start.phases if "stream" in phase.what]
    assert (stream.limit_s, stream.disk_s) == (2724, None)


def test_a_store_is_read_by_every_pod_of_a_node():
    """Four pods of two GPUs read 141.1 GB each, at the 1500 MiB/s of EFS."""
    spec = large(store={}, tensor_parallel=2, devices=2)
    assert cold_start(spec, placement("p5en.48xlarge"), devices=2).startup.load_s == MARGIN * 359


@pytest.mark.parametrize(("given", "judged"), [({}, False), ({"startup_timeout_seconds": 7200}, True)])
def test_how_long_a_volume_is_read_nobody_knows(given: dict[str, Any], judged: bool):
    facts = serving_facts(large(model=VOLUME, **given), placement("g6e.48xlarge"), scheduler=False)
    found = [*startup_is_waited_for.judge(facts)]
    assert [not judgement.unjudged and judgement.holds for judgement in found] == [judged]


def test_replicas_on_ray_wait_as_long():
    slow = replace(workers_on("inf2.8xlarge"), disk_mib_s=20)
    limit = int(ray.environment(spec_of(), slow)["STARTUP_TIMEOUT_S"])
    assert limit == ray.startup(spec_of(), slow).engine_s > PROFILE.startup.engine_s
    assert int(ray.environment(spec_of(startup_timeout_seconds=99), slow)["STARTUP_TIMEOUT_S"]) == 99


def parts_of(stack: str) -> list[Any]:
    """The facts of a shipped stack."""
    config = yaml.safe_load((ROOT / "stacks" / f"Pulumi.{stack}.yaml").read_text("utf-8"))["config"]
    return list(stack_facts(StackSpec.model_validate(config["eks-inference:stack"]), config["aws:region"]))


def first_server(stack: str) -> tuple[str, Sequence[Phase]]:
    server = next(one for one in parts_of(stack) if isinstance(one, ServingFacts))
    return str(server.path[-1]), server.cold_start.phases


def first_pair(stack: str) -> tuple[str, Sequence[Phase]]:
    pair = next(one for one in parts_of(stack) if isinstance(one, DisaggregatedFacts))
    return str(pair.path[-1]), disaggregated.cold_start(pair.spec, pair.placement)


@pytest.mark.parametrize(
    ("stack", "timed"),
    [
        *((one, first_server) for one in ("gpu-nixl", "gpu-opt350m", "inf2-llama2", "inf2-llama3", "trn2-nixl")),
        ("trn2-di", first_pair),
    ],
)
def test_the_page_of_a_stack_says_how_long_the_first_answer_takes(
    stack: str, timed: Callable[[str], tuple[str, Sequence[Phase]]]
):
    """``UPDATE_GOLDEN=1`` writes it."""
    path = ROOT / "docs" / "stacks" / f"{stack}.md"
    before, begin, rest = path.read_text("utf-8").partition("<!-- first answer -->\n")
    _, end, after = rest.partition("<!-- /first answer -->")
    assert "" not in (begin, end), f"{path.name} has no place for it"
    table = _table(*timed(stack))
    assert_golden(f"../../docs/stacks/{stack}.md", before + begin + table + end + after)
    assert re.search(r"^\| together \| (\d+ s)? \| \d+ s \|", table, re.MULTILINE)


def _table(name: str, phases: Sequence[Phase]) -> str:
    disk, limit = sum(phase.disk_s or 0 for phase in phases), sum(phase.limit_s for phase in phases)
    rows = [*phases, Phase("together", limit, disk or None)]
    return "\n".join(
        [
            f"How long `{name}` takes from the start of a node to its first answer:",
            "",
            "| phase | disk or store alone need | waited for | arithmetic |",
            "|---|---|---|---|",
            *(f"| {row.what} | {f'{row.disk_s} s' if row.disk_s else ''} | {row.limit_s} s | {row.working} |" for row in rows),
            "",
            "Registry, Hub, compiler and devices have no promised speed: the time lies between the two columns.",
            "`preview` tells the [typical time](../timeline.md) from the beginning of `pulumi up`.",
            "",
        ]
    )


def pair(**changes: Any) -> DisaggregatedPairSpec:
    return DisaggregatedPairSpec.model_validate(
        {"kind": "disaggregated", "model": {"id": "unsloth/Llama-3.3-70B-Instruct"}, "pool": "p", "instances": 1, **changes}
    )


LUSTRE = {"kind": "fsx_lustre", "size_gib": 2400}


@pytest.mark.parametrize(
    ("changes", "seconds"),
    [
        ({}, [90, 180, 180]),
        ({"instances": 2}, [90, 180, 90]),
        ({"instances": 2, "compile": {"save_sharded_checkpoint": False}}, [90, 90, 90]),
        ({"instances": 2, "store": LUSTRE}, [242, 483, 483]),
        ({"serving": "baseline", "store": LUSTRE}, [242, 483, 242]),
        ({"store": {**LUSTRE, "deployment": "scratch"}}, [302, 603, 603]),
    ],
)
def test_the_store_of_a_pair_bounds_its_start(changes: dict[str, Any], seconds: list[int]):
    """141.1 GB; EFS gives each node 1500 MiB/s, and 2400 GiB of FSx for Lustre give all nodes 558 MiB/s, or 447."""
    steps = (disaggregated.download, disaggregated.compilation, disaggregated.load)
    assert [step(pair(**changes)).disk_s for step in steps] == seconds


def test_servers_with_a_slow_store_may_start_longer():
    fast, slow = pair(), pair(store={"kind": "fsx_lustre", "throughput_mb_per_tib": 125})
    needed = MARGIN * (disaggregated.load(slow).disk_s or 0)
    assert startup_seconds(slow) - startup_seconds(fast) == needed - fast.profile.startup.load_s > 0
