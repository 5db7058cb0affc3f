"""Compression of a producer's batches, in threads: the event loop goes on meanwhile.

Why threads: half a megabyte takes gzip 20 ms, and 9 MB at zstd's highest level 20 s; the libraries let other threads run.
Measured on two cores: beside a thread that compresses, the loop is never held for more than the switch of threads.

A batch is compressed before it has a producer and a sequence, which are stamped on it when it is sent: so one that is
sent again under another identity is not compressed again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from replog.client.producer.batch import ProducerBatch
from replog.client.producer.partition_queue import PartitionQueue
from replog.errors import ReplogError
from replog.records import Codec
from replog.records.compression import shrink_batch

THREADS = 2
"""Batches compressed at a time; more wait in line.  Each holds its plain and its compressed bytes."""


class BatchCompressor:
    """Compresses batches of one producer.

    Args:
        codec: The codec; not NONE.
        level: The level of gzip or zstd; None: Kafka's default.
        on_compressed: A function that is told of each partition that has a batch to send now, or lost one.
    """

    def __init__(self, codec: Codec, level: int | None, *, on_compressed: Callable[[PartitionQueue], None]) -> None:
        self._codec = codec
        self._level = level
        self._on_compressed = on_compressed
        self._threads = ThreadPoolExecutor(THREADS, "replog-compressor")  # a thread begins with its first batch

    def begin(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """Gives `batch`, which `compressible` of its queue chose, to a thread; it takes no more records."""
        plain = queue.begin_compression(batch)
        loop = asyncio.get_running_loop()
        try:
            done = loop.run_in_executor(self._threads, shrink_batch, plain, self._codec, self._level)
        except RuntimeError as error:  # no more threads can be started
            loop.call_soon(self._fail, queue, batch, error)
            return
        done.add_done_callback(lambda future: self._finish(queue, batch, future))

    def close(self) -> None:
        """Compresses nothing more; a batch that a thread is at ends without anybody waiting for it."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _finish(self, queue: PartitionQueue, batch: ProducerBatch, future: asyncio.Future[bytes]) -> None:
        if future.cancelled():  # the producer was closed
            return
        error = future.exception()
        if error is not None:
            self._fail(queue, batch, error)
        elif not batch.is_done:  # its delivery time-out may have passed
            queue.handle_compressed(batch, future.result())
            self._on_compressed(queue)

    def _fail(self, queue: PartitionQueue, batch: ProducerBatch, error: BaseException) -> None:
        if batch.is_done:
            return
        name = self._codec.name.lower()
        failure = ReplogError(f"{queue}: {batch.records_count} records could not be compressed by {name}: {error!r}")
        failure.__cause__ = error
        queue.handle_failed(batch, failure)
        self._on_compressed(queue)
