"""What `replog groups` prints of groups, members and lags."""

from __future__ import annotations

import io
import json

from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console

from replog.cli.views.groups import (
    headline,
    lag_json,
    lag_metrics,
    lag_screen,
    lag_table,
    lag_words,
    listed,
    members_table,
    partitions_text,
)
from replog.client import GroupDescription, MemberDescription, PartitionLag, TopicPartition
from replog.coordinator.describing.requests import GroupType, ListedGroup

READS = tuple(TopicPartition("t", number) for number in (0, 1, 2, 5))
MEMBER = MemberDescription("m-1", None, "app\x1b[2J", "10.0.0.1", 3, READS)
GROUP = GroupDescription("g", GroupType.CONSUMER, "consumer", "Stable", 2, 4, 3, "uniform", (MEMBER,))
LAGS = (PartitionLag("t", 0, 1_000, 3_500, 2_500, MEMBER, 199_001), PartitionLag("t", 1, None, None, None, None))


def rendered(what: object) -> list[list[str]]:
    file = io.StringIO()
    Console(file=file, width=200).print(what)
    return [line.split() for line in file.getvalue().splitlines()]


def test_groups_are_listed_under_one_another() -> None:
    groups = [
        ListedGroup("g", "consumer", "Stable", GroupType.CONSUMER),
        ListedGroup("long", "", "Empty", GroupType.CLASSIC),
    ]
    assert list(listed(groups)) == ["group  type      state", "g      consumer  Stable", "long   classic   Empty"]


def test_a_name_cannot_write_over_the_screen() -> None:
    odd = ListedGroup("a\x1b[2J\n", "", "Empty", GroupType.CLASSIC)
    assert list(listed([odd]))[1].startswith("'a\\x1b[2J\\n'")
    assert "\x1b" not in str(rendered(members_table([MEMBER])))


def test_a_group_in_a_line() -> None:
    assert headline(GROUP) == (
        "g: Stable, 1 member with 4 partitions of 1 topic, consumer protocol, assigned by uniform, epoch 4, target epoch 3, "
        "coordinated by broker 2"
    )
    connect = GroupDescription("c", GroupType.CLASSIC, "connect", "Empty", 1, None, None, "", ())
    assert headline(connect) == "c: Empty, 0 members, classic protocol, of connect, coordinated by broker 1"


def test_partitions_in_a_row_are_a_range() -> None:
    assert partitions_text(READS) == "t:0-2,5"
    assert partitions_text([TopicPartition("u", 1), TopicPartition("t", 0), TopicPartition("u", 0)]) == "t:0 u:0,1"
    assert partitions_text(()) == "-"


def test_lags() -> None:
    assert rendered(lag_table(LAGS))[1:] == [
        ["t-0", "1,000", "3,500", "2,500", "3", "min", "20", "s", "m-1"],
        ["t-1", "-", "-", "-", "-", "nobody"],
    ]
    assert lag_words("g", LAGS[:1]) == "g: 2,500 behind in 1 partition, for 3 min 20 s"
    assert lag_words("g", LAGS).endswith("; not known in 1 partition: no committed offset, or no leader")
    assert lag_words("g", ()) == "g: no committed offsets, and nobody reads"
    assert rendered(lag_screen({"g": LAGS[:1], "h": ()})) == [
        *rendered(lag_table(LAGS[:1])),
        lag_words("g", LAGS[:1]).split(),
        lag_words("h", ()).split(),
    ]
    told = json.loads(lag_json("g", LAGS))
    assert (told["lag"], told["lag_ms"]) == (2_500, 199_001)
    assert ([each["lag_ms"] for each in told["partitions"]], [each["owner"] for each in told["partitions"]]) == (
        [199_001, None],
        ["m-1", None],
    )


def test_lags_as_prometheus_reads_them() -> None:
    families = text_string_to_metric_families("\n".join(lag_metrics({'a "b"\n\\': LAGS})) + "\n")
    found = [(sample.name, sample.labels, sample.value) for family in families for sample in family.samples]
    labels = {"group": 'a "b"\n\\', "topic": "t", "partition": "0"}
    assert found == [("replog_group_lag_records", labels, 2_500), ("replog_group_lag_seconds", labels, 199.001)]
