"""What clients are told of a broken disk or a bug: no name of a file or folder of the node, no error of Python's."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

import pytest

from replog.controller.managers.table import Managers
from replog.coordinator.group_machine import GroupMachine
from replog.errors import DiskFullError, ErrorCode, StorageError
from replog.testing import SimulatedFileSystem
from replog.testing.simulated_faults import Operation
from replog.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from replog.wire.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from replog.wire.messages.fetch import FetchRequest, FetchResponse
from replog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from replog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from replog.wire.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from replog.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from replog.wire.messages.produce import ProduceRequest, ProduceResponse
from tests.kafka.raw_client import RawClient
from tests.unit.kafka.kafka_node_kit import TIMEOUT_S, Served, batch, serving

FOLDER = "/canary-folder/data"
COMING = {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
"""What a node says whose coordinator is on its way."""

TELLING = (b"canary", b"Errno", b"Error(", b"Traceback", b".py", b"Input/output")


@asynccontextmanager
async def serving_on(fs: SimulatedFileSystem) -> AsyncIterator[Served]:
    """A node whose topic is in the second of its folders; at its end it says that a disk is broken, which is no news."""
    with suppress(StorageError, DiskFullError):
        async with serving(fs, log_dirs=["/data", FOLDER]) as it:
            await it.create()
            await it.produce(batch(b"1"))
            yield it


@contextmanager
def heard(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bytes]]:
    """The bytes of all answers."""
    frames: list[bytes] = []
    frame = RawClient.frame

    def kept(client: RawClient) -> bytes:
        frames.append(frame(client))
        return frames[-1]

    monkeypatch.setattr(RawClient, "frame", kept)
    yield frames
    assert frames
    assert not [each for each in frames for word in TELLING if word in each]


def questions() -> dict[str, tuple[Any, int, type[Any]]]:
    """Requests that need a disk, the controller or a coordinator."""
    produced = ProduceRequest.TopicProduceData(
        "t", partition_data=[ProduceRequest.PartitionProduceData(0, batch(b"2"))]
    )
    listed = ListOffsetsRequest.ListOffsetsTopic(
        "t", [ListOffsetsRequest.ListOffsetsPartition(0, current_leader_epoch=-1, timestamp=0)]
    )
    fetched = FetchRequest.FetchTopic("t", partitions=[FetchRequest.FetchPartition(0, partition_max_bytes=1 << 20)])
    deleted = DeleteRecordsRequest.DeleteRecordsTopic("t", [DeleteRecordsRequest.DeleteRecordsPartition(0, 1)])
    committed = OffsetCommitRequest.OffsetCommitRequestTopic(
        "t", partitions=[OffsetCommitRequest.OffsetCommitRequestPartition(0, committed_offset=1)]
    )
    return {
        "produce": (ProduceRequest(acks=-1, timeout_ms=2000, topic_data=[produced]), 9, ProduceResponse),
        "fetch": (FetchRequest(max_bytes=1 << 20, topics=[fetched]), 11, FetchResponse),
        "list offsets": (ListOffsetsRequest(topics=[listed]), 5, ListOffsetsResponse),
        "delete records": (DeleteRecordsRequest([deleted], 2000), 2, DeleteRecordsResponse),
        "commit offsets": (OffsetCommitRequest("g", topics=[committed]), 8, OffsetCommitResponse),
        "producer id": (InitProducerIdRequest("tx", 1000), 3, InitProducerIdResponse),
        "create topics": (
            CreateTopicsRequest([CreateTopicsRequest.CreatableTopic("new", 1, 1)], 2000),
            5,
            CreateTopicsResponse,
        ),
    }


async def asked(it: Served, name: str) -> Any:
    """Asks a question; returns the answer."""
    return await it.ask(*questions()[name])


async def commits(it: Served) -> ErrorCode:
    """Commits an offset; returns the code of the answer."""
    answer: OffsetCommitResponse = await asked(it, "commit offsets")
    return ErrorCode(answer.topics[0].partitions[0].error_code)


@pytest.mark.parametrize("error_number", [errno.EIO, errno.ENOSPC, errno.EMFILE])
@pytest.mark.parametrize("operation", [Operation.WRITE, Operation.READ, Operation.SYNC, Operation.CREATE])
async def test_of_a_broken_disk_no_file_is_told(
    monkeypatch: pytest.MonkeyPatch, operation: Operation, error_number: int
) -> None:
    fs = SimulatedFileSystem()
    async with serving_on(fs) as it:
        with heard(monkeypatch):
            fs.faults.fail_always(operation, error_number=error_number, path_part="/t-0/")
            for name in questions():
                await asked(it, name)
            fs.faults.clear()


async def test_a_producer_is_told_that_the_disk_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    fs = SimulatedFileSystem()
    async with serving_on(fs) as it:
        with heard(monkeypatch):
            fs.faults.fail_next(Operation.WRITE, path_part="/t-0/")
            (told,) = (await asked(it, "produce")).responses[0].partition_responses
    assert told.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert told.error_message == "a disk or a file of this broker failed; its log says which and why"


def break_down(*_: object) -> None:
    raise OSError(errno.EIO, "Input/output error", f"{FOLDER}/file.py")


async def test_of_a_bug_of_the_controller_only_the_log_says_more(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(log_dirs=[FOLDER]) as it:
        await it.create()
        with heard(monkeypatch):
            monkeypatch.setattr(Managers, "handle", break_down)
            (told,) = (await asked(it, "create topics")).topics
            monkeypatch.undo()
    assert told.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert told.error_message == "CreateTopics failed unexpectedly, nothing has changed; the log of the node says more"
    assert f"{FOLDER}/file.py" in caplog.text


async def test_of_a_bug_of_a_coordinator_only_the_log_says_more(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(log_dirs=[FOLDER]) as it:
        await it.create()
        await it.ask(FindCoordinatorRequest("g"), 3, FindCoordinatorResponse)  # which makes the topic of offsets
        async with asyncio.timeout(TIMEOUT_S):
            while (code := await commits(it)) is not ErrorCode.NONE:
                assert code in COMING, code
                await asyncio.sleep(0.01)
        with heard(monkeypatch):
            monkeypatch.setattr(GroupMachine, "handle", break_down)
            assert await commits(it) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert f"{FOLDER}/file.py" in caplog.text
