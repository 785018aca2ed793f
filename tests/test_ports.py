"""What tests rest on that run programs: ports that nobody else takes, and waits that tell what they saw last."""

import subprocess
import sys
from pathlib import Path

import pytest

import ports
import waiting
from asking import in_loop


def test_no_other_process_of_tests_gets_a_port(monkeypatch: pytest.MonkeyPatch) -> None:
    few = range(ports._PORTS[0], ports._PORTS[0] + 40)
    monkeypatch.setattr(ports, "_PORTS", few)
    mine = ports.free_ports(5)
    program = f"import ports; ports._PORTS = {few!r}; print(*(port for port in {few!r} if ports._claimed('127.0.0.1', port)))"
    done = subprocess.run([sys.executable, "-c", program], cwd=Path(ports.__file__).parent, capture_output=True, check=True)
    theirs = [int(port) for port in done.stdout.split()]
    assert len({*mine}) == 5
    assert theirs
    assert not {*mine} & {*theirs, *ports.free_ports(5)}


def test_a_network_is_one_processs() -> None:
    first, second = ports.own_addresses(), ports.own_addresses()
    found = [next(one) for one in (first, first, second)]
    assert len({address.split(".")[1] for address in found}) == 2
    assert len({*found}) == 3


@in_loop
async def test_who_waits_in_vain_is_told_what_was_seen_last() -> None:
    seen = iter(range(1000))
    assert waiting.until(lambda: next(seen), lambda number: number == 3) == 3
    with pytest.raises(AssertionError, match=r"not within 0\.01 s; seen last: '\[503\]'"):
        await waiting.until_in_loop(lambda: [503], lambda statuses: statuses == [200], within_s=0.01)
