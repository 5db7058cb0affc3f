"""Handlers of records: which functions are some, and how they are called."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeAlias

from replog.client.typed_records import RecordDecoder
from replog.client.types import ConsumerRecord, K, V
from replog.errors import RecordDecodeError
from replog.errors.texts import error_text

Handler: TypeAlias = Callable[[ConsumerRecord[K, V]], Awaitable[object]] | Callable[[ConsumerRecord[K, V]], object]
"""What handles a record.  A function that is not `async` runs in a thread.  It is done with the record when it returns, or when
what it returns to be awaited has ended."""


class CodecNotReadyError(Exception):
    """A codec has trouble that will pass and says nothing of the record, so that it is no attempt at it."""


def decoding(decoder: RecordDecoder, handler: Handler[Any, Any]) -> Callable[[ConsumerRecord], object]:
    """Returns a handler of records that are not decoded: for each attempt the next one has values of its own."""

    def decode_and_handle(record: ConsumerRecord) -> object:
        try:
            decoded = decoder.decode(record)
        except RecordDecodeError:
            raise
        except Exception as error:
            raise CodecNotReadyError(error_text(error)) from error
        return handler(decoded)

    return decode_and_handle


def check_handler(handler: object) -> None:
    """Raises TypeError for what handles no record: a generator function would return at once, and have done nothing."""
    if not callable(handler):
        raise TypeError(f"handler must be a function of a record, not {handler!r}")
    if any(is_kind(_function(handler)) for is_kind in (inspect.isgeneratorfunction, inspect.isasyncgenfunction)):
        raise TypeError(f"handler {handler!r} has a yield: it would be called, and none of it would run")


def is_async(handler: object) -> bool:
    return inspect.iscoroutinefunction(_function(handler))


def _function(handler: object) -> object:
    """Returns the function behind a handler: of a `partial`, or of an object that can be called."""
    while isinstance(handler, partial):
        handler = handler.func
    return handler if inspect.isroutine(handler) else type(handler).__call__
