"""The sentence on top of `replog status`, and the lines below it."""

from __future__ import annotations

import io
from uuid import UUID

import pytest
from msgspec.structs import replace
from rich.console import Console

from replog.cli.commands.status import _as_json, _Changes
from replog.cli.views.health import facts, render, said, sentence
from replog.client.admin.awaited import Awaited, AwaitedBy
from replog.client.admin.health import BrokerHealth, BrokerStanding, ClusterHealth, PartitionTrouble, TroubledPartition
from replog.client.protocol.transactions import TransactionListing
from replog.errors import RequestTimedOutError
from replog.rpc.node_messages import DescribeQuorumResponse, LateTransaction, QuorumMember


def broker(number: int, state: BrokerStanding = BrokerStanding.IN_SERVICE, **more: object) -> BrokerHealth:
    known = BrokerHealth(
        number,
        f"127.0.0.1:900{number}",
        None,
        state,
        is_drained=False,
        leaders_count=4,
        replicas_count=12,
        rss_bytes=80_000_000,
        version="0.1",
    )
    return replace(known, **more)  # type: ignore[arg-type]


QUORUM = DescribeQuorumResponse(
    1, 5, 90, 0, 90, is_dynamic=True, commit_ms_p50=3, commit_ms_p99=9,
    members=(
        QuorumMember(1, None, "", is_voter=True, log_end_offset=90, last_fetch_age_ms=0, last_caught_up_age_ms=0),
        QuorumMember(2, None, "", is_voter=True, log_end_offset=90, last_fetch_age_ms=1, last_caught_up_age_ms=1),
        QuorumMember(3, None, "", is_voter=True, log_end_offset=78, last_fetch_age_ms=2_000, last_caught_up_age_ms=9_000),
        QuorumMember(4, None, "", is_voter=False, log_end_offset=3, last_fetch_age_ms=1, last_caught_up_age_ms=1),
    ),
)  # fmt: skip
GOOD = ClusterHealth(
    cluster_id="c", metadata_offset=90, brokers=(broker(1), broker(2), broker(3)), quorum=QUORUM,
    default_min_insync_replicas=1, topics_count=2, partitions_count=12, unavailable_count=0, under_min_isr_count=0,
    under_replicated_count=0, missing_brokers=(), troubled=(), moving_count=0, moving=(),
)  # fmt: skip
DOWN = BrokerStanding.DOWN


def test_a_healthy_cluster() -> None:
    assert sentence(GOOD) == "All 12 partitions are in sync on 3 brokers."
    assert sentence(replace(GOOD, partitions_count=1)) == "The only partition is in sync on 3 brokers."
    assert sentence(replace(GOOD, partitions_count=0, brokers=(broker(1),))) == "No topics yet on 1 broker."


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"under_replicated_count": 2, "missing_brokers": (3,), "brokers": (broker(1), broker(2), broker(3, DOWN))},
            "2 partitions are under-replicated because broker 3 is down.",
        ),
        (
            {
                "unavailable_count": 1,
                "missing_brokers": (2, 3),
                "brokers": (broker(1), broker(2, DOWN), broker(3, DOWN)),
            },
            "1 partition has no leader because brokers 2 and 3 are down.",
        ),
        (
            {
                "unavailable_count": 1,
                "under_min_isr_count": 1,
                "under_replicated_count": 4,
                "missing_brokers": (2, 3),
                "brokers": (broker(1), broker(2, DOWN), broker(3, BrokerStanding.FENCED)),
            },
            "1 partition has no leader, 1 refuses acks=all writes and 4 are under-replicated because broker 2 is down and broker 3 is fenced.",
        ),
        (
            {"under_replicated_count": 1, "missing_brokers": (2,)},
            "1 partition is under-replicated because replicas on broker 2 are catching up.",
        ),
        ({"unavailable_count": 2, "missing_brokers": (2,)}, "2 partitions have no leader."),
        (
            {"under_replicated_count": 1, "missing_brokers": (9,)},
            "1 partition is under-replicated because broker 9 is not registered.",
        ),
        (
            {"under_min_isr_count": 1, "missing_brokers": (), "quorum": None},
            "The metadata quorum has no leader: nothing can be changed. 1 partition refuses acks=all writes.",
        ),
        (
            {"brokers": (broker(1), broker(2), broker(3, DOWN, replicas_count=0))},
            "Broker 3 is down. All 12 partitions are in sync on 2 brokers.",
        ),
        (
            {
                "under_replicated_count": 4,
                "missing_brokers": (2,),
                "brokers": (broker(1), broker(2, DOWN), broker(3, BrokerStanding.SILENT)),
            },
            "4 partitions are under-replicated because broker 2 is down. Broker 3 does not answer.",
        ),
        (
            {"quorum": None},
            "The metadata quorum has no leader: nothing can be changed. All 12 partitions are in sync on 3 brokers.",
        ),
    ],
)
def test_what_is_wrong_and_why(changes: dict[str, object], words: str) -> None:
    assert sentence(replace(GOOD, **changes)) == words  # type: ignore[arg-type]


def test_a_replica_whose_disk_failed_is_not_catching_up() -> None:
    troubled = TroubledPartition("t", 0, PartitionTrouble.UNDER_REPLICATED, 1, (1, 2), (3,), (3,))
    found = replace(GOOD, under_replicated_count=1, missing_brokers=(3,), troubled=(troubled,))
    assert sentence(found) == "1 partition is under-replicated because replicas on broker 3 are offline."


def test_voters_that_do_not_follow() -> None:
    members = (*QUORUM.members[:2], replace(QUORUM.members[2], last_caught_up_age_ms=60_000))
    found = replace(GOOD, quorum=replace(QUORUM, members=members))
    assert sentence(found) == (
        "Voter 3 does not follow the metadata quorum. All 12 partitions are in sync on 3 brokers."
    )


def test_a_voter_with_another_log_directory() -> None:
    silent = replace(QUORUM.members[2], directory_id=UUID(int=1), last_caught_up_age_ms=60_000)
    follows = replace(QUORUM.members[3], node_id=3, directory_id=UUID(int=2))
    found = replace(GOOD, quorum=replace(QUORUM, members=(*QUORUM.members[:2], silent, follows)))
    assert sentence(found) == (
        "Voter 3 does not follow the metadata quorum. The voter set names another log directory for node 3: see "
        "`replog quorum describe`. All 12 partitions are in sync on 3 brokers."
    )


def test_the_facts() -> None:
    named = tuple(TroubledPartition("t", n, PartitionTrouble.UNDER_REPLICATED, 1, (1, 2), (3,), ()) for n in (0, 1))
    found = replace(
        GOOD,
        under_replicated_count=30,
        troubled=named,
        moving_count=3,
        moving=("t-4", "t-5"),
        brokers=(broker(1), broker(2), broker(3, is_drained=True)),
    )
    assert facts(found) == [
        ("cluster", "c, metadata offset 90"),
        ("controller", "node 1, epoch 5, commits take 3 ms (median)"),
        ("voters", "1 leads; 2 has all; 3 lacks 12 records, heard 2,000 ms ago"),
        ("partitions", "12 in 2 topics; 0 without a leader, 0 under min ISR, 30 under-replicated"),
        ("", "t-0: under-replicated, missing 3"),
        ("", "t-1: under-replicated, missing 3"),
        ("", "and 28 more"),
        ("draining", "broker 3: 12 replicas left"),
        ("moving", "3 partitions: t-4, t-5, ..."),
        ("hosts", "all brokers are on 127.0.0.1: replicas do not survive the loss of that machine"),
    ]
    apart = replace(GOOD, quorum=None, brokers=(broker(1), broker(2, address="10.0.0.2:9002")))
    assert ("controller", "none: the metadata quorum has no leader that answers") in facts(apart)
    assert "hosts" not in dict(facts(apart))


def test_a_partition_tells_whom_it_waits_for() -> None:
    waits = (Awaited((2,), 1), Awaited((2, 3), 1), Awaited((2, 3), 2), Awaited((1, 2, 3), 2), Awaited())
    unavailable = TroubledPartition("t", 0, PartitionTrouble.UNAVAILABLE, -1, (), (1, 2, 3), ())
    named = tuple(replace(unavailable, partition_id=number, awaited=one) for number, one in enumerate(waits))
    found = replace(GOOD, unavailable_count=5, troubled=named, awaited=(AwaitedBy((2,), 1, 1),))
    assert [text for name, text in facts(found) if not name] == [
        "t-0: unavailable, missing 1,2,3; waits for broker 2",
        "t-1: unavailable, missing 1,2,3; waits for broker 2 or 3",
        "t-2: unavailable, missing 1,2,3; waits for brokers 2 and 3",
        "t-3: unavailable, missing 1,2,3; waits for 2 of brokers 1, 2 and 3",
        "t-4: unavailable, missing 1,2,3",
    ]
    assert "waiting" not in dict(facts(found)), "each has told it"
    assert '"awaited": {"brokers": [2, 3], "needed_count": 1}' in _as_json(found)


def test_of_many_partitions_is_counted_whom_they_wait_for() -> None:
    """A line for each group of brokers, of which none is wider than a narrow terminal."""
    groups = (AwaitedBy((2,), 1, 1_200), *(AwaitedBy((2, other), 1, 3) for other in range(3, 9)))
    found = replace(GOOD, unavailable_count=1_218, awaited=groups)
    lines = facts(found)
    at = lines.index(("waiting", "1,200 partitions for broker 2"))
    assert lines[at - 1] == ("", "and 1,218 more")
    assert lines[at + 1 : at + 6] == [
        *(("", f"3 partitions for broker 2 or {other}") for other in range(3, 7)),
        ("", "and others"),
    ]
    assert '{"brokers": [2], "needed_count": 1, "partitions_count": 1200}' in _as_json(found)
    out = io.StringIO()
    Console(file=out, width=80).print(render(found))
    assert "waiting     1,200 partitions for broker 2" in [line.rstrip() for line in out.getvalue().splitlines()]


def test_the_screen_begins_with_the_sentence() -> None:
    out = io.StringIO()
    Console(file=out, width=160).print(render(replace(GOOD, brokers=(broker(1, rack="r[1]"), broker(2, DOWN)))))
    lines = out.getvalue().splitlines()
    assert lines[0].strip() == "Broker 2 is down. All 12 partitions are in sync on 1 broker."
    assert lines[2].split() == ["broker", "leads", "follows", "memory", "address", "rack", "version", "state"]
    assert lines[3].split() == [
        "1",
        "4",
        "8",
        "80",
        "MB",
        "127.0.0.1:9001",
        "r[1]",
        "0.1",
        "in",
        "service,",
        "controller",
    ]


def test_watching_without_a_terminal_says_only_what_is_new(capsys: pytest.CaptureFixture[str]) -> None:
    show = _Changes()
    error = RequestTimedOutError("not within 3 s")
    for look in (GOOD, GOOD, error, error, GOOD):
        show(look)
    assert capsys.readouterr().out.splitlines() == [sentence(GOOD), said(error), sentence(GOOD)]
    assert '"is_healthy": false' in _as_json(error)
    assert '"is_healthy": true' in _as_json(GOOD)


def test_a_transaction_that_nobody_ends_is_named_with_what_ends_it() -> None:
    late = replace(GOOD, late_transactions=(LateTransaction("rides", 1, 7, 12, 1_500_000),))
    assert sentence(late).startswith("1 partition has a transaction that nobody ends: readers wait before it. ")
    (told,) = (text for name, text in facts(late) if name == "transactions")
    assert told.startswith("rides-1: producer 7 is silent for ")
    assert "`replog transactions abort --partition rides-1 --start-offset 12`" in told


@pytest.mark.parametrize(
    ("name", "state", "ends"),
    [
        ("billing 1", "Ongoing", "`replog transactions abort 'billing 1'` ends"),
        ("spark/query:7f0c", "Ongoing", "`replog transactions abort --query query:7f0c` ends"),
        (f"spark/save:bills/3/{0:032x}/7", "Ongoing", "`replog transactions abort --query save:bills` ends"),
        ("billing-1", "PrepareCommit", "billing-1 is decided (PrepareCommit): broker 2 ends it"),
    ],
)
def test_a_late_transaction_that_a_coordinator_knows_is_ended_there(name: str, state: str, ends: str) -> None:
    """By its transactional id, or the query that it is a part of: a marker by hand is refused, and would end a part of it alone."""
    owner = TransactionListing(name, 7, state, coordinator_id=2)
    late = replace(GOOD, late_transactions=(LateTransaction("rides", 1, 7, 12, 1_500_000),), late_owners={7: owner})
    (told,) = (text for place, text in facts(late) if place == "transactions")
    assert ends in told
    assert "--partition" not in told
