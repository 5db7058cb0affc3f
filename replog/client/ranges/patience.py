"""How long a read waits for brokers: shorter while none can serve it than while one may answer yet."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from replog.client.cluster.addresses import LeaderAddress
from replog.client.cluster.leader_calls import AttemptFailure
from replog.client.cluster.view import ClusterView
from replog.client.ranges.offset_range import RangeWords
from replog.errors import ReplogError, RequestTimedOutError
from replog.rpc.transport import ConnectionLostError

UNSERVED_TIMEOUT_MS = 10_000
"""How long a read may bring nothing while no broker could serve it: the partition has no leader, its leader refuses
connections, or no broker of the cluster answers."""

STALL_TIMEOUT_MS = 60_000
"""The same while some broker leads the partition and may answer yet.  Covers a leader that is silent until its session ends
(`broker.session.timeout.ms`) and a new one whose high watermark waits for followers (`replica.lag.time.max.ms`)."""


def why_unserved(
    view: ClusterView,
    leader: LeaderAddress | None,
    last_leader: LeaderAddress | None,
    loss: ReplogError | None,
    silent_ms: int,
) -> str:
    """Returns why no broker could serve a partition now; "" when one may.

    Args:
        view: A view of the cluster; the newest metadata must have been asked for not long ago.
        leader: Who leads the partition; None: nobody.
        last_leader: Who led it before, where that is known.
        loss: Why the leader was not reached; None: it was.
        silent_ms: After how long without an answer a cluster counts as gone.
    """
    if leader is None:
        return f"the partition has no leader; the last was {named(last_leader)}"
    if isinstance(loss, ConnectionLostError) and loss.refused:
        return f"its leader, {named(leader)}, refuses connections"
    silent_s = asyncio.get_running_loop().time() - view.heard_s
    if silent_s * 1000 >= silent_ms:
        return f"no broker of the cluster answers; its leader was {named(leader)}"
    return ""


def named(leader: LeaderAddress | None) -> str:
    """Returns the words that name a broker to people."""
    return f"broker {leader.broker_id} ({leader.address})" if leader is not None else "not known"


class PlanningPatience:
    """Ends the look-up of offsets where no broker could tell them: give `give_up` to `list_offsets`.

    Args:
        view: A view of the cluster.
        poll_timeout_ms: How long it may take, whatever the reason; None: UNSERVED_TIMEOUT_MS while no broker could serve a
            partition, STALL_TIMEOUT_MS while one may answer yet.
        words: How the error says to wait longer.

    Attributes:
        timeout_ms: The limit of the whole look-up.
    """

    def __init__(self, view: ClusterView, poll_timeout_ms: int | None, words: RangeWords) -> None:
        self.timeout_ms = poll_timeout_ms or STALL_TIMEOUT_MS
        self._view = view
        self._words = words
        self._unserved_timeout_ms = poll_timeout_ms or UNSERVED_TIMEOUT_MS
        self._began_s = asyncio.get_running_loop().time()

    def give_up(self, failures: Sequence[AttemptFailure]) -> RequestTimedOutError | None:
        """Returns the error that ends the look-up after an attempt; None: another one may succeed."""
        waited_ms = int((asyncio.get_running_loop().time() - self._began_s) * 1000)
        if waited_ms < self._unserved_timeout_ms:
            return None
        for partition, leader, error in failures:
            if reason := self._why(leader, error):
                return RequestTimedOutError(
                    f"look up offsets of {partition}: no answer for {waited_ms} ms: {reason}. Start the broker again, "
                    f"or {self._words.wait_longer}"
                )
        return None

    def _why(self, leader: LeaderAddress | None, error: ReplogError) -> str:
        if leader is None:
            return str(error)
        return why_unserved(self._view, leader, None, error, self._unserved_timeout_ms)
