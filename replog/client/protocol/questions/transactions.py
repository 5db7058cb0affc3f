"""Questions of a producer with a transactional id: to the coordinator of its transactions, and of a group whose offsets it commits.

Which of them a transaction needs depends on the feature `transaction.version` of the cluster.  At 2 the brokers make a partition part
of the transaction as the first batch arrives, and a group with the commit of its offsets; before that the producer says so first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar, Final

from msgspec import Struct

from replog.client.protocol.asking import Broker, Question
from replog.client.protocol.questions.answered import lacking
from replog.client.types import TopicPartition
from replog.coordinator.offsets.requests import TopicToCommit
from replog.coordinator.transactions.requests import Incarnation
from replog.errors import ErrorCode, ReplogError, UnsupportedVersionError
from replog.errors.from_code import error_from_number
from replog.waiting.asks import Asks
from replog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from replog.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from replog.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from replog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from replog.wire.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse

FEATURE: Final = "transaction.version"

BUMPING: Final = 2
"""The level of the feature from which on each transaction has an epoch of its own."""

KNOWN_FROM: Final = 3
"""The first version of InitProducerId that says what the producer was told before (KIP-360)."""

MEMBER_FROM: Final = 3
"""The first version of TxnOffsetCommit that says for which member of the group it commits (KIP-447)."""


class BeginProducing(Asks["Producing"], frozen=True):
    """Takes over a transactional id: whoever had it is fenced, and what it left open is aborted.

    Attributes:
        timeout_ms: How long a transaction may be open before the coordinator aborts it.
        known: What this producer was told before, if it goes on after an error (KIP-360); None: it begins.
    """

    transactional_id: str
    timeout_ms: int
    known: Incarnation | None = None


class Producing(Struct, frozen=True):
    """What a producer is to write with.

    Attributes:
        transaction_version: The level of `transaction.version` in the cluster.
    """

    producer: Incarnation
    transaction_version: int


class AddToTransaction(Asks[None], frozen=True):
    """Makes partitions part of the transaction (`transaction.version` 0 and 1)."""

    transactional_id: str
    producer: Incarnation
    partitions: tuple[TopicPartition, ...]


class AddGroupToTransaction(Asks[None], frozen=True):
    """Makes the offsets of a group part of the transaction (`transaction.version` 0 and 1)."""

    transactional_id: str
    producer: Incarnation
    group_id: str


class CommitInTransaction(Asks[None], frozen=True):
    """Commits offsets of a group, which count once the transaction is committed; asked of the group's coordinator.

    Attributes:
        generation: The generation or the epoch of the member; -1: for no member.
        transaction_version: As `Producing` has it.
    """

    transactional_id: str
    producer: Incarnation
    group_id: str
    member_id: str
    generation: int
    instance_id: str | None
    topics: tuple[TopicToCommit, ...]
    transaction_version: int


class DecideTransaction(Asks[Incarnation], frozen=True):
    """Commits or aborts the transaction; answered with what the producer is to write with from now on.

    Attributes:
        transaction_version: As `Producing` has it; None: whichever the cluster is at by now.
    """

    transactional_id: str
    producer: Incarnation
    is_commit: bool
    transaction_version: int | None


class _AddPartitions(AddPartitionsToTxnRequest):
    """What clients say; later versions are for brokers."""

    VERSIONS: ClassVar = range(4)


class _CommitWithoutAdding(TxnOffsetCommitRequest):
    """A commit of a group that is part of the transaction already."""

    VERSIONS: ClassVar = range(5)


class _DecideWithoutBump(EndTxnRequest):
    """The end of a transaction after which the producer keeps its epoch."""

    VERSIONS: ClassVar = range(5)


_TEXTS: Final[Mapping[int, str]] = {
    ErrorCode.PRODUCER_FENCED: "another producer has taken over this transactional id, which one at a time can use; or "
    "the coordinator has aborted the transaction by its time-out. Close this producer",
    ErrorCode.INVALID_PRODUCER_EPOCH: "the producer has another epoch by now: the coordinator has aborted the transaction by its "
    "time-out, or another producer has taken over this transactional id",
    ErrorCode.INVALID_TXN_STATE: "the transaction is not open, or was decided the other way: the coordinator may have aborted it by "
    "its time-out",
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: "the coordinator knows this transactional id by another producer id, or has forgotten it",
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: "transaction_timeout_ms is more than the brokers' transaction.max.timeout.ms, or less than 1",
    ErrorCode.CONCURRENT_TRANSACTIONS: "the last transaction of this transactional id is being ended",
    ErrorCode.TRANSACTION_ABORTABLE: "the transaction can only be aborted",
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "there is no such transactional id (any more)",
    ErrorCode.TRANSACTION_COORDINATOR_FENCED: "a later coordinator has ended a transaction of this producer",
    ErrorCode.INVALID_REGULAR_EXPRESSION: "the pattern is no regular expression of RE2",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "it does not lead the partition (any more)",
    ErrorCode.NOT_COORDINATOR: "it does not coordinate this (any more)",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "there is no coordinator just now, or its log did not take the change in time",
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "the coordinator still reads its log",
    ErrorCode.UNKNOWN_MEMBER_ID: "the group has no such member (any more): others have its partitions",
    ErrorCode.ILLEGAL_GENERATION: "the group is of another generation by now: others may have the member's partitions",
    ErrorCode.STALE_MEMBER_EPOCH: "the member has another epoch by now: others may have its partitions",
    ErrorCode.FENCED_INSTANCE_ID: "another process has joined by the same instance id",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "there is no such topic or partition",
}
"""What the refusals mean: answers about transactions have no text."""

_UNSAID: Final = frozenset({ErrorCode.NONE, ErrorCode.OPERATION_NOT_ATTEMPTED})
"""Codes beside one partition that say nothing of why the request was refused."""


def refusal_of(broker: Broker, number: int, what: str, message: str = "") -> ReplogError:
    """Returns the error of a code; its text is the broker's, or says what the code means.

    Args:
        broker: The broker that refuses.
        number: The code; not NONE.
        what: What is refused, after the word "refuses".
        message: What the broker says; "": nothing.
    """
    try:
        meaning = _TEXTS.get(number) or ErrorCode(number).name
    except ValueError:
        meaning = "this version does not know the code"
    return error_from_number(number, message or f"{broker.address} refuses {what}: {meaning}")


def require_done(broker: Broker, number: int, what: str, message: str = "") -> None:
    """Raises a refusal, as `refusal_of` returns it; nothing where the code is NONE."""
    if number != ErrorCode.NONE:
        raise refusal_of(broker, number, what, message)


def _require_all(broker: Broker, numbers: Iterable[int], what: str) -> None:
    """Raises why one of several things was refused; the reason stands beside the one that it is about."""
    codes = [number for number in numbers if number != ErrorCode.NONE]
    if codes:
        raise refusal_of(broker, next((code for code in codes if code not in _UNSAID), codes[0]), what)


async def begin_producing(broker: Broker, question: BeginProducing, timeout_ms: int) -> Producing:
    """Asks for the id and the epoch of a producer with a transactional id."""
    known = question.known
    if known is None or await broker.version(InitProducerIdRequest) < KNOWN_FROM:
        request = InitProducerIdRequest(question.transactional_id, question.timeout_ms)
    else:
        request = InitProducerIdRequest(
            question.transactional_id, question.timeout_ms, known.producer_id, known.producer_epoch
        )
    answer = await broker.ask(request, InitProducerIdResponse, timeout_ms=timeout_ms)
    what = f"transactional id {question.transactional_id!r} to this producer"
    require_done(broker, answer.error_code, what, answer.error_message)
    producer = Incarnation(answer.producer_id, answer.producer_epoch)
    return Producing(producer, await broker.feature(FEATURE))


async def add_to_transaction(broker: Broker, question: AddToTransaction, timeout_ms: int) -> None:
    """Adds partitions, all or none."""
    topics: dict[str, list[int]] = {}
    for each in question.partitions:
        topics.setdefault(each.topic, []).append(each.partition)
    request = _AddPartitions(
        v3_and_below_transactional_id=question.transactional_id,
        v3_and_below_producer_id=question.producer.producer_id,
        v3_and_below_producer_epoch=question.producer.producer_epoch,
        v3_and_below_topics=[AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(*item) for item in topics.items()],
    )
    answer = await broker.ask(request, AddPartitionsToTxnResponse, timeout_ms=timeout_ms)
    told = {
        (topic.name, each.partition_index): each.partition_error_code
        for topic in answer.results_by_topic_v3_and_below
        for each in topic.results_by_partition
    }
    missing = next((each for each in question.partitions if each not in told), None)
    if missing is not None:
        raise lacking(broker, f"partition {missing}")
    _require_all(broker, told.values(), f"partitions in a transaction of {question.transactional_id!r}")


async def add_group(broker: Broker, question: AddGroupToTransaction, timeout_ms: int) -> None:
    """Adds the offsets of a group."""
    producer = question.producer
    request = AddOffsetsToTxnRequest(
        question.transactional_id, producer.producer_id, producer.producer_epoch, question.group_id
    )
    answer = await broker.ask(request, AddOffsetsToTxnResponse, timeout_ms=timeout_ms)
    what = f"offsets of group {question.group_id!r} in a transaction of {question.transactional_id!r}"
    require_done(broker, answer.error_code, what)


async def commit_in_transaction(broker: Broker, question: CommitInTransaction, timeout_ms: int) -> None:
    """Commits offsets in a transaction, all or none.

    Raises:
        UnsupportedVersionError: The broker cannot tell a member from one that was put out (Kafka before 2.5).
    """
    kind = TxnOffsetCommitRequest if question.transaction_version >= BUMPING else _CommitWithoutAdding
    if question.member_id and await broker.version(kind) < MEMBER_FROM:
        raise UnsupportedVersionError(
            f"{broker.address} does not know which member of group {question.group_id!r} commits, so that one that was put out could: "
            "use a broker of Kafka 2.5 or newer"
        )
    request = kind(
        question.transactional_id,
        question.group_id,
        question.producer.producer_id,
        question.producer.producer_epoch,
        question.generation,
        question.member_id,
        question.instance_id,
        [_to_commit(topic) for topic in question.topics],
    )
    answer = await broker.ask(request, TxnOffsetCommitResponse, timeout_ms=timeout_ms)
    told = {(topic.name, each.partition_index): each.error_code for topic in answer.topics for each in topic.partitions}
    for topic in question.topics:
        for each in topic.partitions:
            if (topic.topic, each.partition) not in told:
                raise lacking(broker, f"partition {topic.topic}-{each.partition}")
    what = f"offsets of group {question.group_id!r} in a transaction of {question.transactional_id!r}"
    _require_all(broker, told.values(), what)


def _to_commit(topic: TopicToCommit) -> TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic:
    partition = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition
    return TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(
        topic.topic,
        [partition(each.partition, each.offset, each.leader_epoch, each.metadata) for each in topic.partitions],
    )


async def decide(broker: Broker, question: DecideTransaction, timeout_ms: int) -> Incarnation:
    """Commits or aborts."""
    version = question.transaction_version
    if version is None:
        version = await broker.feature(FEATURE)
    kind = EndTxnRequest if version >= BUMPING else _DecideWithoutBump
    producer = question.producer
    request = kind(question.transactional_id, producer.producer_id, producer.producer_epoch, question.is_commit)
    answer = await broker.ask(request, EndTxnResponse, timeout_ms=timeout_ms)
    what = f"to {'commit' if question.is_commit else 'abort'} the transaction of {question.transactional_id!r}"
    require_done(broker, answer.error_code, what)
    return producer if answer.producer_id < 0 else Incarnation(answer.producer_id, answer.producer_epoch)


QUESTIONS: Final[Mapping[type, Question]] = {
    BeginProducing: begin_producing,
    AddToTransaction: add_to_transaction,
    AddGroupToTransaction: add_group,
    CommitInTransaction: commit_in_transaction,
    DecideTransaction: decide,
}
