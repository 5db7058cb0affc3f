"""Keeps gRPC quiet about loops that have ended.

gRPC's asyncio side has one queue of completed operations for all loops of a process with nodes in them.  When such a loop
is closed (the end of `asyncio.run`) some operations of calls that were cancelled in it are still to come; the loop that takes
them from the queue next, that of another `asyncio.run` with a node, then prints a traceback "Event loop is closed" for each.
Nothing is lost: whoever waited for these operations has ended.  There is no way to wait for them, as gRPC tells nobody
which are outstanding, so exactly these records are kept out of the log.
"""

from __future__ import annotations

import logging

_CALLBACK = "PollerCompletionQueue._handle_events"
_REASON = "Event loop is closed"


def is_late_completion(record: logging.LogRecord) -> bool:
    """Returns whether asyncio reports nothing but an operation that completed after its loop was closed."""
    error = record.exc_info[1] if record.exc_info else None
    return isinstance(error, RuntimeError) and str(error) == _REASON and _CALLBACK in record.getMessage()


def _is_worth_telling(record: logging.LogRecord) -> bool:
    return not is_late_completion(record)


def keep_quiet() -> None:
    """Filters asyncio's logger.  Calling it again does nothing."""
    logging.getLogger("asyncio").addFilter(_is_worth_telling)
