"""Which brokers of a simulated cluster have lost a disk, and which partitions only an operator can give a leader then."""

from __future__ import annotations

from replog.controller.requests import NamedPartition
from replog.metadata import MetadataImage
from replog.metadata.records import MetadataRecord, RegisterBrokerRecord, UnregisterBrokerRecord


class LostDisks:
    """Follows what has committed."""

    def __init__(self) -> None:
        self._brokers: set[int] = set()

    def note(self, record: MetadataRecord, before: MetadataImage) -> None:
        """Notes a broker that comes back with another disk, or is taken out; `before` is the image without the record's batch."""
        match record:
            case RegisterBrokerRecord():
                known = before.brokers.get(record.broker_id)
                if known is not None and not set(known.log_dirs) <= set(record.log_dirs):
                    self._brokers.add(record.broker_id)
            case UnregisterBrokerRecord():
                self._brokers.add(record.broker_id)
            case _:
                pass

    def without_hope(self, image: MetadataImage) -> tuple[NamedPartition, ...]:
        """The partitions that nobody is known to have in full, because a disk is gone: an operator has to decide."""
        return tuple(
            NamedPartition(name, partition_id)
            for name, topic in image.topics_by_name.items()
            for partition_id, p in topic.partitions.items()
            if not (p.isr or p.elr or p.last_known_elr) and self._brokers & set(p.replicas)
        )
