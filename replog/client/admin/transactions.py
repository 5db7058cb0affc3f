"""What an operator asks and does about transactions (KIP-664): list, describe, find those that nobody ends, end them.

A transaction hangs where the leader of a partition has it open and its coordinator knows nothing of it: no marker will come, and
readers of committed records wait before it for good.  Batches of brokers or clients from before KIP-890 leave such behind, and a
coordinator whose log was lost.

A base class of `Admin`; every method retries what is worth retrying, for its time-out at most.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from replog.client.admin.operations import Fate, in_parts
from replog.client.admin.together import AdminPart, Deadline, ask_coordinator, ask_every_broker, side_by_side
from replog.client.arguments import (
    items_of,
    partition_of,
    partitions_of,
    require_text,
    require_whole,
    texts_of,
)
from replog.client.backoff import Backoff, retry
from replog.client.cluster.addresses import LeaderAddress
from replog.client.cluster.leader_calls import ask_leaders, partition_error
from replog.client.cluster.view import ATTEMPT_TIMEOUT_MS
from replog.client.groups.coordinator import Coordinator
from replog.client.protocol.transactions import (
    ActiveProducer,
    AskedProducers,
    DescribeProducers,
    DescribeTransactionalId,
    ListTransactionalIds,
    TransactionDetails,
    TransactionListing,
)
from replog.client.types import TopicPartition
from replog.errors import (
    ErrorCode,
    InvalidRequestError,
    InvalidTxnStateError,
    LeaderNotAvailableError,
    RetriableError,
    TransactionalIdNotFoundError,
)
from replog.rpc.transaction_messages import Marker, NamedPartitions, WriteMarkersRequest

STATES: Final = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "PrepareEpochFence",
    "Dead",
)
"""The states of transactions, as Kafka names them."""

ONGOING: Final = "Ongoing"
OPEN_STATES: Final = frozenset({ONGOING, "PrepareCommit", "PrepareAbort", "PrepareEpochFence"})
"""States whose transaction has an age."""

SILENT_MS: Final = 15 * 60_000
"""How long a producer is silent before its transaction may hang: what brokers allow a transaction, unless they are told otherwise."""

TAKEN_OVER_MS: Final = 60_000
"""How long transactions of a producer may be open that begins only to end that of another one."""

_REFUSED: Final = {
    ErrorCode.INVALID_PRODUCER_EPOCH: "another incarnation of the producer has written to the partition since; look again",
    ErrorCode.TRANSACTION_COORDINATOR_FENCED: "a later coordinator has ended a transaction of this producer since; look again",
}
"""What refusals of a marker mean, for which Kafka has no text."""

MARKERS_PAUSE_S: Final = 0.02
"""Between two looks whether a transaction has its end: as a rule it has after one."""

_COMMITTING: Final = "PrepareCommit"
_AT_REST: Final = frozenset({"Empty", "CompleteCommit", "CompleteAbort", "Dead"})
_DECIDED: Final = {"PrepareCommit": "committed", "PrepareAbort": "aborted"}


class HangingTransaction(Struct, frozen=True):
    """A transaction that a partition has open, and that no coordinator knows of.

    Attributes:
        first_offset: The offset at which it begins: readers of committed records wait there.
        silent_ms: The time since its producer wrote, in milliseconds, by the timestamp of its last batch and the clock of this machine.
        transactional_id: The transactional id that the producer has now; "" where none is known.
    """

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    first_offset: int
    silent_ms: int
    transactional_id: str = ""


class TransactionOperations(AdminPart):
    """The methods about transactions."""

    async def list_transactions(
        self,
        *,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        open_longer_than_ms: int = -1,
        pattern: str = "",
        timeout_ms: int | None = None,
    ) -> tuple[TransactionListing, ...]:
        """Returns the transactional ids of the cluster, sorted: every broker tells those that it coordinates.

        Args:
            states: The states that are asked for, such as "Ongoing", in any case; none for all.
            producer_ids: The producers that are asked for; none for all.
            open_longer_than_ms: Only those whose transaction has been open for longer; negative: all.
            pattern: A regular expression (RE2) that the transactional id has to match as a whole; "": any does.
            timeout_ms: The limit of the whole call, in milliseconds.

        Raises:
            InvalidRequestError: There is no such state, or the pattern cannot be used.
            UnsupportedVersionError: A broker cannot choose so.
            RequestTimedOutError: A broker did not tell its own in time: a list that lacks some would be no answer.
        """
        require_whole("open_longer_than_ms", open_longer_than_ms)
        require_text("pattern", pattern)
        numbers = items_of("producer_ids", producer_ids, "a list of producer ids")
        for number in numbers:
            require_whole("an item of producer_ids", number)
        request = ListTransactionalIds(_known_states(states), tuple(numbers), open_longer_than_ms, pattern)
        deadline = self._deadline(timeout_ms)
        answers = await ask_every_broker(self._view, request, deadline, "list transactions")
        found = {
            one.transactional_id: replace(one, coordinator_id=broker_id)
            for broker_id, answer in sorted(answers.items())
            for one in answer
        }
        return tuple(found[name] for name in sorted(found))

    async def describe_transactions(
        self, transactional_ids: Iterable[str], *, timeout_ms: int | None = None
    ) -> dict[str, TransactionDetails]:
        """Returns state, producer, coordinator and partitions of transactional ids, by name.

        Raises:
            TransactionalIdNotFoundError: There is no such transactional id.
        """
        wanted = list(dict.fromkeys(texts_of("transactional_ids", transactional_ids)))
        deadline = self._deadline(timeout_ms)
        await self._view.ready(deadline.left_ms)
        found = await side_by_side(wanted, lambda name: self._details(name, deadline))
        return dict(zip(wanted, found, strict=True))

    async def find_hanging_transactions(
        self,
        partitions: Iterable[tuple[str, int]] | None = None,
        *,
        silent_for_ms: int = SILENT_MS,
        timeout_ms: int | None = None,
    ) -> tuple[HangingTransaction, ...]:
        """Returns the open transactions that no coordinator knows of, by topic and partition.

        Leaders are asked for the producers of their partitions, every broker for the transactional ids of those that have been silent, and
        coordinators for the partitions of these.  Partitions that nobody leads just now are left out.

        Args:
            partitions: The partitions to look at; None: all.
            silent_for_ms: The time for which a producer must have written nothing, in milliseconds: more than `transaction.max.timeout.ms` of
                the brokers.
            timeout_ms: The limit of the whole call, in milliseconds.

        Raises:
            UnknownTopicOrPartitionError: A partition does not exist.
        """
        require_whole("silent_for_ms", silent_for_ms)
        named = None if partitions is None else partitions_of("partitions", partitions)
        deadline = self._deadline(timeout_ms)
        metadata = await self._view.describe(deadline.left_ms)
        everywhere = [
            TopicPartition(topic.name, each.partition_id) for topic in metadata.topics for each in topic.partitions
        ]
        now_ms = time.time_ns() // 1_000_000
        producers = await self._producers(everywhere if named is None else named, deadline)
        silent = [
            _hanging(partition, producer, now_ms)
            for partition, found in producers.items()
            for producer in found
            if producer.first_offset >= 0 and now_ms - producer.last_ms > silent_for_ms
        ]
        unknown = await self._unknown(silent, deadline)
        again = await self._producers([TopicPartition(each.topic, each.partition) for each in unknown], deadline)
        return tuple(
            sorted((each for each in unknown if _is_open(each, again)), key=lambda each: (each.topic, each.partition))
        )

    async def abort_transaction(self, transactional_id: str, *, timeout_ms: int | None = None) -> TransactionDetails:
        """Aborts the open transaction of a transactional id by taking the id over; returns what was open.

        Its producer is fenced: it cannot go on, and whoever runs it has to make a new one.  A commit of the producer that comes first is
        what counts.

        Raises:
            TransactionalIdNotFoundError: There is no such transactional id.
            InvalidTxnStateError: It has no transaction open; nobody is fenced.
        """
        from replog.client.protocol.questions.transactions import BeginProducing  # with Kafka's messages for producers

        require_text("transactional_id", transactional_id)
        deadline = self._deadline(timeout_ms)
        await self._view.ready(deadline.left_ms)
        found = await self._details(transactional_id, deadline)
        _require_open(found)
        coordinator = self._coordinator(transactional_id)
        question = BeginProducing(transactional_id, max(1, min(found.timeout_ms, TAKEN_OVER_MS)))
        what = f"take over transactional id {transactional_id}"
        await ask_coordinator(self._view, coordinator, question, deadline, what)
        return found

    async def abort_hanging_transaction(
        self, partition: tuple[str, int], first_offset: int, *, timeout_ms: int | None = None
    ) -> HangingTransaction:
        """Ends a transaction that no coordinator knows of in one partition, by a marker; returns what was open.

        Args:
            partition: The topic and the partition.
            first_offset: The offset at which the transaction begins, as `find_hanging_transactions` tells it.
            timeout_ms: The limit of the whole call, in milliseconds.

        Raises:
            InvalidRequestError: No transaction that is open begins there.
            InvalidTxnStateError: Its coordinator knows it: a marker of ours would end a part of it alone.
            UnknownTopicOrPartitionError: The partition does not exist.
        """
        place = partition_of("partition", partition)
        require_whole("first_offset", first_offset)
        deadline = self._deadline(timeout_ms)
        await self._view.describe(deadline.left_ms)
        found = await self._open_at(place, first_offset, deadline)
        if found is None:
            raise InvalidRequestError(
                f"{place} has no open transaction that begins at offset {first_offset:,}. `replog transactions find-hanging` shows those "
                "that nobody ends"
            )
        if not await self._unknown([found], deadline):
            raise InvalidTxnStateError(
                f"the transaction at offset {first_offset:,} of {place} is no hanging one: transactional id {await self._owner(found, deadline)} "
                "has it open, and its coordinator ends it. `replog transactions abort` with that transactional id aborts it in all partitions"
            )
        await self._write_abort(place, found, deadline)
        return found

    async def _wait_for_markers(self, partitions: Sequence[TopicPartition], deadline: Deadline) -> None:
        """Waits until each transaction that was committed has its end in these partitions, below the high watermarks.

        A commit is acknowledged before that.  Its producer begins another transaction only after it.

        Raises:
            RequestTimedOutError: Some have not in time.
        """
        before = await self._first_offsets(partitions, deadline)
        waiting = {producer_id for _, producer_id in before}
        while waiting:
            listed = await self.list_transactions(states=[_COMMITTING], timeout_ms=deadline.left_ms)
            waiting &= {one.producer_id for one in listed}
            if waiting:
                now = await self._first_offsets(partitions, deadline)
                waiting -= {each[1] for each, first in now.items() if first >= 0 and first != before.get(each)}
                await asyncio.sleep(MARKERS_PAUSE_S)

    async def _first_offsets(
        self, partitions: Sequence[TopicPartition], deadline: Deadline
    ) -> dict[tuple[TopicPartition, int], int]:
        """Returns where the transactions of each producer in each partition begin that is open, -1: it has had some."""
        return {
            (place, each.producer_id): each.first_offset
            for place, found in (await self._producers(partitions, deadline, skips_leaderless=False)).items()
            for each in found
            if each.first_offset >= 0 or each.coordinator_epoch >= 0
        }

    # ---- coordinators ----------------------------------------------------------------------------------------------

    def _coordinator(self, name: str) -> Coordinator:
        from replog.client.protocol.questions.group_members import TRANSACTION  # with Kafka's messages for members

        return Coordinator(self._view, name, TRANSACTION)

    async def _details(self, name: str, deadline: Deadline) -> TransactionDetails:
        coordinator = self._coordinator(name)
        what = f"describe transactional id {name}"
        try:
            found = await ask_coordinator(self._view, coordinator, DescribeTransactionalId(name), deadline, what)
        except TransactionalIdNotFoundError as error:
            raise TransactionalIdNotFoundError(
                f'there is no transactional id "{name}" (any more). `replog transactions list` shows those that there are.'
            ) from error
        return replace(found, coordinator_id=coordinator.broker_id)

    async def _unknown(
        self, silent: Sequence[HangingTransaction], deadline: Deadline
    ) -> tuple[HangingTransaction, ...]:
        """Returns those of which the coordinator of the producer's transactional id does not know."""
        names = await self._names({each.producer_id for each in silent}, deadline)
        named = [replace(each, transactional_id=names.get(each.producer_id, "")) for each in silent]
        wanted = sorted({each.transactional_id for each in named if each.transactional_id})
        details = await side_by_side(wanted, lambda name: self._maybe_details(name, deadline))
        known = dict(zip(wanted, details, strict=True))
        return tuple(each for each in named if not _is_known(each, known.get(each.transactional_id)))

    async def _maybe_details(self, name: str, deadline: Deadline) -> TransactionDetails | None:
        try:
            return await self._details(name, deadline)
        except TransactionalIdNotFoundError:
            return None

    async def _names(self, producer_ids: Collection[int], deadline: Deadline) -> dict[int, str]:
        """Returns the transactional ids of producers that have one."""
        found: dict[int, str] = {}
        for part in in_parts(sorted(producer_ids)) if producer_ids else ():
            listed = await self.list_transactions(producer_ids=part, timeout_ms=deadline.left_ms)
            found |= {each.producer_id: each.transactional_id for each in listed}
        return found

    async def _owner(self, found: HangingTransaction, deadline: Deadline) -> str:
        return repr((await self._names({found.producer_id}, deadline)).get(found.producer_id, ""))

    # ---- leaders ---------------------------------------------------------------------------------------------------

    async def _producers(
        self, partitions: Sequence[TopicPartition], deadline: Deadline, *, skips_leaderless: bool = True
    ) -> dict[TopicPartition, tuple[ActiveProducer, ...]]:
        found: dict[TopicPartition, tuple[ActiveProducer, ...]] = {}
        for part in in_parts(partitions) if partitions else ():
            told = await ask_leaders(
                self._view,
                part,
                lambda place, leader: AskedProducers(place.topic, leader.topic_id, place.partition),
                DescribeProducers,
                timeout_ms=deadline.left_ms,
                what="describe producers",
                skips_leaderless=skips_leaderless,
            )
            found |= {partition: result.producers for partition, result in told.items()}
        return found

    async def _open_at(self, place: TopicPartition, first_offset: int, deadline: Deadline) -> HangingTransaction | None:
        producers = (await self._producers([place], deadline, skips_leaderless=False))[place]
        now_ms = time.time_ns() // 1_000_000
        found = (_hanging(place, each, now_ms) for each in producers if each.first_offset >= 0)
        return next((each for each in found if each.first_offset == first_offset), None)

    async def _write_abort(self, place: TopicPartition, found: HangingTransaction, deadline: Deadline) -> None:
        """Asks the leader to write the marker; where an answer was lost, one is written again only while the transaction is open."""
        named = (NamedPartitions(place.topic, (place.partition,)),)
        marker = Marker(
            found.producer_id,
            found.producer_epoch,
            max(0, found.coordinator_epoch),  # leaders refuse a negative one
            is_commit=False,
            bumps_epochs=False,
            topics=named,
        )
        fate = Fate()

        async def attempt(remaining_ms: int) -> None:
            if fate.unknown and await self._open_at(place, found.first_offset, deadline) is None:
                return
            leader = self._leader(place)
            request, within_ms = WriteMarkersRequest((marker,)), min(remaining_ms, ATTEMPT_TIMEOUT_MS)
            try:
                (refusals,) = (await self._view.call(leader.address, request, timeout_ms=within_ms)).refusals
                for refusal in refusals:
                    raise partition_error(refusal.error, refusal.message or _REFUSED.get(refusal.error, ""), place)
            except RetriableError as error:
                fate.note(error)
                self._view.request_refresh()
                raise

        what = f"abort the transaction at offset {found.first_offset} of {place}"
        await retry(attempt, timeout_ms=deadline.left_ms, what=what, backoff=Backoff(self._view.rng))

    def _leader(self, place: TopicPartition) -> LeaderAddress:
        leader = self._view.leader(*place)
        if leader is None:
            self._view.request_refresh()
            raise LeaderNotAvailableError(self._view.image.why_leaderless(*place))
        return leader


def _hanging(partition: TopicPartition, producer: ActiveProducer, now_ms: int) -> HangingTransaction:
    return HangingTransaction(
        partition.topic,
        partition.partition,
        producer.producer_id,
        producer.producer_epoch,
        producer.coordinator_epoch,
        producer.first_offset,
        max(0, now_ms - producer.last_ms),
    )


def _is_known(each: HangingTransaction, details: TransactionDetails | None) -> bool:
    """Whether the coordinator has the partition in the transaction of this producer."""
    if details is None or details.producer_id != each.producer_id:
        return False
    return TopicPartition(each.topic, each.partition) in details.partitions


def _is_open(each: HangingTransaction, producers: dict[TopicPartition, tuple[ActiveProducer, ...]]) -> bool:
    """Whether it is still open: between the questions its marker may have come."""
    found = producers.get(TopicPartition(each.topic, each.partition), ())
    return any((one.producer_id, one.first_offset) == (each.producer_id, each.first_offset) for one in found)


def _require_open(found: TransactionDetails) -> None:
    name = found.transactional_id
    if found.state in _AT_REST:
        raise InvalidTxnStateError(
            f'transactional id "{name}" has no transaction open (it is {found.state}): there is nothing to abort, and its producer goes on'
        )
    if found.state in _DECIDED:
        places = ", ".join(map(str, found.partitions[:5])) or "none"
        raise InvalidTxnStateError(
            f'the transaction of "{name}" is being {_DECIDED[found.state]}: it ends when the leaders of its partitions have written that '
            f"(left: {places}). `replog status` shows partitions without a leader"
        )


def _known_states(asked: Iterable[str]) -> tuple[str, ...]:
    """Refuses a word that no transaction fits: the list would be empty, and look like an answer."""
    by_lower = {each.lower(): each for each in STATES}
    names = texts_of("states", asked)
    for name in names:
        if name.strip().lower() not in by_lower:
            raise InvalidRequestError(f"no transaction has the state {name!r}; there are: {', '.join(STATES)}")
    return tuple(by_lower[name.strip().lower()] for name in names)
