"""What the load of `replog chaos` remembers of a topic that was deleted."""

from __future__ import annotations

from replog.testing.history import AnomalyKind
from replog_chaos.load import Load

TOPIC = "recreated"


def deleted_after(*values: bytes) -> Load:
    """A load whose values were acknowledged at offsets 0, 1, ... of partition 0 before the topic was deleted."""
    load = Load("127.0.0.1:1", TOPIC, 1, 1)
    for offset, value in enumerate(values):
        load.history.send("p", value).acknowledged((TOPIC, 0), offset)
    assert load.bury("recreated (deleted)") == len(values)
    return load


def test_what_is_gone_with_its_topic_is_not_lost() -> None:
    load = deleted_after(b"a", b"b")
    load.history.send("p", b"c").acknowledged((TOPIC, 0), 0)
    load.history.final_read((TOPIC, 0), 0, 1, [(0, b"c")])
    assert load.history.check() == ()


def test_a_record_of_the_old_topic_in_the_new_one_is_found() -> None:
    load = deleted_after(b"a", b"b")
    load.history.final_read((TOPIC, 0), 0, 2, [(0, b"a"), (1, b"b")])
    assert [anomaly.kind for anomaly in load.history.check()] == [AnomalyKind.DUPLICATE] * 2


def test_what_was_acknowledged_in_the_new_topic_must_be_there() -> None:
    load = deleted_after(b"a")
    load.history.send("p", b"c").acknowledged((TOPIC, 0), 0)
    load.history.final_read((TOPIC, 0), 0, 0, [])
    assert [anomaly.kind for anomaly in load.history.check()] == [AnomalyKind.UNSEEN]
