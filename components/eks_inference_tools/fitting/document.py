"""A search as JSON. Prices are in USD an hour."""

from typing import Any

from eks_inference_tools.fitting.search import Found, Refusal, Row
from eks_inference_tools.fitting.trials import Trial


def document(found: Found, saving: Row | None = None) -> dict[str, Any]:
    """Returns every place where the model fits, in the order of the search, and every other with its rule or reason."""
    wish = found.wish
    return {
        "model": wish.model.name,
        "region": wish.region,
        "context": wish.context,
        "concurrency": wish.concurrency,
        "under": wish.under,
        "ordered_by": ["ends", "caveat", "warnings", "usd_per_hour"],
        "fits": [_row(one) for one in found.rows],
        "quantized_for_less": _row(saving) if saving else None,
        "cheaper_that_do_not_fit": [_refusal(one) for one in found.cheaper],
        "refused": [_refusal(one) for one in found.refusals],
    }


def _row(row: Row) -> dict[str, Any]:
    trial, price = row.trial, row.offer.price
    return {
        **_trial(trial),
        "devices": trial.devices,
        "pods_per_node": trial.pods,
        "sequences": trial.sequences,
        "kv_tokens": row.kv_tokens,
        "usd_per_hour": row.usd_per_hour,
        "usd_per_hour_and_pod": row.offer.per_pod(trial.pods),
        "price_kind": row.offer.price_kind or None,
        "price_source": f"{price.source}, {price.as_of}" if price else None,
        "quota": row.offer.quota.title if row.offer.quota else None,
        "needs_reservation": trial.instance.needs_reservation,
        "ends": trial.engine.ends,
        "caveat": trial.engine.caveat,
        "warnings": list(row.warnings),
        "not_judged": dict(row.unjudged),
    }


def _refusal(one: Refusal) -> dict[str, Any]:
    tried = _trial(one.trial) if one.trial else {"instance": one.instance.name}
    return {**tried, "usd_per_hour": one.offer.price.usd if one.offer.price else None, "rule": one.rule, "reason": one.reason}


def _trial(trial: Trial) -> dict[str, Any]:
    return {
        "instance": trial.instance.name,
        "kind": trial.kind.name,
        "engine": trial.engine.name,
        "tensor_parallel": trial.tensor_parallel,
        "quantization": trial.quantization,
    }
