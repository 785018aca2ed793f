"""Inputs of Kubernetes objects as the real provider kept them: what it was given, and what its state had afterwards."""

from typing import Any

import pytest

from stackgraph.state.inputs import normalized

POD = "kubernetes:core/v1:Pod"


def pod(**container: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", **container}]}}


@pytest.mark.parametrize(
    ("type_", "given", "kept"),
    [
        (POD, pod(env=[{"name": "A", "value": ""}]), pod(env=[{"name": "A"}])),
        (POD, pod(args=[], tty=False, securityContext={"privileged": False}), pod(securityContext={"privileged": False})),
        (POD, pod(livenessProbe={"initialDelaySeconds": 0}), pod(livenessProbe={})),
        (
            POD,
            pod(volumeMounts=[{"name": "v", "mountPath": "/v", "readOnly": False}]),
            pod(volumeMounts=[{"name": "v", "mountPath": "/v"}]),
        ),
        (
            "kubernetes:networking.k8s.io/v1:NetworkPolicy",
            {"spec": {"podSelector": {}, "ingress": [], "policyTypes": ["Ingress"]}},
            {"spec": {"podSelector": {}, "policyTypes": ["Ingress"]}},
        ),
        ("kubernetes:apps/v1:Deployment", {"spec": {"replicas": 0, "paused": False}}, {"spec": {"replicas": 0}}),
        ("kubernetes:core/v1:PersistentVolumeClaim", {"spec": {"storageClassName": ""}}, {"spec": {"storageClassName": ""}}),
        ("kubernetes:core/v1:PersistentVolume", {"spec": {"storageClassName": ""}}, {"spec": {}}),
        ("kubernetes:karpenter.sh/v1:NodePool", {"spec": {"weight": 0, "taints": []}}, {"spec": {"weight": 0, "taints": []}}),
        ("aws:ec2/vpc:Vpc", {"tags": {"a": ""}, "list": []}, {"tags": {"a": ""}, "list": []}),
        ("kubernetes:core/v1:Secret", {"stringData": {"a": "b"}}, {"data": {"a": "Yg=="}}),
        (
            "kubernetes:core/v1:Secret",
            {"data": {"a": "YQ==", "b": "Yg=="}, "stringData": {"a": "c"}},
            {"data": {"a": "Yw==", "b": "Yg=="}},
        ),
        ("kubernetes:core/v1:Secret", {"stringData": "[secret]"}, {"data": "[secret]"}),
        ("kubernetes:core/v1:Secret", {"stringData": {"a": "[secret]"}}, {"data": {"a": "[secret]"}}),
        ("kubernetes:core/v1:Secret", {"data": {"a": ""}}, {"data": {"a": ""}}),
    ],
)
def test_what_a_state_keeps(type_: str, given: dict[str, Any], kept: dict[str, Any]) -> None:
    assert normalized(type_, given) == kept
    assert normalized(type_, kept) == kept
