"""Data structures with a past: read them at any snapshot, or go back to it, at the cost of what changed.

registry = SnapshotRegistry()
leaders = TimelineHashMap(registry, {"flights-0": 1})
registry.create_snapshot(10)
leaders["flights-0"] = 2
leaders.get("flights-0", epoch=10)      # 1
registry.revert_to_snapshot(10)
leaders["flights-0"]                    # 1
"""

from replog_timeline.errors import EpochOrderError, TimelineError, UnknownEpochError
from replog_timeline.hash_map import TimelineHashMap
from replog_timeline.hash_set import TimelineHashSet
from replog_timeline.nested_map import TimelineNestedMap
from replog_timeline.past_mapping import PastMapping
from replog_timeline.scalars import TimelineInteger, TimelineLong, TimelineObject
from replog_timeline.snapshot_registry import SnapshotRegistry

__all__ = [
    "EpochOrderError",
    "PastMapping",
    "SnapshotRegistry",
    "TimelineError",
    "TimelineHashMap",
    "TimelineHashSet",
    "TimelineInteger",
    "TimelineLong",
    "TimelineNestedMap",
    "TimelineObject",
    "UnknownEpochError",
]
