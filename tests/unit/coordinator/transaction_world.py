"""Producers, partitions and a writer of markers around a shard of transactions, and what must hold whatever happens.

Partitions take records and markers as their leaders do: an epoch below the newest one is fenced, and so is a marker of an earlier
coordinator.  So each rule here is about what readers would see.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any, Final

from msgspec import Struct, field
from msgspec.structs import replace
from transaction_kit import TIMEOUT_MS, Producer, TransactionHost, compacted, decoded

from replog.coordinator.config import TransactionsConfig
from replog.coordinator.runtime.messages import ReplyError, Resigned, Tick
from replog.coordinator.transactions.records import TRANSACTION_RECORDS, WrittenTransaction, transaction_record
from replog.coordinator.transactions.requests import (
    AddPartitions,
    EndTransaction,
    Incarnation,
    InitProducer,
    MarkedEnd,
    MarkersWritten,
    TransactionEnd,
    TransactionPartition,
    WaitForEnds,
)
from replog.errors import NotEnoughReplicasError, RetriableError

CONFIG = TransactionsConfig(visits_per_step=2, id_expiration_ms=1_000_000)
NEARLY_LAST_EPOCH: Final = 32_761
LAST_EPOCH: Final = 32_766
NAMES: Final = ("v1", "v2", "old", "new")
PARTITIONS: Final = tuple(TransactionPartition("t", number) for number in range(3))


class BrokenRuleError(AssertionError):
    """A rule is broken."""


class Partition:
    """A partition as its leader has it.

    Attributes:
        open: The transactions with records here that have no marker yet, by producer id.
        outcomes: Whether each transaction that has ended here was committed.
    """

    def __init__(self) -> None:
        self.open: dict[int, set[int]] = defaultdict(set)
        self.outcomes: dict[int, bool] = {}
        self.epochs: dict[int, int] = {}
        self.coordinators: dict[int, int] = {}

    def write(self, at: Incarnation, transaction: int) -> bool:
        """Takes a record; returns whether the producer may write."""
        if at.producer_epoch < self.epochs.get(at.producer_id, -1):
            return False
        if transaction in self.outcomes:
            raise BrokenRuleError(f"transaction {transaction} writes behind its end")
        self.epochs[at.producer_id] = at.producer_epoch
        self.open[at.producer_id].add(transaction)
        return True

    def mark(self, end: TransactionEnd) -> None:
        """Takes a marker, unless it is late."""
        producer_id, epoch = end.producer.producer_id, end.producer.producer_epoch
        has_newer = end.coordinator_epoch < self.coordinators.get(producer_id, -1)
        known = self.epochs.get(producer_id, -1)
        if has_newer or epoch < known or (end.bumps_epochs and epoch == known and self.open[producer_id]):
            return
        self.coordinators[producer_id], self.epochs[producer_id] = end.coordinator_epoch, epoch
        for transaction in self.open.pop(producer_id, ()):
            self.outcomes[transaction] = end.is_commit


class Client(Struct):
    """A process with a transactional id; after a restart, another one.

    Attributes:
        producer: What it asks.
        incarnation: Its number among all of them.
        transaction: The number of its transaction.
        partitions: The partitions that it has added to it.
        request_id: The request that it waits for; 0 where there is none.
        again: The request that it has to repeat; None where there is none.
        is_dead: Whether it may not go on.
    """

    producer: Producer
    incarnation: int
    transaction: int
    partitions: set[TransactionPartition] = field(default_factory=set)
    request_id: int = 0
    again: Any = None
    is_dead: bool = False


class Asked(Struct):
    """A request of a client.

    Attributes:
        incarnation: Which of all clients.
        at_step: When.
    """

    client: Client
    incarnation: int
    request: Any
    at_step: int


class World:
    """All of it.

    Attributes:
        told: Whether each transaction was committed, as its producer was told.
        owners: Which process was told to write with an incarnation.
        renamed_count: How often a producer was given another id.
        lost_count: How often an answer with ends was lost.
        taken: For each transactional id, the newest process that has taken it over, and when it was told.
    """

    def __init__(self) -> None:
        self.host = TransactionHost(CONFIG)
        self.host.cluster.transaction_version = 1
        self.partitions = {each: Partition() for each in PARTITIONS}
        self.told: dict[int, bool] = {}
        self.owners: dict[Incarnation, int] = {}
        self.taken: dict[str, tuple[int, int]] = {}
        self.clients: dict[str, Client] = {}
        self.before: dict[str, Client] = {}
        self.asked: dict[int, Asked] = {}
        self.step = 0
        self._numbers = 0
        self._heard = 0
        self._checked = 0
        self._newest: dict[str, WrittenTransaction] = {}
        self.waiting = 0
        self.ends: list[tuple[TransactionEnd, set[TransactionPartition]]] = []
        self.is_held = False
        self.renamed_count = self.lost_count = 0
        self.late: list[TransactionEnd] = []
        self._marks: dict[int, MarkersWritten] = {}
        self._marks_again: list[MarkersWritten] = []
        for name in NAMES:
            if name in {"old", "new"}:
                value = WrittenTransaction(
                    self.number(), producer_epoch=NEARLY_LAST_EPOCH, transaction_timeout_ms=TIMEOUT_MS
                )
                self.host.log.append(TRANSACTION_RECORDS.encode(transaction_record(name, value, 1)))
            self.restart(name)
        self.host.high_watermark = len(self.host.log)
        self.host.lead()

    def number(self) -> int:
        """A number that nothing has."""
        self._numbers += 1
        return self._numbers

    def do(self, action: str, name: str, choice: int) -> None:
        """Does one thing, and checks what may be checked at any time."""
        host = self.host
        self.step += 1
        match action:
            case "act":
                self.act(name, choice)
            case "restart":
                self.restart(name)
            case "before" if name in self.before:
                self.go_on(self.before[name], choice)
            case "mark":
                self.write_markers(choice)
            case "late":
                self.mark_late(choice)
            case "refuse":
                host.refuses = None if host.refuses else NotEnoughReplicasError("1 of 2")
            case "lose":
                self.lose(choice)
            case "cut":
                self.change_leader(choice)
            case "upgrade":
                host.cluster.transaction_version = choice % 3
            case "sleep":
                self.pass_time(10_000 * choice, commits=not self.is_held)
            case "age":  # in an hour of a log that takes nothing, the same is tried again ten thousand times
                takes_nothing = self.is_held or host.refuses is not None
                self.pass_time(100_000 if takes_nothing else 3_600_000, commits=not self.is_held)
            case "hold" | "commit":
                self.is_held = action == "hold"
        if not self.is_held:
            host.commit()
        self.hear()
        self.check_log()

    # ---- producers --------------------------------------------------------------------------------------------------

    def restart(self, name: str) -> None:
        """Begins another process with a transactional id; the one before goes on, for it does not know."""
        if name in self.clients and not self.clients[name].is_dead:
            self.before[name] = self.clients[name]
        self.clients[name] = Client(Producer(name in {"v2", "new"}, name), self.number(), self.number())

    def act(self, name: str, choice: int) -> None:
        """Lets a producer ask something, unless it waits."""
        client = self.clients[name]
        if client.is_dead and not client.request_id:
            self.restart(name)
        else:
            self.go_on(client, choice)

    def go_on(self, client: Client, choice: int) -> None:
        """Lets a process ask something, unless it waits, or has ended."""
        if client.request_id or client.is_dead:
            return
        client.producer.spare = self.number()
        request = client.again or self._next_request(client, choice)
        client.again = None
        if hasattr(request, "spare_producer_id"):
            request = replace(request, spare_producer_id=client.producer.spare)
        self.send(client, request, 0 if choice == 0 else 30_000)

    def _next_request(self, client: Client, choice: int) -> Any:
        producer = client.producer
        if producer.at.producer_id < 0:
            return producer.init()
        if choice == 1 and not client.partitions:
            return producer.init(knows=True)
        if choice in {2, 3} and client.partitions:
            return producer.commit()
        if choice == 4 and (client.partitions or producer.bumps):
            return producer.abort()
        wait_ms = 50 if producer.bumps else 0  # of a leader that asks for its producer
        return replace(producer.add(PARTITIONS[choice % len(PARTITIONS)]), wait_ms=wait_ms)

    def send(self, client: Client, request: Any, timeout_ms: int) -> None:
        """Asks; the answer may leave at once."""
        host = self.host
        client.request_id = host.submit(request, host.now_ms + timeout_ms if timeout_ms else None)
        self.asked[client.request_id] = Asked(client, client.incarnation, request, self.step)

    def hear(self) -> None:
        """Lets everybody hear what has been answered, in order."""
        while self._heard < len(self.host.answers):
            request_id = list(self.host.answers)[self._heard]
            self._heard += 1
            self._hear(request_id, self.host.answers[request_id])

    def _hear(self, request_id: int, answer: Any) -> None:
        if request_id == self.waiting:
            self.waiting = 0
            if isinstance(answer, ReplyError):
                self.lost_count += 1
            else:
                self._take(answer.response.ends)
            return
        mark = self._marks.pop(request_id, None)
        if mark is not None and isinstance(answer, ReplyError):
            self._marks_again.append(mark)  # whoever writes markers does not know whether it has been noted
        asked = self.asked.pop(request_id, None)
        if asked is None:
            return
        client = asked.client
        if client.request_id == request_id:
            client.request_id = 0
        if isinstance(answer, ReplyError):
            client.again = asked.request if isinstance(answer.error, RetriableError) else None
            client.is_dead = not isinstance(answer.error, RetriableError)
            return
        self._check_success(asked)
        match asked.request:
            case InitProducer():
                self._tell(client, answer.response.producer)
                if asked.request.known is None:
                    self.taken[client.producer.name] = (client.incarnation, self.step)
            case AddPartitions():
                self._write(client, asked.request.partitions)
            case EndTransaction():
                self.told[client.transaction] = asked.request.is_commit
                client.transaction, client.partitions = self.number(), set()
                self._tell(client, answer.response.producer)

    def _check_success(self, asked: Asked) -> None:
        incarnation, at_step = self.taken.get(asked.client.producer.name, (-1, -1))
        takes_over = isinstance(asked.request, InitProducer) and asked.request.known is None
        if not takes_over and asked.incarnation != incarnation and asked.at_step > at_step:
            raise BrokenRuleError(f"{asked.request} succeeds, and process {incarnation} has taken over")

    def _tell(self, client: Client, at: Incarnation) -> None:
        if self.owners.setdefault(at, client.incarnation) != client.incarnation:
            raise BrokenRuleError(f"{at} is told to {client.incarnation}, and was to {self.owners[at]}")
        if at.producer_epoch > LAST_EPOCH:
            raise BrokenRuleError(f"{at} cannot be fenced")
        before = client.producer.at
        if at.producer_id == before.producer_id and at.producer_epoch < before.producer_epoch:
            raise BrokenRuleError(f"{at} follows {before}")
        self.renamed_count += before.producer_id not in {-1, at.producer_id}
        client.producer.at = at

    def _write(self, client: Client, partitions: tuple[TransactionPartition, ...]) -> None:
        for each in partitions:
            client.partitions.add(each)
            if not self.partitions[each].write(client.producer.at, client.transaction):
                client.is_dead = True

    # ---- markers ----------------------------------------------------------------------------------------------------

    def _take(self, ends: tuple[TransactionEnd, ...]) -> None:
        committed = dict(decoded(self.host.log[: self.host.high_watermark]))
        for end in ends:
            value = committed.get(end.transactional_id)
            is_decided = value is not None and value.transaction_status == (2 if end.is_commit else 3)
            if not is_decided or value is None or value.producer_id != end.producer.producer_id:
                raise BrokenRuleError(f"{end} is handed over, and what has committed is {value}")
            self.ends.append((end, set(end.partitions)))

    def write_markers(self, choice: int) -> None:
        """Goes on with the writing of markers: asks for ends, writes a marker, or says which are written."""
        if not self.waiting:
            self.waiting = self.host.submit(WaitForEnds())
            self.hear()
        if self._marks_again and choice < 3:
            self._note(self._marks_again.pop(choice % len(self._marks_again)), choice)
        if not self.ends:
            return
        end, left = self.ends[choice % len(self.ends)]
        for partition in sorted(left)[: 1 + choice % 2]:
            self.partitions[partition].mark(end)
            left.discard(partition)
            self._note(MarkersWritten((MarkedEnd(end, (partition,)),)), choice)
        if not left:
            self.ends.remove((end, left))

    def _note(self, request: MarkersWritten, choice: int) -> None:
        host = self.host
        self._marks[host.submit(request, host.now_ms + 1_000 if choice % 2 else None)] = request

    def mark_late(self, choice: int) -> None:
        """Lets a marker come that a coordinator of before had sent."""
        if self.late:
            end = self.late[choice % len(self.late)]
            for partition in end.partitions:
                self.partitions[partition].mark(end)

    # ---- the log ----------------------------------------------------------------------------------------------------

    def lose(self, choice: int) -> None:
        """Lets the log refuse late what it has seemed to take."""
        host = self.host
        may_go = [
            each.base_offset
            for each in host.appended
            if each.epoch == host.epoch and host.high_watermark <= each.base_offset < len(host.log)
        ]
        if may_go:
            base_offset = may_go[choice % len(may_go)]
            host.appended = [each for each in host.appended if each.base_offset < base_offset]
            host.lose(base_offset)

    def change_leader(self, choice: int) -> None:
        """Another leader has what has committed, and perhaps more."""
        host = self.host
        del host.log[host.high_watermark + choice :]
        host.step(Resigned())
        self.hear()
        self.late = [end for end, left in self.ends if left]
        self.ends.clear()
        if self.waiting:
            raise BrokenRuleError("a request that waits for ends has no answer")
        host.lead()
        self.check_state()

    def pass_time(self, delay_ms: int, *, commits: bool) -> None:
        """Lets time pass and timers run."""
        host, end_ms = self.host, self.host.now_ms + delay_ms
        while (deadline_ms := host.shard.next_deadline_ms()) is not None and deadline_ms <= end_ms:
            host.now_ms = max(host.now_ms + 1, deadline_ms)
            host.step(Tick())
            if commits:
                host.commit()
            self.hear()
        host.now_ms = max(host.now_ms, end_ms)

    def check_log(self) -> None:
        """What has committed follows from one another: nothing decided is undone, no epoch falls."""
        host = self.host
        for name, value in decoded(host.log[self._checked : host.high_watermark]):
            before = self._newest.get(name)
            if value is None:
                if before is None or before.transaction_status in {1, 2, 3}:
                    raise BrokenRuleError(f"{name} is forgotten, and was {before}")
                del self._newest[name]
                continue
            self._newest[name] = value
            if before is None:
                continue
            if before.transaction_status in {2, 3} and value.transaction_status != before.transaction_status + 2:
                raise BrokenRuleError(f"{before} is followed by {value}")
            if value.transaction_status in {4, 5} and before.transaction_status != value.transaction_status - 2:
                raise BrokenRuleError(f"{value} follows {before}")
            if value.producer_id == before.producer_id and value.producer_epoch < before.producer_epoch:
                raise BrokenRuleError(f"the epoch falls: {before}, {value}")
        self._checked = host.high_watermark

    def check_state(self) -> None:
        """The state is that of the log, also of a compacted one."""
        live = states(self.host)
        for log in (self.host.log, compacted(self.host.log)):
            other = TransactionHost(CONFIG)
            other.log, other.high_watermark = list(log), len(log)
            other.lead()
            loaded = dict(decoded(other.log[: len(log)]))
            found = {name: value for name, value in loaded.items() if value is not None}
            if live != found or set(other.machine._state.ids()) != set(found):
                raise BrokenRuleError(f"the state is {live}, and the log says {found}")

    def settle(self) -> None:
        """Lets everything come to its end, and checks what readers see."""
        host = self.host
        host.refuses = None
        for _ in range(60):
            host.commit()
            self.hear()
            for n in range(8):
                self.write_markers(n)
                host.commit()
                self.hear()
            host.pass_time(TIMEOUT_MS // 20)
            self.hear()
            self.check_log()
        self.check_state()
        if busy := dict(host.machine._state.deadlines()):
            raise BrokenRuleError(f"transactions that never end: {busy}")
        for partition, each in self.partitions.items():
            still_open = {producer: names for producer, names in each.open.items() if names}
            if still_open:
                raise BrokenRuleError(f"{partition} has open transactions for ever: {still_open}")
        for transaction in {one for each in self.partitions.values() for one in each.outcomes}:
            seen = {each.outcomes[transaction] for each in self.partitions.values() if transaction in each.outcomes}
            if len(seen) > 1 or self.told.get(transaction, *seen) not in seen:
                raise BrokenRuleError(
                    f"transaction {transaction} is {seen}, its producer was told {self.told.get(transaction)}"
                )
        host.step(Resigned())
        self.hear()
        if self.asked:
            raise BrokenRuleError(f"never answered: {self.asked}")


def states(host: TransactionHost) -> dict[str, WrittenTransaction]:
    """What the machine has in memory."""
    state = host.machine._state
    found = {name: state.find(name) for name in state.ids()}
    busy = {name for name, value in found.items() if value.transaction_status in {1, 2, 3}}
    if busy != set(state.deadlines()):
        raise BrokenRuleError(f"open or being ended are {busy}, deadlines have {set(state.deadlines())}")
    return found
