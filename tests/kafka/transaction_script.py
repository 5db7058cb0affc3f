"""Scripts of requests about transactions, for Kafka and for brokers of ours: `tests/data/transactions/*.txt`.

A script is a file of `tests/datadriven.py`; what is expected in it is what Kafka 4.1.1 answered.  Where brokers of ours are to differ
(docs/KAFKA.md 9), the line behind that of Kafka begins with "replog: " and is what they answer instead.  Producer ids, transactional ids,
groups and topics have names of the script in it, so that one broker can run all scripts, again and again::

    .venv/bin/python -m tests.kafka.transaction_script --ours 127.0.0.1:9092                      # which differ, and where
    .venv/bin/python -m tests.kafka.transaction_script --record 127.0.0.1:9092 tests/data/transactions/flow.txt

A command is a word, what it is about, and options `name=value`.  Each request has `v=`, the version, of which `all` asks in each;
else `client old` or `client new` has said it.

| command | request |
|---|---|
| `client old`, `client new` | from here on in the versions of clients before KIP-890, or with it (`transaction.version` 2) |
| `topic x 2` | creates a topic with partitions x-0 and x-1 |
| `init a t timeout=60000` | InitProducerId for transactional id t; the answer is kept as producer a |
| `init b t from=a` | the same with a's id and epoch (KIP-360); kept as b |
| `add a x-0 x-1`, `verify a x-0` | AddPartitionsToTxn |
| `produce a x-0 n=3` | Produce of 3 records in a's transaction, with the next sequence; `seq=`: another; `plain`: in no transaction |
| `offsets a g`, `commit a g x-0=5` | AddOffsetsToTxn, TxnOffsetCommit; `member=`, `generation=` |
| `end a commit`, `end a abort` | EndTxn; where the answer names an epoch, a has it from now on |
| `markers a commit x-0` | WriteTxnMarkers; `coordinator=`: the coordinator's epoch |
| `describe t u`, `list states=Ongoing` | DescribeTransactions, ListTransactions of this script's transactional ids |
| `settle t` | asks until no transaction of t is being ended, and says what is then |
| `expire t` | the same, and until none is open: its time-out has to end it |
| `log x-0` | Fetch of everything, uncommitted: batches with producer and epoch, markers, last stable offset |
| `read x-0` | the same of a reader of committed records: the offsets below the last stable one, and the aborted ranges |
| `committed g x-0`, `committed g x-0 stable` | OffsetFetch |
| `producers x-0` | DescribeProducers |
| `coordinator t` | FindCoordinator of a transactional id |
| `bump a t 32766` | InitProducerId for t until a has this epoch, or another id |

Of any producer: `id=unknown`, `epoch=+1`, `epoch=-1`, `epoch==7`, `tid=u` stand for another id, a later or earlier epoch, one as it is,
another transactional id.  An answer that says "again" (a coordinator that is loading, or ends a transaction) is asked for again;
not with `once`.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from replog.errors import ErrorCode
from replog.records import (
    BatchHeader,
    ControlRecordType,
    control_record_type,
    decode_batch,
    encode_batch,
    scan,
)
from replog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from replog.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from replog.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from replog.wire.messages.describe_producers import DescribeProducersRequest, DescribeProducersResponse
from replog.wire.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from replog.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from replog.wire.messages.fetch import FetchRequest, FetchResponse
from replog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from replog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from replog.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from replog.wire.messages.metadata import MetadataRequest, MetadataResponse
from replog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from replog.wire.messages.produce import ProduceRequest, ProduceResponse
from replog.wire.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from replog.wire.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from tests import datadriven
from tests.kafka.raw_client import RawClient

SCRIPTS: Final = Path(__file__).parents[1] / "data" / "transactions"
TIMEOUT_S: Final = 20.0
UNKNOWN_PRODUCER: Final = 987_654_321
AGAIN: Final = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
    }
)
ENDING: Final = ("PrepareCommit", "PrepareAbort", "PrepareEpochFence")
VERSIONS: Final = {
    "old": {"produce": 11, "end": 4, "commit": 4, "add": 3, "verify": 4, "offsets": 3, "init": 4, "fetch": 12},
    "new": {"produce": 12, "end": 5, "commit": 5, "add": 5, "verify": 5, "offsets": 4, "init": 5, "fetch": 12},
}
"""The versions of clients before KIP-890 and with it, of what has other rules then."""
OTHER_VERSIONS: Final = {
    "markers": 1,
    "describe": 0,
    "settle": 0,
    "expire": 0,
    "list": 2,
    "committed": 9,
    "producers": 0,
    "coordinator": 6,
}

OURS: Final = "replog: "

ENDS_OF_ALL: Final = {"init": 6, "committed": 10, "produce": 13}
"""Where `v=all` ends before the last version: what Kafka 4.1 serves to nobody by default, and what names topics by id."""

_runs = itertools.count(1)


@dataclass(slots=True)
class ScriptedProducer:
    """A producer of a script.

    Attributes:
        sequences: The next sequence of each partition.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    sequences: dict[tuple[str, int], int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Said:
    """A command that was read: its word, what it is about, and its options."""

    word: str
    about: Sequence[str]
    options: dict[str, str]
    flags: frozenset[str]

    @classmethod
    def parsed(cls, command: str) -> Said:
        """Returns a command, read."""
        word, *others = command.split()
        options = dict(each.split("=", 1) for each in others if "=" in each and not _is_place(each.partition("=")[0]))
        flags = frozenset({"once", "plain", "stable"} & set(others))
        about = [each for each in others if each.partition("=")[0] not in options and each not in flags]
        return cls(word, about, options, flags)

    def number(self, name: str, default: int) -> int:
        """Returns an option that is a number."""
        return int(self.options.get(name, default))


class TransactionScript:
    """Runs one script with a broker.

    Args:
        address: host:port of the broker.
    """

    def __init__(self, address: str) -> None:
        self._client = RawClient(address)
        self._prefix = f"{os.getpid():x}-{time.time_ns():x}-{next(_runs)}-"
        self._producers: dict[str, ScriptedProducer] = {}
        self._ids: dict[int, str] = {}
        self._topic_ids: dict[str, Any] = {}
        self._versions = {**VERSIONS["new"], **OTHER_VERSIONS}
        self._until(self._lacks_coordinators)

    def close(self) -> None:
        """Ends the connection."""
        self._client.connection.close()

    def execute(self, command: str) -> str:
        """Runs a command, and returns what the broker answered in the words of the script."""
        said = Said.parsed(command)
        run: Callable[[Said], str] | None = getattr(self, f"_run_{said.word}", None)
        if run is None:
            raise ValueError(f"there is no command {said.word!r}")
        try:
            return run(said)
        except (EOFError, ConnectionError):
            raise ConnectionError(f"the broker has closed the connection: {command}") from None
        except TimeoutError as error:
            raise TimeoutError(f"{command}: {error}") from None

    # ---- what is around --------------------------------------------------------------------------------------------

    def _run_client(self, said: Said) -> str:
        self._versions.update(VERSIONS[said.about[0]])
        return ""

    def _run_topic(self, said: Said) -> str:
        name, partitions = said.about[0], int(said.about[1])
        topic = CreateTopicsRequest.CreatableTopic(self._real(name), partitions, 1)
        (made,) = self._client.ask(CreateTopicsRequest([topic]), 7, CreateTopicsResponse).topics
        if made.error_code:
            raise ValueError(f"topic {name} cannot be made: {ErrorCode(made.error_code).name}")
        self._topic_ids[name] = made.topic_id
        asked = MetadataRequest([MetadataRequest.MetadataRequestTopic(name=self._real(name))])
        self._until(
            lambda: any(
                part.error_code or part.leader_id < 0
                for part in self._client.ask(asked, 9, MetadataResponse).topics[0].partitions
            )
        )
        return ""

    # ---- the coordinator -------------------------------------------------------------------------------------------

    def _lacks_coordinators(self) -> bool:
        """Whether topics of the broker's own are still being made: the first question for a coordinator makes them."""
        asked = [FindCoordinatorRequest(key_type=kind, coordinator_keys=["anybody"]) for kind in (0, 1)]
        told = [self._client.ask(each, 6, FindCoordinatorResponse) for each in asked]
        return any(each.coordinators[0].error_code for each in told)

    def _run_coordinator(self, said: Said) -> str:
        def ask(version: int) -> tuple[str, int]:
            key = self._real(said.about[0])
            request = FindCoordinatorRequest(key, 1, [key]) if version >= 4 else FindCoordinatorRequest(key, 1)
            told = self._client.ask(request, version, FindCoordinatorResponse)
            code = told.coordinators[0].error_code if version >= 4 else told.error_code
            return name_of(code), code

        return self._asked(said, FindCoordinatorRequest, ask, first=1)

    def _run_init(self, said: Said) -> str:
        name, transactional_id = said.about
        known = self._producers[said.options["from"]] if "from" in said.options else None
        given = self._as(said, known) if known else ScriptedProducer("", -1, -1)

        def ask(version: int) -> tuple[str, int]:
            request = InitProducerIdRequest(
                None if transactional_id == "none" else self._real(transactional_id),
                said.number("timeout", 60_000),
                given.producer_id,
                given.epoch,
            )
            told = self._client.ask(request, version, InitProducerIdResponse)
            if not told.error_code:
                self._producers[name] = ScriptedProducer(transactional_id, told.producer_id, told.producer_epoch)
            who = f" {self._who(told.producer_id, told.producer_epoch)}"
            return f"{name_of(told.error_code)}{who}", told.error_code

        return self._asked(said, InitProducerIdRequest, ask)

    def _run_bump(self, said: Said) -> str:
        name, transactional_id, epoch = said.about
        again = Said("init", [name, transactional_id], {}, frozenset())
        self._run_init(again)
        first = self._producers[name].producer_id
        while self._producers[name].epoch < int(epoch) and self._producers[name].producer_id == first:
            self._run_init(again)
        kept = self._producers[name]
        return self._who(kept.producer_id, kept.epoch)

    def _run_add(self, said: Said) -> str:
        return self._add(said, only_verifies=False)

    def _run_verify(self, said: Said) -> str:
        return self._add(said, only_verifies=True)

    def _add(self, said: Said, *, only_verifies: bool) -> str:
        producer = self._as(said)
        topics = [
            AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(self._real(topic), numbers)
            for topic, numbers in by_topic(said.about[1:])
        ]

        def ask(version: int) -> tuple[str, int]:
            who = (self._real(producer.transactional_id), producer.producer_id, producer.epoch)
            if version <= 3:
                told = self._client.ask(
                    AddPartitionsToTxnRequest([], *who, topics), version, AddPartitionsToTxnResponse
                )
                return self._places(told.results_by_topic_v3_and_below)
            transaction = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(*who, only_verifies, topics)
            told = self._client.ask(AddPartitionsToTxnRequest([transaction]), version, AddPartitionsToTxnResponse)
            if told.error_code:
                return name_of(told.error_code), told.error_code
            return self._places(told.results_by_transaction[0].topic_results)

        return self._asked(said, AddPartitionsToTxnRequest, ask, first=4 if only_verifies else 0)

    def _run_offsets(self, said: Said) -> str:
        producer, group = self._as(said), said.about[1]

        def ask(version: int) -> tuple[str, int]:
            who = (self._real(producer.transactional_id), producer.producer_id, producer.epoch)
            told = self._client.ask(AddOffsetsToTxnRequest(*who, self._real(group)), version, AddOffsetsToTxnResponse)
            return name_of(told.error_code), told.error_code

        return self._asked(said, AddOffsetsToTxnRequest, ask)

    def _run_end(self, said: Said) -> str:
        producer, name = self._as(said), said.about[0]

        def ask(version: int) -> tuple[str, int]:
            who = (self._real(producer.transactional_id), producer.producer_id, producer.epoch)
            told = self._client.ask(EndTxnRequest(*who, said.about[1] == "commit"), version, EndTxnResponse)
            if not told.error_code and version >= 5:
                kept = self._producers[name]
                if (kept.producer_id, kept.epoch) != (told.producer_id, told.producer_epoch):
                    self._producers[name] = ScriptedProducer(
                        kept.transactional_id, told.producer_id, told.producer_epoch
                    )
            shown = f" {self._who(told.producer_id, told.producer_epoch)}" if version >= 5 else ""
            return name_of(told.error_code) + shown, told.error_code

        return self._asked(said, EndTxnRequest, ask)

    def _run_describe(self, said: Said) -> str:
        def ask(version: int) -> tuple[str, int]:
            names = [self._real(name) for name in said.about]
            told = self._client.ask(DescribeTransactionsRequest(names), version, DescribeTransactionsResponse)
            states = told.transaction_states
            codes = [each.error_code for each in states if each.error_code in AGAIN]
            return "\n".join(self._described(each) for each in states), max(codes, default=0)

        return self._asked(said, DescribeTransactionsRequest, ask)

    def _run_settle(self, said: Said) -> str:
        return self._gone(said, ENDING)

    def _run_expire(self, said: Said) -> str:
        return self._gone(said, (*ENDING, "Ongoing"))

    def _gone(self, said: Said, states: Sequence[str]) -> str:
        """Returns what is described as soon as none of these states is in it: one description, looked through for all of them."""
        described = ""

        def is_unready() -> bool:
            nonlocal described
            described = self._run_describe(said)
            return any(state in described for state in states)

        self._until(is_unready)
        return described

    def _described(self, state: DescribeTransactionsResponse.TransactionState) -> str:
        if state.error_code:
            return f"{self._shown(state.transactional_id)} {name_of(state.error_code)} {state.transaction_state!r}"
        places = ",".join(
            sorted(f"{self._shown(each.topic)}-{number}" for each in state.topics for number in each.partitions)
        )
        started = "started" if state.transaction_start_time_ms > 0 else str(state.transaction_start_time_ms)
        return (
            f"{self._shown(state.transactional_id)} {state.transaction_state} "
            f"{self._who(state.producer_id, state.producer_epoch)} timeout={state.transaction_timeout_ms} "
            f"start={started} partitions={places}"
        )

    def _run_list(self, said: Said) -> str:
        words = said.options
        states = [each for each in words.get("states", "").split(",") if each]
        ids = [self._id(each) for each in words.get("producers", "").split(",") if each]
        pattern = words.get("pattern")

        def ask(version: int) -> tuple[str, int]:
            request = ListTransactionsRequest(
                states,
                ids,
                said.number("longer", -1) if version >= 1 else -1,
                f"{self._prefix}({pattern})" if pattern is not None and version >= 2 else None,
            )
            told = self._client.ask(request, version, ListTransactionsResponse)
            mine = [each for each in told.transaction_states if each.transactional_id.startswith(self._prefix)]
            listed = sorted(
                f"{self._shown(each.transactional_id)} {each.transaction_state} {self._name(each.producer_id)}"
                for each in mine
            )
            unknown = [f"unknown {','.join(sorted(told.unknown_state_filters))}"] if told.unknown_state_filters else []
            return "; ".join([name_of(told.error_code), *unknown, *listed]), told.error_code

        return self._asked(said, ListTransactionsRequest, ask)

    # ---- partitions and groups -------------------------------------------------------------------------------------

    def _run_produce(self, said: Said) -> str:
        producer = self._as(said)
        topic, number = place_of(said.about[1])
        kept = self._producers[said.about[0]].sequences
        sequence = said.number("seq", kept.get((topic, number), 0))
        count = said.number("n", 1)
        is_plain = "plain" in said.flags
        now_ms = time.time_ns() // 1_000_000  # long before the marker, and it would be in another segment
        records = [(now_ms, None, f"{sequence + each}".encode(), ()) for each in range(count)]
        batch = encode_batch(
            records,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=sequence,
            is_transactional=not is_plain,
        )

        def ask(version: int) -> tuple[str, int]:
            data = ProduceRequest.TopicProduceData(
                self._real(topic) if version < 13 else "",
                self._topic_ids[topic],
                [ProduceRequest.PartitionProduceData(number, batch)],
            )
            transactional_id = None if is_plain else self._real(producer.transactional_id)
            request = ProduceRequest(transactional_id, said.number("acks", -1), 10_000, [data])
            (answered,) = self._client.ask(request, version, ProduceResponse).responses
            (part,) = answered.partition_responses
            if not part.error_code:
                kept[topic, number] = sequence + count
            return f"{name_of(part.error_code)} offset={part.base_offset}", part.error_code

        return self._asked(said, ProduceRequest, ask)

    def _run_commit(self, said: Said) -> str:
        producer, group = self._as(said), said.about[1]
        offsets: dict[str, list[TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition]] = {}
        for each in said.about[2:]:
            place, _, offset = each.partition("=")
            topic, number = place_of(place)
            part = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(number, int(offset), -1, "meta")
            offsets.setdefault(topic, []).append(part)
        topics = [
            TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(self._real(topic), parts)
            for topic, parts in offsets.items()
        ]

        def ask(version: int) -> tuple[str, int]:
            request = TxnOffsetCommitRequest(
                self._real(producer.transactional_id),
                self._real(group),
                producer.producer_id,
                producer.epoch,
                said.number("generation", -1) if version >= 3 else -1,
                said.options.get("member", "") if version >= 3 else "",
                None,
                topics,
            )
            told = self._client.ask(request, version, TxnOffsetCommitResponse)
            return self._places(told.topics)

        return self._asked(said, TxnOffsetCommitRequest, ask)

    def _run_markers(self, said: Said) -> str:
        producer, is_commit = self._as(said), said.about[1] == "commit"
        topics = [
            WriteTxnMarkersRequest.WritableTxnMarkerTopic(self._real(topic), numbers)
            for topic, numbers in by_topic(said.about[2:])
        ]
        marker = WriteTxnMarkersRequest.WritableTxnMarker(
            producer.producer_id, producer.epoch, is_commit, topics, said.number("coordinator", 0)
        )

        def ask(version: int) -> tuple[str, int]:
            (told,) = self._client.ask(WriteTxnMarkersRequest([marker]), version, WriteTxnMarkersResponse).markers
            return self._places(told.topics)

        return self._asked(said, WriteTxnMarkersRequest, ask)

    def _run_log(self, said: Said) -> str:
        part, data = self._fetched(said, isolation=0)
        shown = [self._batch(header, data) for header in scan(data)]
        return "\n".join([*shown, f"end {part.high_watermark}, stable {part.last_stable_offset}"])

    def _run_read(self, said: Said) -> str:
        part, data = self._fetched(said, isolation=1)
        shown = [self._batch(header, data) for header in scan(data)]
        aborted = sorted(
            f"aborted {self._name(each.producer_id)} from {each.first_offset}"
            for each in part.aborted_transactions or ()
        )
        return "\n".join([*shown, *aborted, f"end {part.high_watermark}, stable {part.last_stable_offset}"])

    def _fetched(self, said: Said, isolation: int) -> tuple[Any, bytes]:
        topic, number = place_of(said.about[0])
        place = FetchRequest.FetchPartition(
            number, fetch_offset=said.number("from", 0), partition_max_bytes=1 << 20, current_leader_epoch=-1
        )
        named = FetchRequest.FetchTopic(self._real(topic), partitions=[place])
        request = FetchRequest(
            replica_id=-1, max_wait_ms=0, max_bytes=1 << 20, isolation_level=isolation, session_epoch=-1, topics=[named]
        )
        version = said.number("v", self._versions["fetch"])
        (part,) = self._client.ask(request, version, FetchResponse).responses[0].partitions
        if part.error_code:
            raise ValueError(f"{said.about[0]} cannot be read: {name_of(part.error_code)}")
        return part, bytes(part.records or b"")

    def _batch(self, header: BatchHeader, data: bytes) -> str:
        where = f"{header.base_offset}" + (f"..{header.last_offset}" if header.last_offset_delta else "")
        who = f"{self._name(header.producer_id)}/{header.producer_epoch}"
        if header.is_control:
            kind = control_record_type(decode_batch(data, header.position)[0])
            return f"{where} {'COMMIT' if kind is ControlRecordType.COMMIT else 'ABORT'} {who}"
        return f"{where} {'records' if header.is_transactional else 'plain'} {who} seq={header.base_sequence}"

    def _run_committed(self, said: Said) -> str:
        group, *places = said.about
        wanted = [
            OffsetFetchRequest.OffsetFetchRequestTopics(self._real(topic), partition_indexes=numbers)
            for topic, numbers in by_topic(places)
        ]
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequest.OffsetFetchRequestGroup(self._real(group), topics=wanted)],
            require_stable="stable" in said.flags,
        )

        def ask(version: int) -> tuple[str, int]:
            (told,) = self._client.ask(request, version, OffsetFetchResponse).groups
            if told.error_code:
                return name_of(told.error_code), told.error_code
            found = [(self._shown(topic.name), part) for topic in told.topics or () for part in topic.partitions]
            shown = sorted(
                f"{topic}-{part.partition_index} {name_of(part.error_code)} {part.committed_offset} {part.metadata!r}"
                for topic, part in found
            )
            return ", ".join(shown), max((part.error_code for _, part in found), default=0)

        return self._asked(said, OffsetFetchRequest, ask, first=8)

    def _run_producers(self, said: Said) -> str:
        ((topic, numbers),) = by_topic(said.about)
        request = DescribeProducersRequest([DescribeProducersRequest.TopicRequest(self._real(topic), numbers)])

        def ask(version: int) -> tuple[str, int]:
            (part,) = self._client.ask(request, version, DescribeProducersResponse).topics[0].partitions
            shown = sorted(
                f"{self._who(each.producer_id, each.producer_epoch)} last={each.last_sequence} "
                f"coordinator={each.coordinator_epoch} begun={each.current_txn_start_offset}"
                for each in part.active_producers
            )
            return "\n".join([name_of(part.error_code), *shown]), part.error_code

        return self._asked(said, DescribeProducersRequest, ask)

    # ---- words -----------------------------------------------------------------------------------------------------

    def _asked(self, said: Said, request: Any, ask: Callable[[int], tuple[str, int]], first: int = 0) -> str:
        """Returns the answer to a question, or to the question in each version."""
        given = said.options.get("v", "")
        if given == "all":
            end = ENDS_OF_ALL.get(said.word, request.VERSIONS.stop)
            versions = range(max(first, request.VERSIONS.start), end)
            return "\n".join(f"v{version} {self._settled(said, version, ask)}" for version in versions)
        return self._settled(said, int(given) if given else self._versions[said.word], ask)

    def _settled(self, said: Said, version: int, ask: Callable[[int], tuple[str, int]]) -> str:
        deadline_s = time.monotonic() + TIMEOUT_S
        text, code = ask(version)
        while code in AGAIN and "once" not in said.flags:
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"still {text} after {TIMEOUT_S} s")
            time.sleep(0.02)
            text, code = ask(version)
        return text

    def _until(self, is_unready: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + TIMEOUT_S
        while is_unready():
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"not ready after {TIMEOUT_S} s")
            time.sleep(0.02)

    def _as(self, said: Said, known: ScriptedProducer | None = None) -> ScriptedProducer:
        """Returns the producer a command is about, as its options change it."""
        found = known or self._producers[said.about[0]]
        given = said.options.get("id")
        producer_id = found.producer_id if given is None else self._id(given)
        text, epoch = said.options.get("epoch", ""), found.epoch
        if text:
            epoch = int(text[1:]) if text.startswith("=") else epoch + int(text)
        return ScriptedProducer(said.options.get("tid", found.transactional_id), producer_id, epoch)

    def _id(self, text: str) -> int:
        if text in self._producers:
            return self._producers[text].producer_id
        return {"unknown": UNKNOWN_PRODUCER, "none": -1}[text]

    def _name(self, producer_id: int) -> str:
        if producer_id < 0:
            return "none"
        if producer_id == UNKNOWN_PRODUCER:
            return "unknown"
        return self._ids.setdefault(producer_id, f"p{len(self._ids) + 1}")

    def _who(self, producer_id: int, epoch: int) -> str:
        return f"{self._name(producer_id)}/{epoch}"

    def _places(self, topics: Iterable[Any]) -> tuple[str, int]:
        """Returns what an answer says of each partition, and a code that says "again", if one does."""
        found: list[tuple[str, int]] = []
        for topic in topics:
            is_added = isinstance(topic, AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult)
            for part in topic.results_by_partition if is_added else topic.partitions:
                code = part.partition_error_code if is_added else part.error_code
                found.append((f"{self._shown(topic.name)}-{part.partition_index}", code))
        again = max((code for _, code in found if code in AGAIN), default=0)
        return ", ".join(f"{place} {name_of(code)}" for place, code in sorted(found)), again

    def _real(self, name: str) -> str:
        """Returns the name at the broker of what the script calls so; Kafka's own topics have theirs, "" stays."""
        return name if name.startswith("__") else "" if name == "empty" else self._prefix + name

    def _shown(self, name: str) -> str:
        return name.removeprefix(self._prefix)


def name_of(code: int) -> str:
    """Returns the name of an error code."""
    return ErrorCode(code).name if code in set(ErrorCode) else f"error {code}"


def place_of(text: str) -> tuple[str, int]:
    """Returns topic and number of a partition that is written as `x-0`."""
    topic, _, number = text.rpartition("-")
    return topic, int(number)


def by_topic(places: Iterable[str]) -> Iterator[tuple[str, list[int]]]:
    """Yields topics and the numbers of their partitions."""
    found: dict[str, list[int]] = {}
    for text in places:
        topic, number = place_of(text)
        found.setdefault(topic, []).append(number)
    yield from found.items()


def _is_place(text: str) -> bool:
    return text.rpartition("-")[2].isdigit()


def differences(address: str, path: Path, *, is_ours: bool = False) -> list[str]:
    """Runs a script with a broker, and returns the lines in which its answers are not those that are wanted.

    Args:
        address: host:port of the broker.
        path: The script.
        is_ours: Whether the broker is one of ours, which differs from Kafka where the script says so, and nowhere else.
    """
    script = TransactionScript(address)
    found: list[str] = []
    try:
        for block in datadriven.parse(path.read_text()):
            answers = [(command, script.execute(command).splitlines()) for command in block.commands]
            asked = [line for _, lines in answers for line in lines]
            wanted = _wanted(block.expected or (), is_ours=is_ours)
            if asked != wanted:
                found += [f"{path.name}:{block.line}", *_compared(answers, wanted)]
    finally:
        script.close()
    return found


def _wanted(expected: Iterable[str], *, is_ours: bool) -> list[str]:
    """Returns what Kafka answers, or what brokers of ours do."""
    found: list[str] = []
    for line in expected:
        if not line.startswith(OURS):
            found.append(line)
        elif is_ours:
            found[-1] = line.removeprefix(OURS)
    return found


def _compared(answers: Iterable[tuple[str, Sequence[str]]], expected: Sequence[str]) -> Iterator[str]:
    """Yields commands beside the lines that they were to answer."""
    left = list(expected)
    for command, lines in answers:
        wanted, left = left[: len(lines)], left[len(lines) :]
        yield (
            f"    {command}" if list(lines) == wanted else f"  ! {command}\n      wanted {wanted}\n      here   {lines}"
        )
    if left:
        yield f"  ! not answered: {left}"


def record(address: str, path: Path) -> list[str]:
    """Runs a script with a broker of Kafka, writes what it answers into the file, and returns no differences."""
    script = TransactionScript(address)
    try:
        blocks = [_answered(script, block) for block in datadriven.parse(path.read_text())]
    finally:
        script.close()
    path.write_text("\n\n".join(block.text() for block in blocks) + "\n")
    return []


def _answered(script: TransactionScript, block: datadriven.Block) -> datadriven.Block:
    lines = [line for command in block.commands for line in script.execute(command).splitlines()]
    told = _with_ours(lines, block.expected or ())
    return datadriven.Block(block.line, block.comments, block.commands, tuple(told) if told else None)


def _with_ours(lines: Sequence[str], before: Sequence[str]) -> list[str]:
    """Returns what Kafka answers now, with what brokers of ours answer instead as it stands in a script."""
    ours: dict[int, str] = {}
    number = 0
    for line in before:
        if line.startswith(OURS):
            ours[number - 1] = line
        else:
            number += 1
    return [text for number, line in enumerate(lines) for text in (line, ours.get(number)) if text is not None]


def main(arguments: Sequence[str]) -> int:
    """Runs scripts, and returns 1 where an answer differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.kafka.transaction_script")
    parser.add_argument("--record", action="store_true", help="write what is answered into the files")
    parser.add_argument("--ours", action="store_true", help="the broker is one of ours")
    parser.add_argument("address", help="host:port of a broker")
    parser.add_argument("paths", nargs="*", type=Path, default=sorted(SCRIPTS.glob("*.txt")))
    given = parser.parse_args(arguments)
    has_failed = False
    for path in given.paths:
        try:
            found = (
                record(given.address, path) if given.record else differences(given.address, path, is_ours=given.ours)
            )
        except Exception as error:  # noqa: BLE001 -- whatever it is, the other scripts are run
            found = [f"{path.name}: {error!r}"]
        has_failed |= bool(found)
        sys.stdout.write("\n".join(found or [f"{path.name}: as wanted"]) + "\n")
    return 1 if has_failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
