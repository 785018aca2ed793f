"""Results of load tests: what every tool wrote reads as one record, which is compared only with what it can be compared with."""

import argparse
import contextlib
import inspect
import io
import itertools
import json
import random
import re
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import browser
from eks_inference_tools.cli import parser
from eks_inference_tools.commands import loadtest as command
from eks_inference_tools.loadtest_report import figures
from eks_inference_tools.loadtest_report.compared_runs import Comparison, Report, compare
from eks_inference_tools.loadtest_report.page import Mark, bars, ranges, render_html
from eks_inference_tools.loadtest_report.readers.detection import read_all
from eks_inference_tools.loadtest_report.record import METRICS, STATISTICS, Run, published
from eks_inference_tools.loadtest_report.table import render_table
from golden import assert_golden
from json_schemas import unlike
from stackgraph.domain import Curve, Plot
from stackgraph.presentation.curves import render_plot
from stackgraph.presentation.terminal import WIDTH
from stackgraph.problems import ProblemsFound

DATA = Path(__file__).parents[1] / "data" / "loadtest"
OWN = DATA / "20261121T133449Z-0d7df4b21e"
LLAMA = "NousResearch/Meta-Llama-3-8B-Instruct"

# What tests/support/openai_server.py was told when the files were made (tests/data/loadtest/README.md).
TTFT_MS, ITL_MS, TOKENS = 200, 10, 64
E2E_MS = TTFT_MS + (TOKENS - 1) * ITL_MS

REAL = (
    "aiperf-0.13.0.json",
    "aiperf-0.13.0-errors.json",
    "genai-perf-0.0.16.json",
    "vllm-0.33.0-2-users.json",
    "vllm-0.33.0-4-users.json",
    "guidellm-0.8.1.json",
)


def runs_of(*paths: Path | str) -> list[Run]:
    return [run for file in read_all([DATA / path for path in paths]) for run in file]


def the_run(path: Path | str) -> Run:
    (run,) = runs_of(path)
    return run


def document(name: str) -> Any:
    return json.loads((DATA / name).read_text())


def written(folder: Path, content: Any, name: str = "results.json") -> Path:
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def report_on(*arguments: str | Path) -> Report:
    """The report of a command line, as a document would have it."""
    options = parsed(*arguments)
    return command._report(options)


def parsed(*arguments: str | Path) -> argparse.Namespace:
    return parser(["loadtest"]).parse_args(["loadtest", "report", *map(str, arguments)])


def rendered(*arguments: str | Path) -> str:
    """What the command writes."""
    written = io.StringIO()
    with contextlib.redirect_stdout(written):
        assert command.run(parsed(*arguments)) == 0
    return written.getvalue()


def problems_of(*arguments: str | Path) -> list[str]:
    with pytest.raises(ProblemsFound) as caught:
        rendered(*arguments)
    return [problem.render() for problem in caught.value.problems]


def ratios(comparison: Comparison) -> dict[tuple[str, str], float | None]:
    return {(row.key, row.statistic): row.ratio for row in comparison.rows}


# -- what the tools wrote -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", REAL)
def test_known_latencies_come_out_of_every_tools_own_file(name: str):
    for run in runs_of(name):
        for statistic in ("mean", "p50"):
            assert run.value("ttft_ms", statistic) == pytest.approx(TTFT_MS, rel=0.03)
            assert run.value("e2e_ms", statistic) == pytest.approx(E2E_MS, rel=0.03)
        assert run.value("output_tokens", "mean") == pytest.approx(TOKENS, rel=0.01)
        assert run.value("input_tokens", "mean") == pytest.approx(128, abs=3)
        assert run.basis
        for metric, basis in run.basis.items():
            expected = E2E_MS / TOKENS if basis == "request_with_ttft" else ITL_MS
            assert run.value(metric, "mean") == pytest.approx(expected, rel=0.03), (metric, basis)


def test_the_librarys_own_test_reads_with_what_it_knew_of_the_server():
    two, four = runs_of(OWN / "summary.jsonl")
    assert [run.users for run in (two, four)] == [2, 4]
    for run in (two, four):
        assert (run.tool, run.tool_version, run.model, run.instance_type) == ("GuideLLM", "0.7.3", LLAMA, "inf2.8xlarge")
        assert run.value("ttft_ms", "p50") == pytest.approx(TTFT_MS, rel=0.1)
        assert run.value("itl_ms", "p50") == pytest.approx(ITL_MS, rel=0.01)
        assert run.chips is None, "the type of a node does not tell how many of its chips the server had"
    assert (two.completed, four.completed) == (4, 8)


def test_its_own_figures_are_those_of_the_tools_report_they_come_from():
    two, _ = runs_of(OWN / "summary.jsonl")
    report = the_run(OWN / "llama3" / "2-users" / "guidellm.json")
    for metric, spread in two.metrics.items():
        for statistic, value in spread.items():
            assert value == pytest.approx(report.value(metric, statistic)), (metric, statistic)
    for key in ("users", "asked", "completed", "output_tokens_per_s", "completed_per_min", "duration_s", "tool_version"):
        assert getattr(two, key) == pytest.approx(getattr(report, key)), key


def test_the_jobs_log_reads_like_its_files(tmp_path: Path):
    lines = (OWN / "summary.jsonl").read_text().splitlines()
    records = [*lines, json.dumps({"record": "request", "users": 2}), json.dumps(json.loads((OWN / "run.json").read_text()))]
    log = "\n".join(["llama3: 2 users, 4 requests", *records, "results: /results/x"])
    for text in (log, "\n".join(records)):
        path = written(tmp_path, text, "job.log")
        assert [replace(run, file="") for run in runs_of(path)] == [
            replace(run, file="") for run in runs_of(OWN / "summary.jsonl")
        ]


def test_results_that_vllm_appended_to_one_file(tmp_path: Path):
    both = "\n".join(json.dumps(document(f"vllm-0.33.0-{users}-users.json")) for users in (2, 4))
    assert [run.users for run in runs_of(written(tmp_path, both))] == [2, 4]


def test_failed_requests_are_counted_and_told():
    run = the_run("aiperf-0.13.0-errors.json")
    assert (run.asked, run.launched, run.completed, run.failed) == (16, 16, 11, 5)
    assert "5 of 16 requests failed" in rendered(DATA / "aiperf-0.13.0-errors.json")


def test_a_test_that_ended_early_says_so():
    (source,) = published()["inf2-llama2"].runs
    (note,) = compare([[replace(source, label="L")]], {}).notes
    assert (note.level, note.text) == ("warning", "L: 44 of 176 planned requests completed.")


def test_genai_perf_of_triton_24_07():
    run = the_run("genai-perf-24.07-form.json")
    assert (run.model, run.users, run.itl_includes_ttft) == ("opt350m", 8, False)
    assert run.completed_per_min == pytest.approx(4.03 * 60)


def without_answers(name: str) -> Any:
    """The file as the tool leaves it when no request completed."""
    found = document(name)
    if name.startswith("aiperf"):
        for key in ("request_count", "request_latency", "request_throughput", "output_token_throughput", "time_to_first_token"):
            del found[key]
        found["error_request_count"] = {"unit": "requests", "avg": 24.0}
    elif name.startswith("vllm"):
        found |= {key: 0.0 for key in found if key.endswith(("_ms", "_throughput"))} | {"completed": 0, "failed": 24}
    else:
        for benchmark in found["benchmarks"]:
            benchmark["scheduler_metrics"]["requests_made"] = {"successful": 0, "errored": 24, "incomplete": 0, "total": 24}
            for metric in benchmark["metrics"].values():
                metric["successful"] = {"mean": 0.0, "min": 0.0, "max": 0.0, "std_dev": 0.0, "percentiles": {}}
    return found


@pytest.mark.parametrize("name", ["aiperf-0.13.0.json", "vllm-0.33.0-4-users.json", "guidellm-0.8.1.json"])
def test_a_run_without_any_answer_has_no_latencies_instead_of_zeros(name: str, tmp_path: Path):
    path = written(tmp_path, without_answers(name))
    for run in runs_of(path):
        assert run.completed == 0
        assert run.failed == 24
        assert not any(run.metrics.values())
    text = rendered(path)
    assert "no request completed" in text
    assert "24" in text


@pytest.mark.parametrize(("tokens", "between", "lengths"), [(1, None, None), (2, 5, (1, 2)), (3, 2.5, (1, 3))])
def test_an_answer_of_one_token_has_no_time_between_tokens(tokens: int, between: float | None, lengths: tuple[int, int] | None):
    means = {"ttft_ms": 10, "e2e_ms": 15, "input_tokens": 1, "output_tokens": tokens}
    run = replace(the_run("genai-perf-0.0.16.json"), metrics={name: {"mean": mean} for name, mean in means.items()})
    assert (run.token_ms, run.lengths) == (between, lengths)


# -- what the sources published -------------------------------------------------------------------------------------------------


def test_published_figures_have_the_right_units():
    (llama2,) = published()["inf2-llama2"].runs
    # The document's summary says 0.109 msec; its raw results are seconds.
    assert llama2.value("itl_ms", "mean") == pytest.approx(109.89, abs=0.01)
    assert llama2.value("e2e_ms", "p99") == pytest.approx(64401.06, abs=0.01)
    assert (llama2.asked, llama2.completed) == (176, 44)
    eight = published()["gpu-opt350m"].runs[0]
    assert eight.model == "facebook/opt-350m", "the name by which Triton serves it comes second"
    assert (eight.value("ttft_ms", "p99"), eight.output_tokens_per_s, eight.completed_per_min) == (46.98, 545.56, 60 * 4.03)


@pytest.mark.parametrize("id_", published())
def test_published_figures_agree_with_each_other(id_: str):
    document = published()[id_]
    assert document.source
    assert document.measured
    assert re.fullmatch(r"20\d\d-\d\d", document.read)
    for run in document.runs:
        assert run.users
        assert run.output_tokens_per_s
        assert run.completed_per_min
        assert run.value("output_tokens", "mean") == pytest.approx(
            60 * run.output_tokens_per_s / run.completed_per_min, rel=0.006
        )
        if run.tool == "LLMPerf":
            # Tokens / end-to-end time, times what LLMPerf calls the inter-token latency: 1 where that has the first token in it.
            covered = run.metrics["request_tokens_per_s"]["p50"] * run.metrics["itl_ms"]["p50"] / 1000
            assert run.basis["itl_ms"] == "request_with_ttft"
            assert covered == pytest.approx(1, abs=0.01), "what the file says follows from its own figures"
        for metric, spread in run.metrics.items():
            in_order = [spread[key] for key in ("min", "p25", "p50", "p75", "p90", "p95", "p99", "max") if key in spread]
            assert in_order == sorted(in_order), metric


def test_a_model_finds_its_published_figures_by_any_of_its_names():
    def compared_with(model: str) -> list[str]:
        run = replace(the_run("vllm-0.33.0-2-users.json"), model=model)
        return [each.other.label for each in compare([[run]], published()).against_published]

    assert compared_with(LLAMA) == compared_with("meta-llama/Meta-Llama-3-8B-Instruct") == ["inf2-llama3"]
    assert compared_with("meta-llama/Llama-2-13b-chat-hf") == ["inf2-llama2"]
    assert compared_with("opt350m") == compared_with("facebook/opt-350m") == ["gpu-opt350m, 8 users"]
    assert compared_with("meta-llama/Llama-3.3-70B-Instruct") == compared_with("") == []
    unknown = replace(the_run("vllm-0.33.0-2-users.json"), model="meta-llama/Llama-3.3-70B-Instruct")
    (note,) = compare([[unknown]], published()).notes
    assert "no published figures for the model: meta-llama/Llama-3.3-70B-Instruct" in note.text
    assert all(id_ in note.text for id_ in published())


@pytest.mark.parametrize(("users", "nearest"), [(1, 8), (12, 8), (32, 32), (90, 64), (1000, 128)])
def test_of_a_sweep_the_nearest_number_of_users_is_compared_with(users: int, nearest: int):
    run = replace(the_run("genai-perf-24.07-form.json"), users=users)
    (comparison,) = compare([[run]], published()).against_published
    assert comparison.other.users == nearest
    assert any("concurrent users" in note.text for note in comparison.notes) == (users != nearest)


def test_the_sources_own_figures_compare_as_equal():
    (comparison,) = report_on(DATA / "genai-perf-24.07-form.json", "--chips", "1", "--instance", "g4dn.xlarge").against_published
    assert comparison.notes == ()
    assert set(ratios(comparison).values()) == {1.0}
    assert ("itl_ms", "p99") in ratios(comparison)


# -- what can be compared -------------------------------------------------------------------------------------------------------


def pair(folder: Path, *, chips: Sequence[int | None], factor: float = 2.0) -> list[str | Path]:
    """Arguments for a baseline, and prefill and decode apart with ``factor`` times its throughput."""
    baseline = {key: value for key, value in document("vllm-0.33.0-4-users.json").items() if key != "chips"}
    apart = dict(baseline)
    for key in ("output_throughput", "request_throughput"):
        apart[key] = factor * baseline[key]
    for one, number in zip((baseline, apart), chips, strict=True):
        one |= {"instance_type": "trn2.48xlarge"} | ({"chips": str(number)} if number else {})
    files = [written(folder, baseline, "baseline.json"), written(folder, apart, "apart.json")]
    return [*files, "--published", "none"]


def test_throughput_of_unlike_hardware_is_compared_by_the_chip(tmp_path: Path):
    report = report_on(*pair(tmp_path, chips=(8, 16), factor=1.5))
    (comparison,) = report.against_first
    found = ratios(comparison)
    assert found[("output_tokens_per_s_per_chip", "")] == pytest.approx(0.75)
    assert found[("completed_per_min_per_chip", "")] == pytest.approx(0.75)
    assert found[("output_tokens_per_s", "")] is found[("completed_per_min", "")] is None, "totals are no measure of each other"
    assert found[("ttft_ms", "p50")] == 1.0
    (note,) = comparison.notes
    assert (note.rule, note.level) == ("DI012", "note")
    assert "16 chips here, 8 there" in note.text


def test_throughput_of_the_same_hardware_is_compared_as_it_is(tmp_path: Path):
    (comparison,) = report_on(*pair(tmp_path, chips=(16, 16))).against_first
    assert ratios(comparison)[("output_tokens_per_s", "")] == ratios(comparison)[("output_tokens_per_s_per_chip", "")] == 2.0
    assert comparison.notes == ()


@pytest.mark.parametrize(("chips", "which"), [((None, None), "here and there"), ((8, None), "here"), ((None, 8), "there")])
def test_throughput_is_not_compared_where_the_chips_are_not_known(tmp_path: Path, chips: Sequence[int | None], which: str):
    report = report_on(*pair(tmp_path, chips=chips))
    (comparison,) = report.against_first
    found = ratios(comparison)
    assert found[("output_tokens_per_s", "")] is None
    assert ("output_tokens_per_s_per_chip", "") not in found
    assert [(note.rule, note.level) for note in comparison.notes] == [("DI012", "warning")]
    assert f"number of chips unknown {which}:" in comparison.notes[0].text
    (advice,) = (note for note in report.notes if note.rule == "DI012")
    assert advice.level == "warning"
    assert "--chips" in advice.text
    assert "A whole trn2.48xlarge has 16" in advice.text


def test_times_between_tokens_are_compared_by_what_they_count_not_by_their_name():
    def rows(here: str, there: str) -> dict[str, str]:
        (comparison,) = compare([runs_of(there)[:1], runs_of(here)[:1]], {}).against_first
        return {row.key: row.title for row in comparison.rows if row.statistic == "mean" and row.key in ("itl_ms", "tpot_ms")}

    # vLLM calls TPOT what genai-perf calls ITL.
    assert rows("vllm-0.33.0-4-users.json", "genai-perf-0.0.16.json") == {"itl_ms": "ITL ms (TPOT here)"}
    assert rows("aiperf-0.13.0.json", "vllm-0.33.0-4-users.json") == {"tpot_ms": "TPOT ms (ITL here)"}
    assert rows("guidellm-0.8.1.json", "genai-perf-0.0.16.json") == {"itl_ms": "ITL ms"}
    assert rows("vllm-0.33.0-4-users.json", "vllm-0.33.0-2-users.json") == {"itl_ms": "ITL ms", "tpot_ms": "TPOT ms"}
    # GuideLLM calls TPOT what LLMPerf calls ITL.
    (llama2,) = published()["inf2-llama2"].runs
    (comparison,) = compare([[llama2], runs_of("guidellm-0.8.1.json")[:1]], {}).against_first
    assert "ITL ms (TPOT here)" in {row.title for row in comparison.rows}


def test_a_time_with_another_meaning_is_not_compared_and_says_so():
    here = replace(the_run("genai-perf-0.0.16.json"), chips=1)
    there = replace(here, basis={"itl_ms": "request_with_ttft"})
    (note,) = compare([[there], [here]], {}).against_first[0].notes
    assert note.level == "warning"
    assert "ITL is one value per request, excluding the time to first token here" in note.text
    assert "ITL is one value per request, including the time to first token there" in note.text


def test_other_loads_other_models_and_other_hardware_are_told():
    base = replace(the_run("aiperf-0.13.0.json"), chips=1, label="base")
    other = replace(base, label="other", users=8, model="other/model", instance_type="inf2.xlarge")
    other = replace(other, metrics={**base.metrics, "input_tokens": {"mean": 512.0}})
    (comparison,) = compare([[replace(base, instance_type="trn1.2xlarge")], [other]], {}).against_first
    assert [note.text for note in comparison.notes] == [
        f"different model: other/model here, {LLAMA} there",
        "inf2.xlarge here, trn1.2xlarge there",
        "different load: 8 concurrent users here, 4 there",
        "different load: 512 input tokens per request here, 128 there",
    ]


def test_each_run_of_a_sweep_is_compared_with_the_run_of_as_many_users():
    report = report_on(OWN / "summary.jsonl", DATA / "guidellm-0.8.1.json", "--chips", "1", "--published", "none")
    assert [(each.run.users, each.other.users) for each in report.against_first] == [(2, 2), (4, 4)]


def test_runs_of_one_file_are_not_compared_with_each_other():
    assert report_on(DATA / "guidellm-0.8.1.json").against_first == ()


# -- beside what is predicted ---------------------------------------------------------------------------------------------------


def test_the_figures_of_a_shipped_stack_stand_beside_what_is_predicted(capsys: pytest.CaptureFixture[str]):
    found = report_on("--stack", "inf2-llama2")
    (beside,) = found.against_published
    assert beside.run.output_tokens_per_s == pytest.approx(166.55, abs=0.01)
    assert beside.run.value("ttft_ms", "mean") == pytest.approx(3033, abs=1)
    assert beside.run.value("e2e_ms", "mean") == pytest.approx(56133, abs=1)
    ratios = {row.key: row.ratio for row in beside.rows if row.statistic in ("mean", "")}
    assert ratios["itl_ms"] == pytest.approx(1, abs=0.2)  # of both with the time to the first token
    assert not any("Try" in note.text for note in found.notes)  # as predicted
    assert "against predictions" in render_table(found)
    assert "published and predicted" in render_html(found)


def test_a_slow_load_is_told_with_its_cause_and_a_setting():
    text = render_table(report_on("--stack", "inf2-llama3", "--published", "none"))
    told = " ".join(text.split())
    assert "the first token p50 is 12.0 times worse than predicted" in told
    assert "router: a request takes 1612 ms more before or beside its engine" in told


def test_a_server_is_predicted_on_the_accelerator_that_the_file_names(tmp_path: Path):
    of_vllm = document("vllm-0.33.0-2-users.json") | {"model_id": "facebook/opt-350m", "max_concurrency": 10**9}
    for instance, there in (("g6.xlarge", "on g6.xlarge"), ("p5.48xlarge", "on p5.48xlarge"), ("", None)):
        found = report_on(written(tmp_path, of_vllm | {"instance_type": instance}), "--stack", "gpu-opt350m")
        refused = [note.text for note in found.notes if "the stack serves no" in note.text]
        assert [there in text for text in refused if there] == [True] * bool(there), found.notes


def test_a_stack_without_such_a_server_predicts_nothing():
    for file in (DATA / "vllm-0.33.0-2-users.json", OWN / "summary.jsonl"):
        found = report_on(file, "--stack", "gpu-opt350m")
        assert any(note.text.endswith(f"the stack serves no {found.runs[0].model}") for note in found.notes), found.notes
    for arguments in ((), ("--stack", "smoke-gpu")):
        with pytest.raises(ProblemsFound):
            report_on(*arguments)


# -- the command ----------------------------------------------------------------------------------------------------------------


def test_chips_instances_and_labels_are_for_all_files_or_one_for_each():
    files = (DATA / "aiperf-0.13.0.json", DATA / "genai-perf-0.0.16.json")
    of_all = report_on(*files, "--chips", "4", "--instance", "inf2.48xlarge").runs
    assert [(run.chips, run.instance_type) for run in of_all] == [(4, "inf2.48xlarge")] * 2
    single = report_on(*files, *("--chips", "4", "--chips", "8", "--label", "one", "--label", "two")).runs
    assert [(run.chips, run.label) for run in single] == [(4, "one"), (8, "two")]


def test_what_is_given_wins_over_what_the_file_tells():
    assert the_run("vllm-0.33.0-4-users.json").chips == 1
    (run,) = report_on(DATA / "vllm-0.33.0-4-users.json", "--chips", "3").runs
    assert (run.chips, run.instance_type) == (3, "inf2.8xlarge")
    assert run.output_tokens_per_s
    assert run.output_tokens_per_s_per_chip == pytest.approx(run.output_tokens_per_s / 3)


@pytest.mark.parametrize(
    ("paths", "labels"),
    [
        (["a/x.json", "a/y.json"], ["x", "y"]),
        (["di/x.json", "baseline/x.json"], ["di", "baseline"]),
        (["di/run/x.json", "baseline/run/x.json", "y.json"], ["di", "baseline", "y"]),
        (["x/x.json", "y/x.json", "z/y.json"], ["x/x.json", "y/x.json", "z/y.json"]),
    ],
)
def test_files_are_called_by_what_tells_them_apart(paths: list[str], labels: list[str]):
    assert command._labels([Path(path) for path in paths], []) == labels


def test_runs_of_one_file_are_told_apart(tmp_path: Path):
    records = [json.loads(line) for line in (OWN / "summary.jsonl").read_text().splitlines()]
    summaries = [record | {"server": server} for server in ("a", "b") for record in (*records, records[0])]
    path = written(tmp_path, "\n".join(map(json.dumps, summaries)), "s.jsonl")
    labels = [run.label for run in report_on(path).runs]
    assert labels[:3] == ["s, a, 2 users, run 1", "s, a, 4 users, run 2", "s, a, 2 users, run 3"]
    assert len(set(labels)) == 6
    assert [run.label for run in report_on(OWN / "summary.jsonl", "--label", "L").runs] == ["L, 2 users", "L, 4 users"]


def test_published_figures_can_be_chosen_or_left_out():
    file = DATA / "aiperf-0.13.0.json"
    assert report_on(file, "--published", "none").against_published == ()
    (comparison,) = report_on(file, "--published", "inf2-llama2").against_published
    assert comparison.other.label == "inf2-llama2"
    assert any(note.text.startswith("different model:") for note in comparison.notes)


@pytest.mark.parametrize("chips", ["0", "-1", "four", "1.5"])
def test_no_number_of_chips_is_refused(chips: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        parsed(DATA / "aiperf-0.13.0.json", f"--chips={chips}")
    assert f"given: {chips}\n    allowed: a whole number of chips, at least 1" in capsys.readouterr().err


# -- what cannot be read --------------------------------------------------------------------------------------------------------


def test_everything_that_is_wrong_is_told_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    half = document("vllm-0.33.0-4-users.json")
    del half["request_throughput"]
    half |= {"output_throughput": None, "mean_e2el_ms": "fast"}
    unit = document("aiperf-0.13.0.json")
    unit["time_to_first_token"]["unit"] = "weeks"
    of_later = document("aiperf-0.13.0.json") | {"schema_version": "2.0"}
    report = document("guidellm-0.8.1.json")
    report["metadata"]["version"] = 3
    summary = json.loads((OWN / "summary.jsonl").read_text().splitlines()[0])
    contents = {
        "cut-off.json": '{"version": "2023-08-31",\n "name": ',
        "page.json": "<html>not found</html>",
        "lines.jsonl": json.dumps(document("vllm-0.33.0-2-users.json")) + "\n{oops}\n",
        "other.json": {f"key{number}": number for number in range(12)},
        "number.json": "3",
        "responses.json": [{"error_code": None, "ttft_s": 0.2}],
        "profile_export.json": {"experiments": [], "version": "1"},
        "half.json": half,
        "llmperf_summary.json": {"num_concurrent_requests": 4, "results_ttft_s_mean": 0.2},
        "unit.json": unit,
        "later.json": of_later,
        "report.json": report,
        "summary.jsonl": json.dumps(summary | {"schema": 2}),
        "short.json": {"model_id": "m", "output_throughput": None, "completed": 4},
        "empty.json": "",
    }
    paths = [written(tmp_path, content, name) for name, content in contents.items()]
    binary = tmp_path / "binary.json"
    binary.write_bytes(b"\xff\xfe\x00")
    (tmp_path / "folder").mkdir()
    names = [path.name for path in (*paths, binary)]
    found = problems_of(*names, "folder", "absent.json", "--chips=1", "--chips=2", "--published=inf2")
    assert_golden("loadtest/report-errors.txt", "\n".join(found))


def test_a_file_given_twice_is_refused():
    (problem,) = problems_of(DATA / "aiperf-0.13.0.json", DATA / ".." / "loadtest" / "aiperf-0.13.0.json")
    assert problem.startswith("a file is given twice")


def changed(value: Any, chance: random.Random, other: Any) -> Any:
    """The JSON value with one thing somewhere in it replaced."""
    if isinstance(value, dict) and value and chance.random() < 0.9:
        key = chance.choice(sorted(value))
        return {**value, key: changed(value[key], chance, other)}
    if isinstance(value, list) and value and chance.random() < 0.9:
        place = chance.randrange(len(value))
        return [*value[:place], changed(value[place], chance, other), *value[place + 1 :]]
    return other


ODD = st.sampled_from([None, "", "x", "3", [], {}, [1], {"mean": "x"}, True, -1, 0, 1e308, float("nan"), float("inf")])


@pytest.mark.thorough
@pytest.mark.parametrize("name", [*REAL, "genai-perf-24.07-form.json"])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.randoms(use_true_random=False), st.lists(ODD, min_size=1, max_size=3))
def test_no_file_breaks_the_report(name: str, tmp_path: Path, chance: random.Random, others: list[Any]):
    found = document(name)
    for other in others:
        found = changed(found, chance, other)
    path = written(tmp_path, found)
    try:
        text = rendered(path, DATA / "vllm-0.33.0-2-users.json")
    except ProblemsFound as error:
        refused = {problem.file for problem in error.problems}
    else:
        refused = set()
        assert max(map(len, text.splitlines())) <= WIDTH
        json.loads(rendered(path, "--format", "json"), parse_constant=pytest.fail)
        rendered(path, DATA / "vllm-0.33.0-2-users.json", "--format", "html")
    assert refused <= {str(path)}


# -- table, JSON ----------------------------------------------------------------------------------------------------------------

SHOWN = ("genai-perf-0.0.16.json", "aiperf-0.13.0.json", "vllm-0.33.0-4-users.json", "guidellm-0.8.1.json")
TOLD = tuple(f"--chips={number}" for number in (1, 2, 1, 1))


def test_a_figure_has_as_many_digits_as_tell_something():
    told = {None: "–", 0: "0", 9.9994: "9.999", 10: "10.00", 99.5: "99.50", 100: "100.0", 999.5: "999.5", 1000: "1000"}
    assert {value: figures.figure(value) for value in told} == told
    compared = {None: "–", 0.0994: "x 0.0994", 0.1: "x 0.10", 9.95: "x 9.95", 10: "x 10.0", 99.5: "x 99.5", 100: "x 100"}
    assert {value: figures.ratio(value) for value in compared} == compared


def test_the_report_reads(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(DATA)
    assert_golden("loadtest/report.txt", rendered(*SHOWN, *TOLD))


def test_the_document_stays_as_it_is(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(DATA)
    assert_golden("loadtest/report.json", rendered(*SHOWN[:2], "--published", "none", "--format", "json"))


def test_the_json_document_has_every_key_in_every_run():
    found = json.loads(rendered(*(DATA / name for name in REAL), OWN / "summary.jsonl", "--format", "json"))
    assert not unlike("loadtest report", found)
    assert found["schema"] == 1
    shapes = {json.dumps(shape(run)) for run in found["runs"]}
    assert len(shapes) == 1
    (run, *_) = found["runs"]
    assert set(run["metrics"]) == set(METRICS)
    assert set(run["metrics"]["ttft_ms"]) == set(STATISTICS)
    assert run["itl_includes_ttft"] is False


def shape(value: Any) -> Any:
    return {key: shape(item) for key, item in value.items()} if isinstance(value, dict) else None


@pytest.mark.thorough
@given(st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=200), st.integers(1, 10**7))
@example("x" * 200, 10**7)
def test_no_line_of_the_table_is_too_long(label: str, chips: int):
    runs = [replace(run, label=label, chips=chips, model=label[:90]) for run in runs_of("guidellm-0.8.1.json")]
    lines = render_table(compare([runs], published(), any_model=True)).splitlines()
    # A word of its own is not broken: it could not be copied.
    assert [line for line in lines if len(line) > WIDTH and label not in line and label[:90] not in line] == []


# -- page -----------------------------------------------------------------------------------------------------------------------


def page(*arguments: str | Path) -> str:
    return rendered(*(arguments or (*(DATA / name for name in SHOWN), *TOLD)), "--format", "html")


class Elements(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in ("meta", "link"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.found if name == tag]


def test_the_page_is_whole_and_needs_nothing_else():
    text = page()
    elements = Elements(text)
    assert elements.open == []
    assert not elements.of("script")
    for _, attributes in elements.found:
        assert not {"src", "style", "onclick", "onload"} & set(attributes)
        assert (attributes.get("href") or "#").startswith(("#", "data:,"))
    ids = Counter(attributes["id"] for _, attributes in elements.found if "id" in attributes)
    assert set(ids.values()) == {1}
    links = [attributes["href"] or "" for attributes in elements.of("a")]
    assert all(link.removeprefix("#") in ids for link in links)
    (style,) = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    (policy,) = (a["content"] or "" for a in elements.of("meta") if a.get("http-equiv") == "Content-Security-Policy")
    assert f"'sha256-{b64encode(sha256(style.encode()).digest()).decode()}'" in policy
    assert policy.startswith("default-src 'none'")
    assert text == page()


def test_every_plot_says_in_words_what_it_shows():
    text = page()
    elements = Elements(text)
    plots_ = elements.of("svg")
    assert len(plots_) >= 5
    for attributes in plots_:
        assert attributes["role"] == "img"
        for id_ in (attributes["aria-labelledby"] or "").split():
            assert re.search(rf'<(?:title|desc) id="{id_}">[^<]+</', text), id_
    assert "genai-perf-0.0.16: median 200.7" in text


def test_colours_of_plots_are_those_of_the_palette():
    folder = Path(inspect.getfile(render_html)).parent
    used = set(re.findall(r"var\((--[a-z-]+)\)", (folder / "assets" / "report.css").read_text()))
    palette = (folder.parents[1] / "stackgraph" / "presentation" / "assets" / "base.css").read_text()
    assert used - {"--mark"} == {name for name in used if f"  {name}: #" in palette}


def test_a_text_of_a_file_is_never_markup(tmp_path: Path):
    bad = "</title><script>alert(1)</script>\x00&\"'"
    found = document("vllm-0.33.0-4-users.json") | {"model_id": bad, "instance_type": bad}
    text = page(written(tmp_path, found), f"--label={bad}")
    assert "<script" not in text
    assert "\x00" not in text
    assert not Elements(text).of("script")


def test_a_text_of_a_file_cannot_steer_a_terminal(tmp_path: Path):
    found = document("vllm-0.33.0-4-users.json") | {"model_id": "a\x1b[2Jb", "instance_type": "c\r\nd"}
    text = rendered(written(tmp_path, found))
    assert "\x1b" not in text
    assert "a [2Jb, c d" in text
    (problem,) = problems_of(written(tmp_path, {"\x1b[2J": 1}))
    assert "\x1b" not in problem


def test_plots_stay_as_they_are():
    marks = [
        Mark("all of it", "run", dict(zip(STATISTICS, (12, 9, 11, 14, 18, 20, 25, 5, 30, 3), strict=True))),
        Mark("a name that is far too long to stand beside a plot", "run", {"mean": 12.0}, " (gaps)"),
        Mark("published", "published", {"mean": 20.0, "p90": 24.0, "min": 11.0, "max": 28.0}),
    ]
    series = [Curve("one", [(8, 500.0), (16, 900.0)]), Curve("two", [(8, 520.0), (128, 910.0)], "published")]
    drawn = [
        ranges("a", "Ranges", marks),
        bars("b", "Bars", [("x", "run", 3.0), ("y", "published", 0.0)]),
        render_plot("c", Plot("Curves", "concurrent users", series, doubles=True)),
    ]
    assert_golden("loadtest/report-plots.svg", "\n\n".join(str(each).replace("><", ">\n<") for each in drawn))


@given(st.lists(st.floats(0, 1e9), min_size=1, max_size=15))
@example([0.0] * 15)
def test_every_figure_stands_inside_its_plot(values: list[float]):
    drawn = [
        ranges("a", "A", [Mark("x", "run", {"mean": value, "min": value / 2, "max": value}) for value in values]),
        bars("b", "B", [("x", "run", value) for value in values]),
        *(
            render_plot("c", Plot("C", "users", [Curve("x", [(2**place, value)]) for place, value in enumerate(values)], doubles))
            for doubles in (False, True)
        ),
    ]
    ends = sorted(float(place) for place in re.findall(r'class="end" x="[^"]+" y="([^"]+)"', drawn[-1]))
    assert all(below - above > 14 for above, below in itertools.pairwise(ends)), "names of curves stand on each other"
    for each in drawn:
        width, height = map(float, re.findall(r'viewBox="0 0 (\S+) (\S+)"', each)[0])
        for name, most in (
            ("x", width),
            ("x1", width),
            ("x2", width),
            ("cx", width),
            ("cy", height),
            ("y", height),
            ("y1", height),
        ):
            places = [float(place) for place in re.findall(rf' {name}="([^"]+)"', each)]
            assert all(0 <= place <= most for place in places), name
        assert all(float(size) >= 0 for size in re.findall(r' (?:width|height)="([^"]+)"', each))


@pytest.mark.skipif(not browser.chromium(), reason="chromium is not on PATH")
def test_a_browser_shows_the_page_without_fault_and_without_a_network(tmp_path: Path):
    path = written(tmp_path, page(), "report.html")
    with browser.page() as tab:
        for width, dark in ((1280, False), (1280, True), (390, False)):
            tab.show(width=width, dark=dark)
            tab.open(path.as_uri())
            assert tab.run("document.documentElement.scrollWidth") <= width
            backgrounds = "new Set([...document.querySelectorAll('.plot .bar')].map(b => getComputedStyle(b).fill)).size"
            assert tab.run(backgrounds) == 2, "runs and published figures differ in colour"
        assert tab.errors == []
        assert set(tab.requests) == {path.as_uri()}


def test_the_page_plots_what_more_users_do():
    def titles(*arguments: str | Path) -> str:
        return " ".join(re.findall(r"<figure><h3>([^<]+)</h3>", page(*arguments)))

    sweep = DATA / "guidellm-0.8.1.json"
    assert "per second and chip Time to first token, ms, p50" in titles(sweep, "--chips", "1")
    assert "Time to first token, ms, p50" not in titles(DATA / "aiperf-0.13.0.json")
    both = (DATA / "vllm-0.33.0-2-users.json", DATA / "vllm-0.33.0-4-users.json")
    assert "Time to first token, ms, p50" in titles(*both), "files of one tool on the same hardware are a series"
    assert "Time to first token, ms, p50" not in titles(*both, "--chips", "1", "--chips", "2")


@pytest.mark.parametrize("render", [render_table, render_html])
def test_a_run_of_which_nothing_is_known_renders(render: Callable[[Report], str]):
    assert "nothing" in render(compare([[Run(tool="LLMPerf", label="nothing")]], published(), any_model=True))
