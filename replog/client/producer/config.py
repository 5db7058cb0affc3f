"""The producer's settings, checked once."""

from __future__ import annotations

from typing import Literal, get_args

from msgspec import Struct

from replog.errors import ConfigError
from replog.errors.choices import INT32_MAX, require_at_least, require_choice, require_kind
from replog.records import Codec, CodecName
from replog.records.compression import GZIP_LEVEL, ZSTD_LEVEL, require_codec
from replog.rpc.messages import ACKS_ALL

Acks = Literal["all", -1, 0, 1]

MAX_IN_FLIGHT_MAX = 5
"""Batches per producer and partition that a broker remembers; with more, one sent again might not be recognised."""

MAX_REQUEST_BYTES_MAX = 55 << 20
"""Batches that fit into one message of the transport (64 MiB) with room for what describes them."""


LZ4_LEVEL = 9
"""Kafka's default, at which its clients use the fast compressor: the only one here."""

GZIP_LEVEL_MAX = 9
ZSTD_LEVEL_MIN = -131_072
ZSTD_LEVEL_MAX = 22


class ProducerConfig(Struct, frozen=True):
    """Settings of a `Producer`; each is a keyword of its constructor.

    Raises:
        ConfigError: A value is out of range, or two contradict each other.
        UnsupportedCompressionError: The library for `compression` is not installed.
    """

    acks: Acks = "all"
    """"all": every in-sync replica has the records (at least min.insync.replicas of them); 1: the leader has appended
    them, and they are lost with it; 0: they were sent, nothing more is known and no offset is given."""
    enable_idempotence: bool | None = None
    """No duplicates and no reordering by retries.  Default: on with acks "all", which it needs; otherwise off."""
    batch_size_bytes: int = 512 * 1024
    """A batch is closed at this size, 1 or more.  Too small: more messages, which cost about the same whatever is in
    them (measured: a quarter less CPU time per byte than with 256 KiB); too large: memory per partition, of which only
    what is filled is taken.  A record that is larger gets a batch of its own.  Topics with a smaller
    max.message.bytes get smaller batches."""
    linger_ms: float = 0
    """How long a batch that is not full waits for more records.  With 0 it waits only for a caller that is sending without a pause, up
    to 10 ms, and otherwise while requests are in flight."""
    max_request_bytes: int = 1024 * 1024
    """Bound of one message's batches, and so of one record with its overhead; at most 55 MiB, what one message carries.
    A topic takes what its max.message.bytes allows, never more than 32 MiB."""
    buffer_memory_bytes: int = 32 * 1024 * 1024
    """Bound of records that are not acknowledged yet; `send` waits when it is reached."""
    delivery_timeout_ms: int = 120_000
    """From `send` to the acknowledgement, retries included; then the records fail."""
    request_timeout_ms: int = 30_000
    """How long one request may wait for its acknowledgement before it is tried again."""
    max_in_flight_per_partition: int = MAX_IN_FLIGHT_MAX
    """Batches sent and not acknowledged, 1 to 5.  Without idempotence it is always 1, so that order is kept."""
    fail_below_min_isr: bool = False
    """Whether records fail at once while a partition has fewer in-sync replicas than min.insync.replicas: with
    NotEnoughReplicasError when they are certainly not in the log, with NotEnoughReplicasAfterAppendError when they may be.
    False: they are tried again until delivery_timeout_ms, and the time-out has NotEnoughReplicasError as its cause."""
    connect_timeout_ms: int = 10_000
    """How long `start` waits for a first broker to answer."""
    close_timeout_ms: int | None = None
    """How long `async with` and `close` wait at the end for acknowledgements; what is left then fails with BrokerClosedError.
    Not set: until every record is acknowledged or has failed, `delivery_timeout_ms` at most."""
    compression: CodecName = "none"
    """Compression of batches, in threads beside the event loop: "none", "gzip", "snappy", "lz4" or "zstd" (the last three
    need the extra `compression`).  A batch is stored as it is where that makes it no smaller.  batch_size_bytes and the
    bound of a record count bytes before compression, the bound of a message and the topic's max.message.bytes what is sent."""
    compression_gzip_level: int = GZIP_LEVEL
    """1 (fast) to 9 (small); -1: zlib's default, 6."""
    compression_lz4_level: int = LZ4_LEVEL
    """9, the fast compressor, as with Kafka's clients; their others are not there."""
    compression_zstd_level: int = ZSTD_LEVEL
    """-131072 (fast) to 22 (small, and 40 times as slow as 3)."""
    transactional_id: str | None = None
    """The name by which brokers know a producer of transactions across restarts: whoever comes with it later fences those before.
    With it every record is sent in a transaction, see `Producer.transaction`; None: in none."""
    transaction_timeout_ms: int = 60_000
    """How long a transaction may be open before its coordinator aborts it.  Readers of committed records wait at an open transaction:
    too long, and a producer that dies holds them up; too short, and slow work is aborted.  At most the brokers'
    transaction.max.timeout.ms, 15 minutes unless it is set otherwise."""

    def __post_init__(self) -> None:
        require_choice("acks", self.acks, get_args(Acks))
        require_choice("enable.idempotence", self.enable_idempotence, (True, False, None))
        if self.enable_idempotence and self.acks_code != ACKS_ALL:
            raise ConfigError(
                "enable.idempotence",
                self.enable_idempotence,
                f'enable.idempotence needs acks "all", and acks is {self.acks!r}. Change one.',
            )
        for name, low in _LOWEST.items():
            high = INT32_MAX if name in _SAID_TO_BROKERS else None
            require_at_least(name.replace("_", "."), getattr(self, name), low, high, is_whole=name != "linger_ms")
        if self.close_timeout_ms is not None:
            require_at_least("close.timeout.ms", self.close_timeout_ms, 0)
        require_choice("fail.below.min.isr", self.fail_below_min_isr, (True, False))
        self._check_compression()
        self._check_transactions()
        if self.max_request_bytes > MAX_REQUEST_BYTES_MAX:
            raise ConfigError(
                "max.request.bytes",
                self.max_request_bytes,
                f"max.request.bytes is {self.max_request_bytes}; it is at most {MAX_REQUEST_BYTES_MAX}, what one message "
                "carries. No topic takes batches of more than 32 MiB.",
            )
        if self.max_in_flight_per_partition > MAX_IN_FLIGHT_MAX:
            raise ConfigError(
                "max.in.flight.per.partition",
                self.max_in_flight_per_partition,
                f"max.in.flight.per.partition is {self.max_in_flight_per_partition}; it is 1 to {MAX_IN_FLIGHT_MAX}, "
                "the number of batches that a broker remembers of a producer.",
            )

    def _check_transactions(self) -> None:
        name = self.transactional_id
        if name is None:
            return
        require_kind("transactional.id", name, str)
        if not name:
            raise ConfigError(
                "transactional.id", name, "transactional.id is empty; give the producer a name of its own"
            )
        if not self.is_idempotent:
            raise ConfigError(
                "transactional.id",
                name,
                'transactional.id needs acks "all" and enable.idempotence; leave both as they are',
            )

    def _check_compression(self) -> None:
        require_choice("compression", self.compression, get_args(CodecName))
        gzip, lz4 = self.compression_gzip_level, self.compression_lz4_level
        if gzip != GZIP_LEVEL:
            require_at_least("compression.gzip.level", gzip, 1, GZIP_LEVEL_MAX)
        if type(lz4) is not int or lz4 != LZ4_LEVEL:
            reason = f"compression.lz4.level is {lz4!r}; it must be {LZ4_LEVEL}: the library of lz4 has no other level."
            raise ConfigError("compression.lz4.level", lz4, reason)
        require_at_least("compression.zstd.level", self.compression_zstd_level, ZSTD_LEVEL_MIN, ZSTD_LEVEL_MAX)
        require_codec(self.codec)

    @property
    def codec(self) -> Codec:
        """The compression of batches."""
        return Codec[self.compression.upper()]

    @property
    def compression_level(self) -> int | None:
        """The level of the codec; None: it has none."""
        return {Codec.GZIP: self.compression_gzip_level, Codec.ZSTD: self.compression_zstd_level}.get(self.codec)

    @property
    def acks_code(self) -> int:
        """As the protocol says it: -1, 0 or 1."""
        return ACKS_ALL if self.acks == "all" else self.acks

    @property
    def is_idempotent(self) -> bool:
        return self.acks_code == ACKS_ALL if self.enable_idempotence is None else self.enable_idempotence

    @property
    def max_in_flight(self) -> int:
        return self.max_in_flight_per_partition if self.is_idempotent else 1


_LOWEST: dict[str, int] = {
    "batch_size_bytes": 1,
    "linger_ms": 0,
    "max_request_bytes": 256,
    "buffer_memory_bytes": 1024,
    "delivery_timeout_ms": 1,
    "request_timeout_ms": 1,
    "max_in_flight_per_partition": 1,
    "connect_timeout_ms": 1,
    "transaction_timeout_ms": 1,
}
_SAID_TO_BROKERS = frozenset({"max_request_bytes", "request_timeout_ms", "transaction_timeout_ms"})
