"""Ports and addresses on loopback that a process of tests has for itself: nobody takes them before its programs listen there.

A port that the kernel called free may be taken a moment later, by whoever opens a connection or by tests beside these. The ports
here are below those that kernels give to connections (Linux: from 32,768; macOS: from 49,152), and a socket that lives as long as
this process claims each of them.
"""

import itertools
import random
import socket
from collections.abc import Iterator

_PORTS = range(20_000, 32_000)
_NETWORKS = range(10, 250)
_claims: list[socket.socket] = []


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1, and of every other address of this machine that other processes do not use."""
    found: list[int] = []
    for port in random.SystemRandom().sample(_PORTS, len(_PORTS)):
        if len(found) == count:
            break
        # Claimed first: who looks whether a port is free listens there for a moment, in which its owner may begin to.
        if _claimed("127.0.0.1", port) and _is_free(port):
            found.append(port)
    assert len(found) == count, "no port is free"
    return found


def own_addresses() -> Iterator[str]:
    """Addresses of a network, for servers whose port cannot be chosen. Every address of 127.0.0.0/8 is this machine (Linux)."""
    networks = random.SystemRandom().sample(_NETWORKS, len(_NETWORKS))
    own = next(network for network in networks if _claimed(f"127.{network}.255.254", _PORTS[0]))
    return (f"127.{own}.{number >> 8}.{number & 255}" for number in itertools.count(1))


def _is_free(port: int) -> bool:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


def _claimed(address: str, port: int) -> bool:
    """Whether this process is the first to claim a port. The claim is of UDP, so it is in no server's way."""
    claim = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        claim.bind((address, port))
    except OSError:
        claim.close()
        return False
    _claims.append(claim)
    return True
