"""`LocalLog`: what `replog.open_log` returns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from replog.local.writing import WritableLog
from replog.log.disk_space import disk_full_errors

if TYPE_CHECKING:
    from replog.local.aio import AsyncLocalLog


class LocalLog(WritableLog):
    """A durable log in a folder, open for writing in this process.  Made by `replog.open_log`; thread-safe.

    Invariants:
        - offsets rise by one from record to record, in the order of the writes;
        - with flush="always" an offset below `high_watermark` is never given to another record, whatever crashes;
        - after a failed write or fsync nothing is appended any more.
    """

    def aio(self) -> AsyncLocalLog:
        """Makes a view of this log for the running event loop; see `AsyncLocalLog`.  Closing it leaves this log open.

        Raises:
            TooManyOpenFilesError: Its code could not be loaded, which the first call does; the same works again.
        """
        with disk_full_errors("a view for tasks cannot be made", self._path):
            from replog.local.aio import AsyncLocalLog
        return AsyncLocalLog(self)
