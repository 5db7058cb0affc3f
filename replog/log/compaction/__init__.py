"""Log compaction: of every key the newest record stays, with its offset; records that it superseded go.

| module         | idea                                                                       |
|----------------|----------------------------------------------------------------------------|
| `planning`     | which logs are dirty enough, which segments become one                      |
| `job`          | one pass: fill the offset map, rewrite the segments, in any thread          |
| `transactions` | aborted data, and markers that still decide something                       |
| `output`       | the new segments, under `.cleaned` names                                    |
| `swap`         | their place in the log; what a crash at any step leaves                     |
| `throttle`     | bytes a second                                                              |

`replog.records.compaction` changes the bytes of a batch.  `Log.prepare_compaction` makes a job,
`Log.complete_compaction` puts its result in place.

Differs from Kafka on purpose: the last batch of every compacted segment stays, as a header of 61 bytes if need be, so that
each segment ends where the next one begins.  A gap between two segments is then always damage, never compaction.
"""

from replog.log.compaction.job import CompactionJob, CompactionSettings, CompactionStats, Throttle
from replog.log.compaction.planning import Dirtiness

__all__ = ["CompactionJob", "CompactionSettings", "CompactionStats", "Dirtiness", "Throttle"]
