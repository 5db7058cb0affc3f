"""Feature levels of the cluster, and the records that begin a metadata log."""

from __future__ import annotations

from replog.metadata.records import FeatureLevelRecord
from replog_timeline import SnapshotRegistry, TimelineHashMap

METADATA_VERSION = "metadata.version"
METADATA_VERSION_LEVEL = 1
"""What this code writes; a new cluster starts with it."""


class FeatureControl:
    """Finalized levels by feature name."""

    def __init__(self, registry: SnapshotRegistry) -> None:
        self.levels: TimelineHashMap[str, int] = TimelineHashMap(registry)

    @property
    def needs_bootstrap(self) -> bool:
        """Whether the log is new: no controller has written its level yet."""
        return METADATA_VERSION not in self.levels

    def replay(self, record: FeatureLevelRecord) -> None:
        """The level is in force."""
        self.levels[record.name] = record.level
