"""What transactions appended and readers saw, and which promises of transactions were broken.

Each transaction appends unique values to partitions and has an outcome: committed, aborted, or unknown.  Readers of committed
records see sequences of each partition, and at the end everything is read once more.  From this `check` derives what depends on
what, as Elle does for lists that grow (Kingsbury and Alvaro, 2020): the order of the records of a partition is the order of the
writes.  It is pure, and takes time in proportion to the history.

======================= ==============================================================================================
`write_cycle`           G0, of one transactional id, whose transactions exclude each other: of two of them each wrote before the
                        other somewhere, or they are mixed in one partition.  Of different ids this is no anomaly: a log orders
                        the records of each partition only
`aborted_read`          G1a: a value of an aborted transaction is read, or is there at the end
`intermediate_read`     G1b: a reader had a value before anybody asked for the commit of its transaction
`circular_flow`         G1c: transactions that took input from one another, or follow one another under a transactional id, in a
                        circle
`torn_transaction`      at the end some values of a transaction are there and others are not
`lost_write`            nothing of a transaction is there at the end though its commit was acknowledged
`duplicate`             one value at two places at the end
`nonmonotonic_send`     values of one transaction stand in another order than they were appended in
`poll_skip`             a reader went past a committed value
`nonmonotonic_poll`     a reader went back
`stale_read`            what a reader saw is not there at the end
`input_twice`           an input has two outputs at the end: a record was taken twice
`input_lost`            the committed offset of a group is past an input without output: offsets without records
`input_early`           an input at or past the committed offset has an output: records without offsets
======================= ==============================================================================================

A reader may see a transaction in one partition and not yet in another: each has its own last stable offset.  So all or nothing
holds at the end, and of each partition at all times.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from replog.testing.history import AnomaliesFoundError, Anomaly, AnomalyKind, Partition, Place

NOWHERE: Final = -1


class TransactionOutcome(StrEnum):
    """What is known of the end of a transaction."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


class TransactionWrite(NamedTuple):
    """A value that a transaction appended, and the record it was made from, if any."""

    partition: Partition
    value: bytes
    source: Place | None


class RecordedTransaction:
    """One transaction.

    Attributes:
        number: Its place among all transactions, in the order in which they were begun.
        transactional_id: The id whose producers exclude each other.
        writes: What it appended, in order.
        outcome: What is known of its end.
        commit_asked_at: When its commit was asked for; None: never.
    """

    __slots__ = ("commit_asked_at", "number", "outcome", "transactional_id", "writes")

    def __init__(self, number: int, transactional_id: str) -> None:
        self.number = number
        self.transactional_id = transactional_id
        self.writes: list[TransactionWrite] = []
        self.outcome = TransactionOutcome.UNKNOWN
        self.commit_asked_at: float | None = None

    def append(self, partition: Partition, value: bytes, source: Place | None = None) -> None:
        """Notes that a value is appended.

        Args:
            partition: The partition.
            value: The value, unique in the history.
            source: The record that was consumed for it, whose offset the transaction commits.
        """
        self.writes.append(TransactionWrite(partition, value, source))


class _Poll(NamedTuple):
    """One record that a reader was handed, and when; `is_placed`: the reader had just been placed anew."""

    offset: int
    value: bytes
    at: float
    is_placed: bool


class _Found(NamedTuple):
    """Where the value of a write stands at the end."""

    partition: Partition
    offset: int


class TransactionHistory:
    """Transactions and reads of one run.

    ::

        history = TransactionHistory()
        transaction = history.begin("id")
        transaction.append(("t", 0), b"a")
        history.ask_commit(transaction)
        transaction.outcome = TransactionOutcome.COMMITTED
        history.poll("reader", ("t", 0), [(0, b"a")])
        history.final_read(("t", 0), [(0, b"a")])
        assert history.check() == ()

    Times are of one clock for all that is noted; without one they count up.
    """

    def __init__(self) -> None:
        self.transactions: list[RecordedTransaction] = []
        self._polls: dict[tuple[str, Partition], list[_Poll]] = {}
        self._placed: set[tuple[str, Partition]] = set()
        self._final: dict[Partition, list[tuple[int, bytes]]] = {}
        self._committed: dict[Partition, int] = {}
        self._moment = itertools.count()

    # ---- recording -------------------------------------------------------------------------------------------------

    def begin(self, transactional_id: str) -> RecordedTransaction:
        """Notes that a transaction begins; returns it.  Those of one transactional id are begun one after another."""
        transaction = RecordedTransaction(len(self.transactions), transactional_id)
        self.transactions.append(transaction)
        return transaction

    def ask_commit(self, transaction: RecordedTransaction, at: float | None = None) -> None:
        """Notes that the commit of a transaction is about to be asked for."""
        transaction.commit_asked_at = next(self._moment) if at is None else at

    def poll(
        self, reader: str, partition: Partition, records: Iterable[tuple[int, bytes]], at: float | None = None
    ) -> None:
        """Notes that a reader of committed records was handed these (offset, value), in this order."""
        key, moment = (reader, partition), next(self._moment) if at is None else at
        polls = self._polls.setdefault(key, [])
        for offset, value in records:
            polls.append(_Poll(offset, value, moment, not polls or key in self._placed))
            self._placed.discard(key)

    def place(self, reader: str, partition: Partition) -> None:
        """Notes that the next record of a reader may be anywhere: it was assigned the partition anew."""
        self._placed.add((reader, partition))

    def final_read(self, partition: Partition, records: Iterable[tuple[int, bytes]]) -> None:
        """Notes all committed records of a partition, read after everything had ended."""
        self._final[partition] = list(records)

    def final_offset(self, partition: Partition, offset: int) -> None:
        """Notes up to where the group that makes outputs from a partition has committed at the end.

        The inputs of that partition are in its final read.
        """
        self._committed[partition] = offset

    # ---- questions -------------------------------------------------------------------------------------------------

    def count(self, outcome: TransactionOutcome) -> int:
        """Returns how many transactions had an outcome."""
        return sum(transaction.outcome is outcome for transaction in self.transactions)

    def check(self) -> tuple[Anomaly, ...]:
        """Returns all anomalies, sorted by kind and place; each at most once."""
        owners = {write.value: each for each in self.transactions for write in each.writes}
        found = self._found()
        return tuple(
            sorted(
                {
                    *self._duplicates(),
                    *self._outcomes(found),
                    *self._orders(found),
                    *self._mixtures(owners),
                    *self._reads(owners),
                    *self._inputs(found),
                    *self._circles(owners),
                }
            )
        )

    def check_or_raise(self) -> None:
        """Raises `AnomaliesFoundError` when `check` finds something."""
        anomalies = self.check()
        if anomalies:
            raise AnomaliesFoundError(anomalies)

    def _found(self) -> dict[bytes, _Found]:
        """Returns where each value stands at the end; of two places the first."""
        found: dict[bytes, _Found] = {}
        for partition, records in self._final.items():
            for offset, value in records:
                found.setdefault(value, _Found(partition, offset))
        return found

    # ---- one function per promise ----------------------------------------------------------------------------------

    def _duplicates(self) -> Iterator[Anomaly]:
        first: dict[bytes, Place] = {}
        for partition, records in self._final.items():
            for offset, value in records:
                before = first.setdefault(value, (partition, offset))
                if before != (partition, offset):
                    detail = f"{value!r} stands at {_shown(before)} too"
                    yield Anomaly(AnomalyKind.DUPLICATE, partition, offset, detail)

    def _outcomes(self, found: Mapping[bytes, _Found]) -> Iterator[Anomaly]:
        """Yields `lost_write`, `torn_transaction` and, for what is there at the end, `aborted_read`."""
        for transaction in self.transactions:
            writes = [write for write in transaction.writes if write.partition in self._final]
            there = [write for write in writes if write.value in found]
            if transaction.outcome is TransactionOutcome.ABORTED:
                for write in there:
                    where = found[write.value]
                    detail = f"{write.value!r} is here, its transaction {transaction.number} was aborted"
                    yield Anomaly(AnomalyKind.ABORTED_READ, where.partition, where.offset, detail)
            elif there and len(there) < len(writes):
                lost = next(write for write in writes if write.value not in found)
                detail = (
                    f"{lost.value!r} is not here, {len(there)} of {len(writes)} values of its transaction "
                    f"{transaction.number} are where they belong; its outcome: {transaction.outcome}"
                )
                yield Anomaly(AnomalyKind.TORN_TRANSACTION, lost.partition, NOWHERE, detail)
            elif writes and not there and transaction.outcome is TransactionOutcome.COMMITTED:
                detail = (
                    f"transaction {transaction.number} was committed, and none of its {len(writes)} values is there"
                )
                yield Anomaly(AnomalyKind.LOST_WRITE, writes[0].partition, NOWHERE, detail)

    def _orders(self, found: Mapping[bytes, _Found]) -> Iterator[Anomaly]:
        """Yields `nonmonotonic_send`: within one transaction, by partition."""
        for transaction in self.transactions:
            last: dict[Partition, int] = {}
            for write in transaction.writes:
                where = found.get(write.value)
                if where is None:
                    continue
                before = last.get(where.partition, NOWHERE)
                if where.offset < before:
                    detail = f"{write.value!r} was appended after the value at offset {before}"
                    yield Anomaly(AnomalyKind.NONMONOTONIC_SEND, where.partition, where.offset, detail)
                last[where.partition] = max(before, where.offset)

    def _mixtures(self, owners: Mapping[bytes, RecordedTransaction]) -> Iterator[Anomaly]:
        """Yields `write_cycle`: in each partition the transactions of one id come in the order in which they were begun."""
        for partition, records in self._final.items():
            last: dict[str, int] = {}
            for offset, value in records:
                owner = owners.get(value)
                if owner is None:
                    continue
                before = last.get(owner.transactional_id, NOWHERE)
                if owner.number < before:
                    detail = (
                        f"{value!r} of transaction {owner.number} stands after values of {before}, "
                        f"which {owner.transactional_id} began later"
                    )
                    yield Anomaly(AnomalyKind.WRITE_CYCLE, partition, offset, detail)
                last[owner.transactional_id] = max(before, owner.number)

    def _reads(self, owners: Mapping[bytes, RecordedTransaction]) -> Iterator[Anomaly]:
        indexes = {
            partition: {offset: index for index, (offset, _) in enumerate(records)}
            for partition, records in self._final.items()
        }
        for (reader, partition), polls in self._polls.items():
            for poll in polls:
                owner = owners.get(poll.value)
                if owner is not None:
                    yield from _unfinished(reader, partition, poll, owner)
            if partition in self._final:
                yield from _out_of_order(reader, partition, polls, self._final[partition], indexes[partition])

    def _inputs(self, found: Mapping[bytes, _Found]) -> Iterator[Anomaly]:
        outputs: dict[Place, bytes] = {}
        for transaction in self.transactions:
            for write in transaction.writes:
                if write.source is None or write.value not in found:
                    continue
                first = outputs.setdefault(write.source, write.value)
                if first != write.value:
                    detail = f"{first!r} and {write.value!r} were both made from it"
                    yield Anomaly(AnomalyKind.INPUT_TWICE, *write.source, detail)
        for partition, end in self._committed.items():
            for offset, value in self._final.get(partition, ()):
                output = outputs.get((partition, offset))
                if offset < end and output is None:
                    detail = f"nothing was made from {value!r}, and offset {end} is committed"
                    yield Anomaly(AnomalyKind.INPUT_LOST, partition, offset, detail)
                elif offset >= end and output is not None:
                    detail = f"{output!r} was made from {value!r}, and offset {end} is committed"
                    yield Anomaly(AnomalyKind.INPUT_EARLY, partition, offset, detail)

    def _circles(self, owners: Mapping[bytes, RecordedTransaction]) -> Iterator[Anomaly]:
        """Yields `circular_flow`, one for each circle of transactions that depend on one another."""
        for circle in circles(self._dependencies(owners)):
            shown = ", ".join(str(number) for number in circle[:10])
            write = next((write for number in circle for write in self.transactions[number].writes), None)
            partition = ("", NOWHERE) if write is None else write.partition
            detail = (
                f"transactions {shown}{', ...' if len(circle) > 10 else ''} each depend on the one before, in a circle"
            )
            yield Anomaly(AnomalyKind.CIRCULAR_FLOW, partition, NOWHERE, detail)

    def _dependencies(self, owners: Mapping[bytes, RecordedTransaction]) -> list[list[int]]:
        """Returns for each transaction those that depend on it: that took its values, or come next under its id."""
        values = {(partition, offset): value for partition, records in self._final.items() for offset, value in records}
        later: list[list[int]] = [[] for _ in self.transactions]
        last: dict[str, int] = {}
        for transaction in self.transactions:
            before = last.get(transaction.transactional_id)
            if before is not None:
                later[before].append(transaction.number)
            last[transaction.transactional_id] = transaction.number
            sources = (write.source for write in transaction.writes if write.source is not None)
            for owner in (owners.get(values.get(source, b"")) for source in sources):
                if owner is not None:
                    later[owner.number].append(transaction.number)
        return later


def _unfinished(reader: str, partition: Partition, poll: _Poll, owner: RecordedTransaction) -> Iterator[Anomaly]:
    """Yields what is wrong with a read that its transaction alone tells."""
    if owner.outcome is TransactionOutcome.ABORTED:
        detail = f"{reader} read {poll.value!r} of transaction {owner.number}, which was aborted"
        yield Anomaly(AnomalyKind.ABORTED_READ, partition, poll.offset, detail)
    elif owner.commit_asked_at is None or poll.at < owner.commit_asked_at:
        detail = f"{reader} read {poll.value!r} before the commit of transaction {owner.number} was asked for"
        yield Anomaly(AnomalyKind.INTERMEDIATE_READ, partition, poll.offset, detail)


def _out_of_order(
    reader: str,
    partition: Partition,
    polls: Iterable[_Poll],
    final: list[tuple[int, bytes]],
    indexes: Mapping[int, int],
) -> Iterator[Anomaly]:
    """Yields where a reader did not read what is there at the end, one after another."""
    last = NOWHERE
    for poll in polls:
        index = indexes.get(poll.offset)
        if index is None or final[index][1] != poll.value:
            detail = (
                f"{reader} read {poll.value!r}, at the end there is {'nothing' if index is None else final[index][1]!r}"
            )
            yield Anomaly(AnomalyKind.STALE_READ, partition, poll.offset, detail)
            continue
        if not poll.is_placed and index <= last:
            detail = f"{reader} read it after offset {final[last][0]}"
            yield Anomaly(AnomalyKind.NONMONOTONIC_POLL, partition, poll.offset, detail)
        elif not poll.is_placed and index > last + 1:
            offset, value = final[last + 1]
            detail = f"{reader} went past {value!r} to offset {poll.offset}"
            yield Anomaly(AnomalyKind.POLL_SKIP, partition, offset, detail)
        last = index


def circles(later: list[list[int]]) -> Iterator[list[int]]:
    """Yields the nodes of each strongly connected part of a graph that is a circle (Tarjan, without recursion).

    Args:
        later: The nodes that each node points to, by number.
    """
    order = [NOWHERE] * len(later)
    low = [0] * len(later)
    is_open = bytearray(len(later))
    open_nodes: list[int] = []
    numbers = itertools.count()
    for root in range(len(later)):
        walk = [(root, iter(later[root]))] if order[root] == NOWHERE else []
        while walk:
            node, following = walk[-1]
            if order[node] == NOWHERE:
                order[node] = low[node] = next(numbers)
                open_nodes.append(node)
                is_open[node] = True
            step = next(following, None)
            if step is not None:
                if order[step] == NOWHERE:
                    walk.append((step, iter(later[step])))
                elif is_open[step]:
                    low[node] = min(low[node], order[step])
                continue
            walk.pop()
            if walk:
                parent = walk[-1][0]
                low[parent] = min(low[parent], low[node])
            if low[node] == order[node]:
                part = _closed(open_nodes, is_open, node)
                if len(part) > 1 or node in later[node]:
                    yield sorted(part)


def _closed(open_nodes: list[int], is_open: bytearray, node: int) -> list[int]:
    """Returns the nodes that were opened since a node, that one too, and closes them."""
    part: list[int] = []
    while not part or part[-1] != node:
        part.append(open_nodes.pop())
        is_open[part[-1]] = False
    return part


def _shown(place: Place) -> str:
    (topic, number), offset = place
    return f"{topic}-{number} offset {offset}"
