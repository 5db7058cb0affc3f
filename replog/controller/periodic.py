"""What the active controller does by itself, again and again, as deferred events of its queue (docs/KAFKA.md 6.1).

============= ======================================= ==================================================================
task          every                                   what
============= ======================================= ==================================================================
no-op         metadata.max.idle.interval.ms           a NoOp record, if nothing else was written meanwhile
fence         next session that may expire            the broker that was silent longest; one per round, see `_FENCE_GAP`
balance       leader.imbalance.check.interval.seconds leaderships go back to the first of the replicas
leaderless    leaderless_interval_ms                  leaders where there is none and one may be, also unclean if allowed
drain         drain_interval_ms                       drained brokers lose leaderships, then replicas
tokens        delegation_token_expiry_check_interval  delegation tokens that have expired are removed
============= ======================================= ==================================================================

A task that fails is counted and tried again later; the term goes on.  (A record that cannot be replayed is another matter:
then the node stops.)
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from replog.controller.config import ControllerConfig
from replog.controller.managers.cluster import ClusterControl
from replog.controller.managers.drain import DrainControl
from replog.controller.managers.elections import ElectionControl
from replog.controller.managers.replication import Made
from replog.controller.state.configuration import ConfigurationControl
from replog.controller.state.delegation_tokens import DelegationTokenControl
from replog.metadata.config_keys import (
    AUTO_LEADER_REBALANCE_ENABLE,
    LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS,
    METADATA_MAX_IDLE_INTERVAL_MS,
)
from replog.metadata.records import NoOpRecord

RETRY_MS = 10_000
"""Milliseconds until a task that failed is tried again."""

_AGAIN_MS = 1
_FENCE_GAP_MS = 50
"""Milliseconds between two fencings: one at a time, so that heartbeats that wait to be heard can save the others."""
_HELD_UP_MS = 1_000
"""A round that comes later than this after it was due was held up, by a pause of this process say.  Then the silence was
ours: heartbeats wait to be heard, and the round comes again a little later."""
_HELD_UP_GRACE_MS = 200
_IDLE_LOOK_MS = 1_000


class Round(Struct, frozen=True):
    """What one round of a task makes, and after how many milliseconds it wants the next."""

    records: Made
    delay_ms: int


class PeriodicTask(Struct, frozen=True):
    """`make` is told the time and when something was last written, both in monotonic milliseconds."""

    name: str
    make: Callable[[int, int], Round]


class PeriodicTasks:
    """The tasks of one controller."""

    def __init__(
        self,
        config: ControllerConfig,
        configs: ConfigurationControl,
        cluster: ClusterControl,
        elections: ElectionControl,
        drains: DrainControl,
        delegation_tokens: DelegationTokenControl,
        wall_ms: Callable[[], int],
    ) -> None:
        self._config = config
        self._configs = configs
        self._cluster = cluster
        self._elections = elections
        self._drains = drains
        self._delegation_tokens = delegation_tokens
        self._wall_ms = wall_ms
        self._fence_due_ms = 0
        self.tasks = (
            PeriodicTask("no-op", self._no_op),
            PeriodicTask("fence", self._fence),
            PeriodicTask("balance", self._balance),
            PeriodicTask("leaderless", self._leaderless),
            PeriodicTask("drain", self._drain),
            PeriodicTask("tokens", self._tokens),
        )

    def start_term(self, now_ms: int) -> None:
        """Begins a term: nothing of an earlier one counts."""
        self._fence_due_ms = now_ms
        self._elections.start_term()
        self._drains.start_term()

    def first_delay_ms(self, task: PeriodicTask) -> int:
        """Returns how long after the term begins the first round is due; balancing waits for brokers to settle."""
        if task.name == "balance":
            return self._balance_interval_ms()
        if task.name == "leaderless":
            return self._config.leaderless_interval_ms
        if task.name == "tokens":
            return self._config.delegation_token_expiry_check_interval_ms
        return self._idle_interval_ms() or _IDLE_LOOK_MS if task.name == "no-op" else 0

    def _no_op(self, now_ms: int, last_write_ms: int) -> Round:
        interval_ms = self._idle_interval_ms()
        if interval_ms == 0:
            return Round((), _IDLE_LOOK_MS)
        idle_ms = now_ms - last_write_ms
        if idle_ms < interval_ms:
            return Round((), interval_ms - idle_ms)
        return Round((NoOpRecord(),), interval_ms)

    def _fence(self, now_ms: int, _last_write_ms: int) -> Round:
        made = Round((), _HELD_UP_GRACE_MS) if now_ms > self._fence_due_ms + _HELD_UP_MS else self._fence_one(now_ms)
        self._fence_due_ms = now_ms + made.delay_ms
        return made

    def _fence_one(self, now_ms: int) -> Round:
        records = self._cluster.fence_stale_broker(now_ms)
        if records:
            return Round(records, _FENCE_GAP_MS)
        next_ms = self._cluster.next_expiry_ms()
        # a session that begins later expires later than a full session from now
        delay_ms = self._config.broker_session_timeout_ms if next_ms is None else next_ms - now_ms
        return Round((), max(_AGAIN_MS, delay_ms))

    def _balance(self, _now_ms: int, _last_write_ms: int) -> Round:
        interval_ms = self._balance_interval_ms()
        if not self._configs.cluster_value(AUTO_LEADER_REBALANCE_ENABLE, self._config.auto_leader_rebalance_enable):
            return Round((), interval_ms)
        looked_at = self._elections.rebalance(self._config.max_elections_per_round)
        return Round(looked_at.changes, interval_ms if looked_at.is_all else _AGAIN_MS)

    def _leaderless(self, _now_ms: int, _last_write_ms: int) -> Round:
        looked_at = self._elections.elect_leaderless(self._config.max_elections_per_round)
        return Round(looked_at.changes, self._config.leaderless_interval_ms if looked_at.is_all else _AGAIN_MS)

    def _drain(self, _now_ms: int, _last_write_ms: int) -> Round:
        looked_at = self._drains.next_changes(self._config.max_elections_per_round)
        return Round(looked_at.changes, self._config.drain_interval_ms if looked_at.is_all else _AGAIN_MS)

    def _tokens(self, _now_ms: int, _last_write_ms: int) -> Round:
        expired = self._delegation_tokens.remove_expired(self._wall_ms())
        interval_ms = self._config.delegation_token_expiry_check_interval_ms
        return Round(expired.records, interval_ms if expired.is_all else _AGAIN_MS)

    def _idle_interval_ms(self) -> int:
        return int(
            self._configs.cluster_value(METADATA_MAX_IDLE_INTERVAL_MS, self._config.metadata_max_idle_interval_ms)
        )

    def _balance_interval_ms(self) -> int:
        seconds = self._config.leader_imbalance_check_interval_seconds
        return 1000 * int(self._configs.cluster_value(LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS, seconds))
