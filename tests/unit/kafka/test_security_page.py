"""`docs/SECURITY.md` says the numbers that are in force, and the pages about security say nothing that is over."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from replog.access.credentials import SaslMechanism
from replog.broker.node.client_ports import READING_BYTES
from replog.config.server_keys import KEYS
from replog.protocol.login import FRAMES_MAX
from replog.tcp.connection import CHECK_S, ConnectionLimits
from replog.tcp.listener import WRITING_BYTES, ListenerLimits
from replog.tcp.tls import HANDSHAKE_BYTES_MAX, HANDSHAKES_PER_TURN, HANDSHAKES_TURN_S, TURN_BYTES
from replog.tcp.tls_settings import TlsVersion

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "SECURITY.md").read_text(encoding="utf-8")
HELD = PAGE[PAGE.index("## What a stranger can hold") :]

ROOM = ListenerLimits()
CONNECTION = ConnectionLimits()
LOGIN_BYTES, DELAY_MS = (
    KEYS[name].default for name in ("sasl.server.max.receive.size", "connection.failed.authentication.delay.ms")
)


def row(name: str) -> str:
    """The line of the table about what may be held of something."""
    (found,) = re.findall(rf"^\| {name} \| (.*) \|$", HELD, re.MULTILINE)
    return str(found)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("connections", [f"{ROOM.unknown_max:,}", f"{ROOM.unknown_max // 2} from one address"]),
        ("time", [f"after {CONNECTION.first_request_s:.0f} it ends", f"come every {CHECK_S:.0f}"]),
        ("time", [f"{CONNECTION.first_request_s + CHECK_S:.0f} seconds from the connection"]),
        ("bytes", [f"{HANDSHAKE_BYTES_MAX >> 10} KiB of a handshake", f"{FRAMES_MAX} requests of a login"]),
        ("bytes", [f"`sasl.server.max.receive.size` ({int(str(LOGIN_BYTES)) >> 10} KiB)"]),
        ("guesses", [f"`connection.failed.authentication.delay.ms` ({DELAY_MS})"]),
        (
            "the loop",
            [
                f"{HANDSHAKES_TURN_S * 1_000:.0f} ms of handshakes and one more, {HANDSHAKES_PER_TURN} at most",
                f"{TURN_BYTES >> 20} MiB of an answer",
            ],
        ),
    ],
)
def test_what_a_stranger_can_hold(name: str, said: list[str]) -> None:
    assert [text for text in said if text not in row(name)] == []


def test_what_one_who_is_known_can_hold() -> None:
    said = [
        f"{ROOM.connections_max:,} connections and {ROOM.connections_per_address_max:,} from one address",
        f"frames of {CONNECTION.frame_bytes_max >> 20} MiB and of {CONNECTION.recordless_bytes_max >> 20} MiB without records",
        f"{WRITING_BYTES >> 20} MiB of answers",
    ]
    assert [text for text in said if text not in HELD] == []
    assert CONNECTION.stalled_s == 60, "what does not move for a minute ends"
    assert READING_BYTES == 128 << 20


def test_the_pages_name_all_there_is() -> None:
    assert [each.value for each in SaslMechanism if f"`{each.value}`" not in PAGE] == []
    assert " and ".join(each.value.removeprefix("TLSv") for each in TlsVersion) in PAGE
    listeners = [
        name for name in KEYS if name == "listeners" or (name.endswith(".listener") and "advertised" not in name)
    ]
    assert [name for name in listeners if f"`{name}`" not in PAGE] == []


def test_the_policy_names_the_ways_to_log_in_and_the_keys_that_ask_for_them() -> None:
    policy = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    named = re.findall(r"`([a-z.]+\.[a-z.]+)(?: = [^`]*)?`", policy)
    assert [name for name in named if name not in KEYS and name != "pyproject.toml"] == []
    assert {"authorizer.class.name", "allow.insecure", "sasl.enabled.mechanisms"} <= set(named)
