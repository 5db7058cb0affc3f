"""Settings of the controller, each with unit, range, and what too small and too large do."""

from __future__ import annotations

from dataclasses import dataclass

from replog.errors import ConfigError


@dataclass(frozen=True, slots=True)
class ControllerConfig:
    """The same values on every controller of a cluster.

    Raises:
        ConfigError: a value is out of range, or one broker's restart could need more than one batch.
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

    producer_id_block_size: int = 1_000
    """Producer ids per block that a broker takes.  Too small: a request per few producers.  Too large: nothing bad,
    the ids are 63 bits wide."""

    max_records_per_batch: int = 10_000
    """Records in one atomic batch of the metadata log."""

    max_topics: int = 5_000
    """Topics in the cluster."""

    max_partitions: int = 9_999
    """Partitions in the cluster.  Below `max_records_per_batch`: a restart or a fencing changes any number of
    partitions and one broker, in one batch."""

    max_parked_requests: int = 10_000
    """Requests that wait for a commit; beyond it they are refused with ThrottledError."""

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            value = getattr(self, name)
            if not 1 <= value < 2**63:
                raise ConfigError(name, value, f"{name} must be from 1 to 2**63 - 1, is {value}")
        if self.max_partitions >= self.max_records_per_batch:
            raise ConfigError(
                "max_partitions",
                self.max_partitions,
                f"max_partitions ({self.max_partitions}) must be below max_records_per_batch "
                f"({self.max_records_per_batch}): fencing a broker is one batch",
            )
