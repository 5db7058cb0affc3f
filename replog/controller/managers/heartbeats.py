"""When each broker was last heard.  In memory only: a new controller starts every session afresh (docs/KAFKA.md 6.5).

All times are monotonic milliseconds of the node.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct


class Session(Struct):
    """One incarnation as its heartbeats show it.

    Attributes:
        catch_up_offset: The end of the metadata that it must have applied before it may serve: its registration, at
            least.
        metadata_offset: The end (exclusive) of what it has applied of the metadata log; -1 until it has told.
        controlled_shutdown_offset: The end of the batch that started its controlled shutdown; None outside of one.
    """

    broker_epoch: int
    last_contact_ms: int
    catch_up_offset: int
    metadata_offset: int = -1
    controlled_shutdown_offset: int | None = None

    @property
    def is_caught_up(self) -> bool:
        """Whether it has applied what it must have."""
        return self.metadata_offset >= self.catch_up_offset


class BrokerHeartbeats:
    """The sessions of all brokers, fenced ones too."""

    def __init__(self, session_timeout_ms: int) -> None:
        self._session_timeout_ms = session_timeout_ms
        self._sessions: dict[int, Session] = {}

    def start(self, broker_id: int, broker_epoch: int, catch_up_offset: int, now_ms: int) -> None:
        """Begins a session for this incarnation; one of an older incarnation is replaced."""
        self._sessions[broker_id] = Session(broker_epoch, now_ms, catch_up_offset)

    def note_contact(self, broker_id: int, broker_epoch: int, now_ms: int) -> None:
        """Notes that the incarnation was heard; what it said comes later."""
        session = self._sessions.get(broker_id)
        if session is not None and session.broker_epoch == broker_epoch:
            session.last_contact_ms = now_ms

    def touch(self, broker_id: int, broker_epoch: int, metadata_offset: int, end_offset: int, now_ms: int) -> Session:
        """Notes how far the incarnation has applied the metadata log, and returns its session.

        Args:
            broker_id: The broker that tells.
            broker_epoch: The epoch of its incarnation.
            metadata_offset: The end (exclusive) of what it has applied.
            end_offset: The end of the log now: what it must apply first if it has no session yet.
            now_ms: The time at which it tells.
        """
        session = self._sessions.get(broker_id)
        if session is None or session.broker_epoch != broker_epoch:
            session = self._sessions[broker_id] = Session(broker_epoch, now_ms, end_offset)
        session.last_contact_ms = now_ms
        session.metadata_offset = metadata_offset
        return session

    def clear(self) -> None:
        """Forgets all sessions: leadership is lost, and what was heard is of no use to the next term."""
        self._sessions.clear()

    def is_live(self, broker_id: int, broker_epoch: int, now_ms: int) -> bool:
        """Whether this incarnation was heard within the session timeout."""
        session = self._sessions.get(broker_id)
        return session is not None and session.broker_epoch == broker_epoch and now_ms < self._expiry_ms(session)

    def stale_broker(self, broker_ids: Iterable[int], now_ms: int) -> int | None:
        """Returns the one of these brokers whose session expired first; None when all are live."""
        expiries = [(self._expiry_ms(self._sessions[broker_id]), broker_id) for broker_id in broker_ids]
        expiry_ms, broker_id = min(expiries, default=(now_ms + 1, -1))
        return broker_id if expiry_ms <= now_ms else None

    def next_expiry_ms(self, broker_ids: Iterable[int]) -> int | None:
        """Returns when the first session of these brokers expires; None when there are none."""
        return min((self._expiry_ms(self._sessions[broker_id]) for broker_id in broker_ids), default=None)

    def lowest_metadata_offset(self, broker_ids: Iterable[int]) -> int | None:
        """Returns how far all of these brokers have applied the metadata log; None when there are none."""
        return min((self._sessions[broker_id].metadata_offset for broker_id in broker_ids), default=None)

    def _expiry_ms(self, session: Session) -> int:
        return session.last_contact_ms + self._session_timeout_ms + 1  # stale is strictly older than the timeout
