"""The configuration keys of transactions; a part of `ServerKeys`."""

from typing import Annotated

from replog.config.access_keys import AccessKeys
from replog.config.keys import Differs
from replog.config.kinds import DAY_MS, HOUR_MS, INT_MAX, MIB, Number, milliseconds, size_bytes


class TransactionKeys(AccessKeys, frozen=True, kw_only=True):
    """The keys as fields, in the order of the page."""

    # ---- the topic of transactions ----------------------------------------------------------------------------------

    transaction_state_log_num_partitions: Annotated[int, Number(1, 10_000)] = 50
    """Partitions of `__transaction_state`, which is made when a transactional producer first looks for its coordinator.  They
    spread the transactional ids over the brokers.  What is said here counts only then: a topic that is there keeps its
    partitions."""

    transaction_state_log_replication_factor: Annotated[
        int | None, Number(1, 32_767), Differs("3", "a single node serves transactions without a setting")
    ] = None
    """Replicas of `__transaction_state`.  Not set: 3, or as many as the cluster has brokers when the topic is made; one that
    was made while there was a single broker keeps one replica, until its partitions are reassigned."""

    transaction_state_log_min_isr: Annotated[
        int | None,
        Number(1, 32_767),
        Differs("2", "two replicas would be no better than one: without either nothing is decided"),
    ] = None
    """In-sync replicas that a change of a transaction needs (`min.insync.replicas` of `__transaction_state`).  Not set: 2 where
    the topic is made with three replicas or more, else 1."""

    transaction_state_log_segment_bytes: Annotated[int, size_bytes(MIB, INT_MAX)] = 100 * MIB
    """Size at which a segment of `__transaction_state` is closed.  Compaction leaves the last one alone, and a new coordinator
    reads all of them: larger means a longer pause of transactional producers when their coordinator moves."""

    # ---- transactions -----------------------------------------------------------------------------------------------

    transaction_max_timeout_ms: Annotated[int, milliseconds(1, 7 * DAY_MS)] = 900_000
    """The longest time that a producer may let its transactions be open (transaction.timeout.ms of clients): readers of
    committed records wait for so long behind one whose producer has died."""

    transactional_id_expiration_ms: Annotated[int, milliseconds(1, 3650 * DAY_MS)] = 7 * DAY_MS
    """How long a transactional id is known after its last transaction has ended."""

    transaction_abort_timed_out_transaction_cleanup_interval_ms: Annotated[int, milliseconds(1, DAY_MS)] = 10_000
    """How often transactions are looked for that have been open for too long, and are aborted."""

    transaction_remove_expired_transaction_cleanup_interval_ms: Annotated[int, milliseconds(1, 7 * DAY_MS)] = HOUR_MS
    """How often transactional ids are looked for that have been known for long enough."""
