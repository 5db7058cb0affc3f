"""Records from the command line and back: with a broker in this process, and the commands, too."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from cli_runs import Done, replog_here

import replog
from replog.client import SyncAdmin, SyncProducer

pytestmark = pytest.mark.cluster


class Commands:
    """The commands for one broker."""

    def __init__(self, servers: str) -> None:
        self.servers = servers

    def __call__(self, *arguments: object, stdin: str = "") -> Done:
        return replog_here(*arguments, "-b", self.servers, stdin=stdin)

    def good(self, *arguments: object, stdin: str = "") -> str:
        done = self(*arguments, stdin=stdin)
        assert (done.status, done.err) == (0, "")
        return done.out


@pytest.fixture(scope="module")
def commands() -> Iterator[Commands]:
    with replog.embedded(config={"log.retention.ms": -1}) as broker:
        yield Commands(broker.bootstrap_servers)


@pytest.fixture(scope="module")
def timed(commands: Commands) -> str:
    """A topic with a record at each of ten seconds of 2020."""
    with SyncAdmin(commands.servers) as admin, SyncProducer(commands.servers) as producer:
        admin.create_topic("timed")
        for second in range(10):
            time_ms = int(datetime(2020, 1, 1, 0, 0, second, tzinfo=UTC).timestamp()) * 1000
            producer.send("timed", b"value %d" % second, b"key %d" % (second % 3), timestamp_ms=time_ms)
        producer.flush()
    return "timed"


@pytest.mark.parametrize(
    ("places", "offsets"),
    [
        (["--from", "3", "--until", "5"], "34"),
        (["--from", "latest-2"], "89"),
        (["--from", "-1d"], ""),
        (["--until", "-1d", "--from", "8"], "89"),
        (["--from", "2020-01-01T00:00:07Z", "--until", "2020-01-01T01:00:09+01:00"], "78"),
        (["--until", "earliest+2"], "01"),
        (["--from", "5", "--until", "5"], ""),
        (["--until", "end", "--max", "1", "--from", "9"], "9"),
        (["--until", "999"], "0123456789"),
        (["--from", "end"], ""),
        (["--grep", "key 1"], "147"),
        (["--grep", "ue 2", "--from", "1", "--until", "latest"], "2"),
        (["--grep", "value", "--max", "2"], "01"),
        (["--grep", "nothing"], ""),
    ],
)
def test_what_is_read(commands: Commands, timed: str, places: list[str], offsets: str) -> None:
    assert commands.good("consume", timed, "--format", "%o", *places).split() == list(offsets)


def test_an_offset_that_is_not_there_yet_is_told(commands: Commands, timed: str) -> None:
    done = commands("consume", timed, "--from", "11", "--until", "12")
    assert (done.status, done.err) == (1, "error: timed-0 ends at offset 10; there is no offset 11 yet\n")
    assert json.loads(commands.good("consume", timed, "--json", "--from", 9))["value"] == "value 9"
