"""A shard: what is replayed at once, what waits for commits, what is taken back, and how a log is read."""

from __future__ import annotations

from typing import Any

import pytest
from group_record_kit import unhurried
from hypothesis import given
from hypothesis import strategies as st
from shard_kit import FULL, Get, Host, Put, Remove, Table, Take, Wait, put

from replog.coordinator.config import ShardConfig
from replog.coordinator.group_records import GROUP_RECORDS
from replog.coordinator.records import CoordinatorRecord, EncodedRecord, RecordCodec
from replog.coordinator.runtime.machine import Moment
from replog.coordinator.runtime.messages import (
    AppendRefused,
    Lead,
    LogRead,
    ReadFailed,
    ReadLog,
    Reply,
    ReplyError,
    Resigned,
    Submit,
    Tick,
)
from replog.coordinator.runtime.shard import TIMER_RETRY_MS, TIMERS_PER_STEP, ShardState
from replog.errors import (
    ConfigError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    InvariantViolationError,
    NotCoordinatorError,
    NotEnoughReplicasError,
    NotLeaderOrFollowerError,
    RecordTooLargeError,
    ReplogError,
    RequestTimedOutError,
    StorageError,
)
from replog_timeline import SnapshotRegistry


@pytest.fixture
def host() -> Host:
    found = Host()
    found.lead()
    return found


def test_a_change_is_replayed_at_once_and_answered_when_it_has_committed(host: Host) -> None:
    request = host.submit(Put({"a": 1, "b": 2}))
    assert dict(host.machine.values) == {"a": 1, "b": 2}
    assert len(host.log) == 2
    host.commit(1)
    assert host.answers == {}
    host.commit(2)
    assert host.answers == {request: Reply(request, 2)}


def test_what_changes_nothing_waits_for_what_it_was_made_of(host: Host) -> None:
    assert host.ask(Get("a")) is None
    host.submit(Put({"a": 1}))
    reading = host.submit(Get("a"))
    refused = host.submit(Put({"a": -1}))
    assert host.answers.keys() == {1}
    host.commit()
    assert host.response(reading) == 1
    with pytest.raises(ReplogError, match="minus one is refused"):
        host.response(refused)


def test_an_answer_may_be_for_one_that_has_waited(host: Host) -> None:
    waiting = host.submit(Wait("a"))
    host.submit(Put({"a": 1}))
    assert waiting not in host.answers
    host.commit()
    assert host.response(waiting) == "a"


def test_refused_records_are_taken_back_with_all_that_was_made_of_them(host: Host) -> None:
    kept = host.submit(Put({"a": 1}))
    host.refuses = FULL
    lost = host.submit(Put({"a": 2}))
    host.refuses = None
    assert dict(host.machine.values) == {"a": 1}
    with pytest.raises(ReplogError, match="the log is full"):
        host.response(lost)
    assert host.ask(Put({"b": 3})) == 2
    assert host.response(kept) == 1
    assert dict(host.machine.values) == {"a": 1, "b": 3}


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (NotEnoughReplicasError("1 of 2"), CoordinatorNotAvailableError),
        (NotLeaderOrFollowerError("node 2 leads"), NotCoordinatorError),
        (StorageError("the disk is gone"), NotCoordinatorError),
        (RecordTooLargeError("2 MB"), RecordTooLargeError),
    ],
)
def test_a_refusal_is_told_as_an_error_of_a_coordinator(host: Host, error: ReplogError, told: type) -> None:
    host.refuses = error
    with pytest.raises(told, match=error.told):
        host.ask(Put({"a": 2}))


def test_a_refusal_that_comes_twice_takes_nothing_else_back(host: Host) -> None:
    host.submit(Put({"a": 1}))
    host.step(AppendRefused(host.epoch, 1, ReplogError("behind it")))
    host.step(AppendRefused(host.epoch - 1, 0, ReplogError("of the leadership before")))
    assert host.ask(Get("a")) == 1
    host.submit(Put({"b": 1}))
    with pytest.raises(InvariantViolationError, match="committed is 1"):
        host.step(AppendRefused(host.epoch, 0, ReplogError("too late")))


def test_a_lost_leadership_fails_what_waits_and_forgets_everything(host: Host) -> None:
    changing, waiting = host.submit(Put({"a": 1})), host.submit(Wait("b"))
    host.ask(Remove("a", 50))
    host.high_watermark = 0
    late = host.submit(Put({"c": 1}))
    host.step(Resigned())
    assert isinstance(host.answers[late], ReplyError)
    assert host.response(changing) == 1
    for request in (late, waiting, host.submit(Get("a"))):
        with pytest.raises(NotCoordinatorError):
            host.response(request)
    assert (dict(host.machine.values), host.shard.next_deadline_ms()) == ({}, None)
    assert host.shard.status().state is ShardState.IDLE
    host.lead()
    assert host.ask(Get("a")) == 1


def test_a_log_is_read_in_pieces_before_anybody_is_answered() -> None:
    host = Host()
    host.log = [GROUP_RECORDS.encode(each) for each in (put(f"k{n % 3}", n) for n in range(7))]
    host.high_watermark = 5
    (asked,) = host.shard.step(Lead(4, 0, 7, 5), Moment(0, 0))
    seen = 0
    while isinstance(asked, ReadLog):
        (refused,) = host.shard.step(Submit(1000 + seen, Get("a"), None), Moment(0, 0))
        assert isinstance(refused, ReplyError)
        assert isinstance(refused.error, CoordinatorLoadInProgressError)
        assert host.shard.status().loaded_offset == asked.offset
        seen += 1
        effects = host.shard.step(host.piece_of_the_log(asked), Moment(9, 9))
        asked = effects[0] if effects else None  # type: ignore[assignment]
    assert seen == 4
    assert dict(host.machine.values) == {"k0": 6, "k1": 4, "k2": 5}
    assert (host.machine.started, host.machine.epochs) == ([Moment(9, 9)], [4])


def test_what_was_read_and_has_not_committed_is_not_answered_from() -> None:
    """Goal: the records between high watermark and log end may still be lost; a reader must not have seen them."""
    host = Host()
    host.log = [GROUP_RECORDS.encode(put("a", n)) for n in range(4)]
    host.high_watermark = 2
    host.lead()
    reading = host.submit(Get("a"))
    host.commit(3)
    assert reading not in host.answers
    host.commit(4)
    assert host.response(reading) == 3


def test_records_of_unknown_types_are_left_out() -> None:
    host = Host()
    host.log = [GROUP_RECORDS.encode(put("a", 1)), (b"\0\x0e\0\1g", b"\0\0"), GROUP_RECORDS.encode(put("b", 2))]
    host.lead()
    assert dict(host.machine.values) == {"a": 1, "b": 2}


@pytest.mark.parametrize("bad", [(b"\0\1", b""), (b"\0\1\0\1g\0\1t\0\0\0\0", b"\0\x09")])
def test_a_log_that_cannot_be_read_serves_nobody_until_it_is_led_anew(bad: tuple[bytes, bytes]) -> None:
    host = Host()
    host.log = [GROUP_RECORDS.encode(put("a", 1)), bad]
    host.lead()
    assert host.shard.status().state is ShardState.FAILED
    assert "offset 1 of topic-0" in host.shard.status().failure
    with pytest.raises(CoordinatorNotAvailableError):
        host.response(host.submit(Get("a")))
    host.log.pop()
    host.lead()
    assert host.ask(Get("a")) == 1


def test_a_disk_that_fails_while_the_log_is_read() -> None:
    host = Host()
    host.log = [GROUP_RECORDS.encode(put("a", 1))]
    host.shard.step(Lead(1, 0, 1, 1), Moment(0, 0))
    host.step(ReadFailed(1, StorageError("the disk is gone")))
    assert (host.shard.status().state, host.shard.status().failure) == (ShardState.FAILED, "the disk is gone")


def test_what_an_earlier_leadership_has_read_does_not_count(host: Host) -> None:
    host.submit(Put({"a": 1}))
    host.step(LogRead(host.epoch - 1, 0, (), 0))
    host.step(ReadFailed(host.epoch - 1, ReplogError("late")))
    assert host.ask(Get("a")) == 1
    (asked,) = host.shard.step(Lead(9, 0, 1, 1), Moment(0, 0))
    assert isinstance(asked, ReadLog)
    with pytest.raises(InvariantViolationError, match=r"wanted is \[0, 1\)"):
        host.step(LogRead(9, 1, (), 1))


def test_the_machine_hears_which_of_its_answers_were_lost(host: Host) -> None:
    """Goal: what it has given to one request alone can be given to another one."""
    waiting, kept = host.submit(Wait("a")), host.submit(Put({"b": 1}))
    late = host.submit(Put({"c": 1}), deadline_ms=20)
    changing = host.submit(Put({"a": 1}))
    host.now_ms = 20
    host.step(Tick())
    assert host.machine.lost == [late]
    host.lose(2)
    assert host.machine.lost == [late, changing, waiting]
    host.commit()
    assert host.response(kept) == 1
    host.submit(Put({"a": 1}))
    host.step(Resigned())
    assert host.machine.lost == [late, changing, waiting]


def test_a_request_past_its_deadline_fails(host: Host) -> None:
    late = host.submit(Put({"a": 1}), deadline_ms=20)
    assert host.shard.next_deadline_ms() == 20
    host.now_ms = 20
    host.step(Tick())
    with pytest.raises(RequestTimedOutError, match="it may still be"):
        host.response(late)
    with pytest.raises(RequestTimedOutError, match="waited too long"):
        host.response(host.submit(Get("a"), deadline_ms=20))
    host.commit()
    assert host.ask(Get("a")) == 1


def test_an_answer_without_a_deadline_waits_for_its_commit_as_long_as_a_commit_may_take() -> None:
    """Goal: who has waited for others, such as a join, hears it when the log stands still, and comes again."""
    host = Host(commit_timeout_ms=30)
    host.lead()
    waiting = host.submit(Wait("a"))
    host.now_ms = 1_000
    putting = host.submit(Put({"a": 1}))
    host.now_ms = 1_029
    host.step(Tick())
    assert (host.answers, host.shard.next_deadline_ms()) == ({}, 1_030)
    host.now_ms = 1_030
    host.step(Tick())
    for each in (waiting, putting):
        with pytest.raises(RequestTimedOutError, match="it may still be"):
            host.response(each)


def test_requests_that_wait_are_bounded() -> None:
    host = Host(max_parked_requests=2)
    host.lead()
    requests = [host.submit(Put({"a": n})) for n in range(3)]
    with pytest.raises(CoordinatorLoadInProgressError, match="2 requests wait"):
        host.response(requests[2])
    assert dict(host.machine.values) == {"a": 1}


def test_of_a_change_far_larger_than_a_batch_not_all_is_encoded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a commit of a million offsets, which is refused, does not hold the loop of its node."""
    encoded: list[object] = []
    encode = RecordCodec.encode

    def counted(codec: RecordCodec, record: CoordinatorRecord) -> EncodedRecord:
        encoded.append(record)
        return encode(codec, record)

    monkeypatch.setattr(RecordCodec, "encode", counted)
    host = Host(max_batch_bytes=400)
    host.lead()
    with pytest.raises(RecordTooLargeError, match="1000 records"):
        host.ask(Put({str(number): 1 for number in range(1000)}))
    assert 1 < len(encoded) < 100


def test_a_change_larger_than_a_batch_is_refused_and_changes_nothing() -> None:
    host = Host(max_batch_bytes=60)
    host.lead()
    with pytest.raises(RecordTooLargeError, match="ask for less at a time"):
        host.ask(Put({"a": 1, "b": 2}))
    with pytest.raises(ReplogError, match="is no record"):
        host.ask(Put({"x" * 40_000: 1}))
    assert (dict(host.machine.values), host.log) == ({}, [])


@pytest.mark.parametrize("field", ["max_batch_bytes", "max_parked_requests", "commit_timeout_ms"])
def test_settings_are_checked(field: str) -> None:
    with pytest.raises(ConfigError, match=f"{field} is 0"):
        ShardConfig(**{field: 0})


def test_a_bug_in_a_request_changes_nothing(host: Host) -> None:
    with pytest.raises(ReplogError, match="str failed unexpectedly, nothing has changed: ZeroDivisionError"):
        host.ask("no request")
    host.machine.broken_key = "b"
    with pytest.raises(ReplogError, match="nothing has changed"):
        host.ask(Put({"a": 1, "b": 2}))
    assert (dict(host.machine.values), host.log) == ({}, [])
    assert host.ask(Put({"c": 1})) == 1


def test_a_timer_makes_records_and_is_tried_again_when_they_are_refused(host: Host) -> None:
    host.ask(Put({"a": 1, "b": 1}))
    host.ask(Remove("a", 10))
    host.now_ms, host.refuses = 10, FULL
    host.step(Tick())
    assert dict(host.machine.values) == {"a": 1, "b": 1}
    assert host.shard.next_deadline_ms() == 10 + TIMER_RETRY_MS
    host.now_ms, host.refuses = 10 + TIMER_RETRY_MS, None
    host.step(Tick())
    assert dict(host.machine.values) == {"b": 1}
    host.commit()
    host.step(AppendRefused(host.epoch, len(host.log), ReplogError("nothing of it")))
    assert host.shard.next_deadline_ms() is None


def test_a_timer_that_had_nothing_to_do_runs_again_when_the_log_refuses_what_it_has_seen(host: Host) -> None:
    host.ask(Put({"a": 1}))
    host.ask(Remove("a", 10))
    host.submit(Take("a"))
    host.now_ms = 10
    host.step(Tick())
    assert dict(host.machine.values) == {}
    host.lose(1)
    assert dict(host.machine.values) == {"a": 1}
    host.now_ms += TIMER_RETRY_MS
    host.step(Tick())
    host.commit()
    assert (dict(host.machine.values), host.shard.next_deadline_ms()) == ({}, None)


def test_a_timer_that_has_seen_what_commits_is_done(host: Host) -> None:
    host.submit(Put({"a": 1}))
    host.machine.timers.set("b", 10)
    host.now_ms = 10
    host.step(Tick())
    host.commit()
    host.submit(Put({"c": 1}))
    host.lose(1)
    assert host.shard.next_deadline_ms() is None


def test_who_waits_for_a_change_that_cannot_be_made_hears_why(host: Host) -> None:
    """Goal: an answer to another request than the one that is refused is not lost with it."""
    waiting = [host.submit(Wait(key)) for key in "ab"]
    host.machine.broken_key = "b"
    putting = host.submit(Put({"a": 1, "b": 2}))
    for each in (*waiting, putting):
        with pytest.raises(ReplogError, match="nothing has changed"):
            host.response(each)
    assert (dict(host.machine.values), host.log) == ({}, [])


def test_who_waits_for_a_timer_whose_change_cannot_be_made_hears_why(host: Host) -> None:
    host.ask(Put({"a": 1}))
    host.ask(Remove("a", 10))
    waiting = host.submit(Wait("a"))
    host.machine.broken_key, host.now_ms = "a", 10
    host.step(Tick())
    with pytest.raises(ReplogError, match="nothing has changed"):
        host.response(waiting)
    host.machine.broken_key, host.now_ms = "", 10 + TIMER_RETRY_MS
    host.step(Tick())
    assert dict(host.machine.values) == {}


def test_a_bug_in_a_timer_is_counted_and_does_not_stop_the_others(host: Host) -> None:
    host.ask(Put({"a": 1}))
    host.ask(Remove("bug", 10))
    host.ask(Remove("a", 10))
    host.now_ms = 10
    host.step(Tick())
    assert (dict(host.machine.values), host.shard.status().timer_failures) == ({}, 1)


def test_timers_of_one_moment_are_spread_over_steps(host: Host) -> None:
    keys = [f"k{n}" for n in range(TIMERS_PER_STEP + 1)]
    host.ask(Put(dict.fromkeys(keys, 1)))
    for key in keys:
        host.machine.timers.set(key, 10)
    host.now_ms = 10
    host.step(Tick())
    assert len(host.machine.values) == 1
    assert host.shard.next_deadline_ms() == 10
    host.step(Tick())
    assert len(host.machine.values) == 0


def replayed(host: Host) -> dict[str, int]:
    """What the log says."""
    registry = SnapshotRegistry()
    table = Table(registry, host.machine.timers)
    for offset, encoded in enumerate(host.log):
        record = GROUP_RECORDS.decode(*encoded)
        assert record is not None
        table.replay(record, offset)
    return dict(table.values)


KEYS = st.sampled_from("abc")
STEPS = st.one_of(
    st.tuples(st.just("put"), st.dictionaries(KEYS, st.integers(-1, 9), min_size=1)),
    st.tuples(st.just("get"), KEYS),
    st.tuples(st.just("wait"), KEYS),
    st.tuples(st.just("refuse"), st.booleans()),
    st.tuples(st.just("commit"), st.floats(0, 1)),
    st.tuples(st.just("lead"), st.booleans()),
    st.tuples(st.just("expire"), st.integers(1, 30)),
)


@unhurried
@given(st.lists(STEPS, max_size=40))
def test_the_state_is_what_the_log_says_and_each_request_is_answered_once(steps: list[tuple[str, Any]]) -> None:
    """Goal: whatever is refused, lost or late, no answer speaks of what is not committed, and none is missing."""
    host = Host()
    host.lead()
    asked = 0
    for kind, value in steps:
        match kind:
            case "put":
                asked = host.submit(Put(value), host.now_ms + 20)
            case "get":
                asked = host.submit(Get(value))
            case "wait":
                asked = host.submit(Wait(value))
            case "refuse":
                host.refuses = FULL if value else None
            case "commit":
                host.commit(host.high_watermark + int(value * (len(host.log) - host.high_watermark)))
            case "lead":
                if value:  # the log of the next leader may lack what has not committed
                    del host.log[host.high_watermark :]
                    host.step(Resigned())
                host.lead()
            case "expire":
                host.now_ms += value
                host.step(Tick())
        assert dict(host.machine.values) == replayed(host)
    host.commit()
    host.step(Resigned())
    assert host.answers.keys() == set(range(1, asked + 1))
