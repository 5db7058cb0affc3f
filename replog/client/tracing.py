"""Traces of OpenTelemetry in the headers of records: what carries a span from who sends a record to who handles it.

Nothing of OpenTelemetry is imported but where the program has done so itself: without it a client costs nothing more.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from replog.client.types import ConsumerRecord
from replog.records import Header

if TYPE_CHECKING:
    from opentelemetry.context import Context

_API: Final = "opentelemetry.trace"


def is_tracing() -> bool:
    """Returns whether the program has imported OpenTelemetry."""
    return _API in sys.modules


def trace_headers(headers: Iterable[Header] = ()) -> list[Header]:
    """Returns headers with those that carry the trace of the current span, `traceparent` with OpenTelemetry's default propagator.

    ::

        await producer.send_many("orders", [(value, key, trace_headers()) for key, value in orders])

    Args:
        headers: The record's other headers; one of a former trace is replaced.

    Returns:
        Them alone where the program has not imported OpenTelemetry, or no span is current.
    """
    trace = current_trace()
    names = {name for name, _ in trace}
    return [*((name, value) for name, value in headers if name not in names), *trace]


def with_trace(headers: Sequence[Header], trace: Sequence[Header]) -> Sequence[Header]:
    """Returns headers with those of a trace, unless they have one already: it is kept."""
    names = {name for name, _ in trace}
    if not names or any(name in names for name, _ in headers):
        return headers
    return [*headers, *trace]


def trace_context(record: ConsumerRecord[Any, Any]) -> Context | None:
    """Returns the context of the span in which a record was sent, as the parent of a span about it.

    ::

        with tracer.start_as_current_span("bill", context=trace_context(record)):
            ...

    Returns:
        The current context where the record has no trace; None where the program has not imported OpenTelemetry.
    """
    if not is_tracing():
        return None
    from opentelemetry import propagate

    return propagate.extract(
        {name: value.decode(errors="replace") for name, value in record.headers if value is not None}
    )


def current_trace() -> list[Header]:
    """Returns the headers that carry the current span; none where nothing is traced."""
    carrier: dict[str, str] = {}
    if is_tracing():
        from opentelemetry import propagate

        propagate.inject(carrier)
    return [(name, value.encode()) for name, value in carrier.items()]
