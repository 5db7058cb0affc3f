"""What is looked after of writers that are gone: which decisions are carried out, and whose records go."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="the extra replog[spark] is not installed")

from replog.errors import RequestTimedOutError
from replog.spark.options.brokers import Brokers
from replog.spark.sink.once import others
from replog.spark.sink.once.decisions import Decision, Prepared, encode
from replog.spark.sink.once.names import Version
from replog.spark.sink.once.others import DROPPED_MAX, KEPT_MS, Left

RUN = "a" * 32
NOW_MS = 10 * KEPT_MS


def left_by(*records: tuple[bytes, bytes | None, int]) -> dict[str, Left]:
    found: dict[str, Left] = {}
    for key, value, timestamp_ms in records:
        others._note(found, key, value, timestamp_ms)
    return found


def test_a_record_that_is_no_decision_hides_no_others() -> None:
    key, value = encode(Decision(Version("app:etl", 7), RUN, None))
    found = left_by((b"somebody", b"x", 1), (b"\xff", value, 1), (key, value, 2), (b"app:etl/read", b"y", 3))
    assert (found["app:etl"].last_ms, found["app:etl"].keys) == (3, {key, b"app:etl/read"})
    assert found["app:etl"].decision == Decision(Version("app:etl", 7), RUN, None)
    assert [each.decision for name, each in found.items() if name != "app:etl"] == [None, None]


def test_only_writes_without_a_name_go_that_have_ended_long_ago() -> None:
    old, new = NOW_MS - KEPT_MS, NOW_MS - KEPT_MS + 1

    def records(writer: str, *, is_done: bool, timestamp_ms: int) -> list[tuple[bytes, bytes | None, int]]:
        decision = Decision(Version(writer, 0), RUN, (Prepared(1, 2, 3),))
        key, value = encode(decision.done() if is_done else decision)
        return [(key, value, timestamp_ms), (key + b"/read", b"y", timestamp_ms)]

    found = left_by(
        *records("save:old", is_done=True, timestamp_ms=old),
        *records("save:new", is_done=True, timestamp_ms=new),
        *records("save:open", is_done=False, timestamp_ms=old),
        *records("write:named", is_done=True, timestamp_ms=old),
        *records("save:gone", is_done=True, timestamp_ms=old),
        (b"save:gone", None, old),
        (b"save:gone/read", None, old),
        (b"save:undecided/read", b"y", old),
    )
    assert others._nobodys(found, NOW_MS) == {
        "save:old": {b"save:old", b"save:old/read"},
        "save:undecided": {b"save:undecided/read"},
    }
    many = {f"save:{number}": Left({b"x"}, old) for number in range(DROPPED_MAX + 1)}
    assert len(others._nobodys(many, NOW_MS)) == DROPPED_MAX


async def test_what_cannot_be_looked_after_fails_no_write(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Goal: of two decisions whose drivers are gone the first one cannot be carried out, and the second one is."""
    decisions = {name: Decision(Version(name, 0), RUN, (Prepared(1, 2, 3),)) for name in ("app:a", "app:b", "app:new")}
    found = {name: Left({name.encode()}, 0, decision) for name, decision in decisions.items()}
    found["app:new"].last_ms = 2**62
    asked: list[str] = []

    async def read(_brokers: Brokers) -> dict[str, Left]:
        return found

    async def finish(_brokers: Brokers, writer: str) -> None:
        asked.append(writer)
        if writer == "app:a":
            raise RequestTimedOutError("no broker answers")

    monkeypatch.setattr(others, "_read_all", read)
    monkeypatch.setattr(others, "finish_at_brokers", finish)
    await others._look_after("127.0.0.1:1")
    assert asked == ["app:a", "app:b"]
    assert "version 0 of app:a had been decided, its driver has gone, and nobody can do the rest" in caplog.text
    assert "version 0 of app:b had been decided, and its driver has gone: it is there now" in caplog.text
