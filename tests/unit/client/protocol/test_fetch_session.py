"""The fetch session of one connection, as the client keeps it."""

from __future__ import annotations

from uuid import UUID

import pytest

from replog.client.protocol.fetch_session import EPOCH_MAX, LinkFetchSession
from replog.errors import ErrorCode
from replog.rpc.messages import FetchPartition, FetchRequest
from replog.wire.messages.fetch import FetchRequest as KafkaFetch
from replog.wire.messages.fetch import FetchResponse as KafkaFetched

TOPIC = UUID(int=7)
VERSION = 17


def fetch(**offsets: int) -> FetchRequest:
    """A fetch of partitions `p0`, `p1`, ... at these offsets."""
    partitions = (FetchPartition(TOPIC, int(name[1:]), offset, topic="t") for name, offset in offsets.items())
    return FetchRequest(1, 1000, -1, -1, 0, 1, 100, tuple(partitions))


def sent(request: KafkaFetch) -> tuple[int, int, dict[int, int], list[int]]:
    """The session, the epoch, the offsets of the partitions that are named, those that are forgotten."""
    named = {each.partition: each.fetch_offset for topic in request.topics for each in topic.partitions}
    forgotten = [number for topic in request.forgotten_topics_data for number in topic.partitions]
    return request.session_id, request.session_epoch, named, forgotten


def told(session_id: int, *numbers: int, error: int = 0) -> KafkaFetched:
    data = [KafkaFetched.PartitionData(number, records=b"") for number in numbers]
    topics = [KafkaFetched.FetchableTopicResponse("t", TOPIC, data)] if numbers else []
    return KafkaFetched(error_code=error, session_id=session_id, responses=topics)


def begun() -> LinkFetchSession:
    """A session 5 with partitions 0 and 1."""
    session, first = LinkFetchSession(), fetch(p0=0, p1=0)
    assert sent(session.request(first)) == (0, 0, {0: 0, 1: 0}, [])
    assert session.response(first, told(5, 0, 1), VERSION) is not None
    return session


def test_a_fetch_names_what_is_asked_differently_and_what_is_forgotten() -> None:
    session = begun()
    second = fetch(p1=3, p2=0)
    assert sent(session.request(second)) == (5, 1, {1: 3, 2: 0}, [0])
    answer = session.response(second, told(5, 2), VERSION)
    assert answer is not None
    assert [(each.partition_id, each.fetch_offset) for each in answer.results] == [(2, 0)]
    assert sent(session.request(second)) == (5, 2, {}, [])


def test_every_field_of_a_question_goes_along_when_one_is_another() -> None:
    """Goal: a broker compares logs by the epochs of the last fetch, and refuses one of an older leadership."""
    session = begun()
    for asked in (
        FetchPartition(TOPIC, 0, 0, leader_epoch=2, topic="t"),
        FetchPartition(TOPIC, 0, 0, leader_epoch=2, last_fetched_epoch=1, topic="t"),
    ):
        message = FetchRequest(1, 1000, -1, -1, 0, 1, 100, (asked, fetch(p1=0).partitions[0]))
        (named,) = session.request(message).topics[0].partitions
        assert (named.current_leader_epoch, named.last_fetched_epoch) == (asked.leader_epoch, asked.last_fetched_epoch)
        session.response(message, told(5), VERSION)


@pytest.mark.parametrize(
    ("error", "ended"),
    [(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0), (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 5)],
)
def test_a_session_of_which_the_broker_has_another_idea_begins_anew_and_ends_the_one_before(
    error: ErrorCode, ended: int
) -> None:
    session, again = begun(), fetch(p0=4)
    session.request(again)
    assert session.response(again, told(0, error=error), VERSION) is None
    assert sent(session.request(again)) == (ended, 0, {0: 4}, [])
    refused = session.response(again, told(0, error=error), VERSION)
    assert refused is not None, "a broker that refuses what is whole is told of, not asked for ever"
    assert [each.error for each in refused.results] == [error]


def test_a_broker_without_room_and_one_that_fails_are_asked_in_full() -> None:
    session, again = LinkFetchSession(), fetch(p0=0, p1=0)
    for answer in (told(0, 0), told(0, error=ErrorCode.UNKNOWN_SERVER_ERROR)):
        assert sent(session.request(again)) == (0, 0, {0: 0, 1: 0}, [])
        assert session.response(again, answer, VERSION) is not None


def test_a_session_that_ends_while_its_fetch_waits_confirms_nothing() -> None:
    """Its answer leaves out what may have news: a partition at whose start nobody knows of a deletion would be skipped."""
    session, again = begun(), fetch(p0=0, p1=0)
    session.request(again)
    assert session.response(again, told(0), VERSION) is None
    assert sent(session.request(again)) == (0, 0, {0: 0, 1: 0}, [])
    assert session.response(again, told(0, 0, 1), VERSION) is not None


def test_epochs_begin_again_at_1_and_another_session_at_its_own() -> None:
    session, again = begun(), fetch(p0=0)
    session._epoch = EPOCH_MAX
    for answer, epoch in ((told(5), 1), (told(5), 2), (told(6), 1)):
        session.request(again)
        session.response(again, answer, VERSION)
        assert session.request(again).session_epoch == epoch
