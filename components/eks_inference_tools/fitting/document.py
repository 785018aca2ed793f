"""A search as JSON. Prices are in USD an hour, or for a million tokens of answers."""

from dataclasses import asdict
from typing import Any

from eks_inference.catalog.speeds import Measured
from eks_inference_tools.fitting.pace import USUAL_INPUT, USUAL_OUTPUT, USUAL_USERS, Explained, Traffic, nearest
from eks_inference_tools.fitting.search import Found, Refusal, Row
from eks_inference_tools.fitting.trials import Trial
from stackgraph.strict_json import OrNull

SCHEMA = 1
_TRIED = {
    **dict.fromkeys(("kind", "engine", "quantization"), str),
    "instance": str,
    "tensor_parallel": int,
    "step_tokens": int | None,
}
_RANGE = {"low": float, "high": float}
_PERCENTILES = {"*": float}
PLACE = {
    **_TRIED,
    **dict.fromkeys(("devices", "pods_per_node", "sequences"), int),
    **dict.fromkeys(("usd_per_million_tokens", "usd_per_hour", "usd_per_hour_and_pod"), float | None),
    "speed": {
        "unknown?": str,
        **dict.fromkeys(("sequences?", "tokens_per_second?"), float),
        "range?": _RANGE,
        "accelerator?": str | None,
        "measurements?": int,
        "nearest?": [Measured],
    },
    "traffic": OrNull(
        {
            **dict.fromkeys(("replicas", "nodes"), int),
            "estimated": bool,
            "usd_per_hour": float | None,
            "busy": float,
            "range": _RANGE,
            "first_token_s": _PERCENTILES,
            "token_s": _PERCENTILES,
        }
    ),
    **dict.fromkeys(("price_kind", "price_source", "quota"), str | None),
    "needs_reservation": bool,
    "ends": str,
    "caveat": str,
    "warnings": [str],
    "not_judged": {"*": str},
}
_REFUSED = {
    **{f"{key}?" if key != "instance" else key: one for key, one in _TRIED.items()},
    "usd_per_hour": float | None,
    "rule": str,
    "reason": str,
}
SHAPE = {
    "model": str,
    "region": str,
    "context": int,
    "concurrency": int,
    "under": float | None,
    "traffic": Traffic | None,
    "usual_load": OrNull(dict.fromkeys(("users", "input", "output"), int)),
    "ordered_by": [str],
    "fits": [PLACE],
    "explained?": Explained | str,
    "quantized_for_less": OrNull(PLACE),
    "cheaper_that_do_not_fit": [_REFUSED],
    "refused": [_REFUSED],
}


def document(found: Found, saving: Row | None = None, explain: bool = False) -> dict[str, Any]:
    """Returns every place where the model fits, in the order of the search, and every other with its rule or reason."""
    why = found.rows[0].explained if explain and found.rows else None
    wish = found.wish
    return {
        "schema": SCHEMA,
        "model": wish.model.name,
        "region": wish.region,
        "context": wish.context,
        "concurrency": wish.concurrency,
        "under": wish.under,
        "traffic": asdict(wish.traffic) if wish.traffic else None,
        "usual_load": None if wish.traffic else {"users": USUAL_USERS, "input": USUAL_INPUT, "output": USUAL_OUTPUT},
        "ordered_by": ["ends", "caveat", "warnings", "usd_per_million_tokens", "usd_per_hour"],
        "fits": [_row(row) for row in found.rows],
        **({"explained": why if isinstance(why, str) else asdict(why)} if why else {}),
        "quantized_for_less": _row(saving) if saving else None,
        "cheaper_that_do_not_fit": [_refusal(refusal) for refusal in found.cheaper],
        "refused": [_refusal(refusal) for refusal in found.refusals],
    }


def _row(row: Row) -> dict[str, Any]:
    trial, price = row.trial, row.offer.price
    return {
        **_trial(trial),
        "devices": trial.devices,
        "pods_per_node": trial.pods,
        "sequences": trial.sequences,
        "usd_per_million_tokens": row.usd_per_million,
        "speed": _speed(row),
        "traffic": _sized(row),
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


def _speed(row: Row) -> dict[str, Any]:
    """How fast one pod is under the usual load, with what is known of the error."""
    if isinstance(row.pace, str):
        return {"unknown": row.pace}
    known, low, high = row.trial.speed, *row.pace.times.range
    return {
        "sequences": row.pace.most,
        "tokens_per_second": row.pace.usual,
        "range": {"low": 1 / high, "high": 1 / low},
        "accelerator": known.name if known else None,
        "measurements": known.rows if known else 0,
        "nearest": [asdict(measured) for measured in nearest(row.trial.memory)],
    }


def _sized(row: Row) -> dict[str, Any] | None:
    found = row.sized
    if found is None or isinstance(row.pace, str):
        return None
    low, high = row.pace.times.range
    seconds = {"first_token_s": found.answered.first_token, "token_s": found.answered.token}
    return {
        "replicas": found.replicas,
        "estimated": not found.simulated,
        "nodes": found.nodes,
        "usd_per_hour": found.usd_per_hour,
        "busy": found.answered.busy,
        "range": {"low": low, "high": high},
        **{what: {f"p{percent}": took for percent, took in of.items()} for what, of in seconds.items()},
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
        "step_tokens": trial.step_tokens,
    }
