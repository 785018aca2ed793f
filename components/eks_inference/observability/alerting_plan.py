"""Plans where alerts go (Alertmanager's values and permissions), and the numbers of a server's spec that they compare with, as
series. Pure; no pulumi.

Sources: Alertmanager 0.34 (config/notifiers.go, notify/sns); kube-prometheus-stack 88.5.3 (values, templates/alertmanager); SNS
developer guide, "Key management" (what a publisher to an encrypted topic needs).
"""

from collections.abc import Sequence
from typing import Any

from eks_inference.aws import iam
from eks_inference.faults import Fault
from eks_inference.kubernetes.secrets import SecretRef
from eks_inference.observability.handle import Budget, Expected
from eks_inference.observability.prometheus_plan import RELEASE
from eks_inference.observability.spec import PrometheusSpec, Receiver, SlackReceiver, SnsReceiver

SERVICE_ACCOUNT = f"{RELEASE}-alertmanager"
"""Name of Alertmanager's service account, the chart's own."""

URL_SECRET = SecretRef("alert-receiver", "url")
"""Where the URL of a receiver is kept, which is a secret: whoever knows it may post."""

TYPE_LABEL = "label_node_kubernetes_io_instance_type"
"""What kube-state-metrics makes of the label of nodes, where its values allow that (README, kube_node_labels)."""

_RECEIVER = "receiver"
_NOBODY = "null"
"""The chart's receiver that drops alerts."""

# The default texts name labels only. Our alerts say what is wrong and what to do.
_SLACK_TITLE = "{{ .Status | toUpper }}: {{ .CommonLabels.cluster }}{{ with .GroupLabels.namespace }}, {{ . }}{{ end }}"
_SLACK_TEXT = """\
{{ range .Alerts }}*{{ .Labels.severity }}* {{ .Annotations.summary }}
{{ .Annotations.description }}
{{ with .Annotations.next }}`{{ . }}`{{ end }}
{{ .Annotations.runbook_url }}
{{ end }}"""


def url_faults(spec: PrometheusSpec, *, given: bool) -> list[Fault]:
    """Returns a fault unless the caller passes a URL exactly when the receiver has one."""
    if spec.receiver_has_url == given:
        return []
    if given:
        hint = "leave out alert_receiver_url=, or choose a receiver of kind slack or webhook"
        return [Fault(("receiver",), "a URL is given for a receiver that has none", hint=hint)]
    return [Fault(("receiver",), "the URL is missing, which is a secret", hint="pass it as alert_receiver_url=")]


def receiver_values(receiver: Receiver, *, region: str, url: SecretRef | None) -> dict[str, Any]:
    """Returns values of ``alertmanager``: alerts of severity critical and warning go to the receiver, others to nobody.

    Among the others are the chart's Watchdog, which always fires, and what only informs.
    """
    route = {"receiver": _NOBODY, "routes": [{"receiver": _RECEIVER, "matchers": ['severity =~ "critical|warning"']}]}
    receivers = [{"name": _NOBODY}, {"name": _RECEIVER, **_notification(receiver, region, url)}]
    mounted = {"secrets": [url.name]} if url else {}
    return {
        "config": {"route": route, "receivers": receivers},
        "alertmanagerSpec": {"useExistingSecret": False, **mounted},
        # The role is for an account of this name.
        "serviceAccount": {"create": True, "name": SERVICE_ACCOUNT},
    }


def _notification(receiver: Receiver, region: str, url: SecretRef | None) -> dict[str, Any]:
    if isinstance(receiver, SnsReceiver):
        return {"sns_configs": [{"topic_arn": receiver.topic_arn, "sigv4": {"region": region}, "send_resolved": True}]}
    assert url is not None, "the component refuses a receiver without its URL"
    file = f"/etc/alertmanager/secrets/{url.name}/{url.key}"
    if isinstance(receiver, SlackReceiver):
        texts = {"title": _SLACK_TITLE, "text": _SLACK_TEXT}
        return {"slack_configs": [{"api_url_file": file, "send_resolved": True, **texts}]}
    return {"webhook_configs": [{"url_file": file, "send_resolved": True}]}


def publisher(receiver: SnsReceiver) -> iam.Document:
    """Returns the policy of Alertmanager's role: to publish to the topic, encrypted with its key if it has one."""
    statements = [iam.allow("Publish", ["sns:Publish"], receiver.topic_arn)]
    if receiver.kms_key_arn:
        statements.append(iam.allow("Encrypt", ["kms:Decrypt", "kms:GenerateDataKey"], receiver.kms_key_arn))
    return iam.document(*statements)


def of_budget(budget: Budget) -> dict[str, Any]:
    """Returns a rule file with the budget and the prices, as series: the alert OverBudget compares nodes with them."""
    rules = [{"record": "stack:budget:usd_per_month", "expr": f"vector({budget.usd_per_month:.10g})"}]
    rules += [
        {"record": "instance_type:price:usd_per_hour", "expr": f"vector({usd:g})", "labels": {TYPE_LABEL: type_}}
        for type_, usd in sorted(budget.usd_per_hour.items())
    ]
    return {"groups": [{"name": "eks-inference.budget", "rules": rules}]}


def expectations(expected: Expected, namespace: str, servers: Sequence[str]) -> dict[str, Any]:
    """Returns a rule file, and ``spec`` of a PrometheusRule. ``servers`` are the values of the label ``server``.

    The alerts themselves (assets/rules.yaml) are the same in every cluster. They join these series by ``namespace`` and
    ``server``.
    """
    numbers = {
        "server:pods:min": expected.pods,
        "server:requests_per_pod:limit": expected.requests_per_pod,
        "server:time_to_first_token_seconds:objective": expected.objectives.time_to_first_token_seconds,
    }
    rules = [
        {"record": series, "expr": f"vector({number:g})", "labels": {"namespace": namespace, "server": server}}
        for series, number in numbers.items()
        if number is not None
        for server in servers
    ]
    return {"groups": [{"name": f"eks-inference.{expected.server}", "rules": rules}]}
