"""One vLLM server as a child process: its settings, its command line, its life. Standard library only."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass

STOP_GRACE_S = 30.0

_LOOPBACK = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # a proxy for downloads is not for loopback


@dataclass(frozen=True)
class Settings:
    """What the server is started with; every field is an environment variable of the same name in capitals."""

    model_id: str
    tensor_parallelism: int
    max_model_len: int
    max_num_seqs: int
    startup_timeout_s: float
    model_revision: str = ""
    model_folder: str = ""
    """Where the model's files are; empty: vLLM downloads ``model_id``."""
    model_download: str = ""
    """The script that downloads ``model_id`` into ``model_folder`` first; empty: the files are there."""
    engine_args: tuple[str, ...] = ()
    """Further flags; ``ENGINE_ARGS`` is a JSON list of strings."""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> "Settings":
        """Raises ``KeyError`` naming the first variable that is missing."""
        return cls(
            model_id=environment["MODEL_ID"],
            tensor_parallelism=int(environment["TENSOR_PARALLELISM"]),
            max_model_len=int(environment["MAX_MODEL_LEN"]),
            max_num_seqs=int(environment["MAX_NUM_SEQS"]),
            startup_timeout_s=float(environment["STARTUP_TIMEOUT_S"]),
            model_revision=environment.get("MODEL_REVISION", ""),
            model_folder=environment.get("MODEL_FOLDER", ""),
            model_download=environment.get("MODEL_DOWNLOAD", ""),
            engine_args=tuple(json.loads(environment.get("ENGINE_ARGS", "[]"))),
        )


def command_line(settings: Settings, port: int) -> list[str]:
    """The server's command line, on loopback only. Of a flag given twice vLLM takes the last: ``engine_args`` come last."""
    revision = ["--revision", settings.model_revision] if settings.model_revision and not settings.model_folder else []
    source = [settings.model_folder, "--served-model-name", settings.model_id] if settings.model_folder else [settings.model_id]
    return [
        # The server ends when its replica dies without a word; left alone it would keep the NeuronCores for ever.
        *("setpriv", "--pdeathsig", "TERM"),
        *("vllm", "serve", *source, *revision),
        *("--host", "127.0.0.1", "--port", str(port)),
        *("--tensor-parallel-size", str(settings.tensor_parallelism)),
        *("--max-model-len", str(settings.max_model_len)),
        *("--max-num-seqs", str(settings.max_num_seqs)),
        *settings.engine_args,
    ]


def download(settings: Settings) -> None:
    """Downloads the model; the first of a pod's replicas does, and the others wait for it.

    Raises ``subprocess.CalledProcessError`` when that fails, ``subprocess.TimeoutExpired`` when the time is up.
    """
    command = [sys.executable, settings.model_download, settings.model_id, settings.model_revision, settings.model_folder]
    subprocess.run(command, check=True, timeout=settings.startup_timeout_s)


def free_port() -> int:
    """A loopback port nobody listens on: several replicas share a pod."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Engine:
    """The child process. ``start`` blocks until it answers; ``check`` raises once it has ended; ``stop`` may be called twice."""

    def __init__(self, settings: Settings, port: int | None = None) -> None:
        self.settings = settings
        self.port = port or free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None
        # vllm-neuron keeps the checkpoint and compiled artifacts below its working directory and clears what it finds there, so
        # replicas of one pod must not share it.
        self._folder = tempfile.mkdtemp(prefix="vllm-")

    def start(self) -> None:
        """Raises ``RuntimeError`` when the server ends first, ``TimeoutError`` when the time is up, and like ``download``."""
        if self.settings.model_download:
            download(self.settings)
        environment = dict(os.environ)
        # By default all engines compile in /tmp/nxd_model/, and each has to have a folder of its own (aws-neuron-sdk,
        # trn3-gpt-oss-120b-tutorial). The slash at the end is the default's.
        environment.setdefault("BASE_COMPILE_WORK_DIR", os.path.join(self._folder, "compiler", ""))
        if self.settings.model_folder:
            # By default a local model's compiled artifacts go into its own folder, which is read-only and of all replicas.
            environment.setdefault("NEURON_COMPILED_ARTIFACTS", os.path.join(self._folder, "compiled"))
        self._process = subprocess.Popen(
            command_line(self.settings, self.port), cwd=self._folder, env=environment, start_new_session=True
        )
        deadline = time.monotonic() + self.settings.startup_timeout_s
        try:
            while not self._answers():
                self.check()
                if time.monotonic() > deadline:
                    raise TimeoutError(f"vLLM did not answer within {self.settings.startup_timeout_s:g} s")
                time.sleep(1)
        except BaseException:
            self.stop()
            raise

    def check(self) -> None:
        """Raises ``RuntimeError`` when the server is not running."""
        status = self._process.poll() if self._process else "not started"
        if status is not None:
            raise RuntimeError(f"vLLM has ended: {status}")

    def stop(self) -> None:
        """Ends the server and every process it started, and removes its folder."""
        process, self._process = self._process, None
        if process:
            for number, grace in ((signal.SIGTERM, STOP_GRACE_S), (signal.SIGKILL, None)):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, number)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(grace)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _answers(self) -> bool:
        try:
            with _LOOPBACK.open(f"{self.url}/health", timeout=5) as answer:
                return answer.status == 200
        except (urllib.error.URLError, OSError):
            return False
