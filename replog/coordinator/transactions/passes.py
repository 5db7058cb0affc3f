"""Looks now and then at all transactional ids: aborts what has been open for too long, forgets what nobody uses.

Each pass goes in steps, and looks at each transactional id as it is when its turn comes.  What the log does not take is found by
the next pass.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from msgspec import Struct

from replog.coordinator.config import TransactionsConfig
from replog.coordinator.records import CoordinatorRecord
from replog.coordinator.runtime.background import Background, Work
from replog.coordinator.runtime.machine import Moment, Outcome, Timers
from replog.coordinator.transactions.ends import Ends
from replog.coordinator.transactions.records import removal_record, transaction_record
from replog.coordinator.transactions.state import IS_DECIDED, TransactionState
from replog.coordinator.transactions.transitions import fenced


class AbortPass(Struct, frozen=True):
    """The timer of a pass over the open transactions."""


class ExpirationPass(Struct, frozen=True):
    """The timer of a pass over all transactional ids."""


Find = Callable[[str], CoordinatorRecord | None]
"""Returns the record that a pass makes of a transactional id; None where it has nothing to do."""


class Passes:
    """Makes the passes.

    Args:
        state: The transactional ids.
        ends: What hears that transactions are decided.
        background: What works in steps.
        timers: The timers of the shard.
        config: The settings.
        transaction_version: The function that returns the `transaction.version` of the cluster.
    """

    def __init__(
        self,
        state: TransactionState,
        ends: Ends,
        background: Background,
        timers: Timers,
        config: TransactionsConfig,
        transaction_version: Callable[[], int],
    ) -> None:
        self._state = state
        self._ends = ends
        self._background = background
        self._timers = timers
        self._config = config
        self._transaction_version = transaction_version
        self._going: set[AbortPass | ExpirationPass] = set()

    def start(self, moment: Moment) -> None:
        """Sets the timers of both passes.

        The first one of each comes soon: where leaders move more often than `expiration_interval_ms`, nothing would expire.
        """
        config = self._config
        self._timers.set(AbortPass(), moment.now_ms + config.abort_interval_ms)
        first_ms = min(config.abort_interval_ms, config.expiration_interval_ms)
        self._timers.set(ExpirationPass(), moment.now_ms + first_ms)

    def stop(self) -> None:
        """Forgets that passes go on."""
        self._going.clear()

    def begin(self, timer: AbortPass | ExpirationPass, moment: Moment) -> None:
        """Begins a pass, unless the one before goes on, and sets the timer of the next one."""
        is_abort = isinstance(timer, AbortPass)
        interval_ms = self._config.abort_interval_ms if is_abort else self._config.expiration_interval_ms
        self._timers.set(timer, moment.now_ms + interval_ms)
        if timer in self._going:
            return
        ids = list(self._state.deadlines() if is_abort else self._state.ids())
        if ids:
            self._going.add(timer)
            self._background.add(self._steps(timer, ids, self._abort if is_abort else self._removal), moment)

    def _steps(self, timer: AbortPass | ExpirationPass, ids: Collection[str], find: Find) -> Work:
        config = self._config
        try:
            records: list[CoordinatorRecord] = []
            visits = size_bytes = 0
            for transactional_id in ids:
                record = find(transactional_id)
                visits += 1
                if record is not None:
                    records.append(record)
                    size_bytes += self._state.size_bytes(transactional_id)
                if (
                    visits >= config.visits_per_step
                    or len(records) >= config.records_per_step
                    or size_bytes >= config.bytes_per_step
                ):
                    yield self._made(records)
                    records, visits, size_bytes = [], 0, 0
            yield self._made(records)
        finally:
            self._going.discard(timer)

    def _made(self, records: list[CoordinatorRecord]) -> Outcome:
        """Returns what a step leads to."""
        if records:
            self._ends.look_soon(self._background.moment)
        return Outcome(tuple(records))

    def _abort(self, transactional_id: str) -> CoordinatorRecord | None:
        wall_ms = self._background.moment.wall_ms
        if not IS_DECIDED < self._state.deadlines().get(transactional_id, IS_DECIDED) < wall_ms:
            return None
        value = self._state.find(transactional_id)
        if value is None:
            return None
        version = self._transaction_version()
        return transaction_record(transactional_id, fenced(value, version, wall_ms), version)

    def _removal(self, transactional_id: str) -> CoordinatorRecord | None:
        glance = self._state.glance(transactional_id)
        if glance is None or not glance.status.is_at_rest:
            return None
        is_old = glance.update_ms <= self._background.moment.wall_ms - self._config.id_expiration_ms
        return removal_record(transactional_id) if is_old else None
