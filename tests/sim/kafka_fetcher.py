"""A consumer that speaks Kafka's protocol to a simulated cluster, with a fetch session (KIP-227) from version 7 on.

What it sees must be what was committed: below the high watermark that it is told, which no leader has passed before, without
gaps, in order.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from random import Random

from replog.errors import CorruptRecordError, ErrorCode
from replog.records import check_crc, decode_batch, scan
from replog.testing.history import History
from replog.wire.messages.fetch import FetchRequest, FetchResponse
from replog.wire.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from tests.sim.event_log import EventLog
from tests.sim.kafka_connection import KafkaConnection, KafkaConnectionLostError, read
from tests.sim.kafka_view import KafkaView, Leader, within

VERSIONS = (4, 7, 9, 11, 12, 13, 17)
SESSIONS_FROM, EPOCHS_FROM, BY_ID_FROM = 7, 9, 13
LIST_VERSION = 5
EARLIEST = -2
BACKOFF_S = 0.05
MAX_WAIT_MS = 150
ANSWER_S = 1.5
CONTROL_BIT = 0x20

SESSION_IS_GONE = frozenset({ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH})
AGAIN = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)
"""What Java's consumer expects; at any other it ends."""


class KafkaFetcher:
    """Reads the partition all the time.

    Args:
        view: its own.
        name: in the history.
        committed_end: everything below was committed by a leader.
        deletable_end: records below it may be deleted.
        may_meet_damage: whether what is read may be damaged.
        report: told what must not be.

    Attributes:
        position: the offset that is read next.
    """

    def __init__(
        self,
        view: KafkaView,
        name: str,
        history: History,
        rng: Random,
        *,
        committed_end: Callable[[], int],
        deletable_end: Callable[[], int],
        may_meet_damage: Callable[[], bool],
        report: Callable[[str], None],
        events: EventLog,
        seen: Counter[str],
    ) -> None:
        self.position = 0
        self._view = view
        self._name = name
        self._history = history
        self._committed_end = committed_end
        self._deletable_end = deletable_end
        self._may_meet_damage = may_meet_damage
        self._report = report
        self._events = events
        self._seen = seen
        self._version = rng.choice(VERSIONS)
        self._max_bytes = rng.choice((300, 2_000, 1 << 20))
        self._session = (0, 0)
        self._told: tuple[int, int] | None = None  # the position and the epoch that the session knows
        self.is_stopping = False

    def stop(self) -> None:
        self.is_stopping = True

    async def run(self) -> None:
        """Until it is stopped."""
        await self._until(lambda: self.is_stopping)

    async def read_to(self, end_offset: int) -> None:
        """Until it has read everything below `end_offset`."""
        await self._until(lambda: self.position >= end_offset)

    async def _until(self, is_over: Callable[[], bool]) -> None:
        while not is_over():
            try:
                await self._work(is_over)
            except KafkaConnectionLostError as error:
                self._events.note("client", f"{self._name}: {error}")
            await asyncio.sleep(BACKOFF_S)

    async def _work(self, is_over: Callable[[], bool]) -> None:
        """One connection to the leader; a session does not outlive it here, as none outlives its broker."""
        leader = await self._view.leader()
        if leader is None:
            return
        connection = await KafkaConnection.open(self._view.tcp, leader.host, leader.port)
        self._session, self._told = (0, 0), None
        try:
            while not is_over() and await self._fetch(connection, leader):
                pass
        finally:
            connection.close()

    async def _fetch(self, connection: KafkaConnection, leader: Leader) -> bool:
        """One fetch; whether the leader is worth another."""
        asked = self._request(leader)
        told = read(await within(connection.ask(asked, self._version), ANSWER_S), FetchResponse, self._version)
        if told.error_code in SESSION_IS_GONE:
            self._seen["kafka fetcher: session gone"] += 1
            self._session, self._told = (0, 0), None
            return True
        if told.error_code:
            self._report(f"{self._name}: a fetch is answered with {ErrorCode(told.error_code).name}")
            return False
        if self._version >= SESSIONS_FROM:
            self._seen["kafka fetcher: told by a session"] += self._session[0] > 0
            self._session = (told.session_id, self._session[1] + 1 if told.session_id else 0)
        for topic in told.responses:
            for partition in topic.partitions:
                if not await self._take(partition, connection, leader):
                    return False
        return True

    def _request(self, leader: Leader) -> FetchRequest:
        """The partition is named where the session does not know it as it is now."""
        epoch = leader.epoch if self._version >= EPOCHS_FROM else -1
        session_id, session_epoch = self._session if self._version >= SESSIONS_FROM else (0, -1)
        is_named = self._told != (self.position, epoch) or session_id == 0
        partition = FetchRequest.FetchPartition(
            0, current_leader_epoch=epoch, fetch_offset=self.position, partition_max_bytes=self._max_bytes
        )
        name = {"topic_id": leader.topic_id} if self._version >= BY_ID_FROM else {"topic": self._view.topic}
        self._told = (self.position, epoch)
        return FetchRequest(
            max_wait_ms=MAX_WAIT_MS,
            min_bytes=1,
            max_bytes=self._max_bytes,
            session_id=session_id,
            session_epoch=session_epoch,
            topics=[FetchRequest.FetchTopic(partitions=[partition], **name)] if is_named else [],  # type: ignore[arg-type]  # one of both
        )

    async def _take(self, told: FetchResponse.PartitionData, connection: KafkaConnection, leader: Leader) -> bool:
        code = told.error_code
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            return await self._seek(connection, leader)
        if code not in AGAIN:
            self._report(f"{self._name}: a fetch of the partition is answered with {ErrorCode(code).name}")
        if code:
            self._seen[f"kafka fetcher: {ErrorCode(code).name}"] += 1
            return False
        if told.high_watermark > self._committed_end():
            self._report(
                f"{self._name} is told the high watermark {told.high_watermark} by node {leader.node_id}, no leader had one"
                f" above {self._committed_end()}"
            )
        return self._read(bytes(told.records or b""), told.high_watermark, leader)

    def _read(self, data: bytes, high_watermark: int, leader: Leader) -> bool:
        """Whether nothing of it is damaged."""
        records: list[tuple[int, bytes]] = []
        try:
            for header in scan(data):
                if header.next_offset > high_watermark:
                    self._report(
                        f"{self._name} is handed [{header.base_offset}, {header.next_offset}) by node {leader.node_id}, whose"
                        f" high watermark is {high_watermark}"
                    )
                check_crc(data, header)  # as Java's consumer does: the bits below may be wrong ones, too
                if not header.attributes & CONTROL_BIT:
                    records += [(r.offset, r.value or b"") for r in decode_batch(data, header.position)]
                position = max(self.position, header.next_offset)
                fresh = [record for record in records if self.position <= record[0] < position]
                self._history.poll(self._name, (self._view.topic, 0), fresh)
                self._seen["kafka fetcher: read"] += len(fresh)
                self.position = position
        except CorruptRecordError as error:
            if not self._may_meet_damage():
                self._report(f"{self._name}: damage is there where nothing has rotted: {error}")
            return False
        return True

    async def _seek(self, connection: KafkaConnection, leader: Leader) -> bool:
        """Goes on at the start of the log where its place was deleted."""
        partition = ListOffsetsRequest.ListOffsetsPartition(0, leader.epoch, EARLIEST)
        topic = ListOffsetsRequest.ListOffsetsTopic(self._view.topic, [partition])
        request = ListOffsetsRequest(-1, topics=[topic])
        frame = await within(connection.ask(request, LIST_VERSION), ANSWER_S)
        told = read(frame, ListOffsetsResponse, LIST_VERSION).topics[0].partitions[0]
        if told.error_code:
            if told.error_code not in AGAIN:
                self._report(f"{self._name}: ListOffsets is answered with {ErrorCode(told.error_code).name}")
            return False
        if not self.position < told.offset <= self._deletable_end():
            self._seen["kafka fetcher: out of range"] += 1
            if self._version >= EPOCHS_FROM:
                self._report(
                    f"stale_read: {self._name} is told by node {leader.node_id} of epoch {leader.epoch} that there is no offset"
                    f" {self.position}; its log begins at {told.offset}"
                )
            return False
        self._events.note("client", f"{self._name} goes on at {told.offset}")
        self.position = told.offset
        self._history.seek(self._name, (self._view.topic, 0))
        return True
