"""How fast new replicas may be filled, so that moving partitions does not starve clients.

`leader.replication.throttled.rate` bounds what a broker gives, to all followers together;
`follower.replication.throttled.rate` what it takes, from all leaders together.

Only records for replicas that a reassignment is adding count, until they are in sync.  A replica that acknowledgements wait
for, or that was in sync and comes back, is never held up.  A broker that has given or taken too much stops until the time
for it has passed.
"""

from __future__ import annotations

from replog.broker.clock import Clock
from replog.metadata.config_keys import ConfigKey
from replog.metadata.image import CLUSTER_DEFAULTS, MetadataImage
from replog.metadata.records import ResourceType

UNLIMITED = 1 << 62


class ReplicationThrottle:
    """A bucket of bytes that fills at the configured rate, up to a second's worth.

    Args:
        key: The configuration that says the rate.
        clock: The node's clock.
    """

    def __init__(self, key: ConfigKey, clock: Clock) -> None:
        self._name = key.cluster_name
        self._clock = clock
        self._rate_per_s = UNLIMITED
        self._room_bytes = 0.0
        self._filled_ms = clock.now_ms()

    def configure(self, image: MetadataImage, broker_id: int) -> None:
        """Puts the rate in force that is set for the broker, else for the cluster."""
        of_broker = image.configs.get((ResourceType.BROKER, str(broker_id)), {})
        text = of_broker.get(self._name) or image.configs.get(CLUSTER_DEFAULTS, {}).get(self._name)
        rate_per_s = UNLIMITED if text is None else int(text)
        if rate_per_s != self._rate_per_s:
            self._rate_per_s = rate_per_s
            self._room_bytes = 0.0
            self._filled_ms = self._clock.now_ms()

    def room_bytes(self) -> int:
        """Returns how many bytes may be moved now; 0 after too many."""
        if self._rate_per_s == UNLIMITED:
            return UNLIMITED
        now_ms = self._clock.now_ms()
        filled = self._room_bytes + self._rate_per_s * (now_ms - self._filled_ms) / 1000
        self._room_bytes = min(filled, self._rate_per_s)
        self._filled_ms = now_ms
        return max(0, int(self._room_bytes))

    def count(self, size_bytes: int) -> None:
        """Takes moved bytes out of the bucket; they may be more than were in it."""
        self._room_bytes -= size_bytes
