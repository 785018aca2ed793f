"""Rule K8S004: nothing that a graph deploys contains a credential in plain text. The rule never shows values."""

import re
from collections.abc import Iterator

from eks_inference.rules import Judgement, rule
from eks_inference_tools.reading.graph_facts import GraphFacts, walk
from eks_inference_tools.reading.object_kinds import title_of
from eks_inference_tools.reading.pods import Container
from stackgraph.graph.values import SECRET, table

# A mark of each kind of credential, its name and its full pattern. Sources: GitHub, "Secret scanning patterns"; AWS IAM, "Unique
# identifiers" (AKIA, ASIA); Hugging Face, "User access tokens" (hf_); RFC 7468 (PEM); Slack, Discord and Microsoft Teams,
# "Incoming webhooks": whoever knows the address may post.
_SHAPES = {
    "hf_": ("a Hugging Face token", re.compile(r"(?<![\w-])hf_[A-Za-z0-9]{30,}")),
    "AKIA": ("an AWS access key", re.compile(r"(?<![A-Za-z0-9])AKIA[0-9A-Z]{16}(?![A-Za-z0-9])")),
    "ASIA": ("an AWS session key", re.compile(r"(?<![A-Za-z0-9])ASIA[0-9A-Z]{16}(?![A-Za-z0-9])")),
    "sk-": ("an API key", re.compile(r"(?<![\w-])sk-[A-Za-z0-9_-]{20,}")),
    "nvapi-": ("an NVIDIA API key", re.compile(r"(?<![\w-])nvapi-[A-Za-z0-9_-]{20,}")),
    "ghp_": ("a GitHub token", re.compile(r"(?<![\w-])ghp_[A-Za-z0-9]{36}")),
    "github_pat_": ("a GitHub token", re.compile(r"(?<![\w-])github_pat_\w{22,}")),
    "hooks.slack.com/": ("a Slack webhook", re.compile(r"hooks\.slack\.com/(?:services|workflows|triggers)/\w+/\w+/\w{8,}")),
    "/api/webhooks/": ("a Discord webhook", re.compile(r"discord(?:app)?\.com/api/webhooks/\d+/[\w-]{20,}")),
    "webhook.office.com/": ("a Teams webhook", re.compile(r"webhook\.office\.com/webhookb2/[^\s/]+/\w+/[^\s\"']{8,}")),
    "xox": ("a Slack token", re.compile(r"(?<![\w-])xox[abeoprs]-[\w-]{10,}")),
    "glpat-": ("a GitLab token", re.compile(r"(?<![\w-])glpat-[\w-]{20,}")),
    "AIza": ("a Google API key", re.compile(r"(?<![\w-])AIza[\w-]{35}(?![\w-])")),
    "://": ("a URL with a password", re.compile(r"://[^\s/:@\"'$<{(\[]+:[^\s/:@\"'$<{(\[]{4,}@")),
    "PRIVATE KEY-----": ("a private key", re.compile(r"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----")),
}

# Endings of names of variables, flags and chart values that hold a credential. Names with a suffix (…_FILE, …_NAME) refer to one.
_NAMES = re.compile(
    r"(?:^|_)(?:TOKEN|PASSWORD|PASSWD|PASSPHRASE|SECRET|SECRET_?KEY|SECRET_?ACCESS_?KEY|API_?KEYS?|ROUTING_?KEY|SERVICE_?KEY|ACCESS_?KEY|PRIVATE_?KEY|CREDENTIALS?)$",
    re.IGNORECASE,
)
# Tokens of a tokenizer are no credentials.
_TOKENS_OF_TEXT = re.compile(r"(?:^|_)(?:BOS|CLS|EOS|IMAGE|MASK|PAD|SEP|SPECIAL|STOP|UNK)_TOKEN$", re.IGNORECASE)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SIGNS = re.compile(r"[.-]")
_FLAG = re.compile(r"^--?([A-Za-z][\w.-]*)(?:=(.*))?$", re.DOTALL)

_PLACEHOLDERS = frozenset(
    (
        "-",
        "admin",
        "changeme",
        "change-me",
        "disabled",
        "dummy",
        "",
        "empty",
        "example",
        "false",
        "n/a",
        "no",
        "none",
        "not-needed",
        "null",
        "placeholder",
        "redacted",
        "test",
        "true",
        "unused",
        "x",
        "xxx",
        "yes",
    )
)
# A reference to a value elsewhere: a shell or Kubernetes variable, a template, a file, a URL.
_REFERENCE = re.compile(r"\$|\{\{|<|/|\.{1,2}/|arn:|[a-z][a-z0-9+.-]*://")


@rule(
    "K8S004",
    "Pods, ConfigMaps and chart values contain no credentials in plain text.",
    fix="store it with `pulumi config set --secret`, and pass it to the pod as a Secret",
    source="Kubernetes, Good practices for Secrets; the state and the API server keep plain text readable",
)
def no_secret_in_plain_text(facts: GraphFacts) -> Iterator[Judgement]:
    for pod in facts.pods:
        found = [f"{container.title}, {fault}" for container in pod.containers for fault in _in_container(container)]
        count = sum(len(container.environment) + len(container.words) for container in pod.containers)
        yield _judged(pod.title, pod.urn, found, f"{count} variables and arguments")
    for resource in facts.objects.get("ConfigMap", ()):
        data = table(resource.inputs.get("data"))
        found = [fault for key, value in data.items() if isinstance(value, str) for fault in _in_value(f"key {key}", key, value)]
        yield _judged(title_of(resource), resource.urn, found, f"{len(data)} keys")
    for chart in facts.charts:
        values = [(path, value) for path, value in walk(chart.values) if isinstance(value, str)]
        found = [
            fault for path, value in values for fault in _in_value(f"value {'.'.join(path)}", path[-1], value, in_chart=True)
        ]
        yield _judged(f"chart {chart.resource.name}", chart.resource.urn, found, f"{len(values)} values")


def _judged(where: str, urn: str, found: list[str], looked_at: str) -> Judgement:
    return Judgement(
        holds=not found,
        path=(),
        working=(f"{where}: {looked_at}: {'; '.join(found) or 'none looks like a credential'}",),
        message=f"{where} contains a credential in plain text: {'; '.join(found)}",
        resource=urn,
    )


def _in_container(container: Container) -> Iterator[str]:
    for name, value in container.environment:
        yield from _in_value(f"variable {name}", name, value)
    words = container.words
    for number, word in enumerate(words):
        flag = _FLAG.match(word)
        if flag is None:
            yield from _in_value(f"argument {number + 1}", "", word)
            continue
        following = words[number + 1] if flag[2] is None and number + 1 < len(words) else None
        value = flag[2] or (following if following is not None and not following.startswith("-") else "")
        yield from _in_value(f"argument --{flag[1]}", flag[1], value)


def _in_value(where: str, name: str, value: str, *, in_chart: bool = False) -> Iterator[str]:
    for mark, (what, shape) in _SHAPES.items():
        if mark in value and (match := shape.search(value)) and "EXAMPLE" not in match[0]:
            yield f"{where}: {what}"
            return
    if name and _is_credential_name(name, in_chart=in_chart) and _is_literal(value):
        yield f"{where}: a literal of {len(value)} characters"


def _is_credential_name(name: str, *, in_chart: bool) -> bool:
    spelt = _SIGNS.sub("_", _CAMEL.sub("_", name))
    # In charts, such a name refers to a Secret: existingSecret, secret. An application's own file has that of its OAuth client.
    if in_chart and spelt.lower().endswith("secret") and not spelt.lower().endswith("client_secret"):
        return False
    return bool(_NAMES.search(spelt)) and not _TOKENS_OF_TEXT.search(spelt)


def _is_literal(value: str) -> bool:
    """Whether a value can itself be a credential, and is no placeholder, short number, sentence or reference."""
    found = value.strip()
    return (
        len(found) >= _SHORTEST
        and not all(part.strip() in _PLACEHOLDERS for part in re.split(r"[;,]", found.lower()))
        and SECRET not in found
        and not found.lower().startswith(("your", "my-", "insert", "replace"))
        and not _REFERENCE.match(found)
        and not ("\n" in found or " " in found)
        and not (found.isdecimal() and len(found) < _SHORTEST_NUMBER)
    )


_SHORTEST = 4
_SHORTEST_NUMBER = 6
