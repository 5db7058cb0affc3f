"""What a node prints for log collectors: each event of a partition with its parts."""

from __future__ import annotations

import io
import json
import logging
import sys
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from replog.broker.replicas import partition_events
from replog.config.log_output import LoggingFormat, set_format
from replog.config.server import ServerConfig
from replog.errors import ConfigError
from replog.metadata.registrations import PartitionRegistration
from replog.replication.messages import IsrChanged, PartitionState, TruncateFullyAndStartAt, TruncateTo

PARTITION = "flights-0"
REGISTRATION = PartitionRegistration((1, 2), (1, 2), leader=2, leader_epoch=4, partition_epoch=9)

STATE = PartitionState(1, 5, 10, (1, 2), (2,), (), 1, {})


@pytest.fixture
def printed() -> Iterator[io.StringIO]:
    """What the root logger's one handler prints."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    output = io.StringIO()
    root.handlers[:] = [logging.StreamHandler(output)]
    root.setLevel(logging.INFO)
    yield output
    root.handlers[:] = handlers
    root.setLevel(level)


def objects(output: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.getvalue().splitlines()]


def test_events_carry_their_parts(printed: io.StringIO) -> None:
    set_format(LoggingFormat.JSON, 7)
    partition_events.leads(PARTITION, STATE, 17, "broker 1 is fenced")
    partition_events.leads_on(PARTITION, 6, "broker 2 was elected again")
    partition_events.follows(PARTITION, REGISTRATION, "broker 1 is fenced")
    partition_events.has_no_leader(PARTITION, 7, "broker 2 is fenced")
    partition_events.isr_changed(PARTITION, IsrChanged((1, 2), (2,), "replica 1 is slow"))
    partition_events.truncated(PARTITION, 9, TruncateTo(3, "epoch 4 ends at 3"))
    partition_events.starts_again(PARTITION, 1, 9, TruncateFullyAndStartAt(20, "the leader starts at 20"))
    told = objects(printed)
    kept = ("timestamp", "logger", "message", "partition", "level", "node")
    parts = [{name: value for name, value in line.items() if name not in kept} for line in told]
    assert parts == [
        {"event": "leads", "leader_epoch": 5, "log_end_offset": 17, "isr": [2], "reason": "broker 1 is fenced"},
        {"event": "leads_on", "leader_epoch": 6, "reason": "broker 2 was elected again"},
        {"event": "follows", "leader": 2, "leader_epoch": 4, "reason": "broker 1 is fenced"},
        {"event": "no_leader", "leader_epoch": 7, "reason": "broker 2 is fenced"},
        {"event": "isr", "isr": [2], "isr_before": [1, 2], "reason": "replica 1 is slow"},
        {"event": "truncated", "offset": 3, "log_end_offset": 9, "reason": "epoch 4 ends at 3"},
        {
            "event": "starts_again",
            "offset": 20,
            "log_start_offset": 1,
            "log_end_offset": 9,
            "reason": "the leader starts at 20",
        },
    ]
    assert {(line["partition"], line["node"]) for line in told} == {(PARTITION, 7)}
    assert told[0]["message"] == "flights-0: leads in epoch 5 from offset 17, ISR [2]: broker 1 is fenced"
    assert told[3]["level"] == "WARNING"
    assert told[0]["timestamp"].endswith("+00:00")


def test_a_failure_is_one_line_too(printed: io.StringIO) -> None:
    set_format(LoggingFormat.JSON, 7)
    try:
        int("no such thing")
    except ValueError:
        logging.getLogger("replog.broker").exception("a bug")
    (line,) = objects(printed)
    assert (line["level"], line["logger"], line["message"]) == ("ERROR", "replog.broker", "a bug")
    assert "ValueError: invalid literal" in line["exception"]


def test_text_is_for_people(printed: io.StringIO) -> None:
    set_format(LoggingFormat.TEXT, 7)
    partition_events.has_no_leader(PARTITION, 7, "broker 2 is fenced")
    assert printed.getvalue().endswith(
        "WARNING replog.broker.replicas.partition_events: flights-0: has no leader in epoch 7: broker 2 is fenced\n"
    )


def test_without_the_library_the_configuration_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("pythonjsonlogger")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pythonjsonlogger", None)
    with pytest.raises(ConfigError, match=r"logging.format=json .*pip install .*python-json-logger"):
        set_format(LoggingFormat.JSON, 7)


def test_the_key() -> None:
    minimal = {"node.id": 1, "log.dirs": ["/d"], "cluster.id": str(UUID(int=1)), "listeners": ["127.0.0.1:0"]}
    assert ServerConfig.from_mapping(minimal).logging_format is LoggingFormat.TEXT
    assert ServerConfig.from_mapping({**minimal, "logging.format": "json"}).logging_format is LoggingFormat.JSON
    with pytest.raises(ConfigError, match=r"logging\.format"):
        ServerConfig.from_mapping({**minimal, "logging.format": "xml"})
