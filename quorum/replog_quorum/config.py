"""Timers and sizes of the quorum, with Kafka's defaults (docs/KAFKA.md 2, 5.1).

Times are milliseconds on the monotonic clock that the host passes to `Quorum.step`.
"""

from __future__ import annotations

from msgspec import Struct

from replog_quorum.errors import QuorumConfigError

_MAX_MS = 3_600_000
_MAX_CHUNK_BYTES = 8 << 20


class QuorumConfig(Struct, frozen=True):
    """How long the core waits before it acts.

    Raises:
        QuorumConfigError: A time is outside 1 to 3,600,000 ms, the chunk size outside 1 byte to 8 MiB, or the fetch
            wait does not fit into a timeout.
    """

    election_timeout_ms: int = 1000
    """Lower bound of the random election timeout, which is drawn from [T, 2T).  Must exceed a round trip and
    two fsyncs many times over: too small means split votes, too large a longer time without a leader."""

    fetch_timeout_ms: int = 2000
    """How long a follower goes without a good fetch before it asks for votes (a random part of up to a
    quarter of the election timeout comes on top, so that not all followers stand at once).  A leader resigns after 1.5 times
    this without fetches of a majority (check-quorum), and repeats BeginQuorumEpoch every half of it."""

    request_timeout_ms: int = 2000
    """After this a request without an answer counts as failed.  Too small repeats requests a slow peer still works on."""

    retry_backoff_ms: int = 20
    """Pause before the next request to a peer that failed or could not help.  Too small is a busy loop."""

    election_backoff_max_ms: int = 1000
    """Longest wait of a voter that the resigning leader did not prefer as its successor."""

    fetch_max_wait_ms: int = 500
    """How long a leader may hold a fetch that has nothing new.  Must be below both timeouts, or a quiet
    leader looks dead."""

    snapshot_chunk_max_bytes: int = 1 << 20
    """Most bytes of a snapshot that one answer carries, and one request asks for.  Too small means many round trips;
    too large a leader that is busy with one answer, and much to send again after a failure."""

    commit_notice_ms: int = 0
    """How long a replica that waits for data may go without hearing of a higher high watermark; the next data brings it
    sooner.  0: it is told at once, which costs an exchange with every replica for every commit.  Too large: what is
    committed is applied late elsewhere."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value: object = getattr(self, name)
            is_size = name.endswith("_bytes")
            highest, unit = (_MAX_CHUNK_BYTES, "bytes") if is_size else (_MAX_MS, "milliseconds")
            lowest = 0 if name == "commit_notice_ms" else 1
            if not isinstance(value, int) or isinstance(value, bool) or not lowest <= value <= highest:
                raise QuorumConfigError(name, value, f"must be an int from {lowest} to {highest} ({unit})")
        ceiling = min(self.fetch_timeout_ms, self.request_timeout_ms)
        if self.fetch_max_wait_ms >= ceiling:
            raise QuorumConfigError(
                "fetch_max_wait_ms",
                self.fetch_max_wait_ms,
                f"must be below fetch_timeout_ms and request_timeout_ms ({ceiling} ms)",
            )

    @property
    def check_quorum_timeout_ms(self) -> int:
        """How long a leader leads without hearing from a majority (docs/KAFKA.md 5.3)."""
        return self.fetch_timeout_ms * 3 // 2

    @property
    def begin_quorum_interval_ms(self) -> int:
        """How often a leader repeats BeginQuorumEpoch to a voter that does not fetch."""
        return max(1, self.fetch_timeout_ms // 2)
