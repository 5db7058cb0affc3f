"""Traces of OpenTelemetry: a span for each call of a handler, below the span that was current where the record was sent.

Nothing of OpenTelemetry is imported but where the program has done so itself: without it a worker costs nothing more.
Names of attributes: OpenTelemetry's semantic conventions for messaging, and for Kafka.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from replog._version import __version__
from replog.client.tracing import is_tracing, trace_context
from replog.client.types import ConsumerRecord


class Spans:
    """Makes the spans of one worker.

    Args:
        group: Its group.
    """

    def __init__(self, group: str) -> None:
        self._group = group
        self._tracer: Any = None
        if is_tracing():
            from opentelemetry import trace

            self._tracer = trace.get_tracer("replog.worker", __version__)

    def around(self, record: ConsumerRecord) -> AbstractContextManager[object]:
        """Returns what makes a span current while a handler works; it has the error of one that raises."""
        if self._tracer is None:
            return nullcontext()
        from opentelemetry.trace import SpanKind

        span: AbstractContextManager[object] = self._tracer.start_as_current_span(
            f"process {record.topic}",
            context=trace_context(record),
            kind=SpanKind.CONSUMER,
            attributes=_attributes(record, self._group),
        )
        return span


def _attributes(record: ConsumerRecord, group: str) -> dict[str, str | int | bool]:
    found: dict[str, str | int | bool] = {
        "messaging.system": "kafka",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": record.topic,
        "messaging.destination.partition.id": str(record.partition),
        "messaging.consumer.group.name": group,
        "messaging.kafka.offset": record.offset,
        "messaging.message.body.size": len(record.value or b""),
    }
    if record.key is not None:
        found["messaging.kafka.message.key"] = record.key.decode(errors="replace")
    if record.value is None:
        found["messaging.kafka.message.tombstone"] = True
    return found
