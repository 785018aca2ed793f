"""Runs a load test inside its pod: waits until the models answer, has GuideLLM measure, keeps what it found.

    load_test.py wait CONFIG            exit 0 once every server has answered a question, 1 when the budget is spent
    load_test.py run CONFIG RESULTS     one folder under RESULTS; exit 1 when a measurement has no completed request

CONFIG is the JSON that eks_inference.loadtest.plan writes. RESULTS gets, for each run:

    <UTC time>-<digest>/run.json                     what was tested, with what, when; "finished" once it is over
    <UTC time>-<digest>/summary.jsonl                one line a measurement
    <UTC time>-<digest>/<server>/<n>-users/
        scenario.json  guidellm.json  guidellm.log   what the tool was told, its own report, what it printed
        requests.jsonl                               one line a request

All lines of run.json, summary.jsonl and requests.jsonl also go to standard output, as JSON objects with a key "record" (run,
summary or request). No other line of the output begins with a brace. Times of day are seconds since 1970, latencies are in
milliseconds; the inter-token latency leaves the first token out. Standard library only: it runs in the tool's image.
"""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SCHEMA = 1
GRACE_SECONDS = 900  # the tool's own start, its prompts, the answers under way when the time is over, and its report
POLL_SECONDS = 5
ANSWER_SECONDS = 600  # of the first answer: engines may compile for it
QUESTIONS: dict[str, tuple[str, dict[str, Any], str]] = {
    "chat": ("/chat/completions", {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 1}, "choices"),
    "complete": ("/completions", {"prompt": "Hello", "max_tokens": 1}, "choices"),
    "embed": ("/embeddings", {"input": "Hello"}, "data"),
}
PERCENTILES = ("p50", "p90", "p95", "p99")


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["wait"] and len(arguments) == 2:
        return wait(json.loads(Path(arguments[1]).read_text()))
    if arguments[:1] == ["run"] and len(arguments) == 3:
        return run(json.loads(Path(arguments[1]).read_text()), Path(arguments[2]))
    print("usage: load_test.py wait CONFIG | run CONFIG RESULTS", file=sys.stderr)
    return 2


# -- waiting --------------------------------------------------------------------------------------------------------------------


def wait(config: dict[str, Any]) -> int:
    """Until every server has answered. One budget for all of them, as they start at the same time."""
    deadline = time.monotonic() + config["ready_timeout_seconds"]
    for name, server in config["servers"].items():
        trouble = None
        while (now := why_not_ready(server)) is not None:
            if now != trouble:
                print(f"{name}: not yet: {now}", flush=True)
                trouble = now
            if time.monotonic() + POLL_SECONDS > deadline:
                print(f"{name}: not ready within {config['ready_timeout_seconds']} s: {now}", file=sys.stderr, flush=True)
                return 1
            time.sleep(POLL_SECONDS)
        print(f"{name}: ready", flush=True)
    return 0


def why_not_ready(server: dict[str, Any]) -> str | None:
    """None when the server lists the model and answers a question, which its first user would otherwise wait for."""
    try:
        models = [model["id"] for model in ask(f"{server['endpoint']}/models")["data"]]
        if server["model"] not in models:
            return f"it has no model {server['model']}, but {', '.join(models) or 'none'}"
        path, question, answer = QUESTIONS[server.get("task", "chat")]
        if not ask(server["endpoint"] + path, {"model": server["model"], **question}).get(answer):
            return f"its answer has no {answer}"
    except urllib.error.HTTPError as error:
        return f"HTTP {error.code}"
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return f"{type(error).__name__}: {error}"
    return None


def ask(url: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    headers = {"Content-Type": "application/json"}
    if key := os.environ.get("OPENAI_API_KEY"):
        headers["Authorization"] = f"Bearer {key}"
    request = urllib.request.Request(url, json.dumps(body).encode() if body else None, headers)
    with urllib.request.urlopen(request, timeout=ANSWER_SECONDS if body else 10) as answer:
        return json.load(answer)


# -- running --------------------------------------------------------------------------------------------------------------------


def run(config: dict[str, Any], results: Path) -> int:
    """All measurements, one after another. One that fails does not keep the next from running."""
    started = time.time()
    folder = results / f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime(started))}-{config['digest']}"
    folder.mkdir(parents=True)
    about = {
        "record": "run",
        "schema": SCHEMA,
        "id": folder.name,
        "started": started,
        **{key: value for key, value in config.items() if key != "measurements"},
        "node": os.environ.get("NODE_NAME"),
    }
    save(folder / "run.json", about)
    failed = []
    for measurement in config["measurements"]:
        server, users = measurement["server"], measurement["users"]
        print(f"{server}: {users} users, {measurement['requests']} requests", flush=True)
        report = measure(measurement, folder / server / f"{users}-users")
        summary = {"record": "summary", "schema": SCHEMA, "run": folder.name, "server": server, **summarise(report, measurement)}
        requests = [
            {"record": "request", "run": folder.name, "server": server, "users": users, **request}
            for request in requests_of(report)
        ]
        append(folder / "summary.jsonl", [summary])
        append(folder / server / f"{users}-users" / "requests.jsonl", requests)
        if not summary["completed"]:
            failed.append(f"{server} with {users} users")
    about["finished"] = time.time()
    about["failed"] = failed
    save(folder / "run.json", about)
    print(json.dumps(about), flush=True)
    print(f"results: {folder}" + (f"; no completed request: {', '.join(failed)}" if failed else ""), flush=True)
    return 1 if failed else 0


def measure(measurement: dict[str, Any], folder: Path) -> dict[str, Any] | None:
    """One run of GuideLLM; its report of the one benchmark, or None when it made none."""
    folder.mkdir(parents=True)
    save(folder / "scenario.json", measurement["scenario"])
    report = folder / "guidellm.json"
    command = [
        str(Path(sys.executable).with_name("guidellm")),
        *("run", "--config", str(folder / "scenario.json"), "--output", f"kind=json,path={report}"),
        "--disable-console-interactive",
    ]
    environment = dict(os.environ)
    if key := environment.pop("OPENAI_API_KEY", None):
        environment["GUIDELLM__SPEC__BACKEND__API_KEY"] = key
    with (folder / "guidellm.log").open("w") as log:
        limit = measurement["timeout_seconds"] + GRACE_SECONDS
        # A session of its own: the tool's workers end with it.
        tool = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            ended = f"exit code {tool.wait(limit)}"
        except subprocess.TimeoutExpired:
            os.killpg(tool.pid, signal.SIGKILL)
            tool.wait()
            ended = f"not over after {limit} s, killed"
    if not report.exists():
        print(f"GuideLLM made no report ({ended}):", flush=True)
        for line in (folder / "guidellm.log").read_text(errors="replace").splitlines()[-40:]:
            print(f"| {line}", flush=True)
        return None
    benchmarks = json.loads(report.read_text())["benchmarks"]
    return benchmarks[0] if benchmarks else None


def summarise(report: dict[str, Any] | None, measurement: dict[str, Any]) -> dict[str, Any]:
    """The measurement in figures, by the tool's own statistics of its completed requests."""
    summary: dict[str, Any] = {"users": measurement["users"], "requests": measurement["requests"]}
    if report is None:
        return {**summary, "completed": 0, "incomplete": 0, "failed": 0}
    made, metrics = report["scheduler_metrics"]["requests_made"], report["metrics"]
    counts = {"completed": made["successful"], "incomplete": made["incomplete"], "failed": made["errored"]}
    if not counts["completed"]:
        return {**summary, **counts}
    duration = report["end_time"] - report["start_time"]
    tokens = {name: metrics[key]["successful"] for name, key in {"in": "prompt_token_count", "out": "output_token_count"}.items()}
    found = {
        **summary,
        **counts,
        "started": report["start_time"],
        "duration_s": duration,
        "input_tokens": distribution(tokens["in"]),
        "e2e_ms": distribution(metrics["request_latency"]["successful"], 1000),
        "requests_per_s": counts["completed"] / duration,
    }
    if not tokens["out"]["total_sum"]:  # embeddings
        return found
    return {
        **found,
        "output_tokens": distribution(tokens["out"]),
        "ttft_ms": distribution(metrics["time_to_first_token_ms"]["successful"]),
        "itl_ms": distribution(metrics["inter_token_latency_ms"]["successful"]),
        "output_tokens_per_s": tokens["out"]["total_sum"] / duration,
    }


def distribution(figures: dict[str, Any], factor: float = 1) -> dict[str, float]:
    values = {"mean": figures["mean"], "stddev": figures["std_dev"], "min": figures["min"], "max": figures["max"]}
    values |= {name: figures["percentiles"][name] for name in PERCENTILES}
    return {name: value * factor for name, value in values.items()}


def requests_of(report: dict[str, Any] | None) -> Iterator[dict[str, Any]]:
    """Each request in the order they were sent, without its texts."""
    if report is None:
        return
    outcomes = {"completed": "successful", "incomplete": "incomplete", "failed": "errored"}
    every = [(outcome, one) for outcome, key in outcomes.items() for one in report["requests"][key]]
    for outcome, one in sorted(every, key=lambda pair: pair[1]["request_start_time"] or 0):
        latency = one["request_latency"]
        yield {
            "outcome": outcome,
            "started": one["request_start_time"],
            "input_tokens": one["prompt_tokens"],
            "output_tokens": one["output_tokens"],
            "ttft_ms": one["time_to_first_token_ms"],
            "itl_ms": one["inter_token_latency_ms"],
            "e2e_ms": None if latency is None else 1000 * latency,
            **({"error": one["info"]["error"]} if one["info"].get("error") else {}),
        }


def save(path: Path, content: dict[str, Any]) -> None:
    """Whole or not at all: a pod may end at any moment."""
    draft = path.with_suffix(".part")
    draft.write_text(json.dumps(content, indent=1) + "\n")
    draft.replace(path)


def append(path: Path, records: list[dict[str, Any]]) -> None:
    with path.open("a") as file:
        for record in records:
            line = json.dumps(record)
            file.write(line + "\n")
            print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
