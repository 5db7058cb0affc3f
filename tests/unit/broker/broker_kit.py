"""What the broker's parts are tested with: a clock that stands still, a disk in memory, metadata made of records."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID, uuid4

from replog.broker.disk.flusher import LogFlusher
from replog.broker.replicas.image_queue import WaitForImage
from replog.broker.replicas.image_steps import ImageSteps
from replog.broker.replicas.replica import Replica, ReplicaKey
from replog.broker.replicas.replica_manager import ReplicaManager
from replog.broker.replicas.stepper import ReplicaStepper
from replog.broker.requests.fetch_path import FetchPath
from replog.broker.requests.fetch_reader import FetchReader
from replog.broker.requests.look_ups import LookUps
from replog.broker.requests.produce_path import ProducePath
from replog.broker.requests.record_deletions import RecordDeletions
from replog.config.server import ServerConfig
from replog.errors import ReplogError, StorageError
from replog.log import LogManager
from replog.log.disk_space import NO_LIMITS
from replog.metadata.delta import LocalChanges, MetadataDelta
from replog.metadata.image import MetadataImage
from replog.metadata.records import MetadataRecord, PartitionRecord, RegisterBrokerRecord, TopicRecord
from replog.records import encode_batch
from replog.replication.fetch_positions import FetchPositions
from replog.replication.messages import ProposeIsr
from replog.rpc.messages import (
    CONSUMER_REPLICA_ID,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchResult,
    ProducedTransaction,
    ProducePartition,
    ProduceRequest,
    ProduceResponse,
    ProduceResult,
)
from replog.rpc.transaction_messages import JoinTransactionRequest, JoinTransactionResponse, PartitionRefusal
from replog.testing import SimulatedFileSystem

TOPIC = "flights"
TOPIC_ID = UUID(int=100)
KEY: ReplicaKey = (TOPIC_ID, 0)
DIRECTORY = "/data"


class FakeClock:
    """Time that moves when a test says so."""

    def __init__(self) -> None:
        self.monotonic_ms = 1_000_000
        self.wall_clock_ms = 1_700_000_000_000

    def now_ms(self) -> int:
        return self.monotonic_ms

    def wall_ms(self) -> int:
        return self.wall_clock_ms


async def wait_until(condition: Callable[[], object], timeout_s: float = 60) -> None:
    """Lets the loop and other threads run until `condition` holds."""
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.001)


def server_config(**values: object) -> ServerConfig:
    """Keys with `_` for `.`."""
    named = {name.replace("_", "."): value for name, value in values.items()}
    return ServerConfig.from_mapping(
        {"node.id": 1, "log.dirs": [DIRECTORY], "cluster.id": "c", "listeners": ["127.0.0.1:0"], **named}
    )


def registered(broker_id: int, *, broker_epoch: int | None = None, fenced: bool = False) -> RegisterBrokerRecord:
    epoch = 100 + broker_id if broker_epoch is None else broker_epoch
    return RegisterBrokerRecord(
        broker_id, UUID(int=broker_id), epoch, "127.0.0.1", 9000 + broker_id, (UUID(int=50 + broker_id),), fenced=fenced
    )


def topic(
    replicas: Sequence[int] = (1,),
    *,
    isr: Sequence[int] | None = None,
    leader: int = 1,
    leader_epoch: int = 0,
    name: str = TOPIC,
    topic_id: UUID = TOPIC_ID,
) -> tuple[TopicRecord, PartitionRecord]:
    isr = tuple(replicas if isr is None else isr)
    return (
        TopicRecord(name, topic_id),
        PartitionRecord(0, topic_id, tuple(replicas), isr, leader, leader_epoch, 0),
    )


def batch(*values: bytes, producer_id: int = -1, base_sequence: int = -1, timestamp_ms: int = 1) -> bytes:
    records = [(timestamp_ms, None, value, ()) for value in values or (b"v",)]
    producer_epoch = -1 if producer_id < 0 else 0
    return encode_batch(records, producer_id=producer_id, producer_epoch=producer_epoch, base_sequence=base_sequence)


class FakeVerifier:
    """A coordinator that answers when a test says so."""

    def __init__(self) -> None:
        self.asked: list[JoinTransactionRequest] = []
        self._answers: list[asyncio.Future[JoinTransactionResponse]] = []

    async def join(self, request: JoinTransactionRequest, timeout_ms: int) -> JoinTransactionResponse:
        answer: asyncio.Future[JoinTransactionResponse] = asyncio.get_running_loop().create_future()
        self.asked.append(request)
        self._answers.append(answer)
        return await answer

    async def answer(self, *refusals: PartitionRefusal, error: ReplogError | None = None) -> None:
        """Answers the earliest question that has no answer."""
        await wait_until(lambda: self._answers)
        answer = self._answers.pop(0)
        if error is None:
            answer.set_result(JoinTransactionResponse(refusals))
        else:
            answer.set_exception(error)


class Rig:
    """A replica manager with its produce and fetch paths, on a simulated disk; broker 1 unless told otherwise."""

    def __init__(self, config: ServerConfig, fs: SimulatedFileSystem) -> None:
        self.config = config
        self.fs = fs
        self.clock = FakeClock()
        self.failures: list[BaseException] = []
        self.proposals: list[ProposeIsr] = []
        self.told_offline: list[bool] = []
        self.refused: str | None = None
        self.has_failed = False
        self.directory = LogManager.open(
            fs, config.log_dirs, cluster_id="c", node_id=config.node_id, now_ms=self.clock.wall_ms(), limits=NO_LIMITS
        )
        self.executor = ThreadPoolExecutor(2)
        self.flusher = LogFlusher(
            self.executor,
            2,
            self.failures.append,
            lambda log, error: self.stepper.driver.submit(lambda: self.stepper.trouble.log_failed(log, error)),
        )
        self.stepper = ReplicaStepper(
            config=config,
            logs=self.directory,
            clock=self.clock,
            flusher=self.flusher,
            propose_isr=lambda _, proposal: self.proposals.append(proposal),
            on_offline=lambda: self.told_offline.append(True),
            on_failure=self.failures.append,
        )
        self.manager = ReplicaManager(self.stepper, self.directory, self.executor, uuid4, self.failures.append)
        self.image_steps = ImageSteps(self.manager)
        self.wait_for_image: WaitForImage = lambda _: False
        self.verifier = FakeVerifier()
        self.produce_path = ProducePath(self.stepper, lambda: self.refused, self._image_waits, self.verifier)
        reader = FetchReader(self.stepper, lambda: self.refused)
        self.fetch_path = FetchPath(self.stepper, reader, lambda: self.refused, self._image_waits)
        self.look_ups = LookUps(self.stepper, reader)
        self.deletions = RecordDeletions(self.stepper, reader)
        self.image = MetadataImage()
        self.stepper.driver.start()

    def _image_waits(self, run: Callable[[], None]) -> bool:
        return self.wait_for_image(run)

    @property
    def replica(self) -> Replica:
        return self.stepper.replicas[KEY]

    async def apply(self, *records: MetadataRecord) -> None:
        """Publishes the next image."""
        self.submit(*records)
        await self.settle()
        await wait_until(lambda: not self.manager.retirements.places)

    def submit(self, *records: MetadataRecord) -> None:
        """The same without waiting."""
        delta = MetadataDelta(self.image)
        for record in records:
            delta.replay(record)
        image = self.image = delta.apply(self.image.end_offset + len(records), 1)
        changes, brokers = delta.local_changes(self.config.node_id), tuple(delta.changed_brokers)
        self.stepper.driver.submit(lambda: self._change(image, changes, brokers))

    def _change(self, image: MetadataImage, changes: LocalChanges, brokers: tuple[int, ...]) -> None:
        before, self.stepper.image = self.stepper.image, image
        for _ in self.image_steps.delete(changes.deletes):
            continue

        def take_roles() -> None:
            if self.manager.retirements.places:
                return
            self.manager.retirements.on_progress = lambda: None
            for _ in self.image_steps.apply(before, changes, brokers):
                continue

        if self.manager.retirements.places:
            self.manager.retirements.on_progress = take_roles
        else:
            take_roles()

    async def settle(self) -> None:
        """Everything submitted so far has run, and what it posted too."""
        for _ in range(3):
            await self.stepper.driver.call(lambda: None)

    async def flushed(self) -> None:
        """No fsync is under way and its callbacks have run."""
        await wait_until(lambda: not any(self.flusher.is_flushing(log) for log in self.directory.logs.values()))
        await self.settle()

    async def advance(self, ms: int) -> None:
        await self.settle()
        self.clock.monotonic_ms += ms
        self.stepper.driver.wake()
        await self.settle()

    async def failure(self) -> BaseException:
        """What stopped it; a node would do what this does."""
        await wait_until(lambda: self.failures)
        self.stepper.driver.halt()
        self.has_failed = True
        return self.failures.pop(0)

    async def stop(self) -> None:
        await self.produce_path.stop()
        await self.manager.stop()
        await self.flusher.stop()
        self.executor.shutdown()
        with contextlib.suppress(StorageError) if self.has_failed else contextlib.nullcontext():
            self.directory.close(now_ms=self.clock.wall_ms(), broker_epoch=None)

    # requests

    def produce(
        self,
        data: bytes | None = None,
        *,
        acks: int = -1,
        timeout_ms: int = 30_000,
        leader_epoch: int = -1,
        topic_id: UUID = TOPIC_ID,
        transaction: ProducedTransaction | None = None,
    ) -> asyncio.Future[ProduceResult]:
        future: asyncio.Future[ProduceResult] = asyncio.get_running_loop().create_future()

        def answer(response: ProduceResponse) -> None:
            (result,) = response.results
            future.set_result(result)

        partition = ProducePartition(topic_id, 0, leader_epoch)
        request = ProduceRequest(1, timeout_ms, acks, (partition,), (batch() if data is None else data,), transaction)
        self.produce_path.submit(request, answer)
        return future

    def fetch(
        self,
        offset: int,
        *,
        replica_id: int = CONSUMER_REPLICA_ID,
        flushed: int | None = None,
        max_wait_ms: int = 500,
        min_bytes: int = 1,
        max_bytes: int = 1 << 20,
        leader_epoch: int = -1,
        broker_epoch: int | None = None,
        keys: Sequence[ReplicaKey] = (KEY,),
        read_committed: bool = False,
        near: tuple[int, ...] = (),
        session: FetchPositions[FetchPartition] | None = None,
    ) -> Fetched:
        epoch = 100 + replica_id if broker_epoch is None else broker_epoch
        partitions = tuple(
            FetchPartition(
                key[0],
                key[1],
                offset,
                offset if flushed is None else flushed,
                log_start_offset=0,
                leader_epoch=leader_epoch,
                max_bytes=max_bytes,
            )
            for key in keys
        )
        request = FetchRequest(
            1,
            1000,
            replica_id,
            epoch,
            max_wait_ms,
            min_bytes,
            max_bytes,
            partitions,
            read_committed=read_committed,
            near=near,
        )
        fetched = Fetched()
        for one in partitions if session is not None else ():
            session.ask((one.topic_id, one.partition_id), one)
        fetched.withdraw = self.fetch_path.submit(request, fetched.answers.append, session=session)
        return fetched

    async def committed(self, count: int) -> None:
        """Appends `count` records and waits until they are committed."""
        for _ in range(count):
            result = await self.produce()
            assert result.error == 0, result


class Fetched:
    """The answers to one fetch; there is never more than one."""

    def __init__(self) -> None:
        self.answers: list[FetchResponse] = []
        self.withdraw: Callable[[], None] = lambda: None

    @property
    def is_parked(self) -> bool:
        return not self.answers

    @property
    def response(self) -> FetchResponse:
        (response,) = self.answers
        return response

    @property
    def result(self) -> FetchResult:
        (result,) = self.response.results
        return result

    @property
    def size(self) -> int:
        return sum(map(len, self.response.batches))


@contextlib.asynccontextmanager
async def rig(fs: SimulatedFileSystem | None = None, **config: object) -> AsyncIterator[Rig]:
    """A rig that ends without a failure nobody asked for, and with nothing left behind."""
    it = Rig(server_config(**config), fs or SimulatedFileSystem())
    try:
        async with asyncio.timeout(60):
            yield it
        assert not it.failures
    finally:
        await it.stop()
