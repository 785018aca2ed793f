"""Asks a Triton server what it serves, and measures it. Runs in NVIDIA's client image of the server's release.

    triton_client.py test CONFIG    every prompt, over one gRPC stream; exit 1 when one stays without an answer
    triton_client.py perf CONFIG    genai-perf at each number of users, one after another; exit 1 when one gives no report

CONFIG is the JSON that eks_inference.serving.triton.client_plan writes. ``perf`` prints what genai-perf prints, and each report
as CSV and then as one line of JSON with the key "record": no other line begins with a brace.
"""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

POLL_SECONDS = 5
REPORT = "profile_export_genai_perf"


def main(arguments: list[str]) -> int:
    if len(arguments) == 2 and arguments[0] in ("test", "perf"):
        config = json.loads(Path(arguments[1]).read_text())
        return test(config) if arguments[0] == "test" else perf(config, Path.cwd())
    print("usage: triton_client.py test CONFIG | perf CONFIG", file=sys.stderr)
    return 2


# -- test -----------------------------------------------------------------------------------------------------------------------


def test(config: dict[str, Any]) -> int:
    """Whether every prompt got an answer with text in it."""
    from tritonclient.grpc import InferenceServerClient  # pyright: ignore[reportMissingImports]

    client = InferenceServerClient(config["url"])
    deadline = time.monotonic() + config["ready_timeout_seconds"]
    while not ready(client, config["model"]):
        if time.monotonic() > deadline:
            print(f"{config['model']} is not ready within {config['ready_timeout_seconds']} s", file=sys.stderr)
            return 1
        time.sleep(POLL_SECONDS)
    answers, errors = ask(client, config)
    client.close()
    for number, prompt in enumerate(config["prompts"]):
        print(f"> {prompt}\n{answers.get(str(number), '').strip() or 'no answer'}\n", flush=True)
    for error in errors:
        print(f"error: {error}", file=sys.stderr)
    silent = sum(not answers.get(str(number), "").strip() for number in range(len(config["prompts"])))
    print(f"{len(config['prompts']) - silent} of {len(config['prompts'])} prompts answered; errors: {len(errors)}", flush=True)
    return 1 if silent or errors else 0


def ready(client: Any, model: str) -> bool:
    """Whether the server answers and has loaded the model; one that does not answer yet raises."""
    try:
        return client.is_model_ready(model)
    except Exception as error:
        print(f"not yet: {error}", flush=True)
        return False


def ask(client: Any, config: dict[str, Any]) -> tuple[dict[str, str], list[str]]:
    """Answers by number of the prompt, and what went wrong. The stream is closed once all answers are here."""
    answers: dict[str, str] = {}
    errors: list[str] = []

    def answered(result: Any, error: Any) -> None:
        if error is not None:
            errors.append(str(error))
            return
        texts = result.as_numpy("text_output")
        number = result.get_response().id
        answers[number] = answers.get(number, "") + "".join(text.decode() for text in texts)

    client.start_stream(callback=answered)
    for number, prompt in enumerate(config["prompts"]):
        client.async_stream_infer(model_name=config["model"], inputs=inputs(prompt, config), request_id=str(number))
    client.stop_stream()
    return answers, errors


def inputs(prompt: str, config: dict[str, Any]) -> list[Any]:
    """The back end's tensors of one request."""
    import numpy  # pyright: ignore[reportMissingImports]
    from tritonclient.grpc import InferInput  # pyright: ignore[reportMissingImports]

    def tensor(name: str, kind: str, value: Any, dtype: Any) -> Any:
        made = InferInput(name, [1], kind)
        made.set_data_from_numpy(numpy.array([value], dtype=dtype))
        return made

    return [
        tensor("text_input", "BYTES", prompt.encode(), numpy.object_),
        tensor("stream", "BOOL", True, bool),
        tensor("sampling_parameters", "BYTES", json.dumps(config["sampling"]).encode(), numpy.object_),
        tensor("exclude_input_in_output", "BOOL", True, bool),
    ]


# -- perf -----------------------------------------------------------------------------------------------------------------------


def perf(config: dict[str, Any], folder: Path) -> int:
    """All measurements, one after another. One that fails does not keep the next from running."""
    failed = []
    for measurement in config["measurements"]:
        users = measurement["users"]
        here = folder / f"{users}-users"
        here.mkdir(parents=True, exist_ok=True)
        print(f"\n{users} users: {' '.join(measurement['command'])}", flush=True)
        code = subprocess.run(measurement["command"], cwd=here, check=False).returncode
        record = {
            "record": "genai-perf",
            "digest": config["digest"],
            "model": config["model"],
            "users": users,
            "command": measurement["command"],
            "exit": code,
            "finished": time.time(),
            "report": None,
        }
        for table in sorted(here.rglob(f"{REPORT}.csv")):
            print(table.read_text(), flush=True)
        for report in sorted(here.rglob(f"{REPORT}.json")):
            record["report"] = json.loads(report.read_text())
        print(json.dumps(record), flush=True)
        if code or not any(here.rglob(f"{REPORT}.*")):
            failed.append(str(users))
    if failed:
        print(f"no report with {', '.join(failed)} users", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
