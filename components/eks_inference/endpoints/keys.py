"""Writes the files with keys that Envoy reads and watches. Pure functions; no pulumi.

Both files are parts of a Secret. Envoy takes a changed file without a restart, so keys rotate while streams flow: a client may
have several keys at once. Source: Envoy 1.40.0, xDS by path, api_key_auth and secrets.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from eks_inference.endpoints.proxy import CLIENT_HEADER, KEYS_FILTER, KEYS_TYPE, SERVER_KEY
from eks_inference.faults import Fault, SpecError

KEYS_FILE = "clients.json"
SERVER_KEY_FILE = "server.json"
SHORTEST_KEY = 16
"""Characters of a key; one that is shorter can be guessed."""

_CLIENT = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?(/[a-z0-9-]{1,20})?")
_KEY = re.compile(r"[\x21-\x7e]+")


def clients_file(keys: Mapping[str, str]) -> str:
    """Returns the file with the keys of clients.

    ``keys`` maps each client to its key. A second key of a client has the client's name with a part after a slash
    (``team-a/next``). Raises ``SpecError`` for names and keys that do not fit, and for a key that two clients have; no error
    tells a key.
    """
    if faults := list(key_faults(keys)):
        raise SpecError(faults)
    # Once for each key: Envoy refuses a file that has one twice, and writes the key into its log.
    clients = {key: name.partition("/")[0] for name, key in keys.items()}
    return _discovery(
        {
            "@type": "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig",
            "name": KEYS_FILTER,
            "typed_config": {
                "@type": KEYS_TYPE,
                "key_sources": [{"header": "Authorization"}],
                "credentials": [
                    {"key": key, "client": client} for key, client in sorted(clients.items(), key=lambda item: (item[1], item[0]))
                ],
                # A server never sees the key of a client.
                "forwarding": {"header": CLIENT_HEADER, "hide_credentials": True},
            },
        }
    )


def server_file(key: str) -> str:
    """Returns the file with the key that servers demand."""
    return _discovery(
        {
            "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret",
            "name": SERVER_KEY,
            "generic_secret": {"secret": {"inline_string": f"Bearer {key}"}},
        }
    )


def key_faults(keys: Any) -> Iterator[Fault]:
    """Yields a fault for each client that cannot have this name or key."""
    if not isinstance(keys, Mapping) or not keys:
        example = '{"team-a": "…", "team-a/next": "…"}'
        yield Fault((), "should be keys by client", allowed="a JSON object with one client or more", hint=f"such as {example}")
        return
    owners: dict[str, str] = {}
    for name, key in keys.items():
        client = str(name).partition("/")[0]
        if not isinstance(name, str) or not _CLIENT.fullmatch(name):
            allowed = "lower-case letters, digits and hyphens, at most 40; a further key has a part after a slash"
            yield Fault((), "this is no name of a client", given=str(name), allowed=allowed)
        elif not isinstance(key, str) or not _KEY.fullmatch(key):
            yield Fault((name,), "this is no key", allowed="a text of visible ASCII characters without blanks")
        elif len(key) < SHORTEST_KEY:
            hint = "openssl rand -hex 32 makes one"
            yield Fault((name,), "this key can be guessed", f"{len(key)} characters", f"at least {SHORTEST_KEY}", hint)
        elif owners.setdefault(key, client) != client:
            yield Fault((name,), f"client {owners[key]} has this key, too", hint="give each client keys of its own")


def parsed_keys(text: str) -> Mapping[str, str]:
    """Returns keys by client from a JSON object. Raises ``SpecError``, which tells no key."""
    try:
        found: Any = json.loads(text)
    except ValueError:
        found = None
    if faults := list(key_faults(found)):
        raise SpecError(faults)
    return found


def _discovery(resource: Mapping[str, Any]) -> str:
    """A file as Envoy reads it. Its version changes with its content."""
    content = json.dumps(resource, sort_keys=True)
    version = hashlib.sha256(content.encode()).hexdigest()[:16]
    return json.dumps({"version_info": version, "resources": [resource]}, indent=1) + "\n"
