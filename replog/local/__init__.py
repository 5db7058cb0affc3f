"""A durable log in your process and nothing else: `replog.open_log`.

The storage engine of a replica behind a surface for people who have no cluster: one folder, one log, any number of threads
and tasks.  The files are Kafka's; see `replog.local.folder` for what lies where, and `docs/OPEN_LOG.md` for the guide.

gRPC, protobuf, asyncio and pyarrow are not imported until something needs them (asyncio: `LocalLog.aio`,
`open_log_async`; pyarrow: `arrow_batches`, `to_arrow`); the first two never are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from replog.host.late_names import late_names
from replog.local.config import LocalLogConfig
from replog.local.encoding import NewRecord
from replog.local.fork import fork_log
from replog.local.local_log import LocalLog, ReadOnlyLog
from replog.local.opening import open_log
from replog.records import Codec, Record

if TYPE_CHECKING:
    from replog.local.aio import AsyncLocalLog
    from replog.local.async_opening import open_log_async

__all__ = [
    "AsyncLocalLog",
    "Codec",
    "LocalLog",
    "LocalLogConfig",
    "NewRecord",
    "ReadOnlyLog",
    "Record",
    "fork_log",
    "open_log",
    "open_log_async",
]

__getattr__, __dir__ = late_names(
    __name__, {"AsyncLocalLog": "replog.local.aio", "open_log_async": "replog.local.async_opening"}, __all__
)
