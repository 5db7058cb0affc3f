"""`replog doctor`, with a broker in this process, and what it finds wrong of brokers that are made up."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from uuid import UUID

import pytest
from cli_runs import replog_here
from msgspec.structs import replace

import replog
from replog.cli.checks.cluster import Diagnosis, Heard, Level, bootstrap_findings, cluster_findings, worst
from replog.client.admin.health import BrokerHealth, BrokerStanding, ClusterHealth
from replog.rpc.node_messages import DescribeNodeResponse, DescribeQuorumResponse, LogDir, QuorumMember

pytestmark = pytest.mark.cluster

NOW_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with replog.embedded() as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def nobody() -> Iterator[str]:
    """An address at which nothing listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


def test_all_that_can_be_told_of_one_broker(servers: str) -> None:
    done = replog_here("doctor", "-b", servers, "--json")
    found = [json.loads(line) for line in done.out.splitlines()]
    assert (done.status, done.err, {each["level"] for each in found} - {"warn"}) == (
        0,
        "",
        {"ok"},
    )  # a disk may be full
    text = " ".join(f"{each['subject']}: {each['text']}" for each in found)
    told = (
        f"bootstrap: {servers} is reached", "has 1 broker", "node 1 leads the metadata quorum, 1 voter", "broker 1: its clock is right",
        f"broker 1: answers at {servers} in", "files open", "GB left", f"this command are {replog.__version__}", "partitions: 0 partitions",
    )  # fmt: skip
    assert [each for each in told if each not in text] == []


def test_who_cannot_be_reached_is_named(servers: str, nobody: str) -> None:
    done = replog_here("doctor", "-b", f"{servers},{nobody}")
    assert done.status == 0
    assert f"warn  bootstrap: nothing listens on {nobody}. Start what should listen there" in done.out
    done = replog_here("doctor", "-b", nobody)
    assert (done.status, done.err) == (1, "")
    assert done.out.startswith(f"wrong bootstrap: nothing listens on {nobody}. Start")


NODE = DescribeNodeResponse(
    1, UUID(int=1), "running", 1, "", 1, 1, 1, 1, wall_ms=NOW_MS, open_files=10, open_files_max=100
)
DISK = LogDir("/d", "", 50 << 30, (), (), 100 << 30)
HEARD = Heard(None, NODE, NOW_MS, 2.0, (DISK,))
BROKER = BrokerHealth(
    1,
    "10.0.0.1:9092",
    None,
    BrokerStanding.IN_SERVICE,
    is_drained=False,
    leaders_count=0,
    replicas_count=0,
    rss_bytes=0,
    version=replog.__version__,
)
VOTERS = tuple(
    QuorumMember(number, None, "", is_voter=True, log_end_offset=5, last_fetch_age_ms=0, last_caught_up_age_ms=0)
    for number in (1, 2, 3)
)
QUORUM = DescribeQuorumResponse(1, 1, 5, 0, 5, is_dynamic=True, members=VOTERS)
HEALTH = ClusterHealth("c", 5, (BROKER,), QUORUM, 1, 0, 0, 0, 0, 0, (), (), 0, ())


def judged(health: ClusterHealth = HEALTH, heard: Heard | None = HEARD, files_max: int = 1024) -> list[Diagnosis]:
    by_id = {} if heard is None else {1: heard}
    found = cluster_findings(["10.0.0.9:9092"], health, by_id, own_version=replog.__version__, own_files_max=files_max)
    return [each for each in found if each.level is not Level.OK]


def test_where_all_is_well_nothing_is_found() -> None:
    assert judged() == []
    assert worst([]) is Level.OK


@pytest.mark.parametrize(
    ("found", "level", "told"),
    [
        (judged(heard=replace(HEARD, node=replace(NODE, wall_ms=NOW_MS - 5_000))), "warn", "its clock is 5.0 s behind"),
        (
            judged(heard=replace(HEARD, node=replace(NODE, wall_ms=NOW_MS + 90_000))),
            "wrong",
            "its clock is 90.0 s ahead of",
        ),
        (judged(heard=replace(HEARD, node=replace(NODE, open_files=60))), "warn", "has 60 of at most 100 files open"),
        (judged(heard=replace(HEARD, node=replace(NODE, open_files=95))), "wrong", "has 95 of at most 100 files open"),
        (
            judged(heard=replace(HEARD, directories=(replace(DISK, free_bytes=1 << 29),))),
            "warn",
            "/d has 0.5 of 107.4 GB",
        ),
        (
            judged(heard=replace(HEARD, directories=(replace(DISK, free_bytes=1 << 20),))),
            "wrong",
            "/d has 0.0 of 107.4 GB",
        ),
        (judged(heard=replace(HEARD, directories=(replace(DISK, error="EIO"),))), "wrong", "/d is offline: EIO"),
        (judged(heard=replace(HEARD, directories="not now")), "warn", "does not tell its disks: not now"),
        (
            judged(heard=replace(HEARD, trouble="no such host:")),
            "wrong",
            "advertises 10.0.0.1:9092: no such host: that",
        ),
        (judged(heard=None), "wrong", "is in service"),
        (
            judged(replace(HEALTH, brokers=(replace(BROKER, address="127.0.0.1:1"),))),
            "wrong",
            "which is each client's own",
        ),
        (judged(replace(HEALTH, brokers=(replace(BROKER, state=BrokerStanding.FENCED),))), "warn", "and is fenced"),
        (
            judged(replace(HEALTH, brokers=(replace(BROKER, version="0.0"),))),
            "warn",
            "brokers run 0.0, and this command",
        ),
        (judged(replace(HEALTH, quorum=None)), "wrong", "the metadata quorum has no leader"),
        (judged(replace(HEALTH, quorum=replace(QUORUM, members=VOTERS[:2]))), "warn", "no more may be lost than of 1"),
        (judged(replace(HEALTH, partitions_count=3, under_replicated_count=1)), "warn", "1 under-replicated"),
        (judged(replace(HEALTH, partitions_count=3, unavailable_count=1)), "wrong", "1 without a leader"),
        (judged(files_max=60), "warn", "programs may have 60 files open"),
    ],
)
def test_what_is_found_has_a_level_and_an_advice(found: list[Diagnosis], level: str, told: str) -> None:
    assert [(each.level.value, bool(each.advice)) for each in found] == [(level, True)]
    assert told in found[0].text


def test_one_address_that_is_wrong_is_a_warning_while_another_serves() -> None:
    levels = [each.level for each in bootstrap_findings({"a:1": None, "b:1": "nothing listens on"})]
    assert levels == [Level.OK, Level.WARN]
    assert worst(list(bootstrap_findings({"a:1": "no such host:"}))) is Level.WRONG
