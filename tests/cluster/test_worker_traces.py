"""Traces of OpenTelemetry from where a record is sent to where it is handled, with the library itself."""

from __future__ import annotations

import sys
from contextlib import nullcontext

import pytest
from test_worker import servers, work

from replog import Producer, Worker
from replog.client import ConsumerRecord
from replog.records import TimestampType
from replog.worker import trace_headers
from replog.worker.tracing import Spans

trace = pytest.importorskip("opentelemetry.trace")
pytest.importorskip("opentelemetry.sdk.trace")

pytestmark = pytest.mark.cluster

__all__ = ["servers"]  # a fixture


async def test_each_call_of_a_handler_is_a_span_below_that_of_the_sender(servers: str) -> None:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    spans = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    trace.set_tracer_provider(provider)
    onward: list[list[tuple[str, bytes | None]]] = []

    def handle(record: ConsumerRecord) -> None:
        onward.append(trace_headers(record.headers))
        if len(onward) == 1:
            raise ValueError("busy")

    async with Producer(servers) as producer:
        with trace.get_tracer("test").start_as_current_span("order") as order:
            await producer.send_and_wait("jobs", b"value", b"key", 1, headers=trace_headers([("a", b"1")]))
    settings = {"group": "workers", "bootstrap_servers": servers, "retry_backoff_ms": 1}
    await work(Worker(handle, "jobs", **settings), lambda: len(onward) == 2)  # type: ignore[arg-type]
    failed, handled = [each for each in spans.get_finished_spans() if each.name == "process jobs"]
    for span, headers in zip((failed, handled), onward, strict=True):
        assert span.parent.span_id == order.get_span_context().span_id
        assert span.context.trace_id == order.get_span_context().trace_id
        assert [name for name, _ in headers] == ["a", "traceparent"]
        assert f"{span.context.span_id:016x}" in (headers[1][1] or b"").decode()
    assert (failed.status.is_ok, failed.events[0].name, handled.status.is_ok) == (False, "exception", True)
    assert dict(handled.attributes) == {
        "messaging.system": "kafka",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "jobs",
        "messaging.destination.partition.id": "1",
        "messaging.consumer.group.name": "workers",
        "messaging.kafka.offset": 0,
        "messaging.kafka.message.key": "key",
        "messaging.message.body.size": 5,
    }
    assert handled.kind is trace.SpanKind.CONSUMER


def test_without_opentelemetry_nothing_is_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "opentelemetry.trace")
    record = ConsumerRecord("t", 0, 0, 0, TimestampType.CREATE_TIME, None, None, ())
    assert isinstance(Spans("g").around(record), nullcontext)
    assert trace_headers([("a", b"1")]) == [("a", b"1")]
    assert "opentelemetry.trace" not in sys.modules
