"""Takes out of texts and documents whatever belongs to an account, a person or a machine. Pure.

It takes out too much rather than too little: what looks like a secret is one. Formats: AWS General Reference ("ARN format"), IAM
user guide ("Unique identifiers"), EC2 user guide ("Resource IDs"), Hugging Face Hub and Pulumi access tokens, RFC 7519 (JWT).
"""

import ipaddress
import math
import re
import unicodedata
from collections.abc import Collection, Mapping
from typing import Any

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
"""Of a letter, by how often each occurs: words and paths have less, keys that a generator made have more."""


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
