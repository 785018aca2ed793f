"""Labels that the LeaderWorkerSet controller sets on pods. Source: LeaderWorkerSet v0.10.0 (API)."""

DOMAIN = "leaderworkerset.sigs.k8s.io"
NAME_LABEL = f"{DOMAIN}/name"
GROUP_INDEX_LABEL = f"{DOMAIN}/group-index"
GROUP_KEY_LABEL = f"{DOMAIN}/group-key"
WORKER_INDEX_LABEL = f"{DOMAIN}/worker-index"
REVISION_LABEL = f"{DOMAIN}/template-revision-hash"
