"""What a recorded program gets of this command's environment: everything but credentials."""

import os
import re
from collections.abc import Mapping

# What these services' tools read, credentials among it. GITHUB_ and ACTIONS_ also hold the files and addresses by which a step
# talks to its job.
_SERVICES = re.compile(
    r"(ACTIONS|ANTHROPIC|ARM|AWS|AZURE|CLOUDFLARE|CLOUDSDK|DIGITALOCEAN|DOCKER|GCP|GH|GITHUB|GITLAB|GOOGLE|HF|HUGGING_FACE|"
    r"HUGGINGFACE|KUBE|NGC|NPM|OPENAI|PULUMI|TF|VAULT|WANDB)_.*|KUBECONFIG|SSH_AUTH_SOCK|GPG_AGENT_INFO"
)
_NAMES = re.compile(r"(.*_)?(AUTH|COOKIE|CREDENTIALS?|CREDS|KEYS?|PASS|PASSPHRASE|PASSWD|PASSWORD|PAT|PW|SECRETS?|TOKENS?)(_.*)?")
_SPELT_TOGETHER = re.compile(r".*(APIKEY|PASSWORD|SECRET|TOKEN)")
_USER_IN_A_URL = re.compile(r"://[^/@\s]+@")

_KEPT = frozenset({"AWS_REGION", "AWS_DEFAULT_REGION"})
"""No secrets, and programs choose by them what they make."""


def without_credentials(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment without variables whose name or value is one of a credential.

    This keeps a recorded program from using them by accident, and from showing them in what it makes. It is no sandbox: a program
    can read the files of its user, and on some systems the memory of other processes.
    """
    return {name: value for name, value in environment.items() if name in _KEPT or not _is_credential(name.upper(), value)}


def _is_credential(name: str, value: str) -> bool:
    named = any(pattern.fullmatch(name) for pattern in (_SERVICES, _NAMES, _SPELT_TOGETHER))
    return named or _USER_IN_A_URL.search(value) is not None


def in_ci() -> bool:
    """Whether a CI service runs this command; all common ones set ``CI``.

    Its machine may be that of other branches later. A program can write into the user's cache, so none is used there.
    """
    return os.environ.get("CI", "").lower() not in ("", "0", "false")
