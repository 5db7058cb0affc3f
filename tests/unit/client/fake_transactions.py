"""The coordinator of transactions of a fake cluster: what is open, what was decided, and answers that a test has scripted."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping
from typing import Any, Final, Protocol

from replog.client.protocol.questions.transactions import (
    AddGroupToTransaction,
    AddToTransaction,
    BeginProducing,
    CommitInTransaction,
    DecideTransaction,
    Producing,
)
from replog.coordinator.transactions.requests import Incarnation, PrepareTransaction, PrepareTransactionResponse
from replog.errors import (
    ErrorCode,
    InvalidTxnStateError,
    NotCoordinatorError,
    ProducerFencedError,
    ReplogError,
)
from replog.records import BatchHeader, decode_records, parse_header
from replog.rpc.messages import ProducePartition
from replog.rpc.transport import ConnectionLostError
from tests.unit.client.fake_log import FakeLog

QUESTIONS: Final = (
    BeginProducing,
    AddToTransaction,
    AddGroupToTransaction,
    CommitInTransaction,
    DecideTransaction,
    PrepareTransaction,
)


class Cluster(Protocol):
    @property
    def logs(self) -> Mapping[tuple[str, int], FakeLog]: ...

    @property
    def coordinator_id(self) -> int: ...


class FakeTransactions:
    """One coordinator for all transactional ids.

    Attributes:
        version: The level of `transaction.version`.
        script: By the class of a question what its next answers are: an error in its place, "lose" (done, and not answered).
        asked: The questions.
        decided: Whether each transaction that was open was committed.
        offsets: What groups have committed, by group, topic and partition.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.version = 2
        self.script: defaultdict[type, deque[ReplogError | str]] = defaultdict(deque)
        self.asked: list[Any] = []
        self.decided: list[bool] = []
        self.offsets: dict[tuple[str, str, int], int] = {}
        self.producers: dict[str, Incarnation] = {}
        self.fate: dict[tuple[str, int, int], bool] = {}  # of batches by where they stand: whether they are committed
        self._cluster = cluster
        self._open: dict[str, dict[tuple[str, str, int], int]] = {}  # with the offsets that a commit would commit
        self._joined: set[tuple[str, str, int]] = set()

    def answer(self, question: Any, node_id: int) -> Any:
        """Answers as the coordinator, or as a broker that is none."""
        self.asked.append(question)
        if node_id != self._cluster.coordinator_id:
            raise NotCoordinatorError("scripted: another one")
        script = self.script[type(question)]
        step = script.popleft() if script else ""
        if isinstance(step, ReplogError):
            raise step
        answer = self._begin(question) if isinstance(question, BeginProducing) else self._go_on(question)
        if step == "lose":
            raise ConnectionLostError("scripted: no answer")
        return answer

    def asked_of(self, kind: type) -> list[Any]:
        """Returns the questions of a kind."""
        return [question for question in self.asked if isinstance(question, kind)]

    def time_out(self, name: str) -> None:
        """Aborts what is open, as a coordinator does in time, and bumps the epoch."""
        self._decide(name, is_commit=False)
        self._bump(name)

    def committed(self, topic: str, partition: int = 0) -> list[bytes | None]:
        """Returns the values that a reader of committed records gets."""
        log = self._cluster.logs[topic, partition]
        kept = [b for b in log.batches if self.fate.get((topic, partition, parse_header(b).base_offset))]
        return [record.value for record in decode_records(b"".join(kept))]

    def refusal(self, partition: ProducePartition, header: BatchHeader) -> ErrorCode:
        """Returns what a leader says to a batch; NONE: it may be appended."""
        if not header.is_transactional:
            return ErrorCode.NONE
        name = next((n for n, each in self.producers.items() if each.producer_id == header.producer_id), "")
        if not name or self.producers[name].producer_epoch != header.producer_epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if self.version < 2 and (name, partition.topic, partition.partition_id) not in self._joined:
            return ErrorCode.INVALID_TXN_STATE
        self._open.setdefault(name, {})
        return ErrorCode.NONE

    def _begin(self, question: BeginProducing) -> Producing:
        name, known = question.transactional_id, question.known
        if known is not None and known != self.producers.get(name):
            raise ProducerFencedError("scripted: fenced")
        self._decide(name, is_commit=False)
        self._bump(name)
        return Producing(self.producers[name], self.version)

    def _bump(self, name: str) -> None:
        last = self.producers.get(name, Incarnation(5000 + len(self.producers), -1))
        self.producers[name] = Incarnation(last.producer_id, last.producer_epoch + 1)

    def _go_on(self, question: Any) -> Incarnation | PrepareTransactionResponse | None:
        name = question.transactional_id
        if self.version >= 2 and isinstance(question, DecideTransaction) and self._is_retry(question):
            return self.producers[name]
        if self.producers[name] != question.producer:
            raise ProducerFencedError("scripted: another epoch")
        match question:
            case AddToTransaction():
                self._open.setdefault(name, {})
                self._joined |= {(name, *each) for each in question.partitions}
            case AddGroupToTransaction():
                self._open.setdefault(name, {})
            case CommitInTransaction():
                pending = self._open.setdefault(name, {})
                for topic in question.topics:
                    for each in topic.partitions:
                        pending[question.group_id, topic.topic, each.partition] = each.offset
            case PrepareTransaction():
                return PrepareTransactionResponse()
            case DecideTransaction():
                return self._end(name, question)
        return None

    def _is_retry(self, question: DecideTransaction) -> bool:
        """Whether this is a decision that was taken, and its epoch the last one; raises where it was another decision."""
        now, asked = self.producers[question.transactional_id], question.producer
        if now.producer_epoch != asked.producer_epoch + 1 or question.transactional_id in self._open:
            return False
        if question.is_commit != self.decided[-1]:
            raise InvalidTxnStateError("scripted: it was decided the other way")
        return True

    def _end(self, name: str, question: DecideTransaction) -> Incarnation:
        if name not in self._open and self.version < 2 and self.decided[-1:] == [question.is_commit]:
            return self.producers[name]  # it is asked again
        if name not in self._open and (question.is_commit or self.version < 2):
            raise InvalidTxnStateError("scripted: nothing is open")
        self._decide(name, is_commit=question.is_commit)
        if self.version >= 2:
            self._bump(name)
        return self.producers[name]

    def _decide(self, name: str, *, is_commit: bool) -> None:
        offsets = self._open.pop(name, None)
        if offsets is None:
            return
        self.decided.append(is_commit)
        self._joined = {each for each in self._joined if each[0] != name}
        if is_commit:
            self.offsets |= offsets
        for (topic, partition), log in self._cluster.logs.items():
            for header in map(parse_header, log.batches):
                place = (topic, partition, header.base_offset)
                if header.producer_id == self.producers[name].producer_id and place not in self.fate:
                    self.fate[place] = is_commit
