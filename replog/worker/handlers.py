"""Handlers of records: which functions are some, and how they are called."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeAlias

from replog.client.typed_records import RecordDecoder
from replog.client.types import ConsumerRecord, K, V
from replog.errors import RecordDecodeError
from replog.errors.texts import error_text
from replog.worker.results import Results

Handler: TypeAlias = (
    Callable[[ConsumerRecord[K, V]], Awaitable[object]]
    | Callable[[ConsumerRecord[K, V]], object]
    | Callable[[ConsumerRecord[K, V], Results], Awaitable[object]]
    | Callable[[ConsumerRecord[K, V], Results], object]
)
"""What handles a record, and with `exactly_once` takes the `Results` to send by, too.  A function that is not `async` runs in a thread.  It is done with the record when it returns, or when
what it returns to be awaited has ended."""


class CodecNotReadyError(Exception):
    """A codec has trouble that will pass and says nothing of the record, so that it is no attempt at it."""


def decoding(decoder: RecordDecoder, handler: Callable[..., object]) -> Callable[..., object]:
    """Returns a handler of records that are not decoded: for each attempt the next one has values of its own."""

    def decode_and_handle(record: ConsumerRecord, *results: Results) -> object:
        try:
            decoded = decoder.decode(record)
        except RecordDecodeError:
            raise
        except Exception as error:
            raise CodecNotReadyError(error_text(error)) from error
        return handler(decoded, *results)

    return decode_and_handle


def check_handler(handler: object, arguments_count: int) -> None:
    """Refuses what handles no record: a generator function would return at once, and have done nothing.

    Args:
        handler: What was given.
        arguments_count: 1: a record; 2: and the results to send by.

    Raises:
        TypeError: It handles none, or takes another number of arguments.
    """
    if not callable(handler):
        raise TypeError(f"handler must be a function of a record, not {handler!r}")
    if any(is_kind(_function(handler)) for is_kind in (inspect.isgeneratorfunction, inspect.isasyncgenfunction)):
        raise TypeError(f"handler {handler!r} has a yield: it would be called, and none of it would run")
    if arguments_count == 2 and not _takes(handler, 2):
        raise TypeError(
            f"handler {handler!r} must take a record and, because of exactly_once, the results that it sends by"
        )
    if arguments_count == 1 and not _takes(handler, 1) and _takes(handler, 2):
        raise TypeError(
            f"handler {handler!r} takes the results that it sends by: give the worker exactly_once=True, too"
        )


def _takes(handler: Callable[..., object], arguments_count: int) -> bool:
    """Whether a function can be called with so many arguments; also where it does not say."""
    try:
        inspect.signature(handler).bind(*range(arguments_count))
    except ValueError:
        return True
    except TypeError:
        return False
    return True


def is_async(handler: object) -> bool:
    return inspect.iscoroutinefunction(_function(handler))


def _function(handler: object) -> object:
    """Returns the function behind a handler: of a `partial`, or of an object that can be called."""
    while isinstance(handler, partial):
        handler = handler.func
    return handler if inspect.isroutine(handler) else type(handler).__call__
