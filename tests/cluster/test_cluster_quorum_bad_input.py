"""Well-formed requests to the metadata quorum that are wrong: each gets its error, and nothing changes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import UUID

import pytest
from cluster_kit import Cluster, StartCluster, until
from msgspec.structs import force_setattr

from replog.errors import ErrorCode, InvalidRequestError, ReplogError, VoterNotFoundError
from replog.rpc.grpc.transport import GrpcTransport
from replog.rpc.messages import Hello
from replog.rpc.quorum_codec import QuorumFrame
from replog.rpc.transport import Stream
from replog_quorum import EpochEnd, Voter
from replog_quorum.messages import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    QuorumError,
    QuorumFetchRequest,
    Request,
    Response,
    UpdateVoterRequest,
    VoteRequest,
    VoteResponse,
)

pytestmark = pytest.mark.cluster

STRANGER = 77
DIRECTORY = UUID(int=77)
ANSWER_WITHIN_S = 20.0


@asynccontextmanager
async def quorum_stream(cluster: Cluster) -> AsyncIterator[Stream[QuorumFrame, QuorumFrame]]:
    """As node 77 of the cluster, which nobody knows."""
    connection = GrpcTransport().connect(cluster.local.nodes[1].peer_address, purpose="raw")
    try:
        stream = await connection.open_quorum(Hello(cluster.local.cluster_id, STRANGER, UUID(int=1)))
        yield stream
        await stream.close()
    finally:
        await connection.close()


async def answer(stream: Stream[QuorumFrame, QuorumFrame], request: Request) -> Response:
    await stream.send(request)
    async with asyncio.timeout(ANSWER_WITHIN_S):
        found = await stream.receive()
    assert isinstance(found, Response)
    assert found.correlation_id == request.correlation_id
    return found


def fetch(epoch: int, offset: int = 0, **fields: int) -> QuorumFetchRequest:
    given = {"replica_id": STRANGER, "last_fetched_epoch": 0, "max_wait_ms": 0, **fields}
    return QuorumFetchRequest(
        correlation_id=5,
        leader_epoch=epoch,
        fetch_offset=offset,
        high_watermark=-1,
        replica_directory_id=DIRECTORY,
        **given,
    )


def vote(epoch: int, *, last_epoch: int = 0, last_offset: int = 0, voter_id: int = 1) -> VoteRequest:
    return VoteRequest(6, voter_id, STRANGER, epoch, last_epoch, last_offset, True, DIRECTORY, None)  # noqa: FBT003 -- a pre-vote


async def test_wrong_requests_get_their_error_and_change_nothing(start_cluster: StartCluster) -> None:
    cluster = await start_cluster(1)
    await until(lambda: is_dynamic(cluster), "the voter stands in the log")
    before = await cluster.admin.describe_quorum()
    epoch = before.leader_epoch
    wrong: list[tuple[Request, QuorumError]] = [
        (fetch(epoch - 1), QuorumError.FENCED_LEADER_EPOCH),
        (fetch(epoch + 1), QuorumError.UNKNOWN_LEADER_EPOCH),
        (fetch(epoch, -1), QuorumError.INVALID_REQUEST),
        (fetch(epoch, last_fetched_epoch=epoch + 1), QuorumError.INVALID_REQUEST),
        (fetch(epoch, max_wait_ms=-1), QuorumError.INVALID_REQUEST),
        (fetch(epoch, replica_id=1), QuorumError.INVALID_REQUEST),  # the leader itself
        (vote(epoch - 1), QuorumError.FENCED_LEADER_EPOCH),
        (vote(epoch, last_offset=-1), QuorumError.INVALID_REQUEST),
        (vote(epoch, last_epoch=epoch + 1), QuorumError.INVALID_REQUEST),
        (vote(epoch, voter_id=3), QuorumError.INVALID_VOTER_KEY),
        (BeginQuorumEpochRequest(7, 1, STRANGER, epoch, None), QuorumError.INVALID_REQUEST),
        (EndQuorumEpochRequest(8, 1, STRANGER, epoch, (), None), QuorumError.INVALID_REQUEST),
        (UpdateVoterRequest(9, STRANGER, epoch, Voter(STRANGER, DIRECTORY, "x:1")), QuorumError.VOTER_NOT_FOUND),
        (
            UpdateVoterRequest(9, STRANGER, epoch - 1, Voter(STRANGER, DIRECTORY, "x:1")),
            QuorumError.FENCED_LEADER_EPOCH,
        ),
    ]
    async with quorum_stream(cluster) as stream:
        for request, error in wrong:
            assert (await answer(stream, request)).error is error, request
        for position in (0, 1 << 60):
            snapshot = FetchSnapshotRequest(
                10, STRANGER, DIRECTORY, epoch, EpochEnd(epoch, 1 << 40), position, max_bytes=1 << 30
            )
            found = await answer(stream, snapshot)
            assert isinstance(found, FetchSnapshotResponse)
            assert found.error is QuorumError.SNAPSHOT_NOT_FOUND
        refused = await answer(stream, vote(epoch))
        assert isinstance(refused, VoteResponse)
        assert not refused.vote_granted, "a leader grants no votes"
    await check_unchanged(cluster, before.leader_epoch)


async def test_bytes_that_are_no_uuid_end_the_stream(start_cluster: StartCluster) -> None:
    cluster = await start_cluster(1)
    await until(lambda: is_dynamic(cluster), "the voter stands in the log")
    before = await cluster.admin.describe_quorum()

    class Short:
        bytes = b"short"

    request = fetch(before.leader_epoch)
    force_setattr(request, "replica_directory_id", Short())
    async with quorum_stream(cluster) as stream:
        await stream.send(request)
        with pytest.raises(InvalidRequestError, match="another version or damaged"):
            await stream.receive()
    await check_unchanged(cluster, before.leader_epoch)


async def test_wrong_wishes_about_voters(start_cluster: StartCluster) -> None:
    cluster = await start_cluster(1)
    await until(lambda: is_dynamic(cluster), "the voter stands in the log")
    before = await cluster.admin.describe_quorum()
    with pytest.raises(VoterNotFoundError):
        await cluster.admin.remove_voter(STRANGER)
    with pytest.raises(VoterNotFoundError):
        await cluster.admin.remove_voter(1, DIRECTORY)
    with pytest.raises(VoterNotFoundError):
        await cluster.admin.remove_voter(1)  # the last one
    for voter_id, endpoint in ((1, "127.0.0.1:1"), (STRANGER, ""), (STRANGER, "no port"), (-1, "127.0.0.1:1")):
        with pytest.raises(ReplogError) as refused:
            await cluster.admin.add_voter(voter_id, DIRECTORY, endpoint, timeout_ms=2_000)
        assert str(refused.value)
        assert refused.value.code is not ErrorCode.UNKNOWN_SERVER_ERROR
    await check_unchanged(cluster, before.leader_epoch)


async def is_dynamic(cluster: Cluster) -> bool:
    return (await cluster.admin.describe_quorum()).is_dynamic


async def check_unchanged(cluster: Cluster, epoch: int) -> None:
    after = await cluster.admin.describe_quorum()
    assert (after.leader_id, after.leader_epoch) == (1, epoch)
    assert [member.node_id for member in after.members if member.is_voter] == [1]
    assert cluster.local.nodes[1].is_alive
    assert "Traceback" not in cluster.log_text(1)
    await cluster.admin.create_topic("after-all", 1, 1)
