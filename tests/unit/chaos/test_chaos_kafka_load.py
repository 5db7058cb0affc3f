"""What the load of librdkafka's clients takes for news, and what for the end; without a broker."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from replog.testing.history import AnomalyKind, History
from replog_chaos.kafka_load import LAST, NAME, OUT_OF_RANGE, KafkaLoad

confluent_kafka = pytest.importorskip("confluent_kafka")

TOPIC = "chaos"


class Told:
    """A message of librdkafka's consumer: a record, or an error."""

    def __init__(self, offset: int = 0, value: bytes = b"", error: Any = None) -> None:
        self.partition, self.offset, self.value, self.error = (
            (lambda: 0),
            (lambda: offset),
            (lambda: value),
            (lambda: error),
        )


class Fault:
    def __init__(self, name: str, *, fatal: bool = False) -> None:
        self.name, self.fatal = (lambda: name), (lambda: fatal)


class Scripted:
    """A consumer that is handed these."""

    def __init__(self, *told: Told) -> None:
        self.told = list(told)

    def consume(self, count: int, timeout_s: float) -> list[Told]:
        handed, self.told = self.told[:count], self.told[count:]
        return handed


def load_of(history: History) -> KafkaLoad:
    return KafkaLoad("127.0.0.1:1", TOPIC, 1, 1, history)


def test_what_our_client_reads_and_theirs_does_not_is_found() -> None:
    history = History()
    for offset, value in enumerate((b"a", b"b", b"c")):
        history.send("p", value).acknowledged((TOPIC, 0), offset)
    history.final_read((TOPIC, 0), 0, 3, [(0, b"a"), (1, b"b"), (2, b"c")])
    assert load_of(history)._poll(Scripted(Told(0, b"a"), Told(2, b"c")), LAST) == 2
    assert [anomaly.kind for anomaly in history.check()] == [AnomalyKind.POLL_SKIP]


def test_a_broker_that_is_away_is_no_end() -> None:
    load = load_of(History())
    assert load._poll(Scripted(Told(error=Fault("_TRANSPORT")), Told(0, b"a")), NAME) == 1


@pytest.mark.parametrize("fault", [Fault(OUT_OF_RANGE), Fault("ANY", fatal=True)])
def test_a_place_that_is_gone_and_what_is_fatal_are_the_end(fault: Fault) -> None:
    with pytest.raises(confluent_kafka.KafkaException):
        load_of(History())._poll(Scripted(Told(error=fault)), NAME)


async def test_what_was_stored_nobody_knows_where_must_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    load = load_of(History())
    for value, error in ((b"there", None), (b"lost", None), (b"unknown", Fault("_TIMED_OUT"))):
        answered: Any = Told(error=error)
        answered.offset = lambda: None
        load._delivered(asyncio.get_running_loop(), load.history.send(NAME, value), 0.0, error, answered)
    monkeypatch.setattr(load, "_read_to", lambda _ends: load.history.poll(LAST, (TOPIC, 0), [(0, b"there")]))
    (missing,) = await load.read_the_same({0: 1})
    assert "b'lost' was acknowledged and was never readable" in missing.detail
    assert load.stored == [b"there", b"lost"]
    assert dict(load.unknown_because) == {"librdkafka: _TIMED_OUT": 1}
