"""Settings of the controller, each with unit, range, and what too small and too large do."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from replog.access.standard import StandardAuthorizer
from replog.access.token_key import TokenKey
from replog.errors import ConfigError
from replog.metadata.config_keys import FlushPolicy
from replog.metadata.records import UserScramCredentialRecord

_MAY_BE_ZERO = {"metadata_max_idle_interval_ms", "auto_leader_rebalance_enable", "unclean_leader_election_enable"}


class ControllerConfig(Struct, frozen=True):
    """The same values on every controller of a cluster.

    Raises:
        ConfigError: A value is out of range, or one broker's restart could be more than one change may be.
    """

    broker_session_timeout_ms: int = 9_000
    """Milliseconds without a heartbeat after which a broker is fenced, from 1 up.  Too small: pauses of the
    interpreter cost leaderships.  Too large: partitions of a dead broker stay without a leader for that long."""

    default_replication_factor: int = 1
    """Replicas of a topic that does not say; from 1 up."""

    num_partitions: int = 1
    """Partitions of a topic that does not say; from 1 up."""

    min_insync_replicas: int = 1
    """`min.insync.replicas` that a new cluster starts with; it is written to the log once and changed there."""

    unclean_leader_election_enable: bool = False
    """`unclean.leader.election.enable` that a new cluster starts with, as above."""

    flush_policy: FlushPolicy = FlushPolicy.AUTO
    """`flush.policy` that a new cluster starts with, as above."""

    producer_id_block_size: int = 1_000
    """Producer ids per block that a broker takes.  Too small: a request per few producers.  Too large: nothing bad,
    the ids are 63 bits wide."""

    max_records_per_batch: int = 10_000
    """Records in one batch of the metadata log.  A larger change is a transaction of several."""

    max_records_per_step: int = 1_000
    """Records that are replayed and appended in one step; a larger change is a transaction of several batches, with turns of
    the loop between them.  Where the cluster knows no transactions yet, a batch is one step.  Too small: an fsync for few
    records.  Too large: a step holds everything else of the node up."""

    max_bytes_per_batch: int = 4 * 2**20
    """Bytes of one batch of the metadata log, by `encoded_bytes_max`; at most half of what the quorum takes as one."""

    max_bytes_per_record: int = 64 * 2**10
    """Bytes of one record that a request may make, by the same measure: beyond it the request is refused, before anything
    has changed.  What the controller makes of such records later (lists of replicas) stays below a batch."""

    max_records_per_change: int = 250_000
    """Records of one change, whoever causes it: the restart of a broker changes all of its partitions at once."""

    max_records_per_request: int = 10_000
    """Records that the request of a client may make, and partitions that it may delete; Kafka's number.  Too large: a step
    of the controller, and of every node that replays it, holds heartbeats and elections up."""

    max_replicas_per_request: int = 100_000
    """Replicas that new partitions of one request may have together, as above."""

    max_topics: int = 100_000
    """Topics in the cluster."""

    max_partitions: int = 200_000
    """Partitions in the cluster.  Below `max_records_per_change`: a restart or a fencing changes any number of
    partitions and one broker, as a whole."""

    max_acls: int = 20_000
    """Entries of access control lists in the cluster.  Too large: a filter looks at all of them in one step."""

    new_authorizer: Callable[[], StandardAuthorizer] | None = None
    """Makes what decides what clients may have changed, by the entries of the state; None: everything."""

    token_key: TokenKey | None = None
    """What makes the HMACs of delegation tokens; None: there are none."""

    delegation_token_max_lifetime_ms: int = 7 * 24 * 3_600_000
    """Milliseconds after which a token cannot be renewed any more, however long its requester wants it."""

    delegation_token_expiry_time_ms: int = 24 * 3_600_000
    """Milliseconds after which a token ends that is not renewed."""

    delegation_token_expiry_check_interval_ms: int = 3_600_000
    """Milliseconds between two looks for tokens that have expired, and are removed."""

    max_delegation_tokens: int = 10_000
    """Delegation tokens in the cluster.  Too large: every node has all of them in memory."""

    max_delegation_tokens_per_requester: int = 1_000
    """Delegation tokens that one user may have asked for: anybody may, so that one must leave room for others."""

    max_parked_requests: int = 10_000
    """Requests that wait for a commit; beyond it they are refused with ThrottledError."""

    metadata_max_idle_interval_ms: int = 0
    """A NoOp record is written when nothing else was for so long, so that everybody sees that the log moves; 0: never.
    `metadata.max.idle.interval.ms` of the cluster overrules it."""

    auto_leader_rebalance_enable: bool = True
    """Whether leaderships go back to the first of the replicas by themselves; overruled by the cluster's value."""

    leader_imbalance_check_interval_seconds: int = 300
    """Seconds between two rounds of that; from 1 up; overruled by the cluster's value."""

    leaderless_interval_ms: int = 300_000
    """Milliseconds between two looks for partitions without a leader that may have one, an unclean one where the topic
    allows it.  What is noticed when it happens does not wait for this."""

    max_elections_per_round: int = 1_000
    """Partitions that one round of balancing, of draining or of elections without a leader looks at; the next round follows
    at once."""

    drain_interval_ms: int = 1_000
    """Milliseconds between two looks at what drained brokers still have.  Too small: work for nothing."""

    max_drain_reassignments: int = 50
    """Partitions that may be on the move at a time for drained brokers to get more to do.  Too large: the copies
    compete with the traffic of clients.  Too small: draining takes long."""

    static_configs: frozenset[str] = frozenset()
    """The names of what only the configuration files of nodes say; whoever sets one is told so."""

    first_users: tuple[UserScramCredentialRecord, ...] = ()
    """The users that a new metadata log begins with."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            lowest = 0 if name in _MAY_BE_ZERO else 1
            if isinstance(value, int) and not lowest <= value < 2**63:
                raise ConfigError(name, value, f"{name} must be from {lowest} to 2**63 - 1, is {value}")
        if self.max_partitions >= self.max_records_per_change:
            raise ConfigError(
                "max_partitions",
                self.max_partitions,
                f"max_partitions ({self.max_partitions}) must be below max_records_per_change "
                f"({self.max_records_per_change}): fencing a broker is one change",
            )
