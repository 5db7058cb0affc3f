"""The fetch request, sent by followers and by nodes that look for a leader."""

from __future__ import annotations

from replog_quorum.context import Context
from replog_quorum.messages import QuorumFetchRequest
from replog_quorum.requests import RequestTracker


def send_fetch(
    context: Context,
    requests: RequestTracker,
    destination: int,
    now_ms: int,
    *,
    max_wait_ms: int,
    leader_time_ms: int = -1,
) -> int | None:
    """Asks `destination` for what follows the end of the log.

    A voter's fetch offset is a promise that everything below survives a crash, because the leader counts it toward the
    high watermark; so a voter whose log is still being flushed asks later (docs/KAFKA.md 5.3).

    Returns:
        The fetch offset, or None when nothing was sent.
    """
    if context.is_installing or (context.is_voter and not context.log_is_durable):
        return None
    log = context.log
    request = QuorumFetchRequest(
        correlation_id=requests.begin(destination, now_ms),
        replica_id=context.node_id,
        leader_epoch=context.epoch,
        fetch_offset=log.log_end_offset,
        last_fetched_epoch=log.last_epoch,
        high_watermark=context.high_watermark,
        max_wait_ms=max_wait_ms,
        replica_directory_id=context.directory_id,
        leader_time_ms=leader_time_ms,
    )
    context.send(destination, request)
    return request.fetch_offset
