"""A real Kafka and a replog broker answer the same about offsets that are committed in transactions, step by step."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from member_scripts import COMMIT, FETCH, HEARTBEAT, Make, Members, settled, speaks
from sides import EXPLAINED, Side, differences
from waiting import until

from replog.errors import ErrorCode
from replog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from replog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from replog.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from replog.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from replog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from replog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from replog.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from replog.wire.messages.offset_commit import OffsetCommitResponse
from replog.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from replog.wire.messages.offset_fetch import OffsetFetchResponse
from replog.wire.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse

_LATER = {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}
"""What clients ask again after: when it is told is a matter of moments."""

JOINS_FROM = 5
LONG = "x" * 5_000
_Partition, _Topic = (
    TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic,
)
_numbers = itertools.count(1)


class Writer:
    """A producer with the same transactional id on both sides, which commits offsets of the members' group.

    Args:
        members: The group.
    """

    def __init__(self, members: Members) -> None:
        self.name = f"writer-{next(_numbers)}"
        self._members = members
        self._producers: dict[str, tuple[int, int]] = {}
        self._told: dict[str, Any] = {}
        self.begin()

    def begin(self) -> None:
        """Takes the transactional id over, on both."""
        for side in self._members._both:
            found = FindCoordinatorRequest(key_type=1, coordinator_keys=[self.name])
            self._until(side, found, 4, FindCoordinatorResponse, lambda told: told.coordinators[0].error_code)
            request = InitProducerIdRequest(self.name, 60_000)
            told = self._until(side, request, 4, InitProducerIdResponse, lambda told: told.error_code)
            self._producers[side.name] = told.producer_id, told.producer_epoch

    def commit(
        self, *parts: tuple[str, int, int], member: str = "", version: int = 5, text: str = "text", **fields: Any
    ) -> Any:
        """Commits (topic, partition, offset); returns the answer, which is that of both."""
        wanted = parts or ((self._members.topic, 0, 7),)
        topics = [
            _Topic(topic, [_Partition(number, offset, 3, text) for _, number, offset in group])
            for topic, group in itertools.groupby(wanted, lambda each: each[0])
        ]

        def made(side: Side) -> TxnOffsetCommitRequest:
            producer_id, producer_epoch = self._producers[side.name]
            more = {"group_id": self._members.group, "producer_id": producer_id, "producer_epoch": producer_epoch}
            more |= {
                "transactional_id": self.name,
                "member_id": self._members.id(side, member) if member else "",
            } | fields
            return TxnOffsetCommitRequest(**more, topics=topics)

        return self._same(made, version, TxnOffsetCommitResponse, lambda told: told.topics[0].partitions[0].error_code)

    def add_group(self) -> None:
        """Makes the group part of the transaction, as older clients do."""
        self._same(
            lambda side: AddOffsetsToTxnRequest(self.name, *self._producers[side.name], self._members.group),
            3,
            AddOffsetsToTxnResponse,
            lambda told: told.error_code,
        )

    def end(self, *, is_commit: bool, leaves_unstable: bool = False) -> None:
        """Ends the transaction, and waits until its markers are there, unless another transaction is open."""
        self._same(
            lambda side: EndTxnRequest(self.name, *self._producers[side.name], is_commit),
            4,
            EndTxnResponse,
            lambda told: told.error_code,
        )
        for side in self._members._both if not leaves_unstable else ():
            until(partial(self._is_stable, side))

    def fenced(self) -> None:
        """Somebody else takes the transactional id over."""
        mine = dict(self._producers)
        self.begin()
        self._producers = mine

    def fetch(self, *numbers: int) -> Any:
        """The stable offsets, and then the committed ones; returns the former."""
        wanted = ((self._members.topic, list(numbers)),) if numbers else ()
        plain = self._members.fetch(*wanted)
        self._members.ask("", plain, FETCH, OffsetFetchResponse)
        return self._members.ask("", stable(plain), FETCH, OffsetFetchResponse)

    def _is_stable(self, side: Side) -> bool:
        asked = stable(self._members.fetch((self._members.topic, [0, 1, 2, 3])))
        told = self._members._client(side, "").ask(asked(side), FETCH, OffsetFetchResponse)
        return all(each.error_code != ErrorCode.UNSTABLE_OFFSET_COMMIT for each in told.groups[0].topics[0].partitions)

    def _same(self, make: Make, version: int, answer: type[Any], code: Callable[[Any], int]) -> Any:
        told = [side.plain(self._until(side, make(side), version, answer, code)) for side in self._members._both]
        assert list(differences(*told, {*EXPLAINED})) == []
        return told[1]

    def _until(self, side: Side, request: Any, version: int, answer: type[Any], code: Callable[[Any], int]) -> Any:
        client = self._members._client(side, "")

        def is_told() -> bool:
            self._told[side.name] = client.ask(request, version, answer)
            return code(self._told[side.name]) not in _LATER

        until(is_told)
        return self._told[side.name]


def stable(make: Make) -> Make:
    """The same fetch, of stable offsets."""

    def made(side: Side) -> Any:
        request = make(side)
        request.require_stable = True
        return request

    return made


@pytest.fixture
def writer(members: Members) -> Writer:
    return Writer(members)


@pytest.mark.parametrize("version", TxnOffsetCommitRequest.VERSIONS)
def test_offsets_are_pending_until_their_transaction_ends(members: Members, writer: Writer, version: int) -> None:
    topic = members.topic
    members.ask("", members.commit("", -1, (topic, 0, 3)), COMMIT, OffsetCommitResponse)
    parts = ((topic, 0, 7), (topic, 1, 8), (topic, 9, 1), ("none", 0, 1))
    if version < JOINS_FROM:
        writer.commit(version=version)
        writer.add_group()
    writer.commit(*parts, version=version)
    for partitions in ((0, 1, 2), ()):
        writer.fetch(*partitions)
    writer.end(is_commit=True)
    assert [each["committed_offset"] for each in writer.fetch(0, 1)["groups"][0]["topics"][0]["partitions"]] == [7, 8]
    writer.fetch()


def test_what_is_aborted_is_forgotten_and_so_is_the_group(members: Members, writer: Writer) -> None:
    writer.commit()
    writer.end(is_commit=False)
    writer.fetch(0, 1)
    writer.fetch()


def test_a_later_plain_commit_counts(members: Members, writer: Writer) -> None:
    writer.commit((members.topic, 0, 7), (members.topic, 1, 8))
    members.ask("", members.commit("", -1, (members.topic, 0, 2)), COMMIT, OffsetCommitResponse)
    writer.fetch(0, 1)
    writer.end(is_commit=True)
    writer.fetch(0, 1)


def test_what_was_written_later_counts_of_two_transactions(members: Members, writer: Writer) -> None:
    other = Writer(members)
    writer.commit((members.topic, 0, 7), (members.topic, 1, 8))
    other.commit((members.topic, 0, 17))
    writer.fetch(0, 1)
    other.end(is_commit=True, leaves_unstable=True)
    writer.end(is_commit=True)
    writer.fetch(0, 1)


def test_who_may_commit_beside_members_of_the_classic_protocol(members: Members, writer: Writer) -> None:
    writer.commit(member="nobody", generation_id=3)
    settled(members)
    for fields in (
        {},
        {"member": "a", "generation_id": 2},
        {"member": "a", "generation_id": 1},
        {"member": "a", "generation_id": 3},
        {"member": "a"},
        {"generation_id": 2},
        {"member": "nobody", "generation_id": 2},
        {"member": "a", "generation_id": 2, "group_instance_id": "i"},
    ):
        writer.commit(**fields)
        writer.commit(version=3, **fields)
    writer.end(is_commit=True)
    writer.fetch(0)


def test_who_may_commit_beside_members_of_kip_848(members: Members, writer: Writer) -> None:
    for epoch, owned in ((0, None), (1, [0, 1, 2, 3])):
        asked = speaks(members, "a", epoch, owned)
        members.ask("a", asked, 1, ConsumerGroupHeartbeatResponse, *HEARTBEAT)
    for fields in (
        {},
        {"member": "a", "generation_id": 1},
        {"member": "a", "generation_id": 0},
        {"member": "a", "generation_id": 2},
        {"member": "a"},
        {"generation_id": 1},
        {"member": "nobody", "generation_id": 1},
        {"member": "a", "generation_id": 1, "group_instance_id": "i"},
    ):
        writer.commit(**fields)
    writer.end(is_commit=True)
    writer.fetch(0)


def test_wrong_commits(members: Members, writer: Writer) -> None:
    topic = members.topic
    writer.commit((topic, 0, 7), text=LONG)
    writer.fetch(0)
    for fields in (
        {"group_id": ""},
        {"transactional_id": "another"},
        {"producer_id": 987_654_321},
        {"producer_epoch": 5},
        {"producer_epoch": -1},
    ):
        for version in (3, 4, 5):
            writer.commit(version=version, **fields)
    writer.fenced()
    for version in (3, 4, 5):
        writer.commit(version=version)


def test_what_is_deleted_takes_pending_offsets_with_it(members: Members, writer: Writer) -> None:
    topic = members.topic
    writer.commit((topic, 0, 7), (topic, 1, 8))
    listed(members)
    parts = [OffsetDeleteRequest.OffsetDeleteRequestPartition(0)]
    asked = OffsetDeleteRequest(members.group, [OffsetDeleteRequest.OffsetDeleteRequestTopic(topic, parts)])
    members.ask("", lambda _: asked, 0, OffsetDeleteResponse)
    writer.fetch(0, 1)
    members.ask("", lambda _: DeleteGroupsRequest([members.group]), 2, DeleteGroupsResponse)
    writer.fetch(0, 1)
    listed(members)
    writer.end(is_commit=True)
    writer.fetch(0, 1)


def listed(members: Members) -> None:
    """Whether the group is listed, and as what, is the same on both."""
    told = []
    for side in members._both:
        groups = members._client(side, "").ask(ListGroupsRequest(), 5, ListGroupsResponse).groups
        told.append([side.plain(each) for each in groups if each.group_id == members.group])
    assert told[0] == told[1]
