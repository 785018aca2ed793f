"""The report of a replay and its JSON document: samples, findings, and the published table beside the model."""

from dataclasses import asdict, dataclass
from typing import Any

from eks_inference_tools.loadtest_report.published import published
from eks_inference_tools.simulate.replay.judge import Finding, judge
from eks_inference_tools.simulate.replay.model import FIGURES, FITTED, Prediction, Replica, predictions, rows
from eks_inference_tools.simulate.replay.samples import Sample
from eks_inference_tools.simulate.replay.subject import Subject

SCHEMA = 1
"""Version of the JSON document."""

REAL = ("Prometheus", "kube-controller-manager", "kube-scheduler", "kube-apiserver", "etcd")
STACKS_OWN = ("HorizontalPodAutoscaler", "Deployment", "PodMonitors", "PrometheusRules", "rules of prometheus-adapter")
STAND_INS = (
    "Triton servers (a model of one pod, Ready at once, users shared out evenly)",
    "kubelets (kwok)",
    "prometheus-operator",
    "prometheus-adapter",
)


@dataclass(frozen=True)
class Report:
    """A replay with its findings and the model it used."""

    subject: Subject
    samples: tuple[Sample, ...]
    findings: tuple[Finding, ...]
    model: Replica
    predictions: tuple[Prediction, ...]

    @property
    def holds(self) -> bool:
        return all(finding.holds for finding in self.findings)

    def document(self) -> dict[str, Any]:
        """Returns the report as JSON. ``schema`` changes when a key does."""
        subject, limits, model = self.subject, self.subject.limits, self.model
        return {
            "schema": SCHEMA,
            "stack": subject.stack,
            "autoscaler": {"namespace": subject.namespace, "name": subject.name, "metric": subject.metric},
            "limits": {"least": limits.least, "most": limits.most, "target": limits.target},
            "real": list(REAL),
            "of_the_stack": list(STACKS_OWN),
            "stand_ins": list(STAND_INS),
            "holds": self.holds,
            "findings": [asdict(finding) for finding in self.findings],
            "samples": [sample.document() for sample in self.samples],
            "model": {
                "source": published()[FIGURES].source,
                "fitted_to_users": list(FITTED),
                "alone_ms": round(model.alone_ms, 2),
                "per_user_ms": round(model.per_user_ms, 3),
                "queue_ms": round(model.queue_ms, 4),
                "rows": [prediction.document() for prediction in self.predictions],
            },
        }


def reported(subject: Subject, samples: tuple[Sample, ...], model: Replica) -> Report:
    """Judges the samples, and compares the model with the published table."""
    limits = subject.limits
    beside = predictions(model, rows(), target=limits.target, least=limits.least, most=limits.most)
    return Report(subject, samples, judge(samples, limits), model, beside)
