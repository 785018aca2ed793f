"""A user's own load tests (``--measured``) come before published measurements: in times, in their range, in what is shown."""

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eks_inference.catalog.engines import engine
from eks_inference.catalog.instances import instance_type
from eks_inference.catalog.models import model
from eks_inference.catalog.speeds import count, measured, own, speeds
from eks_inference.serving.memory import MemoryUse
from eks_inference.serving.memory_settings import MemorySettings
from eks_inference.serving.split import Parallel
from eks_inference.speed import step
from eks_inference.speed.accuracy import case
from eks_inference.speed.step import StepTimes, step_times
from eks_inference_tools.fitting.pace import nearest
from eks_inference_tools.flight.bundle import KIND, SCHEMA
from eks_inference_tools.flight.evidence import load_rows
from eks_inference_tools.flight.measured import count_files
from stackgraph.problems import ProblemsFound

LOG = Path(__file__).parents[1] / "data" / "loadtest" / "20261121T133449Z-0d7df4b21e"
MEASURED = {
    "model_id": "Qwen/Qwen3-8B",
    "instance_type": "g6e.xlarge",
    "chips": 1,
    "max_concurrency": 8,
    "num_prompts": 100,
    "completed": 100,
    "failed": 0,
    "duration": 50.0,
    "request_throughput": 2.0,
    "output_throughput": 500.0,
    "total_input_tokens": 100_000,
    "total_output_tokens": 25_000,
    "mean_ttft_ms": 150.0,
    "mean_tpot_ms": 40.0,
    "mean_e2el_ms": 150 + 249 * 40.0,
}


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    yield
    count(())


def use(instance: str = "g6e.xlarge", tensor: int = 1, **settings: Any) -> MemoryUse:
    served = engine("cuda-vllm-0.30")
    found = replace(MemorySettings(), **settings)
    return MemoryUse(served.served(model("Qwen3-8B")), instance_type(instance), served, tensor, 1, 8192, found)


def times(found: MemoryUse) -> StepTimes:
    got = step_times(found)
    assert isinstance(got, StepTimes)
    return got


def file(folder: Path, **changed: Any) -> Path:
    path = folder / "result.json"
    path.write_text(json.dumps({**MEASURED, **changed}))
    return path


def test_a_place_that_was_measured_is_predicted_as_measured(tmp_path: Path):
    before, quantized = times(use()), times(use(quantized_bytes=1))
    count_files([file(tmp_path)])
    after = times(use())
    assert after.between_tokens(8, 1000, 250) == pytest.approx(0.04, rel=1e-3)
    assert after.range != before.range
    assert after.off == pytest.approx(0.04 / before.between_tokens(8, 1000, 250), rel=1e-3)
    assert nearest(use())[0].source == "result.json"
    slower = times(use(quantized_bytes=1))
    assert slower.between_tokens(8, 1000, 250) / quantized.between_tokens(8, 1000, 250) == pytest.approx(after.off)
    assert slower.range == quantized.range  # nobody measured that
    for other in (use("g6.xlarge"), use("g6e.12xlarge", 4)):
        assert times(other).off == 1.0


def test_a_batch_that_was_full_is_that_of_the_requests_in_it(tmp_path: Path):
    full = {"max_concurrency": 300, "completed": 1000, "total_input_tokens": 1_000_000, "total_output_tokens": 250_000}
    before = times(use()).between_tokens(60, 1000, 250)
    whole = 249 * before * 1e3
    first = 4 * whole  # of 300 users, 240 wait for a place
    count_files([file(tmp_path, **full, mean_tpot_ms=before * 1e3, mean_ttft_ms=first, mean_e2el_ms=first + whole)])
    assert times(use()).off == pytest.approx(1, abs=0.03)


def test_users_are_no_more_than_requests(tmp_path: Path):
    count_files([file(tmp_path, max_concurrency=10**9)])
    assert own()[0].users == MEASURED["completed"]


def test_stages_are_devices_of_a_split(tmp_path: Path):
    count_files([file(tmp_path, chips=2, instance_type="g6e.12xlarge")])
    staged = use("g6e.12xlarge", parallel=Parallel(stages=2))
    assert times(use("g6e.12xlarge", 2)).off != 1.0
    assert times(staged).off == 1.0


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"model_id": "mine/of-nobody"}, "the catalog has no model 'mine/of-nobody'"),
        ({"instance_type": "m6i.large"}, "the speed of instance type 'm6i.large' is not known"),
        ({"max_concurrency": None}, "it lacks users"),
        ({"instance_type": None, "chips": None}, "it lacks instance_type"),
    ],
)
def test_a_file_that_predicts_nothing_is_refused(tmp_path: Path, changed: dict[str, Any], why: str):
    with pytest.raises(ProblemsFound) as caught:
        count_files([file(tmp_path, **changed)])
    assert why in caught.value.problems[0].render()
    assert not own()


def test_a_bundle_of_a_first_flight_gives_rows_that_belong_to_nobody(tmp_path: Path):
    records = [json.loads((LOG / "run.json").read_text()), *map(json.loads, (LOG / "summary.jsonl").read_text().splitlines())]
    rows = load_rows("\n".join(json.dumps({"record": record["record"], **record}, separators=(",", ":")) for record in records))
    assert rows
    assert {"input_tokens", "output_tokens"} <= rows[0].keys()
    path = tmp_path / "bundle.json"
    rows = [row | {"date": "2026-11-21", "type": "inf2.8xlarge", "chips": 1} for row in rows]
    path.write_text(json.dumps({"kind": KIND, "schema": SCHEMA, "rows": rows}))
    count_files([path])
    assert {one.device for one in own()} == {"Inferentia2"}
    assert all(one.itl_ms for one in own())


@pytest.mark.thorough
def test_nine_of_ten_measurements_are_within_the_range_of_a_prediction_from_another_one():
    alike: dict[tuple[str, ...], list[float]] = defaultdict(list)
    for row in measured():
        constants, found = speeds()[row.device].constants, case(row)
        if row.itl_ms and row.load not in ("max", "all") and found.possible and not found.queues(constants):
            key = (row.source, row.model, row.device, row.engine, row.precision)
            alike[key].append(row.itl_ms / 1e3 / found.token(constants))
    pairs = [
        (other / ratio, 1 / len(ratios))
        for ratios in alike.values()
        if len(ratios) > 2
        for ratio in ratios
        for other in ratios
        if ratio is not other
    ]
    low, high = step._OWN_RANGE
    within = sum(weight for ratio, weight in pairs if low <= ratio <= high) / sum(weight for _, weight in pairs)
    assert within == pytest.approx(0.9, abs=0.01)
