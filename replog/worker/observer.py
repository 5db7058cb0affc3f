"""What a program may hear of its worker, to count and to measure."""

from __future__ import annotations

from replog.client.types import ConsumerRecord


class WorkerObserver:
    """Hears what becomes of records; a program overrides what it wants to count.

    It is called in the thread of the worker's event loop, and must not wait.  What it raises is told to the log, and changes nothing.
    Records are as they were read: their keys and values are bytes, whatever the codecs are.
    """

    def on_handled(self, record: ConsumerRecord, seconds: float) -> None:
        """Hears that the handler has handled a record, in its last call in so many seconds."""

    def on_failed(self, record: ConsumerRecord, error: BaseException, seconds: float) -> None:
        """Hears that a call of the handler has failed after so many seconds; the record may be tried again."""

    def on_moved(self, record: ConsumerRecord, error: BaseException, topic: str) -> None:
        """Hears that a record was written to a topic of retries, or to that of dead letters."""
