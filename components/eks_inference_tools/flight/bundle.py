"""The bundle of a flight, which one can send to others: nothing in it belongs to an account; and whoever reads one trusts nothing
of it.
"""

import ipaddress
import json
import math
import re
import unicodedata
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, date, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from eks_inference.catalog.prices import HOUR
from eks_inference_tools.cost.price_book import OwnPrices
from eks_inference_tools.flight.course import Leg
from eks_inference_tools.flight.evidence import LOAD_METRICS, LOAD_STATISTICS
from eks_inference_tools.flight.journal import Journal, spent
from stackgraph.problems import Problem, ProblemsFound, content

# What is taken out is rather too much than too little: what looks like a secret is one. Formats: AWS General Reference ("ARN
# format"), IAM user guide ("Unique identifiers"), EC2 user guide ("Resource IDs"), Hugging Face Hub and Pulumi access tokens,
# RFC 7519 (JWT).

ACCOUNT, ADDRESS, HOST, ID, SECRET, MAIL, NAME = "[account]", "[address]", "[host]", "[id]", "[secret]", "[mail]", "[name]"

_SHORTEST = 3
"""A known text shorter than this would take letters out of other words."""

_RULES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"-----BEGIN [A-Z ]+-----.*?(-----END [A-Z ]+-----|\Z)", re.DOTALL), SECRET),
    (re.compile(r"\barn:[a-z-]+:\S*"), "[arn]"),
    (re.compile(r"(?<=://)[^\s/@]+@"), f"{SECRET}@"),
    (re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]+"), rf"\1 {SECRET}"),
    (
        re.compile(
            r"(?i)([\w-]*(?:passw(?:or)?d|secret|token|api[_-]?key|access[_-]?key|authorization|credential|signature)[\w-]*)"
            r"(\\?[\"']?\s*[:=]\s*)(\\?\"[^\"]*\"|'[^']*'|[^\s,;&}\]]+)"
        ),
        rf"\1\2{SECRET}",
    ),
    (re.compile(r"\beyJ[\w-]+(\.[\w-]*)*"), SECRET),
    (re.compile(r"\bk8s-aws-v1\.[\w=-]+"), SECRET),
    (re.compile(r"\b(hf|pul|gh[a-z]|github_pat|glpat|sk|xox[a-z])[_-][A-Za-z0-9_-]{8,}"), SECRET),
    (re.compile(r"\b(AKIA|ASIA|ABIA|ACCA|AROA|AIDA|AGPA|AIPA|ANPA|ANVA|APKA|ASCA)[A-Z0-9]{8,}"), SECRET),
    (re.compile(r"[\w.+-]+@[\w-]+(\.[\w-]+)+"), MAIL),
    (re.compile(r"(?i)\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"), ID),
    (re.compile(r"(?i)\bip-\d+-\d+-\d+-\d+[\w.-]*"), HOST),
    (re.compile(r"(?i)\b[\w-]+(\.[\w-]+)*\.(amazonaws\.com(\.cn)?|api\.aws|internal|local)\b"), HOST),
    (re.compile(r"(?i)\b([0-9a-f]{2}[:-]){5}[0-9a-f]{2}\b"), ADDRESS),
    (re.compile(r"(?<![\d.])\d{1,3}(\.\d{1,3}){3}(?![\d.]*\d)(:\d{1,5}|/\d{1,2})?"), ADDRESS),
    # Resources of EC2, EFS, FSx, Route 53 and capacity reservations.
    (re.compile(r"\b[a-z]{1,12}-[0-9a-f]{8}([0-9a-f]{9})?\b"), ID),
    (re.compile(r"\bZ[A-Z0-9]{12,31}\b"), ID),
    (re.compile(r"(?<!\d)\d{4}-\d{4}-\d{4}(?!\d)"), ACCOUNT),
    (re.compile(r"(?<!\d)\d{12}(?!\d)"), ACCOUNT),
)

_WORD = re.compile(r"[A-Za-z0-9+/=_-]{20,}")
_CANDIDATE = re.compile(r"[0-9A-Fa-f:.]*[0-9A-Fa-f:][0-9A-Fa-f:.]+[0-9A-Fa-f:](%\w+)?(/\d{1,3})?")
_BITS_OF_A_SECRET = 3.6
"""Bits of entropy a letter, by how often each occurs. Words and paths have fewer, generated keys more."""


_DIGITS_OF_A_SECRET = 3
"""Names of policies and classes have fewer."""


def redacted(text: str, known: Collection[str] = ()) -> str:
    """Returns the text without accounts, ARNs, addresses, hosts, ids, tokens and ``known`` texts."""
    # Other forms of letters and digits, and signs that nobody sees, would hide what they stand for.
    text = "".join(sign for sign in unicodedata.normalize("NFKC", text) if unicodedata.category(sign) != "Cf")
    for name in sorted({one for one in known if len(one) >= _SHORTEST}, key=len, reverse=True):
        text = re.sub(re.escape(name), NAME, text, flags=re.IGNORECASE)
    for pattern, instead in _RULES:
        text = pattern.sub(instead, text)
    text = _CANDIDATE.sub(lambda found: ADDRESS if _is_address(found[0]) else found[0], text)
    return _WORD.sub(lambda found: SECRET if _is_random(found[0]) else found[0], text)


def redacted_document(value: Any, known: Collection[str] = ()) -> Any:
    """Returns a document of JSON with every text in it redacted, keys and numbers among them."""
    if isinstance(value, str):
        return redacted(value, known)
    if isinstance(value, Mapping):
        return {redacted(str(key), known): redacted_document(one, known) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [redacted_document(one, known) for one in value]
    if isinstance(value, int | float) and not isinstance(value, bool):
        digits = f"{value:.0f}" if math.isfinite(value) else ""
        return ACCOUNT if len(digits.lstrip("-")) == 12 else value
    return value


def _is_address(text: str) -> bool:
    plain = text.partition("/")[0].partition("%")[0]
    host, _, port = plain.rpartition(":")
    for one in (plain, plain.strip(".:"), host if port.isdigit() else plain):
        try:
            ipaddress.ip_address(one)
            return True
        except ValueError:
            continue
    return False


def _is_random(word: str) -> bool:
    """Whether a word looks made by a generator: long, of letters and digits, and hardly any sign twice."""
    if re.fullmatch(r"[0-9a-f]{32,}", word):
        return True
    if len(re.findall(r"\d", word)) < _DIGITS_OF_A_SECRET or not (re.search(r"[A-Z]", word) and re.search(r"[a-z]", word)):
        return False
    counts = [word.count(sign) / len(word) for sign in set(word)]
    return -sum(share * math.log2(share) for share in counts) >= _BITS_OF_A_SECRET


SCHEMA = 1
KIND = "eks-inference first flight"

PACKAGES = ("eks-inference", "pulumi", "pulumi-aws", "pulumi-eks", "pulumi-kubernetes")

COLUMNS: Mapping[str, frozenset[str]] = {
    "time": frozenset({"action", "type", "what", "seconds"}),
    "pull": frozenset({"image", "seconds", "gb"}),
    "answer": frozenset({"first_token_s"}),
    "load": frozenset({"tool", "model", "type", "chips", "users", "completed", "failed", "output_tokens_per_s"})
    | frozenset({"input_tokens", "output_tokens"})
    | frozenset(f"{name}_{statistic}" for name in LOAD_METRICS for statistic in LOAD_STATISTICS),
    "capacity": frozenset({"type", "cpu", "memory_mib", "aws.amazon.com/neuron", "aws.amazon.com/neuroncore", "nvidia.com/gpu"})
    | frozenset({"vpc.amazonaws.com/efa"}),
    "version": frozenset({"what", "value"}),
    "image": frozenset({"image", "started", "why"}),
    "metric": frozenset({"name"}),
    "price": frozenset({"item", "sold", "region", "usd", "unit"}),
    "account": frozenset({"topic", "facts"}),
}
"""The kinds of rows, and what each may have beside ``kind`` and ``date``. Nothing else gets into a bundle."""


def bundle_of(
    journal: Journal,
    legs: Sequence[Leg],
    *,
    region: str,
    now: float,
    landing: str,
    tools: Mapping[str, str],
    prices: OwnPrices,
    known: Collection[str] = (),
) -> dict[str, Any]:
    """Returns the document of a flight.

    ``tools`` are versions of commands. ``known`` are texts that must not be in it, such as names of the stack and of the user.
    """
    date = datetime.fromtimestamp(now, UTC).date().isoformat()
    by_name = {leg.name: leg for leg in legs}
    found = {
        "date": date,
        "region": region,
        "landing": landing,
        "usd_by_price_list": round(spent(journal.spans, now), 2),
        "versions": {**{name: version(name) for name in PACKAGES}, **tools},
        "rungs": [
            {
                "rung": passed.rung,
                "outcome": passed.outcome,
                "seconds": round(passed.seconds),
                "expected": _expected(by_name.get(passed.rung)),
                "words": list(passed.words),
            }
            for passed in journal.passed
        ],
        "rows": [*map(_row, journal.rows), *_price_rows(prices, region, date)],
    }
    # JSON first: what was read from an account may have values of any type.
    plain = json.loads(json.dumps(found, default=str))
    return {"kind": KIND, "schema": SCHEMA, **redacted_document(plain, known)}


def _expected(leg: Leg | None) -> dict[str, Any]:
    if leg is None or not leg.deployments:
        return {}
    seconds = {"low": round(leg.climb.low), "p50": round(leg.climb.p50), "high": round(leg.climb.high)}
    return {"seconds": seconds, "at_least": bool(leg.climb.untimed), "usd_per_hour": round(leg.usd_per_hour, 4)}


def _row(row: Mapping[str, Any]) -> dict[str, Any]:
    price = row.get("facts", {}).get("price")
    if price:
        row = {"kind": "price", "sold": price["key"], **price, "date": row["date"]}
    allowed = COLUMNS.get(str(row.get("kind")), frozenset()) | {"kind", "date"}
    return {key: value for key, value in row.items() if key in allowed}


def _price_rows(prices: OwnPrices, region: str, date: str) -> list[dict[str, Any]]:
    """The user's own prices: they may be those that the account was told."""
    found: list[dict[str, Any]] = []
    for item, own in prices.get(region, {}).items():
        for sold in ("on_demand", "spot", "reserved", "usd"):
            if (usd := getattr(own, sold)) is not None:
                row = {"kind": "price", "item": item, "sold": sold, "region": region, "usd": usd, "date": date}
                found.append(row | ({} if sold == "usd" else {"unit": HOUR}))
    return found


MOST_BYTES = 8 << 20
MOST_ROWS = 20_000
_NUMBERS = frozenset({"seconds", "gb", "first_token_s", "cpu", "memory_mib", "usd"}) | {
    *(name for name in COLUMNS["capacity"] if "/" in name),
    *COLUMNS["load"] - {"tool", "model", "type"},
}
_LARGEST = 1e15
_OPTIONAL = {"why", "unit"}
_NEEDED = {"capacity": {"type"}, "load": {"tool"}}
"""Needed columns of kinds that seldom have all. Other kinds need every column that is not optional."""


def read_bundle(path: Path) -> Mapping[str, Any]:
    """Returns a bundle. Raises ``ProblemsFound`` for a file that is none, with every row that is wrong."""
    shown = str(path)
    try:
        found = json.loads(content(path, MOST_BYTES))
    except (ValueError, RecursionError) as error:
        raise ProblemsFound([Problem(f"not JSON: {error}", shown)]) from None
    hint = "`eks-inference first-flight STACK` writes one"
    if not isinstance(found, dict) or found.get("kind") != KIND:
        raise ProblemsFound([Problem("not a bundle of a first flight", shown, hint=hint)])
    if found.get("schema") != SCHEMA:
        raise ProblemsFound(
            [Problem("a bundle of another release", shown, given=str(found.get("schema"))[:40], allowed=str(SCHEMA))]
        )
    rows = found.get("rows")
    if not isinstance(rows, list) or len(rows) > MOST_ROWS:
        raise ProblemsFound([Problem("rows: must be a list", shown, allowed=f"at most {MOST_ROWS:,} rows")])
    problems = [Problem(why, shown, key=f"rows[{number}]") for number, row in enumerate(rows) if (why := _wrong(row))]
    if problems:
        raise ProblemsFound(problems[:20])
    return found


def _wrong(row: Any) -> str:
    """What is wrong with a row; empty if nothing is."""
    if not isinstance(row, dict) or (columns := COLUMNS.get(str(row.get("kind")))) is None:
        return f"must be an object with a kind: {', '.join(COLUMNS)}"
    try:
        date.fromisoformat(row["date"])
    except (KeyError, TypeError, ValueError):
        return "date: must be a day, YYYY-MM-DD"
    if unknown := row.keys() - columns - {"kind", "date"}:
        return f"has unknown columns: {', '.join(sorted(unknown))[:80]}"
    if missing := _NEEDED.get(row["kind"], columns - _OPTIONAL) - row.keys():
        return f"lacks columns: {', '.join(sorted(missing))}"
    return next((why for key in sorted(columns & row.keys()) if (why := _wrong_value(key, row[key]))), "")


def _wrong_value(key: str, value: Any) -> str:
    if key in _NUMBERS:
        good = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= _LARGEST
        return "" if good else f"{key}: must be a number from 0 to {_LARGEST:g}"
    if key == "started":
        return "" if isinstance(value, bool) else "started: must be true or false"
    if key == "facts":
        return "" if isinstance(value, dict) else "facts: must be an object"
    return "" if isinstance(value, str) and len(value) <= 1000 else f"{key}: must be a text of at most 1000 characters"
