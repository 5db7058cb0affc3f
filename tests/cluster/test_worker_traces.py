"""Traces of OpenTelemetry from where a record is sent to where it is handled, with the library itself."""

from __future__ import annotations

import asyncio
import sys
from contextlib import nullcontext
from typing import Any

import pytest
from test_worker import servers, work

from replog import Consumer, Producer, Worker
from replog.client import ConsumerRecord, SyncProducer, trace_context, trace_headers
from replog.client.tracing import current_trace, with_trace
from replog.records import Header, TimestampType
from replog.worker.results import Results
from replog.worker.tracing import Spans

trace = pytest.importorskip("opentelemetry.trace")
pytest.importorskip("opentelemetry.sdk.trace")

pytestmark = pytest.mark.cluster

__all__ = ["servers"]  # a fixture


@pytest.fixture(scope="module")
def spans() -> Any:
    """Returns what collects the spans of this process."""
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    spans = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    trace.set_tracer_provider(provider)
    return spans


async def test_each_call_of_a_handler_is_a_span_below_that_of_the_sender(servers: str, spans: Any) -> None:
    onward: list[list[tuple[str, bytes | None]]] = []

    def handle(record: ConsumerRecord) -> None:
        onward.append(trace_headers(record.headers))
        if len(onward) == 1:
            raise ValueError("busy")

    async with Producer(servers) as producer:
        with trace.get_tracer("test").start_as_current_span("order") as order:
            await producer.send_and_wait("jobs", b"value", b"key", 1, headers=[("a", b"1")])
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


async def test_a_producer_adds_the_current_span_to_each_record(servers: str, spans: Any) -> None:
    """By itself, from the thread of a caller without a loop, too; a trace that the record has is kept."""
    given: list[Header] = [("traceparent", b"00-11111111111111111111111111111111-2222222222222222-01")]

    def send() -> Any:
        with SyncProducer(servers) as producer, trace.get_tracer("test").start_as_current_span("sync") as span:
            producer.send("jobs", b"new", partition=0).result()
            producer.send("jobs", b"kept", partition=0, headers=given).result()
            producer.send_many(
                "jobs", [b"many", (b"kept", None, given), (b"both", None, [("a", b"1")])], partition=0
            ).result()
            with pytest.raises(TypeError, match="a list of"):
                producer.send("jobs", b"", headers={"a": b""})  # type: ignore[arg-type]  # what is tested
            with pytest.raises(TypeError, match="a list of"):
                producer.send_many("jobs", [(b"", None, {"a": b""})]).result()  # type: ignore[list-item]  # what is tested
        return span

    span = await asyncio.to_thread(send)
    async with Consumer(servers) as consumer:
        await consumer.assign([("jobs", 0)])
        records: list[ConsumerRecord] = []
        while len(records) < 5:
            records += await consumer.poll()
    for new in (records[0], records[2], records[4]):
        assert trace.get_current_span(trace_context(new)).get_span_context().span_id == span.get_span_context().span_id
    assert [list(record.headers) for record in (records[1], records[3])] == [given, given]
    assert [name for name, _ in records[4].headers] == ["a", "traceparent"]


def test_results_have_the_span_of_their_handler(spans: Any) -> None:
    """They are written when it is over."""
    results = Results(1 << 20)
    with trace.get_tracer("test").start_as_current_span("handler") as span:
        results.send("bills", b"value", headers=[("a", b"1")])
    (header,) = (value for name, value in results.end()[0].headers if name == "traceparent")
    assert f"{span.get_span_context().span_id:016x}" in (header or b"").decode()


def test_without_opentelemetry_nothing_is_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "opentelemetry.trace")
    record = ConsumerRecord("t", 0, 0, 0, TimestampType.CREATE_TIME, None, None, ())
    assert isinstance(Spans("g").around(record), nullcontext)
    headers: list[Header] = [("a", b"1")]
    assert trace_headers(headers) == headers
    assert with_trace(headers, current_trace()) is headers
    assert trace_context(record) is None
    assert "opentelemetry.trace" not in sys.modules
